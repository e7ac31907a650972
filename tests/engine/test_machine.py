# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Hypothesis state machine that is the network between two engines.

It posts requests, delivers, loses, duplicates, reorders, marks and corrupts
single packets, and lets time pass, in any order; then the network becomes
perfect, and everything must have arrived exactly once, in order, intact.
What a run shrinks to reads like a ladder diagram.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from datapath.native import lib
from tests.engine.ladder import (
    ALL_ACCESS,
    MS,
    QP,
    US,
    Channel,
    Completion,
    Host,
    Memory,
    Packet,
    S,
    World,
    ok,
    pattern,
)

SIDES = st.integers(0, 1)
WINDOWS = st.sampled_from([64, 128, 512, 2048, 1 << 17])
INDEX = st.integers(0, 63)
LENGTHS = st.one_of(st.integers(0, 16), st.integers(0, 3000), st.sampled_from([255, 256, 257, 512]))
MTU = 256


class Side:
    """What one end has asked for and what must come of it."""

    def __init__(self, qp: QP, peer: QP) -> None:
        self.qp = qp
        self.peer = peer
        self.requests: list[Completion] = []
        self.completed: list[Completion] = []
        self.received: list[Completion] = []
        self.messages: list[
            tuple[Completion, bytes]
        ] = []  # that consume one of the peer's receives
        self.receives: list[Memory] = []
        self.memories: list[tuple[Memory, bytes]] = []  # and what they must hold at the end
        self.counter = peer.host.memory(bytes(8))
        self.count = 0

    def poll(self) -> None:
        self.completed += self.qp.poll()
        self.received += self.qp.poll_recv()


