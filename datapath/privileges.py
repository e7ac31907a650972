# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether this process may make network namespaces, or use AF_XDP.

It takes root, and that alone does not suffice.  Root of a plain container lacks capabilities, and
root of a user namespace has them over what belongs to the namespace alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from datapath.errors import CapabilityError

_STATUS = Path("/proc/self/status")
_UID_MAP = Path("/proc/self/uid_map")
_WHOLE_UID_MAP = ["0", "0", "4294967295"]
_PRIVILEGED = "in a container, start it with --privileged"
_SYS_ADMIN = 21  # in place of CAP_BPF as well


@dataclass(frozen=True)
class Need:
    """What root has to have; capabilities: name -> bit of linux/capability.h."""

    purpose: str
    capabilities: Mapping[str, int]


# For namespaces, mounts and BPF; for devices and routes.
NAMESPACES = Need("to make network namespaces", {"CAP_SYS_ADMIN": _SYS_ADMIN, "CAP_NET_ADMIN": 12})
# To load an XDP program, to attach it, and to open the socket.
AF_XDP = Need("for AF_XDP", {"CAP_BPF": 39, "CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13})


def lack(what: str, need: Need = NAMESPACES) -> CapabilityError | None:
    """What this process lacks; what: that which needs it."""
    if os.geteuid() != 0:
        return CapabilityError(
            f"{what} needs root, {need.purpose}", hint="run it as root: sudo dpctl ..."
        )
    if in_user_namespace():
        return CapabilityError(
            f"{what} needs root of the machine, {need.purpose}, and root is that of a user "
            "namespace here",
            hint=f"run it outside of the namespace, as root; {_PRIVILEGED}, as root",
        )
    if missing := missing_capabilities(need):
        return CapabilityError(
            f"{what} needs {' and '.join(missing)}, {need.purpose}, which root does not have here",
            hint=_PRIVILEGED,
        )
    return None


def check(what: str, need: Need = NAMESPACES) -> None:
    """Raise what lack() tells."""
    error = lack(what, need)
    if error is not None:
        raise error


def in_user_namespace() -> bool:
    """Whether users here are not those of the machine; False where /proc does not tell."""
    try:
        return _UID_MAP.read_text().split() != _WHOLE_UID_MAP
    except OSError:
        return False


def missing_capabilities(need: Need = NAMESPACES) -> list[str]:
    """Those that are needed and this process lacks; [] where /proc does not tell."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return []
    effective = next((int(line[7:], 16) for line in lines if line.startswith("CapEff:")), -1)
    if effective >> _SYS_ADMIN & 1:
        effective |= 1 << AF_XDP.capabilities["CAP_BPF"]
    return [name for name, bit in need.capabilities.items() if not effective >> bit & 1]
