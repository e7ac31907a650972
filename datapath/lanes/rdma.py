# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel's RDMA devices on a host: rxe0 (soft-RoCE) or siw0 (soft-iWARP) on its device."""

from __future__ import annotations

from collections.abc import Sequence

from datapath.errors import CapabilityError
from datapath.lanes.base import Host

KERNEL_DEVICES = ("rxe", "siw")
_MODULES = {"rxe": "rdma_rxe", "siw": "siw"}
_USER_ACCESS = ("ib_uverbs", "rdma_ucm")
_TIMEOUT_S = 30.0


def add(host: Host, device: str) -> None:
    """Load the modules and make `<device>0` on the host's device under test.

    CapabilityError in the kernel's or the rdma tool's words.
    """
    load(host, device)
    _do(host, adding(host, device), f"make {device}0 on {host.endpoint.netdev}")


def load(host: Host, device: str) -> None:
    """Load the modules that it needs."""
    for module in (_MODULES[device], *_USER_ACCESS):
        _do(host, ["modprobe", module], f"load {module}")


def adding(host: Host, device: str) -> list[str]:
    """The command that makes `<device>0`."""
    return ["rdma", "link", "add", f"{device}0", "type", device, "netdev", host.endpoint.netdev]


def mark(device: str) -> str:
    """A folder that is there as long as it."""
    return f"/sys/class/infiniband/{device}0"


def removing(device: str) -> list[str]:
    """The command that takes it away."""
    return ["rdma", "link", "delete", f"{device}0"]


def remove(host: Host, device: str, *, unload: bool = False) -> None:
    """Take `<device>0` away again.

    unload: unload its module too.  The module of rxe holds UDP port 4791, which the udp
    port of dp needs.
    """
    _do(host, removing(device), f"remove {device}0")
    if unload:
        module = _MODULES[device]
        _do(host, ["modprobe", "--remove", module], f"unload {module}")


def _do(host: Host, argv: Sequence[str], what: str) -> None:
    done = host.run(argv, timeout_s=_TIMEOUT_S)
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())
        raise _cannot(host, what, words or f"exit status {done.returncode}")


def cannot_make(host: Host, device: str, words: str) -> CapabilityError:
    """The error of adding() that failed, with what it said."""
    return _cannot(host, f"make {device}0 on {host.endpoint.netdev}", words)


def _cannot(host: Host, what: str, words: str) -> CapabilityError:
    return CapabilityError(
        f"{host.name} cannot {what}: {words}",
        hint="rxe and siw need a kernel with RDMA: Debian's generic flavour, not cloud",
    )
