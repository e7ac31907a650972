# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl clean`: what it ends and deletes, what it leaves alone, and that it asks."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.errors import LocalError
from datapath.experiment.lock import is_being_written, locked
from datapath.experiment.store import ResultStore
from datapath.lanes.orphans import orphaned_holders
from tests.waiting import wait_until

from .server import shared
from .test_cli import dpctl

NO_SUCH_PID = 2**22 - 1


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Eight result folders, r0 the oldest."""
    for number in range(8):
        folder = tmp_path / "results" / f"r{number}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        os.utime(folder / "manifest.json", (number, number))
    return tmp_path / "results"


def left(results: Path) -> list[str]:
    return sorted(path.name for path in results.iterdir())


def clean(results: Path, *words: object, answer: str | None = None) -> tuple[int, str]:
    """(exit code, what it says) of `dpctl clean --results`; `answer`: typed at a terminal."""
    arguments = ("clean", "--results", *words)
    env = {**os.environ, "COLUMNS": "200"}
    if answer is None:
        done = shared()(*arguments, cwd=results.parent, env=env)
        return done.code, done.out + done.err
    terminal, end = pty.openpty()
    try:
        os.write(terminal, answer.encode())
        streams = {0: os.ttyname(end)}
        done = shared()(*arguments, cwd=results.parent, env=env, streams=streams)
    finally:
        os.close(terminal)
        os.close(end)
    return done.code, done.out + done.err


# --- results ---------------------------------------------------------------------------------


def test_the_five_newest_results_stay(results: Path) -> None:
    code, said = clean(results, "--yes")
    assert (code, left(results)) == (0, ["r3", "r4", "r5", "r6", "r7"])
    for name in ("r0", "r1", "r2"):
        assert f"results/{name}" in said


def test_a_report_made_again_does_not_make_a_result_younger(results: Path) -> None:
    """Its file changes the time of the folder; the run began when it did."""
    for number in range(8):
        manifest = {"started": f"2026-01-0{number + 1}T00:00:00+00:00"}
        (results / f"r{number}" / "manifest.json").write_text(json.dumps(manifest))
    assert shared()("report", "results/r0", cwd=results.parent).code == 0
    code, _ = clean(results, "--yes", "--keep", 1)
    assert (code, left(results)) == (0, ["r7"])


@pytest.mark.parametrize(("keep", "stays"), [(0, 0), (3, 3), (8, 8), (11, 8)])
def test_as_many_stay_as_was_said(results: Path, keep: int, stays: int) -> None:
    code, said = clean(results, "--yes", "--keep", keep)
    assert code == 0
    assert left(results) == [f"r{number}" for number in range(8 - stays, 8)]
    assert said.count("results/r") == 8 - stays


def test_without_a_terminal_it_needs_yes(results: Path) -> None:
    code, said = clean(results)
    assert (code, len(left(results))) == (2, 8)
    assert "results/r0" in said
    assert "hint: " in said
    assert "--yes" in said


@pytest.mark.parametrize(("answer", "stays"), [("y\n", 5), ("n\n", 8), ("\n", 8)])
def test_at_a_terminal_it_names_them_and_asks(results: Path, answer: str, stays: int) -> None:
    code, said = clean(results, answer=answer)
    assert (code, len(left(results))) == (0, stays)
    assert said.index("results/r2") < said.index("delete these 3 result folders?")


def test_a_dry_run_asks_nothing_and_changes_nothing(results: Path) -> None:
    before = [sorted(path.rglob("*")) for path in sorted(results.iterdir())]
    code, said = clean(results, "--dry-run")
    assert (code, said.count("results/r")) == (0, 3)
    assert [sorted(path.rglob("*")) for path in sorted(results.iterdir())] == before


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_a_folder_that_is_being_written_stays(results: Path, option: str) -> None:
    with ResultStore(results / "r1"):
        code, said = clean(results, option, "--keep", 0)
    assert code == 0
    assert "results/r1 is being written, and stays" in said
    if option == "--yes":
        assert left(results) == ["r1"]
    assert (results / "r1" / "runs").is_dir()


def test_comparisons_are_results(results: Path) -> None:
    """They count among them, by their age; one that goes on stays."""
    for number in (1, 2, 3):
        (results / f"r{number}" / "manifest.json").rename(results / f"r{number}" / "compare.json")
    with locked(results / "r1"):
        code, said = clean(results, "--yes", "--keep", 5)
    assert (code, left(results)) == (0, ["r1", "r3", "r4", "r5", "r6", "r7"])
    assert "results/r1 is being written, and stays" in said


def test_a_link_is_not_followed(results: Path, tmp_path: Path) -> None:
    (results / "r0").rename(tmp_path / "elsewhere")
    (results / "r0").symlink_to(tmp_path / "elsewhere")
    code, said = clean(results, "--yes", "--keep", 0)
    assert (code, left(results)) == (0, ["r0"])
    assert "results/r0 is a link, and stays" in said
    assert (tmp_path / "elsewhere" / "manifest.json").exists()


def test_a_folder_that_was_deleted_cannot_be_written(tmp_path: Path) -> None:
    store = ResultStore.create(tmp_path / "r", "x")
    with locked(store.path):
        shutil.rmtree(store.path)
    with pytest.raises(LocalError, match="has been deleted"), store:
        pass


def test_a_folder_that_cannot_be_made_ready_is_not_locked(tmp_path: Path) -> None:
    store = ResultStore.create(tmp_path / "r", "x")
    (store.path / "runs").touch()
    with pytest.raises(LocalError, match="File exists"), store:
        pass
    assert not is_being_written(store.path)
    (store.path / "runs").unlink()
    with store:
        assert is_being_written(store.path)


def test_a_folder_that_takes_no_lock_is_named(results: Path) -> None:
    (results / "r0" / ".lock").symlink_to("elsewhere")
    code, said = clean(results, "--yes", "--keep", 7)
    assert (code, len(left(results))) == (2, 8)
    assert "results/r0 is not deleted whole: " in said
    assert "Too many levels of symbolic links" in said
    assert "--out" not in said


def test_the_lock_lasts_until_the_report_is_written(tmp_path: Path) -> None:
    store = ResultStore.create(tmp_path / "r", "x")
    with store:
        with store:
            assert is_being_written(store.path)
        assert is_being_written(store.path)
    assert not is_being_written(store.path)


# --- holders ---------------------------------------------------------------------------------


@pytest.fixture
def holder(tmp_path: Path) -> list[str]:
    """The command line of a holder whose owner is no more."""
    program = tmp_path / "datapath" / "lanes" / "holder.py"
    program.parent.mkdir(parents=True)
    program.write_text("import time\ntime.sleep(600)\n")
    return [sys.executable, "-I", "-S", str(program), "9", str(NO_SUCH_PID), "host0"]


@pytest.fixture
def own_holder(holder: list[str]) -> Iterator[int]:
    process = subprocess.Popen(holder)
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def foreign_holder(root: None, holder: list[str]) -> Iterator[int]:
    """A holder in a PID namespace of its own, as a container has; its PID out here."""
    process = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", *holder])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def command() -> bytes:
        words = children.read_text().split()
        return Path(f"/proc/{words[0]}/cmdline").read_bytes() if words else b""

    wait_until(lambda: command().startswith(holder[0].encode()), "the holder runs")
    yield int(children.read_text().split()[0])
    process.kill()
    process.wait()


def test_a_holder_without_owner_is_ended(own_holder: int) -> None:
    wait_until(lambda: own_holder in orphaned_holders(), "its owner is gone")
    assert str(own_holder) in dpctl("clean", "--dry-run").stdout
    assert os.waitpid(own_holder, os.WNOHANG) == (0, 0)
    assert f"holder process {own_holder} of a dead run" in dpctl("clean").stdout
    assert own_holder not in orphaned_holders()


def test_a_holder_of_another_pid_namespace_is_left_alone(
    foreign_holder: int, own_holder: int
) -> None:
    """Its owner has a number of that namespace, which says nothing here."""
    wait_until(lambda: own_holder in orphaned_holders(), "its owner is gone")
    assert own_holder in orphaned_holders()
    assert foreign_holder not in orphaned_holders()
    assert str(foreign_holder) not in dpctl("clean").stdout
    assert b"holder.py" in Path(f"/proc/{foreign_holder}/cmdline").read_bytes()
