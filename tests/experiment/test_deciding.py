# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Repetitions until claims are decided: which runs they are, and that they end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from datapath import stats
from datapath.cli import main
from datapath.experiment import claims
from datapath.experiment.deciding import all_names, failed_further, further_runs
from datapath.experiment.load import LoadedExperiment, load_text
from datapath.experiment.store import RunRecord
from datapath.experiment.sweep import Run, schedule
from tests.cli.server import dpctl

SIM = """\
version: 1
name: deciding
topology: {lane: sim}
path: {delay: 10us, rate: 1gbit, queue: 64KiB}
transport: {port: udp}
workload: {kind: stream, size: 4KiB, depth: 4, duration: 1ms}
sweep: {matrix: {path.loss: [0, 1%]}, repetitions: 2}
report:
  expect:
    - {metric: goodput, where: {path.loss: 0}, min: 1kbit}
"""


def loaded(bound: str = "min: 1gbit") -> LoadedExperiment:
    return load_text(SIM.replace("min: 1kbit", bound), Path("deciding.yaml"))


def record(run: Run, goodput: float) -> RunRecord:
    return RunRecord(
        point=run.point.key,
        repetition=run.repetition,
        block=run.repetition,
        axes=dict(run.point.axes),
        seed=0,
        status="ok",
        started="2025-01-01T00:00:00.000+00:00",
        seconds=1.0,
        spec={},
        metrics=[{"name": "goodput", "value": goodput, "unit": "bit/s"}],
    )


def made(experiment: LoadedExperiment, repetitions: int, *values: float) -> list[RunRecord]:
    runs = schedule(experiment.points, experiment.spec.sweep, 1, repetitions)
    return [record(run, values[run.repetition % len(values)]) for run in runs]


def test_only_the_points_of_undecided_claims_are_repeated() -> None:
    experiment = loaded()
    runs = further_runs(experiment, made(experiment, 2, 2e9), most=30)
    assert {run.point.axes["path.loss"] for run in runs} == {"0"}
    assert [run.repetition for run in runs] == [2, 3]


def test_a_repetition_makes_a_run_of_each_point_of_a_claim() -> None:
    """Two runs of each of two points are two repetitions, and no four."""
    text = SIM.replace("where: {path.loss: 0}", "where: {path.loss: [0, 1%]}")
    experiment = load_text(text, Path("deciding.yaml"))
    (verdict,) = claims.evaluate(experiment, made(experiment, 2, 2e9))
    assert (verdict.n, verdict.more) == (2, 4)
    assert verdict.doubt == "n = 2 of each point is too few, 6 are needed"
    runs = further_runs(experiment, made(experiment, 2, 2e9), most=30)
    assert [run.repetition for run in runs] == [2, 2, 3, 3]


def test_runs_without_the_metric_ask_for_no_others() -> None:
    """Those would leave it out as well, and what survives would look like a result."""
    experiment = loaded()
    records = made(experiment, 8, 2e9)
    without = [replace(r, metrics=[]) if r.repetition == 3 else r for r in records]
    for repetitions in (4, 8):
        some = [r for r in without if r.repetition < repetitions]
        assert further_runs(experiment, some, most=30) == []


def test_a_round_at_most_doubles_and_never_passes_the_limit() -> None:
    experiment = loaded()
    noisy = made(experiment, 8, 0.9e9, 1.3e9, 1.1e9, 1.12e9)
    for most, count in ((8, 0), (10, 2), (1000, 8)):
        assert len(further_runs(experiment, noisy, most)) == count


def test_decided_claims_ask_for_nothing() -> None:
    for bound in ("min: 1gbit", "max: 1gbit"):
        experiment = loaded(bound)
        assert further_runs(experiment, made(experiment, 6, 2e9), most=1000) == []


def test_rounds_come_to_an_end_whatever_is_measured() -> None:
    experiment = loaded()
    rng = stats.rng(1)
    records = made(experiment, 2, 1e9)
    for _ in range(20):
        runs = further_runs(experiment, records, most=40)
        records += [record(run, float(rng.normal(1.001e9, 1e8))) for run in runs]
    assert further_runs(experiment, records, most=40) == []
    assert max(r.repetition for r in records) < 40


def test_names_of_all_runs() -> None:
    experiment = loaded()
    names = set(all_names(experiment, 3))
    assert names == {run.name for run in schedule(experiment.points, experiment.spec.sweep, 1, 3)}


def test_a_run_goes_on_until_its_claims_are_shown(tmp_path: Path) -> None:
    path, out = tmp_path / "x.yaml", tmp_path / "out"
    path.write_text(SIM)
    arguments = ["run", str(path), "--out", str(out), "--jobs", "1", "--quiet"]
    assert main([*arguments, "--repetitions", "auto"]) == 0
    (claim,) = json.loads((out / "claims.json").read_text())
    assert (claim["shown"], claim["n"]) == (True, stats.FEWEST)
    assert json.loads((out / "manifest.json").read_text())["runs_planned"] == 2 + stats.FEWEST
    for file in sorted((out / "runs").glob("*.json"))[:3]:
        file.unlink()
    assert main(["run", "--resume", str(out), "--quiet", "--jobs", "1"]) == 0
    assert json.loads((out / "claims.json").read_text()) == [claim]
    assert "Partial result" not in (out / "report.html").read_text()


