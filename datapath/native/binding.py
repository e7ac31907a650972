# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A C library as `ffi` and `lib` of a module, opened when one of the two is first used."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attributes_of(
    module: str, cdef: Callable[[], Path], library: Callable[[], Path]
) -> Callable[[str], Any]:
    """A module's __getattr__; cdef, library: where declarations and library are.

    Its result raises CapabilityError when the library has not been built.
    """

    @functools.cache
    def opened() -> dict[str, Any]:
        import cffi

        ffi = cffi.FFI()
        ffi.cdef(cdef().read_text())
        # When Python ends, threads of the library may still run: its code stays where it is.
        flags = os.RTLD_NOW | os.RTLD_NODELETE
        return {"ffi": ffi, "lib": ffi.dlopen(str(library()), flags)}

    def get(name: str) -> Any:
        if name not in ("ffi", "lib"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return opened()[name]

    return get
