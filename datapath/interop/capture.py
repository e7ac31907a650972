# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""RoCEv2 packets of a capture, and the mistakes in each by itself.

Formats: IBTA volume 1, chapter 9 (BTH and extension headers) and annex A17
(RoCEv2: UDP port 4791, ICRC).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from datapath.errors import LocalError
from datapath.interop import files, frames
from datapath.interop.frames import Flaw, Ip
from datapath.interop.opcodes import (
    BUNDLES,
    CNP,
    DATAGRAMS,
    EXTENDED_REQUESTS,
    HEADER_BYTES,
    MANUFACTURER,
    OPCODES,
    XDH_BYTES,
    Opcode,
    extended_row,
    name_of,
)

ROCE_PORT = 4791
_BTH, _ICRC, _UDP_HEADER = 12, 4, 8
_DEFAULT_PKEY = 0xFFFF
_CNP_BYTES = 16

# Of extended mode: docs/extended-mode.md.
_XDH_PARTS, _XDH_RECORDS = 8, 15  # where it counts the messages of a bundle, and records
_ROOM_HEAD, _RECORD_BYTES, _RECORDS_MAX = 4, 16, 8
_PARTS_MAX = 64
_TRIMMED_DSCP = 43


@dataclass(frozen=True)
class Reth:
    va: int
    rkey: int
    length: int


@dataclass(frozen=True)
class Atomic:
    va: int
    rkey: int
    swap_or_add: int
    compare: int


@dataclass(frozen=True)
class Aeth:
    syndrome: int
    msn: int

    @property
    def parts(self) -> tuple[int, int]:
        """Type of the syndrome, and its lower five bits."""
        return self.syndrome >> 5, self.syndrome & 31


@dataclass(frozen=True)
class Deth:
    qkey: int
    src_qpn: int


@dataclass
class Packet:
    """One RoCEv2 packet.

    number: of its frame in the capture, from 1, as Wireshark counts.
    sizes: bytes of payload of each of its PSNs (a bundle has several), captured or not.
    damaged: it is not all there, or perhaps several packets, and only its BTH and sizes are given.
    """

    number: int
    time_ns: int
    src: str
    dst: str
    sport: int
    opcode: int = 0
    solicited: bool = False
    ack_req: bool = False
    qpn: int = 0
    psn: int = 0
    payload: bytes = b""
    sizes: tuple[int, ...] = ()
    reth: Reth | None = None
    atomic: Atomic | None = None
    aeth: Aeth | None = None
    feth: int | None = None
    value: int | None = None
    imm: bytes = b""
    ieth: int | None = None
    deth: Deth | None = None
    flaws: list[Flaw] = field(default_factory=list)
    damaged: bool = False

    @property
    def row(self) -> Opcode | None:
        """The opcode's row; None when it is neither one of RC nor one of UD."""
        return OPCODES.get(self.opcode) or DATAGRAMS.get(self.opcode)

    @property
    def name(self) -> str:
        return name_of(self.opcode)


def read(path: Path) -> Iterator[Packet]:
    """The RoCEv2 packets of a capture (frames.read); other packets are passed over."""
    for ip in frames.read(path):
        packet = parse(ip)
        if packet is not None:
            yield packet


def offloaded(path: Path, number: int, text: str) -> LocalError:
    """Of a capture with a frame that has the flaw `offload`: what it holds cannot be told."""
    return LocalError(
        f"{files.name_of(path)} was captured before the device's offload (packet {number}: {text})",
        hint="on the hosts: ethtool -K DEV tx off tx-udp-segmentation off gro off; then again",
    )


