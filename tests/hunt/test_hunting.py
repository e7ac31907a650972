# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hunts for algorithms that are bad on purpose: what is found, why, and that it can be replayed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ruamel.yaml import YAML

from datapath.experiment.parallel import _died, _overdue
from datapath.hunt.case import Setup
from datapath.hunt.findings import Finding, Findings, new_folder
from datapath.hunt.hunting import CONFIRMING
from datapath.hunt.limits import BROKEN, ENDLESS, SCORE_MAX
from datapath.hunt.trial import _scores_of_failure, attempt
from tests.cli.server import Dpctl, dpctl
from tests.cli.told import told
from tests.hunt.conftest import Hunt
from tests.processes import alive, descendants
from tests.waiting import wait_until

DPCTL = [sys.executable, "-m", "datapath.cli"]


def keys(findings: Findings) -> set[tuple[str, tuple[str, ...]]]:
    return {finding.key for finding in findings.all}


def of(findings: Findings, symptom: str, *causes: str) -> Finding:
    (found,) = (item for item in findings.all if item.key == (symptom, causes))
    return found


def test_a_call_that_does_not_come_back_is_no_mistake_of_the_toolkit() -> None:
    """In the words of the runs; and a process that somebody killed says nothing."""
    assert _scores_of_failure(str(_overdue())) == {ENDLESS: SCORE_MAX}
    for signum in (0, signal.SIGKILL, signal.SIGTERM):
        assert _scores_of_failure(str(_died(signum))) == {}
    assert _scores_of_failure("an invariant is broken") == {BROKEN: SCORE_MAX}


