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


@pytest.mark.parametrize("opcode", [0x15, 0x18, 0x1C, 0x20, 0x64, 0x80, 0xC1 + 0x14, 0xE2, 0xFF])
def test_unknown_opcode(opcode: int) -> None:
    assert packet(bth(opcode) + bytes(64)).parse()[0] == -errno.EOPNOTSUPP


def test_bad_transport_version() -> None:
    assert packet(bth(0x04, tver=1) + ICRC).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize(("pad", "payload"), [(1, 0), (1, 4), (3, 8), (0, 1), (0, 3), (2, 1)])
def test_pad_that_does_not_fill_a_word(pad: int, payload: int) -> None:
    data = bth(0x04, pad) + bytes(payload + pad) + ICRC
    assert packet(data).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize("opcode", [0x0C, 0x11, 0x12, 0x13, 0x14, 0x81, 0xE0, 0xD1])
def test_payload_on_an_opcode_without(opcode: int) -> None:
    header = bth(opcode) + bytes(lib.dp_opcodes[opcode].hdr_len - 12)
    assert packet(header + ICRC).parse()[0] == 0
    assert packet(header + bytes(4) + ICRC).parse()[0] == -errno.EBADMSG
    padded = bth(opcode, pad=1) + header[12:] + bytes(1) + ICRC
    assert packet(padded).parse()[0] == -errno.EBADMSG


def test_hello() -> None:
    owned = packet(bth(0xE0) + bytes.fromhex("01 00 0800 00000000 00000017") + ICRC)
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


def xack(words: int, bitmap: int) -> bytes:
    """An extended ACK that announces `words` words and carries `bitmap` bytes."""
    return bth(0xD1) + bytes(4) + bytes(19) + bytes([words]) + bytes(bitmap) + ICRC


@pytest.mark.parametrize("words", [0, 1, 2, 63, 64])
def test_sack_bitmap_is_whole(words: int) -> None:
    owned = packet(xack(words, 4 * words))
    status, parsed = owned.parse()
    assert status == 0
    assert [offset(owned, getattr(parsed, h)) for h in ("aeth", "xah", "sack")] == [12, 16, 36]
    assert parsed.payload_len == 0


@pytest.mark.parametrize(("words", "bitmap"), [(1, 0), (2, 4), (64, 252), (65, 260), (255, 1020)])
def test_sack_bitmap_that_is_too_short_or_too_long(words: int, bitmap: int) -> None:
    assert packet(xack(words, bitmap)).parse()[0] == -errno.EBADMSG


@pytest.mark.parametrize("words", [0, 1, 64])
def test_every_truncation_of_an_extended_ack(words: int) -> None:
    data = xack(words, 4 * words)
    for length in range(len(data)):
        assert packet(data[:length]).parse()[0] == -errno.EBADMSG


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
