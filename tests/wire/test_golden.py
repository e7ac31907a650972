# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packets of every opcode against scapy, in both directions, IPv4 and IPv6."""

from __future__ import annotations

import errno
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.wire.packets import offset, packet
from tests.wire.roce_layers import (
    AETH_,
    ATOMIC_,
    FETH_,
    IETH_,
    IMM_,
    ORIGINAL_,
    RC_PACKETS,
    RETH_,
    V4,
    V6,
    XDH,
    datagram,
    mapped,
    roce_bytes,
)

pytestmark = pytest.mark.san

ADDRESSES = pytest.mark.parametrize("addresses", [V4, V6], ids=["ipv4", "ipv6"])
OPCODES = pytest.mark.parametrize("opcode", RC_PACKETS, ids=lambda op: f"{op:02x}")
PAYLOAD = bytes(range(251))  # takes one byte of pad


def golden(opcode: int, addresses: tuple[str, str] = V4, **more: int) -> bytes:
    payload = PAYLOAD if RC_PACKETS[opcode][1] else b""
    return roce_bytes(datagram(opcode, payload, addresses=addresses, **more))


def spec_icrc(data: bytes, addresses: tuple[str, str], sport: int, ip_id: int) -> bytes:
    """Straight from IBTA annex A17.3.3: zlib over bytes packed by hand."""
    src, dst = (mapped(a) for a in addresses)
    udp = 8 + len(data) + 4
    if ":" in addresses[0]:
        ip = struct.pack("!IHBB16s16s", 0x6FFFFFFF, udp, 17, 0xFF, src, dst)
    else:
        head = (0x45, 0xFF, 20 + udp, ip_id, 0x4000, 0xFF, 17, 0xFFFF, src[12:], dst[12:])
        ip = struct.pack("!BBHHHBBH4s4s", *head)
    masked = data[:4] + b"\xff" + data[5:]
    crc = zlib.crc32(b"\xff" * 8 + ip + struct.pack("!HHHH", sport, 4791, udp, 0xFFFF) + masked)
    return struct.pack("<I", crc)


@ADDRESSES
@OPCODES
def test_scapy_made_we_accept(opcode: int, addresses: tuple[str, str]) -> None:
    owned = packet(golden(opcode, addresses), addresses=addresses)
    assert owned.icrc_ok()
    status, parsed = owned.parse()
    assert status == 0
    assert parsed.opcode == opcode
    assert (parsed.psn, parsed.dest_qpn, parsed.ack_req) == (0x445566, 0x112233, True)


@ADDRESSES
@OPCODES
def test_we_made_scapy_agrees(opcode: int, addresses: tuple[str, str]) -> None:
    theirs = golden(opcode, addresses)
    ours = packet(theirs[:-4], addresses=addresses, room=4).append_icrc()
    assert ours == theirs
    assert ours[-4:] == spec_icrc(theirs[:-4], addresses, 0xC123, 0)


@ADDRESSES
def test_fields_that_routers_change_do_not_matter(addresses: tuple[str, str]) -> None:
    """TOS, TTL and the FECN/BECN byte are masked."""
    data = golden(0x04, addresses, tos=0x03, fecn=1, becn=1, resv6=0x3F)
    owned = packet(data, addresses=addresses, tos=0x02)
    assert owned.icrc_ok()
    assert owned.parse()[1].becn


@pytest.mark.parametrize(
    ("field", "value"),
    [("sport", 0xC124), ("ip_id", 1), ("addresses", (V4[1], V4[0])), ("addresses", V6)],
)
def test_every_field_that_the_icrc_covers_matters(field: str, value: object) -> None:
    assert not packet(golden(0x04), **{field: value}).icrc_ok()  # type: ignore[arg-type]


@OPCODES
def test_any_flipped_bit_is_found(opcode: int) -> None:
    """All bits of the headers and of the ICRC, but the masked byte, and one per payload byte."""
    data = golden(opcode)
    flips = {8 * i + i % 8 for i in range(len(data))} | set(range(8 * 52))
    for bit in flips:
        byte = bit // 8
        if byte == 4 or byte >= len(data):
            continue
        bad = bytearray(data)
        bad[byte] ^= 1 << bit % 8
        assert not packet(bytes(bad)).icrc_ok(), f"bit {bit}"


@pytest.mark.parametrize("opcode", [0x04, 0x0A, 0x11, 0x81])
def test_identification_not_known_still_verifies(opcode: int) -> None:
    unknown = lib.DP_PKT_IP_ID_UNKNOWN
    for ip_id in (0, 1, 0x1234, 0x8000, 0xFFFF):
        data = golden(opcode, ip_id=ip_id)
        assert packet(data, ip_id=ip_id).icrc_ok()
        assert packet(data, flags=unknown).icrc_ok()
        assert not packet(data, ip_id=ip_id ^ 0x10).icrc_ok()


