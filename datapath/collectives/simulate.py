# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Plans in virtual time, over the real engine: a plan as flows and steps of the simulator.

Each transfer is a flow of one SEND, and each row of the plan a step; a rank's host works on what
has arrived, one step after the other, for compute_ns each.  Collectives follow each other: a rank
begins the next one when it has done its part of the one before.

Ranks of a node may share its memory (Node): what they send each other is a copy, which is work of
the sender and takes no link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datapath.collectives.order import SLOTS, Order
from datapath.collectives.plan import Array, Op, Plan
from datapath.errors import LocalError
from datapath.fabric import flows as traffic
from datapath.fabric import steps as virtual


@dataclass(frozen=True)
class Node:
    """Ranks that follow each other and share memory.

    ranks: of each node; 1: nobody shares.  byte_ns: of a copy from one to another.
    """

    ranks: int = 1
    byte_ns: float = 0.0


@dataclass(frozen=True, eq=False)
class Simulated:
    """Work for a simulator, and where in it the ends of collectives are.

    ends: step of each rank that ends each collective, shape (iterations, ranks).  far: rows of the
    plan's SENDs that take a link, in the order of a collective's flows.
    """

    flows: traffic.Flows
    steps: virtual.Steps
    ends: Array
    far: Array

    def times_ns(self, step_ns: Array) -> Array:
        """How long each collective took, by the slowest rank, shape (iterations,).

        From when the last rank had ended the one before.
        """
        last = step_ns[self.ends].max(axis=1).astype(np.int64)
        return np.diff(last, prepend=0)


def schedule(
    plan: Plan,
    *,
    iterations: int = 1,
    hosts: Sequence[Sequence[int]] | None = None,
    node: Node | None = None,
) -> Simulated:
    """A checked plan for the simulator, so many times in a row.

    hosts: of each rank the hosts that are its links; channel c takes link c modulo their number.
    Unset: rank r is host r.  node: unset: ranks share no memory.
    """
    if not len(plan.steps):
        raise LocalError(f"{plan.algorithm} with {plan.ranks} ranks sends nothing")
    node = node or Node()
    if node.ranks < 1 or plan.ranks % node.ranks:
        raise LocalError(f"{plan.ranks} ranks do not make nodes of {node.ranks}")
    place = _hosts(plan, hosts)
    far = plan.sends[~plan.inside(node.ranks)]
    if not len(far):
        raise LocalError(f"all {plan.ranks} ranks share the memory of one node: nothing is sent")
    flows = _flows(plan, place, far)
    rows = _rows(plan, place, far, node)
    before, after = _edges(plan, far)
    count, wide = len(plan.steps), len(plan.steps) + plan.ranks
    is_source = ~np.isin(np.arange(count), after)
    ranks = plan.steps["rank"].astype(np.int64)
    all_rows, pairs = [], []
    for number in range(iterations):
        shifted = rows.copy()
        shifted["flow"] += np.uint32(number * len(flows))
        linked = shifted["next"] != virtual.NONE
        shifted["next"][linked] += np.uint32(number * wide)
        all_rows.append(shifted)
        base = number * wide
        pairs.append((before + base, after + base))
        pairs.append((np.arange(count) + base, base + count + ranks))
        if number:
            begins = np.flatnonzero(is_source)
            pairs.append((base - plan.ranks + ranks[begins], base + begins))
    made = virtual.steps(
        np.concatenate(all_rows),
        np.concatenate([pair[0] for pair in pairs]),
        np.concatenate([pair[1] for pair in pairs]),
    )
    ends = np.arange(iterations)[:, None] * wide + count + np.arange(plan.ranks)
    return Simulated(np.tile(flows, iterations), made, ends, far)


def _hosts(plan: Plan, hosts: Sequence[Sequence[int]] | None) -> Array:
    """The host of each rank's channel, shape (ranks, channels)."""
    if hosts is None:
        return np.repeat(np.arange(plan.ranks)[:, None], plan.channels, axis=1)
    if len(hosts) != plan.ranks:
        raise LocalError(f"{len(hosts)} ranks have hosts, and the plan has {plan.ranks} ranks")
    return np.array([[links[c % len(links)] for c in range(plan.channels)] for links in hosts])


def _flows(plan: Plan, place: Array, far: Array) -> traffic.Flows:
    """far: rows of SENDs that take a link."""
    sends = plan.steps[far]
    flows = traffic.empty(len(sends))
    flows["src"] = place[sends["rank"], sends["channel"]]
    flows["dst"] = place[sends["peer"], sends["channel"]]
    flows["bytes"] = sends["bytes"]
    flows["qp"] = sends["channel"]
    flows["opcode"] = traffic.SEND
    return flows


def _rows(plan: Plan, place: Array, far: Array, node: Node) -> Array:
    """A step for each row of the plan, and one for each rank behind them: all is done."""
    steps = plan.steps
    rows = np.zeros(len(steps) + plan.ranks, virtual.STEP_DTYPE)
    rows["next"] = virtual.NONE
    rows["host"][: len(steps)] = place[steps["rank"], 0]
    rows["host"][len(steps) :] = place[:, 0]
    rows["work_ns"][: len(steps)] = steps["compute_ns"]
    near = np.setdiff1d(plan.sends, far)
    rows["work_ns"][near] = np.round(steps["bytes"][near] * node.byte_ns).astype(np.uint64)
    rows["kind"][far] = virtual.SEND
    rows["flow"][far] = np.arange(len(far))
    others = steps["match"][far]
    rows["kind"][others] = virtual.TAKE
    rows["flow"][others] = np.arange(len(far))
    numbers = plan.connections()[far]
    ordered = far[np.argsort(numbers, kind="stable")]
    same = np.sort(numbers)[1:] == np.sort(numbers)[:-1]
    rows["next"][ordered[:-1][same]] = ordered[1:][same]
    return rows


def _edges(plan: Plan, far: Array) -> tuple[Array, Array]:
    """Which step waits for the end of which: Order's pairs, less those that flows keep."""
    order = Order(plan, SLOTS)
    before = np.repeat(np.arange(len(plan.steps)), np.diff(order.first))
    after = order.after
    sends = plan.steps["op"] == Op.SEND
    by_flow = np.isin(before, far) & (
        (plan.steps["match"][before] == after)
        | (sends[after] & (plan.connections()[before] == plan.connections()[after]))
    )
    explicit = np.isin(
        before * len(plan.steps) + after,
        plan.waits["on"].astype(np.int64) * len(plan.steps) + plan.waits["step"],
    )
    kept = ~by_flow | explicit
    return before[kept], after[kept]
