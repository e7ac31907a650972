# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The single door from Python to C: `ffi` and `lib` of libdpcore.so.

    from datapath.native import ffi, lib
    packet = ffi.new("struct dp_packet *")
    lib.dp_icrc_append(packet)

cffi works in ABI mode: the declarations are made from the C headers when the
library is built, so neither needs a compiler at run time.  The library is
opened when one of the two names is first used; `datapath.native.paths` alone
opens nothing.
"""

from __future__ import annotations

import functools
from typing import Any

from datapath.native import paths

__all__ = ["ffi", "lib", "paths"]


@functools.cache
def _library() -> tuple[Any, Any]:
    """(ffi, lib).  Raises CapabilityError when the library has not been built."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(paths.core_cdef().read_text())
    return ffi, ffi.dlopen(str(paths.core_library()))


def __getattr__(name: str) -> Any:
    if name == "ffi":
        return _library()[0]
    if name == "lib":
        return _library()[1]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
