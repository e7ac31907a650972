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


@algorithm("two_level", collective="allreduce")
def two_level(plan: Trace, per_node: int = 2) -> None:
    """Reduce-scatter inside each node, a ring between the nodes on each rail, allgather inside.

    Ranks of a node follow each other.  Of all bytes, 1 / per_node crosses a rail.
    """
    nodes, rest = divmod(plan.ranks, per_node)
    if rest:
        raise plan.wrong(f"{plan.ranks} ranks do not make nodes of {per_node}")
    plan.divide(plan.ranks)
    members = [range(node * per_node, (node + 1) * per_node) for node in range(nodes)]
    pairs = inside(members)
    for local, owner, other in pairs:
        theirs = plan.chunk(other, "data", local * nodes, nodes)
        plan.chunk(owner, "data", local * nodes, nodes).reduce(theirs)
    for local in range(per_node):
        rail = [node[local] for node in members]
        for owner in range(nodes):
            ring_reduce(plan, rail, local * nodes + owner, owner)
            ring_gather(plan, rail, local * nodes + owner, owner)
    for local, owner, other in pairs:
        plan.chunk(owner, "data", local * nodes, nodes).copy(other)
