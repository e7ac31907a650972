# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode over several paths, which UDP source ports tell apart."""

from __future__ import annotations

from typing import Any

import pytest

from datapath.native import ffi, lib
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import US, Channel, Packet, World, ok, pattern

pytestmark = pytest.mark.san

MTU = 1024


@pytest.fixture
def four(make_world: MakeWorld) -> World:
    """Both ends send over four paths."""
    return make_world(extended=True, ecn=1, paths=4)


def paths_of(packets: list[Packet], base: int) -> list[int]:
    assert all(p.sport >= 0xC000 for p in packets)
    return [(p.sport - base) % 0x4000 for p in packets]


def test_packets_take_paths_in_turn(four: World) -> None:
    a, b = four.pair()
    a.write(b"x", b.host.memory(8))
    (first,) = a.host.send_all()  # standard mode
    four.give(b.host, first)
    assert four.run()
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    packets = a.host.send_all()
    paths = paths_of(packets, first.sport)
    assert [(p - paths[0]) % 4 for p in paths] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert set(paths) == {0, 1, 2, 3}
    for packet in reversed(packets):
        four.give(b.host, packet)
    acks = b.host.send_all()
    assert len({p.sport for p in acks}) == 1
    for ack in acks:
        four.give(a.host, ack)
    assert a.poll() == [ok("RDMA_WRITE")] * 2


@pytest.mark.parametrize(("chosen", "used"), [(2, {2}), (0, {0}), (4, {0, 1, 2, 3}),
                                              (float("nan"), {0, 1, 2, 3})])  # fmt: skip
def test_an_algorithm_chooses_the_path(four: World, chosen: float, used: set[int]) -> None:
    a, b = four.extended_pair()
    base = min(p.sport for p in probe(four, a, b))
    witness = Witness(a, next_path=chosen)
    assert witness.flow.paths == 4
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    assert set(paths_of(a.host.send_all(), base)) == used


def probe(world: World, a: object, b: object) -> list[Packet]:
    """Packets of one WRITE over all paths, delivered."""
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))  # type: ignore[attr-defined]
    packets = a.host.send_all()  # type: ignore[attr-defined]
    for packet in packets:
        world.give(b.host, packet)  # type: ignore[attr-defined]
    world.settle()
    return packets


def test_acknowledgements_and_marks_belong_to_paths(four: World) -> None:
    """One acknowledgement, one call of an algorithm that wants it for each path."""
    a, b = four.extended_pair()
    base = min(p.sport for p in probe(four, a, b))
    witness = Witness(a, by_path=True)
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    packets = a.host.send_all()
    four.advance(10 * US)
    marked = packets[2]
    for packet in packets:
        four.give(b.host, packet.marked() if packet is marked else packet)
    (ack,) = b.host.send_all()
    assert ack.listed("marked") == [marked.psn]
    four.give(a.host, ack)
    by_path = {int(event["path"]): event for event in witness.acks}
    assert sorted(by_path) == [0, 1, 2, 3]
    assert len(witness.acks) == 4
    (path,) = paths_of([marked], base)
    assert [by_path[i]["acked_bytes"] for i in range(4)] == [2 * MTU] * 4
    assert {i: event["marked_bytes"] for i, event in by_path.items() if event["marked_bytes"]} == {
        path: MTU
    }
    (newest,) = paths_of(packets[-1:], base)
    assert [i for i in by_path if by_path[i]["rtt_ns"]] == [newest]
    assert witness.acks[-1]["path"] == newest
    assert witness.round_paths == [newest]


def test_an_algorithm_that_does_not_look_at_paths_is_called_once(four: World) -> None:
    """With all bytes and marks, and the RTT, which is known of the newest packet alone."""
    a, b = four.extended_pair()
    probe(four, a, b)
    witness = Witness(a)
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    packets = a.host.send_all()
    four.advance(10 * US)
    for packet in packets:
        four.give(b.host, packet.marked() if packet in packets[2:4] else packet)
    four.settle()
    (event,) = witness.acks
    assert (event["acked_bytes"], event["marked_bytes"]) == (8 * MTU, 2 * MTU)
    assert event["rtt_ns"] > 0


