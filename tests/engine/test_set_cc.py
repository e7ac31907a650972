# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Another congestion-control algorithm while a QP runs."""

from __future__ import annotations

from typing import Any

import pytest

from datapath.native import ffi, lib
from tests.engine.algorithms import Witness, constant_cc
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import QP, US, Channel, S, World, ok, pattern

pytestmark = pytest.mark.san

BYTES = 400 * 1024
both_modes = pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])


def connected(make_world: MakeWorld, extended: bool) -> tuple[World, QP, QP]:
    world = make_world(extended=extended)
    return (world, *(world.extended_pair() if extended else world.pair()))


def set_cc(qp: QP, algo: Any) -> None:
    assert lib.dp_qp_set_cc(qp.qp, algo, qp.world.now) == 0


@both_modes
def test_a_larger_window_is_used_at_once(make_world: MakeWorld, extended: bool) -> None:
    """No acknowledgement has to come first; what is in flight counts in the new window."""
    _, a, b = connected(make_world, extended)
    small, large = constant_cc(4 * 1024, 0), constant_cc(10 * 1024, 0)
    set_cc(a, small[0])
    a.write(pattern(100 * 1024), b.host.memory(100 * 1024))
    assert len(a.host.send_all()) == 4
    set_cc(a, large[0])
    assert len(a.host.send_all()) == 6


@both_modes
def test_a_smaller_window_lets_nothing_out_until_it_has_room(
    make_world: MakeWorld, extended: bool
) -> None:
    world, a, b = connected(make_world, extended)
    small, large = constant_cc(4 * 1024, 0), constant_cc(10 * 1024, 0)
    set_cc(a, large[0])
    target = b.host.memory(100 * 1024)
    a.write(pattern(100 * 1024), target)
    flight = a.host.send_all()
    set_cc(a, small[0])
    assert a.host.send_all() == []
    assert lib.dp_qp_flow(a.qp).inflight_bytes == 10 * 1024
    for packet in flight:
        world.give(b.host, packet)
    assert world.run()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == pattern(100 * 1024)
    assert a.stats()["retransmits"] == 0


@both_modes
def test_the_old_rate_holds_nothing_back(make_world: MakeWorld, extended: bool) -> None:
    """At 1 kbit/s the next packet is due in 8 s: a new rate begins now."""
    world, a, b = connected(make_world, extended)
    slow, fast = constant_cc(1e9, 1e3), constant_cc(1e9, 1e10)
    set_cc(a, slow[0])
    begin = world.now
    a.write(pattern(BYTES), b.host.memory(BYTES))
    flight = a.host.send_all()
    assert len(flight) == 1
    world.give(b.host, flight[0])
    set_cc(a, fast[0])
    assert world.run(Channel(latency_ns=10 * US))
    assert a.poll() == [ok("RDMA_WRITE")]
    assert world.now - begin < 1 * S
    assert a.stats()["timeouts"] == 0


@both_modes
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_a_stream_survives_changes_all_the_way(
    make_world: MakeWorld, extended: bool, loss: float
) -> None:
    """Data is whole and complete once, without loss nothing is sent twice."""
    world, a, b = connected(make_world, extended)
    algorithms = [
        constant_cc(cwnd, rate)
        for cwnd, rate in [(1e9, 0), (1, 0), (3000, 1e8), (64 * 1024, 1e9), (1e9, 5e7)]
    ]
    choices = [algo for algo, _ in algorithms] + [ffi.NULL]
    target = b.host.memory(BYTES)
    for at in range(0, BYTES, 64 * 1024):
        length = min(64 * 1024, BYTES - at)
        a.write(pattern(BYTES)[at : at + length], (target.addr + at, target.key))
    count = 0

    def change() -> None:
        nonlocal count
        count += 1
        if count % 5 == 0:
            set_cc(a, choices[count // 5 % len(choices)])

    assert world.run(Channel(latency_ns=20 * US, loss=loss), limit_ns=100 * S, each=change)
    assert count > 100
    assert a.poll() == [ok("RDMA_WRITE")] * -(-BYTES // (64 * 1024))
    assert bytes(target) == pattern(BYTES)
    if not loss:
        assert (a.stats()["retransmits"], b.stats()["duplicates"]) == (0, 0)


def test_the_new_one_begins_with_what_is_known_of_the_path(ext: World) -> None:
    a, b = ext.extended_pair()
    a.write(pattern(BYTES), b.host.memory(BYTES))
    assert ext.run(Channel(latency_ns=100 * US))
    a.write(pattern(BYTES), b.host.memory(BYTES))
    sent = sum(len(packet.payload) for packet in a.host.send_all())
    witness = Witness(a)
    flow = witness.flow
    assert flow.min_rtt_ns == pytest.approx(200 * US, rel=0.05)
    assert flow.srtt_ns >= flow.min_rtt_ns
    assert flow.delivered_bytes == BYTES
    assert flow.inflight_bytes == sent > 0
    assert flow.now_ns == ext.now


def test_one_that_is_refused_changes_nothing(ext: World) -> None:
    a, _ = ext.extended_pair()
    good, bad = constant_cc(12345, 0), constant_cc(999, 0)
    set_cc(a, good[0])
    bad[0].abi -= 1
    assert lib.dp_qp_set_cc(a.qp, bad[0], ext.now) == -22
    assert lib.dp_qp_flow(a.qp).cwnd_bytes == 12345


def test_a_choice_made_before_the_connection_holds_for_it(ext: World) -> None:
    a, b = ext.pair()
    algo = constant_cc(7777, 0)
    a.to(lib.DP_QPS_RESET)
    set_cc(a, algo[0])
    assert a.to_init() == 0
    assert a.to_rtr(b, 100) == 0
    assert a.to_rts(100) == 0
    assert lib.dp_qp_flow(a.qp).cwnd_bytes == 7777
