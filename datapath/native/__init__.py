# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The single door from Python to C: `ffi` and `lib` of libdpcore.so.

    from datapath.native import ffi, lib
    packet = ffi.new("struct dp_packet *")
    lib.dp_icrc_append(packet)

cffi works in ABI mode: the declarations are made from the C headers when the
library is built, so neither needs a compiler at run time.  The library is
opened when one of the two names is first used; `datapath.native.paths` alone
opens nothing.

sim.py and coll.py are the same for libdpsim.so and libdpcoll.so; binding.py makes all three.
"""

from __future__ import annotations

from datapath.native import paths
from datapath.native.binding import attributes_of

__all__ = ["ffi", "lib", "paths"]

__getattr__ = attributes_of(__name__, paths.core_cdef, paths.core_library)
