# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Completion in real shells, and man pages, of the commands that there are."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from datapath.cli import main

BASH = """\
source {script}
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_dpctl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

INTERACTIVE = {
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; "),
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
}
"""How a shell is called, and what it is told first."""


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
        ("dpctl ''", {"run", "show", "cc", "doctor"}),
        ("dpctl run --", {"--repetitions", "--out", "--help"}),
        ("dpctl run --quiet --rep", {"--repetitions"}),
        ("dpctl run exp", {"experiment.yaml"}),
        ("dpctl run --out exp", {"experiment.yaml"}),
        ("dpctl cc ''", {"list", "check", "hunt"}),
        ("dpctl cc hunt cu", {"cubic"}),
        ("dpctl cc check ./exp", {"./experiment.yaml"}),
        ("dpctl completion ''", {"bash", "zsh", "fish"}),
        ("dpctl list --format ''", {"table", "json", "ndjson"}),
        ("dpctl show --metric latency", {"latency_p50", "latency_p99"}),
        ("dpctl capture ''", {"host0", "host1", "middle"}),
    ],
)
def test_bash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, wanted: set[str]
) -> None:
    path = script("bash", tmp_path, capsys)
    (tmp_path / "experiment.yaml").touch()
    out = answer(["bash"], f"cd {tmp_path}\n" + BASH.format(script=path, words=words))
    assert wanted <= set(out.split())
    assert ("run" in out.split()) == (words == "dpctl ''")


def test_bash_takes_a_name_with_blanks_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script("bash", tmp_path, capsys)
    (tmp_path / "my experiment.yaml").touch()
    out = answer(["bash"], f"cd {tmp_path}\n" + BASH.format(script=path, words="dpctl run my"))
    assert out.splitlines() == ["my experiment.yaml"]


def test_fish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("fish", tmp_path, capsys)
    out = answer(["fish", "--no-config"], f"source {path}; complete -C 'dpctl cc '")
    assert {"list", "check"} <= {line.split("\t")[0] for line in out.splitlines()}
    out = answer(["fish", "--no-config"], f"source {path}; complete -C 'dpctl run --rep'")
    assert out.startswith("--repetitions")
    out = answer(["fish", "--no-config"], f"source {path}; complete -C 'dpctl list --format '")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["json", "ndjson", "table"]


@pytest.mark.parametrize("shell", ["zsh", "bash"])
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("dpctl completion z", "dpctl completion zsh"),
        ("dpctl cc hunt cub", "dpctl cc hunt cubic"),
        ("dpctl run --rep", "dpctl run --repetitions"),
        ("dpctl run exp", "dpctl run experiment.yaml"),
        ("dpctl list --format nd", "dpctl list --format ndjson"),
    ],
)
def test_tab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str, typed: str, completed: str
) -> None:
    """In a shell that has a terminal."""
    path = script(shell, tmp_path, capsys)
    (tmp_path / "experiment.yaml").touch()
    words, ready = INTERACTIVE[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, "TERM": "xterm"},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as program:  # fmt: skip
        os.close(theirs)
        try:
            tell = f"PS1=; {ready}source {path}; echo rea''dy\n"
            os.write(ours, tell.encode())
            seen = read_until(ours, "ready")
            os.write(ours, f"{typed}\t".encode())
            assert read_until(ours, completed), seen
        finally:
            program.kill()
            os.close(ours)


def read_until(terminal: int, text: str) -> str:
    """What comes from a terminal, as soon as it has this text; "" if it never has."""
    seen = ""
    while text not in re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]|[\a\b\r]", "", seen):
        if not select.select([terminal], [], [], 30)[0]:
            return ""
        seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


def test_man_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", str(tmp_path)]) == 0
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"dpctl.1", "dpctl-run.1", "dpctl-cc-check.1"} <= pages
    assert set(capsys.readouterr().out.split()) == {str(tmp_path / page) for page in pages}
    text = (tmp_path / "dpctl-run.1").read_text()
    assert "\\-\\-repetitions N|auto|auto:MOST" in text
    assert ".SH DESCRIPTION" in text
    assert ".SH ARGUMENTS\n.TP\n.B FILE\nThe experiment file.\n" in text
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
