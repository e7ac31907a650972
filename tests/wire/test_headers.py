# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every get/set pair against bytes written out by hand from the IBTA tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clib import testffi, testlib

pytestmark = pytest.mark.san

U8, U16, U24, U32, U64 = (st.integers(0, 2**n - 1) for n in (8, 16, 24, 32, 64))


def put(name: str, length: int, *fields: int) -> bytes:
    """What dp_<name>_set() writes over bytes of 0xee; the byte behind stays as it is."""
    buffer = testffi.new("uint8_t[]", b"\xee" * (length + 1))
    getattr(testlib, f"X_dp_{name}_set")(buffer, testffi.new("uint64_t[]", list(fields)))
    out = bytes(testffi.buffer(buffer))
    assert out[length] == 0xEE
    return out[:length]


def get(name: str, header: bytes) -> int:
    return int(getattr(testlib, f"X_dp_{name}")(header))


def get_all(name: str, header: bytes, count: int) -> list[int]:
    fields = testffi.new("uint64_t[]", count)
    getattr(testlib, f"X_dp_{name}_get")(header, fields)
    return list(fields)


BTH = bytes.fromhex("0a f0 ffff 00 abcdef 80 123456")


def test_bth_is_the_bytes_of_figure_78() -> None:
    """opcode SE|MigReq|Pad|TVer P_Key resv8a DestQP A|resv7 PSN."""
    assert put("bth", 12, 0x0A, 1, 3, 0xABCDEF, 1, 0x123456) == BTH
    assert put("bth", 12, 0x11, 0, 0, 1, 0, 2) == bytes.fromhex("11 40 ffff 00 000001 00 000002")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("opcode", 0x0A),
        ("solicited", 1),
        ("pad", 3),
        ("tver", 0),
        ("pkey", 0xFFFF),
        ("becn", 0),
        ("dest_qpn", 0xABCDEF),
        ("ack_req", 1),
        ("psn", 0x123456),
    ],
)
def test_bth_getters(field: str, value: int) -> None:
    assert get(f"bth_{field}", BTH) == value


@pytest.mark.parametrize(
    ("field", "bits", "value"),
    [
        ("solicited", "0a 80 ffff 00 000000 00 000000", 1),
        ("solicited", "0a 7f ffff ff ffffff ff ffffff", 0),
        ("pad", "0a 20 ffff 00 000000 00 000000", 2),
        ("tver", "0a 0f ffff 00 000000 00 000000", 15),
        ("pkey", "0a 00 8001 00 000000 00 000000", 0x8001),
        ("becn", "0a 00 ffff 40 000000 00 000000", 1),
        ("becn", "0a 00 ffff 80 000000 00 000000", 0),
        ("dest_qpn", "0a 00 ffff ff 000001 ff 000000", 1),
        ("ack_req", "0a 00 ffff 00 000000 7f ffffff", 0),
        ("psn", "0a 00 ffff 00 000000 ff 000001", 1),
    ],
)
def test_bth_getters_mask_their_neighbours(field: str, bits: str, value: int) -> None:
    assert get(f"bth_{field}", bytes.fromhex(bits)) == value


def test_bth_set_keeps_psn_and_qpn_in_24_bits() -> None:
    header = put("bth", 12, 0x04, 0, 0, 0xFF000001, 0, 0xFF000002)
    assert header == bytes.fromhex("04 40 ffff 00 000001 00 000002")


def test_deth_bytes() -> None:
    header = bytes.fromhex("11223344 00 abcdef")
    assert put("deth", 8, 0x11223344, 0xABCDEF) == header
    assert get("deth_qkey", header) == 0x11223344
    assert get("deth_src_qpn", bytes.fromhex("11223344 ff abcdef")) == 0xABCDEF


def test_reth_bytes() -> None:
    header = bytes.fromhex("0123456789abcdef deadbeef 00001000")
    assert put("reth", 16, 0x0123456789ABCDEF, 0xDEADBEEF, 4096) == header
    assert get("reth_va", header) == 0x0123456789ABCDEF
    assert get("reth_rkey", header) == 0xDEADBEEF
    assert get("reth_len", header) == 4096


def test_atomic_eth_bytes() -> None:
    header = bytes.fromhex("0000000000001000 00000007 1111111111111111 2222222222222222")
    fields = (0x1000, 7, 0x1111111111111111, 0x2222222222222222)
    assert put("atomic", 28, *fields) == header
    names = ("va", "rkey", "swap_add", "compare")
    assert tuple(get(f"atomic_{n}", header) for n in names) == fields


def test_aeth_bytes() -> None:
    assert put("aeth", 4, 0x1F, 0x000001) == bytes.fromhex("1f 000001")
    assert put("aeth", 4, 0x60, 0xFF000002) == bytes.fromhex("60 000002")
    assert get("aeth_syndrome", bytes.fromhex("61 ffffff")) == 0x61
    assert get("aeth_msn", bytes.fromhex("ff abcdef")) == 0xABCDEF


