# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rings: each rank sends to the next one alone, so each link carries the least that it must."""

from __future__ import annotations

from collections.abc import Sequence

from datapath.collectives.trace import Trace, algorithm


def ring_reduce(plan: Trace, ring: Sequence[int], index: int, owner: int) -> None:
    """Once around: ring[owner] has the sum of chunk `index` at the end."""
    total = plan.chunk(ring[(owner + 1) % len(ring)], "data", index)
    for k in range(2, len(ring) + 1):
        total = plan.chunk(ring[(owner + k) % len(ring)], "data", index).reduce(total)


def ring_gather(plan: Trace, ring: Sequence[int], index: int, owner: int) -> None:
    """Once around: all have chunk `index` of ring[owner]."""
    copy = plan.chunk(ring[owner], "data", index)
    for k in range(1, len(ring)):
        copy = copy.copy(ring[(owner + k) % len(ring)])


@algorithm("ring", collective="allreduce")
def ring(plan: Trace) -> None:
    """Each chunk goes once around to be summed, and once more to be told.

    The least bytes for each link, and 2 (n - 1) steps: for large sizes.
    """
    plan.divide(plan.ranks)
    for index in range(plan.ranks):
        ring_reduce(plan, range(plan.ranks), index, index)
        ring_gather(plan, range(plan.ranks), index, index)


@algorithm("ring_reduce_scatter", collective="reduce_scatter")
def ring_reduce_scatter(plan: Trace) -> None:
    """The first half of a ring: rank r has the sum of part r."""
    for index in range(plan.ranks):
        ring_reduce(plan, range(plan.ranks), index, index)


@algorithm("ring_allgather", collective="allgather")
def ring_allgather(plan: Trace) -> None:
    """The second half of a ring: all have the parts of all."""
    for index in range(plan.ranks):
        ring_gather(plan, range(plan.ranks), index, index)


@algorithm("chain", collective="broadcast")
def chain(plan: Trace) -> None:
    """From the root along a chain; with many slices all links are busy at once."""
    ring_gather(plan, range(plan.ranks), 0, plan.root)


@algorithm("reduce_chain", collective="reduce")
def reduce_chain(plan: Trace) -> None:
    """Along a chain to the root; with many slices all links are busy at once."""
    ring_reduce(plan, range(plan.ranks), 0, plan.root)
