# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""When an algorithm is called without an event of its own: each round trip, and at its time."""

from __future__ import annotations

import itertools

import pytest

from datapath.native import ffi, lib
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, US, Channel, World, ok, pattern

pytestmark = pytest.mark.san

MTU = 1024


def test_once_in_a_round_trip(ext: World) -> None:
    """Windows of four packets: a call for each of them, and not for each acknowledgement."""
    a, b = ext.extended_pair()
    seen = Witness(a, cwnd_bytes=4 * MTU)
    a.write(pattern(40 * MTU), b.host.memory(40 * MTU))
    assert ext.run(Channel(latency_ns=100 * US))
    assert a.poll() == [ok("RDMA_WRITE")]
    assert len(seen.acks) >= len(seen.rounds)
    assert 8 <= len(seen.rounds) <= 12
    gaps = [y - x for x, y in zip(seen.rounds, seen.rounds[1:], strict=False)]
    assert set(gaps) <= {4 * MTU, 3 * MTU, 5 * MTU}


def test_at_the_time_that_it_set(ext: World) -> None:
    a, _ = ext.extended_pair()
    start = ext.now
    seen = Witness(
        a,
        wake_ns=start + 2 * MS,
        again=lambda now: now + 5 * MS if now < start + 12 * MS else 0,
    )
    a.write(b"x", ext.b_host.memory(8))
    ext.settle()
    ext.advance(100 * MS)
    late = [at - start for at in seen.wakes]
    assert [round(at / MS) for at in late] == [2, 7, 12]
    assert all(at >= 2 * MS for at in late)
    assert all(0 <= at % MS < 5 * US for at in late)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_never(ext: World, value: float) -> None:
    a, _ = ext.extended_pair()
    seen = Witness(a, wake_ns=ext.now + MS, again=lambda now: value)
    a.write(b"x", ext.b_host.memory(8))
    ext.settle()
    ext.advance(100 * MS)
    assert len(seen.wakes) == 1


def test_a_time_that_has_passed_does_not_stop_the_clock(ext: World) -> None:
    a, _ = ext.extended_pair()
    seen = Witness(a, wake_ns=1, again=lambda now: 1 if len(seen.wakes) < 100 else 0)
    a.write(b"x", ext.b_host.memory(8))
    ext.settle()
    ext.advance(MS)
    assert len(seen.wakes) == 100


def test_a_qp_in_error_is_not_called(ext: World) -> None:
    a, _ = ext.extended_pair()
    seen = Witness(a, wake_ns=ext.now + MS, again=lambda now: now + MS)
    a.write(b"x", ext.b_host.memory(8))
    ext.settle()
    ext.advance(3 * MS)
    before = len(seen.wakes)
    assert before > 0
    attr = ffi.new("struct dp_qp_attr *", {"state": lib.DP_QPS_ERR})
    assert lib.dp_qp_modify(a.qp, attr, lib.DP_QP_STATE, ext.now) == 0
    ext.advance(10 * MS)
    assert len(seen.wakes) == before


def test_qps_of_a_lower_rank_send_first(make_world: MakeWorld) -> None:
    """And QPs of one rank in turn."""
    rank = [2] * 64
    rank[46], rank[10] = 0, 1
    world = make_world(extended=True, rank_of_dscp=rank)
    pairs = [world.extended_pair(dscp=dscp) for dscp in (0, 10, 46, 0)]
    name = {b.qpn: index for index, (_, b) in enumerate(pairs)}
    for a, b in pairs:
        a.write(pattern(20 * MTU), b.host.memory(20 * MTU))
    sent = [(name[p.dest_qpn], p.tos >> 2) for p in world.a_host.send_all()]
    assert sent[:20] == [(2, 46)] * 20
    assert sent[20:40] == [(1, 10)] * 20
    rest = [who for who, _ in sent[40:]]
    assert sorted(rest) == [0] * 20 + [3] * 20
    assert [who for who, _ in itertools.groupby(rest)][:3] == [0, 3, 0]


def test_a_rank_that_is_none_is_refused(make_world: MakeWorld) -> None:
    with pytest.raises(AssertionError, match="errno 22"):
        make_world(rank_of_dscp=[8])