class Network(RuleBasedStateMachine):
    extended = False
    world: World | None = None

    @initialize(seed=st.integers(1, 1000), a_window=WINDOWS, b_window=WINDOWS)
    def connect(self, seed: int, a_window: int, b_window: int) -> None:
        windows = {"window_psns": a_window, "b_window_psns": b_window} if self.extended else {}
        world = World(extended=self.extended, seed=seed, bundle=seed % 2, **windows)
        options: dict[str, Any] = {"mtu": MTU, "timeout": 12, "min_rnr_timer": 1}
        make = world.extended_pair if self.extended else world.pair
        a, b = make(a_psn=0xFFFFF0, b_psn=3, **options)
        self.world = world
        self.sides = (Side(a, b), Side(b, a))
        self.flight: list[tuple[Host, Packet]] = []  # (to, packet)
        self.seed = seed
        self.damage = 0

    # ---- requests ---------------------------------------------------------

    def _post(self, side: Side, opcode: str, post: Any) -> None:
        wr_id = len(side.requests)
        post(wr_id)
        side.requests.append(ok(opcode, wr_id=wr_id))

    def _data(self, length: int) -> bytes:
        self.seed += 1
        return pattern(length, self.seed)

    def _room(self, side: Side) -> bool:
        return len(side.requests) - len(side.completed) < 200

    @rule(which=SIDES, length=LENGTHS, solicited=st.booleans())
    def send(self, which: int, length: int, solicited: bool) -> None:
        side, data = self.sides[which], self._data(length)
        if self._room(side):
            self._post(side, "SEND", lambda i: side.qp.send(data, wr_id=i, solicited=solicited))
            side.messages.append((ok("RECV", byte_len=length), data))

    @rule(which=SIDES, length=LENGTHS, imm=st.none() | st.integers(0, 2**32 - 1))
    def write(self, which: int, length: int, imm: int | None) -> None:
        side, data = self.sides[which], self._data(length)
        if not self._room(side):
            return
        target = side.peer.host.memory(length)
        options: dict[str, Any] = {} if imm is None else {"imm": imm}
        self._post(side, "RDMA_WRITE", lambda i: side.qp.write(data, target, wr_id=i, **options))
        side.memories.append((target, data))
        if imm is not None:
            done = Completion("RECV_RDMA_WITH_IMM", byte_len=length, imm=imm)
            side.messages.append((done, b""))

    @rule(which=SIDES, length=LENGTHS, fence=st.booleans())
    def read(self, which: int, length: int, fence: bool) -> None:
        side, data = self.sides[which], self._data(length)
        if not self._room(side):
            return
        source = side.peer.host.memory(data)
        wr_id = len(side.requests)
        into = side.qp.read(length, source, wr_id=wr_id, fence=fence)
        side.requests.append(ok("RDMA_READ", wr_id=wr_id))
        side.memories.append((into, data))

    @rule(which=SIDES, add=st.integers(1, 2**32))
    def fetch_and_add(self, which: int, add: int) -> None:
        side = self.sides[which]
        if not self._room(side):
            return
        wr_id = len(side.requests)
        into = side.qp.faa(side.counter, add, wr_id=wr_id)
        side.requests.append(ok("FETCH_ADD", wr_id=wr_id))
        side.memories.append((into, side.count.to_bytes(8, "little")))
        side.count += add

    @rule(which=SIDES, value=st.binary(min_size=8, max_size=8))
    def atomic_write(self, which: int, value: bytes) -> None:
        side = self.sides[which]
        if not self._room(side):
            return
        target = side.peer.host.memory(8)
        self._post(side, "ATOMIC_WRITE", lambda i: side.qp.atomic_write(value, target, wr_id=i))
        side.memories.append((target, value))

    @rule(which=SIDES, length=LENGTHS, everything=st.booleans())
    def flush(self, which: int, length: int, everything: bool) -> None:
        side = self.sides[which]
        if not self._room(side):
            return
        access = ALL_ACCESS | lib.DP_ACCESS_FLUSH_GLOBAL
        memory = side.peer.host.memory(length, access=access)
        selectivity = lib.DP_FETH_MR if everything else lib.DP_FETH_RANGE
        self._post(
            side,
            "FLUSH",
            lambda i: side.qp.flush(memory, length, selectivity=selectivity, wr_id=i),
        )

    @rule(which=SIDES, count=st.integers(1, 4))
    def post_receives(self, which: int, count: int) -> None:
        side = self.sides[which]
        for _ in range(count):
            if len(side.receives) - len(side.received) < 200:
                side.receives.append(side.qp.recv(3000, wr_id=len(side.receives)))

    # ---- the network ----------------------------------------------------------

    def _collect(self) -> None:
        assert self.world is not None
        for host in self.world.hosts:
            to = self.world.other(host)
            self.flight += [(to, packet) for packet in host.send_all()]

    def _pick(self, index: int) -> tuple[Host, Packet]:
        return self.flight.pop(index % len(self.flight))

    def _give(self, to: Host, packet: Packet) -> None:
        assert self.world is not None
        self.world.give(to, packet)
        for side in self.sides:
            side.poll()

    @rule(count=st.integers(1, 20))
    def deliver_in_order(self, count: int) -> None:
        self._collect()
        for _ in range(min(count, len(self.flight))):
            self._give(*self._pick(0))

    @precondition(lambda self: self.flight)
    @rule(index=INDEX)
    def deliver_out_of_order(self, index: int) -> None:
        self._give(*self._pick(index))

    @precondition(lambda self: self.flight)
    @rule(index=INDEX)
    def duplicate(self, index: int) -> None:
        self._give(*self.flight[index % len(self.flight)])

    @precondition(lambda self: self.flight)
    @rule(index=INDEX)
    def lose(self, index: int) -> None:
        self._pick(index)

    @precondition(lambda self: self.flight)
    @rule(index=INDEX)
    def mark(self, index: int) -> None:
        to, packet = self._pick(index)
        self._give(to, packet.marked())

    @precondition(lambda self: self.flight)
    @rule(index=INDEX, bit=st.integers(0, 2**16))
    def corrupt(self, index: int, bit: int) -> None:
        """Not the byte of FECN and BECN, which the ICRC leaves out."""
        to, packet = self._pick(index)
        if bit // 8 % len(packet.data) != 4:
            assert self.world is not None
            assert self.world.give(to, packet.corrupted(bit)) < 0

    @rule(ns=st.sampled_from([1 * US, 20 * US, 200 * US, 2 * MS]))
    def time_passes(self, ns: int) -> None:
        assert self.world is not None
        self._collect()
        self.world.advance(ns)

    # ---- what holds always, and at the end ----------------------------------------

    @invariant()
    def so_far_so_good(self) -> None:
        if self.world is None:
            return
        for side, other in (self.sides, self.sides[::-1]):
            assert side.completed == side.requests[: len(side.completed)]
            expected = [done for done, _ in other.messages[: len(side.received)]]
            assert side.received == expected

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            self._finish(self.world)
        finally:
            self.world.close()
            self.world = None

    def _finish(self, world: World) -> None:
        for side, other in (self.sides, self.sides[::-1]):
            while len(other.receives) < len(side.messages):
                other.receives.append(other.qp.recv(3000, wr_id=len(other.receives)))
        for to, packet in self.flight:
            self._give(to, packet)

        def done() -> bool:
            for side in self.sides:
                side.poll()
            return all(len(s.completed) == len(s.requests) for s in self.sides)

        assert world.run(Channel(), until=done, limit_ns=60 * S), "does not come to an end"
        self.so_far_so_good()
        for side, other in (self.sides, self.sides[::-1]):
            assert side.qp.state == "RTS"
            assert len(other.received) == len(side.messages)
            for (_, data), memory in zip(side.messages, other.receives, strict=False):
                assert bytes(memory)[: len(data)] == data
                assert bytes(memory)[len(data) :] == bytes(3000 - len(data))
            assert all(bytes(memory) == data for memory, data in side.memories)
            total = side.count % 2**64
            assert bytes(side.counter) == total.to_bytes(8, "little")


class ExtendedNetwork(Network):
    extended = True


EXAMPLES = int(os.environ.get("DATAPATH_HUNT", "60"))
SETTINGS = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None, print_blob=True)
TestStandard = Network.TestCase
TestExtended = ExtendedNetwork.TestCase
TestStandard.settings = TestExtended.settings = SETTINGS
TestStandard.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
TestExtended.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
