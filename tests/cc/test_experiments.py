# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the experiment files claim of algorithms still holds, at their simulated points.

A run in the simulator repeats bit for bit, so a claim that fails tells of a change: of the
algorithm, or of the engine beneath it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from datapath.native.paths import ROOT
from tests.cli import server

SOON = {
    "bench/conditions": ["stack=vpc", "stack=newreno", "stack=vpc that never competes"],
    "bench/jitter": [],
    "rtt-unfairness": ["lane=sim"],
}
"""Files whose claims are looked at each time, one run of each of these points."""

LATER = (
    *("bench/acknowledgements", "classes", "dctcp-2010", "hpcc-2019", "incast", "load"),
    *("lossless", "parking-lot", "rivals", "small-flows"),
)
"""With as many runs as the file says: up to a minute each, where nothing runs beside it."""


def judge(file: str, out: Path, *options: str) -> None:
    path = ROOT / "experiments" / f"{file}.yaml"
    done = server.dpctl("run", path, "--out", out / "out", "--no-report", *options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert re.search(r"claims? passed", done.stdout)  # it claims something


@pytest.mark.parametrize("file", SOON)
def test_claims_about_some_points_hold(file: str, tmp_path: Path) -> None:
    judge(file, tmp_path, "--repetitions", "1", *(f"--only={point}" for point in SOON[file]))


@pytest.mark.minutes
@pytest.mark.parametrize("file", LATER)
def test_all_claims_hold(file: str, tmp_path: Path) -> None:
    judge(file, tmp_path)
