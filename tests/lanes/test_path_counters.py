# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""When a run counts as emulated, and what marks it when it does not."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from datapath.experiment.counters import path_metrics
from datapath.fabric.emulation import allowed_lateness_ns
from datapath.lanes.base import PathCounters


def counters(*, starved: int = 0, late_ns: int = 10_000, allowed_ns: int = 100_000) -> PathCounters:
    both = {"forward": 0, "backward": 0}
    return PathCounters(
        passed={"forward": 10, "backward": 5},
        starved={**both, "backward": starved},
        late_p99_ns={"forward": late_ns, "backward": 7},
        late_allowed_ns=dict.fromkeys(both, allowed_ns),
    )


@pytest.mark.parametrize(
    ("delay_ns", "allowed_ns"), [(0, 100_000), (100_000, 100_000), (10_000_000, 2_000_000)]
)
def test_long_delays_allow_more(delay_ns: int, allowed_ns: int) -> None:
    assert allowed_lateness_ns(delay_ns) == allowed_ns


def test_a_run_in_time_has_no_limit() -> None:
    assert counters().limit() == ""
    assert counters(late_ns=100_000).limit() == ""
    assert PathCounters(passed={"forward": 3}).limit() == ""  # no emulator


def test_late_frames_limit_a_run() -> None:
    text = counters(late_ns=150_000).limit()
    assert text == "CPU-limited: 1% of the forward frames left more than 150 us late"


def test_starved_frames_limit_a_run() -> None:
    assert counters(starved=3).limit().startswith("CPU-limited: 3 backward frames came while")


@pytest.mark.parametrize("limited", [False, True])
def test_metrics_tell_the_worse_direction(limited: bool) -> None:
    found = {m.name: m.value for m in path_metrics(asdict(counters()), limited=limited)}
    assert found == {
        "path_passed": 15.0,
        "path_late_p99": 10_000.0,
        "path_cpu_limited": float(limited),
    }


def test_a_path_without_an_emulator_has_no_such_metrics() -> None:
    found = path_metrics(asdict(PathCounters(passed={"forward": 1, "backward": 0})))
    assert [m.name for m in found] == ["path_passed"]
