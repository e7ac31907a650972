# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Late wake-ups that a live run has counted, and simulated runs that take them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from datapath.cli import fabric
from datapath.cli.progress import Silent
from datapath.errors import RunFailed
from datapath.experiment import wakeup
from datapath.experiment.document import InvalidFile
from datapath.experiment.load import load_text
from datapath.experiment.runner import execute
from datapath.experiment.store import ResultStore, RunRecord
from datapath.lanes.spec import Topology
from datapath.lanes.wakeup_spec import HostWakeup

TWINS = """\
version: 1
name: twins
topology: {lane: netns, mtu: 4400}
path: {backend: fabric, rate: 200mbit, delay: 1ms}
transport: {device: dp, port: afxdp, options: {segment: 4096}}
cc: {algo: fixed}
workload: {kind: stream, size: 16KiB, depth: 2, duration: 500ms}
sweep:
  repetitions: 1
  matrix:
    hosts:
      - {label: live, set: {topology.lane: netns}}
      - {label: late, set: {topology.lane: sim, topology.wakeup: live}}
      - {label: in time, set: {topology.lane: sim}}
"""


@pytest.mark.alone
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("scheduling", ["realtime", "ordinary"])
def test_every_kind_of_sleep_is_measured(scheduling: str) -> None:
    topology = {"scheduling": scheduling, "keep_awake": False}
    report = wakeup.measure(topology, rate_bps=10**9, delay_ns=100_000, cc="timely", seconds=1)
    assert report.scheduling == scheduling or report.trouble
    assert report.kept_awake == 0
    assert min(report.sleeps.values()) > 100
    for part in (report.setting.packet, report.setting.timer, report.setting.emulator):
        assert part is not None
        assert list(part.values()) == sorted(part.values())
        assert 0 < part["p50"] < part["p99.9"]
    assert report.setting.awake > 0


@pytest.mark.alone
@pytest.mark.usefixtures("root")
def test_what_is_written_is_a_value_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "late.json"
    result = CliRunner().invoke(fabric.app, ["wakeup", "--out", str(file), "--seconds", "1"])
    assert result.exit_code == 0, result.output
    assert "after a packet" in result.output
    assert json.loads(file.read_text())["about"]["sleeps"]["packet"] > 100
    section = {"lane": "sim", "wakeup": "./late.json"}
    late = Topology.model_validate(section, context={"folder": str(tmp_path)}).wakeup
    assert isinstance(late, HostWakeup)
    assert 0 < late.timer["p50"] <= late.timer["p99"]
    assert late.setting(0, emulated=True).emulator is not None


@pytest.mark.parametrize(
    ("words", "said"), [(["--scheduling", "idle"], "idle"), (["--rate", "fast"], "fast")]
)
def test_wrong_options_are_usage_errors(words: list[str], said: str) -> None:
    result = CliRunner().invoke(fabric.app, ["wakeup", *words])
    assert result.exit_code == 2
    assert said in result.output


# --- distributions ------------------------------------------------------------------------------


def counted(n: int, low: int, high: int) -> dict[str, Any]:
    """Delays that are spread evenly between two."""
    shares = ("0", "0.25", "0.5", "0.75", "1")
    return {"n": n, "quantiles_ns": {s: round(low + float(s) * (high - low)) for s in shares}}


def record(*sleeps: dict[str, Any], **more: Any) -> RunRecord:
    device = [{"host": f"h{i}", "sleeps": entry} for i, entry in enumerate(sleeps)]
    return RunRecord("p", 0, 0, {}, 1, "ok", "", 0.0, {}, device=device, **more)


def test_hosts_count_by_how_often_they_slept() -> None:
    """Three quarters of the sleeps last 0 to 100 ns, one quarter 1000 to 1100."""
    sleeps = [
        {"packet": counted(300, 0, 100), "timer": counted(0, 0, 0), "wakes": 10, "awake_ns": 500},
        {"packet": counted(100, 1000, 1100), "timer": counted(0, 0, 0), "wakes": 30, "awake_ns": 0},
    ]
    late = wakeup.measured(record(*sleeps))
    assert late.packet["p25"] == pytest.approx(33, abs=2)
    assert late.packet["p50"] == pytest.approx(67, abs=2)
    assert late.packet["p100"] == pytest.approx(1100, abs=2)
    assert late.timer == late.packet, "too few of them"
    assert late.awake == 500 // 40
    assert late.emulator is None


def test_too_few_sleeps_are_no_measurement() -> None:
    few = {"packet": counted(60, 0, 9), "timer": counted(60, 0, 9), "wakes": 1, "awake_ns": 0}
    with pytest.raises(RunFailed, match="enough sleeps"):
        wakeup.measured(record(few))


# --- twins --------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.usefixtures("root")
def test_a_simulated_run_wakes_as_its_live_twin_did(tmp_path: Path) -> None:
    experiment = load_text(TWINS, tmp_path / "twins.yaml")
    result = execute(experiment, ResultStore.create(tmp_path / "out", "t"), Silent(), argv=[])
    assert [made.status for made in result.records] == ["ok"] * 3
    by_label = {made.axes["hosts"]: made for made in result.records}
    taken = by_label["late"].spec["topology"]["wakeup"]
    assert taken == wakeup.measured(by_label["live"]).model_dump(mode="json")
    assert by_label["in time"].spec["topology"]["wakeup"] is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("topology.lane: netns}}", "topology.lane: sim}}", "no live point"),
        (
            "label: live, set: {topology.lane: netns}",
            "label: live, set: {cc.algo: vpc}",
            "no live point",
        ),
        ("device: dp", "device: kernel", "dp"),
        (
            "{label: in time, set: {topology.lane: sim}}",
            "{label: other, set: {topology.lane: netns, topology.scheduling: ordinary}}",
            "are both its live twin",
        ),
    ],
)
def test_a_live_twin_must_be_there(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in TWINS
    with pytest.raises(InvalidFile, match=words):
        load_text(TWINS.replace(old, new), tmp_path / "twins.yaml")
