# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/tutorial.md followed word by word, by tests/fresh/tutorial.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from datapath.native import paths


@pytest.mark.timeout(1200)
def test_the_tutorial_ends_in_figures(root: None, tmp_path: Path) -> None:
    (tmp_path / "dpctl").symlink_to(paths.ROOT / "dpctl")
    done = subprocess.run(
        [paths.ROOT / "tests" / "fresh" / "tutorial.sh", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 8 commands done" in done.stderr
