# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/simulator.md: its two examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from datapath.experiment import parallel
from datapath.experiment.load import load
from datapath.experiment.sweep import schedule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_program_runs() -> None:
    names: dict[str, Any] = {}
    for program in blocks("python"):
        exec(program, names)
    result = names["result"]
    assert (result.flows.rows["delivered_bytes"] == 50_000_000).all()
    late = result.series.time_ns > 30_000_000
    assert np.nanmin(result.series.qps["rtt_ns"][late]) > 500_000  # the longer route


def test_the_experiment_runs(tmp_path: Path) -> None:
    file = tmp_path / "page.yaml"
    file.write_text("version: 1\nname: page\n" + blocks("yaml")[0])
    experiment = load(file, ["workload.duration=1ms"])
    run = schedule(experiment.points, experiment.spec.sweep, 1)[0]
    assert run.point.spec.topology.hosts == 128
    answer = parallel.measure(
        parallel.task(run, experiment.spec.collect, tmp_path, 60, travels=False)
    )
    assert answer.error is None
    assert {metric.name for metric in answer.metrics} >= {"fct_p99", "slowdown_p99", "goodput"}
    assert answer.series is not None
    assert answer.series["queue_bytes"].max() > 0
