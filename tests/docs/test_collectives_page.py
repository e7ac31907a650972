# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/collectives.md is true: its algorithm, its list, its error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from datapath.collectives import check, load, make, registry
from datapath.native.paths import ROOT
from tests.cli.server import dpctl
from tests.cli.told import told
from tests.collectives.plans import is_right

PAGE = (ROOT / "docs" / "collectives.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def star(tmp_path: Path) -> Path:
    code = EXAMPLES[0]
    path = tmp_path / "star.py"
    path.write_text(code)
    assert len(code.splitlines()) < 20
    return path


def test_the_example_is_right(star: Path) -> None:
    for ranks in (1, 2, 5):
        assert is_right(check(make(load(str(star)), ranks, 1024, transfer_bytes=128)))


def test_the_example_runs_live_and_simulated(root: None, star: Path) -> None:
    path = star.with_name("star.yaml")
    path.write_text(re.findall(r"```yaml\n(version.*?)```", PAGE, re.DOTALL)[0])
    out = star.with_name("out")
    done = dpctl("run", str(path), "--out", str(out), "--no-report", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert told("run", done.stdout)["runs"] == 2


def test_every_algorithm_is_listed() -> None:
    section = PAGE.split("## The algorithms")[1]
    first = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first))) == sorted(registry())


def test_the_example_in_virtual_time_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(EXAMPLES[1], {})
    assert len(capsys.readouterr().out.strip("[]\n").split()) == 3