def test_hello_bytes() -> None:
    header = bytes.fromhex("03 020000 00000000 00012345 0580 0001 89abcdef")
    assert put("hello", 20, 3, 131072, 0, 0x12345, 1408, 1, 0x89ABCDEF) == header
    assert get_all("hello", header, 7) == [3, 131072, 0, 0x12345, 1408, 1, 0x89ABCDEF]


def test_xdh_bytes() -> None:
    header = bytes.fromhex("01020304 00000009 00001000 fffffe 87 0a0b0c0d")
    fields = [0x01020304, 9, 4096, 0xFFFFFE, 1, 0x0A0B0C0D, 8, 3]
    assert put("xdh", 20, *fields) == header
    assert get_all("xdh", header, 8) == fields


def test_only_bit_0_of_the_flags_says_that_an_ack_is_carried() -> None:
    header = bytes.fromhex("01020304 00000009 00001000 ffffff fe 0a0b0c0d")
    assert get_all("xdh", header, 8)[4] == 0


def test_xah_bytes() -> None:
    header = bytes.fromhex("01020304 00000009 00000002 00000001 ffffe0 40 03 05 02 00 0a0b0c0d")
    fields = [0x01020304, 9, 2, 1, 0xFFFFE0, 64, 3, 5, 2, 0x0A0B0C0D]
    assert put("xah", 28, *fields) == header
    assert get_all("xah", header, 10) == fields


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (5, 3, 2),
        (3, 5, -2),
        (0, 0xFFFFFF, 1),
        (0xFFFFFF, 0, -1),
        (0x7FFFFF, 0, 0x7FFFFF),
        (0x800000, 0, -0x800000),
    ],
)
def test_psn_distance_wraps_at_24_bits(a: int, b: int, distance: int) -> None:
    assert testlib.X_dp_psn_diff(a, b) == distance


@given(psn=U24, n=st.integers(0, 0x7FFFFF))
def test_psn_add_and_diff_are_inverse(psn: int, n: int) -> None:
    total = testlib.X_dp_psn_add(psn, n)
    assert 0 <= total <= 0xFFFFFF
    assert testlib.X_dp_psn_diff(total, psn) == n


@given(bits=st.sampled_from([16, 32, 64]), data=st.data())
def test_integers_are_big_endian(bits: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, 2**bits - 1))
    buffer = testffi.new("uint8_t[]", bits // 8)
    getattr(testlib, f"X_dp_put{bits}")(buffer, value)
    assert bytes(testffi.buffer(buffer)) == value.to_bytes(bits // 8, "big")
    assert getattr(testlib, f"X_dp_get{bits}")(buffer) == value


@given(opcode=U8, solicited=st.integers(0, 1), pad=st.integers(0, 3), qpn=U24,
       ack_req=st.integers(0, 1), psn=U24)  # fmt: skip
def test_bth_round_trip(
    opcode: int, solicited: int, pad: int, qpn: int, ack_req: int, psn: int
) -> None:
    header = put("bth", 12, opcode, solicited, pad, qpn, ack_req, psn)
    names = ("opcode", "solicited", "pad", "dest_qpn", "ack_req", "psn", "tver", "becn", "pkey")
    expected = [opcode, solicited, pad, qpn, ack_req, psn, 0, 0, 0xFFFF]
    assert [get(f"bth_{n}", header) for n in names] == expected


@given(fields=st.tuples(U64, U32, U64, U64))
def test_atomic_round_trip(fields: tuple[int, ...]) -> None:
    header = put("atomic", 28, *fields)
    names = ("va", "rkey", "swap_add", "compare")
    assert tuple(get(f"atomic_{n}", header) for n in names) == fields


@given(fields=st.tuples(U64, U32, U32))
def test_reth_round_trip(fields: tuple[int, ...]) -> None:
    header = put("reth", 16, *fields)
    assert tuple(get(f"reth_{n}", header) for n in ("va", "rkey", "len")) == fields


@given(hello=st.tuples(U8, U24, U32, U32, U16, st.integers(0, 1), U32),
       xdh=st.tuples(U32, U32, U32, U24, st.integers(0, 1), U32, st.integers(0, 15),
                     st.integers(0, 7)),
       xah=st.tuples(U32, U32, U32, U32, U24, U8, U8, U8, U8, U32))  # fmt: skip
def test_extension_headers_round_trip(
    hello: tuple[int, ...], xdh: tuple[int, ...], xah: tuple[int, ...]
) -> None:
    for name, length, fields in (("hello", 20, hello), ("xdh", 20, xdh), ("xah", 28, xah)):
        assert tuple(get_all(name, put(name, length, *fields), len(fields))) == fields
