# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp, 2005)."""

from __future__ import annotations

from datapath.collectives.trace import Trace, algorithm


@algorithm("halving_doubling", collective="allreduce")
def halving_doubling(plan: Trace) -> None:
    """Half of the data with a far partner, a quarter with a nearer one ..., and back.

    2 log2(n) steps, with the bytes of a ring: for middle sizes.  Ranks beyond the largest power
    of two give their data to a partner first, and get the result last.
    """
    power = 1 << (plan.ranks.bit_length() - 1)
    plan.divide(power)
    for extra in range(power, plan.ranks):
        plan.chunk(extra - power, "data", 0, power).reduce(plan.chunk(extra, "data", 0, power))
    distances = [1 << k for k in range(power.bit_length() - 1)]
    for distance in reversed(distances):
        for rank in range(power):
            mine = rank & ~(distance - 1)  # the half of its block that the rank keeps
            theirs = plan.chunk(rank ^ distance, "data", mine, distance)
            plan.chunk(rank, "data", mine, distance).reduce(theirs)
    for distance in distances:
        for rank in range(power):
            plan.chunk(rank, "data", rank & ~(distance - 1), distance).copy(rank ^ distance)
    for extra in range(power, plan.ranks):
        plan.chunk(extra - power, "data", 0, power).copy(extra)
