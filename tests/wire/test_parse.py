# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dp_packet_parse() on what only our engines send, and on what nobody should."""

from __future__ import annotations

import errno

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.wire.packets import offset, packet

pytestmark = pytest.mark.san

ICRC = bytes(4)


def bth(opcode: int, pad: int = 0, tver: int = 0) -> bytes:
    return bytes([opcode, 0x40 | pad << 4 | tver]) + bytes.fromhex("ffff 00 000011 00 000022")


@pytest.mark.parametrize("opcode", [0x15, 0x18, 0x1E, 0x20, 0x66, 0x80, 0xC1 + 0x14, 0xE9, 0xFF])
def test_unknown_opcode(opcode: int) -> None:
    assert packet(bth(opcode) + bytes(64)).parse()[0] == -errno.EOPNOTSUPP


def test_bad_transport_version() -> None:
    assert packet(bth(0x04, tver=1) + ICRC).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize(("pad", "payload"), [(1, 0), (1, 4), (3, 8), (0, 1), (0, 3), (2, 1)])
def test_pad_that_does_not_fill_a_word(pad: int, payload: int) -> None:
    data = bth(0x04, pad) + bytes(payload + pad) + ICRC
    assert packet(data).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize(
    "opcode", [0x0C, 0x11, 0x12, 0x13, 0x14, 0x81, 0xE0, 0xE4, 0xE5, 0xE6, 0xD1]
)
def test_payload_on_an_opcode_without(opcode: int) -> None:
    header = bth(opcode) + bytes(lib.dp_opcodes[opcode].hdr_len - 12)
    assert packet(header + ICRC).parse()[0] == 0
    assert packet(header + bytes(4) + ICRC).parse()[0] == -errno.EBADMSG
    padded = bth(opcode, pad=1) + header[12:] + bytes(1) + ICRC
    assert packet(padded).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize("opcode", [0x0D, 0x11, 0x12, 0xD1])
def test_the_syndrome_has_a_meaning(opcode: int) -> None:
    behind = bytes(lib.dp_opcodes[opcode].hdr_len - 13) + ICRC
    taken = []
    for syndrome in range(256):
        status, _ = packet(bth(opcode) + bytes([syndrome]) + behind).parse()
        assert status in (0, -errno.EBADMSG)
        taken += [syndrome] if status == 0 else []
    assert taken == [*range(0x40), *range(0x60, 0x65)]  # ACK, RNR NAK; NAK


def test_hello() -> None:
    owned = packet(
        bth(0xE0) + bytes.fromhex("03 020000 00000000 00000017 1000 0000 00000000") + ICRC
    )
    status, parsed = owned.parse()
    assert (status, offset(owned, parsed.hello)) == (0, 12)
    assert offset(owned, parsed.xdh) is None


def test_extended_write_with_immediate_has_xdh_reth_imm_in_this_order() -> None:
    owned = packet(bth(0xC9) + bytes(20 + 16 + 4) + b"data" + ICRC)
    status, parsed = owned.parse()
    assert status == 0
    found = [offset(owned, getattr(parsed, h)) for h in ("xdh", "reth", "imm", "payload")]
    assert found == [12, 32, 48, 52]
    assert parsed.payload_len == 4


def xack(words: int, follow: int, trimmed: int = 0, hops: int = 0, marked: int = 0) -> bytes:
    """An extended ACK that announces so much, and has `follow` bytes behind its XAH."""
    xah = bytes(19) + bytes([words, trimmed, hops, marked, 0]) + bytes(4)
    return bth(0xD1) + bytes(4) + xah + bytes(follow) + ICRC


@pytest.mark.parametrize("words", [0, 1, 2, 63, 64])
def test_sack_bitmap_is_whole(words: int) -> None:
    owned = packet(xack(words, 4 * words))
    status, parsed = owned.parse()
    assert status == 0
    assert [offset(owned, getattr(parsed, h)) for h in ("aeth", "xah", "sack")] == [12, 16, 44]
    assert parsed.payload_len == 0


@pytest.mark.parametrize(("words", "bitmap"), [(1, 0), (2, 4), (64, 252), (65, 260), (255, 1020)])
def test_sack_bitmap_that_is_too_short_or_too_long(words: int, bitmap: int) -> None:
    assert packet(xack(words, bitmap)).parse()[0] == -errno.EBADMSG


def test_what_an_extended_ack_announces_has_an_order() -> None:
    owned = packet(xack(2, 8 + 3 * 4 + 2 * 4 + 5 * 16, 3, 5, 2))
    status, parsed = owned.parse()
    assert status == 0
    found = [offset(owned, getattr(parsed, h)) for h in ("sack", "trimmed", "marked", "hops")]
    assert found == [44, 52, 64, 72]


@pytest.mark.parametrize(
    ("trimmed", "hops", "follow"), [(1, 0, 0), (33, 0, 132), (0, 1, 15), (0, 9, 144), (255, 255, 0)]
)
def test_an_extended_ack_that_announces_too_much(trimmed: int, hops: int, follow: int) -> None:
    assert packet(xack(0, follow, trimmed, hops)).parse()[0] == -errno.EBADMSG


