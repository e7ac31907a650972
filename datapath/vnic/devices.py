# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The devices of a host's guests: whether a card can have them now.

The card itself refuses a device that it cannot have, and does not start then.  Here this is found
out before, so that a card goes on, or starts, for the other guests.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import socket
import struct
from collections.abc import Callable

from datapath.vnic.program import Program, Settings, index_of

_SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCETHTOOL = 0x8913, 0x8921, 0x8946
_IFF_UP = 1
_NAME_BYTES = 16  # of a device, in struct ifreq
_ETHTOOL_GCHANNELS = 0x3C
_CHANNELS_WORDS, _RX_COUNT, _COMBINED_COUNT = 9, 5, 8  # of struct ethtool_channels


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
        found = {name: why for name in names if (why := trouble(name, self._settings.mtu))}
        for name, why in found.items():
            if self.waiting.get(name) != why:
                self._tell(f"{why}; the card goes on without this guest until that is mended")
        self.waiting = found


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
