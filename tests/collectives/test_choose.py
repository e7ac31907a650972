# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The chooser takes what is best, or nearly so, at sizes that it has not measured."""

from __future__ import annotations

import pytest

from datapath.collectives import check, registry
from datapath.collectives.choose import SIZES, Chooser, Fit, Terms, around, candidates, measure
from datapath.collectives.plan import Plan
from datapath.collectives.simulate import schedule
from datapath.errors import LocalError
from datapath.fabric.links import Link
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell, Star, Topology

pytestmark = pytest.mark.compute

GIGABIT = Link(rate_bps=10**9, delay_ns=5_000)
LONG = Link(rate_bps=10**9, delay_ns=100_000)
FAST = Link(rate_bps=10**10, delay_ns=1_000)
NETWORKS: dict[str, Topology] = {
    "star": Star(8, GIGABIT, GIGABIT),
    "dumbbell": Dumbbell(2, FAST, LONG),
}
UNMEASURED = [3 << k for k in range(9, 26, 3)] + [1 << 10, 64 << 20]
WITHIN = 1.05


def simulated_ns(network: Topology, plan: Plan) -> float:
    """Of the second of two collectives."""
    scheduled = schedule(check(plan), iterations=2)
    result = Simulation(network, seed=1).run(scheduled.flows, steps=scheduled.steps)
    return float(scheduled.times_ns(result.step_ns)[1])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_choice_is_within_a_few_percent_of_the_best(name: str) -> None:
    network = NETWORKS[name]
    ranks = network.graph().hosts
    chooser = measure("allreduce", ranks, lambda plan: simulated_ns(network, plan))
    assert len(chooser.fits) == len(candidates("allreduce", ranks)) > 3
    for size in UNMEASURED:
        took = {
            fit.algorithm: simulated_ns(
                network, Terms().plan(registry()[fit.algorithm], ranks, size)
            )
            for fit in chooser.fits
        }
        chosen = took[chooser.best(size).algorithm]
        assert chosen <= WITHIN * min(took.values()), (size, chooser.best(size).algorithm, took)


def test_no_algorithm_is_best_everywhere() -> None:
    """Else a choice would be none."""
    network = NETWORKS["star"]
    chooser = measure("allreduce", 8, lambda plan: simulated_ns(network, plan))
    assert len({chooser.best(1 << k).algorithm for k in range(10, 27)}) > 1


def test_pieces_go_through_what_was_measured() -> None:
    fit = Fit("ring", (1000, 2000, 4000), (10.0, 20.0, 80.0))
    assert [fit.time_ns(size) for size in fit.sizes] == pytest.approx(fit.times_ns)
    assert fit.piece(1500) == pytest.approx((0.0, 0.01))
    assert fit.piece(3000) == pytest.approx((-40.0, 0.03))
    assert fit.time_ns(8000) == pytest.approx(200.0)
    assert Fit("ring", (1000,), (10.0,)).time_ns(5) == 10.0


def test_ties_go_by_name() -> None:
    fits = tuple(Fit(name, (1, 2), (1.0, 1.0)) for name in ("ring", "double_tree"))
    assert Chooser("allreduce", fits).best(1).algorithm == "double_tree"
    assert "ring" in Chooser("allreduce", fits).words(1)


def test_measuring_ends_when_it_takes_too_long() -> None:
    """And where there is nothing to choose it does not begin."""
    tried: list[int] = []

    def time_of(plan: Plan) -> float:
        tried.append(plan.data_bytes)
        return 1e9

    chooser = measure("broadcast", 4, time_of, patience_ns=1e9)
    assert tried == [SIZES[0]] * 2
    assert {fit.sizes for fit in chooser.fits} == {SIZES[:1]}
    tried.clear()
    for collective, ranks in (("alltoall", 4), ("allreduce", 1)):
        assert measure(collective, ranks, time_of).best(100).algorithm
    assert not tried


def test_only_algorithms_that_fit_are_candidates() -> None:
    assert "two_level" not in {one.name for one in candidates("allreduce", 5)}
    assert {one.name for one in candidates("broadcast", 5)} == {"chain", "tree"}
    with pytest.raises(LocalError, match="no collective 'allsum'"):
        candidates("allsum", 4)


def test_terms_that_no_algorithm_can_have_are_told() -> None:
    terms = Terms(more={"channels": 2, "shares": [3, 1, 1]})
    for ranks in (1, 4):
        with pytest.raises(LocalError, match="there are 2 channels, each with a share above 0"):
            measure("allreduce", ranks, lambda plan: 1.0, terms=terms)


@pytest.mark.parametrize(
    ("size", "measured"),
    [(1, SIZES[:2]), (SIZES[1], SIZES[1:3]), (SIZES[1] - 1, SIZES[:2]), (1 << 40, SIZES[-2:])],
)
def test_sizes_around(size: int, measured: tuple[int, int]) -> None:
    assert around(size) == measured
