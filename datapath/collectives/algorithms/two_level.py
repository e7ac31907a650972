# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Allreduce in two dimensions, for nodes of several ranks (LightCC)."""

from __future__ import annotations

from collections.abc import Sequence

from datapath.collectives.algorithms.ring import ring_gather, ring_reduce
from datapath.collectives.trace import Trace, algorithm


def inside(nodes: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """(number inside the node, rank, another rank of its node), for all of them."""
    return [
        (local, rank, other)
        for node in nodes
        for local, rank in enumerate(node)
        for other in node
        if other != rank
    ]


def parts_of(plan: Trace, per_node: int, rails: str) -> list[tuple[int, int]]:
    """First chunk and number of chunks of each rail, in units of the nodes."""
    words = rails.split(",") if rails else ["1"] * per_node
    if len(words) != per_node or not all(word.isdigit() and int(word) for word in words):
        raise plan.wrong(f"rails {rails!r}: give {per_node} whole numbers, such as 3,1")
    counts = [int(word) for word in words]
    return [(sum(counts[:rail]), count) for rail, count in enumerate(counts)]


@algorithm("two_level", collective="allreduce")
def two_level(plan: Trace, per_node: int = 2, rails: str = "") -> None:
    """Reduce-scatter inside each node, a ring between the nodes on each rail, allgather inside.

    Ranks of a node follow each other.  Of all bytes, 1 / per_node crosses a rail, or the share that
    `rails` gives it: 3,1 for a rail that is three times as fast as the other one.
    """
    if per_node < 1 or plan.ranks % per_node:
        raise plan.wrong(f"{plan.ranks} ranks do not make nodes of {per_node}")
    nodes = plan.ranks // per_node
    parts = [(first * nodes, n * nodes) for first, n in parts_of(plan, per_node, rails)]
    plan.divide(sum(n for _, n in parts))
    members = [range(node * per_node, (node + 1) * per_node) for node in range(nodes)]
    pairs = inside(members)
    for local, owner, other in pairs:
        theirs = plan.chunk(other, "data", *parts[local])
        plan.chunk(owner, "data", *parts[local]).reduce(theirs)
    for local, (first, n) in enumerate(parts):
        rail = [node[local] for node in members]
        for index in range(first, first + n):
            ring_reduce(plan, rail, index, index % nodes)
            ring_gather(plan, rail, index, index % nodes)
    for local, owner, other in pairs:
        plan.chunk(owner, "data", *parts[local]).copy(other)