@pytest.mark.parametrize("signum", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_is_a_mistake_of_the_toolkit(bad: Path, signum: signal.Signals) -> None:
    """The process of the run ends as with an assertion, or a bad pointer, in the engine."""
    setup = Setup(f"{bad}:Halver", {})
    bad.write_text(bad.read_text() + CRASH.format(parent=os.getpid(), signum=int(signum)))
    trial = attempt(setup, {}, 1)
    assert trial.scores == {BROKEN: SCORE_MAX}
    assert signum.name in trial.error


CRASH = """
import faulthandler, os
if os.getppid() == {parent}:
    faulthandler.disable()  # pytest's tells where a test crashed, and this is none
    os.kill(os.getpid(), {signum})
"""


def test_who_halves_for_ever_is_broken_by_loss(run_hunt: Hunt, bad: Path) -> None:
    findings = run_hunt(f"{bad}:Halver", "loss duplicate mtu", cases=70)
    assert ("low-goodput", ()) not in keys(findings), "it is right where nothing is lost"
    finding = of(findings, "low-goodput", "loss")
    assert finding.minimal
    assert finding.trial.case["loss"] < 0.01, "a little loss will do"
    assert finding.score > 1
    assert finding.cases > 1, "others with loss are the same finding"
    assert len(keys(findings)) == len(findings.all)
    assert not [cause for _, cause in keys(findings) if cause == ("duplicate",)]


def test_who_ignores_loss_is_found_by_its_queue(run_hunt: Hunt, bad: Path) -> None:
    findings = run_hunt(f"{bad}:Filler", "buffer duplicate", cases=40)
    assert ("standing-queue", ()) not in keys(findings), "the default buffer is a short one"
    finding = of(findings, "standing-queue", "buffer high")
    buffer = finding.trial.case["buffer"]
    assert buffer > 3, "3 times the idle RTT of 273 us is 620 us of queue, 3.1 BDP"
    # Three bisections from at most 20 BDP.
    shorter = attempt(findings.setup, {"buffer": buffer / 20 ** (1 / 8)}, CONFIRMING)
    assert "standing-queue" not in shorter.bad(), "the case is as small as it can be"
    assert finding.cases >= 1
    assert finding.worst >= finding.score > 1


def test_who_dies_is_found(run_hunt: Hunt, bad: Path) -> None:
    """With no patience at all, a burst that takes all copies of a packet ends a QP."""
    settings = {"transport.retry_count": 0, "transport.ack_timeout": 8}
    findings = run_hunt(f"{bad}:Halver", "burst mtu", settings=settings, cases=50)
    finding = of(findings, "died", "burst")
    assert "retry counter exceeded" in finding.trial.error
    assert finding.row()["measured"] is None


def test_the_same_seed_finds_the_same(run_hunt: Hunt, tmp_path: Path) -> None:
    only = "rate rtt buffer flows loss burst trace competing incast"
    one = run_hunt("fixed", only, cases=24, out="one", jobs=1)
    run_hunt("fixed", only, cases=24, out="two", jobs=2)
    other = run_hunt("fixed", only, cases=10, out="other", seed=2)
    files = {
        name: {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    }
    assert len(one.all) > 1
    assert files["one"] == files["two"]
    assert [finding.row() for finding in one.all] != [finding.row() for finding in other.all]


def test_a_hunt_outlives_its_processes(run_hunt: Hunt, bad: Path) -> None:
    """One that is killed while it has cases takes none of them along."""
    only = "loss duplicate mtu"
    killed = bad.parent / "killed"
    bad.write_text(bad.read_text() + KILLS_ONCE.format(file=str(killed)))
    killed.touch()
    whole = run_hunt(f"{bad}:Halver", only, cases=12, out="whole", jobs=2)
    killed.unlink()
    other = run_hunt(f"{bad}:Halver", only, cases=12, out="other", jobs=2)
    assert killed.exists()
    assert [finding.row() for finding in whole.all] == [finding.row() for finding in other.all]


KILLS_ONCE = """
import multiprocessing, os, pathlib
if multiprocessing.parent_process() and not os.path.exists({file!r}):
    pathlib.Path({file!r}).touch()
    os.kill(os.getpid(), 9)
"""


def test_a_finding_is_replayed_by_dpctl_run(bad: Path, tmp_path: Path) -> None:
    """The file gives the value that was told, and fails as its algorithm does."""
    done = dpctl(
        *("cc", "hunt", "./bad.py:Halver", "--cases", 40, "--only", "loss,competing"),
        *("--jobs", 1, "--out", "hunt", "--format", "json"),
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    rows = told("cc hunt", done.stdout)
    assert rows == json.loads((tmp_path / "hunt/findings.json").read_text())
    assert len({row["symptom"] for row in rows}) > 1
    assert len({row["cause"].partition("=")[0] for row in rows}) > 1
    for at, row in enumerate(rows[:2]):
        folder = tmp_path / f"replay-{at}"
        again = dpctl(
            "run", "--no-report", tmp_path / "hunt" / row["file"], "--out", folder, cwd=tmp_path
        )
        assert again.returncode == 1, again.stderr
        assert f"the first: not {row['symptom']}" in again.stderr
        table = pd.read_parquet(folder / "runs.parquet")
        values = table.loc[table["metric"] == row["metric"], "value"]
        assert len(values) == row["runs"]
        assert values.median() == row["measured"]


def test_what_was_found_is_there_after_an_interrupt(
    quick_dpctl: Dpctl, bad: Path, tmp_path: Path
) -> None:
    for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        folder = tmp_path / f"hunt-{number}"
        command = [*DPCTL, "cc", "hunt", f"{bad}:Halver", "--only", "loss,mtu", "--out", folder]
        process = subprocess.Popen([*map(str, command), "--time", "10min"], stderr=subprocess.PIPE)
        wait_for_a_finding(folder, process)
        children = descendants(process.pid)
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == status
        found = sorted(folder.glob("*-*.yaml"))
        assert found
        for path in found:
            assert YAML().load(path)["cc"]["algo"] == f"{bad}:Halver"
            assert quick_dpctl("validate", path).code == 0
        assert children
        wait_until(lambda: not alive(children), "its workers are gone")  # noqa: B023


def test_a_hunt_ends_when_its_algorithm_is_edited(bad: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hunt"
    command = [*DPCTL, "cc", "hunt", f"{bad}:Halver", "--only", "loss,mtu", "--out", folder]
    process = subprocess.Popen(
        [*map(str, command), "--time", "10min", "-q"], stderr=subprocess.PIPE, text=True
    )
    wait_for_a_finding(folder, process)
    before = (folder / "findings.json").read_text()
    bad.write_text(bad.read_text() + "\n\n# an edit\n")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"{bad} was changed, so the hunt ends here" in errors
    assert str(folder) in errors
    assert "broken" not in before + (folder / "findings.json").read_text()


def wait_for_a_finding(folder: Path, process: subprocess.Popen[Any]) -> None:
    table = folder / "findings.json"
    while not (table.exists() and json.loads(table.read_text())):
        assert process.poll() is None
        time.sleep(0.05)


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch"], "no congestion-control algorithm is called 'nosuch'"),
        (["fixed", "-p", "windw=1"], "has no parameter 'windw'"),
        (["fixed", "--only", "los"], "no dimension 'los'; did you mean loss?"),
        (["fixed", "--only", "loss", "--without", "loss"], "nothing is left to vary"),
        (["fixed", "--time", "5"], "--time: '5' has no unit"),
        (["fixed", "--set", "path.rate=1gbit"], "path.rate cannot be the same for all cases"),
        (
            ["fixed", "--set", "transport.mode"],
            "transport.mode: write --set path.to.key=val",
        ),
        (["fixed", "--set", "transport.mod=standard", "--cases", "1"], "did you mean mode?"),
        (["fixed", "--out", "full"], "full exists and is not an empty folder"),
    ],
)
def test_wrong_use(quick_dpctl: Dpctl, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    done = quick_dpctl("cc", "hunt", *arguments, cwd=tmp_path)
    assert done.code == 2, done.err
    assert said in done.err


def test_what_can_vary_is_listed(quick_dpctl: Dpctl, tmp_path: Path) -> None:
    done = quick_dpctl("cc", "hunt", "fixed", "--dimensions", "--format", "ndjson", cwd=tmp_path)
    assert done.code == 0
    rows = [json.loads(line) for line in done.out.splitlines()]
    loss = {"dimension": "loss", "meaning": "random, of data", "default": ""}
    assert {"version": 1, **loss} in rows
    assert list(tmp_path.iterdir()) == []


def test_folders_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(2):
        names.append(new_folder("swift"))
        Findings(names[-1], Setup("swift"))
    assert len(set(names)) == 2
    assert all([path.name for path in name.iterdir()] == ["findings.json"] for name in names)
