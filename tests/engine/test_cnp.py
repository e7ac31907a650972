# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CNPs: the receiver of marked requests sends them, the sender's algorithm hears of them."""

from __future__ import annotations

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import QP, US, Packet, World, pattern

pytestmark = pytest.mark.san

CNP = 0x81
GAP_NS = 50 * US
MTU = 1024


def pair(make_world: MakeWorld, *, extended: bool, gap_ns: int = GAP_NS) -> tuple[World, QP, QP]:
    world = make_world(extended=extended, ecn=1, cnp_ns=gap_ns)
    a, b = world.extended_pair() if extended else world.pair()
    return world, a, b


def requests(a: QP, b: QP, size: int) -> list[Packet]:
    a.write(pattern(size), b.host.memory(size))
    return a.host.send_all()


def cnps(packets: list[Packet]) -> list[Packet]:
    return [packet for packet in packets if packet.opcode == CNP]


@pytest.mark.parametrize("extended", [False, True])
def test_one_for_marked_requests_in_each_gap(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    first, second, third, fourth = requests(a, b, 4 * MTU)
    sent = []
    for packet, wait_ns in ((first, 0), (second, 10 * US), (third, 39 * US), (fourth, 1 * US)):
        world.now += wait_ns
        world.give(b.host, packet.marked())
        sent.append(len(cnps(b.host.send_all())))
    assert sent == [1, 0, 0, 1]
    assert b.stats()["cnp_tx"] == 2


@pytest.mark.parametrize("extended", [False, True])
def test_marks_of_read_responses_reach_both_ends(make_world: MakeWorld, extended: bool) -> None:
    """The algorithm of the end that reads, and in standard mode the end that sends them: a NIC as
    responder slows down only then.
    """
    world, a, b = pair(make_world, extended=extended)
    witness = Witness(a)
    a.read(3 * MTU + 8, b.host.memory(3 * MTU + 8))
    for packet in a.host.send_all():
        world.give(b.host, packet)
    responses = [p for p in b.host.send_all() if p.mask & lib.DP_IS_READ_RESP]
    for packet, is_marked in zip(responses, (False, True, True, False), strict=True):
        world.give(a.host, packet.marked() if is_marked else packet)
    assert sum(ack["marked_bytes"] for ack in witness.acks) == 2 * MTU
    assert len(cnps(a.host.send_all())) == (not extended)


def test_what_it_looks_like(make_world: MakeWorld) -> None:
    """Annex A17.9.3: BECN, and 16 bytes that are reserved."""
    world, a, b = pair(make_world, extended=False)
    (request,) = requests(a, b, 64)
    world.give(b.host, request.marked())
    (cnp,) = cnps(b.host.send_all())
    assert cnp.data[4] == 0x40
    assert cnp.data[12:28] == bytes(16)
    assert len(cnp.data) == 12 + 16 + 4
    assert int.from_bytes(cnp.data[5:8], "big") == a.qpn


def test_none_without_a_mark_or_without_the_option(make_world: MakeWorld) -> None:
    world, a, b = pair(make_world, extended=True)
    for packet in requests(a, b, 4 * MTU):
        world.give(b.host, packet)
    assert cnps(b.host.send_all()) == []
    world, a, b = pair(make_world, extended=True, gap_ns=0)
    for packet in requests(a, b, 4 * MTU):
        world.give(b.host, packet.marked())
    assert cnps(b.host.send_all()) == []


@pytest.mark.parametrize("extended", [False, True])
def test_the_algorithm_hears_of_it(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    witness = Witness(a)
    (request,) = requests(a, b, 64)
    world.give(b.host, request.marked())
    (cnp,) = cnps(b.host.send_all())
    world.now += 7 * US
    world.give(a.host, cnp)
    assert witness.cnps == [world.now]
    assert a.stats()["cnp_rx"] == 1


def test_one_that_comes_before_anything_was_sent(make_world: MakeWorld) -> None:
    world, a, b = pair(make_world, extended=True)
    world.give(b.host, forge.packet(a, CNP, 0, bytes(16), ack=False))
    assert b.stats()["cnp_rx"] == 1
    assert b.state == "RTS"
