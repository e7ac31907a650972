# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Claims: medians, ratios paired by block, and that missing data is never a success.

The records below are inputs of the arithmetic under test; nothing was measured.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import pytest

from datapath import stats
from datapath.experiment.claims import Verdict, evaluate
from datapath.experiment.load import load_text
from datapath.experiment.store import RunRecord

from .conftest import Load


def record(block: int, value: float | None, metric: str = "goodput", **axes: str) -> RunRecord:
    values = {"test": "bandwidth", "stack": "dp-afxdp", "path.loss": "0"}
    values |= {key.replace("loss", "path.loss"): text for key, text in axes.items()}
    metrics = [] if value is None else [{"name": metric, "value": value, "unit": "bit/s"}]
    return RunRecord(
        point="-".join(values.values()),
        repetition=block,
        block=block,
        axes=values,
        seed=0,
        status="failed" if value is None else "ok",
        started="2025-01-01T00:00:00.000+00:00",
        seconds=1.0,
        spec={},
        metrics=metrics,
    )


def verdict(load: Load, records: list[RunRecord]) -> Verdict:
    return evaluate(load(), records)[0]


def test_ratios_are_taken_within_blocks(load: Load) -> None:
    # Block 1 was four times slower as a whole; the ratio does not see it.
    records = [record(0, 100.0), record(1, 25.0), record(2, 100.0)]
    records += [record(0, 95.0, loss="1%"), record(1, 24.0, loss="1%"), record(2, 97.0, loss="1%")]
    result = verdict(load, records)
    assert result.measured == pytest.approx(0.96)
    assert list(result.interval) == pytest.approx([0.95, 0.97])
    assert (result.passed, result.reason, result.n, result.unit) == (True, "", 3, "1")


def test_a_ratio_below_its_bound_fails(load: Load) -> None:
    result = verdict(load, [record(0, 100.0), record(0, 50.0, loss="1%")])
    assert (result.passed, result.measured, result.reason) == (False, 0.5, "below min")
    assert result.interval == (None, None)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "no run matches stack=dp-afxdp, path.loss=1%"),
        ([record(0, None, loss="1%")], "all 1 runs with stack=dp-afxdp, path.loss=1% failed"),
        ([record(0, 1.0, "timeouts", loss="1%")], "have no metric goodput"),
        ([record(0, 1.0, loss="1%")], "no run matches stack=dp-afxdp, path.loss=0"),
        ([record(0, 1.0, loss="1%"), record(1, 1.0)], "no block has both sides of the ratio"),
        ([record(0, 1.0, loss="1%"), record(0, 0.0)], "the reference is zero"),
    ],
)
def test_missing_data_fails_and_says_why(load: Load, records: list[RunRecord], reason: str) -> None:
    result = verdict(load, records)
    assert not result.passed
    assert result.measured is None
    assert reason in result.reason


def test_failed_runs_are_mentioned_though_the_rest_suffices(load: Load) -> None:
    records = [
        record(0, 1.0),
        record(0, 1.0, loss="1%"),
        record(1, None),
        record(1, 1.0, loss="1%"),
    ]
    result = verdict(load, records)
    assert result.passed
    assert result.reason == "1 of 2 runs with stack=dp-afxdp, path.loss=0 failed"


def test_absolute_bounds_are_in_the_unit_of_the_metric(load: Load) -> None:
    records = [record(block, 9_000.0 + block, "latency_p50") for block in range(3)]
    result = evaluate(load(), records)[1]
    assert (result.measured, result.bound, result.unit) == (9001.0, {"max": 10_000.0}, "ns")
    assert result.passed


def test_the_same_data_gives_the_same_interval(load: Load) -> None:
    records = [record(b, 100.0 + 3 * b) for b in range(9)]
    records += [record(b, 95.0 + b, loss="1%") for b in range(9)]
    assert verdict(load, records) == verdict(load, list(reversed(records)))


