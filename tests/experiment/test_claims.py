# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Claims: medians, ratios paired by block, and that missing data is never a success.

The records below are inputs of the arithmetic under test; nothing was measured.
"""

from __future__ import annotations

import pytest

from datapath.experiment.claims import Verdict, evaluate
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
