# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Shortest paths between the hosts of a network: their links, and what an idle one costs.

Shortest is in hops, as switches choose (routes.h).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datapath.fabric.links import Link
from datapath.fabric.topology import Graph


@dataclass(frozen=True)
class Idle:
    """Idle paths from one host to another; arrays of shape (paths,).

    delay_ns: of all its links.  byte_ns: for how long a byte occupies all its links together.
    slowest_byte_ns: and the slowest one, the last of equal ones.  behind_byte_ns: and those behind
    the slowest.  last_byte_ns: and the last one.  NaN: a link follows a trace, so its rate is not
    known.  Of several shortest paths one is taken; those of the presets are alike.
    """

    delay_ns: Any
    byte_ns: Any
    slowest_byte_ns: Any
    behind_byte_ns: Any
    last_byte_ns: Any


class Ways:
    """The shortest paths of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.links = [link for cable in graph.cables for link in (cable.forward, cable.backward)]
        self.ends = [
            ends for cable in graph.cables for ends in ((cable.a, cable.b), (cable.b, cable.a))
        ]
        self._out: dict[int, list[int]] = {}
        for number, (node, _) in enumerate(self.ends):
            self._out.setdefault(node, []).append(number)
        self._known: dict[int, Mapping[int, Sequence[int]]] = {}

    def idle(self, src: Any, dst: Any) -> Idle:
        """src, dst: hosts, shape (paths,)."""
        src, dst = np.asarray(src), np.asarray(dst)
        hosts, at = np.unique(src, return_inverse=True)
        firsts = [self._first(int(host)) for host in hosts]
        links = [self.links[number] for number, _ in firsts]
        delay = np.array([link.delay_ns for link in links], np.float64)[at]
        byte = np.array([_byte_ns(link) for link in links])[at]
        leaves = np.array([leaf for _, leaf in firsts])[at]
        behind = np.empty((5, len(src)))
        for leaf in np.unique(leaves):
            there = leaves == leaf
            behind[:, there] = self._costs(int(leaf))[:, dst[there]]
        last = np.where(byte > behind[2], behind[1], behind[3])
        slowest = np.maximum(byte, behind[2])
        return Idle(delay + behind[0], byte + behind[1], slowest, last, behind[4])

    def there_and_back(self, src: Any, dst: Any) -> tuple[Idle, Idle]:
        """As idle(), from src to dst and from dst to src; each switch is searched from once."""
        both = self.idle(np.concatenate([src, dst]), np.concatenate([dst, src]))
        there, back = zip(*(np.split(each, 2) for each in vars(both).values()), strict=True)
        return Idle(*there), Idle(*back)

    def route(self, src: int, dst: int) -> list[int] | None:
        """The links from one host to another, the last one first; None: there is a choice."""
        first, leaf = self._first(src)
        if leaf not in self._known:
            self._known[leaf] = self._entered(leaf)
        entered, node, links = self._known[leaf], dst, []
        while node != leaf:
            if len(entered[node]) > 1:
                return None
            links.append(entered[node][0])
            node = self.ends[links[-1]][0]
        return [*links, first]

    def _first(self, host: int) -> tuple[int, int]:
        """A host's link, and the switch where it ends."""
        link = self._out[host][0]
        return link, self.ends[link][1]

    def _costs(self, leaf: int) -> Any:
        """The numbers of Idle from a switch to each host, shape (5, hosts)."""
        costs = {leaf: (0.0, 0.0, 0.0, 0.0, 0.0)}
        for node, links in self._entered(leaf).items():
            if links:
                delay, total, slowest, behind, _ = costs[self.ends[links[0]][0]]
                link = self.links[links[0]]
                each = _byte_ns(link)
                if math.isnan(each) or each >= slowest:
                    slowest, behind = each, 0.0
                else:
                    behind += each
                costs[node] = (delay + link.delay_ns, total + each, slowest, behind, each)
        found = np.full((5, self.graph.hosts), np.nan)
        for node, numbers in costs.items():
            if node < self.graph.hosts:
                found[:, node] = numbers
        return found

    def _entered(self, leaf: int) -> Mapping[int, Sequence[int]]:
        """Links by which shortest paths from a switch enter each node, the nearest node first."""
        entered: dict[int, list[int]] = {leaf: []}
        ring = [leaf]
        while ring:
            outer: dict[int, list[int]] = {}
            for node in ring:
                for number in self._out[node]:
                    other = self.ends[number][1]
                    if other not in entered:
                        outer.setdefault(other, []).append(number)
            entered |= outer
            ring = list(outer)
        return entered


def _byte_ns(link: Link) -> float:
    if link.trace_ms:
        return math.nan
    return 8e9 / link.rate_bps if link.rate_bps else 0.0
