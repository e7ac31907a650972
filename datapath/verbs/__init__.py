# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Our RDMA devices for Python programs, through pyverbs.

Import this package before pyverbs.  When `DATAPATH_DEVICES` names devices, it
puts the verbs front (libdpverbs.so) into the process under the name
libibverbs.so.1, so that pyverbs, which asks the loader for that name, finds
our devices beside real ones:

    import datapath.verbs
    from pyverbs.device import Context

Under `dpctl exec` the front is there already, and this does nothing.

`set_cc` and `cc_of` are about the congestion-control algorithm of one QP.

    launch.py       runs any verbs program with a device of ours
    device_keys.py  the keys of a device; spec.py: the `transport` section of experiments
    sizes.py        how long the packets of a device are
    direct.py       `set_cc` and `cc_of`
    control.py      the QPs of programs that run, seen and changed from outside
    sysfs.py        our devices in /sys and /dev
    gensyms.py      makes the library's exported symbols of symbols.txt

front.h lists the C files.
"""

from __future__ import annotations

import os
from pathlib import Path

from datapath.errors import LocalError
from datapath.verbs.direct import QpAlgorithm, cc_of, set_cc

__all__ = ["QpAlgorithm", "cc_of", "load_front", "set_cc"]


def _mapped(name: str) -> bool:
    """Whether a file of that name is mapped into this process."""
    maps = Path("/proc/self/maps").read_text(errors="replace")
    return any(line.rstrip().endswith("/" + name) for line in maps.splitlines())


def load_front() -> bool:
    """Load libdpverbs.so if devices are configured; whether it is there now.

    Raises LocalError when another libibverbs is in the process already (it
    cannot be exchanged), CapabilityError when the front has not been built.
    """
    if not os.environ.get("DATAPATH_DEVICES", "").strip():
        return False
    if _mapped("libdpverbs.so"):
        return True
    maps = Path("/proc/self/maps").read_text(errors="replace")
    if "/libibverbs.so.1" in maps:
        raise LocalError(
            "libibverbs is loaded already, without our devices",
            hint="import datapath.verbs before pyverbs, or run under dpctl exec",
        )

    import ctypes

    from datapath.native import paths

    ctypes.CDLL(str(paths.verbs_library()), mode=ctypes.RTLD_GLOBAL)
    return True


load_front()
