# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A peer that has no receive posted: how long a requester waits, and what counts as a retry."""

from __future__ import annotations

import pytest

from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, US, World, failed, ok
from tests.engine.test_errors import MODES, give_all, pair

pytestmark = pytest.mark.san

WAIT = 1280 * US
ASKED = {"min_rnr_timer": 14}  # for this wait


@MODES
@pytest.mark.parametrize("twice", ["request", "NAK"])
def test_copies_count_as_one(make_world: MakeWorld, extended: bool, twice: str) -> None:
    world, a, b = pair(make_world, extended=extended, **ASKED, rnr_retry=1)
    a.send(b"knock")
    (request,) = give_all(world, a)
    (nak,) = give_all(world, b)
    if twice == "request":
        world.give(b.host, request)
        (nak,) = b.host.send_all()
    world.give(a.host, nak)
    world.silent(a)
    assert (nak.name, a.state) == ("RNR", "RTS")
    world.expire(a)
    give_all(world, a)
    assert [p.name for p in give_all(world, b)] == ["RNR"]
    assert a.poll() == [failed("RNR_RETRY_EXC_ERR")]


@MODES
def test_a_late_copy_of_the_nak_prolongs_no_wait(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended, **ASKED)
    a.send(b"knock")
    give_all(world, a)
    (nak,) = give_all(world, b)
    world.advance(WAIT - 80 * US)
    world.give(a.host, nak)
    assert world.expire(a) < 100 * US


@MODES
def test_a_copy_that_is_read_when_the_wait_is_over_is_no_news(
    make_world: MakeWorld, extended: bool
) -> None:
    """The host stood still; what had arrived meanwhile is read before the engine may send."""
    world, a, b = pair(make_world, extended=extended, **ASKED, rnr_retry=1)
    a.send(b"knock")
    give_all(world, a)
    (nak,) = give_all(world, b)
    world.now += 2 * WAIT
    for _ in range(2):
        world.give(a.host, nak)
        a.host.tick()
    b.recv(8)
    assert [p.psn for p in give_all(world, a)] == [nak.psn]
    assert world.run()
    assert a.poll() == [ok("SEND")]


def test_copies_from_before_a_wait_do_not_count_behind_it(ext: World) -> None:
    """The receiver stands still.  The sender probes it, and each copy draws a NAK."""
    a, b = ext.extended_pair(**ASKED, rnr_retry=1)
    a.write(b"x", b.host.memory(8))
    ext.run()  # an RTT is known
    assert a.poll() == [ok("RDMA_WRITE")]
    a.send(b"knock")
    copies = a.host.send_all()
    while len(copies) < 4:
        ext.expire(a)
        copies += a.host.send_all()
    for copy in copies[:2]:
        ext.give(b.host, copy)
        give_all(ext, b)
    ext.expire(a)
    fresh = a.host.send_all()
    for copy in copies[2:]:
        ext.give(b.host, copy)
        give_all(ext, b)
    assert (a.state, a.stats()["rnr_rx"]) == ("RTS", len(copies))
    b.recv(8)
    for packet in fresh:
        ext.give(b.host, packet)
    assert ext.run()
    assert a.poll() == [ok("SEND")]


@MODES
def test_the_next_request_has_a_wait_of_its_own(make_world: MakeWorld, extended: bool) -> None:
    """A copy of the first one is accepted during its wait, and the second one is refused."""
    world, a, b = pair(make_world, extended=extended, **ASKED, rnr_retry=1)
    for _ in range(2):
        a.send(b"knock")
    requests = give_all(world, a)
    give_all(world, b)
    world.advance(1 * MS)
    b.recv(8)
    for packet in requests:
        world.give(b.host, packet)
    assert "RNR" in [p.name for p in give_all(world, b)]
    assert a.poll() == [ok("SEND")]
    waited = world.expire(a)
    assert WAIT <= waited < WAIT + 1 * MS
    give_all(world, a)
    assert [p.name for p in give_all(world, b)] == ["RNR"]
    assert a.poll() == [failed("RNR_RETRY_EXC_ERR")]


@MODES
def test_each_request_may_be_refused(make_world: MakeWorld, extended: bool) -> None:
    """A READ in front, whose answer is lost, does not make one row of them."""
    world, a, b = pair(make_world, extended=extended, **ASKED, rnr_retry=1, timeout=20)
    a.read(8, b.host.memory(8))
    give_all(world, a)
    b.host.send_all()  # the answer
    for _ in range(3):
        a.send(b"knock")
        give_all(world, a)
        assert [p.name for p in give_all(world, b)] == ["RNR"]
        world.advance(2 * WAIT)
        b.recv(8)
        world.settle()
    assert a.state == "RTS"
    assert world.run()
    assert a.poll() == [ok("RDMA_READ")] + [ok("SEND")] * 3


@MODES
def test_other_data_gives_no_retries_back(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended, **ASKED, rnr_retry=1)
    target = b.host.memory(8)
    a.send(b"knock")
    for _ in range(100):
        a.write(b"x", target)
        world.settle()
        world.advance(100 * US)
    assert a.state == "ERR"
    assert a.stats()["rnr_rx"] == 2
