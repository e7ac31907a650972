# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Hypothesis state machine: anybody sends any packet to datagram queue pairs that are at work.

The attacker knows every number: addresses, QPNs, Q_Keys, memory keys. Its packets have any opcode,
any header, any length, from and to any address, unicast or multicast. The victim works meanwhile:
it posts receives into good memory, and into memory to which they have no right; it changes its
Q_Key, deregisters memory, joins groups, and begins anew.

A model in Python, which shares no code with the engine, says which queue pair a packet reaches.
After every step each byte of all memory is what the model says, and each completion was expected:
a byte is written only with the right Q_Key, into a receive that was posted, through a key of the
queue pair's own protection domain, with the right to write, within its region.

DATAPATH_HUNT=10000 in the environment asks for that many examples in place of 60.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from datapath.native import lib
from tests.engine import forge
from tests.engine.datagram import GRH_LEN, QKEY, RESET_TO_INIT, DatagramQP, deth
from tests.engine.ladder import Completion, Memory, Packet, World, check, failed, ok, pattern
from tests.engine.test_hostile_machine import Fields, but
from tests.engine.test_multicast import GROUP, MULTICAST_QPN, OTHER, attach, detach
from tests.engine.test_srq import SRQ

PLAIN, WITH_IMM = 0x64, 0x65
BTH_LEN = 12
OTHER_QKEY = 0x55667788
QKEYS = [QKEY, OTHER_QKEY, 0, QKEY ^ 1, QKEY | 0x80000000, 0xFFFFFFFF]
IGNORED_BYTE = 4  # of the BTH: FECN, BECN and reserved bits, which the ICRC leaves out
TRIMMED_TOS = 43 << 2

A_DATAGRAM = but(
    {
        "opcode": st.sampled_from([PLAIN, PLAIN, WITH_IMM]),
        "to": st.just(0),
        "qkey": st.just(-1),  # that of the receiver
        "payload": st.sampled_from([0, 1, 8, 20, 59, 60]),
        "dst": st.just(0),
        "src": st.just(0),
        "src_qpn": st.just(7),
        "second_byte": st.just(0),
        "pkey": st.sampled_from([0xFFFF, 0x7FFF]),
        "tos": st.just(0),
        "flip": st.just(-1),
        "cut": st.just(0),
        "more": st.just(0),
    },
    {
        "opcode": st.integers(0, 255),
        "to": st.integers(1, 5),
        "qkey": st.integers(0, len(QKEYS) - 1) | st.just(3),
        "payload": st.sampled_from([61, 100, 160, 4096]),
        "dst": st.integers(1, 4),
        "src": st.integers(1, 3),
        "src_qpn": st.sampled_from([0, 1, MULTICAST_QPN, -1]),
        "second_byte": st.sampled_from([1, 0x0F, 0x10, 0x20, 0x30]),
        "pkey": st.sampled_from([0, 0x7FFE, 0x1234]),
        "tos": st.sampled_from([3, TRIMMED_TOS]),
        "flip": st.integers(0, 8 * 60),
        "cut": st.integers(1, 60),
        "more": st.sampled_from([4, 16, 40]),
    },
)


@dataclass(frozen=True)
class Piece:
    """One SGE of a receive, and whether its key is the one of the memory."""

    memory: Memory
    offset: int
    length: int
    right_key: bool = True

    @property
    def sge(self) -> tuple[int, int, int]:
        addr, length, key = self.memory.sge(self.offset, self.length)
        return addr, length, key if self.right_key else key ^ 1


@dataclass
class Receive:
    wr_id: int
    pieces: list[Piece]

    @property
    def room(self) -> int:
        return sum(piece.length for piece in self.pieces)


@dataclass
class Receiver:
    """A queue pair, and what the model knows of it."""

    qp: DatagramQP
    qkey: int
    pd: Any
    srq: SRQ | None = None
    receives: list[Receive] = field(default_factory=list)
    expected: list[Completion] = field(default_factory=list)
    groups: set[bytes] = field(default_factory=set)
    next_id: int = 0


@dataclass(frozen=True)
class Datagram:
    """What a program would see of a packet."""

    qkey: int
    qpn: int
    payload: bytes


