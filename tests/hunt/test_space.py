# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Dimensions, the experiments they make, and the limits of these."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from datapath.experiment.load import load_text
from datapath.hunt import limits
from datapath.hunt.case import Setup, document, duration_ns, text
from datapath.hunt.space import SPACE, Dimension, Scale, causes, describe
from datapath.hunt.values import Log, parts_of, replaced
from datapath.lanes.shape import shape

SETUP = Setup("newreno")
SOURCE = Path("hunt.yaml")


def ends(dimension: Dimension, value: Any) -> list[Any]:
    """A value with each of its parts at each end of what it may be."""
    found = []
    for at, each in enumerate(parts_of(dimension.values)):
        for end in (each.low, each.high, each.mildest) if isinstance(each, Log) else each.options:
            found.append(replaced(value, at, end))
    return found


@pytest.mark.parametrize("dimension", SPACE, ids=lambda dimension: dimension.name)
def test_every_value_makes_an_experiment_that_can_be_simulated(dimension: Dimension) -> None:
    rng = random.Random(1)
    values = [dimension.values.draw(rng) for _ in range(5)]
    values += [dimension.values.mutate(value, rng) for value in values]
    for value in [*values, *ends(dimension, values[0])]:
        case = {dimension.name: value}
        (point,) = load_text(text(case, SETUP), SOURCE).points
        shape(point.spec.topology, point.spec.path)
        assert dimension.text(value)
        assert len(causes(case)) == 1
        asked = limits.limits(Scale(case), duration_ns(Scale(case)))
        assert all((limit.min or limit.max or 0) > 0 for limit in asked)


def test_dimensions_go_together() -> None:
    rng = random.Random(2)
    for _ in range(30):
        case = {d.name: d.values.draw(rng) for d in SPACE if rng.random() < 0.4}
        (point,) = load_text(text(case, SETUP), SOURCE).points
        shape(point.spec.topology, point.spec.path)


@pytest.mark.parametrize("dimension", SPACE, ids=lambda dimension: dimension.name)
def test_the_high_ends_of_two_dimensions_go_together(dimension: Dimension) -> None:
    rng = random.Random(3)
    for other in SPACE[SPACE.index(dimension) + 1 :]:
        case = {d.name: ends(d, d.values.draw(rng))[1] for d in (dimension, other)}
        load_text(text(case, SETUP), SOURCE)


def test_the_default_case() -> None:
    data = document({}, SETUP)
    assert data["topology"] == {"lane": "sim", "preset": "dumbbell", "hosts": 4, "mtu": 1500}
    assert data["path"] == {"rate": "1gbit", "delay": "100us", "queue": "25000B"}
    assert data["workload"]["kind"] == "stream"
    assert (describe({}), causes({})) == ("always", ())


def test_what_is_possible_is_the_line_less_headers_and_loss() -> None:
    """1408 of 1526 bytes are payload: 24 + 14 + 28 + 12 + 20 + 16 + 4 of headers."""
    line = 1e9 * 1408 / 1526
    assert limits.possible_bps(Scale({})) == pytest.approx(line)
    lossy = Scale({"loss": 0.1, "corrupt": 0.01})
    assert limits.possible_bps(lossy) == pytest.approx(line * 0.9 * 0.99)


def test_a_window_limits_what_is_possible() -> None:
    at = Scale({"window": 64, "rtt": 1e7})
    bits = 2 * 64 * 1408 * 8
    assert limits.possible_bps(at) == pytest.approx(bits / 1e-2, rel=0.01)


def test_a_trace_lets_through_what_it_says() -> None:
    at = Scale({"rate": 1e8, "buffer": 10, "trace": (0.1, 20)})
    data = document(at.case, SETUP)
    milliseconds = data["path"]["trace"]
    assert "rate" not in data["path"]
    assert milliseconds == sorted(milliseconds)
    assert milliseconds[-1] == 20
    assert len(milliseconds) * 1538 * 8 / 20e-3 == at.trace_bps
    assert at.trace_bps == pytest.approx(0.55e8, rel=0.03)
    assert limits.possible_bps(at) == pytest.approx(at.trace_bps * 1408 / 1526)


def test_what_a_trace_lets_go_at_once_has_to_wait_for_it() -> None:
    """81 packets in each millisecond, and room for 25 kB: the others leave nothing behind."""
    short = Scale({"trace": (1.0, 2)})
    assert short.trace_bps == pytest.approx(25_000 * 8000)
    assert Scale({"trace": (1.0, 2), "buffer": 10}).trace_bps == pytest.approx(1e9, rel=0.02)


@pytest.mark.parametrize(
    ("bound", "value", "score"),
    [
        ({"min": 100.0}, 50.0, 2.0),
        ({"min": 100.0}, 200.0, 0.5),
        ({"min": 100.0}, 0.0, limits.SCORE_MAX),
        ({"max": 100.0}, 150.0, 1.5),
        ({"max": 100.0}, 0.0, 0.0),
    ],
)
def test_scores(bound: dict[str, Any], value: float, score: float) -> None:
    assert limits.Limit(limits.STALL, "longest_stall", **bound).score(value) == score


def test_competing_flows_are_judged_both_ways() -> None:
    at = Scale({"competing": ("cubic", 2)})
    asked = [limit for limit in limits.limits(at, 1e9) if "fair_share" in limit.metric]
    assert [(limit.symptom, limit.metric, limit.min) for limit in asked] == [
        ("gives-way", "fair_share", 0.3333),
        ("pushes-aside", "competing_fair_share", 0.3333),
    ]
    assert not [limit for limit in limits.limits(at, 1e9) if limit.metric.startswith("rtt")]
