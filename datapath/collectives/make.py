# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From what an algorithm wrote down to a plan: hazards, order, slices, bytes.

The operations of the algorithm are a template.  Each slice of the data goes through the template
by itself, on the channels in turn, so that the transfers of one slice overlap with the reductions
of another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from datapath.collectives.plan import NO_STEP, STEP_DTYPE, WAIT_DTYPE, Array, Buffer, Op, Plan
from datapath.collectives.trace import (
    Algorithm,
    Operation,
    Place,
    Trace,
    Value,
    by_parts,
    trace,
)
from datapath.errors import LocalError

TRANSFER_BYTES = 256 * 1024
"""The largest transfer, unless told otherwise."""
_ALIGN = 64


class TooLong(LocalError):
    """The plan would have more than steps_max steps."""


@dataclass(frozen=True)
class Costs:
    """How long the work on bytes that have arrived takes, for the simulator.

    step_ns: of each step.  copy_ns, reduce_ns: of a byte.
    """

    step_ns: float = 0.0
    copy_ns: float = 0.0
    reduce_ns: float = 0.0


def make(
    algorithm: Algorithm,
    ranks: int,
    size: int,
    *,
    item_bytes: int = 4,
    channels: int = 1,
    shares: Sequence[float] = (),
    transfer_bytes: int = TRANSFER_BYTES,
    root: int = 0,
    params: Mapping[str, Value] | None = None,
    costs: Costs | None = None,
    steps_max: int | None = None,
) -> Plan:
    """The plan of one collective; check() has not seen it yet.

    Args:
        size: bytes of DATA of each rank: what nccl-tests calls the size.
        channels: how many transfers between two ranks may be under way beside each other.
        shares: the share of the data that each channel carries, for links of unequal speed;
            unset: equal.
        transfer_bytes: the largest transfer; more data goes in more slices.
        steps_max: a plan of more steps is refused before it is made.

    Raises:
        LocalError: the arguments or the algorithm make no sense.
        TooLong: see steps_max.
    """
    if size <= 0 or item_bytes <= 0 or size % item_bytes:
        raise LocalError(f"size {size}: it is a positive multiple of {item_bytes} bytes")
    if channels < 1 or transfer_bytes < item_bytes:
        raise LocalError(f"{channels} channels, transfers of {transfer_bytes} bytes: too few")
    if by_parts(algorithm.collective) and size % (ranks * item_bytes):
        raise LocalError(
            f"size {size}: {algorithm.collective} gives each of the {ranks} ranks an equal part",
            hint=f"use a multiple of {ranks * item_bytes}",
        )
    weights = _weights(channels, shares)
    traced = trace(algorithm, ranks, root, params or {})
    rounds = _rounds(traced, size, weights, transfer_bytes)
    if rounds * channels > 1:
        _take_parts_apart(traced)
    template = _Template(traced)
    while True:
        _refuse_long(len(template.rows) * rounds * channels, steps_max, size, transfer_bytes)
        slices = np.tile(weights / rounds, rounds)
        bounds = _Bounds.equal(traced, size // item_bytes, slices, item_bytes)
        made = _lay_out(template, bounds, traced, channels, size, item_bytes, costs or Costs())
        if made.slot_bytes <= transfer_bytes:
            return made
        if _take_parts_apart(traced):
            template = _Template(traced)
        else:
            rounds += 1  # slices are whole items, so one may be larger than its share


def _refuse_long(steps: int, steps_max: int | None, size: int, transfer_bytes: int) -> None:
    if steps_max is not None and steps > steps_max:
        raise TooLong(
            f"size {size}: transfers of at most {transfer_bytes} bytes make {steps:,} steps, and "
            f"{steps_max:,} are the most that are made and proved here, in about half a minute",
            hint="take a smaller size, or larger transfers",
        )


def make_uneven(
    algorithm: Algorithm,
    parts: Array,
    *,
    item_bytes: int = 4,
    transfer_bytes: int = TRANSFER_BYTES,
    costs: Costs | None = None,
) -> Plan:
    """The plan of an all-to-all with parts of several sizes; check() has not seen it yet.

    parts: bytes from each rank to each, shape (ranks, ranks), whole items; some may be 0.  INPUT
    and DATA of each rank are as large as those of the rank that needs most.
    """
    parts = np.asarray(parts, np.int64)
    if parts.ndim != 2 or parts.shape[0] != parts.shape[1] or item_bytes <= 0:
        raise LocalError(f"parts of shape {parts.shape}: give bytes from each rank to each")
    if (parts < 0).any() or (parts % item_bytes).any() or not parts.any():
        raise LocalError(f"parts are multiples of {item_bytes} bytes, and not all of them 0")
    if algorithm.collective != "alltoall" or transfer_bytes < item_bytes:
        raise LocalError(
            f"algorithm {algorithm.name}, transfers of {transfer_bytes} bytes: parts of several "
            "sizes are for an alltoall, whose transfers hold an item"
        )
    traced = trace(algorithm, len(parts), 0, {})
    if traced.chunks != len(parts):
        raise traced.wrong("it divides parts, so they have to be of one size")
    items = parts // item_bytes
    rounds = -(-int(items.max()) // (transfer_bytes // item_bytes))
    bounds = _Bounds.uneven(traced, items, np.ones(rounds), item_bytes)
    sizes = int(parts.sum(axis=0).max()), int(parts.sum(axis=1).max())
    made = _lay_out(_Template(traced), bounds, traced, 1, sizes[0], item_bytes, costs or Costs())
    assert made.slot_bytes <= transfer_bytes
    return replace(made, input_bytes=sizes[1], parts=parts)


def _weights(channels: int, shares: Sequence[float]) -> Array:
    given = np.asarray(shares if len(shares) else [1.0] * channels, np.float64)
    if len(given) != channels or not np.isfinite(given).all() or (given <= 0).any():
        raise LocalError(
            f"shares {list(shares)}: there are {channels} channels, each with a share above 0"
        )
    return np.asarray(given / given.sum())


def _rounds(traced: Trace, size: int, weights: Array, transfer_bytes: int) -> int:
    """How often each channel gets a slice, so that its transfers are as large as they may be."""
    most = max((op.target.count for op in traced.operations), default=1)
    if by_parts(traced.algorithm.collective):
        most = 1
    largest = size * most / traced.chunks * float(weights.max())
    return max(1, math.ceil(largest / transfer_bytes))


def _take_parts_apart(traced: Trace) -> bool:
    """Have each chunk move by itself where ranks have parts; whether that changes something.

    A slice of a range of parts is not one piece of memory, and the whole range may be more than a
    transfer holds.
    """
    if not by_parts(traced.algorithm.collective):
        return False
    before = traced.operations
    traced.operations = [one for many in before for one in _single(many)]
    return len(traced.operations) > len(before)


def _single(operation: Operation) -> list[Operation]:
    """An operation on a range of chunks as operations on single ones."""

    def one(place: Place, k: int) -> Place:
        return replace(place, index=place.index + k, count=1) if place.count > 1 else place

    return [
        replace(
            operation,
            source=one(operation.source, k),
            target=one(operation.target, k),
            like=one(operation.like, k),
        )
        for k in range(operation.target.count)
    ]


class _Template:
    """The steps of one slice, with the order in which they are to run.

    columns: array of rows, one for each step.  waits: pairs of rows.
    """

    def __init__(self, traced: Trace) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.waits: list[tuple[int, int]] = []
        self._level: list[int] = []  # of a row
        self._writer: dict[tuple[int, int, int], int] = {}
        self._readers: dict[tuple[int, int, int], list[int]] = {}
        for number, op in enumerate(traced.operations):
            self._add(number, op)

    def _add(self, number: int, op: Operation) -> None:
        source, target = op.source, op.target
        local = source.rank == target.rank
        first = len(self.rows)
        last = first if local else first + 1
        reads, writes = self._before(source, False), self._before(target, True)
        before = reads | writes
        level = 1 + max((self._level[row] for row in before), default=-1)
        like = (op.like.rank, int(op.like.buffer), op.like.index, op.like.count)
        key = (level, number, op.channel)
        to, out = (int(target.buffer), target.index), (int(source.buffer), source.index)
        if local:
            kind = Op.REDUCE_LOCAL if op.reduces else Op.COPY_LOCAL
            self.rows.append((target.rank, kind, target.rank, NO_STEP, *to, *out, *like, *key))
            self.waits += [(first, row) for row in sorted(before)]
            self._level.append(level)
        else:
            kind = Op.REDUCE if op.reduces else Op.RECEIVE
            self.rows.append((source.rank, Op.SEND, target.rank, last, *out, 0, 0, *like, *key))
            self.rows.append((target.rank, kind, source.rank, first, *to, 0, 0, *like, *key))
            self.waits += [(first, row) for row in sorted(reads)]
            self.waits += [(last, row) for row in sorted(writes)]
            self._level += [level, level]
        self._note(source, first, False)
        self._note(target, last, True)

    def _before(self, place: Place, writes: bool) -> set[int]:
        """Rows of that rank that have to be done before an access."""
        rows: set[int] = set()
        for index in range(place.index, place.index + place.count):
            key = (place.rank, int(place.buffer), index)
            readers = self._readers.get(key, ()) if writes else ()
            rows.update(readers)
            if key in self._writer and not readers:
                rows.add(self._writer[key])
        return rows

    def _note(self, place: Place, row: int, writes: bool) -> None:
        for index in range(place.index, place.index + place.count):
            key = (place.rank, int(place.buffer), index)
            if writes:
                self._writer[key] = row
                self._readers[key] = []
            else:
                self._readers.setdefault(key, []).append(row)


def _cut(items: Array, slices: Array) -> Array:
    """Where each slice of so many items begins, and the last one ends; slices: their weights.

    Shape (slices + 1, *items.shape).  Equal slices are cut in whole numbers: with sums of floats a
    cut may lie an item too low, and one slice is an item larger than its share.
    """
    if (slices == slices[0]).all():
        return np.multiply.outer(np.arange(len(slices) + 1), items) // len(slices)
    cuts = np.concatenate([[0.0], np.cumsum(slices)])
    cuts[-1] = 1.0
    return np.asarray(np.floor(np.multiply.outer(cuts, items)).astype(np.int64))


class _Bounds:
    """Where each chunk of each slice begins and ends, bytes.

    begin, end: array of shape (slices, places, chunks).  Place 0 is for all; with parts of several
    sizes, DATA of rank r has place r, and its INPUT has place ranks + r.
    """

    def __init__(self, traced: Trace, begin: Array, end: Array, item_bytes: int) -> None:
        self.begin, self.end = begin * item_bytes, end * item_bytes
        self.places, self.ranks = begin.shape[1], traced.ranks
        largest = int((self.end - self.begin).max())
        self.slot = -(-largest // _ALIGN) * _ALIGN
        self.scratch_chunks = traced.scratch_chunks
        self.scratch_bytes = self.slot * traced.scratch_chunks * len(begin)

    @classmethod
    def uneven(cls, traced: Trace, items: Array, slices: Array, item_bytes: int) -> _Bounds:
        """items: from each rank to each."""
        wide = np.concatenate([items.T, items])
        first = np.cumsum(wide, axis=1) - wide
        edges = first + _cut(wide, slices)
        return cls(traced, edges[:-1], edges[1:], item_bytes)

    @classmethod
    def equal(cls, traced: Trace, items: int, slices: Array, item_bytes: int) -> _Bounds:
        """items: of each rank's DATA."""
        chunks = traced.chunks
        if by_parts(traced.algorithm.collective):
            each = chunks // traced.ranks
            part = items // traced.ranks
            of_part = part * np.arange(each + 1) // each
            first = (np.arange(traced.ranks)[:, None] * part + of_part[:-1]).ravel()
            wide = np.tile(np.diff(of_part), traced.ranks)
            edges = first + _cut(wide, slices)
            begin, end = edges[:-1], edges[1:]
        else:
            edges = _cut(np.array(items), slices)
            wide = np.diff(edges)[:, None]
            marks = edges[:-1, None] + wide * np.arange(chunks + 1) // chunks
            begin, end = marks[:, :-1], marks[:, 1:]
        return cls(traced, begin[:, None], end[:, None], item_bytes)

    def offset(self, number: int, rank: Array, buffer: Array, index: Array) -> Array:
        """Of chunks of slice `number`."""
        inside = np.where(buffer == Buffer.SCRATCH, 0, index)
        at = self.begin[number][self._place(rank, buffer), inside]
        own = (number * self.scratch_chunks + index) * self.slot
        return np.asarray(np.where(buffer == Buffer.SCRATCH, own, at))

    def bytes(self, number: int, rank: Array, buffer: Array, index: Array, count: Array) -> Array:
        place = self._place(rank, buffer)
        last = self.end[number][place, index + count - 1]
        return np.asarray(last - self.begin[number][place, index])

    def _place(self, rank: Array, buffer: Array) -> Array:
        own = rank + np.where(buffer == Buffer.INPUT, self.ranks, 0)
        return own if self.places > 1 else np.zeros_like(rank)


_COLUMNS = (
    *("rank", "op", "peer", "match", "buffer", "index", "from_buffer", "from_index"),
    *("like_rank", "like_buffer", "like_index", "like_count", "level", "number", "channel"),
)


def _lay_out(
    template: _Template,
    bounds: _Bounds,
    traced: Trace,
    channels: int,
    size: int,
    item_bytes: int,
    costs: Costs,
) -> Plan:
    rows = np.array(template.rows, np.int64).reshape(-1, len(_COLUMNS))
    t = {name: rows[:, i] for i, name in enumerate(_COLUMNS)}
    count, slices = len(rows), len(bounds.begin)
    steps = np.zeros(count * slices, STEP_DTYPE)
    keys = np.empty((3, count * slices), np.int64)
    for number in range(slices):
        part = slice(number * count, (number + 1) * count)
        out = steps[part]
        for name in ("rank", "op", "peer", "buffer", "from_buffer"):
            out[name] = t[name]
        out["match"] = np.where(t["match"] == NO_STEP, NO_STEP, t["match"] + number * count)
        out["channel"] = (number % channels) * traced.channels + t["channel"]
        out["offset"] = bounds.offset(number, t["rank"], t["buffer"], t["index"])
        local = t["op"] >= Op.COPY_LOCAL
        source = bounds.offset(number, t["rank"], t["from_buffer"], t["from_index"])
        out["from_offset"] = source * local
        like = (t["like_rank"], t["like_buffer"], t["like_index"], t["like_count"])
        out["bytes"] = bounds.bytes(number, *like)
        keys[0, part], keys[1, part], keys[2, part] = t["number"], number, t["level"]
    _refuse_unequal(steps, bounds, rows, t, traced)
    steps["compute_ns"] = _compute_ns(steps, costs)
    waits = np.array(template.waits, np.int64).reshape(-1, 2)
    every = (waits[None] + (np.arange(slices) * count)[:, None, None]).reshape(-1, 2)
    order = np.lexsort((*keys, steps["rank"]))
    steps, every = _ordered(steps, every, order[steps["bytes"][order] > 0])
    return Plan(
        algorithm=traced.algorithm.name,
        collective=traced.algorithm.collective,
        ranks=traced.ranks,
        channels=channels * traced.channels,
        item_bytes=item_bytes,
        data_bytes=size,
        input_bytes=size if traced.algorithm.collective == "alltoall" else 0,
        scratch_bytes=bounds.scratch_bytes,
        steps=steps,
        waits=every,
        root=traced.root,
    )


def _refuse_unequal(
    steps: Array, bounds: _Bounds, rows: Array, t: Mapping[str, Array], traced: Trace
) -> None:
    """LocalError when something is moved to where less or more has room."""
    for number in range(len(bounds.begin)):
        for buffer, index in (("buffer", "index"), ("from_buffer", "from_index")):
            fixed = t[buffer] != Buffer.SCRATCH
            if buffer == "from_buffer":
                fixed &= t["op"] >= Op.COPY_LOCAL
            place = np.where(fixed, t[index], 0), t["like_count"] * fixed + ~fixed
            room = bounds.bytes(number, t["rank"], t[buffer], *place)
            moved = steps["bytes"][number * len(rows) : (number + 1) * len(rows)]
            wrong = np.flatnonzero(fixed & (room != moved))
            if wrong.size:
                at = int(wrong[0])
                raise traced.wrong(
                    f"rank {t['rank'][at]}: chunk {t[index][at]} has {room[at]} bytes, and what is "
                    f"moved there {moved[at]}; use a size that divides evenly"
                )


def _compute_ns(steps: Array, costs: Costs) -> Array:
    reduces = (steps["op"] == Op.REDUCE) | (steps["op"] == Op.REDUCE_LOCAL)
    each = np.where(reduces, costs.reduce_ns, costs.copy_ns)
    work = np.round(costs.step_ns + each * steps["bytes"]).astype(np.uint64)
    return np.where(steps["op"] == Op.SEND, 0, work)


def _ordered(steps: Array, waits: Array, order: Array) -> tuple[Array, Array]:
    """The rows that `order` names, in that order, with everything that names rows."""
    place = np.full(len(steps) + 1, -1, np.int64)
    place[order] = np.arange(len(order))
    out = steps[order]
    matched = out["match"] != NO_STEP
    out["match"][matched] = place[out["match"][matched]]
    ranks = out["rank"]
    first = np.searchsorted(ranks, ranks, side="left")
    out["step"] = np.arange(len(out)) - first
    mapped = place[waits]
    mapped = mapped[(mapped >= 0).all(axis=1)]
    mapped = np.unique(mapped, axis=0) if len(mapped) else mapped
    named = np.zeros(len(mapped), WAIT_DTYPE)
    named["step"], named["on"] = mapped[:, 0], mapped[:, 1]
    return out, named
