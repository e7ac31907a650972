# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Plans in virtual time: as fast as links and workers allow, and equal each time."""

from __future__ import annotations

import numpy as np
import pytest

from datapath.cc import compile_algorithm
from datapath.collectives import check, make, registry
from datapath.collectives.make import Costs
from datapath.collectives.plan import Array, Op, Plan
from datapath.collectives.simulate import Node, schedule
from datapath.errors import LocalError, RunFailed
from datapath.fabric import flows as traffic
from datapath.fabric import steps as virtual
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, Loss
from datapath.fabric.sim_result import SimResult
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell, Rail, Star

pytestmark = [pytest.mark.san, pytest.mark.compute]

RATE = 10**9
GIGABIT = Link(rate_bps=RATE, delay_ns=5_000)


def simulated(
    plan: Plan, *, edge: Link = GIGABIT, iterations: int = 1, seed: int = 1
) -> tuple[Array, SimResult]:
    """(times in ns, the simulator's result) on a star."""
    scheduled = schedule(check(plan), iterations=iterations)
    network = Simulation(Star(max(plan.ranks, 2), edge, edge), seed=seed)
    result = network.run(scheduled.flows, steps=scheduled.steps)
    return scheduled.times_ns(result.step_ns), result


def planned(name: str, ranks: int, size: int, **arguments: object) -> Plan:
    return make(registry()[name], ranks, size, **arguments)  # type: ignore[arg-type]


def test_a_large_ring_has_the_links_rate() -> None:
    size = 4 << 20
    (took,), result = simulated(planned("ring", 4, size, transfer_bytes=65536))
    busbw = 2 * 3 / 4 * size * 8e9 / took
    assert 0.93 * RATE < busbw < RATE
    assert result.finished


def test_small_sizes_are_for_trees() -> None:
    times = {name: simulated(planned(name, 32, 1024))[0][0] for name in ("ring", "double_tree")}
    assert times["double_tree"] < times["ring"] / 2


def test_equal_runs_are_equal_and_collectives_follow_each_other() -> None:
    plan = planned("halving_doubling", 5, 50_000)
    times, result = simulated(plan, iterations=3)
    again, other = simulated(plan, iterations=3)
    assert (times == again).all()
    assert result.digest == other.digest
    assert len(times) == 3
    assert (times > 0).all()


def test_each_step_comes_after_those_that_it_waits_for() -> None:
    plan = planned("two_level", 8, 40_000, params={"per_node": 4}, channels=2, transfer_bytes=2048)
    _, result = simulated(plan)
    at = result.step_ns
    assert (at[plan.waits["on"]] <= at[plan.waits["step"]]).all()
    sends = plan.sends
    assert (at[plan.steps["match"][sends]] > 0).all()


def test_a_rank_works_on_one_step_after_the_other() -> None:
    """All reduce into one rank: its worker is what takes the time."""
    work = 3_000_000.0
    plan = planned("two_level", 5, 500, params={"per_node": 5}, costs=Costs(step_ns=work))
    (took,), _ = simulated(plan)
    reduces = (plan.steps["op"] == Op.REDUCE) & (plan.steps["rank"] == 0)
    copies = (plan.steps["op"] == Op.RECEIVE) & (plan.steps["rank"] == 0)
    assert took >= work * (reduces.sum() + copies.sum())
    assert took < work * (reduces.sum() + copies.sum()) + 1_000_000


def test_channels_take_the_links_of_a_rank() -> None:
    """Two NICs carry twice as much, each in proportion to what it is given."""
    plan = check(planned("ring", 4, 4 << 20, channels=2, transfer_bytes=65536))
    links = [[2 * rank, 2 * rank + 1] for rank in range(4)]
    scheduled = schedule(plan, hosts=links)
    result = Simulation(Rail(4, 2, 1, GIGABIT, GIGABIT)).run(scheduled.flows, steps=scheduled.steps)
    (took,) = scheduled.times_ns(result.step_ns)
    assert 2 * 3 / 4 * (4 << 20) * 8e9 / took > 1.85 * RATE


NODES = Rail(4, 4, 1, GIGABIT, GIGABIT)


def on_nodes(name: str, node: Node, **params: int) -> tuple[float, SimResult]:
    """(ns, result) of an allreduce of 1 MiB by four nodes of four ranks, each with a NIC."""
    plan = check(planned(name, 16, 1 << 20, params=params, transfer_bytes=65536))
    scheduled = schedule(plan, node=node)
    result = Simulation(NODES).run(scheduled.flows, steps=scheduled.steps)
    return float(scheduled.times_ns(result.step_ns)[0]), result


