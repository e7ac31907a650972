# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long an experiment will take, by earlier results or by the durations of the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from datapath.experiment.estimate import estimate
from datapath.experiment.load import LoadedExperiment, load_text

FILE = """\
version: 1
name: long
topology: {lane: LANE}
workload: {kind: stream, duration: 3s}
sweep:
  repetitions: 4
  matrix: {path.loss: [0, 1%]}
"""


def experiment(lane: str = "netns") -> LoadedExperiment:
    return load_text(FILE.replace("LANE", lane), Path("long.yaml"), [])


def record(folder: Path, point: str, repetition: int, **members: object) -> None:
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    told = {"point": point, "status": "ok", **members}
    (folder / "runs" / f"{point}-{repetition}.json").write_text(json.dumps(told))


def test_durations_are_the_least(tmp_path: Path) -> None:
    found = estimate(experiment(), tmp_path)
    assert found is not None
    assert (found.seconds, found.source) == (24.0, None)


def test_simulated_time_says_nothing(tmp_path: Path) -> None:
    assert estimate(experiment("sim"), tmp_path) is None


@pytest.mark.parametrize("lane", ["netns", "sim"])
def test_earlier_results_tell(tmp_path: Path, lane: str) -> None:
    """The median of a point's runs, the mean of the others for a point that is new."""
    known = experiment(lane).points[0].key
    folder = tmp_path / "long-20260101T000000Z"
    for repetition, seconds in enumerate((5.0, 6.0, 60.0)):
        record(folder, known, repetition, seconds=seconds)
    record(folder, known, 3, seconds=900.0, status="failed")
    record(tmp_path / "other-20260101T000000Z", known, 0, seconds=1.0)
    found = estimate(experiment(lane), tmp_path)
    assert found is not None
    cpus = len(os.sched_getaffinity(0)) if lane == "sim" else 1
    assert found.seconds == pytest.approx(4 * (6.0 + 6.0) / cpus)
    assert found.source == folder


def test_folders_may_hold_anything(tmp_path: Path) -> None:
    folder = tmp_path / "long-1"
    record(folder, "x", 0, seconds="often")
    (folder / "runs" / "y-0.json").write_text("[")
    (folder / "runs" / "z-0.json").write_text("[]")
    found = estimate(experiment(), tmp_path)
    assert found is not None
    assert found.source is None
