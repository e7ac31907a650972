# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Opcodes of the BTH for RC and UD: IBTA volume 1, section 9.2, table 38 and annex A19."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class Kind(enum.Enum):
    """The kinds of packets; the first six are requests."""

    SEND = "SEND"
    WRITE = "WRITE"
    READ = "READ"
    ATOMIC = "ATOMIC"
    FLUSH = "FLUSH"
    ATOMIC_WRITE = "ATOMIC WRITE"
    READ_RESPONSE = "READ response"
    ACK = "ACK"
    ATOMIC_ACK = "ATOMIC ACK"
    DATAGRAM = "datagram"


class Place(enum.Enum):
    """Where a packet stands in its message."""

    FIRST = "FIRST"
    MIDDLE = "MIDDLE"
    LAST = "LAST"
    ONLY = "ONLY"


CONFIRMED = frozenset({Kind.FLUSH, Kind.ATOMIC_WRITE})
"""Requests that a READ response without payload answers."""
REQUESTS = frozenset({Kind.SEND, Kind.WRITE, Kind.READ, Kind.ATOMIC, *CONFIRMED})

HEADER_BYTES = {
    "reth": 16,
    "atomic": 28,
    "feth": 4,
    "aeth": 4,
    "value": 8,
    "imm": 4,
    "ieth": 4,
    "deth": 8,
}
"""RETH, AtomicETH, FETH, AETH, AtomicAckETH, ImmDt, IETH and DETH."""


@dataclass(frozen=True)
class Opcode:
    """One row: headers after the BTH, and whether payload may follow them."""

    name: str
    kind: Kind
    place: Place
    headers: tuple[str, ...] = ()  # in the order in which they stand
    payload: bool = True

    @property
    def header_bytes(self) -> int:
        return sum(HEADER_BYTES[header] for header in self.headers)

    @property
    def starts(self) -> bool:
        return self.place in (Place.FIRST, Place.ONLY)

    @property
    def ends(self) -> bool:
        return self.place in (Place.LAST, Place.ONLY)

    @property
    def consumes_receive(self) -> bool:
        """Whether the packet ends a message that takes a receive of the responder."""
        return self.ends and (self.kind is Kind.SEND or "imm" in self.headers)


OPCODES = {
    0x00: Opcode("SEND FIRST", Kind.SEND, Place.FIRST),
    0x01: Opcode("SEND MIDDLE", Kind.SEND, Place.MIDDLE),
    0x02: Opcode("SEND LAST", Kind.SEND, Place.LAST),
    0x03: Opcode("SEND LAST IMM", Kind.SEND, Place.LAST, ("imm",)),
    0x04: Opcode("SEND ONLY", Kind.SEND, Place.ONLY),
    0x05: Opcode("SEND ONLY IMM", Kind.SEND, Place.ONLY, ("imm",)),
    0x06: Opcode("WRITE FIRST", Kind.WRITE, Place.FIRST, ("reth",)),
    0x07: Opcode("WRITE MIDDLE", Kind.WRITE, Place.MIDDLE),
    0x08: Opcode("WRITE LAST", Kind.WRITE, Place.LAST),
    0x09: Opcode("WRITE LAST IMM", Kind.WRITE, Place.LAST, ("imm",)),
    0x0A: Opcode("WRITE ONLY", Kind.WRITE, Place.ONLY, ("reth",)),
    0x0B: Opcode("WRITE ONLY IMM", Kind.WRITE, Place.ONLY, ("reth", "imm")),
    0x0C: Opcode("READ REQUEST", Kind.READ, Place.ONLY, ("reth",), payload=False),
    0x0D: Opcode("READ RESPONSE FIRST", Kind.READ_RESPONSE, Place.FIRST, ("aeth",)),
    0x0E: Opcode("READ RESPONSE MIDDLE", Kind.READ_RESPONSE, Place.MIDDLE),
    0x0F: Opcode("READ RESPONSE LAST", Kind.READ_RESPONSE, Place.LAST, ("aeth",)),
    0x10: Opcode("READ RESPONSE ONLY", Kind.READ_RESPONSE, Place.ONLY, ("aeth",)),
    0x11: Opcode("ACK", Kind.ACK, Place.ONLY, ("aeth",), payload=False),
    0x12: Opcode("ATOMIC ACK", Kind.ATOMIC_ACK, Place.ONLY, ("aeth", "value"), payload=False),
    0x13: Opcode("COMPARE SWAP", Kind.ATOMIC, Place.ONLY, ("atomic",), payload=False),
    0x14: Opcode("FETCH ADD", Kind.ATOMIC, Place.ONLY, ("atomic",), payload=False),
    0x16: Opcode("SEND LAST INV", Kind.SEND, Place.LAST, ("ieth",)),
    0x17: Opcode("SEND ONLY INV", Kind.SEND, Place.ONLY, ("ieth",)),
    0x1C: Opcode("FLUSH", Kind.FLUSH, Place.ONLY, ("feth", "reth"), payload=False),
    0x1D: Opcode("ATOMIC WRITE", Kind.ATOMIC_WRITE, Place.ONLY, ("reth",)),
}

"""Opcodes of reliable connections."""

DATAGRAMS = {
    0x64: Opcode("UD SEND", Kind.DATAGRAM, Place.ONLY, ("deth",)),
    0x65: Opcode("UD SEND IMM", Kind.DATAGRAM, Place.ONLY, ("deth", "imm")),
}

CNP = 0x81

# Of extended mode: docs/extended-mode.md.
MANUFACTURER = 0xC0  # and above
HELLO = 0xE0
XDH_BYTES = 20
BUNDLES = {0xE7: HEADER_BYTES["reth"], 0xE8: 4}
"""Of WRITEs and of SENDs: bytes of the head of each message, which end with its length."""
EXTENDED_REQUESTS = frozenset(
    {MANUFACTURER | code for code, row in OPCODES.items() if row.kind in REQUESTS} | set(BUNDLES)
)
"""Those of RC, and bundles."""


def extended_row(opcode: int) -> Opcode | None:
    """The row of an RC original, with the headers that its extended form has behind the XDH.

    Each WRITE has a RETH, and no READ response an AETH.
    """
    row = OPCODES.get(opcode - MANUFACTURER)
    if row is not None and row.kind is Kind.WRITE and "reth" not in row.headers:
        return replace(row, headers=("reth", *row.headers))
    if row is not None and row.kind is Kind.READ_RESPONSE:
        return replace(row, headers=())
    return row


def name_of(opcode: int) -> str:
    row = OPCODES.get(opcode) or DATAGRAMS.get(opcode)
    if row is not None:
        return row.name
    return {CNP: "CNP", HELLO: "HELLO"}.get(opcode, f"opcode {opcode:#04x}")
