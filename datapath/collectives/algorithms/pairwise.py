# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All-to-all in rounds."""

from __future__ import annotations

from datapath.collectives.trace import Trace, algorithm


@algorithm("pairwise", collective="alltoall")
def pairwise(plan: Trace) -> None:
    """In round k each rank sends to the one k behind it, so none gets from two in one round."""
    for k in range(plan.ranks):
        for rank in range(plan.ranks):
            peer = (rank + k) % plan.ranks
            plan.chunk(rank, "input", peer).copy(peer, "data", rank)