def test_identification_not_known_still_finds_errors() -> None:
    """What an identification cannot explain: any burst of up to 16 bits elsewhere, for one."""
    data = golden(0x04, ip_id=0x4242)
    for bit in range(8 * 12, 8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        assert not packet(bytes(bad), flags=lib.DP_PKT_IP_ID_UNKNOWN).icrc_ok(), f"bit {bit}"


@pytest.mark.parametrize("length", [0, 4, 100, 128, 132, 1024, 4096])
@given(ip_id=st.integers(1, 0xFFFF))
def test_identification_not_known_at_any_length(length: int, ip_id: int) -> None:
    body = lib.DP_OP_SEND_ONLY.to_bytes(1, "big") + b"\x40\xff\xff" + bytes(8) + bytes(length)
    data = body + spec_icrc(body, V4, 0xC123, ip_id)
    assert packet(data, flags=lib.DP_PKT_IP_ID_UNKNOWN).icrc_ok()
    assert not packet(data).icrc_ok()


def test_ipv6_has_no_identification() -> None:
    data = golden(0x04, V6)
    for flags in (0, lib.DP_PKT_IP_ID_UNKNOWN):
        assert packet(data, addresses=V6, ip_id=99, flags=flags).icrc_ok()
    bad = data[:-1] + bytes([data[-1] ^ 1])
    assert not packet(bad, addresses=V6, flags=lib.DP_PKT_IP_ID_UNKNOWN).icrc_ok()


def test_extended_opcodes_take_the_identification_as_zero() -> None:
    data = roce_bytes(datagram(0xC4, PAYLOAD, extra=XDH(ts_ns=1, rq_seq=2, offset=3)))
    for ip_id in (0, 7):
        for flags in (0, lib.DP_PKT_IP_ID_UNKNOWN):
            assert packet(data, ip_id=ip_id, flags=flags).icrc_ok()
        assert packet(data[:-4], ip_id=ip_id, room=4).append_icrc() == data
    other = data[:-4] + spec_icrc(data[:-4], V4, 0xC123, 7)
    assert not packet(other, ip_id=7, flags=lib.DP_PKT_IP_ID_UNKNOWN).icrc_ok()


@OPCODES
def test_headers_lie_where_the_standard_puts_them(opcode: int) -> None:
    owned = packet(golden(opcode))
    _, parsed = owned.parse()
    at = 12
    names = {
        type(RETH_): ("reth", 16),
        type(ATOMIC_): ("atomic", 28),
        type(AETH_): ("aeth", 4),
        type(ORIGINAL_): ("atomic_ack", 8),
        type(IMM_): ("imm", 4),
        type(IETH_): ("ieth", 4),
        type(FETH_): ("feth", 4),
    }
    expected = dict.fromkeys((name for name, _ in names.values()), None)
    for header in RC_PACKETS[opcode][0]:
        if type(header) in names:
            name, length = names[type(header)]
            expected[name] = at
            at += length
    assert {name: offset(owned, getattr(parsed, name)) for name in expected} == expected
    for name in ("hello", "xdh", "xah", "sack", "payload2"):
        assert getattr(parsed, name) == ffi.NULL
    if RC_PACKETS[opcode][1]:
        assert offset(owned, parsed.payload) == at
        assert bytes(ffi.buffer(parsed.payload, parsed.payload_len)) == PAYLOAD
    assert parsed.payload_len == (len(PAYLOAD) if RC_PACKETS[opcode][1] else 0)


@OPCODES
def test_every_truncation_is_rejected(opcode: int) -> None:
    """By parse, or for cuts of whole words within the payload by the ICRC."""
    data = golden(opcode)
    header = 12 + sum(len(h) for h in RC_PACKETS[opcode][0])
    for length in range(len(data)):
        owned = packet(data[:length])
        assert not owned.icrc_ok(), length
        status, parsed = owned.parse()
        if status == 0:
            assert RC_PACKETS[opcode][1]
            assert header + parsed.payload_len + 4 <= length
        else:
            assert status == -errno.EBADMSG
        if length < header + 4:
            assert status == -errno.EBADMSG, length


@OPCODES
def test_every_split_in_two_pieces_is_the_same_packet(opcode: int) -> None:
    data = golden(opcode)
    header = 12 + sum(len(h) for h in RC_PACKETS[opcode][0])
    payload = PAYLOAD if RC_PACKETS[opcode][1] else b""
    for split in range(header, len(data) + 1):
        owned = packet(data, split=split)
        assert owned.icrc_ok(), split
        status, parsed = owned.parse()
        assert status == 0
        first = bytes(ffi.buffer(parsed.payload, parsed.payload_len))
        second = (
            bytes(ffi.buffer(parsed.payload2, parsed.payload2_len)) if parsed.payload2_len else b""
        )
        assert first + second == payload
    for split in range(header):
        assert packet(data, split=split).parse()[0] == -errno.EBADMSG
        packet(data, split=split).icrc_ok()
