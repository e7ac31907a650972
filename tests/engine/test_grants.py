# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Grants of a receiver: DEMAND and GRANT, lost and forged ones, and peers that fall silent."""

from __future__ import annotations

import itertools
import struct

import pytest

from datapath.native import ffi, lib
from tests.engine import forge
from tests.engine.algorithms import Granting
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, QP, US, Channel, Host, Packet, S, World, ok, pattern
from tests.engine.test_telemetry import stamped

pytestmark = pytest.mark.san

DEMAND, GRANT = 0xE4, 0xE5
MTU = 1024
OWN = 255 << 24
"""In a GRANT: packets keep the DSCP of their QP."""


class Given:
    """Two ends that both give grants, a pair between them, and memory to write to."""

    def __init__(
        self, make: MakeWorld, window: float = 1e9, *, telemetry: int = 0, **options: float
    ) -> None:
        self.cc = Granting(window, **options)
        self.world: World = make(extended=True, cc=self.cc.algo, telemetry=telemetry)
        self.a, self.b = self.world.extended_pair()
        self.target = self.b.host.memory(256 * MTU)

    def write(self, size: int) -> None:
        self.a.write(pattern(size), self.target)

    def arrived(self, size: int) -> bool:
        return bytes(self.target)[:size] == pattern(size)


def demand(packet: Packet) -> tuple[int, int]:
    """Settled and wanted bytes."""
    settled, wanted = struct.unpack("!II", packet.data[12:20])
    return settled, wanted


def granted(packet: Packet) -> int:
    return int.from_bytes(packet.data[12:16], "big")


def forged(sender: QP, opcode: int, *words: int) -> Packet:
    return forge.packet(sender, opcode, 0, struct.pack(f"!{len(words)}I", *words), ack=False)


def test_a_sender_waits_for_its_grant(make_world: MakeWorld) -> None:
    given = Given(make_world, window=2 * MTU)
    world, a, b = given.world, given.a, given.b
    given.write(4 * MTU)
    (asked,) = a.host.send_all()
    assert (asked.name, *demand(asked)) == ("DEMAND", 0, 4 * MTU)
    world.give(b.host, asked)
    (answer,) = b.host.send_all()
    assert (answer.name, granted(answer)) == ("GRANT", 2 * MTU)
    world.give(a.host, answer)
    first = a.host.send_all()
    assert [p.name for p in first] == ["EXT_WRITE_FIRST", "EXT_WRITE_MIDDLE"]
    world.give(b.host, first[0])
    (more,) = (p for p in b.host.send_all() if p.opcode == GRANT)
    assert granted(more) == 3 * MTU
    world.give(a.host, more)
    assert [p.name for p in a.host.send_all()] == ["EXT_WRITE_MIDDLE"]
    assert given.cc.requests == [(4 * MTU, 0)]
    assert given.cc.data == [(MTU, 0, 0)]


def test_a_grant_that_ends_within_a_packet_lets_it_out(make_world: MakeWorld) -> None:
    """Otherwise its rest would be of no use, and both ends might wait for each other."""
    given = Given(make_world, window=MTU + 1)
    world, a, b = given.world, given.a, given.b
    given.write(4 * MTU)
    world.give(b.host, a.host.send_all()[0])
    (answer,) = b.host.send_all()
    assert granted(answer) == MTU + 1
    world.give(a.host, answer)
    assert [p.name for p in a.host.send_all()] == ["EXT_WRITE_FIRST", "EXT_WRITE_MIDDLE"]


def dscps(packets: list[Packet]) -> list[tuple[str, int]]:
    return [(p.name.removeprefix("EXT_WRITE_"), p.tos >> 2) for p in packets]


def test_what_leaves_by_a_grant_has_its_dscp(make_world: MakeWorld) -> None:
    given = Given(make_world, window=2 * MTU, unscheduled_bytes=MTU, dscp=17)
    world, a, b = given.world, given.a, given.b
    given.write(4 * MTU)
    sent = a.host.send_all()
    assert dscps(sent) == [("FIRST", 0), ("DEMAND", 0)]
    world.give(b.host, sent[-1])
    answers = b.host.send_all()
    assert {p.tos >> 2 for p in answers} == {0}
    for answer in answers:
        world.give(a.host, answer)
    assert dscps(a.host.send_all()) == [("MIDDLE", 17)]


def test_what_is_sent_again_by_a_grant_has_its_dscp(make_world: MakeWorld) -> None:
    given = Given(make_world, dscp=17)
    left = [5]
    seen: set[int] = set()

    def lose(_: Host, packet: Packet) -> bool:
        if packet.opcode not in (DEMAND, GRANT) and packet.payload:
            seen.add(packet.tos >> 2)
            left[0] -= 1
        return left[0] == 0

    given.write(64 * MTU)
    assert given.world.run(Channel(lose=lose))
    assert given.a.stats()["retransmits"] == 1
    assert seen == {17}


