# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Completion queues: capacity, overrun, events."""

from __future__ import annotations

import pytest

from datapath.native import ffi, lib
from tests.engine.ladder import QP, World, ok

pytestmark = pytest.mark.san


def messages(world: World, a: QP, b: QP, count: int, **options: bool) -> None:
    for _ in range(count):
        b.recv(8)
        a.send(b"x", **options)
    world.settle()


def test_poll_takes_the_oldest_first_and_no_more_than_asked(world: World) -> None:
    a, b = world.pair()
    messages(world, a, b, 5)
    ids = [c.wr_id for c in a.poll(most=2) + a.poll(most=2) + a.poll(most=2)]
    assert ids == sorted(i for i in ids if i is not None)
    assert len(ids) == 5
    assert a.poll() == []


def test_a_queue_holds_what_it_was_made_for(world: World) -> None:
    a, b = world.pair(cq_entries=4)
    assert lib.dp_cq_entries(a.send_cq) >= 4
    messages(world, a, b, 4)
    assert len(b.poll_recv()) == 4
    assert len(a.poll()) == 4
    assert a.host.events() == []


def test_overrun_is_told_and_does_no_damage(world: World) -> None:
    a, b = world.pair(cq_entries=4)
    entries = lib.dp_cq_entries(a.send_cq)
    messages(world, a, b, entries + 3)
    assert "CQ_OVERRUN" in a.host.events()
    out = ffi.new("struct dp_wc[64]")
    assert lib.dp_cq_poll(a.send_cq, 64, out) <= entries


def test_each_overrun_is_told_once(world: World) -> None:
    a, b = world.pair(cq_entries=4)
    target = b.host.memory(8)
    for _ in range(2):
        for _ in range(6):
            a.write(b"x", target)
        world.settle()
        assert a.host.events() == ["CQ_OVERRUN"]
        a.write(b"x", target)
        world.settle()
        assert a.host.events() == []
        assert len(a.poll()) == 4


def test_resize(world: World) -> None:
    a, b = world.pair(cq_entries=4)
    messages(world, a, b, 3)
    assert lib.dp_cq_resize(a.send_cq, 2) < 0, "three completions wait in it"
    assert lib.dp_cq_resize(a.send_cq, 64) == 0
    assert lib.dp_cq_entries(a.send_cq) >= 64
    messages(world, a, b, 1)
    assert a.poll() == [ok("SEND")] * 4


@pytest.mark.parametrize("entries", [0, 2**31])
def test_sizes_that_make_no_sense(world: World, entries: int) -> None:
    out = ffi.new("struct dp_cq **")
    status = lib.dp_cq_create(world.a_host.engine, entries, ffi.NULL, out)
    if status == 0:
        world.a_host.cqs.append(out[0])
        assert lib.dp_cq_entries(out[0]) >= entries
    else:
        assert status in (-22, -12)


def test_an_unarmed_queue_raises_no_event(world: World) -> None:
    a, b = world.pair()
    messages(world, a, b, 1)
    assert "CQ" not in b.host.events()


def test_arming_gives_one_event(world: World) -> None:
    a, b = world.pair()
    lib.dp_cq_arm(b.recv_cq, False)
    messages(world, a, b, 3)
    assert b.host.events().count("CQ") == 1
    messages(world, a, b, 1)
    assert b.host.events() == []
    lib.dp_cq_arm(b.recv_cq, False)
    messages(world, a, b, 1)
    assert b.host.events() == ["CQ"]


def test_the_event_names_its_queue(world: World) -> None:
    a, b = world.pair()
    lib.dp_cq_arm(a.send_cq, False)
    messages(world, a, b, 1)
    out = ffi.new("struct dp_event *")
    assert lib.dp_engine_event(a.host.engine, out)
    assert (out.type, out.cq) == (lib.DP_EVENT_CQ, a.send_cq)


def test_solicited_events_only(world: World) -> None:
    a, b = world.pair()
    b.host.events()
    lib.dp_cq_arm(b.recv_cq, True)
    messages(world, a, b, 2)
    assert "CQ" not in b.host.events()
    messages(world, a, b, 1, solicited=True)
    assert b.host.events() == ["CQ"]


def test_a_failed_completion_counts_as_solicited(world: World) -> None:
    _, b = world.pair()
    b.recv(8)
    lib.dp_cq_arm(b.recv_cq, True)
    assert b.to(lib.DP_QPS_ERR) == 0
    assert "CQ" in b.host.events()