# --- several points ----------------------------------------------------------------------------


def test_points_are_no_repetitions(load: Load) -> None:
    """One run of each of six points, all alike, is one repetition."""
    records = [record(0, 8e3, "latency_p50", loss=f"{i}%") for i in range(6)]
    result = evaluate(load(), records)[1]
    assert (result.n, result.passed, result.shown, result.more) == (1, True, False, 5)
    assert result.doubt == "n = 1 of each point is too few, 6 are needed"


def test_a_block_without_a_run_of_each_point_does_not_count(load: Load) -> None:
    """As after further repetitions for another claim, which is about some of the points."""
    records = [record(b, 9e3, "latency_p50", loss=loss) for b in range(6) for loss in ("0", "1%")]
    records += [record(b, 1e3, "latency_p50") for b in range(6, 20)]
    result = evaluate(load(), records)[1]
    assert (result.n, result.measured, result.shown) == (6, 9e3, True)


def test_a_ratio_is_formed_point_by_point(load: Load) -> None:
    """Each test keeps half of its goodput; between the tests there are orders of magnitude."""
    experiment = load("where: {stack: dp-afxdp, path.loss: 1%}", "where: {path.loss: 1%}")
    records = [
        record(block, value * share, test=test, loss=loss)
        for block in range(6)
        for test, value in (("bandwidth", 100.0), ("latency", 1.0))
        for loss, share in (("0", 1.0), ("1%", 0.5))
    ]
    records = [r for r in records if r.point != "latency-dp-afxdp-0" or r.block]
    result = evaluate(experiment, records)[0]
    assert (result.measured, result.interval, result.n) == (0.5, (0.5, 0.5), 5)


# --- runs without the metric -------------------------------------------------------------------


def without(block: int, metric: str = "message_rate", value: float = 1.0) -> RunRecord:
    """A run that went well and has another metric only."""
    return record(block, value, metric)


def test_runs_without_the_metric_are_named_and_show_nothing(load: Load) -> None:
    records = [record(block, 8e3, "latency_p50") for block in range(7)]
    assert evaluate(load(), records)[1].shown
    result = evaluate(load(), [*records, without(7)])[1]
    told = "1 of 8 runs with stack=dp-afxdp have no latency_p50"
    assert (result.passed, result.shown, result.more, result.n) == (True, False, None, 7)
    assert (result.reason, result.doubt) == (told, told)


def test_a_median_that_half_of_the_runs_lack_is_not_known(load: Load) -> None:
    records = [record(block, 8e3, "latency_p50") for block in range(6)]
    result = evaluate(load(), [*records, *(without(block) for block in range(6, 12))])[1]
    assert (result.passed, result.measured, result.more) == (False, None, None)
    told = "6 of 12 runs with stack=dp-afxdp have no latency_p50"
    assert result.reason == f"the median is not known; {told}"


def test_a_side_of_a_ratio_that_lacks_the_metric_is_named(load: Load) -> None:
    records = [record(block, 1.0, loss=loss) for block in range(7) for loss in ("0", "1%")]
    lacking = [*records, record(7, 1.0, loss="1%"), without(7)]
    result = verdict(load, lacking)
    assert (result.passed, result.shown, result.n) == (True, False, 7)
    assert result.reason == "1 of 8 runs with stack=dp-afxdp, path.loss=0 have no goodput"


INCAST = """\
version: 1
name: incast
topology: {lane: sim, preset: star, hosts: 3}
path: {rate: 1gbit, delay: 10us}
workload: {kind: incast, size: 64KiB}
report: {expect: [{metric: fct_p99, max: 10us}]}
"""


