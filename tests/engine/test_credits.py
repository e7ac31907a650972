# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CREDIT: one full packet for each; what is lost is lost, and the receiver learns of it."""

from __future__ import annotations

import struct

import pytest

from datapath.native import ffi, lib
from tests.engine import forge
from tests.engine.algorithms import Granting
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import US, Channel, Host, Packet, S, World, ok, pattern

pytestmark = pytest.mark.san

DEMAND, GRANT, CREDIT = 0xE4, 0xE5, 0xE6
MTU = 1024


class Given:
    """Two ends that give credits, a pair between them, and memory to write to."""

    def __init__(self, make: MakeWorld, gives: int = 1) -> None:
        self.cc = Granting(gives=gives)
        self.world: World = make(extended=True, cc=self.cc.algo)
        self.a, self.b = self.world.extended_pair()
        self.target = self.b.host.memory(256 * MTU)

    def write(self, size: int) -> None:
        self.a.write(pattern(size), self.target)

    def asked(self, size: int) -> list[Packet]:
        """What the receiver sends when it hears of so many bytes."""
        self.write(size)
        (demand,) = self.a.host.send_all()
        assert demand.opcode == DEMAND
        self.world.give(self.b.host, demand)
        return self.b.host.send_all()


def number(packet: Packet) -> int:
    return int.from_bytes(packet.data[12:16], "big")


def written(packets: list[Packet]) -> int:
    return sum(packet.name.startswith("EXT_WRITE") for packet in packets)


def test_each_credit_is_for_one_packet(make_world: MakeWorld) -> None:
    given = Given(make_world, gives=3)
    seen = [p for p in given.asked(8 * MTU) if p.opcode == CREDIT]
    assert [number(p) for p in seen] == [1, 2, 3]
    for credit in seen:
        given.world.give(given.a.host, credit)
        assert written(given.a.host.send_all()) == 1


def test_a_lost_credit_is_not_made_up_for(make_world: MakeWorld) -> None:
    given = Given(make_world, gives=3)
    first, _, third = (p for p in given.asked(8 * MTU) if p.opcode == CREDIT)
    for credit in (first, third, third):
        given.world.give(given.a.host, credit)
    assert written(given.a.host.send_all()) == 2


def test_the_receiver_learns_which_ones_came(make_world: MakeWorld) -> None:
    given = Given(make_world, gives=3)
    first, _, third = (p for p in given.asked(8 * MTU) if p.opcode == CREDIT)
    for credit in (first, third):
        given.world.give(given.a.host, credit)
    for packet in given.a.host.send_all():
        given.world.give(given.b.host, packet)
    assert given.cc.reports[-1] in [(1.0, 1.0), (3.0, 2.0)]  # as it was when the DEMAND left
    given.world.run(Channel())
    told, heard = given.cc.reports[-1]
    assert told - heard == 1


def test_a_credit_for_nothing_is_wasted(make_world: MakeWorld) -> None:
    given = Given(make_world, gives=5)
    for packet in given.asked(2 * MTU):
        given.world.give(given.a.host, packet)
    assert written(given.a.host.send_all()) == 2
    given.write(4 * MTU)
    assert written(given.a.host.send_all()) == 0


def test_credits_to_a_sender_without_a_flow(make_world: MakeWorld) -> None:
    """The peer sends them before this end has sent anything."""
    given = Given(make_world)
    body = struct.pack("!I", 1)
    for _ in range(3):
        given.world.give(given.a.host, forge.packet(given.b, CREDIT, 0, body, ack=False))
    given.write(2 * MTU)
    assert given.world.run(Channel(), limit_ns=1 * S)
    assert given.a.poll() == [ok("RDMA_WRITE")]


@pytest.mark.parametrize("told", [1, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("heard", [0, 5, 2**32 - 1])
def test_reports_that_cannot_be(make_world: MakeWorld, told: int, heard: int) -> None:
    given = Given(make_world)
    given.asked(4 * MTU)
    body = struct.pack("!5I", 0, 4 * MTU, 0, told, heard)
    given.world.give(given.b.host, forge.packet(given.a, DEMAND, 0, body, ack=False))
    assert given.cc.reports[-1] in [(0.0, 0.0), (1.0, 0.0)]


def test_a_receiver_that_changes_its_algorithm(make_world: MakeWorld) -> None:
    """The numbers go on, so that the sender believes the new credits."""
    given = Given(make_world)
    given.write(40 * MTU)
    given.world.run(Channel(latency_ns=20 * US), limit_ns=200 * US)
    assert lib.dp_qp_set_cc(given.b.qp, ffi.NULL, given.world.now) == 0
    assert lib.dp_qp_set_cc(given.b.qp, given.cc.algo, given.world.now) == 0
    assert given.world.run(Channel(latency_ns=20 * US), limit_ns=1 * S)
    assert given.a.poll() == [ok("RDMA_WRITE")]


def test_a_timer_between_two_nanoseconds(make_world: MakeWorld) -> None:
    """It never fires early: at a tick of the wheel it would be armed and fire without end."""
    given = Given(make_world)
    tick_ns = (given.world.now >> 10) + 100 << 10
    given.cc.next_ns = tick_ns + 0.5
    given.write(4 * MTU)
    assert given.world.run(Channel(latency_ns=20 * US), limit_ns=1 * S)
    assert given.a.poll() == [ok("RDMA_WRITE")]


@pytest.mark.parametrize("seed", range(4))
def test_everything_arrives_over_a_bad_path(make_world: MakeWorld, seed: int) -> None:
    given = Given(make_world, gives=1 + seed)
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
    assert bytes(back) == pattern(48 * MTU)


def test_credits_that_are_all_lost_hold_up_nothing_for_ever(make_world: MakeWorld) -> None:
    given = Given(make_world)
    given.write(16 * MTU)

    def lose(_: Host, packet: Packet) -> bool:
        return packet.opcode in (CREDIT, GRANT)

    assert given.world.run(Channel(lose=lose), limit_ns=5 * S)
    assert given.a.poll() == [ok("RDMA_WRITE")]
