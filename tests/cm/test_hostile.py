# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Hypothesis state machine: anybody sends any message to connection managers that are at work.

Two ends make, use and end connections, over a network that loses messages. A stranger sends them
messages of every kind: from any address, with ids, transactions, QPNs and service ids that it has
overheard or made up. Only one thing is kept from it: both communication ids of a connection
together with its peer's address, since whoever has these is the peer as far as the wire can tell.

So a connection reaches only those two ends. What a program is told of its connection (QPN, PSN,
private data) is what the other program gave; nobody else ends a connection, or brings it forward;
and a message of the stranger leads to nothing but a new request for a service that listens.

DATAPATH_HUNT=10000 in the environment asks for that many examples in place of 100.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from datapath.native import ffi, lib
from tests.cm.world import MS, MTU_4096, End, Event, S, World, addr

HEADER = 24  # of a MAD; behind it stand the two ids
KINDS = list(range(0x10, 0x19))
REQ, RTU, DREQ, DREP, SIDR_REQ = 0x10, 0x14, 0x15, 0x16, 0x17
SERVICES = [7, 8, 1 << 40]  # the last one listens nowhere
PRIVATE = 20
STRANGER = "10.9.9.9"
STRANGER_QPN = 0x999


A_MESSAGE = st.fixed_dictionaries(
    {
        "heard": st.integers(0, 31),
        "kind": st.sampled_from(KINDS),
        "sender": st.sampled_from(["peer", "peer", STRANGER, STRANGER, "itself", "fd00::9"]),
        "ids": st.tuples(*[st.sampled_from([0, 0, 0, 0, 0, 1, 2, 5])] * 2),
        "qpn": st.sampled_from([0, 0, 0, 1, 2, 3]),
        "service": st.sampled_from(SERVICES),
        "cut": st.sampled_from([0, 0, 0, 0, 0, 1, 128]),
        "noise": st.just([])
        | st.lists(st.tuples(st.integers(0, 231), st.integers(0, 255)), max_size=2),
    }
)
"""heard, ids: which of the messages that were overheard, from the newest on; ids 0: the message's
own.  qpn: which of the receiver's connections a DREQ names, 0: none."""


@dataclass
class Known:
    """A connection as its program has it."""

    conn: Any
    qpn: int  # ours
    service: int
    ended: bool = False