def test_times_of_flows_that_finished_do_not_speak_for_those_that_did_not() -> None:
    experiment = load_text(INCAST, Path("incast.yaml"))
    records = [record(block, 8e3, "fct_p99") for block in range(6)]
    for record_ in records:
        record_.metrics.append({"name": "unfinished_share", "value": 0.0, "unit": "1"})
    assert evaluate(experiment, records)[0].shown
    records[2].metrics[-1]["value"] = 0.1
    result = evaluate(experiment, records)[0]
    assert (result.passed, result.shown, result.more) == (True, False, None)
    told = "fct_p99 leaves out flows that did not finish, in 1 of 6 runs with any point"
    assert (result.reason, result.doubt) == (told, told)


# --- three verdicts ----------------------------------------------------------------------------


def of_latency(load: Load, values: list[float], more: str = "") -> Verdict:
    """The verdict on `latency_p50` at most 10 us, for runs with these values in us."""
    records = [record(i, value * 1e3, "latency_p50") for i, value in enumerate(values)]
    return evaluate(load("max: 10us", f"max: 10us{more}"), records)[1]


def test_a_claim_is_shown_when_its_interval_is_beyond_the_bound(load: Load) -> None:
    result = of_latency(load, [8.0, 8.1, 8.2, 8.3, 8.4, 8.5])
    assert (result.passed, result.shown, result.doubt, result.more) == (True, True, "", 0)


def test_an_interval_that_reaches_the_bound_shows_nothing(load: Load) -> None:
    result = of_latency(load, [8.0, 9.0, 9.5, 9.6, 11.0, 12.0])
    assert (result.passed, result.shown) == (True, False)
    assert result.doubt == "the interval reaches the bound"
    assert result.more is not None
    assert result.more > 6


def test_few_runs_show_nothing_however_clear_they_are(load: Load) -> None:
    for n in range(1, stats.FEWEST):
        result = of_latency(load, [1.0] * n)
        assert (result.passed, result.shown, result.more) == (True, False, stats.FEWEST - n)
        assert f"n = {n} is too few" in result.doubt
    assert of_latency(load, [1.0] * stats.FEWEST).shown


def test_a_failure_may_be_undecided_too(load: Load) -> None:
    result = of_latency(load, [8.0, 9.0, 10.1, 10.2, 11.0, 12.0])
    assert (result.passed, result.doubt) == (False, "the interval reaches the bound")
    assert result.more is None or result.more > 0
    assert of_latency(load, [20.0] * 6).more == 0


def test_a_median_on_its_bound_is_never_decided(load: Load) -> None:
    result = of_latency(load, [8.0, 9.0, 10.0, 10.0, 11.0, 12.0])
    assert (result.passed, result.shown, result.more) == (True, False, None)


def test_a_claim_may_ask_to_be_shown(load: Load) -> None:
    result = of_latency(load, [8.0, 9.0, 9.5, 9.6, 11.0, 12.0], ", shown: true")
    assert (result.passed, result.reason) == (False, "it has to be shown, and is not")
    assert of_latency(load, [8.0] * 6, ", shown: true").passed


def test_no_data_asks_for_no_repetitions(load: Load) -> None:
    result = of_latency(load, [])
    assert (result.passed, result.shown, result.more) == (False, False, None)


@pytest.mark.parametrize(("runs", "missed"), [(4, 2 / 16), (8, 2 / 256), (20, 0.0414)])
def test_as_many_repetitions_as_are_told_mostly_decide(runs: int, missed: float) -> None:
    """Of normal noise whose median and spread were measured right: 80 %, and not only half.

    missed: how often the interval of so many runs misses their median.
    """
    deviation = NormalDist().inv_cdf(1 - missed / 2)
    bound, half_width = 0.95, deviation * 1.2533 * 0.1 / math.sqrt(runs)
    estimate = stats.Estimate(1.0, 1 - half_width, 1 + half_width)
    n = int(stats.values_to_decide(estimate, runs, bound))
    rng = stats.rng(1, "noise")
    trials = [stats.median_interval(rng.normal(1.0, 0.1, n)) for _ in range(400)]
    assert 0.7 < sum(trial.lo > bound for trial in trials) / len(trials) < 0.9
