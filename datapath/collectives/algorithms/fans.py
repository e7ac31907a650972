# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Gather and scatter: straight between the root and all others, or by a tree of blocks."""

from __future__ import annotations

from collections.abc import Iterator

from datapath.collectives.trace import Trace, algorithm


def blocks(plan: Trace) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """(parent, child, parts below the child) of a binomial tree, from its leaves upwards.

    Parts are (first, count): a block of ranks behind the root may go on at rank 0.
    """
    reach = 1
    while reach < plan.ranks:
        for k in range(0, plan.ranks - reach, 2 * reach):
            first = (plan.root + k + reach) % plan.ranks
            count = min(reach, plan.ranks - k - reach)
            before = min(count, plan.ranks - first)
            parts = [(first, before)] + ([(0, count - before)] if count > before else [])
            yield (plan.root + k) % plan.ranks, first, parts
        reach *= 2


@algorithm("fan_in", collective="gather")
def fan_in(plan: Trace) -> None:
    """Each rank sends its part to the root: the least bytes."""
    for rank in range(plan.ranks):
        if rank != plan.root:
            plan.chunk(rank, "data", rank).copy(plan.root)


@algorithm("gather_tree", collective="gather")
def gather_tree(plan: Trace) -> None:
    """Blocks of parts up a binomial tree: the root receives log2(n) times."""
    for parent, child, parts in blocks(plan):
        for first, count in parts:
            plan.chunk(child, "data", first, count).copy(parent)


@algorithm("fan_out", collective="scatter")
def fan_out(plan: Trace) -> None:
    """The root sends each rank its part: the least bytes."""
    for rank in range(plan.ranks):
        if rank != plan.root:
            plan.chunk(plan.root, "data", rank).copy(rank)


@algorithm("scatter_tree", collective="scatter")
def scatter_tree(plan: Trace) -> None:
    """Blocks of parts down a binomial tree: the root sends log2(n) times."""
    for parent, child, parts in reversed(list(blocks(plan))):
        for first, count in parts:
            plan.chunk(parent, "data", first, count).copy(child)
