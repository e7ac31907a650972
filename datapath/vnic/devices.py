# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The devices of a host's guests: whether a card can have them now.

The card itself refuses a device that it cannot have, and does not start then.  Here this is found
out before, so that a card goes on, or starts, for the other guests.

A device that the host itself needs works as a guest's, but the host then loses all that arrives
there: claim() knows such devices.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import json
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from datapath.debian import install_hint
from datapath.errors import CapabilityError
from datapath.vnic.program import Program, Settings, index_of
from datapath.vnic.spec import ANOTHER_DEVICE

_SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCETHTOOL = 0x8913, 0x8921, 0x8946
_IFF_UP = 1
_NAME_BYTES = 16  # of a device, in struct ifreq
_ETHTOOL_GCHANNELS = 0x3C
_CHANNELS_WORDS, _RX_COUNT, _COMBINED_COUNT = 9, 5, 8  # of struct ethtool_channels
_NETDEVS = Path("/sys/class/net")
_DEFAULT = ("route", "show", "default")


class GuestDevices:
    """The devices that a host's card should have, from one of its cards to the next.

    tell: is given a line for the user when a guest has to wait, again when the reason changes.
    """

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        self._settings, self._tell = settings, tell
        self.waiting: dict[str, str] = {}
        """Device of each guest that the card is without -> why."""

    def available(self) -> Settings:
        """The settings without the guests whose devices a card cannot have now."""
        self._judge(self._settings.devices)
        guests = [row for row in self._settings.guests if row.device not in self.waiting]
        return dataclasses.replace(self._settings, guests=guests)

    def better(self, program: Program) -> str:
        """A device that another card could have and this one has not; "": there is none.

        One that has gone is no reason for another card: the others go on with the one that runs.
        """
        had = program.devices
        lacking = [
            name
            for name in self._settings.devices
            if name not in had or index_of(name) not in (None, had[name])
        ]
        self._judge(lacking)
        return next((name for name in lacking if name not in self.waiting), "")

    def _judge(self, names: list[str]) -> None:
        found = {name: why for name in names if (why := self._trouble(name))}
        for name, why in found.items():
            if self.waiting.get(name) != why:
                self._tell(f"{why}; the card goes on without this guest until that is mended")
        self.waiting = found

    def _trouble(self, name: str) -> str:
        if why := trouble(name, self._settings.mtu):
            return why
        why = claim(name, self._settings.hosts[0].address, self._settings.port)
        return f"{why}: {ANOTHER_DEVICE}" if why else ""


def claim(name: str, address: str, port: str) -> str:
    """Why the host needs a device itself, so that it is no guest's; "" when it does not.

    address, port: of the host in the file, the port as there or as io/port.h has it.
    CapabilityError: it cannot be found out.
    """
    if (index := index_of(name)) is None:
        return ""
    if index_of(port.partition(",")[0].removeprefix("afxdp:")) == index:
        return f"{name} is the device of this host's own port"
    own = socket.if_indextoname(index)  # it may have further names
    has = {link["ifname"]: list(_addresses(link)) for link in _listed("address")}
    if ip_address(address) in has.get(own, []):
        return f"{name} has this host's address {address}"
    if any(route.get("dev") == own for ip in ("-4", "-6") for route in _listed(ip, *_DEFAULT)):
        return f"{name} has this host's default route"
    if not (_NETDEVS / own / "device").exists():
        return ""  # an address of a tap or a veth is no use with a card, and does no harm
    used = (one for part in _with_uppers(own) for one in has.get(part, []))
    other = next((one for one in used if not one.is_link_local), None)
    return f"{name} is a network card of this host, with its address {other}" if other else ""


def _with_uppers(name: str) -> Iterator[str]:
    """The device, and the bridges, bonds and VLANs that it is part of."""
    yield name
    for upper in (_NETDEVS / name).glob("upper_*"):
        yield from _with_uppers(upper.name.removeprefix("upper_"))


def _addresses(link: Mapping[str, Any]) -> Iterator[IPv4Address | IPv6Address]:
    return (ip_address(one["local"]) for one in link.get("addr_info", ()) if "local" in one)


def _listed(*what: str) -> list[dict[str, Any]]:
    """What `ip` tells; [] when it tells nothing, as of IPv6 where the kernel has none."""
    try:
        done = subprocess.run(["ip", "-json", *what], capture_output=True, check=False)
    except FileNotFoundError:
        raise CapabilityError("program ip is not installed", hint=install_hint("ip")) from None
    return [row for row in json.loads(done.stdout or b"[]") if row]


def trouble(name: str, mtu: int) -> str:
    """Why a card whose guests have this MTU cannot have the device; "" when it can."""
    try:
        flags = struct.unpack_from("H", _ioctl(_SIOCGIFFLAGS, name), _NAME_BYTES)[0]
        has_mtu = struct.unpack_from("i", _ioctl(_SIOCGIFMTU, name), _NAME_BYTES)[0]
    except OSError:
        return f"there is no device {name}"
    if not flags & _IFF_UP:
        return f"{name} is down"
    if has_mtu < mtu:
        return f"MTU {has_mtu} of {name} is less than the guests' of {mtu}"
    queues = _receive_queues(name)
    return f"{name} has {queues} receive queues in place of one" if queues > 1 else ""


def _receive_queues(name: str) -> int:
    """1 when the driver does not tell, as io/netdev.c has it."""
    channels = array.array("I", [_ETHTOOL_GCHANNELS, *[0] * (_CHANNELS_WORDS - 1)])
    address, _ = channels.buffer_info()
    with contextlib.suppress(OSError):
        _ioctl(_SIOCETHTOOL, name, struct.pack("P", address))
    return max(channels[_RX_COUNT] + channels[_COMBINED_COUNT], 1)


def _ioctl(request: int, name: str, argument: bytes = b"") -> bytes:
    """One ioctl on a device: struct ifreq afterwards."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return fcntl.ioctl(
            sock, request, struct.pack(f"{_NAME_BYTES}s24s", name.encode(), argument)
        )
