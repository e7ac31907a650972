# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Plots of some points alone: axis values that are mappings, and plots that are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.report import folder, plots, plotspec
from tests.cli.server import dpctl

CODEL = "{model: codel, target: 100us}"
FILE = f"""
version: 1
name: chosen
topology: {{lane: sim, preset: dumbbell, hosts: 4, mtu: 1500}}
path: {{rate: 1gbit, delay: 50us, queue: 128KiB}}
cc: {{algo: cubic}}
workload: {{kind: stream, size: 32KiB, depth: 16, duration: 2ms}}
sweep:
  matrix:
    path.aqm: [{CODEL}, codel]
  baseline: {{path.aqm: {CODEL}}}
  repetitions: 1
report:
  plots:
    - {{kind: bar, metric: goodput, where: {{path.aqm: {CODEL}}}}}
    - {{kind: bar, metric: message_rate, where: {{path.aqm: [codel, {CODEL}]}}}}
    - {{kind: bar, metric: cpu_user, where: {{path.aqm: {CODEL}}}}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A result folder, and what its run told beside the answer."""
    path = tmp_path_factory.mktemp("chosen")
    (path / "chosen.yaml").write_text(FILE)
    done = dpctl("run", path / "chosen.yaml", "--out", path / "results")
    assert done.returncode == 0, done.stderr
    return path / "results", done.stderr


def test_a_mapping_is_spelled_as_in_the_file(made: tuple[Path, str]) -> None:
    result = folder.read(made[0])
    assert result.axis_values("path.aqm") == [CODEL, "codel"]  # in the order of the file
    assert result.baseline == {"path.aqm": [CODEL]}
    specs, _ = plotspec.plan(result)
    assert specs[0].where == {"path.aqm": [CODEL]}
    assert specs[1].where == {"path.aqm": ["codel", CODEL]}
    drawn, _ = plots.draw_all(result)
    assert [plot.kind for plot in drawn] == ["bar", "bar", "ratio"]


def test_plots_that_are_left_out_are_told(made: tuple[Path, str], tmp_path: Path) -> None:
    again = dpctl("report", made[0], "--out", tmp_path, "--plots", "png")
    assert len(list((tmp_path / "plots").iterdir())) == 3  # of four: two asked for, and the ratios
    for told in (made[1], again.stderr):
        left_out = [line for line in told.splitlines() if line.startswith("note: No plot")]
        assert len(left_out) == 1
        assert f"no run has a value of cpu_user where path.aqm = {CODEL}." in left_out[0]
