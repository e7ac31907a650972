# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The measurement of the emulator from outside: what it measures, not how good it is here."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from datapath.cli import fabric, main
from datapath.errors import LocalError, RunFailed
from datapath.lanes import accuracy
from datapath.lanes.accuracy import Spread, measure
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology

pytestmark = pytest.mark.usefixtures("root")


def test_a_link_is_never_early_and_never_too_fast() -> None:
    report = measure(50_000_000, 200_000, mtu=1500, packets=40, seconds=1)
    assert report.delay_error.n == report.without.n == 40
    assert report.delay_error.p50 >= 0
    assert report.without.p50 > 0
    # An interval may begin right before a frame and end right behind one.
    assert report.rate_error < 0.01
    assert 0 < report.marked_share <= 1
    assert report.late_p50_ns <= report.late_p99_ns <= report.late_max_ns
    told = json.loads(json.dumps(report.as_dict()))
    assert told["rate_error"] == report.rate_error
    assert told["delay_error"]["n"] == 40


def test_the_table_names_what_was_asked_for() -> None:
    result = CliRunner().invoke(
        fabric.app,
        ["accuracy", "--rate", "20mbit", "--delay", "1ms", "--packets", "5", "--seconds", "1"],
    )
    assert result.output.startswith("20mbit, 1ms each way, MTU 9000, 5 packets")


def test_packets_that_a_long_link_holds_at_the_end_count() -> None:
    """All of them are on their way when the last one leaves."""
    report = measure(20_000_000, 200_000_000, mtu=1500, packets=20, seconds=1)
    assert report.delay_error.n == 20
    assert report.delay_error.p50 >= 0
    assert report.rate_error < 0.01


def test_packets_on_an_idle_link_do_not_wait_for_each_other() -> None:
    with NetnsNetwork(Topology(mtu=1280), "fabric") as network:
        network.set_path(Path(rate=1_000_000), seed=1)
        delays = accuracy._delays(network, 40, 0, 224 * 8e3)
        assert len(delays) == 40
        assert network.queue_peaks()["forward"] < 2 * 224


def test_a_slow_link_marks() -> None:
    report = measure(1_000_000, 0, mtu=1280, packets=5, seconds=1)
    assert report.marked_share > 0


def test_a_rate_that_is_too_low_to_be_measured_is_refused() -> None:
    with pytest.raises(LocalError, match="take too long at 1kbit") as caught:
        measure(1000, 0, mtu=1280)
    assert "421760bit at least" in caught.value.hint


@pytest.mark.parametrize(
    ("command", "option", "value", "said"),
    [
        ("accuracy", "--rate", "fast", "'fast' is not a bit rate"),
        ("accuracy", "--rate", "1bit", "'1bit': it should be at least 1kbit"),
        ("accuracy", "--delay", "20s", "'20s': it should be at most 10s"),
        ("accuracy", "--mtu", "10", "'10': it should be at least 1280"),
        ("wakeup", "--rate", "1bit", "'1bit': it should be at least 1kbit"),
        ("wakeup", "--delay", "20s", "'20s': it should be at most 10s"),
    ],
)
def test_quantities_out_of_range_are_usage_errors(
    command: str, option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fabric", command, option, value]) == 2
    assert f"error: Invalid value for {option}: {said}" in capsys.readouterr().err


def test_a_spread_needs_a_sample() -> None:
    with pytest.raises(RunFailed, match="no packet arrived"):
        Spread.of([])
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(3, 2.0, 2.0, 3.0, 3.0)