US = 1000


def test_an_event_waits_for_a_number_of_completions(world: World) -> None:
    a, b = world.pair()
    lib.dp_cq_moderate(b.recv_cq, 3, 0)
    for _ in range(2):
        lib.dp_cq_arm(b.recv_cq, False)
        messages(world, a, b, 2)
        assert "CQ" not in b.host.events()
        messages(world, a, b, 1)
        assert b.host.events().count("CQ") == 1
        messages(world, a, b, 3)
        assert "CQ" not in b.host.events(), "it is not armed"


def test_an_event_waits_for_a_time_at_most(world: World) -> None:
    a, b = world.pair()
    lib.dp_cq_moderate(b.recv_cq, 100, 50)
    lib.dp_cq_arm(b.recv_cq, False)
    world.advance(1000 * US)
    assert "CQ" not in b.host.events(), "the time begins with a completion"
    messages(world, a, b, 1)
    world.advance(40 * US)
    assert "CQ" not in b.host.events()
    world.advance(11 * US)
    assert b.host.events() == ["CQ"]
    messages(world, a, b, 1)
    world.advance(1000 * US)
    assert b.host.events() == [], "it is not armed"


def test_a_time_alone(world: World) -> None:
    a, b = world.pair()
    lib.dp_cq_moderate(b.recv_cq, 0, 50)
    lib.dp_cq_arm(b.recv_cq, False)
    messages(world, a, b, 7)
    assert "CQ" not in b.host.events()
    world.advance(51 * US)
    assert b.host.events() == ["CQ"]


def test_a_full_queue_waits_for_no_more(world: World) -> None:
    a, b = world.pair(cq_entries=4)
    room = lib.dp_cq_entries(b.recv_cq)
    lib.dp_cq_moderate(b.recv_cq, 1000, 0)
    lib.dp_cq_arm(b.recv_cq, False)
    messages(world, a, b, room - 1)
    assert "CQ" not in b.host.events()
    a.poll()
    messages(world, a, b, 1)
    assert "CQ" in b.host.events()


def test_only_solicited_completions_are_counted(world: World) -> None:
    a, b = world.pair()
    b.host.events()
    lib.dp_cq_moderate(b.recv_cq, 2, 0)
    lib.dp_cq_arm(b.recv_cq, True)
    messages(world, a, b, 5)
    messages(world, a, b, 1, solicited=True)
    assert "CQ" not in b.host.events()
    messages(world, a, b, 1, solicited=True)
    assert b.host.events() == ["CQ"]


@pytest.mark.parametrize(("count", "period_us"), [(0, 0), (9, 0), (0, 9)])
def test_an_event_that_waits_is_raised_when_the_rule_changes(
    world: World, count: int, period_us: int
) -> None:
    a, b = world.pair()
    lib.dp_cq_moderate(b.recv_cq, 100, 1000)
    lib.dp_cq_arm(b.recv_cq, False)
    messages(world, a, b, 1)
    lib.dp_cq_moderate(b.recv_cq, count, period_us)
    assert b.host.events().count("CQ") == 1
    world.advance(2000 * US)
    assert b.host.events() == []


def test_a_queue_goes_while_its_event_waits(world: World) -> None:
    a, b = world.pair()
    lib.dp_cq_moderate(b.recv_cq, 100, 50)
    lib.dp_cq_arm(b.recv_cq, False)
    messages(world, a, b, 1)
    b.destroy()
    b.host.cqs.remove(b.recv_cq)
    assert lib.dp_cq_destroy(b.recv_cq) == 0
    world.advance(100 * US)


def test_one_queue_for_many_queue_pairs(world: World) -> None:
    """Completions carry the number of their queue pair."""
    host = world.a_host
    shared = host.make_cq()
    pairs = [world.pair(a_psn=100), world.pair(a_psn=900)]
    config = ffi.new("struct dp_qp_config *")
    config.pd, config.send_cq, config.recv_cq = host.pd, shared, shared
    config.max_send_wr = config.max_recv_wr = 4
    out = ffi.new("struct dp_qp **")
    assert lib.dp_qp_create(host.engine, config, out) == 0
    numbers = {lib.dp_qp_qpn(out[0]), *(a.qpn for a, _ in pairs)}
    assert len(numbers) == 3
    assert lib.dp_cq_destroy(shared) == -16
    assert lib.dp_qp_destroy(out[0]) == 0
