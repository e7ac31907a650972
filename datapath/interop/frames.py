# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The IP packets of a capture, out of their frames: Ethernet, with VLAN tags or without, plain IP,
and what Linux captures on the device `any`."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datapath.errors import LocalError
from datapath.interop import files

_ETHERNET, _RAW, _SLL, _SLL2 = 1, 101, 113, 276  # LINKTYPE_ of libpcap
_IPV4, _IPV6, _TAGS = 0x0800, 0x86DD, (0x8100, 0x88A8)
_HEADS = {_ETHERNET: 14, _RAW: 1, _SLL: 16, _SLL2: 20}  # bytes
_OUTGOING = 4  # of a packet on `any`
TCP, UDP = 6, 17

_Place = tuple[bytes, bool]
"""Of a packet on `any`: number of the device, and whether it was sent there."""


@dataclass(frozen=True)
class Flaw:
    """A broken rule: its name, and the details."""

    rule: str
    text: str


@dataclass(frozen=True)
class Ip:
    """An IP packet of a capture, up to what it carries: `data`.

    number: of its frame in the capture, from 1, as Wireshark counts.
    wire_bytes: of the data on the wire, of which less may have been captured.
    pseudo: the header as the ICRC takes it; checksum_base: as the checksum of UDP does.
    damage: what of it is missing; it is among the flaws as well.
    """

    number: int
    time_ns: int
    src: str
    dst: str
    protocol: int
    dscp: int
    data: bytes
    wire_bytes: int
    pseudo: bytes
    checksum_base: bytes
    flaws: tuple[Flaw, ...]
    damage: Flaw | None


def read(path: Path) -> Iterator[Ip]:
    """The IP packets of a capture (files.records), without fragments behind the first.

    A packet that is forwarded appears several times on `any`: as it came in, and as it leaves.
    Of each pair of addresses only those count that passed where its first one did.
    """
    places: dict[tuple[str, str], _Place] = {}
    for record in files.records(path):
        kind, place, data = _network(record, path)
        unpack = {_IPV4: _ipv4, _IPV6: _ipv6}.get(kind)
        packet = unpack(record, data) if unpack else None
        if packet is not None and places.setdefault((packet.src, packet.dst), place) == place:
            yield packet


def _network(record: files.Record, path: Path) -> tuple[int, _Place, bytes]:
    """Type of the packet in a frame, where `any` has seen it, and the packet."""
    data, place = record.data, (b"", False)
    if len(data) < _HEADS.get(record.link, 0):
        return 0, place, b""
    if record.link == _ETHERNET:
        kind, data = _word(data, 12), data[14:]
    elif record.link == _RAW:
        kind = {4: _IPV4, 6: _IPV6}.get(data[0] >> 4, 0)
    elif record.link == _SLL:
        kind, place, data = _word(data, 14), (b"", _word(data, 0) == _OUTGOING), data[16:]
    elif record.link == _SLL2:
        kind, place, data = _word(data, 0), (data[4:8], data[10] == _OUTGOING), data[20:]
    else:
        name = files.name_of(path)
        raise LocalError(
            f"{name} holds frames of LINKTYPE {record.link}, neither Ethernet nor IP",
            hint="capture on a network device: tcpdump -i DEV -s 0 -w FILE udp port 4791",
        )
    while kind in _TAGS:
        kind, data = _word(data, 2), data[4:]
    return kind, place, data


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def _ipv4(record: files.Record, data: bytes) -> Ip | None:
    if len(data) < 20 or data[0] >> 4 != 4:
        return None
    header = (data[0] & 15) * 4
    if header < 20:
        return None
    total, fragment = _word(data, 2), _word(data, 6)
    if fragment & 0x1FFF:
        return None  # without the header of what it carries
    damage = _damage(record, total, len(data))
    flaws = []
    if header != 20:
        flaws.append(Flaw("frame", "IP options"))
    if fragment & 0x2000:
        flaws.append(Flaw("frame", "an IP fragment"))
    if not fragment & 0x4000:
        flaws.append(Flaw("frame", "without the don't-fragment flag"))
    if sum16(data[:header]) != 0xFFFF:
        flaws.append(Flaw("frame", "the IP checksum is wrong"))
    pseudo = bytearray(data[:header])
    pseudo[1] = pseudo[8] = pseudo[10] = pseudo[11] = 0xFF
    inner_bytes = max(0, total - header)
    return Ip(
        number=record.number,
        time_ns=record.time_ns,
        src=str(ipaddress.IPv4Address(data[12:16])),
        dst=str(ipaddress.IPv4Address(data[16:20])),
        protocol=data[9],
        dscp=data[1] >> 2,
        data=data[header:total],
        wire_bytes=inner_bytes,
        pseudo=bytes(pseudo),
        checksum_base=data[12:20] + struct.pack("!HH", data[9], inner_bytes),
        flaws=(*flaws, *([damage] if damage else [])),
        damage=damage,
    )


def _ipv6(record: files.Record, data: bytes) -> Ip | None:
    if len(data) < 40 or data[0] >> 4 != 6:
        return None
    inner_bytes = _word(data, 4)
    damage = _damage(record, 40 + inner_bytes, len(data))
    pseudo = bytearray(data[:40])
    pseudo[0] |= 0x0F
    pseudo[1] = pseudo[2] = pseudo[3] = pseudo[7] = 0xFF
    return Ip(
        number=record.number,
        time_ns=record.time_ns,
        src=str(ipaddress.IPv6Address(data[8:24])),
        dst=str(ipaddress.IPv6Address(data[24:40])),
        protocol=data[6],
        dscp=(data[0] << 4 | data[1] >> 4) >> 2 & 0x3F,
        data=data[40 : 40 + inner_bytes],
        wire_bytes=inner_bytes,
        pseudo=bytes(pseudo),
        checksum_base=data[8:40] + struct.pack("!II", inner_bytes, data[6]),
        flaws=(damage,) if damage else (),
        damage=damage,
    )


def _damage(record: files.Record, promised: int, there: int) -> Flaw | None:
    if record.wire_bytes > len(record.data):
        return Flaw("cut", f"{len(record.data)} of {record.wire_bytes} bytes were captured")
    return Flaw("length", f"IP length {promised}, captured {there}") if promised > there else None


def sum16(data: bytes) -> int:
    """Ones' complement sum (RFC 1071); 0xFFFF when a checksum in it is right."""
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2))
    total = int(sum(words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
