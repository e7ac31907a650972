# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Request packets of a reliable connection, and the rules for each by itself.

IBTA volume 1, section 9.7 and annex A19.  Rules that depend on other packets of the stream are in
stream.py.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from datapath.interop.capture import Atomic, Packet, Reth
from datapath.interop.frames import Flaw
from datapath.interop.opcodes import CONFIRMED, Kind, Opcode, Place

_WORD_BYTES = 8  # of an ATOMIC WRITE
_PLACEMENTS = 3  # of a FETH: bit 0 global visibility, bit 1 persistence
_SELECTIVITIES = (0, 1)  # of a FETH: a range, the whole region


@dataclass
class Request:
    """A request packet as it was first seen.

    sent_ns: of its newest copy.
    end: the last PSN that it takes; that of its own, but for a READ.
    left: bytes of its WRITE that are still to come after it; None when unknown.
    starts: PSNs from which a READ's answer was asked for.
    answered: of requests with an answer of their own, the first PSN that is without it.
    """

    psn: int
    end: int
    row: Opcode
    payload_bytes: int
    digest: bytes
    reth: Reth | None
    atomic: Atomic | None
    tail: tuple[bytes, int | None, bool, int | None]
    sent_ns: int
    left: int | None = None
    starts: set[int] = field(default_factory=set)
    answered: int = 0
    value: int | None = None
    seen: int = 0

    @property
    def is_answered(self) -> bool:
        """Whether it is answered by data and not by an ACK."""
        return self.row.kind in (Kind.READ, Kind.ATOMIC) or self.is_confirmed

    @property
    def is_confirmed(self) -> bool:
        """Whether its answer is a READ response of no bytes."""
        return self.row.kind in CONFIRMED


class Requests:
    """Those of a stream, by the PSNs that each takes; of those that overlap the newest counts."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._requests: list[Request] = []

    def __bool__(self) -> bool:
        return bool(self._begins)

    def add(self, request: Request) -> None:
        covered = slice(
            bisect_left(self._begins, request.psn), bisect_right(self._begins, request.end)
        )
        self._begins[covered] = [request.psn]
        self._requests[covered] = [request]

    def get(self, psn: int) -> Request | None:
        at = bisect_right(self._begins, psn)
        found = self._requests[at - 1] if at else None
        return found if found is not None and psn <= found.end else None


def request_of(packet: Packet, row: Opcode, psn: int, path_mtu: int) -> Request:
    """A packet that asks for something; psn: unwrapped."""
    count = 1
    if row.kind is Kind.READ and packet.reth is not None:
        count = max(1, -(-packet.reth.length // path_mtu))
    return Request(
        psn=psn,
        end=psn + count - 1,
        row=row,
        payload_bytes=len(packet.payload),
        digest=hashlib.blake2b(packet.payload, digest_size=16).digest(),
        reth=packet.reth,
        atomic=packet.atomic,
        tail=(packet.imm, packet.ieth, packet.solicited, packet.feth),
        sent_ns=packet.time_ns,
        starts={psn},
        answered=psn,
    )


def judge_new(
    request: Request, packet: Packet, previous: Request | None, path_mtu: int
) -> list[Flaw]:
    """Rules for a request by itself, and after the one before it (None: not seen)."""
    flaws = _size(request, path_mtu)
    flaws += _write_length(request, previous)
    flaws += _answerable(request, packet)
    if packet.solicited and not request.row.consumes_receive:
        flaws.append(Flaw("solicited", f"{request.row.name} with the solicited bit"))
    return flaws


def _size(request: Request, path_mtu: int) -> list[Flaw]:
    size, row = request.payload_bytes, request.row
    if row.kind not in (Kind.SEND, Kind.WRITE):
        return []
    if row.place in (Place.FIRST, Place.MIDDLE):
        right = size == path_mtu
    else:
        right = (0 if row.place is Place.ONLY else 1) <= size <= path_mtu
    if right:
        return []
    return [Flaw("payload", f"{row.name} with {size} bytes, path MTU {path_mtu}")]


def _write_length(request: Request, previous: Request | None) -> list[Flaw]:
    """A WRITE brings as many bytes as its RETH says."""
    row = request.row
    if row.kind is not Kind.WRITE:
        return []
    before = request.reth.length if request.reth else previous.left if previous else None
    if before is None:
        return []
    request.left = before - request.payload_bytes
    if request.left == 0 if row.ends else request.left > 0:
        return []
    text = f"{row.name} leaves {request.left} bytes of its RETH"
    return [Flaw("reth", text)]


def _answerable(request: Request, packet: Packet) -> list[Flaw]:
    if request.row.kind is Kind.READ and packet.reth and packet.reth.length > 1 << 31:
        return [Flaw("reth", f"a READ of {packet.reth.length} bytes")]
    if request.atomic is not None and request.atomic.va % 8:
        return [Flaw("atomic", f"address {request.atomic.va:#x} is not aligned")]
    if request.row.kind is Kind.ATOMIC_WRITE:
        return _atomic_write(request)
    return _flush(packet.feth) if packet.feth is not None else []


def _atomic_write(request: Request) -> list[Flaw]:
    """Annex A19: eight bytes at an aligned address."""
    assert request.reth is not None
    if request.reth.va % _WORD_BYTES:
        return [Flaw("atomic", f"address {request.reth.va:#x} is not aligned")]
    if (request.payload_bytes, request.reth.length) != (_WORD_BYTES, _WORD_BYTES):
        text = f"ATOMIC WRITE of {request.payload_bytes} bytes, {request.reth.length} by its RETH"
        return [Flaw("payload", text)]
    return []


def _flush(feth: int) -> list[Flaw]:
    """The FETH: 26 reserved bits, 2 of selectivity, 4 of placement."""
    placement, selectivity = feth & 15, feth >> 4
    if 0 < placement <= _PLACEMENTS and selectivity in _SELECTIVITIES:
        return []
    return [Flaw("flush", f"FETH {feth:#010x}: placement {placement}, selectivity {selectivity}")]


def judge_again(known: Request, request: Request, path_mtu: int) -> list[Flaw]:
    """A retransmission has the same content; a READ may ask for the rest of itself."""
    same = (known.row.name, known.digest, known.tail, known.atomic)
    if same != (request.row.name, request.digest, request.tail, request.atomic):
        text = f"{request.row.name} where {known.row.name} was, or with other content"
        return [Flaw("retransmission", text)]
    if known.row.kind is not Kind.READ:
        return [] if known.reth == request.reth else [Flaw("retransmission", "another RETH")]
    assert known.reth is not None
    assert request.reth is not None
    skipped = (request.psn - known.psn) * path_mtu
    rest = Reth(known.reth.va + skipped, known.reth.rkey, known.reth.length - skipped)
    if request.reth != rest:
        text = f"a READ asks again for {request.reth}, not for {rest}"
        return [Flaw("retransmission", text)]
    known.starts.add(request.psn)
    return []
