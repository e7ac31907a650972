# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A completion tells how many packets its request took, and how many of these were sent again."""

from __future__ import annotations

import pytest

from datapath.native import ffi, lib
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, QP, World, pattern

pytestmark = pytest.mark.san


def costs(qp: QP) -> list[tuple[int, int]]:
    """(packets, sent again) of each request that has completed, oldest first."""
    out = ffi.new("struct dp_wc[16]")
    count = lib.dp_cq_poll(qp.send_cq, 16, out)
    return [(out[i].packets, out[i].resent) for i in range(count)]


def test_each_request_of_selective_repeat_tells_its_own(make_world: MakeWorld) -> None:
    world = make_world(extended=True)
    a, b = world.extended_pair()
    target = b.host.memory(4096)
    for size in (4096, 1024, 2048):
        a.write(pattern(size), target)
    for number, packet in enumerate(a.host.send_all()):
        if number not in (1, 4):  # of the first request and of the second
            world.give(b.host, packet)
    world.settle()
    found = costs(a)
    assert found == [(5, 1), (2, 1), (2, 0)]
    assert sum(again for _, again in found) == a.stats()["retransmits"]


def test_going_back_counts_what_goes_again(world: World) -> None:
    a, b = world.pair()
    a.write(pattern(3000), b.host.memory(3000))
    a.write(b"x", b.host.memory(8))
    world.says(a, "WRITE_FIRST 100", "WRITE_MIDDLE 101 lost", "WRITE_LAST 102", "WRITE_ONLY 103")
    world.says(b, "NAK_SEQ 101")
    world.says(a, "WRITE_MIDDLE 101", "WRITE_LAST 102", "WRITE_ONLY 103")
    world.settle()
    assert costs(a) == [(5, 2), (2, 1)]


def test_idle_time_is_part_of_no_delivery_rate(make_world: MakeWorld) -> None:
    """Nor is the age of the host, when the first packet is acknowledged by itself."""
    world = make_world(extended=True)
    a, b = world.extended_pair()
    witness = Witness(a)
    target = b.host.memory(1024)
    for _ in range(2):
        world.advance(3600 * 1000 * MS)
        a.write(pattern(1024), target)
        (packet,) = a.host.send_all()
        world.advance(MS)
        world.give(b.host, packet)
        world.settle()
        assert witness.acks[-1]["delivery_rate_bps"] == pytest.approx(1024 * 8e9 / MS)
