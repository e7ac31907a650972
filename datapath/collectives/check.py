# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Proves a plan before it runs.

In the order of the checks:

1. Each row makes sense by itself, and SENDs and their other ends fit together.
2. The plan ends: no step waits for itself, with SLOTS transfers held by each receiver.
3. Each output is what the collective says: every input reduced into it exactly once, and nothing
   else.  For this the plan runs on symbols: sets of ranks in place of sums.
4. Two accesses to the same bytes, one of which writes, are in a fixed order.  The number of slots
   fixes none: an executor may have more of them.

With 4 all schedules of an executor give the result of 3.
"""

from __future__ import annotations

import numpy as np

from datapath.collectives.contents import Contents, Piece, Value
from datapath.collectives.order import SLOTS, Order
from datapath.collectives.plan import NO_STEP, Buffer, Op, Plan
from datapath.collectives.trace import by_parts
from datapath.errors import LocalError


class PlanFault(LocalError):
    """A plan that would hang, or give a wrong result; the message names rank and step."""


def check(plan: Plan, *, slots: int = SLOTS) -> Plan:
    """The plan itself; PlanFault when it is not right."""
    _check_rows(plan)
    _check_matches(plan)
    _check_waits(plan)
    order = Order(plan, slots)
    ranked = order.sorted()
    if len(ranked) < len(plan.steps):
        _tell_deadlock(plan, order, ranked)
    _Symbols(plan).run(ranked)
    return plan


def _first(wrong: np.ndarray) -> int:
    return int(np.argmax(wrong)) if wrong.any() else -1


def _check_rows(plan: Plan) -> None:
    steps = plan.steps
    local = steps["op"] >= Op.COPY_LOCAL
    sizes = np.array([plan.data_bytes, plan.input_bytes, plan.scratch_bytes], np.uint64)
    known = steps["buffer"] <= Buffer.SCRATCH
    from_known = steps["from_buffer"] <= Buffer.SCRATCH
    room = sizes[np.where(known, steps["buffer"], 0)]
    from_room = sizes[np.where(from_known, steps["from_buffer"], 0)]
    item = plan.item_bytes
    uneven = (steps["offset"] % item + steps["bytes"] % item + steps["from_offset"] % item) > 0
    writes_input = (steps["op"] != Op.SEND) & (steps["buffer"] == Buffer.INPUT)
    same = local & (steps["buffer"] == steps["from_buffer"])
    apart = (steps["offset"] + steps["bytes"] <= steps["from_offset"]) | (
        steps["from_offset"] + steps["bytes"] <= steps["offset"]
    )
    ends = steps["rank"][1:] < steps["rank"][:-1] if len(steps) else steps["rank"][1:]
    unsorted = np.concatenate([[False], ends]).astype(bool)
    for wrong, what in (
        (steps["op"] > Op.REDUCE_LOCAL, "there is no such operation"),
        (~known | ~from_known, "there is no such buffer"),
        (steps["rank"] >= plan.ranks, f"there are {plan.ranks} ranks"),
        (unsorted, "it stands behind steps of a later rank"),
        (steps["peer"] >= plan.ranks, f"its peer is not one of the {plan.ranks} ranks"),
        (local != (steps["peer"] == steps["rank"]), "a rank sends to others, not to itself"),
        (steps["channel"] >= plan.channels, f"there are {plan.channels} channels"),
        (steps["bytes"] == 0, "it moves nothing"),
        (uneven, f"it cuts an item of {item} bytes"),
        (_beyond(steps["offset"], steps["bytes"], room), "it goes beyond the end of its buffer"),
        (
            local & _beyond(steps["from_offset"], steps["bytes"], from_room),
            "it reads beyond the end of a buffer",
        ),
        (writes_input, "it writes to the input"),
        (same & ~apart, "it overlaps with what it is made of"),
    ):
        row = _first(wrong)
        if row >= 0:
            raise PlanFault(f"row {row}, {_name(plan, row)}: {what}")


def _beyond(offset: np.ndarray, size: np.ndarray, room: np.ndarray) -> np.ndarray:
    return np.asarray((offset > room) | (size > room - np.minimum(offset, room)))


def _name(plan: Plan, row: int) -> str:
    step = plan.steps[row]
    if step["op"] > Op.REDUCE_LOCAL or step["buffer"] > Buffer.SCRATCH:
        return f"rank {step['rank']} step {step['step']}"
    return plan.name_of(row)


def _check_matches(plan: Plan) -> None:
    steps, count = plan.steps, len(plan.steps)
    local = steps["op"] >= Op.COPY_LOCAL
    outside = np.where(local, steps["match"] != NO_STEP, steps["match"] >= count)
    row = _first(outside)
    if row >= 0:
        raise PlanFault(f"{plan.name_of(row)}: nothing at the other end matches it")
    rows = np.flatnonzero(~local)
    other = steps["match"][rows]
    mine, theirs = steps[rows], steps[other]
    sends = (mine["op"] == Op.SEND) != (theirs["op"] == Op.SEND)
    for wrong, what in (
        (theirs["match"] != rows, "is not what the other end matches with"),
        (~sends | (theirs["op"] >= Op.COPY_LOCAL), "is no other end for it"),
        ((theirs["rank"] != mine["peer"]) | (theirs["peer"] != mine["rank"]), "is of other ranks"),
        (theirs["channel"] != mine["channel"], "is on another channel"),
        (theirs["bytes"] != mine["bytes"], "is of another size"),
    ):
        at = _first(wrong)
        if at >= 0:
            raise PlanFault(f"{plan.name_of(int(rows[at]))}: {plan.name_of(int(other[at]))} {what}")
    _check_sequence(plan)


def _check_sequence(plan: Plan) -> None:
    """A connection delivers in order, so both ends have the same one."""
    numbers = plan.connections()
    sends = plan.sends
    order = sends[np.argsort(numbers[sends], kind="stable")]
    match = plan.steps["match"][order].astype(np.int64)
    back = (numbers[order[1:]] == numbers[order[:-1]]) & (match[1:] < match[:-1])
    at = _first(back)
    if at >= 0:
        raise PlanFault(
            f"{plan.name_of(int(order[at + 1]))}: its connection delivers it after step "
            f"{plan.steps['step'][order[at]]}, but the receiver takes it before"
        )


def _check_waits(plan: Plan) -> None:
    waits, count = plan.waits, len(plan.steps)
    outside = (waits["step"] >= count) | (waits["on"] >= count)
    if outside.any():
        raise PlanFault(f"wait {_first(outside)} names a row that the plan does not have")
    ranks = plan.steps["rank"]
    at = _first(ranks[waits["step"]] != ranks[waits["on"]])
    if at >= 0:
        step, on = (plan.name_of(int(waits[name][at])) for name in ("step", "on"))
        raise PlanFault(f"{step}: it waits for {on}, of which its rank cannot know")


def _tell_deadlock(plan: Plan, order: Order, ranked: list[int]) -> None:
    """Raise PlanFault with a cycle."""
    stuck = np.ones(len(plan.steps), bool)
    stuck[ranked] = False
    before: dict[int, int] = {}
    for row in np.flatnonzero(stuck).tolist():
        for other in order.after[order.first[row] : order.first[row + 1]].tolist():
            if stuck[other]:
                before[other] = row
    seen: dict[int, int] = {}
    row = next(iter(before))
    while row not in seen:
        seen[row] = len(seen)
        row = before[row]
    cycle = [at for at, number in seen.items() if number >= seen[row]]
    names = "; which is behind ".join(plan.name_of(at) for at in cycle[:4])
    more = f"; and {len(cycle) - 4} more" if len(cycle) > 4 else ""
    raise PlanFault(f"deadlock: {names}{more}; which is behind the first")


class _Symbols:
    """The plan on symbols."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.part = plan.data_bytes // plan.ranks if by_parts(plan.collective) else 0
        peers = plan.ranks if plan.collective == "alltoall" else 0  # to which each rank has parts
        equal = np.full((peers, peers), self.part, np.int64)
        self.parts = equal if plan.parts is None else plan.parts
        self.held = [
            [self._initial(rank, buffer) for buffer in Buffer] for rank in range(plan.ranks)
        ]
        self.conflicts: set[tuple[int, int]] = set()

    def _initial(self, rank: int, buffer: Buffer) -> Contents:
        kind, mine = self.plan.collective, Value(0, 1 << rank)
        size = self.plan.size_of(buffer)
        if buffer == Buffer.INPUT:
            return Contents(size, mine)
        if buffer == Buffer.SCRATCH or kind == "alltoall":
            return Contents(size, None)
        if kind in ("broadcast", "scatter") and rank != self.plan.root:
            return Contents(size, None)
        if kind not in ("allgather", "gather"):
            return Contents(size, mine)
        made = Contents(size, None)
        made.put(rank * self.part, (rank + 1) * self.part, mine, -1)
        return made

    def run(self, ranked: list[int]) -> None:
        """Raise PlanFault for a wrong output, or for accesses without an order."""
        steps = self.plan.steps
        taken: dict[int, list[tuple[int, int, Value]]] = {}
        columns = [steps[name].tolist() for name in ("op", "rank", "buffer", "offset", "bytes")]
        others = [steps[name].tolist() for name in ("match", "from_buffer", "from_offset")]
        ops, ranks, buffers, offsets, sizes = columns
        matches, from_buffers, from_offsets = others
        for row in ranked:
            held, op = self.held[ranks[row]], ops[row]
            begin, end = offsets[row], offsets[row] + sizes[row]
            if op == Op.SEND:
                taken[row] = self._read(row, held[buffers[row]], begin, end)
                continue
            if op >= Op.COPY_LOCAL:
                start = from_offsets[row]
                values = self._read(row, held[from_buffers[row]], start, start + sizes[row])
            else:
                values = taken.pop(matches[row])
            reduces = op in (Op.REDUCE, Op.REDUCE_LOCAL)
            self._write(row, held[buffers[row]], begin, end, values, reduces)
        self._check_order(ranked)
        self._check_outputs()

    def _read(
        self, row: int, contents: Contents, begin: int, end: int
    ) -> list[tuple[int, int, Value]]:
        """[(begin, end, value)] relative to `begin`; values as if moved to position 0."""
        found: list[tuple[int, int, Value]] = []
        for start, piece in contents.pieces(begin, end):
            if piece.value is None:
                raise PlanFault(
                    f"{self.plan.name_of(row)}: it reads bytes {start} to {piece.end - 1}, which "
                    "nobody has written"
                )
            self._after(piece, row, False)
            piece.readers = (*piece.readers, row)
            moved = Value(piece.value.shift - begin, piece.value.ranks)
            _join(found, start - begin, piece.end - begin, moved)
        return found

    def _write(
        self,
        row: int,
        contents: Contents,
        begin: int,
        end: int,
        values: list[tuple[int, int, Value]],
        reduces: bool,
    ) -> None:
        made: list[tuple[int, int, Value]] = []
        for low, high, value in values:
            moved = Value(value.shift + begin, value.ranks)
            for start, piece in contents.pieces(begin + low, begin + high):
                self._after(piece, row, True)
                new = self._sum(row, start, piece, moved) if reduces else moved
                _join(made, start, piece.end, new)
        for start, stop, value in made:
            contents.put(start, stop, value, row)

    def _sum(self, row: int, start: int, piece: Piece, other: Value) -> Value:
        name, value = self.plan.name_of(row), piece.value
        if value is None:
            raise PlanFault(f"{name}: it reduces into byte {start}, which nobody has written")
        if value.shift != other.shift:
            raise PlanFault(f"{name}: it reduces byte {start} with one of another place")
        twice = value.ranks & other.ranks
        if twice:
            raise PlanFault(f"{name}: it reduces the input of {_ranks(twice)} a second time")
        return Value(value.shift, value.ranks | other.ranks)

    def _after(self, piece: Piece, row: int, writes: bool) -> None:
        """Note with which accesses this one must not be at the same time."""
        earlier = piece.readers if writes and piece.readers else (piece.writer,)
        self.conflicts.update((other, row) for other in earlier if other not in (-1, row))

    def _check_order(self, ranked: list[int]) -> None:
        if not self.conflicts:
            return
        order = Order(self.plan, slots=None)
        pairs = np.array(sorted(self.conflicts), np.int64)
        waits, count = self.plan.waits, len(self.plan.steps)
        direct = waits["on"].astype(np.int64) * count + waits["step"]
        open_ = pairs[~np.isin(pairs[:, 0] * count + pairs[:, 1], direct)]
        position = np.empty(count, np.int64)
        position[ranked] = np.arange(count)
        for before, after in open_.tolist():
            if not order.reaches(before, after, position):
                raise PlanFault(
                    f"{self.plan.name_of(after)}: nothing makes it wait for "
                    f"{self.plan.name_of(before)}, which touches the same bytes"
                )

    def _check_outputs(self) -> None:
        plan, everyone = self.plan, (1 << self.plan.ranks) - 1
        for rank, held in enumerate(self.held):
            for begin, end, wanted in self._outputs(rank, everyone):
                for start, piece in held[Buffer.DATA].pieces(begin, end):
                    if piece.value == wanted:
                        continue
                    last = ""
                    if piece.writer >= 0:  # else the input of the rank itself is still there
                        last = f"; the last step there is {plan.name_of(piece.writer)}"
                    raise PlanFault(
                        f"rank {rank}: bytes {start} to {piece.end - 1} of the output "
                        f"{_difference(piece.value, wanted)}{last}"
                    )

    def _outputs(self, rank: int, everyone: int) -> list[tuple[int, int, Value]]:
        """[(begin, end, value)] that the collective wants in DATA."""
        plan, part = self.plan, self.part
        if plan.collective in ("reduce", "gather") and rank != plan.root:
            return []
        if plan.collective in ("allreduce", "reduce"):
            return [(0, plan.data_bytes, Value(0, everyone))]
        if plan.collective == "broadcast":
            return [(0, plan.data_bytes, Value(0, 1 << plan.root))]
        if plan.collective == "scatter":
            return [(rank * part, (rank + 1) * part, Value(0, 1 << plan.root))]
        if plan.collective == "reduce_scatter":
            return [(rank * part, (rank + 1) * part, Value(0, everyone))]
        if plan.collective == "alltoall":
            return self._moved(rank)
        return [(peer * part, (peer + 1) * part, Value(0, 1 << peer)) for peer in range(plan.ranks)]

    def _moved(self, rank: int) -> list[tuple[int, int, Value]]:
        """Of an all-to-all: what each rank has in INPUT for this one."""
        ends = np.cumsum(self.parts[:, rank]).tolist()
        taken = self.parts[:, :rank].sum(axis=1).tolist()  # begin of the part in INPUT
        begins = [0, *ends[:-1]]
        return [
            (begin, end, Value(begin - taken[peer], 1 << peer))
            for peer, (begin, end) in enumerate(zip(begins, ends, strict=True))
            if end > begin
        ]


def _join(values: list[tuple[int, int, Value]], begin: int, end: int, value: Value) -> None:
    """Append a run of bytes; a run of the same value before it grows."""
    if values and values[-1][1] == begin and values[-1][2] == value:
        begin = values.pop()[0]
    values.append((begin, end, value))


def _difference(value: Value | None, wanted: Value) -> str:
    if value is None:
        return "are never written"
    if value.shift != wanted.shift:
        return "hold input of another place"
    missing, extra = wanted.ranks & ~value.ranks, value.ranks & ~wanted.ranks
    parts = [f"lack the input of {_ranks(missing)}"] if missing else []
    parts += [f"hold the input of {_ranks(extra)}"] if extra else []
    return " and ".join(parts)


def _ranks(mask: int) -> str:
    """Such as "rank 3", "ranks 0, 1, 2 and 5 more"."""
    found = [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
    text = ", ".join(map(str, found[:3]))
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"rank{'s' if len(found) > 1 else ''} {text}{more}"
