# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A stage in a process of its own: its output, its counts, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from datapath.cli.aside import Aside
from datapath.cli.tally import Tally


def test_output_and_counts(capfd: pytest.CaptureFixture[str]) -> None:
    """All of the output: Python's own, and that of programs."""

    def stage(arguments: Sequence[str]) -> Tally:
        print("one \N{MULTIPLICATION SIGN}" * 50_000, flush=True)
        subprocess.run(["echo", *arguments], check=True)
        return Tally(passed=3, details=["d"])

    with Aside(stage, ["two"]) as aside:
        tally, seconds = aside.join()
    assert tally == Tally(passed=3, details=["d"])
    assert seconds > 0
    assert capfd.readouterr().out == "one \N{MULTIPLICATION SIGN}" * 50_000 + "\ntwo\n"


def test_a_stage_that_dies_has_failed() -> None:
    def stage(_: Sequence[str]) -> Tally:
        os.kill(os.getpid(), signal.SIGKILL)
        return Tally()

    with Aside(stage, []) as aside:
        tally, _ = aside.join()
    assert [str(failure) for failure in tally.failures] == ["stage: its process died"]
    assert tally.failed == 1


def test_it_ends_with_the_selftest(tmp_path: Path) -> None:
    """Somebody interrupts the stage before it: nothing runs on."""
    file = tmp_path / "pid"

    def stage(_: Sequence[str]) -> Tally:
        file.write_text(str(os.getpid()))
        time.sleep(600)
        return Tally()

    def interrupted() -> None:
        with Aside(stage, []):
            while not (file.exists() and file.read_text()):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not Path("/proc", file.read_text()).exists()
