# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/tutorial.md followed word by word, by a shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from datapath.native import paths

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(1200)
def test_the_tutorial_ends_in_figures(root: None, tmp_path: Path) -> None:
    """Files are written where the page writes them; a line of YAML takes its line's place."""
    (tmp_path / "dpctl").symlink_to(paths.ROOT / "dpctl")
    followed = 0
    for language, block in FENCE.findall((paths.ROOT / "docs" / "tutorial.md").read_text()):
        if language == "python":
            (tmp_path / "gentle.py").write_text(block)
        elif language == "yaml" and block.startswith("version:"):
            (tmp_path / "first.yaml").write_text(block)
        elif language == "yaml":
            file = tmp_path / "first.yaml"
            changed, count = re.subn(r"^ +cc\.algo: .*\n", block, file.read_text(), flags=re.M)
            assert count == 1
            file.write_text(changed)
        else:
            for line in block.splitlines():
                follow(line, tmp_path)
                followed += 1
    assert followed == 8
    page = (tmp_path / "mine" / "report.html").read_text()
    assert "<svg" in page
    assert "gentle" in page
    assert list((tmp_path / "first" / "plots").glob("*.svg"))
    assert (tmp_path / "live" / "report.html").exists()


def follow(line: str, folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=900
    )
    # doctor tells by 3 what a machine lacks; the tutorial goes on without it.
    assert done.returncode == 0 or (done.returncode == 3 and "doctor" in line), (
        line + done.stdout + done.stderr
    )