def test_ranks_of_a_node_send_each_other_nothing() -> None:
    """Two levels use the NICs of all ranks, a flat ring one NIC of each node."""
    shared = Node(4, byte_ns=8 / 400)
    flat, _ = on_nodes("ring", shared)
    two, result = on_nodes("two_level", shared, per_node=4)
    assert flat > 3 * two
    least = 2 * 3 / 4 * (1 << 20) * 8e9 / RATE / 4
    assert least < two < 1.25 * least
    carried = result.flows.rows["delivered_bytes"].sum()
    assert carried == 4 * 2 * 3 / 4 * (1 << 20) * 4 / 4


def test_a_copy_inside_a_node_takes_its_time() -> None:
    copies_ns = 2 * 3 / 4 * (1 << 20) * 100
    quick, _ = on_nodes("two_level", Node(4, byte_ns=0), per_node=4)
    slow, _ = on_nodes("two_level", Node(4, byte_ns=100), per_node=4)
    assert copies_ns < slow < copies_ns + 2 * quick


def test_nodes_that_make_no_sense_are_refused() -> None:
    plan = planned("ring", 6, 600)
    with pytest.raises(LocalError, match="6 ranks do not make nodes of 4"):
        schedule(plan, node=Node(4))
    with pytest.raises(LocalError, match="nothing is sent"):
        schedule(plan, node=Node(6))


def test_a_link_that_is_cut_ends_the_run() -> None:
    with pytest.raises(RunFailed, match=r"flow \d from host \d to \d failed, and steps wait"):
        simulated(planned("ring", 3, 3000), edge=Link(rate_bps=RATE, loss=Loss(good=1.0)))


def test_links_that_take_no_time_let_steps_go_on() -> None:
    """A flow that ends at the instant 0 has ended, and has not failed."""
    free = Link(rate_bps=0, delay_ns=0)
    (took,), result = simulated(planned("ring", 2, 1 << 20), edge=free)
    assert result.finished
    assert took >= 0
    assert all(result.flows.rows["finish_ns"] > 0)


def ring_over_a_slow_link(loss: float, seed: int) -> float:
    """Its bus bandwidth, bit/s: frames of 0.6 ms, so acknowledgements wait long behind data."""
    size, rate_bps = 64 << 20, RATE // 10
    lossy = Loss(good=loss) if loss else None
    link = Link(rate_bps=rate_bps, delay_ns=100_000, limit_bytes=256_000, loss=lossy)
    options = EngineOptions(path_mtu=4096, segment_max=7552, line_rate_bps=rate_bps)
    network = Simulation(Dumbbell(2, Link(), link, link), transport=options, seed=seed)
    scheduled = schedule(check(planned("ring", 4, size, transfer_bytes=65536)), iterations=2)
    result = network.run(scheduled.flows, compile_algorithm("vpc", {}), steps=scheduled.steps)
    return float(1.5 * size * 8e9 / scheduled.times_ns(result.step_ns).mean())


@pytest.mark.parametrize(("loss", "least"), [(0.01, 0.96), (0.05, 0.93)])
def test_a_ring_over_a_slow_link_keeps_its_rate_with_loss(loss: float, least: float) -> None:
    lossless = ring_over_a_slow_link(0, seed=1)
    for seed in (1, 2, 3):
        assert ring_over_a_slow_link(loss, seed) > least * lossless


def test_hundreds_of_ranks() -> None:
    plan = planned("halving_doubling", 256, 1 << 20, transfer_bytes=1 << 20)
    (took,), result = simulated(plan)
    assert result.finished
    assert took > 0


@pytest.mark.parametrize("what", ["kind", "flow", "host", "next", "after"])
def test_steps_that_make_no_sense_are_refused(what: str) -> None:
    scheduled = schedule(planned("ring", 2, 64))
    rows, after = scheduled.steps.rows.copy(), scheduled.steps.after.copy()
    if what == "after":
        after[0] = len(rows)
    else:
        rows[what][rows["kind"] == virtual.SEND] = 999
    made = virtual.Steps(rows, after, scheduled.steps.first)
    with pytest.raises(LocalError, match="refuses these steps"):
        Simulation(Star(2, GIGABIT, GIGABIT)).run(scheduled.flows, steps=made)


def test_flows_without_steps_begin_by_themselves() -> None:
    scheduled = schedule(planned("ring", 2, 64))
    more = traffic.empty(1)
    more["src"], more["dst"], more["bytes"], more["qp"] = 0, 1, 1000, 7
    result = Simulation(Star(2, GIGABIT, GIGABIT)).run(
        np.concatenate([scheduled.flows, more]), steps=scheduled.steps
    )
    assert result.finished
