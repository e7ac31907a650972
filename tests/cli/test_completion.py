# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Completion in real shells, and man pages, of the commands that there are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from datapath.cli import main

BASH = """\
source {script}
COMP_WORDS=({words} '') COMP_CWORD={count}
_dpctl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    path = folder / f"dpctl.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def answer(program: list[str], text: str) -> str:
    if shutil.which(program[0]) is None:
        pytest.skip(f"there is no {program[0]} here")
    done = subprocess.run(
        [*program], input=text, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("dpctl", {"run", "show", "cc", "doctor"}),
        ("dpctl run", {"--repetitions", "--out", "--help"}),
        ("dpctl cc", {"list", "check", "hunt"}),
        ("dpctl cc hunt", {"--help"}),
        ("dpctl run my.yaml --quiet", {"--repetitions"}),
    ],
)
def test_bash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, wanted: set[str]
) -> None:
    path = script("bash", tmp_path, capsys)
    count = len(words.split())
    out = answer(["bash"], BASH.format(script=path, words=words, count=count))
    assert wanted <= set(out.split())
    assert ("run" in out.split()) == (words == "dpctl")


def test_fish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("fish", tmp_path, capsys)
    out = answer(["fish", "--no-config"], f"source {path}; complete -C 'dpctl cc '")
    assert {"list", "check"} <= {line.split("\t")[0] for line in out.splitlines()}
    out = answer(["fish", "--no-config"], f"source {path}; complete -C 'dpctl run --rep'")
    assert out.startswith("--repetitions")


def test_zsh_takes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("zsh", tmp_path, capsys)
    answer(["zsh", "-n", str(path)], "")
    text = path.read_text()
    assert "'show:" in text
    assert "'--repetitions:" in text


def test_man_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", str(tmp_path)]) == 0
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"dpctl.1", "dpctl-run.1", "dpctl-cc-check.1"} <= pages
    assert set(capsys.readouterr().out.split()) == {str(tmp_path / page) for page in pages}
    text = (tmp_path / "dpctl-run.1").read_text()
    assert "\\-\\-repetitions N|auto|auto:MOST" in text
    assert ".SH DESCRIPTION" in text
    if shutil.which("man") is not None:
        done = subprocess.run(
            ["man", "--warnings", "-l", str(tmp_path / "dpctl-run.1")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "Run an experiment" in done.stdout
        assert done.stderr == ""