def parse(ip: Ip) -> Packet | None:
    """What an IP packet carries; None when it is not RoCEv2."""
    if ip.protocol != frames.UDP or len(ip.data) < _UDP_HEADER:
        return None
    sport, dport, udp_bytes, checksum = struct.unpack_from("!HHHH", ip.data)
    if dport != ROCE_PORT:
        return None
    packet = Packet(ip.number, ip.time_ns, ip.src, ip.dst, sport, flaws=list(ip.flaws))
    damage = ip.damage
    if damage is None and udp_bytes != ip.wire_bytes:
        damage = Flaw("length", f"UDP length {udp_bytes}, IP has {ip.wire_bytes}")
        packet.flaws.append(damage)
    body = ip.data[_UDP_HEADER:]
    if len(body) < _BTH or ip.wire_bytes < _UDP_HEADER + _BTH + _ICRC:
        packet.damaged = True
        if damage is None:
            packet.flaws.append(Flaw("length", f"{len(body)} bytes hold no BTH and ICRC"))
        return packet
    # The sum of addresses, protocol and length: the device computes the rest when it sends.
    unfinished = checksum == frames.sum16(ip.checksum_base) != 0
    right = checksum == 0 or unfinished or frames.sum16(ip.checksum_base + ip.data) == 0xFFFF
    if damage is None and not right:
        packet.flaws.append(Flaw("frame", "the UDP checksum is neither 0 nor right"))
    _bth(packet, body)
    packet.sizes = _sizes(packet, ip, body)
    wrong_icrc = [] if damage else list(_icrc(ip, body))
    if unfinished and (damage or wrong_icrc):
        damage = Flaw("offload", f"{ip.wire_bytes} bytes may be several packets")
        packet.flaws.append(damage)
    packet.damaged = damage is not None
    if damage is None:
        packet.flaws += [*wrong_icrc, *_rest(packet, body[_BTH:-_ICRC], body[1] >> 4 & 3)]
    return packet


def icrc(pseudo_ip: bytes, datagram: bytes) -> int:
    """ICRC of a packet (annex A17.3.3): `datagram` from the UDP header to before the ICRC.

    The LRH of InfiniBand is taken as eight bytes of ones, and so is whatever
    changes on the way: TTL, TOS, the checksums, and the BTH's resv8a.
    """
    body = bytearray(datagram)
    body[6] = body[7] = body[_UDP_HEADER + 4] = 0xFF
    return zlib.crc32(bytes(body), zlib.crc32(pseudo_ip, zlib.crc32(b"\xff" * 8)))


def _icrc(ip: Ip, body: bytes) -> Iterator[Flaw]:
    pseudo, datagram = ip.pseudo, ip.data[:-_ICRC]
    if body[0] >= MANUFACTURER:
        if ip.dscp == _TRIMMED_DSCP:
            return  # a switch has cut it down to its headers, and the ICRC is gone
        pseudo, datagram = _as_extended(pseudo, datagram)
    wanted = icrc(pseudo, datagram)
    got = int.from_bytes(body[-_ICRC:], "little")
    if got != wanted:
        yield Flaw("icrc", f"ICRC {got:#010x}, should be {wanted:#010x}")


def _as_extended(pseudo_ip: bytes, datagram: bytes) -> tuple[bytes, bytes]:
    """What the ICRC of extended mode takes in place of the two.

    An IPv4 identification of zero, and ones in the room for telemetry, which switches fill in.
    """
    pseudo, body = bytearray(pseudo_ip), bytearray(datagram)
    if pseudo[0] >> 4 == 4:
        pseudo[4:6] = bytes(2)
    begin = _UDP_HEADER + _BTH + XDH_BYTES
    room = _room_bytes(body[_UDP_HEADER], bytes(body[begin - XDH_BYTES : begin]))
    if begin + room <= len(body):
        body[begin : begin + room] = b"\xff" * room
    return bytes(pseudo), bytes(body)


def _bth(packet: Packet, body: bytes) -> None:
    packet.opcode, flags, pkey, word, psn_word = struct.unpack_from("!BBHII", body)
    packet.solicited = bool(flags & 0x80)
    packet.ack_req = bool(psn_word >> 31)
    packet.qpn = word & 0xFFFFFF
    packet.psn = psn_word & 0xFFFFFF
    if flags & 0x0F:
        packet.flaws.append(Flaw("bth", f"transport header version {flags & 0x0F}"))
    if pkey != _DEFAULT_PKEY:
        packet.flaws.append(Flaw("bth", f"P_Key {pkey:#06x}"))
    if word >> 24 & 0x3F or psn_word >> 24 & 0x7F:
        packet.flaws.append(Flaw("bth", "a reserved bit is set"))


