# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Trees: few steps, for small sizes; two trees use both directions of each link."""

from __future__ import annotations

from datapath.collectives.trace import Trace, algorithm


def parent_of(rank: int, ranks: int) -> int | None:
    """In a binary tree in which rank 0 is the root and odd ranks are leaves."""
    if rank == 0:
        return None
    low = rank & -rank
    up = (rank ^ low) | (low << 1)
    return up if up < ranks else rank ^ low


def twin_parent_of(rank: int, ranks: int) -> int | None:
    """In a second tree, whose leaves are inner nodes of the first one."""
    if ranks % 2 == 0:
        up = parent_of(ranks - 1 - rank, ranks)
        return None if up is None else ranks - 1 - up
    up = parent_of((rank - 1) % ranks, ranks)
    return None if up is None else (up + 1) % ranks


def _downwards(parents: list[int | None]) -> list[int]:
    """Ranks, each behind its parent."""
    out = [rank for rank, up in enumerate(parents) if up is None]
    for rank in out:
        out += [child for child, up in enumerate(parents) if up == rank]
    return out


@algorithm("double_tree", collective="allreduce")
def double_tree(plan: Trace) -> None:
    """Half of the data is summed up one binary tree and told down it, half another.

    Sanders, Speck and Traeff, 2009.  About 4 log2(n) steps: for small sizes.
    """
    plan.divide(2)
    for index, tree in enumerate((parent_of, twin_parent_of)):
        parents = [tree(rank, plan.ranks) for rank in range(plan.ranks)]
        order = _downwards(parents)
        for rank in reversed(order):
            up = parents[rank]
            if up is not None:
                plan.chunk(up, "data", index).reduce(plan.chunk(rank, "data", index))
        for rank in order:
            up = parents[rank]
            if up is not None:
                plan.chunk(up, "data", index).copy(rank)


@algorithm("tree", collective="broadcast")
def tree(plan: Trace) -> None:
    """Down a binomial tree: log2(n) steps."""
    reach = 1
    while reach < plan.ranks:
        for k in range(min(reach, plan.ranks - reach)):
            plan.chunk((plan.root + k) % plan.ranks, "data", 0).copy(
                (plan.root + k + reach) % plan.ranks
            )
        reach *= 2


@algorithm("reduce_tree", collective="reduce")
def reduce_tree(plan: Trace) -> None:
    """Up a binomial tree: log2(n) steps."""
    reach = 1
    while reach < plan.ranks:
        for k in range(0, plan.ranks - reach, 2 * reach):
            child = plan.chunk((plan.root + k + reach) % plan.ranks, "data", 0)
            plan.chunk((plan.root + k) % plan.ranks, "data", 0).reduce(child)
        reach *= 2
