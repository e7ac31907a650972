# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The measurement of late wake-ups: what it measures, not how late programs are here."""

from __future__ import annotations

import json
from pathlib import Path as FilePath

import pytest
from typer.testing import CliRunner

from datapath.cli import fabric
from datapath.errors import RunFailed
from datapath.lanes import wakeup
from datapath.lanes.spec import Path, Topology

LINK = Path(rate=10**9, delay=100_000)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("scheduling", ["realtime", "ordinary"])
def test_every_kind_of_sleep_is_measured(scheduling: str) -> None:
    topology = Topology.model_validate({"scheduling": scheduling, "keep_awake": False})
    report = wakeup.measure(topology, LINK, gap_ns=200_000, size=64, seconds=1)
    assert report.scheduling == scheduling or report.trouble
    assert report.kept_awake == 0
    for delays in (report.packet, report.timer):
        assert delays == sorted(delays)
        assert 0 < delays[0] < delays[-1]
    assert list(report.emulator.values()) == sorted(report.emulator.values())


@pytest.mark.usefixtures("root")
def test_what_is_written_is_a_value_of_the_key(tmp_path: FilePath) -> None:
    file = tmp_path / "late.json"
    words = ["wakeup", "--out", str(file), "--seconds", "1", "--gap", "300us", "--size", "100"]
    result = CliRunner().invoke(fabric.app, words)
    assert result.exit_code == 0, result.output
    assert "after a packet" in result.output
    assert json.loads(file.read_text())["about"]["samples"]["timer"] > 100
    context = {"folder": str(tmp_path)}
    section = {"lane": "sim", "wakeup": "./late.json"}
    late = Topology.model_validate(section, context=context).wakeup
    assert late is not None
    assert 0 < late.timer["p50"] <= late.timer["p99"]
    assert late.setting(0, emulated=True).emulator is not None


@pytest.mark.usefixtures("root")
def test_too_few_sleeps_are_no_measurement() -> None:
    with pytest.raises(RunFailed, match="only"):
        wakeup.measure(Topology(), LINK, gap_ns=100_000_000, size=64, seconds=1)


@pytest.mark.parametrize(
    ("words", "said"), [(["--scheduling", "idle"], "idle"), (["--gap", "often"], "often")]
)
def test_wrong_options_are_usage_errors(words: list[str], said: str) -> None:
    result = CliRunner().invoke(fabric.app, ["wakeup", *words])
    assert result.exit_code == 2
    assert said in result.output
