# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long the packets of a device are, by the rules of its ports (wire/sizes.h), over IPv4."""

from __future__ import annotations

from datapath.native import lib


def path_mtu(netdev_mtu: int, asked: int) -> int:
    """The RoCE path MTU of a network device, capped by the one that was asked for; bytes."""
    return min(asked, _carried(netdev_mtu))


def segment(
    netdev_mtu: int, path_mtu: int, *, asked: int = 0, afxdp: bool = False, room: int = 0
) -> int:
    """Payload of a packet of extended mode, bytes.

    asked: the device's option, 0 without.  room: beside it, for telemetry.
    """
    most = lib.dp_segment_of_netdev(netdev_mtu, True)
    if afxdp:
        most = min(most, lib.DP_TWO_CHUNKS_SEGMENT)
    wanted = lib.dp_segment_wanted(asked, path_mtu, _carried(netdev_mtu), most)
    return int(lib.dp_segment_with_room(wanted, room, most))


def telemetry_room() -> int:
    """Bytes in a request for the records of all switches that it may pass."""
    return int(lib.DP_TELEMETRY_ROOM_MAX)


def _carried(netdev_mtu: int) -> int:
    return int(lib.dp_path_mtu_of_netdev(netdev_mtu))
