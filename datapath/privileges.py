# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether this process may make network namespaces: by user, user namespace and capabilities.

Root alone does not suffice.  That of a plain container lacks capabilities, and that of a user
namespace has them over what belongs to the namespace alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from datapath.errors import CapabilityError

_STATUS = Path("/proc/self/status")
_UID_MAP = Path("/proc/self/uid_map")
_WHOLE_UID_MAP = ["0", "0", "4294967295"]
_NEEDED = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12}
"""Bits of linux/capability.h: for namespaces, mounts and BPF; for devices and routes."""
_PRIVILEGED = "in a container, start it with --privileged"


def lack(what: str) -> CapabilityError | None:
    """What this process lacks for network namespaces; what: that which needs them."""
    if os.geteuid() != 0:
        return CapabilityError(
            f"{what} needs root, to make network namespaces", hint="run it as root: sudo dpctl ..."
        )
    if in_user_namespace():
        return CapabilityError(
            f"{what} needs root of the machine, to make network namespaces, and root is that of a "
            "user namespace here",
            hint=f"run it outside of the namespace, as root; {_PRIVILEGED}, as root",
        )
    if missing := missing_capabilities():
        return CapabilityError(
            f"{what} needs {' and '.join(missing)}, to make network namespaces, which root does "
            "not have here",
            hint=_PRIVILEGED,
        )
    return None


def check(what: str) -> None:
    """Raise what lack() tells."""
    error = lack(what)
    if error is not None:
        raise error


def in_user_namespace() -> bool:
    """Whether users here are not those of the machine; False where /proc does not tell."""
    try:
        return _UID_MAP.read_text().split() != _WHOLE_UID_MAP
    except OSError:
        return False


def missing_capabilities() -> list[str]:
    """Those that network namespaces take and this process lacks; [] where /proc does not tell."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return []
    effective = next((int(line[7:], 16) for line in lines if line.startswith("CapEff:")), -1)
    return [name for name, bit in _NEEDED.items() if not effective >> bit & 1]
