# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ends whose packets reach the wrong queue of the other host try other UDP source ports."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from functools import reduce

import pytest

from tests.engine.conftest import MakeWorld
from tests.engine.ladder import QP, Channel, Host, Packet, World, ok, pattern

pytestmark = pytest.mark.san

TRIES = 64


# The key that Microsoft's RSS specification verifies with, and many drivers begin with.
KEY = int("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa", 16)


def toeplitz(data: bytes) -> int:
    """The hash of receive side scaling (RSS)."""
    bits = 8 * len(data)
    number = int.from_bytes(data, "big")
    return reduce(
        operator.xor,
        (KEY >> 320 - 32 - i & 0xFFFFFFFF for i in range(bits) if number >> bits - 1 - i & 1),
        0,
    )


def spread(queues: int, own: int) -> Callable[[Packet], bool]:
    """A network device that spreads packets over its queues by addresses and UDP ports."""

    def goes_astray(packet: Packet) -> bool:
        ports = packet.sport.to_bytes(2, "big") + (4791).to_bytes(2, "big")
        return toeplitz(packet.src[12:] + packet.dst[12:] + ports) % 128 % queues != own

    return goes_astray


def test_the_hash_is_that_of_rss() -> None:
    """A line of the table of the specification: 66.9.149.187:2794 to 161.142.100.80:1766."""
    data = bytes([66, 9, 149, 187, 161, 142, 100, 80]) + bytes.fromhex("0aea 06e6")
    assert toeplitz(data) == 0x51CCC178


def run(world: World) -> list[Packet]:
    """Until all is quiet; what both ends sent."""
    sent: list[Packet] = []

    def watch(host: Host, packet: Packet) -> bool:
        sent.append(packet)
        return False

    assert world.run(Channel(lose=watch))
    return sent


def write(world: World, a: QP, b: QP, size: int = 5000) -> list[Packet]:
    """One WRITE each way; what both ends sent."""
    sent: list[Packet] = []
    for one, other in ((a, b), (b, a)):
        target = other.host.memory(size)
        one.write(pattern(size), target)
        sent += run(world)
        assert one.poll() == [ok("RDMA_WRITE")]
        assert bytes(target) == pattern(size)
    return sent


@pytest.mark.parametrize("queues", [2, 3, 8])
@pytest.mark.parametrize("seed", range(8))
def test_each_way_finds_its_queue(make_world: MakeWorld, queues: int, seed: int) -> None:
    world = make_world(extended=True)
    for number, host in enumerate(world.hosts):
        host.goes_astray = spread(queues, (seed + number) % queues)
    pairs = [world.pair() for _ in range(1 + seed)]  # other QPNs begin elsewhere
    run(world)
    for packet in write(world, *pairs[-1]):
        host = world.b_host if packet.dst == world.b_host.addr else world.a_host
        assert not host.goes_astray(packet), packet
        assert packet.sport >= 0xC000


def test_one_way_leaves_the_other_alone(make_world: MakeWorld) -> None:
    world = make_world(extended=True)
    b = world.b_host
    began: list[int] = []

    def goes_astray(packet: Packet) -> bool:
        began.append(packet.sport)
        return packet.sport == began[0]

    b.goes_astray = goes_astray
    world.pair()
    sent = run(world)
    assert [packet.sport for packet in sent if packet.dst == b.addr][-1] != began[0]
    assert len({packet.sport for packet in sent if packet.dst != b.addr}) == 1


@pytest.mark.parametrize("seed", range(4))
def test_lost_offers_do_not_end_it(make_world: MakeWorld, seed: int) -> None:
    """Half of all packets with a HELLO are lost."""
    world = make_world(extended=True)
    for number, host in enumerate(world.hosts):
        host.goes_astray = spread(4, (seed + number) % 4)
    a, b = world.pair()
    dice = random.Random(seed)
    channel = Channel(lose=lambda _, p: p.name.startswith("HELLO") and dice.random() < 0.5)
    for one, other in ((a, b), (b, a)):
        for _ in range(10):
            one.write(pattern(100_000), other.host.memory(100_000))
            assert world.run(channel)
            assert one.poll() == [ok("RDMA_WRITE")]
    for packet in write(world, a, b):
        host = world.b_host if packet.dst == world.b_host.addr else world.a_host
        assert not host.goes_astray(packet), packet


def test_the_search_ends(make_world: MakeWorld) -> None:
    """Where no source port helps, the ends stop looking, and data flows all the same."""
    world = make_world(extended=True)
    for host in world.hosts:
        host.goes_astray = lambda packet: True
    pair = world.pair()
    names = [packet.name for packet in run(world)]
    assert (
        TRIES < names.count("HELLO") <= 2 * (TRIES + 2)
    )  # with the first, and that for the peer's
    assert not any(packet.name.startswith("HELLO") for packet in write(world, *pair))


def test_a_port_with_one_source_port_keeps_it(make_world: MakeWorld) -> None:
    world = make_world(extended=True, udp_sport=4791)
    for host in world.hosts:
        host.goes_astray = lambda packet: True
    pair = world.pair()
    assert {packet.sport for packet in run(world) + write(world, *pair)} == {4791}
