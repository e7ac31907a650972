# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a plan on arrays of this process: the plainest executor, for tests and for trying.

It has no network.  Steps run in any order that the plan allows, chosen at random, and a SEND takes
its bytes at a random moment before its other end does: a plan that lacks a wait goes wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from datapath.collectives.order import SLOTS, Order
from datapath.collectives.plan import Array, Buffer, Op, Plan
from datapath.errors import RunFailed


def initial(plan: Plan, inputs: Sequence[Array]) -> list[Array]:
    """DATA of each rank as the collective begins with it.

    inputs: of each rank an array of data_bytes // item_bytes items; of an allgather or a gather
    its part, of an all-to-all what it sends.
    """
    items = plan.data_bytes // plan.item_bytes
    made = []
    for rank, given in enumerate(inputs):
        data = np.zeros(items, given.dtype)
        if plan.collective in ("allgather", "gather"):
            part = items // plan.ranks
            data[rank * part : (rank + 1) * part] = given
        elif plan.collective != "alltoall" and (plan.collective != "scatter" or rank == plan.root):
            data[:] = given
        made.append(data)
    return made


def expected(plan: Plan, inputs: Sequence[Array]) -> list[Array]:
    """DATA of each rank at the end, with sums; where it is not defined, what initial() has."""
    out = initial(plan, inputs)
    part = plan.data_bytes // plan.item_bytes // plan.ranks
    for rank, data in enumerate(out):
        mine = slice(rank * part, (rank + 1) * part)
        if plan.collective in ("allreduce", "reduce"):
            data[:] = _total(inputs)
        elif plan.collective == "broadcast":
            data[:] = inputs[plan.root]
        elif plan.collective == "scatter":
            data[mine] = inputs[plan.root][mine]
        elif plan.collective == "reduce_scatter":
            data[mine] = _total(inputs)[mine]
        elif plan.collective in ("allgather", "gather"):
            data[:] = np.concatenate(inputs)
        else:
            came = [given[_sent(plan, peer, rank)] for peer, given in enumerate(inputs)]
            data[defined(plan, rank)] = np.concatenate(came)
    return out


def _total(inputs: Sequence[Array]) -> Array:
    return np.asarray(np.sum(np.stack(inputs), axis=0, dtype=inputs[0].dtype))


def _sent(plan: Plan, rank: int, peer: int) -> slice:
    """The items of INPUT that a rank sends to a peer in an all-to-all."""
    part = plan.data_bytes // plan.item_bytes // plan.ranks
    if plan.parts is None:
        return slice(peer * part, (peer + 1) * part)
    begin = int(plan.parts[rank, :peer].sum()) // plan.item_bytes
    return slice(begin, begin + int(plan.parts[rank, peer]) // plan.item_bytes)


def defined(plan: Plan, rank: int) -> slice:
    """The items of DATA that the collective defines."""
    items = plan.data_bytes // plan.item_bytes
    part = items // plan.ranks
    if plan.collective in ("reduce_scatter", "scatter"):
        return slice(rank * part, (rank + 1) * part)
    if plan.collective in ("reduce", "gather") and rank != plan.root:
        return slice(0, 0)
    if plan.parts is not None:
        return slice(0, int(plan.parts[:, rank].sum()) // plan.item_bytes)
    return slice(0, items)


def execute(
    plan: Plan,
    inputs: Sequence[Array],
    *,
    seed: int = 0,
    combine: Callable[[Array, Array], Array] = np.add,
    slots: int = SLOTS,
) -> list[Array]:
    """DATA of each rank after the plan; RunFailed when it hangs."""
    draw = random.Random(seed)
    run = _Run(plan, inputs, combine, Order(plan, slots))
    while run.ready:
        number = draw.randrange(len(run.ready))
        run.ready[number], run.ready[-1] = run.ready[-1], run.ready[number]
        run.go_on(run.ready.pop())
    if run.left:
        raise RunFailed(f"the plan hangs: {run.left} steps cannot begin")
    return run.data


class _Run:
    """ready: steps that may begin, and SENDs that may end.  left: steps that have not ended."""

    def __init__(
        self,
        plan: Plan,
        inputs: Sequence[Array],
        combine: Callable[[Array, Array], Array],
        order: Order,
    ) -> None:
        self.plan, self.combine, self.order = plan, combine, order
        self.into = order.into.tolist()
        self.ready = [row for row, count in enumerate(self.into) if not count]
        self.left = len(plan.steps)
        self.data = initial(plan, inputs)
        kind = self.data[0].dtype
        scratch = plan.scratch_bytes // plan.item_bytes
        self.buffers: list[dict[int, Array]] = [
            {
                int(Buffer.DATA): data,
                int(Buffer.INPUT): inputs[rank].copy(),
                int(Buffer.SCRATCH): np.zeros(scratch, kind),
            }
            for rank, data in enumerate(self.data)
        ]
        self.begun: set[int] = set()  # SENDs, of which
        self.late: set[int] = set()  # these have not taken their bytes
        self.taken: dict[int, Array] = {}  # row of the other end -> bytes

    def go_on(self, row: int) -> None:
        """Take a step out of `ready`: it ends, or it is a SEND that begins.

        The other end of a SEND may begin as soon as the SEND has.  All else that comes behind the
        SEND waits until its bytes are taken: at a random moment, or when the other end needs them.
        """
        match = int(self.plan.steps["match"][row])
        if self.plan.steps["op"][row] != Op.SEND:
            self._take(match)
            self._put(row)
            self._end(row)
        elif row in self.begun:
            self._take(row)
        else:
            self.begun.add(row)
            self.late.add(row)
            self.ready.append(row)
            self._release(match)

    def _take(self, row: int) -> None:
        """The bytes of a SEND, unless they are taken already."""
        if row in self.late:
            self.late.remove(row)
            match = int(self.plan.steps["match"][row])
            self.taken[match] = self._at(row, "buffer", "offset").copy()
            self._end(row)

    def _end(self, row: int) -> None:
        self.left -= 1
        first, end = self.order.first[row : row + 2]
        for other in self.order.after[first:end].tolist():
            if other != self.plan.steps["match"][row]:
                self._release(other)

    def _release(self, row: int) -> None:
        self.into[row] -= 1
        if not self.into[row]:
            self.ready.append(row)

    def _put(self, row: int) -> None:
        op = self.plan.steps["op"][row]
        target = self._at(row, "buffer", "offset")
        if op >= Op.COPY_LOCAL:
            source = self._at(row, "from_buffer", "from_offset")
        else:
            source = self.taken.pop(row)
        reduces = op in (Op.REDUCE, Op.REDUCE_LOCAL)
        target[:] = self.combine(target, source) if reduces else source

    def _at(self, row: int, buffer: str, offset: str) -> Array:
        step, item = self.plan.steps[row], self.plan.item_bytes
        begin = int(step[offset]) // item
        whole = self.buffers[int(step["rank"])][int(step[buffer])]
        return whole[begin : begin + int(step["bytes"]) // item]
