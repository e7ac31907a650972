# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CPU time of programs that ran, and that a hypervisor took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from datapath.experiment import cputime
from datapath.experiment.cputime import CpuTime

STAT = """\
cpu  124 5 322 10214 9 0 11 {steal} 3 0
cpu0 62 2 161 5107 4 0 5 {steal} 1 0
intr 1
"""


def test_time_of_children_is_told_only_if_they_ran_here() -> None:
    before = CpuTime.now()
    program = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", program], check=True)
    here = {metric.name: metric for metric in before.since(local=True)}
    assert set(here) == {"cpu_user", "cpu_system", "cpu_stolen"}
    assert here["cpu_user"].value + here["cpu_system"].value >= 0.2
    assert here["cpu_stolen"].value >= 0
    assert {metric.unit for metric in here.values()} == {"s"}
    assert [metric.name for metric in before.since(local=False)] == ["cpu_stolen"]


def test_stolen_time_is_that_of_all_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A hypervisor that steals cannot be had at will: its counter is written here.
    stat = tmp_path / "stat"
    monkeypatch.setattr(cputime, "_STAT", stat)
    stat.write_text(STAT.format(steal=1000))
    before = CpuTime.now()
    stat.write_text(STAT.format(steal=1250))
    (stolen,) = before.since(local=False)
    assert stolen.value == pytest.approx(250 / os.sysconf("SC_CLK_TCK"))