@pytest.mark.parametrize("dscp", [43, 64, 200, 255])
def test_a_dscp_that_cannot_be_is_that_of_the_qp(make_world: MakeWorld, dscp: int) -> None:
    given = Given(make_world)
    given.write(2 * MTU)
    given.a.host.send_all()
    given.world.give(given.a.host, forged(given.b, GRANT, 2 * MTU, 0, dscp << 24))
    assert dscps(given.a.host.send_all()) == [("FIRST", 0), ("LAST", 0)]


def test_a_receiver_hears_of_each_round_trip(make_world: MakeWorld) -> None:
    """Grants of two packets at a time over 200 us: a call for each RTT, not for each packet."""
    given = Given(make_world, window=2 * MTU)
    given.write(64 * MTU)
    assert given.world.run(Channel(latency_ns=100 * US))
    assert given.arrived(64 * MTU)
    rounds = given.cc.rounds
    gaps = [later - earlier for earlier, later in itertools.pairwise(rounds)]
    assert 20 <= len(rounds) <= 32
    assert min(gaps) >= 200 * US


def test_a_receiver_sees_what_switches_wrote(make_world: MakeWorld) -> None:
    given = Given(make_world, telemetry=1)
    world, a, b = given.world, given.a, given.b
    given.write(2 * MTU)
    for packet in a.host.send_all():
        world.give(b.host, packet)
    for answer in b.host.send_all():
        world.give(a.host, answer)
    first, last = a.host.send_all()
    world.give(b.host, stamped(first, (70_000, 5, 2**40 - 1, 100_000)))
    world.give(b.host, stamped(last, (80_000, 6, 1, 100_000), (9, 7, 8, 10)))
    one, two = given.cc.hops
    ts_ns = one[0][2]
    assert one == [(70_000, 2**40 - 1, ts_ns, 100e9)]
    assert two == [(80_000, 2**40 + 1, ts_ns + 1, 100e9), (9, 8, two[1][2], 10e6)]


def test_a_small_message_needs_no_grant(make_world: MakeWorld) -> None:
    given = Given(make_world, unscheduled_bytes=200)
    for _ in range(3):
        given.write(100)
    names = [p.name for p in given.a.host.send_all()]
    assert names == ["EXT_WRITE_ONLY", "EXT_WRITE_ONLY", "DEMAND"]


def test_reads_need_no_grants(make_world: MakeWorld) -> None:
    given = Given(make_world)
    into = given.a.read(8 * MTU, given.target)
    assert [p.name for p in given.a.host.send_all()] == ["EXT_READ_REQUEST"]
    del into


@pytest.mark.parametrize("opcode", [DEMAND, GRANT])
@pytest.mark.parametrize("number", [3, 5])
def test_lost_ones_are_made_up_for(make_world: MakeWorld, opcode: int, number: int) -> None:
    given = Given(make_world, window=4 * MTU)
    left = [number]

    def lose(_: Host, packet: Packet) -> bool:
        left[0] -= packet.opcode == opcode
        return packet.opcode == opcode and left[0] >= 0

    given.write(64 * MTU)
    assert given.world.run(Channel(lose=lose))
    assert left[0] < 0
    assert given.a.poll() == [ok("RDMA_WRITE")]
    assert given.arrived(64 * MTU)
    assert given.a.stats()["retransmits"] == given.a.stats()["timeouts"] == 0


def test_a_peer_that_never_answers_holds_up_nothing(make_world: MakeWorld) -> None:
    given = Given(make_world)
    given.write(64 * MTU)
    start = given.world.now
    assert given.world.run(Channel(lose=lambda _, packet: packet.opcode == GRANT))
    assert given.a.poll() == [ok("RDMA_WRITE")]
    assert given.arrived(64 * MTU)
    assert given.world.now - start < 100 * MS


def test_after_silence_grants_are_needed_again(make_world: MakeWorld) -> None:
    """The path to the sender was dead for a while: what the peer grants then is heard."""
    given = Given(make_world, window=2 * MTU)
    world, a = given.world, given.a
    given.write(2 * MTU)
    world.run(Channel(lose=lambda _, packet: packet.opcode == GRANT))
    assert a.poll() == [ok("RDMA_WRITE")]
    given.write(200 * MTU)
    world.run(Channel(rate_bps=50e6))
    assert a.poll() == [ok("RDMA_WRITE")]
    given.write(4 * MTU)
    assert [p.name for p in a.host.send_all()] == ["DEMAND"]


