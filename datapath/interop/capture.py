# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""RoCEv2 packets of a capture, and the mistakes in each by itself.

Formats: IBTA volume 1, chapter 9 (BTH and extension headers) and annex A17
(RoCEv2: UDP port 4791, ICRC).
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from datapath.errors import LocalError
from datapath.interop.opcodes import (
    CNP,
    DATAGRAMS,
    EXTENDED_REQUESTS,
    HEADER_BYTES,
    MANUFACTURER,
    OPCODES,
    Opcode,
    name_of,
)

ROCE_PORT = 4791
_ETHERNET, _IPV4, _IPV6, _UDP = 14, 0x0800, 0x86DD, 17
_BTH, _ICRC, _UDP_HEADER = 12, 4, 8
_DEFAULT_PKEY = 0xFFFF
_CNP_BYTES = 16

# Of extended mode: docs/extended-mode.md.
_XDH_BYTES, _XDH_RECORDS = 20, 15  # the header, and the byte of it that counts records
_ROOM_HEAD, _RECORD_BYTES, _RECORDS_MAX = 4, 16, 8
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


@dataclass(frozen=True)
class Flaw:
    """A broken rule: its name, and the details."""

    rule: str
    text: str


@dataclass
class Packet:
    """One RoCEv2 packet.

    number: of its frame in the capture, from 1, as Wireshark counts.
    damaged: it is not all there, and only its BTH is given.
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
    """The RoCEv2 packets of a pcap or pcapng file of Ethernet frames.

    LocalError when it is none.  Other packets are passed over.
    """
    for frame, number, time_ns, wire_bytes in frames(path):
        packet = parse(frame, number, time_ns, wire_bytes)
        if packet is not None:
            yield packet


def frames(path: Path) -> Iterator[tuple[bytes, int, int, int]]:
    """(frame, its number from 1, time in ns, bytes on the wire) of a capture of Ethernet frames.

    LocalError when the file is none.
    """
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    try:
        with RawPcapReader(str(path)) as reader:
            for number, (frame, meta) in enumerate(reader, start=1):
                if getattr(meta, "linktype", getattr(reader, "linktype", 1)) != 1:
                    raise LocalError(f"{path} does not hold Ethernet frames")
                yield frame, number, _time_ns(meta, reader), meta.wirelen
    except (OSError, Scapy_Exception) as error:
        raise LocalError(
            f"cannot read {path}: {error}", hint="it should be a capture by tcpdump or Wireshark"
        ) from None


def _time_ns(meta: object, reader: object) -> int:
    if hasattr(meta, "tshigh"):
        ticks = (meta.tshigh << 32) | meta.tslow  # type: ignore[attr-defined]
        return int(ticks * 1_000_000_000 // meta.tsresol)  # type: ignore[attr-defined]
    scale = 1 if getattr(reader, "nano", False) else 1000
    return int(meta.sec * 1_000_000_000 + meta.usec * scale)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Network:
    """The IP header: its bytes as the ICRC takes them, and the datagram behind it."""

    src: str
    dst: str
    dscp: int
    pseudo: bytes
    datagram: bytes
    checksum_base: bytes
    flaws: tuple[Flaw, ...]
    damage: Flaw | None


def parse(frame: bytes, number: int, time_ns: int, wire_bytes: int | None = None) -> Packet | None:
    """One Ethernet frame; None when it is not RoCEv2."""
    if len(frame) < _ETHERNET:
        return None
    kind = int.from_bytes(frame[12:14], "big")
    network = {_IPV4: _ipv4, _IPV6: _ipv6}.get(kind, lambda _: None)(frame[_ETHERNET:])
    if network is None or len(network.datagram) < _UDP_HEADER:
        return None
    sport, dport, udp_bytes, checksum = struct.unpack_from("!HHHH", network.datagram)
    if dport != ROCE_PORT:
        return None
    damage = network.damage
    if wire_bytes is not None and wire_bytes > len(frame):
        damage = Flaw("cut", f"{len(frame)} of {wire_bytes} bytes were captured")
    elif damage is None and udp_bytes != len(network.datagram):
        damage = Flaw("length", f"UDP length {udp_bytes}, IP has {len(network.datagram)}")
    flaws = [*network.flaws, *([damage] if damage else [])]
    if not damage and checksum and _sum16(network.checksum_base + network.datagram) != 0xFFFF:
        flaws.append(Flaw("frame", "the UDP checksum is neither 0 nor right"))
    body = network.datagram[_UDP_HEADER:]
    if len(body) < _BTH + _ICRC:
        damage = damage or Flaw("length", f"{len(body)} bytes hold no BTH and ICRC")
        return Packet(
            number, time_ns, network.src, network.dst, sport, flaws=[damage], damaged=True
        )
    packet = _transport(body, number, time_ns, network, sport)
    packet.flaws = flaws + packet.flaws
    packet.damaged = damage is not None
    if not damage:
        packet.flaws += [*_icrc(network, body), *_rest(packet, body[_BTH:-_ICRC], body[1] >> 4 & 3)]
    return packet


def _ipv4(data: bytes) -> _Network | None:
    if len(data) < 20 or data[0] >> 4 != 4 or data[9] != _UDP:
        return None
    header = (data[0] & 15) * 4
    total, fragment = int.from_bytes(data[2:4], "big"), int.from_bytes(data[6:8], "big")
    if fragment & 0x1FFF:
        return None  # without a UDP header, so not known to be RoCE
    flaws = []
    if header != 20:
        flaws.append(Flaw("frame", "IP options"))
    if fragment & 0x2000:
        flaws.append(Flaw("frame", "an IP fragment"))
    if not fragment & 0x4000:
        flaws.append(Flaw("frame", "without the don't-fragment flag"))
    if _sum16(data[:header]) != 0xFFFF:
        flaws.append(Flaw("frame", "the IP checksum is wrong"))
    damage = None
    if total > len(data):
        damage = Flaw("length", f"IP length {total}, captured {len(data)}")
    pseudo = bytearray(data[:header])
    pseudo[1] = pseudo[8] = pseudo[10] = pseudo[11] = 0xFF
    datagram = data[header:total]
    base = data[12:20] + struct.pack("!HH", _UDP, len(datagram))
    src, dst = (str(ipaddress.IPv4Address(data[i : i + 4])) for i in (12, 16))
    return _Network(src, dst, data[1] >> 2, bytes(pseudo), datagram, base, tuple(flaws), damage)


def _ipv6(data: bytes) -> _Network | None:
    if len(data) < 40 or data[0] >> 4 != 6 or data[6] != _UDP:
        return None
    total = int.from_bytes(data[4:6], "big")
    damage = None
    if total > len(data) - 40:
        damage = Flaw("length", f"IPv6 payload length {total}, captured {len(data) - 40}")
    pseudo = bytearray(data[:40])
    pseudo[0] |= 0x0F
    pseudo[1] = pseudo[2] = pseudo[3] = pseudo[7] = 0xFF
    datagram = data[40 : 40 + total]
    base = data[8:40] + struct.pack("!II", len(datagram), _UDP)
    src, dst = (str(ipaddress.IPv6Address(data[i : i + 16])) for i in (8, 24))
    dscp = (data[0] << 4 | data[1] >> 4) >> 2 & 0x3F
    return _Network(src, dst, dscp, bytes(pseudo), datagram, base, (), damage)


def _sum16(data: bytes) -> int:
    """Ones' complement sum (RFC 1071); 0xFFFF when a checksum in it is right."""
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2))
    total = int(sum(words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def icrc(pseudo_ip: bytes, datagram: bytes) -> int:
    """ICRC of a packet (annex A17.3.3): `datagram` from the UDP header to before the ICRC.

    The LRH of InfiniBand is taken as eight bytes of ones, and so is whatever
    changes on the way: TTL, TOS, the checksums, and the BTH's resv8a.
    """
    body = bytearray(datagram)
    body[6] = body[7] = body[_UDP_HEADER + 4] = 0xFF
    return zlib.crc32(bytes(body), zlib.crc32(pseudo_ip, zlib.crc32(b"\xff" * 8)))


def _icrc(network: _Network, body: bytes) -> Iterator[Flaw]:
    pseudo, datagram = network.pseudo, network.datagram[:-_ICRC]
    if body[0] >= MANUFACTURER:
        if network.dscp == _TRIMMED_DSCP:
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
    xdh = _UDP_HEADER + _BTH
    if body[_UDP_HEADER] in EXTENDED_REQUESTS and len(body) >= xdh + _XDH_BYTES:
        records = body[xdh + _XDH_RECORDS] >> 4
        room = _ROOM_HEAD + _RECORD_BYTES * records
        begin = xdh + _XDH_BYTES
        if 0 < records <= _RECORDS_MAX and begin + room <= len(body):
            body[begin : begin + room] = b"\xff" * room
    return bytes(pseudo), bytes(body)


def _transport(body: bytes, number: int, time_ns: int, network: _Network, sport: int) -> Packet:
    """The BTH."""
    opcode, flags, pkey, word, psn_word = struct.unpack_from("!BBHII", body)
    packet = Packet(
        number=number,
        time_ns=time_ns,
        src=network.src,
        dst=network.dst,
        sport=sport,
        opcode=opcode,
        solicited=bool(flags & 0x80),
        ack_req=bool(psn_word >> 31),
        qpn=word & 0xFFFFFF,
        psn=psn_word & 0xFFFFFF,
    )
    if flags & 0x0F:
        packet.flaws.append(Flaw("bth", f"transport header version {flags & 0x0F}"))
    if pkey != _DEFAULT_PKEY:
        packet.flaws.append(Flaw("bth", f"P_Key {pkey:#06x}"))
    if word >> 24 & 0x3F or psn_word >> 24 & 0x7F:
        packet.flaws.append(Flaw("bth", "a reserved bit is set"))
    return packet


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
