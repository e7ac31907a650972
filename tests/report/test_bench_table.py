# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The table that `make bench` makes of a result folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from datapath.native import paths
from tests.report import folders

TABLE = paths.ROOT / "experiments" / "bench" / "table.py"


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, TABLE, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=paths.ROOT)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return folders.write(tmp_path / "results", samples=False)


def test_a_row_for_each_claim(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "table.md"
    done = run(made, "--markdown", page)
    assert done.returncode == 0, done.stderr
    head, rule, ratio, absolute = page.read_text().splitlines()
    assert [len(line.split("|")) for line in (head, rule, ratio, absolute)] == [8] * 4
    assert "| 0.951 [0.930 to 0.968] | ≥ 0.9 | pass |" in ratio
    assert ratio.split("|")[3].strip().startswith("0: ")
    assert absolute.endswith("| – | – | ≤ 2\N{NO-BREAK SPACE}µs | miss |")
    assert "1 of 2 targets met; 0 runs failed" in done.stdout


def test_figures_are_medians_with_their_spread(made: Path, tmp_path: Path) -> None:
    """Against the numbers of the runs themselves."""
    frame = pd.read_parquet(made / "runs.parquet")
    chosen = frame[(frame["metric"] == "latency_p50") & (frame["stack"] == "dp-afxdp")]
    values = chosen[(chosen["path.loss"] == "0") & (chosen["test"] == "64 B send")]["value"] / 1e3
    page = tmp_path / "table.md"
    run(made, "--markdown", page)
    figure = page.read_text().splitlines()[3].split("|")[2]
    told = [float(number) for number in re.findall(r"[\d.]+", figure)]
    assert told == pytest.approx([values.median(), values.min(), values.max()], rel=0.01)


def test_a_run_that_was_broken_off(made: Path) -> None:
    (made / "claims.json").unlink()
    done = run(made)
    assert done.returncode == 1
    assert "has no claims.json: the run did not come to its end" in done.stderr
