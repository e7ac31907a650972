# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""RoCEv2 packets made by scapy, whose BTH and ICRC are the independent oracle.

scapy.contrib.roce knows BTH, AETH and the CNP; the other extension headers are
declared here from IBTA vol. 1, chapter 9, and bound to their opcodes.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)


from scapy.contrib.roce import AETH, BTH, CNPPadding  # noqa: E402
from scapy.fields import (  # noqa: E402
    BitField,
    IntField,
    X3BytesField,
    XByteField,
    XIntField,
    XLongField,
)
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.packet import Packet, Raw, bind_layers  # noqa: E402


class RETH(Packet):
    name = "RETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), IntField("length", 0)]


class AtomicETH(Packet):
    name = "AtomicETH"
    fields_desc = [
        XLongField("va", 0),
        XIntField("rkey", 0),
        XLongField("swap_add", 0),
        XLongField("compare", 0),
    ]


class AtomicAckETH(Packet):
    name = "AtomicAckETH"
    fields_desc = [XLongField("original", 0)]


class ImmDt(Packet):
    name = "ImmDt"
    fields_desc = [XIntField("imm", 0)]


class FETH(Packet):
    """Of FLUSH (annex A19)."""

    name = "FETH"
    fields_desc = [BitField("reserved", 0, 26), BitField("sel", 0, 2), BitField("plt", 0, 4)]


class IETH(Packet):
    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class XDH(Packet):
    """The extended mode's data header (datapath/wire/ext.h)."""

    name = "XDH"
    fields_desc = [
        IntField("ts_ns", 0),
        IntField("rq_seq", 0),
        IntField("offset", 0),
        X3BytesField("ack_psn", 0),
        XByteField("ack_flags", 0),
        IntField("ack_ts_ns", 0),
    ]


RETH_ = RETH(va=0x0123456789ABCDEF, rkey=0xDEADBEEF, length=1000)
ATOMIC_ = AtomicETH(va=0x7F0000001008, rkey=0xCAFE0001, swap_add=5, compare=0xFFFFFFFFFFFFFFFF)
AETH_ = AETH(syndrome=0x1F, msn=0xABCDEF)
ORIGINAL_ = AtomicAckETH(original=0x1122334455667788)
IMM_ = ImmDt(imm=0x01020304)
IETH_ = IETH(rkey=0xBEEF0002)
FETH_ = FETH(sel=1, plt=1)

# opcode: (extension headers in wire order, may carry payload)
RC_PACKETS: dict[int, tuple[list[Packet], bool]] = {
    0x00: ([], True),
    0x01: ([], True),
    0x02: ([], True),
    0x03: ([IMM_], True),
    0x04: ([], True),
    0x05: ([IMM_], True),
    0x06: ([RETH_], True),
    0x07: ([], True),
    0x08: ([], True),
    0x09: ([IMM_], True),
    0x0A: ([RETH_], True),
    0x0B: ([RETH_, IMM_], True),
    0x0C: ([RETH_], False),
    0x0D: ([AETH_], True),
    0x0E: ([], True),
    0x0F: ([AETH_], True),
    0x10: ([AETH_], True),
    0x11: ([AETH_], False),
    0x12: ([AETH_, ORIGINAL_], False),
    0x13: ([ATOMIC_], False),
    0x14: ([ATOMIC_], False),
    0x16: ([IETH_], True),
    0x17: ([IETH_], True),
    0x1C: ([FETH_, RETH_], False),
    0x1D: ([RETH_], True),
    0x81: ([CNPPadding()], False),
}

for _opcode, (_headers, _) in RC_PACKETS.items():
    if _opcode not in (0x11, 0x81) and _headers:
        bind_layers(BTH, type(_headers[0]), opcode=_opcode)
    for _upper, _lower in itertools.pairwise(_headers):
        bind_layers(type(_upper), type(_lower))

V4 = ("10.1.2.3", "192.168.77.254")
V6 = ("fd00:1::a", "2001:db8:ffff::1234")


def ip(addresses: tuple[str, str], *, tos: int = 0x02, ip_id: int = 0) -> Packet:
    """An IPv4 header with DF or an IPv6 header without flow label."""
    src, dst = addresses
    if ":" in src:
        return IPv6(src=src, dst=dst, tc=tos, hlim=64)
    return IP(src=src, dst=dst, tos=tos, ttl=64, id=ip_id, flags="DF")


def datagram(
    opcode: int,
    payload: bytes = b"",
    *,
    addresses: tuple[str, str] = V4,
    tos: int = 0x02,
    ip_id: int = 0,
    sport: int = 0xC123,
    extra: Packet | None = None,
    **bth: int,
) -> Packet:
    """IP / UDP / BTH / extension headers / payload and pad, ICRC by scapy."""
    headers, _ = RC_PACKETS[opcode & 0x3F if opcode >= 0xC0 else opcode]
    pad = -len(payload) % 4
    fields = {"migreq": 1, "dqpn": 0x112233, "psn": 0x445566, "ackreq": 1, **bth}
    packet = ip(addresses, tos=tos, ip_id=ip_id) / UDP(sport=sport, dport=4791, chksum=0)
    packet = packet / BTH(opcode=opcode, padcount=pad, **fields)
    for header in ([extra] if extra is not None else []) + headers:
        packet = packet / header.copy()
    return packet / Raw(payload + bytes(pad)) if payload else packet


def roce_bytes(packet: Packet) -> bytes:
    """From the BTH to the ICRC, as a port hands them to the engine."""
    return bytes(packet)[len(packet) - len(packet[UDP]) + 8 :]


def mapped(address: str) -> bytes:
    """The 16 bytes of struct dp_addr."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:
        return bytes(10) + b"\xff\xff" + parsed.packed
    return parsed.packed