def test_a_run_tells_what_its_limit_leaves_undecided(tmp_path: Path) -> None:
    path, out = tmp_path / "x.yaml", tmp_path / "out"
    path.write_text(SIM)
    done = dpctl("run", path, "--out", out, "--jobs", 1, "--no-report", "--repetitions", "auto:4")
    assert done.returncode == 0
    (claim,) = json.loads((out / "claims.json").read_text())
    assert (claim["pass"], claim["shown"], claim["n"]) == (True, False, 4)
    assert "note: 2 more runs, for claims that are not decided yet\n" in done.stderr
    told = "note: 1 claim stays undecided: 4 repetitions are the most that were asked for\n"
    assert told in done.stderr
    wanted = stats.FEWEST - 4
    assert f"{wanted} more repetitions would decide" in done.stdout


def test_a_run_that_is_done_goes_on_until_its_claims_are_shown(tmp_path: Path) -> None:
    path, out = tmp_path / "x.yaml", tmp_path / "out"
    path.write_text(SIM)
    arguments = ["--jobs", 1, "--no-report"]
    done = dpctl("run", path, "--out", out, *arguments)
    more = f"run --resume {out} --repetitions auto"
    assert f"decide: dpctl {more}\n" in done.stdout
    before = {file.name: file.read_bytes() for file in (out / "runs").glob("*.json")}
    done = dpctl(*more.split(), *arguments)
    assert done.returncode == 0
    assert "decide:" not in done.stdout
    (claim,) = json.loads((out / "claims.json").read_text())
    assert (claim["shown"], claim["n"]) == (True, stats.FEWEST)
    after = {file.name: file.read_bytes() for file in (out / "runs").glob("*.json")}
    assert len(after) == 2 + stats.FEWEST
    assert before.items() <= after.items()


QUIET = ("--jobs", 1, "--no-report")


def decided(tmp_path: Path) -> tuple[Path, Path]:
    """The result of a run that its claims have made longer, and the record of its last run."""
    path, out = tmp_path / "x.yaml", tmp_path / "out"
    path.write_text(SIM)
    dpctl("run", path, "--out", out, *QUIET, "--repetitions", "auto")
    (last,) = (out / "runs").glob(f"*-{stats.FEWEST - 1}.json")
    return out, last


def test_further_runs_that_were_interrupted_are_made_by_resume(tmp_path: Path) -> None:
    """All runs of the file are there, and of those that claims asked for one is not."""
    out, last = decided(tmp_path)
    told = (out / "claims.json").read_bytes()
    last.unlink()
    assert dpctl("run", "--resume", out, *QUIET).returncode == 0
    assert last.exists()
    assert (out / "claims.json").read_bytes() == told


def test_further_runs_that_failed_are_made_again_by_resume(tmp_path: Path) -> None:
    out, last = decided(tmp_path)
    told = (out / "claims.json").read_bytes()
    whole = json.loads(last.read_text())
    error = {"message": "it failed", "hint": ""}
    last.write_text(json.dumps(whole | {"status": "failed", "metrics": [], "error": error}))
    assert dpctl("run", "--resume", out, *QUIET).returncode == 0
    again = json.loads(last.read_text())
    assert (again["status"], again["metrics"]) == ("ok", whole["metrics"])
    assert (out / "claims.json").read_bytes() == told


def test_runs_that_no_claim_needs_any_more_are_not_planned(tmp_path: Path) -> None:
    """An interrupted round had planned one more than the runs which decide the claims."""
    path, out = tmp_path / "x.yaml", tmp_path / "out"
    path.write_text(SIM)
    dpctl("run", path, "--out", out, "--jobs", 1, "--no-report", "--repetitions", "auto")
    manifest = json.loads((out / "manifest.json").read_text())
    planned = manifest["runs_planned"]
    (out / "manifest.json").write_text(json.dumps(manifest | {"runs_planned": planned + 1}))
    assert dpctl("run", "--resume", out, "--jobs", 1, "--no-report").returncode == 0
    assert json.loads((out / "manifest.json").read_text())["runs_planned"] == planned


TWINS = """\
version: 1
name: twins
workload: {kind: stream, size: 4KiB, depth: 4, duration: 1ms}
sweep:
  matrix:
    hosts:
      - {label: live, set: {topology.lane: netns}}
      - {label: late, set: {topology.lane: sim, topology.wakeup: live}}
      - {label: in time, set: {topology.lane: sim}}
  repetitions: 2
report:
  expect:
    - {metric: goodput, where: {hosts: late}, min: 1gbit}
"""


def test_a_live_twin_is_repeated_with_the_simulated_point_of_a_claim() -> None:
    """Which takes what the twin measured in the same repetition."""
    experiment = load_text(TWINS, Path("twins.yaml"))
    runs = further_runs(experiment, made(experiment, 2, 2e9), most=30)
    found = sorted((run.repetition, run.point.axes["hosts"]) for run in runs)
    assert found == [(2, "late"), (2, "live"), (3, "late"), (3, "live")]


def test_a_live_twin_that_was_never_made_is_made_with_a_failed_run() -> None:
    """Without it the simulated run would fail again; one that went well stays."""
    experiment = load_text(TWINS, Path("twins.yaml"))
    records = made(experiment, 4, 2e9)
    for each in records:
        if each.repetition >= 2 and each.axes["hosts"] == "late":
            each.status = "failed"
    records = [
        each for each in records if each.axes["hosts"] != "live" or each.repetition in (0, 1, 3)
    ]
    found = [
        (run.repetition, run.point.axes["hosts"]) for run in failed_further(experiment, records)
    ]
    assert sorted(found) == [(2, "late"), (2, "live"), (3, "late")]
