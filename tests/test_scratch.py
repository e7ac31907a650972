# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Temporary folders: in use, removed at the end, and removed for those that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from datapath import scratch

ROOT = Path(__file__).resolve().parents[1]
KEEP = """
import os, sys
from datapath import scratch
with scratch.folder("mine-") as path:
    (path / "file").write_text("x")
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def keeper(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    env = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", KEEP],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_there_for_as_long_as_it_is_used(temporary: Path) -> None:
    process, theirs = keeper(temporary)
    with scratch.folder("mine-") as mine:
        assert theirs.exists()
        assert mine.exists()
        assert mine != theirs
    assert theirs.exists()
    assert not mine.exists()
    process.communicate()
    assert not theirs.exists()


def test_a_process_has_several(temporary: Path) -> None:
    with scratch.folder("mine-") as first:
        with scratch.folder("mine-") as second:
            assert first.exists()
            assert second.exists()
        assert first.exists()
        assert not second.exists()


def test_what_a_killed_process_leaves_the_next_removes(temporary: Path) -> None:
    process, theirs = keeper(temporary)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (theirs / "file").exists()
    (temporary / "mine-link").symlink_to(ROOT)
    with scratch.folder("mine-"):
        assert not theirs.exists()
    assert ROOT.exists()


def test_no_link_is_followed_and_no_folder_of_others_is_touched(temporary: Path) -> None:
    """Anybody may put such folders where temporary folders are, as a trap for root."""
    target = temporary / "target"
    ours, others = temporary / "mine-ours", temporary / "mine-others"
    for trap in (ours, others):
        trap.mkdir()
    (ours / "lock").symlink_to(target)
    if os.geteuid() == 0:
        os.chown(others, 65534, 65534)
    else:  # there is no other user whose folder we could make
        others.rmdir()
    there = sorted(temporary.iterdir())
    scratch.remove_old("mine-")
    assert sorted(temporary.iterdir()) == there
    assert not others.exists() or not list(others.iterdir())