def in_flight(world: World) -> tuple[Witness, list[tuple[int, Packet]], Any, Any]:
    """A window of eight packets over four paths, each with its path; much more is to be sent."""
    a, b = world.extended_pair()
    base = min(p.sport for p in probe(world, a, b))
    witness = Witness(a, by_path=True, cwnd_bytes=8 * MTU)
    a.write(pattern(64 * MTU), b.host.memory(64 * MTU))
    packets = a.host.send_all()
    assert len(packets) == 8
    world.advance(10 * US)
    return witness, list(zip(paths_of(packets, base), packets, strict=True)), a, base


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 2, 0, 0), (1, 1, 3, 0)])
def test_each_delivered_packet_sends_the_next_along_its_path(
    four: World, order: tuple[int, ...]
) -> None:
    """NSDI 2018, section 3.2, though one acknowledgement tells of four packets."""
    _, sent, a, base = in_flight(four)
    for path in order:
        packet = next(p for at, p in sent if at == path)
        sent.remove((path, packet))
        four.give(four.b_host, packet)
    (ack,) = four.b_host.send_all()
    four.give(a.host, ack)
    assert sorted(paths_of(a.host.send_all(), base)) == sorted(order)


def test_what_a_smaller_window_does_not_let_out_no_path_is_owed(four: World) -> None:
    witness, sent, a, base = in_flight(four)
    witness.flow.cwnd_bytes = 6 * MTU
    for _, packet in sent[:4]:
        four.give(four.b_host, packet)
    (ack,) = four.b_host.send_all()
    four.give(a.host, ack)
    first = paths_of(a.host.send_all(), base)
    assert len(first) == 2
    for _, packet in sent[4:]:
        four.give(four.b_host, packet)
    for ack in four.b_host.send_all():
        four.give(a.host, ack)
    assert sorted(paths_of(a.host.send_all(), base)) == sorted(path for path, _ in sent[4:])


def test_each_path_tells_when_its_own_packets_were_sent(four: World) -> None:
    """What was delivered by then: a slow path shows (NSDI 2018, section 3.4)."""
    witness, sent, a, base = in_flight(four)
    slow = sent[0][0]
    rest = [packet for path, packet in sent if path != slow]
    for packet in rest[:4]:
        four.give(four.b_host, packet)
    (ack,) = four.b_host.send_all()
    four.give(a.host, ack)
    newer = [p for p in a.host.send_all() if paths_of([p], base) != [slow]]
    del witness.acks[:]
    for packet in [p for path, p in sent if path == slow] + newer[:2]:
        four.give(four.b_host, packet)
    (ack,) = four.b_host.send_all()
    four.give(a.host, ack)
    prior = {event["path"]: event["prior_delivered_bytes"] for event in witness.acks}
    assert {prior.pop(path) for path in list(prior) if path != slow} == {prior[slow] + 4 * MTU}


def test_a_slow_path_has_lost_nothing(make_world: MakeWorld) -> None:
    """What overtakes a packet on another path says nothing of it."""
    world = make_world(extended=True, paths=2)
    a, b = world.extended_pair()
    base = min(p.sport for p in probe(world, a, b))
    slow = Channel(latency_ns=10 * US)
    for _ in range(4):
        a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
        assert world.run(slow)
    a.poll()
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    packets = a.host.send_all()
    late = [p for p in packets if p.sport == base]
    world.advance(10 * US)
    for packet in packets:
        if packet not in late:
            world.give(b.host, packet)
    world.settle()
    world.advance(30 * US)
    world.silent(a)
    for packet in late:
        world.give(b.host, packet)
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert a.stats()["retransmits"] == 0


def test_what_is_lost_takes_another_path(four: World) -> None:
    a, b = four.extended_pair()
    probe(four, a, b)
    data = pattern(40 * MTU)
    target = b.host.memory(len(data))
    a.write(data, target)
    lost: list[Packet] = []

    def lose(_: object, packet: Packet) -> bool:
        if packet.psn == 125 and not lost:
            lost.append(packet)
            return True
        if lost and packet.psn == 125 and packet.mask & lib.DP_IS_REQUEST:
            lost.append(packet)
        return False

    assert four.run(Channel(lose=lose, rate_bps=10e9))
    assert bytes(target) == data
    assert len(lost) == 2
    assert lost[0].sport != lost[1].sport


def test_an_acknowledgement_for_every_fourth_packet(four: World) -> None:
    """A gap is no reason: it is what paths of different length make."""
    a, b = four.extended_pair()
    a.write(pattern(12 * MTU), b.host.memory(12 * MTU))
    packets = a.host.send_all()
    acks = 0
    for packet in packets[1:11]:
        four.give(b.host, packet)
        acks += len(b.host.send_all())
    assert acks == 2


@pytest.mark.parametrize("config", [{"paths": 65}, {"paths": 2, "udp_sport": 4791}])
def test_paths_that_there_cannot_be(config: dict[str, int]) -> None:
    settings = ffi.new("struct dp_engine_config *", {"path_mtu_max": MTU} | config)
    assert lib.dp_engine_create(settings, ffi.new("struct dp_engine **")) < 0