class HostileManagers(RuleBasedStateMachine):
    world: World | None = None

    @initialize(seed=st.integers(1, 1000))
    def start(self, seed: int) -> None:
        self.world = World(seed, loss=0.05)
        self.ends = [self.world.end("10.0.0.1"), self.world.end("10.0.0.2")]
        for end in self.ends:
            for service in SERVICES[:2]:
                end.services.append(end.listen(service))
        self.known: list[list[Known]] = [[], []]
        self.next_qpn = 0x100
        self.by_qpn: dict[int, bytes] = {}  # private data that was sent with a QPN
        self.partner: dict[int, int] = {}  # QPN of the request by QPN of the answer
        self.given_up: set[int] = set()  # QPNs whose programs have ended the connection
        for who in (0, 1, 0, 1):
            self.connect(who, SERVICES[who])
        self.world.pass_ns(1 * S)
        self.take()

    # ---- the programs -----------------------------------------------------------------

    def _qpn(self) -> int:
        self.next_qpn += 1
        self.by_qpn[self.next_qpn] = self.next_qpn.to_bytes(4, "big") * (PRIVATE // 4)
        return self.next_qpn

    @precondition(lambda self: sum(map(len, self.known)) < 24)
    @rule(who=st.integers(0, 1), service=st.sampled_from(SERVICES))
    def connect(self, who: int, service: int) -> None:
        qpn = self._qpn()
        end, other = self.ends[who], self.ends[1 - who]
        conn = end.connect(other, service, qpn=qpn, private=self.by_qpn[qpn])
        self.known[who].append(Known(conn, qpn, service))
        self.take()

    @precondition(lambda self: any(self.known))
    @rule(who=st.integers(0, 1), index=st.integers(0, 23))
    def disconnect(self, who: int, index: int) -> None:
        mine = self.known[who]
        if mine:
            one = mine[index % len(mine)]
            self.given_up.add(one.qpn)
            self.ends[who].disconnect(one.conn)
            self.take()

    @precondition(lambda self: any(self.known))
    @rule(who=st.integers(0, 1), index=st.integers(0, 23))
    def release(self, who: int, index: int) -> None:
        mine = self.known[who]
        if mine:
            one = mine.pop(index % len(mine))
            self.given_up.add(one.qpn)
            self.ends[who].release(one.conn)
            self.take()

    @rule(ms=st.sampled_from([1, 200, 1500, 20_000]))
    def time_passes(self, ms: int) -> None:
        assert self.world is not None
        self.world.pass_ns(ms * MS)
        self.take()

    # ---- the stranger -----------------------------------------------------------------

    @rule(who=st.integers(0, 1), burst=st.lists(A_MESSAGE, min_size=6, max_size=16))
    def messages(self, who: int, burst: list[dict[str, Any]]) -> None:
        for fields in burst:
            self._message(who, **fields)

    def _message(
        self,
        who: int,
        *,
        heard: int,
        kind: int,
        sender: str,
        ids: tuple[int, int],
        qpn: int,
        service: int,
        cut: int,
        noise: list[tuple[int, int]],
    ) -> None:
        """One that was overheard on its way to this end, made into another."""
        end, other = self.ends[who], self.ends[1 - who]
        source = {"peer": other.address, "itself": end.address}.get(sender, sender)
        data = bytearray(self._overheard(heard, end))
        data[16:18] = kind.to_bytes(2, "big")
        for at, pick in zip((HEADER, HEADER + 4), ids, strict=True):
            if pick > 0:  # that of another connection; otherwise it stays
                data[at : at + 4] = self._overheard(pick, end)[at : at + 4]
        self._fill(data, kind, source, end, service)
        if kind == DREQ:
            known = [STRANGER_QPN, *(k.qpn for k in self.known[who])]
            lib.dp_cm_set(ffi.from_buffer(data), lib.DP_DREQ_QPN, known[qpn % len(known)])
        for at, value in noise:
            data[HEADER + at] = value
        if not self._is_the_peers(bytes(data), source, end):
            self._give(end, bytes(data[: 256 - cut]), source)

    def _overheard(self, index: int, end: End) -> bytes:
        """Of the newest messages to an end; there is one at least, of the right form."""
        assert self.world is not None
        seen = [mad.data for mad in self.world.seen[-64:] if mad.to == end.address]
        return seen[-1 - index % len(seen)] if seen else bytes([1, 7, 2, 3]) + bytes(252)

    @staticmethod
    def _fill(data: bytearray, kind: int, source: str, end: End, service: int) -> None:
        """So that a request gets far."""
        c_data = ffi.from_buffer(data)
        if kind == REQ:
            lib.dp_cm_set(c_data, lib.DP_REQ_SERVICE_ID, service)
            lib.dp_cm_set(c_data, lib.DP_REQ_QPN, STRANGER_QPN)
            lib.dp_cm_set(c_data, lib.DP_REQ_PATH_MTU, MTU_4096)
            for at, address in (
                (lib.DP_REQ_LOCAL_GID_AT, addr(source)),
                (lib.DP_REQ_REMOTE_GID_AT, end.addr),
            ):
                data[HEADER + at : HEADER + at + 16] = bytes(ffi.buffer(address.b))
        elif kind == SIDR_REQ:
            lib.dp_cm_set(c_data, lib.DP_SIDR_REQ_SERVICE_ID, service)

    def _is_the_peers(self, data: bytes, source: str, end: End) -> bool:
        """Whether nothing on the wire tells it from a message of the peer.

        RTU, DREQ and DREP are believed by both ids, a DREQ by our QPN as well; the other kinds also
        where the peer's id is not known yet.
        """
        assert self.world is not None
        kind = int.from_bytes(data[16:18], "big")
        own_qpn = lib.dp_cm_get(data, lib.DP_DREQ_QPN)
        if kind == REQ and lib.dp_cm_get(data, lib.DP_REQ_QPN) in self.by_qpn:
            return True  # the peer uses the QP for something new
        if kind == DREQ and own_qpn not in self.by_qpn:
            return False
        pairs = set()
        for mad in self.world.seen:
            if {mad.sender, mad.to} == {source, end.address}:
                pairs.add(mad.data[HEADER : HEADER + 8])
                pairs.add(mad.data[HEADER + 4 : HEADER + 8] + mad.data[HEADER : HEADER + 4])
        ids = data[HEADER : HEADER + 8]
        if kind in (RTU, DREQ, DREP):
            return ids in pairs
        halves = {pair[i : i + 4] for pair in pairs for i in (0, 4)} - {bytes(4)}
        return ids[:4] in halves or ids[4:] in halves

    def _give(self, end: End, data: bytes, source: str) -> None:
        """The message by itself leads to no event of a connection that is there."""
        assert self.world is not None
        self.take()
        before = end.conns()
        end.give(data, source)
        assert end.conns() <= before + 1
        for event in end.take():
            assert event.type == "REQUESTED"
            assert event.param["qpn"] not in self.by_qpn
            end.reject(event.conn)
            end.release(event.conn)
        self.world.settle()
        self.take()

    # ---- what programs are told ---------------------------------------------------------

    def take(self) -> None:
        """Programs answer their events, until there are none."""
        while any(end.events for end in self.ends):
            for who, end in enumerate(self.ends):
                for event in end.take():
                    self._told(who, end, event)

    def _told(self, who: int, end: End, event: Event) -> None:
        if event.type == "REQUESTED":
            self._requested(who, end, event)
            return
        (mine,) = (k for k in self.known[who] if k.conn == event.conn)
        assert not mine.ended or event.type == "TIMEWAIT_OVER"
        if event.type == "REPLIED":
            peer_qpn = event.param["qpn"]
            assert self.partner[peer_qpn] == mine.qpn, "the answer is not to this request"
            assert event.private[:PRIVATE] == self.by_qpn[peer_qpn]
            end.ready(event.conn)
        if event.type in ("DISCONNECTED", "REJECTED", "UNREACHABLE"):
            mine.ended = True
            assert self._may_end(mine), f"{event.type} though no program has ended it"

    def _may_end(self, mine: Known) -> bool:
        asked = self.partner.get(mine.qpn, mine.qpn)
        both = {asked, *(answer for answer, request in self.partner.items() if request == asked)}
        return mine.service == SERVICES[2] or not both.isdisjoint(self.given_up)

    def _requested(self, who: int, end: End, event: Event) -> None:
        asked = event.param["qpn"]
        assert asked in self.by_qpn, "a request that no program has made"
        assert event.private[:PRIVATE] == self.by_qpn[asked]
        qpn = self._qpn()
        self.partner[qpn] = asked
        self.known[who].append(Known(event.conn, qpn, SERVICES[0]))
        end.accept(event.conn, qpn=qpn, private=self.by_qpn[qpn])

    @invariant()
    def both_ends_are_whole(self) -> None:
        if self.world is not None:
            for end in self.ends:
                end.check()

    def teardown(self) -> None:
        """In the end nothing is left."""
        if self.world is None:
            return
        with self.world:
            for who, end in enumerate(self.ends):
                for mine in self.known[who]:
                    end.release(mine.conn)
                for service in end.services:
                    end.unlisten(service)
                end.services.clear()
            self.world.pass_ns(60 * S)
            for end in self.ends:
                assert end.conns() == 0
        self.world = None


EXAMPLES = int(os.environ.get("DATAPATH_HUNT", "100"))
TestManagers = HostileManagers.TestCase
TestManagers.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, print_blob=True
)
TestManagers.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
