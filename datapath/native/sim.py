# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`ffi` and `lib` of libdpsim.so, the simulator with an engine of its own inside.

Objects of it and of libdpcore.so (datapath.native) do not mix.  It is opened when one of
the two names is first used.
"""

from __future__ import annotations

from typing import Any

from datapath.native import paths
from datapath.native.binding import attributes_of

__all__ = ["ffi", "lib"]

ffi: Any
lib: Any

__getattr__ = attributes_of(__name__, paths.sim_cdef, paths.sim_library)
