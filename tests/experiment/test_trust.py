# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Going on with a result folder runs nothing of a stranger's unasked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from datapath.experiment.load import load
from datapath.experiment.trust import Begun, doubts, seal
from tests.cli import server
from tests.experiment.test_parallel import ALGORITHM, ROOT, SWEEP

TRACE = "from pathlib import Path\nPath('TRACE').touch()\n"


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A result folder without a run; its algorithm leaves a trace when it is run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    algorithm = TRACE.replace("TRACE", str(tmp_path / "trace")) + ALGORITHM
    (tmp_path / "mine.py").write_text(algorithm)
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("repetitions: 2", "repetitions: 1"))
    experiment = load(tmp_path / "sweep.yaml")
    (tmp_path / "trace").unlink()
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(experiment.text)
    about = {"source": str(experiment.source), "overrides": [], "seal": seal(experiment)}
    (folder / "manifest.json").write_text(json.dumps(about))
    return folder


def dpctl(*words: object) -> subprocess.CompletedProcess[str]:
    return server.dpctl(*words, env={**os.environ, "COLUMNS": "300"})


def at_terminal(end: int, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "datapath.cli", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "300"},
        stdin=end,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


LONG = "x" * 300
"""More than a file's name may have."""


def change_manifest(folder: Path, **entries: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def another_machine(folder: Path) -> None:
    (folder.parent / "cache" / "datapath" / "seal.key").unlink()


def unsealed(folder: Path) -> None:
    change_manifest(folder, seal={})


def unreadably_sealed(folder: Path) -> None:
    change_manifest(folder, seal={"files": {}, "hmac": "\ud800"})


def forged(folder: Path) -> None:
    text = (folder / "experiment.yaml").read_text()
    (folder / "experiment.yaml").write_text(text + "# more\n")


def another_option(folder: Path) -> None:
    change_manifest(folder, overrides=["cc.algo=./mine.py"])


def another_place(folder: Path) -> None:
    change_manifest(folder, source=str(folder.parent / "other.yaml"))


def c_for_the_kernel(folder: Path) -> None:
    change_manifest(folder, overrides=["cc.tcp=./mine.bpf.c", "cc.algo=./mine.py"])


def changed_algorithm(folder: Path) -> None:
    with (folder.parent / "mine.py").open("a") as file:
        file.write("\n# more\n")


def doubted(folder: Path) -> tuple[str, list[str]]:
    return doubts(Begun.read(folder, json.loads((folder / "manifest.json").read_text())))


def test_ones_own_folder_is_gone_on_with_unasked(begun: Path, tmp_path: Path) -> None:
    out = tmp_path / "whole"
    done = dpctl("run", "--no-report", tmp_path / "sweep.yaml", "--out", out, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    next((out / "runs").glob("*.json")).unlink()
    done = dpctl("run", "--no-report", "--resume", out, "--jobs", 1)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "spoil",
    [
        another_machine,
        unsealed,
        unreadably_sealed,
        forged,
        another_option,
        another_place,
        c_for_the_kernel,
        changed_algorithm,
    ],
)
def test_a_strange_folder_is_doubted(begun: Path, tmp_path: Path, spoil: Any) -> None:
    assert doubted(begun) == ("", [])
    spoil(begun)
    why, named = doubted(begun)
    assert why
    assert str(tmp_path / "mine.py") in named


@pytest.mark.parametrize("option", ["--quiet", "--dry-run"])
def test_without_a_terminal_it_is_refused(begun: Path, tmp_path: Path, option: str) -> None:
    unsealed(begun)
    done = dpctl("run", "--resume", begun, option)
    assert done.returncode == 2
    assert f"{tmp_path}/mine.py" in done.stderr
    assert "--trust" in done.stderr
    assert not (tmp_path / "trace").exists()


def test_trust_runs_it(begun: Path, tmp_path: Path) -> None:
    unsealed(begun)
    done = dpctl("run", "--resume", begun, "--trust", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace").exists()


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_at_a_terminal_it_asks(begun: Path, tmp_path: Path, answer: str) -> None:
    unsealed(begun)
    terminal, end = pty.openpty()
    os.write(terminal, answer.encode())
    done = at_terminal(end, "run", "--resume", begun, "--dry-run")
    for descriptor in (terminal, end):
        os.close(descriptor)
    assert f"{tmp_path}/mine.py" in done.stderr
    assert "go on?" in done.stderr
    assert (tmp_path / "trace").exists() == (answer == "y\n")
    assert done.returncode == (0 if answer == "y\n" else 2)


@pytest.mark.parametrize("algorithm", ["~no-such-user/x.py", f"./{LONG}.py"])
def test_a_name_that_no_file_can_have(begun: Path, algorithm: str) -> None:
    change_manifest(begun, overrides=[f"cc.algo={algorithm}"])
    done = dpctl("run", "--resume", begun, "--dry-run", "--trust")
    assert done.returncode == 2, done.stderr
    assert "error: --set cc.algo=" in done.stderr
    assert dpctl("cc", "check", algorithm).returncode == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version: 1", "version: 1\nversion: 1", ":2:1: version: given twice"),
        ("version: 1", "version: 7", ":1:10: version: 7 is not possible"),
    ],
)
def test_a_damaged_copy_is_named(
    begun: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    """And not the user's file, which is as it was."""
    copy, source = begun / "experiment.yaml", tmp_path / "sweep.yaml"
    copy.write_text(copy.read_text().replace(old, new, 1))
    done = dpctl("run", "--resume", begun, "--dry-run", "--trust")
    assert done.returncode == 2
    assert f"error: {copy}{said}" in done.stderr
    assert f"from {source}: copy that over {copy}" in done.stderr
    copy.write_bytes(source.read_bytes())
    assert dpctl("run", "--resume", begun, "--dry-run").returncode == 0


def test_trust_is_for_resume(tmp_path: Path) -> None:
    done = dpctl("run", tmp_path / "x.yaml", "--trust")
    assert done.returncode == 2
    assert "--trust is for --resume" in done.stderr


@pytest.mark.parametrize(
    ("text", "overrides", "named"),
    [
        ("cc: {algo: vpc}", [], []),
        ("cc: {algo: ./x.py}", [], ["cc.algo: ./x.py"]),
        ("cc: {algo: /a/x.py:Mine}", [], ["cc.algo: /a/x.py:Mine"]),
        ("sweep: {matrix: {cc.algo: [vpc, ./x.py]}}", [], ["sweep.matrix.cc.algo: ./x.py"]),
        (
            "sweep: {adjust: [{set: {cc: {algo: ./x.py}}}]}",
            [],
            ["sweep.adjust.set.cc.algo: ./x.py"],
        ),
        ("a: &a {algo: ./x.py}\ncc: *a", [], ["a.algo: ./x.py", "cc.algo: ./x.py"]),
        ("name: x", ["cc.algo=./x.py"], ["cc.algo: ./x.py"]),
        ("name: x", ["cc={algo: ./x.py}"], ["cc.algo: ./x.py"]),
        ("cc: {algo: ~no-such-user/x.py}", [], ["cc.algo: ~no-such-user/x.py"]),
        (f"cc: {{algo: ./{LONG}.py}}", [], [f"cc.algo: ./{LONG}.py"]),
        ("xdp: {source: drop.c}", [], ["xdp.source: drop.c"]),
        ("topology: {ssh_config: /c}", [], ["topology.ssh_config: /c"]),
        ("workload: {extra: [--logfile, /etc/x]}", [], None),
    ],
)
def test_all_that_would_run_is_named(
    tmp_path: Path, text: str, overrides: list[str], named: list[str] | None
) -> None:
    manifest: Mapping[str, Any] = {"source": str(tmp_path / "x.yaml"), "overrides": overrides}
    (tmp_path / "experiment.yaml").write_text(text)
    _, found = doubts(Begun.read(tmp_path, manifest))
    if named is None:
        assert any("/etc/x" in line for line in found)
    else:
        assert found == named
