# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which plan a collective has: made and proved once for each size, then kept."""

from __future__ import annotations

from typing import Any

from datapath.collectives import Plan, check, load, make
from datapath.collectives.communicator import Communicator
from datapath.collectives.make import TRANSFER_BYTES

SMALL_BYTES = 64 * 1024
"""Up to here an allreduce takes few steps rather than few bytes on each link."""
_ALGORITHMS = {
    "reduce_scatter": "ring_reduce_scatter",
    "allgather": "ring_allgather",
    "alltoall": "pairwise",
}


def algorithm_of(collective: str, size: int) -> str:
    """The algorithm for `size` bytes of each rank's data."""
    if collective == "allreduce":
        return "halving_doubling" if size <= SMALL_BYTES else "ring"
    if collective == "broadcast":
        return "tree" if size <= SMALL_BYTES else "chain"
    return _ALGORITHMS[collective]


def meeting_plan(ranks: int) -> Plan:
    """A plan in which each rank sends the largest transfer to each other one."""
    return check(make(load("pairwise"), ranks, ranks * TRANSFER_BYTES, item_bytes=1))


def pair_plan(size: int) -> Plan:
    """`size` bytes from rank 0 to rank 1."""
    return check(make(load("chain"), 2, size, item_bytes=1))


class Plans:
    """The plans of a communicator, as it has taken them."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._taken: dict[tuple[object, ...], Any] = {}

    def of(self, collective: str, size: int, item_bytes: int = 1, root: int = 0) -> Any:
        """For Communicator.start(); size: bytes of DATA of each rank."""
        key = (collective, size, item_bytes, root)
        if key not in self._taken:
            algorithm = load(algorithm_of(collective, size))
            ranks = self._communicator.ranks
            made = make(algorithm, ranks, size, item_bytes=item_bytes, root=root)
            self._taken[key] = self._communicator.take(check(made))
        return self._taken[key]

    def pair(self, size: int) -> Any:
        """Of a communicator of two: from rank 0 to rank 1."""
        key = ("pair", size)
        if key not in self._taken:
            self._taken[key] = self._communicator.take(pair_plan(size))
        return self._taken[key]
