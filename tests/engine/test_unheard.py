# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A time-out that has passed waits until the packets that have come by then are read."""

from __future__ import annotations

import pytest

from datapath.native import lib
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, QP, World

pytestmark = pytest.mark.san


def lose_a_write(world: World, a: QP, b: QP) -> int:
    """A WRITE is lost, and nothing is read from the port for a second: since when."""
    a.write(b"x", b.host.memory(8))
    a.host.send_all()
    silent_since = world.now
    lib.dp_engine_heard(a.host.engine, silent_since)
    world.now += 1000 * MS
    a.host.tick()
    return silent_since


@pytest.mark.parametrize("extended", [True, False])
def test_an_overdue_qp_is_looked_at_more_and_more_rarely(
    make_world: MakeWorld, extended: bool
) -> None:
    """Else thousands of them leave no time to read the packets that they wait for."""
    world = make_world(extended=extended)
    a, b = world.extended_pair() if extended else world.pair()
    lose_a_write(world, a, b)
    end, looks = world.now + 50 * MS, 0
    while world.now < end:
        world.now = max(world.now + 1, a.host.deadline)
        a.host.tick()
        looks += 1
    assert looks < 2000  # 50 ms have 48,828 ticks of the wheel
    assert a.stats()["timeouts"] == 0
    lib.dp_engine_heard(a.host.engine, world.now)
    world.now += MS
    a.host.tick()
    assert a.stats()["timeouts"] == 1


def test_packets_that_are_read_make_the_looks_frequent_again(make_world: MakeWorld) -> None:
    world = make_world(extended=True)
    a, b = world.extended_pair()
    silent_since = lose_a_write(world, a, b)
    world.advance(50 * MS)
    lib.dp_engine_heard(a.host.engine, silent_since + 1)
    world.now = a.host.deadline
    a.host.tick()
    assert a.host.deadline <= world.now + 2048
    assert a.stats()["timeouts"] == 0
