# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`ffi` and `lib` of libdpcoll.so, collectives over any verbs device.

It is opened when one of the two names is first used, and so is libibverbs: import datapath.verbs
before, so that our devices are there.
"""

from __future__ import annotations

from typing import Any

from datapath.native import paths
from datapath.native.binding import attributes_of

__all__ = ["ffi", "lib"]

ffi: Any
lib: Any

__getattr__ = attributes_of(__name__, paths.collective_cdef, paths.collective_library)
