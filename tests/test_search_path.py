# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs of the system are found where PATH leaves them out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from datapath import search_path
from datapath.native.paths import ROOT


def test_folders_come_once_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/sbin:/opt/bin")
    search_path.complete()
    search_path.complete()
    assert os.environ["PATH"] == "/sbin:/opt/bin:/usr/local/sbin:/usr/sbin"
    monkeypatch.delenv("PATH")
    assert search_path.whole().startswith(os.defpath + ":")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("path", [["PATH=/usr/bin:/bin"], []], ids=["su", "none"])
def test_a_path_without_sbin(tmp_path: Path, path: list[str]) -> None:
    """ethtool, which Debian has in /usr/sbin, is found by doctor and by a run."""
    bare = ["env", "-i", "HOME=/root", *path, sys.executable, "-m", "datapath.cli"]
    done = subprocess.run(
        [*bare, "doctor", "--format", "json"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    (netns,) = (r for r in json.loads(done.stdout)["rows"] if r["about"] == "lane netns")
    assert (netns["state"], netns["found"]) == ("good", "ready")
    file = tmp_path / "e.yaml"
    file.write_text(
        "version: 1\nname: e\ntopology: {lane: netns}\npath: {backend: none}\n"
        "transport: {device: dp, port: udp}\nworkload: {kind: stream, duration: 300ms}\n"
        "sweep: {repetitions: 1}\n"
    )
    run = [*bare, "run", str(file), "--no-report", "--out", str(tmp_path / "out")]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
