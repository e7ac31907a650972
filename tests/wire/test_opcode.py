# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The opcode table against IBTA vol. 1, table 38, and wire/ext.h."""

from __future__ import annotations

import pytest

from datapath.native import ffi, lib

pytestmark = pytest.mark.san

# opcode: (name, header length), extended header length (None: no such form)
ROWS = {
    0x00: ("SEND_FIRST", 12, 32),
    0x01: ("SEND_MIDDLE", 12, 32),
    0x02: ("SEND_LAST", 12, 32),
    0x03: ("SEND_LAST_IMM", 16, 36),
    0x04: ("SEND_ONLY", 12, 32),
    0x05: ("SEND_ONLY_IMM", 16, 36),
    0x06: ("WRITE_FIRST", 28, 48),
    0x07: ("WRITE_MIDDLE", 12, 48),
    0x08: ("WRITE_LAST", 12, 48),
    0x09: ("WRITE_LAST_IMM", 16, 52),
    0x0A: ("WRITE_ONLY", 28, 48),
    0x0B: ("WRITE_ONLY_IMM", 32, 52),
    0x0C: ("READ_REQUEST", 28, 48),
    0x0D: ("READ_RESP_FIRST", 16, 32),
    0x0E: ("READ_RESP_MIDDLE", 12, 32),
    0x0F: ("READ_RESP_LAST", 16, 32),
    0x10: ("READ_RESP_ONLY", 16, 32),
    0x11: ("ACK", 16, 44),
    0x12: ("ATOMIC_ACK", 24, 24),
    0x13: ("COMPARE_SWAP", 40, 60),
    0x14: ("FETCH_ADD", 40, 60),
    0x16: ("SEND_LAST_INV", 16, 36),
    0x17: ("SEND_ONLY_INV", 16, 36),
    0x1C: ("FLUSH", 32, 52),
    0x1D: ("ATOMIC_WRITE", 28, 48),
    0x64: ("UD_SEND_ONLY", 20, None),
    0x65: ("UD_SEND_ONLY_IMM", 24, None),
    0x81: ("CNP", 28, None),
    0xE0: ("HELLO", 32, None),
    0xE1: ("HELLO_REPLY", 32, None),
    0xE2: ("PROBE", 12, None),
    0xE3: ("PROBE_REPLY", 12, None),
    0xE4: ("DEMAND", 32, None),
    0xE5: ("GRANT", 24, None),
    0xE6: ("CREDIT", 16, None),
    0xE7: ("WRITE_BUNDLE", 32, None),
    0xE8: ("SEND_BUNDLE", 32, None),
}


def row(opcode: int) -> tuple[str, int] | None:
    info = lib.dp_opcodes[opcode]
    return None if info.name == ffi.NULL else (ffi.string(info.name).decode(), info.hdr_len)


@pytest.mark.parametrize("opcode", ROWS)
def test_row_and_its_extended_form(opcode: int) -> None:
    name, length, extended = ROWS[opcode]
    assert row(opcode) == (name, length)
    if extended is not None:
        assert row(opcode | 0xC0) == (f"EXT_{name}", extended)


def test_no_other_opcode_is_known() -> None:
    known = set(ROWS) | {op | 0xC0 for op, (_, _, ext) in ROWS.items() if ext is not None}
    assert {op for op in range(256) if row(op)} == known


def masks(opcode: int) -> set[str]:
    mask = lib.dp_opcodes[opcode].mask
    names = ffi.typeof("enum dp_op_mask").relements
    return {name.removeprefix("DP_") for name, bit in names.items() if mask & bit}


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (0x00, {"IS_SEND", "IS_REQUEST", "HAS_PAYLOAD", "IS_FIRST"}),
        (0x07, {"IS_WRITE", "IS_REQUEST", "HAS_PAYLOAD", "IS_MIDDLE"}),
        (0xC7, {"IS_WRITE", "IS_REQUEST", "HAS_PAYLOAD", "IS_MIDDLE", "HAS_XDH", "HAS_RETH"}),
        (0x0C, {"IS_READ", "IS_REQUEST", "HAS_RETH", "IS_FIRST", "IS_LAST"}),
        (0x0E, {"IS_READ_RESP", "IS_RESPONSE", "HAS_PAYLOAD", "IS_MIDDLE"}),
        (0x0D, {"IS_READ_RESP", "IS_RESPONSE", "HAS_PAYLOAD", "IS_FIRST", "HAS_AETH"}),
        (0xCD, {"IS_READ_RESP", "IS_RESPONSE", "HAS_PAYLOAD", "IS_FIRST", "HAS_XDH"}),
        (0x11, {"IS_RESPONSE", "HAS_AETH"}),
        (0xD1, {"IS_RESPONSE", "HAS_AETH", "HAS_XAH"}),
        (0xD2, {"IS_RESPONSE", "HAS_AETH", "HAS_ATOMIC_ACK_ETH"}),
        (0x13, {"IS_ATOMIC", "IS_REQUEST", "HAS_ATOMIC_ETH", "IS_FIRST", "IS_LAST"}),
        (0x17, {"IS_SEND", "IS_REQUEST", "HAS_PAYLOAD", "IS_FIRST", "IS_LAST", "HAS_IETH"}),
        (0x64, {"IS_SEND", "IS_REQUEST", "HAS_PAYLOAD", "IS_FIRST", "IS_LAST", "HAS_DETH"}),
        (0x81, {"IS_CNP"}),
        (0xE0, {"HAS_HELLO"}),
        (0xE2, {"IS_PROBE", "HAS_PAYLOAD"}),
        (0xE4, {"HAS_DEMAND"}),
        (0xE5, {"HAS_GRANT"}),
        (0xE6, {"HAS_CREDIT"}),
    ],
)
def test_masks(opcode: int, expected: set[str]) -> None:
    assert masks(opcode) == expected


def test_every_request_and_every_read_response_is_first_middle_or_last() -> None:
    for opcode in ROWS:
        found = masks(opcode)
        if found & {"IS_REQUEST", "IS_READ_RESP"}:
            assert found & {"IS_FIRST", "IS_MIDDLE", "IS_LAST"}, ROWS[opcode]
