# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Screens of dpctl on a terminal: no line is wider, and none is cut within a word."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
from pathlib import Path

import pytest

from datapath.cli.output import print_table
from tests.cli.test_terminal import on_a_terminal
from tests.report import folders

WIDTHS = [80, 140]
COMMANDS = [
    "list",
    "doctor",
    "cc list",
    "cc show swift",
    "cc hunt vpc --dimensions",
    "collective list",
    "collective check ring",
    "collective plan ring --ranks 2",
    "nccl cases",
    "run experiments/quickstart.yaml --dry-run",
    "validate experiments/quickstart.yaml --set path.loss=nothing",
    "run --resume there/is/no/such/folder",
    "show FOLDER",
    "show FOLDER --metric all",
    "show FOLDER --metric goodput --ratio",
    "compare FOLDER FOLDER --metric all",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.write(tmp_path_factory.mktemp("w") / "r", repetitions=6, failed=[(3, 2)])


def screen(width: int, *words: str) -> tuple[int, list[str]]:
    """(exit code, the lines that a terminal of so many columns shows)"""
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(width)}
    code, seen = on_a_terminal(*words, env=env)
    return code, re.sub(r"\x1b\[[\d;]*m", "", seen).replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider(folder: Path, command: str, width: int) -> None:
    words = command.replace("FOLDER", str(folder)).split()
    _, lines = screen(width, *words)
    assert [line for line in lines if len(line) > width and str(folder) not in line] == []
    assert len(lines) > 1


def test_a_last_column_takes_the_room_that_is_left() -> None:
    """In lines of its own column; with room enough, in one line."""
    _, narrow = screen(80, "nccl", "cases")
    at = narrow.index(
        "flush                            iflush after a receive returns no request, or"
    )
    assert narrow[at + 1] == " " * 33 + "one that ends"
    _, wide = screen(140, "nccl", "cases")
    assert wide[1].endswith("devices and getProperties tell what NCCL can work with")


def test_a_path_that_does_not_fit_stands_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one piece, to be copied."""
    path = "/a/folder" * 10
    rows = [{"run": "first", "folder": path}, {"run": "second", "folder": "/b"}]
    ours, theirs = pty.openpty()
    monkeypatch.setenv("COLUMNS", "80")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        print_table(rows, ["run", "folder"])
    seen = b""
    with contextlib.suppress(OSError):  # EIO: all is read
        while more := os.read(ours, 4096):
            seen += more
    assert seen.decode().split("\r\n") == [
        "run",
        "    folder",
        "first",
        f"    {path}",
        "second",
        "    /b",
        "",
    ]
    os.close(ours)


def test_what_a_group_of_commands_is_for_is_told_whole() -> None:
    """On a narrow terminal in several lines."""
    _, lines = screen(40, "--help")
    commands = lines[lines.index("Commands:") + 1 :]
    assert [line for line in commands if line.endswith("...")] == []
    assert "set for running programs." in " ".join(" ".join(commands).split())