def test_a_receiver_that_gives_up_its_algorithm(make_world: MakeWorld) -> None:
    given = Given(make_world, window=2 * MTU)
    given.write(64 * MTU)
    for packet in given.a.host.send_all():
        given.world.give(given.b.host, packet)
    assert lib.dp_qp_set_cc(given.b.qp, ffi.NULL, given.world.now) == 0
    assert given.world.run()
    assert given.a.poll() == [ok("RDMA_WRITE")]
    assert given.arrived(64 * MTU)


def test_a_standard_peer_hears_nothing_of_it(make_world: MakeWorld) -> None:
    world = make_world(extended=True, b_extended=0, cc=Granting().algo)
    a, b = world.pair()
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    seen: list[int] = []

    def note(_: Host, packet: Packet) -> bool:
        seen.append(packet.opcode)
        return False

    assert world.run(Channel(lose=note))
    assert a.poll() == [ok("RDMA_WRITE")]
    assert not {DEMAND, GRANT} & set(seen)


# ---- forged packets ----------------------------------------------------------------------


@pytest.mark.parametrize("more", [1, 64 * MTU, 2**31 - 1, 2**31, 2**32 - 1])
def test_no_grant_exceeds_what_was_asked_for(make_world: MakeWorld, more: int) -> None:
    given = Given(make_world)
    a, b = given.a, given.b
    given.write(2 * MTU)
    assert [p.name for p in a.host.send_all()] == ["DEMAND"]
    given.world.give(a.host, forged(b, GRANT, (2 * MTU + more) % 2**32, 0, OWN))
    given.write(2 * MTU)
    names = [p.name for p in a.host.send_all()]
    assert "EXT_WRITE_ONLY" not in names
    assert len([name for name in names if name.startswith("EXT_WRITE")]) <= 2


def test_an_old_grant_takes_nothing_back(make_world: MakeWorld) -> None:
    given = Given(make_world)
    a, b = given.a, given.b
    given.write(2 * MTU)
    a.host.send_all()
    given.world.give(a.host, forged(b, GRANT, 2 * MTU, 0, OWN))
    given.world.give(a.host, forged(b, GRANT, 0, 0, OWN))
    assert [p.name for p in a.host.send_all()] == ["EXT_WRITE_FIRST", "EXT_WRITE_LAST"]


@pytest.mark.parametrize(
    ("settled", "wanted"),
    [(0, 2**31), (2**31, 0), (1, 0), (2**32 - 1, 2**31 - 2), (2**31 - 1, 2**32 - 2), (0, 0)],
)
def test_demands_that_make_no_sense(make_world: MakeWorld, settled: int, wanted: int) -> None:
    """Whatever the peer tells, the totals stay in order and a true DEMAND still works."""
    given = Given(make_world, window=4 * MTU)
    for _ in range(3):
        given.world.give(given.b.host, forged(given.a, DEMAND, settled, wanted, 0, 0, 0))
        given.b.host.send_all()
    given.write(64 * MTU)
    assert given.world.run(limit_ns=1 * S)
    assert given.a.poll() == [ok("RDMA_WRITE")]
    assert given.arrived(64 * MTU)


def test_a_demand_of_a_peer_that_was_offered_no_grants(ext: World) -> None:
    a, b = ext.extended_pair()
    ext.give(b.host, forged(a, DEMAND, 0, 1 << 20, 0, 0, 0))
    ext.give(a.host, forged(b, GRANT, 1 << 20, 1 << 20, OWN))
    assert a.host.send_all() == b.host.send_all() == []


# ---- all at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_everything_arrives_over_a_bad_path(make_world: MakeWorld, seed: int) -> None:
    """Both ends send; packets of all kinds are lost, doubled and overtaken."""
    given = Given(make_world, window=(1 + seed) * 2 * MTU, unscheduled_bytes=300 * (seed % 2))
    a, b = given.a, given.b
    back = a.host.memory(48 * MTU)
    for size in (40 * MTU, 100, 8 * MTU + 1):
        given.write(size)
    b.write(pattern(48 * MTU), back)
    channel = Channel(
        latency_ns=20 * US, jitter_ns=30 * US, loss=0.1, duplicate=0.05, corrupt=0.02, seed=seed
    )
    assert given.world.run(channel, limit_ns=20 * S)
    assert a.poll() == [ok("RDMA_WRITE")] * 3
    assert b.poll() == [ok("RDMA_WRITE")]
    assert given.arrived(8 * MTU + 1)
    assert bytes(back) == pattern(48 * MTU)
