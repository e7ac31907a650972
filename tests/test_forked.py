# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A call in a fork: its result, and the ways in which it may not come back."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest

from datapath import forked
from tests.processes import runs
from tests.waiting import wait_until


def test_a_fork_answers(tmp_path: Path) -> None:
    assert forked.call(os.getpid, tmp_path / "answer") != os.getpid()


def test_a_fork_that_dies_is_told(tmp_path: Path) -> None:
    def broken() -> None:
        raise ValueError("mine")

    with pytest.raises(forked.Died, match="mine"):
        forked.call(broken, tmp_path / "error")
    for signum in (signal.SIGKILL, signal.SIGSEGV):
        with pytest.raises(forked.Died, match=r"^$") as died:
            forked.call(lambda: os.kill(os.getpid(), signum), tmp_path / "killed")  # noqa: B023
        assert died.value.signal == signum


def test_a_child_whose_folder_is_gone_is_told(tmp_path: Path) -> None:
    """The sweep goes on, though somebody cleared the folder of temporary files."""
    here = tmp_path / "here"
    here.mkdir()
    with pytest.raises(forked.Died, match=r"^$"):
        forked.call(here.rmdir, here / "answer")


def test_what_does_not_come_back_from_c_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "LATE_S", 0.1)

    def in_c() -> None:
        with forked.overdue_after(time.monotonic()):
            ctypes.CDLL(None).sleep(1000)

    with pytest.raises(forked.Overdue):
        forked.call(in_c, tmp_path / "answer")


def test_what_is_over_in_time_may_take_its_time_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "LATE_S", 0.1)

    def slow() -> str:
        with forked.overdue_after(time.monotonic() + 100):
            pass
        time.sleep(0.3)
        return "done"

    assert forked.call(slow, tmp_path / "answer") == "done"


def test_an_interrupt_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[int] = []

    def interrupted(pid: int, _options: int) -> tuple[int, int]:
        children.append(pid)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forked.call(lambda: time.sleep(1000), tmp_path / "answer")
    assert not Path(f"/proc/{children[0]}").exists()


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    def below() -> None:
        def sleeper() -> None:
            (tmp_path / "pid.new").write_text(str(os.getpid()))
            (tmp_path / "pid.new").rename(tmp_path / "pid")
            time.sleep(1000)

        forked.call(sleeper, tmp_path / "inner")

    parent = os.fork()
    if parent == 0:
        try:
            below()
        finally:
            os._exit(0)
    wait_until((tmp_path / "pid").exists, "the child runs")
    child = int((tmp_path / "pid").read_text())
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait_until(lambda: not runs(child), "the child has ended")
