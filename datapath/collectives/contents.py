# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The contents of a buffer while the checker goes through a plan, and its last accesses."""

from __future__ import annotations

import bisect
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """Bytes at position p are the sum, over the ranks of the bits, of their input at p - shift."""

    shift: int
    ranks: int


@dataclass
class Piece:
    """A run of bytes of one value.

    value: None: nobody has written here.  writer, readers: the last row that wrote, and the rows
    that have read since; -1: none.
    """

    end: int
    value: Value | None
    writer: int = -1
    readers: tuple[int, ...] = ()


class Contents:
    """The pieces of one buffer of one rank, in order."""

    def __init__(self, size: int, value: Value | None) -> None:
        self._begins = [0] if size else []
        self._pieces = [Piece(size, value)] if size else []

    def pieces(self, begin: int, end: int) -> list[tuple[int, Piece]]:
        """(begin, piece) of all that lie within; those at the borders are cut there."""
        low = self._cut(begin)
        high = self._cut(end)
        return list(zip(self._begins[low:high], self._pieces[low:high], strict=True))

    def _cut(self, at: int) -> int:
        """The number of the piece that begins at `at`."""
        number = bisect.bisect_left(self._begins, at)
        if number < len(self._begins) and self._begins[number] == at:
            return number
        piece = self._pieces[number - 1]
        if piece.end == at:
            return number
        self._begins.insert(number, at)
        rest = Piece(piece.end, piece.value, piece.writer, piece.readers)
        self._pieces.insert(number, rest)
        piece.end = at
        return number

    def put(self, begin: int, end: int, value: Value | None, writer: int) -> None:
        """Make one piece of what lies within."""
        low, high = self._cut(begin), self._cut(end)
        self._begins[low:high] = [begin]
        self._pieces[low:high] = [Piece(end, value, writer)]
