# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Hypothesis state machine in which one end is a hostile peer.

The peer knows every number: addresses, QPNs, PSNs, keys, the receives that are posted. It builds
any packet of the right form, standard or extended, beside those that an engine would send. The
victim works meanwhile: it posts, changes state, deregisters memory.

After every call all invariants of the engine hold (Host.verify). Here stands what a program sees:
a request completes once and in order, a completed receive is not touched again, memory changes
only where a right was given, only the request that is expected next may end the QP, and in the
end everything that was posted has completed.

DATAPATH_HUNT=10000 in the environment asks for that many examples in place of 60.
"""

from __future__ import annotations

import os
import struct
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
from tests.engine import forge
from tests.engine.algorithms import Granting
from tests.engine.ladder import (
    MS,
    US,
    Completion,
    Memory,
    Packet,
    S,
    World,
    check,
    packets_of,
    pattern,
)

MTU = 256
ROOM = 600
"""Bytes of each receive."""
REQUESTS = [code for code in range(256) if lib.dp_opcodes[code].mask & lib.DP_IS_REQUEST]
ANSWERS = [code for code in range(256) if lib.dp_opcodes[code].mask & lib.DP_IS_RESPONSE]
OFFERS = [0xE0, 0xE1, 0xE2, 0xE3, 0x81]
DEMAND, GRANT, CREDIT = 0xE4, 0xE5, 0xE6
SYNDROMES = [0x1F, 0x00, 0x20, 0x2C, 0x60, 0x61, 0x62, 0x63, 0x64, 0xFF]


FAR = [31, 32, 63, 64, 65, 127, 128, 2047, 2048, -64, -65, 1 << 22, -(1 << 23)]
NEAR = st.sampled_from([*range(-3, 9), *FAR])
LENGTHS = st.sampled_from([1, 17, 255, MTU + 4, 512, 2 * MTU, 5000, 2**30, 2**31])
SMALL = st.sampled_from([0, 1, 7, 8, 17, 200, MTU, MTU + 4, 508])
USUAL = [0x04, 0x05, 0x0A, 0x0B, 0x0C, 0x13, 0x14, 0x1C, 0x1D]
"""SEND and WRITE ONLY, also with immediate, READ, atomics; + 0xC0: their extended form."""


Fields = dict[str, int]


def but(
    usual: dict[str, st.SearchStrategy[int]], strange: dict[str, st.SearchStrategy[int]]
) -> st.SearchStrategy[Fields]:
    """Fields as an engine would send them, but for two at most: only so the strange gets far."""
    changes = st.one_of(*(st.tuples(st.just(name), value) for name, value in strange.items()))
    return st.builds(
        lambda fields, changed: {**fields, **dict(changed)},
        st.fixed_dictionaries(usual),
        st.lists(changes, max_size=2) | st.just([]),
    )


A_REQUEST = but(
    {
        "opcode": st.sampled_from([form + code for form in (0, 0xC0, 0xC0) for code in USUAL]),
        "psn": st.sampled_from([0, 0, 0, 1, 2, 3]),
        "rq_seq": st.sampled_from([0, 0, 0, 1]),
        "offset": st.just(0),
        "memory": st.just(0),
        "shift": st.sampled_from([0, 8]),
        "key": st.just(0),
        "length": st.sampled_from([0, 8, 16, MTU]),
        "payload": SMALL,
        "segment": st.sampled_from([MTU, 508]),
        "flags": st.just(0),
        "ack": st.sampled_from([0, 1]),
    },
    {
        "opcode": st.sampled_from(REQUESTS),
        "psn": NEAR,
        "rq_seq": st.sampled_from([-2, -1, 2, 3, 4]),
        "offset": st.sampled_from([8, MTU, 508, 2**32 - 8]),
        "memory": st.integers(1, 20),
        "shift": st.sampled_from([-1, 1, 500, 2048]),
        "key": st.sampled_from([1, 1 << 16]),
        "length": LENGTHS,
        "segment": st.sampled_from([0, 4, 255]),
        "flags": st.sampled_from([1, 0x11, 0x81, 0xF1]),
    },
)
AN_ANSWER = but(
    {
        "opcode": st.sampled_from(ANSWERS),
        "psn": st.sampled_from([0, 1, 2]),
        "syndrome": st.just(0x1F),
        "base": st.sampled_from([0, -1, -2]),
        "payload": SMALL,
    },
    {"psn": NEAR, "syndrome": st.sampled_from(SYNDROMES), "base": NEAR},
)


class Posted:
    """One queue of the victim: what was posted and what has completed, by wr_id."""

    def __init__(self) -> None:
        self.posted: list[int] = []
        self.completed: list[int] = []

    def post(self) -> int:
        self.posted.append(len(self.posted))
        return self.posted[-1]

    def done(self, completion: Completion) -> None:
        assert completion.wr_id is not None
        expected = len(self.completed)
        assert completion.wr_id == expected, f"{completion} before {expected}"
        assert expected < len(self.posted), f"{completion} was not posted"
        self.completed.append(expected)

    @property
    def open(self) -> int:
        return len(self.posted) - len(self.completed)

    def forget(self) -> None:
        """RESET drops what is posted without completions."""
        self.completed = list(self.posted)


class Hostile(RuleBasedStateMachine):
    extended = False
    world: World | None = None

    @initialize(
        seed=st.integers(1, 1000),
        window=st.sampled_from([64, 128, 512, 2048, 1 << 17]),
        own_window=st.sampled_from([64, 256, 2048, 1 << 17]),
        rd_atomic=st.sampled_from([0, 1, 2, 16]),
        timeout=st.sampled_from([0, 8]),
        grants=st.booleans(),
    )
    def connect(
        self, seed: int, window: int, own_window: int, rd_atomic: int, timeout: int, grants: bool
    ) -> None:
        config: dict[str, Any] = {"extended": self.extended, "seed": seed, "telemetry": 1}
        config["bundle"] = seed % 2
        if grants:
            self.granting = Granting(window_bytes=4 * MTU, unscheduled_bytes=100)
            config["cc"] = self.granting.algo
        if self.extended:
            config |= {"window_psns": window, "b_window_psns": own_window, "segment_max": 508}
        self.world = World(**config)
        self.peer, self.victim = self.world.pair(
            mtu=MTU,
            a_psn=0xFFFFF0,
            b_psn=3,
            timeout=timeout,
            retry_cnt=1,
            rnr_retry=1,
            min_rnr_timer=1,
            rd_atomic=rd_atomic,
            sq_sig_all=True,
            max_send_wr=32,
            max_recv_wr=32,
        )
        host = self.victim.host
        self.open_memory = host.memory(pattern(2048, 1))
        self.read_only = host.memory(
            pattern(512, 2), access=lib.DP_ACCESS_REMOTE_READ | lib.DP_ACCESS_LOCAL_WRITE
        )
        self.foreign = host.memory(pattern(512, 3), pd=host.make_pd())
        self.private = host.memory(pattern(512, 4), access=lib.DP_ACCESS_LOCAL_WRITE)
        self.passing: list[Memory] = []
        self.counter = self.peer.host.memory(4096)
        self.sends, self.receives = Posted(), Posted()
        self.rooms: list[Memory] = []
        self.finished: list[tuple[Memory, bytes]] = []
        self.seen: list[Packet] = []
        self.restarts = 0
        self.restarted_at = 0  # receives that were posted before the last RESET

    # ---- the victim ---------------------------------------------------------------

    @precondition(lambda self: self.victim.state in ("RTS", "SQD", "ERR"))
    @rule(kind=st.sampled_from(["send", "write", "read", "faa"]), length=SMALL)
    def post(self, kind: str, length: int) -> None:
        if self.sends.open >= 32 or (kind in ("read", "faa") and not self.victim.options.rd_atomic):
            return
        target, wr_id = self.counter, self.sends.post()
        if kind == "send":
            self.victim.send(bytes(length), wr_id=wr_id)
        elif kind == "write":
            self.victim.write(bytes(length), target, wr_id=wr_id)
        elif kind == "read":
            self.victim.read(length, target, wr_id=wr_id)
        else:
            self.victim.faa(target, 1, wr_id=wr_id)
        self.poll()

    @precondition(lambda self: self.victim.state != "RESET")
    @rule(count=st.sampled_from([1, 1, 1, 4]), room=st.sampled_from([ROOM, ROOM, 8, 0]))
    def post_receives(self, count: int, room: int) -> None:
        for _ in range(count):
            if self.receives.open < 32:
                memory = self.victim.host.memory(room, access=lib.DP_ACCESS_LOCAL_WRITE)
                self.rooms.append(memory)
                wr_id = self.receives.post()
                check(self.victim.post_recv([memory.sge()] if room else [], wr_id=wr_id))
        self.poll()

    @rule(size=st.sampled_from([64, 1000]))
    def register(self, size: int) -> None:
        if len(self.passing) < 8:
            self.passing.append(self.victim.host.memory(size))

    @precondition(lambda self: self.passing)
    @rule(index=st.integers(0, 7))
    def deregister(self, index: int) -> None:
        memory = self.passing.pop(index % len(self.passing))
        self.finished.append((memory, bytes(memory)))
        assert memory.deregister() == 0

    @precondition(lambda self: self.victim.state in ("RTS", "SQD"))
    @rule(notify=st.booleans())
    def drain_or_go_on(self, notify: bool) -> None:
        if self.victim.state == "SQD":
            check(self.victim.to(lib.DP_QPS_RTS))
        else:
            mask = lib.DP_QP_STATE | (lib.DP_QP_EN_SQD_ASYNC_NOTIFY if notify else 0)
            check(self.victim.modify(mask, state=lib.DP_QPS_SQD, sqd_notify=1))

    @precondition(lambda self: self.restarts < 6)
    @rule()
    def reconnect(self) -> None:
        """RESET, and the same connection anew."""
        self.poll()
        self.restarts += 1
        for qp, peer, rq_psn in ((self.victim, self.peer, 0xFFFFF0), (self.peer, self.victim, 3)):
            check(qp.to(lib.DP_QPS_RESET))
            check(qp.to_init())
            check(qp.to_rtr(peer, rq_psn))
        self.sends.forget()
        self.receives.forget()
        self.restarted_at = len(self.receives.completed)
        self.finished += [(m, bytes(m)) for m in self.rooms]
        check(self.victim.to_rts(3))
        check(self.peer.to_rts(0xFFFFF0))

    @rule(ns=st.sampled_from([1 * US, 60 * US, 600 * US, 5 * MS, 300 * MS]))
    def time_passes(self, ns: int) -> None:
        assert self.world is not None
        self.world.advance(ns)
        self.poll()

    @rule(most=st.integers(1, 20), deliver=st.integers(0, 2**20 - 1))
    def victim_speaks(self, most: int, deliver: int) -> None:
        """Its packets are seen by the peer; some reach the peer's own engine."""
        assert self.world is not None
        for i, packet in enumerate(self.victim.host.send(most)):
            self.seen = [*self.seen[-15:], packet]
            if deliver >> i & 1:
                self.world.give(self.peer.host, packet)
        self.poll()

    @rule(most=st.integers(1, 20))
    def honest_packets(self, most: int) -> None:
        """What the peer's engine sends: negotiation, acknowledgements, answers."""
        for packet in self.peer.host.send(most):
            self.give(packet)

    # ---- the hostile peer -----------------------------------------------------------

    def give(self, packet: Packet) -> None:
        assert self.world is not None
        self.world.give(self.victim.host, packet)
        self.poll()

    @property
    def clock(self) -> int:
        """What packets tell as the time: an older one might be of a connection before."""
        assert self.world is not None
        return self.world.now % 2**32

    def _memory(self, choice: int) -> tuple[int, int]:
        known = [self.open_memory, self.read_only, self.foreign, self.private]
        known += self.passing + [m for m, _ in self.finished[-3:]] + self.rooms[-3:]
        memory = known[choice % len(known)]
        return memory.addr, memory.key

    @rule(burst=st.lists(A_REQUEST, min_size=1, max_size=6))
    def requests(self, burst: list[Fields]) -> None:
        for fields in burst:
            self._request(fields)

    @rule(
        opcode=st.sampled_from([0x0C, 0x13, 0x14, 0x1C, 0x1D]),
        behind=st.sampled_from([1, 2, 3, 64, 1 << 22]),
        memory=st.integers(0, 20),
        length=st.sampled_from([0, 8, 5000]),
        key=st.sampled_from([0, 1]),
    )
    def stale_request(self, opcode: int, behind: int, memory: int, length: int, key: int) -> None:
        """A READ or an atomic that looks as if it came again."""
        form = 0xC0 if self.extended else 0
        usual = {"rq_seq": 0, "offset": 0, "shift": 0, "payload": 0, "segment": MTU, "flags": 0}
        given = {"opcode": form + opcode, "psn": -behind, "memory": memory, "length": length}
        self._request({**usual, **given, "key": key, "ack": 1})

    @rule(
        reads=st.sampled_from([100, 1100]), ahead=st.sampled_from([0, 1, 3]), psns=st.integers(1, 3)
    )
    def many_reads(self, reads: int, ahead: int, psns: int) -> None:
        """More than it can keep answers for, in order or behind a gap."""
        assert self.world is not None
        first = (int(self.victim.attr.rq_psn) + ahead) % 2**24
        body = struct.pack("!QII", *self._memory(0), psns * MTU)
        headers = forge.xdh(segment=MTU, ts_ns=self.clock) + body if self.extended else body
        opcode = 0xCC if self.extended else 0x0C
        for i in range(reads):
            psn = (first + i * psns) % 2**24
            packet = forge.packet(self.peer, opcode, psn, headers)
            self.world.give(self.victim.host, packet)
        self.poll()

    def _request(self, f: Fields) -> None:
        opcode, payload, length, flags = f["opcode"], f["payload"], f["length"], f["flags"]
        mask = lib.dp_opcodes[opcode].mask
        va, rkey = self._memory(f["memory"])
        va, rkey = (va + f["shift"]) % 2**64, rkey ^ f["key"]
        attr, now = self.victim.attr, self.clock
        headers = b""
        if mask & lib.DP_HAS_XDH:
            turn = len(self.receives.completed) - self.restarted_at + f["rq_seq"]
            seq = f["segment"] if mask & lib.DP_IS_READ else turn
            carried = (int(attr.sq_psn) - 1 + f["rq_seq"]) % 2**24
            headers += struct.pack("!5I", now, seq % 2**32, f["offset"], carried << 8 | flags, now)
            records = flags >> 4
            headers += bytes([min(records, 8)]) + bytes(3 + 16 * records) if records else b""
        if mask & lib.DP_HAS_FETH:
            headers += forge.feth(1 + (f["offset"] & 3), f["rq_seq"] & 3)
        if mask & lib.DP_HAS_RETH:
            headers += struct.pack("!QII", va, rkey, length)
        if mask & lib.DP_HAS_ATOMIC_ETH:
            headers += forge.atomic_eth(va, rkey)
        if mask & lib.DP_HAS_IMM:
            headers += b"imm!"
        if mask & lib.DP_HAS_IETH:
            headers += struct.pack("!I", rkey)
        if not mask & lib.DP_HAS_XDH and mask & lib.DP_IS_WRITE:
            payload = min(length, MTU)  # what its RETH says, as far as it goes
        body = bytes([0x5A]) * payload if mask & lib.DP_HAS_PAYLOAD else b""
        reach = packets_of(length, f["segment"] or MTU) if mask & lib.DP_IS_READ else 1
        if mask & lib.DP_IS_BUNDLE:
            reach = 1 + f["segment"] % 3
            size = length if f["key"] else payload
            head = struct.pack("!I", size) if mask & lib.DP_IS_SEND else b""
            head = head or struct.pack("!QII", va, rkey, size)
            body = (head + body + bytes(-payload % 4)) * reach
            headers = forge.xdh(turn % 2**32, f["offset"] or reach, ts_ns=now)
        where = (int(attr.rq_psn) + f["psn"]) % 2**24
        before = self.victim.state
        self.give(forge.packet(self.peer, opcode, where, headers, body, ack=bool(f["ack"])))
        if not -reach < f["psn"] <= 0:
            assert self.victim.state == before, "a request that is not the next one ends the QP"

    @rule(
        f=AN_ANSWER,
        words=st.lists(st.sampled_from([0, 1, 2**32 - 1, 0xAAAAAAAA]), max_size=4),
        trimmed=st.lists(NEAR, max_size=3),
    )
    def answer(self, f: Fields, words: list[int], trimmed: list[int]) -> None:
        opcode = f["opcode"]
        mask = lib.dp_opcodes[opcode].mask
        oldest, now = int(self.victim.attr.sq_psn), self.clock
        headers = b""
        if mask & lib.DP_HAS_XDH:
            headers += struct.pack("!5I", now, 0, 0, 0, 0)
        if mask & lib.DP_HAS_AETH:
            headers += forge.aeth(f["syndrome"], 1)
        if mask & lib.DP_HAS_XAH:
            start = (oldest + f["base"]) % 2**24 & ~31
            more = len(trimmed) << 24
            headers += struct.pack("!6I", now, 0, 7, 3, start << 8 | len(words), more)
            headers += struct.pack(f"!{len(words)}I", *words)
            headers += struct.pack(f"!{len(trimmed)}I", *((oldest + t) % 2**24 for t in trimmed))
        if mask & lib.DP_HAS_ATOMIC_ACK_ETH:
            headers += bytes(8)
        body = bytes([0x5A]) * f["payload"] if mask & lib.DP_HAS_PAYLOAD else b""
        where = (oldest - f["psn"]) % 2**24
        self.give(forge.packet(self.peer, opcode, where, headers, body))

    @rule(
        opcode=st.sampled_from(OFFERS),
        window=st.sampled_from([0, 63, 64, 65, 1000, 2048, 65535, 1 << 17, (1 << 24) - 1]),
        features=st.integers(0, 7),
        segment=st.sampled_from([0, 255, MTU, 508, 512, 9000]),
        payload=st.sampled_from([0, 40, 40 + MTU, 40 + 508, 40 + 512]),
        clock=st.sampled_from([0, 1, 0x80000000, 0xFFFFFFFF]),
    )
    def offer(
        self, opcode: int, window: int, features: int, segment: int, payload: int, clock: int
    ) -> None:
        hello = struct.pack(
            "!IIIHHI", lib.DP_EXT_VERSION << 24 | window, features, self.peer.qpn, segment, 0, clock
        )
        body = {0xE0: hello, 0xE1: hello, 0x81: bytes(16)}.get(opcode, b"")
        filling = bytes(payload) if not body else b""
        self.give(forge.packet(self.peer, opcode, 0, body, filling, ack=False))

    @rule(
        opcode=st.sampled_from([DEMAND, GRANT, CREDIT]),
        first=st.sampled_from([0, 1, 100, MTU, 4096, 1 << 20, 2**31 - 1, 2**31, 2**32 - 1]),
        more=st.sampled_from([0, 1, MTU, 64 * MTU, 2**31 - 1, 2**31, 2**32 - 1]),
        rtt=st.sampled_from([0, 1, 20_000, 2**32 - 1]),
    )
    def credit(self, opcode: int, first: int, more: int, rtt: int) -> None:
        last = (first + more) % 2**32
        words = {
            DEMAND: (first, last, rtt, more, first),
            GRANT: (first, last, rtt),
            CREDIT: (more,),
        }[opcode]
        body = struct.pack(f"!{len(words)}I", *words)
        self.give(forge.packet(self.peer, opcode, 0, body, ack=False))

    @precondition(lambda self: self.seen)
    @rule(index=st.integers(0, 15), opcode=st.sampled_from(ANSWERS))
    def reflected(self, index: int, opcode: int) -> None:
        """The victim's own packet comes back as if the peer had sent it."""
        packet = self.seen[index % len(self.seen)]
        self.give(
            forge.sealed(
                packet._replace(src=packet.dst, dst=packet.src),
                packet.data[:5] + self.victim.qpn.to_bytes(3, "big") + packet.data[8:-4],
            )
        )
        del opcode

    # ---- what a program sees -----------------------------------------------------------

    def poll(self) -> None:
        for completion in self.victim.poll():
            self.sends.done(completion)
        for completion in self.victim.poll_recv():
            self.receives.done(completion)
            assert completion.wr_id is not None
            memory = self.rooms[completion.wr_id]
            if completion.status == "SUCCESS" and completion.opcode == "RECV":
                assert (completion.byte_len or 0) <= memory.size
            self.finished.append((memory, bytes(memory)))

    @invariant()
    def nothing_is_touched_that_should_not_be(self) -> None:
        if self.world is None:
            return
        assert bytes(self.read_only) == pattern(512, 2)
        assert bytes(self.foreign) == pattern(512, 3)
        assert bytes(self.private) == pattern(512, 4)
        for memory, content in self.finished:
            assert bytes(memory) == content, "memory changed that was the program's again"
        for memory in self.victim.host.memories:
            assert memory.guards_intact()

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            self.victim.host.verify()  # a broken queue could not be flushed
            self.poll()
            check(self.victim.to(lib.DP_QPS_ERR))
            self.poll()
            assert (self.sends.open, self.receives.open) == (0, 0)
            self.world.advance(1 * S)
        finally:
            self.world.close()
            self.world = None


class HostileExtended(Hostile):
    extended = True


EXAMPLES = int(os.environ.get("DATAPATH_HUNT", "60"))
SETTINGS = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None, print_blob=True)
TestStandard = Hostile.TestCase
TestExtended = HostileExtended.TestCase
TestStandard.settings = TestExtended.settings = SETTINGS
TestStandard.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
TestExtended.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
