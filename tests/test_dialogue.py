# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program on two pipes: what it says, and what it fails to say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath import dialogue
from datapath.dialogue import Dialogue
from datapath.errors import RunFailed


def begin(script: str) -> Dialogue:
    process = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1
    )
    return Dialogue(process, "the script")


@pytest.fixture
def echo() -> Iterator[Dialogue]:
    """Says two lines for each that it hears, and one at the end."""
    program = begin('while read -r line; do printf "<%s>\\nmore\\n" "$line"; done; echo end')
    yield program
    program.close()


def test_lines_are_told_one_by_one(echo: Dialogue) -> None:
    assert echo.ask("one") == "<one>"
    assert echo.hear() == "more"
    assert echo.ask("two") == "<two>"
    echo.say_no_more()
    assert [echo.hear(), echo.hear()] == ["more", "end"]
    with pytest.raises(RunFailed, match="the script ended with status 0"):
        echo.hear()
    with pytest.raises(RunFailed, match="the script ended with status 0"):
        echo.ask("three")


def test_one_that_ends_before_it_is_asked() -> None:
    program = begin("exit 3")
    program.process.wait(10)
    with pytest.raises(RunFailed, match="the script ended with status 3"):
        program.check_alive()
    with pytest.raises(RunFailed, match="the script ended with status 3"):
        program.ask("anything")
    program.close()
    program.close()


def test_one_that_is_killed() -> None:
    program = begin("read -r line; kill -9 $$")
    with pytest.raises(RunFailed, match=r"the script was killed by signal 9 \(SIGKILL\)"):
        program.ask("anything")
    program.close()


def test_one_that_says_nothing_is_killed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogue, "_ANSWER_S", 0.1)
    program = begin("trap '' HUP PIPE TERM; sleep 60 >&- <&- & wait; wait")
    program.check_alive()
    with pytest.raises(RunFailed, match="the script does not answer"):
        program.hear()
    with pytest.raises(RunFailed, match="the script does not answer"):
        program.check_alive()
    program.close()
    assert program.process.returncode == -9


def test_a_late_answer_is_none_to_the_next_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = begin(f"while read -r line; do cat <'{gate}'; echo \"<$line>\"; done")
    with monkeypatch.context() as hasty:
        hasty.setattr(dialogue, "_ANSWER_S", 0.1)
        with pytest.raises(RunFailed, match="the script does not answer"):
            program.ask("one")
    gate.write_text("")
    with pytest.raises(RunFailed, match="the script does not answer"):
        program.ask("two")
    program.close()


def test_a_program_without_pipes() -> None:
    process = subprocess.Popen(["true"])
    process.wait(10)
    with pytest.raises(ValueError, match="it has no pipes"):
        Dialogue(process, "it")
