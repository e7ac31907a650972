# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which QPs of a capture are connected, and with which path MTU.

A packet names only the QP that it goes to, so a flow one way has to be matched with one the other
way: an answer has the PSN of a request that came before it and has no answer yet.  It tells
something where just one flow has such a request.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from datapath.interop.capture import Packet
from datapath.interop.opcodes import REQUESTS, Kind, Opcode, Place

PATH_MTUS = (256, 512, 1024, 2048, 4096)
_MODULUS = 1 << 24
_WINDOW_MAX = 1 << 17
"""PSNs that can be under way: what lies further back is of a later connection of the QP."""

Flow = tuple[str, str, int]
"""Addresses of sender and receiver, and the QP that it goes to."""


@dataclass(frozen=True)
class Pair:
    """The flows of a connection, one each way."""

    one: Flow
    two: Flow
    path_mtu: int


@dataclass(frozen=True)
class Pairs:
    """undecided: addresses between which answers may have been for one QP or another."""

    found: list[Pair]
    undecided: set[frozenset[str]]


@dataclass
class _Asked:
    """What a flow has asked.

    open: PSNs of requests without an answer, in the order of their packets.
    answered: the newest PSN that has one.
    sizes: how often which path MTU was seen.
    reads: how often READs of so many bytes took so many PSNs.
    """

    open: deque[int] = field(default_factory=deque)
    answered: int | None = None
    sizes: Counter[int] = field(default_factory=Counter)
    reads: Counter[tuple[int, int]] = field(default_factory=Counter)
    last_read: tuple[int, int] | None = None  # its PSN and bytes, if the last request was one


def find(packets: Iterable[Packet]) -> Pairs:
    finder = _Finder()
    for packet in packets:
        if packet.row is not None and packet.deth is None and not packet.damaged:
            finder.see(packet, packet.row)
    return Pairs(finder.pairs(), finder.undecided)


class _Finder:
    def __init__(self) -> None:
        self.undecided: set[frozenset[str]] = set()
        self._flows: dict[Flow, _Asked] = defaultdict(_Asked)
        # By addresses and PSN: the flows that have such a request open.
        self._open: dict[tuple[str, str, int], dict[Flow, None]] = defaultdict(dict)
        self._scores: Counter[tuple[Flow, Flow]] = Counter()

    def see(self, packet: Packet, row: Opcode) -> None:
        flow = (packet.src, packet.dst, packet.qpn)
        asked = self._flows[flow]
        if row.place in (Place.FIRST, Place.MIDDLE) and len(packet.payload) in PATH_MTUS:
            asked.sizes[len(packet.payload)] += 1
        if row.kind in REQUESTS:
            self._request(flow, asked, packet, row)
        elif row.place in (Place.FIRST, Place.ONLY):
            self._answer(flow, packet)

    def _request(self, flow: Flow, asked: _Asked, packet: Packet, row: Opcode) -> None:
        if asked.last_read is not None:
            psn, length = asked.last_read
            asked.reads[length, (packet.psn - psn) % _MODULUS] += 1
        asked.last_read = None
        if packet.reth is not None and row.kind is Kind.READ:
            asked.last_read = packet.psn, packet.reth.length
        if asked.answered is not None and (asked.answered - packet.psn) % _MODULUS < _WINDOW_MAX:
            return  # a copy
        waiting = self._open[packet.src, packet.dst, packet.psn]
        if flow not in waiting:
            waiting[flow] = None
            asked.open.append(packet.psn)

    def _answer(self, flow: Flow, packet: Packet) -> None:
        waiting = self._open.get((packet.dst, packet.src, packet.psn), {})
        if len(waiting) > 1:
            self.undecided.add(frozenset((packet.src, packet.dst)))
        elif waiting:
            (asker,) = waiting
            self._scores[min(asker, flow), max(asker, flow)] += 1
            opened = self._flows[asker].open
            self._flows[asker].answered = packet.psn
            psn = None
            while psn != packet.psn:  # requests before it are answered as well
                psn = opened.popleft()
                del self._open[packet.dst, packet.src, psn][asker]

    def pairs(self) -> list[Pair]:
        """Those with the most answers first; flows that have as many with another are in none."""
        taken: set[Flow] = set()
        found: list[Pair] = []
        for _, group in groupby(self._scores.most_common(), key=lambda entry: entry[1]):
            ends = [pair for pair, _ in group if taken.isdisjoint(pair)]
            uses = Counter(flow for pair in ends for flow in pair)
            for one, two in ends:
                if uses[one] == uses[two] == 1:
                    found.append(Pair(one, two, self._path_mtu(one, two)))
                else:
                    self.undecided.add(frozenset(one[:2]))
            taken.update(uses)
        return found

    def _path_mtu(self, one: Flow, two: Flow) -> int:
        """That of packets in the middle of messages, else one that READs tell, else the largest."""
        ends = [self._flows[one], self._flows[two]]
        sizes = ends[0].sizes + ends[1].sizes
        reads = ends[0].reads + ends[1].reads

        def fitting(mtu: int) -> tuple[int, int, int]:
            fit = sum(n for (size, count), n in reads.items() if max(1, -(-size // mtu)) == count)
            return sizes[mtu], fit, mtu

        return max(PATH_MTUS, key=fitting)
