# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl compare REV REV -- FILE`: the runs of both sides in turn, under equal conditions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datapath.cli import main
from datapath.errors import LocalError, RunFailed
from datapath.experiment import revisions
from datapath.experiment.load import load
from datapath.native import paths
from tests.cli.server import dpctl
from tests.cli.told import told
from tests.processes import runs
from tests.waiting import wait_until

SIMULATED = """\
version: 1
name: twice
topology: {lane: sim, preset: p2p, mtu: 1500}
path: {backend: fabric, rate: 1gbit, delay: 50us, loss: 1%}
workload: {kind: stream, size: 32KiB, depth: 8, duration: 20ms}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    file = tmp_path / "twice.yaml"
    file.write_text(SIMULATED)
    return file


def test_equal_trees_show_no_difference(
    experiment: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In virtual time the same code with the same seed gives the same figures; blocks differ."""
    out = tmp_path / "out"
    argv = ["compare", "--out", str(out), "--format", "json", "--repetitions", "2"]
    assert main([*argv, "--metric", "goodput", ".", ".", "--", str(experiment)]) == 0
    out_text, errors = capfd.readouterr()
    assert "\nblock 1 of 2: .\n" in errors
    assert re.search(r"^block 2 of 2: \., about \d+ (s|min) left$", errors, re.MULTILINE)
    found = told("compare", out_text)
    assert found["revisions"] == [". (the tree as it is)"] * 2
    (row,) = found["comparisons"]
    assert (row["n"], row["base_n"]) == (2, 2)
    assert (row["ratio"], row["lo"], row["hi"]) == (1.0, 1.0, 1.0)
    assert row["verdict"] == "too few"
    seeds, started = {}, {}
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        manifest = json.loads((folder / "manifest.json").read_text())
        (run,) = (folder / "runs").glob("*.json")
        seeds[folder.name] = json.loads(run.read_text())["seed"]
        started[folder.name] = manifest["started"]
    assert seeds["A-0"] == seeds["B-0"]
    assert seeds["A-1"] == seeds["B-1"] != seeds["A-0"]
    assert sorted(started, key=started.__getitem__) == ["A-0", "B-0", "B-1", "A-1"]


def test_what_is_complete_is_told_of_an_interrupted_one(experiment: Path, tmp_path: Path) -> None:
    """^C reaches all processes of the terminal; the blocks stay, and are told again."""
    out = tmp_path / "out"
    words = ["--out", str(out), "--repetitions", "50", "--metric", "goodput", ".", "."]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "datapath.cli",
            "compare",
            *words,
            "--",
            str(experiment),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (out / "B-1").exists() and process.poll() is None:  # of the second block
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "note: only 1 of 50 blocks were made\n" in said
    assert "Goodput, B / A, higher is better" in said
    assert f"error: interrupted by SIGINT\nhint: the blocks stay: dpctl compare {out}\n" in errors
    again = dpctl("compare", out, "--metric", "goodput")
    assert (again.returncode, again.stdout) == (0, said)
    (out / "compare.json").write_text("{}")
    assert "compare.json cannot be read" in dpctl("compare", out).stderr


def test_nothing_is_told_where_no_block_is_complete(tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text('{"revisions": ["a", "b"], "blocks": 2}')
    done = dpctl("compare", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no block that both revisions have run" in done.stderr


def test_a_clone_has_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (paths.ROOT / ".git").exists():
        pytest.skip("this tree is no clone of git")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(0o755)
    revision = revisions.find("HEAD")
    assert revision.tree.is_relative_to(tmp_path)
    left_over = revision.tree.with_suffix(".new")
    left_over.mkdir(parents=True)
    (left_over / "half").touch()
    revisions._clone(revision, tmp_path / "log")
    head = subprocess.run(
        ["git", "-C", str(revision.tree), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    assert head.stdout.strip() == revision.commit
    assert os.access(revision.tree / "dpctl", os.X_OK)
    assert not (revision.tree / "half").exists()


def test_the_newest_clones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all of them while another comparison goes on, which may use one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(0o755)
    clones = tmp_path / "datapath" / "revisions"
    for number in range(revisions.KEPT + 2):
        (clones / str(number)).mkdir(parents=True)
        os.utime(clones / str(number), (number, number))
    removed: list[str] = []
    with revisions.prepared([], removed.append, tmp_path / "log"):
        with revisions.prepared([], removed.append, tmp_path / "log"):
            pass
        assert removed == []
    assert sorted(path.name for path in clones.iterdir()) == ["2", "3", "4", "5"]
    assert len(removed) == 2


def test_what_an_interrupted_call_has_started_ends_too(tmp_path: Path) -> None:
    """As pip of a set-up, which only dpctl's own process group knows."""
    started = tmp_path / "started"

    def interrupt(*_: object) -> None:
        if started.exists() and started.read_text():
            raise KeyboardInterrupt

    script = f"sleep 1000 & echo $! > {started}; wait"
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            revisions._call(revisions.find("."), ["sh", "-c", script], tmp_path / "log", "it")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    wait_until(lambda: not runs(int(started.read_text())), "the program is gone")


@pytest.mark.parametrize("name", ["no-such-revision", "--help", "-x", "", "HEAD^{tree}"])
def test_what_is_no_revision_is_told(name: str) -> None:
    with pytest.raises(LocalError, match="neither a result folder nor a revision"):
        revisions.find(name)


def test_a_run_that_cannot_begin_ends_it_with_its_words(experiment: Path, tmp_path: Path) -> None:
    loaded = load(experiment, [])
    here = revisions.find(".")
    wrong = ["path.loss=200%"]
    with pytest.raises(RunFailed, match=r"dpctl run of revision \. ended with status 2: .*loss"):
        revisions.run(loaded, experiment, wrong, [here, here], 1, tmp_path, lambda *_: None)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["HEAD", "FILE"], "two revisions are compared"),
        (["a", "b", "--repetitions", "3"], "--repetitions is for revisions"),
        (["a"], "two folders or more"),
        (["HEAD", "HEAD", "--", "away.yaml"], "away.yaml: no such file"),
    ],
)
def test_what_is_missing_is_told(
    experiment: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    argv = [str(experiment) if word == "FILE" else word for word in words]
    assert main(["compare", *argv]) == 2
    assert error in capsys.readouterr().err
