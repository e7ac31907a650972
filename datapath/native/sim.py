# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`ffi` and `lib` of libdpsim.so, the simulator with an engine of its own inside.

Objects of it and of libdpcore.so (datapath.native) do not mix.  It is opened when one of
the two names is first used.
"""

from __future__ import annotations

import functools
from typing import Any

from datapath.native import paths

__all__ = ["ffi", "lib"]

ffi: Any
lib: Any


@functools.cache
def _library() -> tuple[Any, Any]:
    """(ffi, lib).  Raises CapabilityError when the library has not been built."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(paths.sim_cdef().read_text())
    return ffi, ffi.dlopen(str(paths.sim_library()))


def __getattr__(name: str) -> Any:
    if name == "ffi":
        return _library()[0]
    if name == "lib":
        return _library()[1]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