def read(packet: Packet) -> Datagram | None:
    """A datagram of the right form, or None; read from the bytes by IBTA vol. 1, chapter 9."""
    data = packet.data
    if len(data) < BTH_LEN or data[0] not in (PLAIN, WITH_IMM):
        return None
    start = 24 if data[0] == WITH_IMM else 20
    pad, length = data[1] >> 4 & 3, len(data) - 4
    form = data[1] & 0x0F == 0 and int.from_bytes(data[2:4], "big") & 0x7FFF == 0x7FFF
    if not form or length - pad < start or length % 4:
        return None
    qkey, _ = struct.unpack("!II", data[12:20])
    return Datagram(qkey, packet.dest_qpn, data[start : length - pad])


class HostileDatagrams(RuleBasedStateMachine):
    shared = False
    world: World | None = None

    @initialize(seed=st.integers(1, 1000), extended=st.booleans())
    def start(self, seed: int, extended: bool) -> None:
        self.world = World(seed=seed, extended=extended)
        self.attacker = self.world.a_host
        host = self.host = self.world.b_host
        self.pds = [host.pd, host.make_pd()]
        self.srq = SRQ(host) if self.shared else None
        options: dict[str, Any] = {"srq": self.srq.srq} if self.srq else {}
        own = DatagramQP(host, **options)
        other = DatagramQP(host, pd=self.pds[1], qkey=OTHER_QKEY)
        self.receivers = [
            Receiver(own, QKEY, self.pds[0], self.srq),
            Receiver(other, OTHER_QKEY, self.pds[1]),
        ]
        self.connected = self.world.pair()[1]
        self.connected.recv(200)
        writable, readable = lib.DP_ACCESS_LOCAL_WRITE, lib.DP_ACCESS_REMOTE_READ
        self.rights: dict[Memory, tuple[Any, bool]] = {}
        self.contents: dict[Memory, bytes] = {}
        for number, (pd, access) in enumerate(
            [(self.pds[0], writable), (self.pds[1], writable), (self.pds[0], readable)]
        ):
            self._keep(host.memory(pattern(300, number), pd=pd, access=access), pd, access)
        self._keep(host.memory(pattern(300, 9)), self.pds[0], writable)  # never posted
        for who in (0, 1):
            for size in (100, 60, 100, 41):
                self._post(who, [size], [], 0)

    def _keep(self, memory: Memory, pd: Any, access: int) -> None:
        self.rights[memory] = (pd, bool(access & lib.DP_ACCESS_LOCAL_WRITE))
        self.contents[memory] = bytes(memory)

    # ---- the victim --------------------------------------------------------------

    @rule(
        who=st.integers(0, 1),
        sizes=st.lists(st.sampled_from([100, 60, 40, 39, 20]), min_size=1, max_size=3),
        strange=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=1),
        offset=st.sampled_from([0, 8, 200]),
    )
    def post(self, who: int, sizes: list[int], strange: list[tuple[int, int]], offset: int) -> None:
        """A receive of fresh memory; one of its pieces may be of memory that it must not have."""
        self._post(who, sizes, strange, offset)

    def _post(
        self, who: int, sizes: list[int], strange: list[tuple[int, int]], offset: int
    ) -> None:
        receiver = self.receivers[who]
        if len(receiver.receives) == 16:
            return
        pieces = []
        for size in sizes:
            memory = self.host.memory(size, pd=receiver.pd, access=lib.DP_ACCESS_LOCAL_WRITE)
            self._keep(memory, receiver.pd, lib.DP_ACCESS_LOCAL_WRITE)
            pieces.append(Piece(memory, 0, size))
        for place, kind in strange:
            pieces[place % len(pieces)] = self._strange(kind, offset)
        receiver.next_id += 1
        receive = Receive(receiver.next_id, pieces)
        sges = [piece.sge for piece in pieces]
        if receiver.srq:
            check(receiver.srq.post(sges, receive.wr_id))
        else:
            check(receiver.qp.post_recv(sges, receive.wr_id))
        receiver.receives.append(receive)

    def _strange(self, kind: int, offset: int) -> Piece:
        memories = list(self.rights)
        if kind == 4:
            return Piece(memories[0], offset, 60, right_key=False)
        if kind == 5:
            return Piece(memories[0], 250 + offset, 60)  # beyond the end
        return Piece(memories[kind], offset, 60)

    @precondition(lambda self: any(r.receives for r in self.receivers))
    @rule(index=st.integers(0, 40))
    def deregister(self, index: int) -> None:
        """Memory of a receive that is posted goes away."""
        pieces = [p for r in self.receivers for receive in r.receives for p in receive.pieces]
        memory = pieces[index % len(pieces)].memory
        if memory in list(self.rights)[:4] or not self.rights[memory][1]:
            return
        assert memory.deregister() == 0
        self.rights[memory] = (None, False)

    @rule(who=st.integers(0, 1), qkey=st.sampled_from(QKEYS))
    def change_q_key(self, who: int, qkey: int) -> None:
        receiver = self.receivers[who]
        check(receiver.qp.modify(lib.DP_QP_STATE | lib.DP_QP_QKEY, state=lib.DP_QPS_RTS, qkey=qkey))
        receiver.qkey = qkey

    @rule(who=st.integers(0, 1))
    def begin_anew(self, who: int) -> None:
        self._restart(self.receivers[who])

    def _restart(self, receiver: Receiver) -> None:
        """RESET forgets the receives of a queue of its own."""
        qp = receiver.qp
        check(qp.to(lib.DP_QPS_RESET))
        receiver.expected.clear()
        if not receiver.srq:
            receiver.receives.clear()
        check(qp.modify(RESET_TO_INIT, state=lib.DP_QPS_INIT, qkey=receiver.qkey))
        check(qp.to(lib.DP_QPS_RTR))
        check(qp.modify(lib.DP_QP_STATE | lib.DP_QP_SQ_PSN, state=lib.DP_QPS_RTS, sq_psn=1))

    @rule(who=st.integers(0, 1), group=st.sampled_from([GROUP, OTHER]))
    def join_or_leave(self, who: int, group: bytes) -> None:
        receiver = self.receivers[who]
        member = group in receiver.groups
        check((detach if member else attach)(receiver.qp, group))
        receiver.groups ^= {group}

    # ---- the attacker --------------------------------------------------------------

    @rule(burst=st.lists(A_DATAGRAM, min_size=6, max_size=16))
    def datagrams(self, burst: list[Fields]) -> None:
        for fields in burst:
            self._give(*self._forged(fields))

    @rule(data=st.binary(max_size=120), opcode=st.sampled_from([PLAIN, WITH_IMM, 0x04, 0xC4]))
    def anything(self, data: bytes, opcode: int) -> None:
        """Any bytes, behind an opcode that leads them further than most others would."""
        like = Packet(bytes([opcode]) + data, self.attacker.addr, self.host.addr, 0xC000, 0)
        has_bth = len(like.data) >= BTH_LEN
        self._give(forge.sealed(like, like.data) if has_bth else like, True)

    def _forged(self, f: Fields) -> tuple[Packet, bool]:
        """The packet, and whether its ICRC is right."""
        own, other = (r.qp.qpn for r in self.receivers)
        qpn = [own, other, self.connected.qpn, 1, MULTICAST_QPN, own ^ 0x8000][f["to"]]
        addressed = self.receivers[1 if qpn == other else 0]
        qkey = addressed.qkey if f["qkey"] < 0 else QKEYS[f["qkey"]]
        src_qpn = own if f["src_qpn"] < 0 else f["src_qpn"]
        data, pad = pattern(f["payload"], f["payload"]), -f["payload"] % 4
        bth = bytearray(forge.bth(f["opcode"], qpn, 0, pad=pad))
        bth[1] ^= f["second_byte"]
        bth[2:4] = f["pkey"].to_bytes(2, "big")
        body = bytes(bth) + deth(qkey, src_qpn) + (b"imm!" if f["opcode"] == WITH_IMM else b"")
        like = Packet(
            b"",
            [self.attacker.addr, self.host.addr, GROUP, bytes(16)][f["src"]],
            [self.host.addr, GROUP, OTHER, self.attacker.addr, bytes(16)][f["dst"]],
            0xC000,
            f["tos"],
        )
        packet = forge.sealed(like, body + bytes(f["more"]) + data + bytes(pad))
        intact = True
        if f["cut"]:
            packet, intact = packet._replace(data=packet.data[: -f["cut"]]), False
        if f["flip"] >= 0 and packet.data:
            bit = f["flip"] % (8 * len(packet.data))
            packet, intact = packet.corrupted(bit), intact and bit // 8 == IGNORED_BYTE
        return packet, intact

    def _give(self, packet: Packet, intact: bool) -> None:
        assert self.world is not None
        datagram = read(packet) if intact else None
        reached = [r for r in self.receivers if datagram and self._reaches(r, packet, datagram)]
        self.world.give(self.host, packet)
        for receiver in reached:
            assert datagram is not None
            self._deliver(receiver, datagram)
        self.poll()

    # ---- the model --------------------------------------------------------------------

    def _reaches(self, r: Receiver, packet: Packet, datagram: Datagram) -> bool:
        if datagram.qpn == MULTICAST_QPN:
            src_qpn = int.from_bytes(packet.data[17:20], "big")
            itself = packet.src == self.host.addr and src_qpn == r.qp.qpn
            addressed = packet.dst in r.groups and not itself
        else:
            addressed = packet.dst == self.host.addr and datagram.qpn == r.qp.qpn
        fits = bool(r.receives) and r.receives[0].room >= GRH_LEN + len(datagram.payload)
        return addressed and datagram.qkey == r.qkey and fits

    def _may_write(self, receiver: Receiver, piece: Piece, n: int) -> bool:
        """The first n bytes of the piece: what lies behind them does not matter."""
        pd, writable = self.rights[piece.memory]
        inside = piece.offset + n <= piece.memory.size
        return pd == receiver.pd and writable and inside and piece.right_key

    def _deliver(self, receiver: Receiver, datagram: Datagram) -> None:
        receive = receiver.receives.pop(0)
        left, at = GRH_LEN + len(datagram.payload), 0
        for piece in receive.pieces:
            n = min(left, piece.length)
            if n and not self._may_write(receiver, piece, n):
                self._fault(receiver, receive)
                return
            self._written(piece, n, at, datagram.payload)
            left, at = left - n, at + n
        receiver.expected.append(ok("RECV", wr_id=receive.wr_id, byte_len=at))

    def _written(self, piece: Piece, n: int, at: int, payload: bytes) -> None:
        """The model takes the IP header, which other tests know, from the memory itself."""
        content = bytearray(self.contents[piece.memory])
        now = bytes(piece.memory)
        for i in range(n):
            place = piece.offset + i
            of_header = at + i < GRH_LEN
            content[place] = now[place] if of_header else payload[at + i - GRH_LEN]
        self.contents[piece.memory] = bytes(content)

    def _fault(self, receiver: Receiver, receive: Receive) -> None:
        """A mistake of the program, not of the peer: the receive fails, and the QP with it."""
        for piece in receive.pieces:
            if self._may_write(receiver, piece, 1):
                self.contents[piece.memory] = bytes(piece.memory)
        receiver.expected.append(failed("LOC_PROT_ERR", wr_id=receive.wr_id))
        if not receiver.srq:
            receiver.expected += [failed("WR_FLUSH_ERR", wr_id=r.wr_id) for r in receiver.receives]
        assert receiver.qp.state == "ERR"
        self._see(receiver)
        self._restart(receiver)

    def _see(self, receiver: Receiver) -> None:
        assert receiver.qp.poll_recv() == receiver.expected
        receiver.expected.clear()

    def poll(self) -> None:
        for receiver in self.receivers:
            self._see(receiver)
            assert receiver.qp.state == "RTS"
        assert self.connected.state == "RTS"
        assert self.connected.poll_recv() == []

    @invariant()
    def every_byte_is_what_the_model_says(self) -> None:
        if self.world is None:
            return
        for memory, content in self.contents.items():
            assert bytes(memory) == content
        for memory in self.host.memories:
            assert memory.guards_intact()

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            for receiver in self.receivers:
                for group in receiver.groups:
                    check(detach(receiver.qp, group))
            if self.srq:
                self.receivers[0].qp.destroy()
                assert self.srq.close() == 0
        finally:
            self.world.close()
            self.world = None


class HostileDatagramsShared(HostileDatagrams):
    shared = True


EXAMPLES = int(os.environ.get("DATAPATH_HUNT", "60"))
SETTINGS = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None, print_blob=True)
TestOwnQueue = HostileDatagrams.TestCase
TestSharedQueue = HostileDatagramsShared.TestCase
TestOwnQueue.settings = TestSharedQueue.settings = SETTINGS
TestOwnQueue.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
TestSharedQueue.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