def _sizes(packet: Packet, ip: Ip, body: bytes) -> tuple[int, ...]:
    left = ip.wire_bytes - _UDP_HEADER - _BTH - _ICRC
    row = packet.row
    if packet.opcode >= MANUFACTURER:
        if ip.dscp == _TRIMMED_DSCP:
            return ()
        xdh = body[_BTH : _BTH + XDH_BYTES]
        room = _room_bytes(packet.opcode, xdh)
        left -= XDH_BYTES + room
        if packet.opcode in BUNDLES:
            count = int.from_bytes(xdh[_XDH_PARTS : _XDH_PARTS + 4], "big")
            messages = body[_BTH + XDH_BYTES + room :][:left]
            return _sizes_of_bundle(messages, count, BUNDLES[packet.opcode], left)
        row = extended_row(packet.opcode)
    if row is None or not row.payload:
        return ()
    return (max(0, left - row.header_bytes - (body[1] >> 4 & 3)),)


def _sizes_of_bundle(messages: bytes, count: int, head: int, left: int) -> tuple[int, ...]:
    """messages: as much of the `left` bytes as was captured; the others are taken for equal."""
    sizes: list[int] = []
    at = 0
    for number in range(count if count <= _PARTS_MAX else 0):
        if len(messages) < at + head:
            rest = count - number
            return (*sizes, *[max(0, (left - at) // rest - head)] * rest)
        size = int.from_bytes(messages[at + head - 4 : at + head], "big")
        sizes.append(size)
        at += head + -(-size // 4) * 4
        if at > left:
            return ()  # it does not consist of just these messages
    return tuple(sizes)


def _room_bytes(opcode: int, xdh: bytes) -> int:
    """Of the room for telemetry behind the XDH of a request."""
    records = xdh[_XDH_RECORDS] >> 4 if opcode in EXTENDED_REQUESTS and len(xdh) == XDH_BYTES else 0
    return _ROOM_HEAD + _RECORD_BYTES * records if 0 < records <= _RECORDS_MAX else 0


def _rest(packet: Packet, rest: bytes, pad: int) -> Iterator[Flaw]:
    """Read extension headers and payload into `packet`."""
    row = packet.row
    if row is None:
        packet.payload = rest
        if packet.opcode == CNP and rest != bytes(_CNP_BYTES):
            yield Flaw("length", "a CNP carries 16 reserved bytes of 0")
        elif packet.opcode != CNP and packet.opcode < MANUFACTURER:
            yield Flaw("opcode", f"{packet.name} is neither one of RC nor one of UD")
        return
    if len(rest) < row.header_bytes:
        packet.damaged = True
        text = f"{row.name} has {len(rest)} bytes behind the BTH, its headers {row.header_bytes}"
        yield Flaw("length", text)
        return
    offset = 0
    for header in row.headers:
        size = HEADER_BYTES[header]
        _header(packet, header, rest[offset : offset + size])
        offset += size
    payload = rest[offset:]
    packet.payload = payload[: len(payload) - pad] if pad else payload
    if len(payload) % 4:
        yield Flaw("length", f"payload and pad of {len(payload)} bytes")
    elif pad > len(payload):
        yield Flaw("length", f"pad of {pad} in {len(payload)} bytes")
    elif payload and not row.payload:
        yield Flaw("length", f"{row.name} with {len(payload)} bytes of payload")


def _header(packet: Packet, header: str, data: bytes) -> None:
    if header == "reth":
        packet.reth = Reth(*struct.unpack("!QII", data))
    elif header == "atomic":
        packet.atomic = Atomic(*struct.unpack("!QIQQ", data))
    elif header == "aeth":
        packet.aeth = Aeth(data[0], int.from_bytes(data[1:], "big"))
    elif header == "feth":
        packet.feth = int.from_bytes(data, "big")
    elif header == "value":
        packet.value = int.from_bytes(data, "big")
    elif header == "imm":
        packet.imm = data
    elif header == "deth":
        packet.deth = Deth(*struct.unpack("!II", data))
    else:
        packet.ieth = int.from_bytes(data, "big")
