# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which QPs the flows of a pair of hosts take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datapath.fabric import flows as table

_Pairs = np.ndarray[Any, np.dtype[np.uint64]]


def pairs_of(sources: Any, destinations: Any) -> _Pairs:
    """A number for each (source, destination); arrays of one shape."""
    return np.asarray(sources, np.uint64) << np.uint64(32) | np.asarray(destinations, np.uint64)


def in_turn(flows: table.Flows, qps: int) -> Any:
    """For each flow how many of its pair are before it, modulo qps."""
    pair = pairs_of(flows["src"], flows["dst"])
    order = np.argsort(pair, kind="stable")
    ordered = pair[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else ordered
    start = np.maximum.accumulate(np.where(first, np.arange(len(ordered)), 0))
    count = np.empty(len(flows), np.uint32)
    count[order] = np.arange(len(ordered)) - start
    return count % qps


class QpNumbers:
    """How many QPs each pair of hosts has so far: the number of its next one."""

    def __init__(self) -> None:
        self._pairs: _Pairs = np.empty(0, np.uint64)  # rising
        self._next = np.empty(0, np.uint32)

    def next(self, sources: Any, destinations: Any) -> Any:
        """Of each of the pairs, uint32."""
        pairs = pairs_of(sources, destinations)
        place = np.searchsorted(self._pairs, pairs)
        known = place < len(self._pairs)
        known[known] = self._pairs[place[known]] == pairs[known]
        found = np.zeros(len(pairs), np.uint32)
        found[known] = self._next[place[known]]
        return found

    def of_each(
        self, named: Sequence[tuple[int, int]], count: int
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """(pair, number) of so many QPs for each pair; one that is named again gets others."""
        taken: Counter[tuple[int, int]] = Counter()
        for pair, first in zip(named, self.next(*np.array(named).T), strict=True):
            for _ in range(count):
                yield pair, int(first) + taken[pair]
                taken[pair] += 1

    def take(
        self, flows: table.Flows, count: int, named: Sequence[tuple[int, int]] | None = None
    ) -> None:
        """Each pair of the flows has so many QPs more; as often as it is named, if pairs are."""
        pairs = np.unique(pairs_of(flows["src"], flows["dst"]))
        if named is not None:
            every = pairs_of(*np.array(named, np.uint64).T)
            pairs = every[np.isin(every, pairs)]
        more, times = np.unique(pairs, return_counts=True)
        whole = np.union1d(self._pairs, more)
        after = np.zeros(len(whole), np.uint32)
        after[np.searchsorted(whole, self._pairs)] = self._next
        after[np.searchsorted(whole, more)] += (times * count).astype(np.uint32)
        self._pairs, self._next = whole, after
