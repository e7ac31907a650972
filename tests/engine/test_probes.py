# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""HELLOs and PROBEs of many queue pairs to one peer: one sends the PROBE for all."""

from __future__ import annotations

from collections import Counter

import pytest

from datapath.native import lib
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, QP, US, Channel, Host, Options, Packet, S, World, pattern

pytestmark = pytest.mark.san

MTU, SEGMENT = 1024, 1408
TRIES = 5  # of one queue pair
IN_VAIN = 3  # queue pairs that ask in vain before the others believe it
OTHER_PEER = bytes.fromhex("00000000000000000000ffff0a000063")


@pytest.fixture
def long(make_world: MakeWorld) -> World:
    """Both ends take packets with 1408 bytes of payload."""
    return make_world(extended=True, path_mtu_max=MTU, segment_max=SEGMENT)


class Census:
    """Counts the packets of each host, and loses those that `lose` names."""

    def __init__(self, lose: str = "", until: int = 1 << 30) -> None:
        self.sent: Counter[tuple[str, str]] = Counter()
        self.asked: set[int] = set()  # QPNs to which PROBEs went
        self._lose, self._until = lose, until

    def __call__(self, host: Host, packet: Packet) -> bool:
        self.sent[host.name, packet.name] += 1
        if packet.name == "PROBE":
            self.asked.add(packet.dest_qpn)
        return packet.name == self._lose and self.sent[host.name, packet.name] <= self._until

    def probes(self) -> tuple[int, int]:
        return self.sent["a", "PROBE"], self.sent["b", "PROBE"]

    def askers(self, qps: list[QP]) -> list[QP]:
        return [qp for qp in qps if qp.peer.qpn in self.asked]


def crowd(world: World, n: int) -> list[QP]:
    return [qp for _ in range(n) for qp in world.pair()]


def settle(world: World, census: Census) -> None:
    assert world.run(Channel(lose=census))


def segments(world: World, qps: list[QP]) -> set[int]:
    """Those that the queue pairs use, once each has sent a message."""
    for qp in qps:
        qp.write(pattern(5000), world.other(qp.host).memory(5000))
    assert world.run()
    assert all(qp.extended for qp in qps)
    return {int(lib.dp_qp_segment(qp.qp)) for qp in qps}


def test_one_asks_for_all(long: World) -> None:
    census = Census()
    qps = crowd(long, 20)
    settle(long, census)
    assert census.probes() == (1, 1)
    assert segments(long, qps) == {SEGMENT}


def test_what_was_learnt_serves_those_that_come_soon(long: World) -> None:
    crowd(long, 1)
    settle(long, Census())
    census = Census()
    late = crowd(long, 2)
    settle(long, census)
    assert census.probes() == (0, 0)
    assert segments(long, late) == {SEGMENT}


def test_a_path_may_change_so_it_is_asked_again_later(long: World) -> None:
    crowd(long, 1)
    settle(long, Census())
    long.advance(1 * S)
    census = Census("PROBE")
    late = crowd(long, 1)
    settle(long, census)
    assert census.probes() == (TRIES, TRIES)
    assert segments(long, late) == {MTU}


def test_another_takes_over_from_one_that_ends(long: World) -> None:
    """Its PROBE is lost, and it does not live to repeat it."""
    qps = crowd(long, 6)
    census = Census("PROBE", until=1)
    assert long.run(Channel(lose=census), until=lambda: census.probes() == (1, 1))
    askers = census.askers(qps)
    assert len(askers) == 2
    gone = {qp for asker in askers for qp in (asker, asker.peer)}
    for qp in gone:
        qp.destroy()
    settle(long, census)
    assert census.probes() == (2, 2)
    assert segments(long, [qp for qp in qps if qp not in gone]) == {SEGMENT}


def test_lost_probes_of_one_do_not_speak_for_the_others(long: World) -> None:
    qps = crowd(long, 6)
    census = Census("PROBE", until=TRIES)
    settle(long, census)
    assert census.probes() == (TRIES + 1, TRIES + 1)
    assert segments(long, qps) == {MTU, SEGMENT}
    short = [qp for qp in qps if lib.dp_qp_segment(qp.qp) == MTU]
    assert len(short) == 2  # one of each host
    assert {qp.host.name for qp in short} == {"a", "b"}


def test_a_path_that_loses_long_packets_is_not_asked_by_each(long: World) -> None:
    qps = crowd(long, 50)
    census = Census("PROBE")
    start = long.now
    settle(long, census)
    assert census.probes() == (IN_VAIN * TRIES, IN_VAIN * TRIES)
    assert long.now - start < 100 * MS
    assert segments(long, qps) == {MTU}


def test_of_two_lengths_the_longer_one_is_asked_for(make_world: MakeWorld) -> None:
    """One that carried short packets may lose longer ones; after long ones, short ones may go."""
    world = make_world(extended=True, path_mtu_max=4096, segment_max=8960, telemetry=1)
    for mtu, asked in ((512, 1), (4096, 1), (1024, 0)):
        world.pair(mtu=mtu)
        census = Census()
        settle(world, census)
        assert census.probes() == (asked, asked), mtu


def repeats(world: World) -> list[int]:
    """When HELLOs are sent that find no answer, in ns from now."""
    start = world.now
    times: list[int] = []

    def lose(host: Host, packet: Packet) -> bool:
        if packet.name == "HELLO" and host is world.a_host:
            times.append(world.now - start)
        return True

    world.run(Channel(lose=lose), limit_ns=20 * MS)
    return times


@pytest.mark.parametrize("before_ns", [0, 900 * MS, 1800 * MS])
def test_many_that_connect_at_once_repeat_their_hellos_later(long: World, before_ns: int) -> None:
    """Those that connect within the same second or the next one, too."""
    others = crowd(long, 200) if before_ns else []
    for qp in others:
        qp.destroy()
    long.advance(before_ns)
    crowd(long, 1 if before_ns else 200)
    times = repeats(long)
    first = [t for t in times if t < 1 * MS]
    again = [t for t in times if t >= 1 * MS]
    assert len(first) == (1 if before_ns else 200)
    assert min(again) >= 200 * 20 * US
    assert len(again) == 2 * len(first)  # after 4 and 12 ms


def test_one_that_connects_alone_repeats_its_hello_soon(long: World) -> None:
    for qp in crowd(long, 200):
        qp.destroy()
    long.advance(2 * S)
    long.pair()
    assert [round(t / MS, 1) for t in repeats(long)] == [0, 0.5, 1.5, 3.5, 7.5, 15.5]


def test_each_peer_is_asked(long: World) -> None:
    """What one peer answered says nothing of the path to another."""
    crowd(long, 1)
    settle(long, Census())
    config = {"extended": 1, "seed": 3, "path_mtu_max": MTU, "segment_max": SEGMENT}
    stranger = Host(long, "c", OTHER_PEER, **config)
    a, c = QP(long.a_host, Options(mtu=MTU)), QP(stranger, Options(mtu=MTU))
    for qp, peer in ((a, c), (c, a)):
        qp.to_init()
        qp.to_rtr(peer, 100)
    long.advance(US)
    for hello in c.host.send_all():
        a.host.receive(hello)
    assert {p.name for p in a.host.send_all()} >= {"HELLO_REPLY", "PROBE"}
    stranger.close()
