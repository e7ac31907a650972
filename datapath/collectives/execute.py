# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a plan on arrays of this process: the plainest executor, for tests and for trying.

It has no network.  Steps run in any order that the plan allows, chosen at random, and a SEND takes
its bytes at a random moment until its other end is done: a plan that lacks a wait goes wrong.
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
    run = _Run(plan, inputs, combine)
    order = Order(plan, slots)
    into = order.into.tolist()
    ready = [row for row, count in enumerate(into) if not count]
    done = 0
    late: dict[int, int] = {}  # row of the other end -> SEND whose bytes are not taken yet
    while ready:
        number = draw.randrange(len(ready))
        ready[number], ready[-1] = ready[-1], ready[number]
        row = ready.pop()
        if plan.steps["op"][row] == Op.SEND:
            if draw.random() < 0.5:
                run.take(row)
            else:
                late[int(plan.steps["match"][row])] = row
        else:
            if row in late:
                run.take(late.pop(row))
            run.put(row)
        done += 1
        for other in order.after[order.first[row] : order.first[row + 1]].tolist():
            into[other] -= 1
            if not into[other]:
                ready.append(other)
    if done < len(plan.steps):
        raise RunFailed(f"the plan hangs: {len(plan.steps) - done} steps cannot begin")
    return run.data


class _Run:
    def __init__(
        self, plan: Plan, inputs: Sequence[Array], combine: Callable[[Array, Array], Array]
    ) -> None:
        self.plan, self.combine = plan, combine
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
        self.taken: dict[int, Array] = {}

    def take(self, row: int) -> None:
        """The bytes that a SEND sends."""
        self.taken[int(self.plan.steps["match"][row])] = self._at(row, "buffer", "offset").copy()

    def put(self, row: int) -> None:
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