def with_room(records: int, room: int) -> bytes:
    """An extended WRITE ONLY whose XDH announces `records`, with `room` bytes for them."""
    xdh = bytes(15) + bytes([records << 4]) + bytes(4)
    return bth(0xCA) + xdh + bytes(room) + bytes(16) + b"data" + ICRC


@pytest.mark.parametrize("records", [0, 1, 8])
def test_a_room_for_telemetry_lies_behind_the_xdh(records: int) -> None:
    room = 4 + 16 * records if records else 0
    owned = packet(with_room(records, room))
    status, parsed = owned.parse()
    assert status == 0
    assert offset(owned, parsed.room) == (32 if records else None)
    assert [offset(owned, getattr(parsed, h)) for h in ("reth", "payload")] == [
        32 + room,
        48 + room,
    ]


@pytest.mark.parametrize(("records", "room"), [(9, 148), (15, 244), (8, 100), (2, 8)])
def test_a_room_that_is_none(records: int, room: int) -> None:
    assert packet(with_room(records, room)).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize("words", [0, 1, 64])
def test_every_truncation_of_an_extended_ack(words: int) -> None:
    data = xack(words, 4 * words)
    for length in range(len(data)):
        assert packet(data[:length]).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize("data", [
    pytest.param(bth(0x04) + b"data", id="SEND_ONLY"),
    pytest.param(bth(0x11) + bytes(4), id="ACK"),
    pytest.param(bth(0x64) + bytes(8) + b"data", id="UD_SEND_ONLY"),
    pytest.param(bth(0xCC) + bytes(20 + 16), id="EXT_READ_REQUEST"),
    pytest.param(xack(1, 4)[:-4], id="EXT_ACK"),
])  # fmt: skip
def test_only_data_of_the_extended_mode_is_trimmed(data: bytes) -> None:
    """Other packets with the DSCP of trimmed ones are read as those without."""
    for tos in (0, lib.DP_DSCP_TRIMMED << 2):
        status, parsed = packet(data + ICRC, tos=tos).parse()
        assert (status, parsed.cut) == (0, False)
        assert parsed.payload_len == (4 if data.endswith(b"data") else 0)


def test_trimmed_data_has_no_payload() -> None:
    """What is left of it, here a word, does not count."""
    owned = packet(bth(0xCA) + bytes(20 + 16) + b"left", tos=lib.DP_DSCP_TRIMMED << 2)
    status, parsed = owned.parse()
    assert (status, parsed.cut, parsed.payload_len) == (0, True, 0)
    assert parsed.payload == ffi.NULL


def no_payload(data: bytes, pay_len: int) -> tuple[int, int]:
    owned = packet(data, flags=lib.DP_PKT_NO_PAYLOAD)
    owned.p.pay_len = pay_len
    status, parsed = owned.parse()
    if status == 0:
        assert parsed.payload == ffi.NULL
    return status, parsed.payload_len


def test_without_payload_only_lengths_move() -> None:
    assert no_payload(bth(0x04), 1024) == (0, 1024)
    assert no_payload(bth(0x04, pad=1), 3) == (0, 3)
    assert no_payload(bth(0x11) + bytes(4), 0) == (0, 0)
    assert no_payload(bth(0x04) + ICRC, 1024)[0] == -errno.EBADMSG
    assert no_payload(bth(0x04), 1023)[0] == -errno.EBADMSG
    assert no_payload(bth(0x11) + bytes(4), 4)[0] == -errno.EBADMSG


@given(data=st.binary(max_size=400), split=st.none() | st.integers(0, 400),
       flags=st.integers(0, 3), opcode=st.none() | st.integers(0, 255))  # fmt: skip
@example(data=bytes.fromhex("d140ffff000000110000002200") + bytes(30), split=20, flags=0,
         opcode=None)  # fmt: skip
def test_any_bytes_give_a_status_and_pointers_that_lie_inside(
    data: bytes, split: int | None, flags: int, opcode: int | None
) -> None:
    if opcode is not None and len(data) > 1:
        data = bytes([opcode, data[1] & 0xF0]) + data[2:]
    owned = packet(data, flags=flags, split=None if split is None else min(split, len(data)))
    owned.icrc_ok()
    status, parsed = owned.parse()
    assert status in (0, -errno.EBADMSG, -errno.EOPNOTSUPP)
    if status != 0 or flags & lib.DP_PKT_NO_PAYLOAD:
        return
    for name in ("hello", "xdh", "reth", "atomic", "aeth", "atomic_ack", "imm", "ieth", "xah"):
        at = offset(owned, getattr(parsed, name))
        assert at is None or 12 <= at < owned.p.len
    at = offset(owned, parsed.payload)
    assert at is not None
    assert at + parsed.payload_len <= owned.p.len
    assert parsed.payload2_len <= owned.p.frag_len
