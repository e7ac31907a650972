# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl run`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath.cli import INTERRUPTED
from datapath.cli.checking import SetOption
from datapath.cli.metrics import MetricsOption, serve_beside
from datapath.cli.output import (
    Format,
    FormatOption,
    print_record,
    print_rows,
    tell_error,
    tell_note,
    terminal_width,
)
from datapath.cli.results import RESULTS
from datapath.errors import DatapathError, LocalError
from datapath.spelling import counted

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.runner import Result
    from datapath.experiment.store import ResultStore
    from datapath.experiment.trust import Begun

_File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The experiment file.", show_default=False)
]
_Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="AXIS=VALUE",
        help="Measure only the points with this value; repeatable. Several values of an axis: "
        "any of them.",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Result folder; default: results/<name>-<time>.", show_default=False
    ),
]
_Resume = Annotated[
    Path | None, typer.Option(help="Continue this result folder.", show_default=False)
]
_Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="With --resume: run the code that the folder names, even if it is not yours.",
    ),
]
_Repetitions = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto|auto:MOST",
        help="Short for --set sweep.repetitions=N; auto: those of the file, and then more where "
        "a claim is not decided, up to MOST (default: 30).",
        show_default=False,
    ),
]
_MOST = 30
_PointsOnly = Annotated[
    bool, typer.Option("--points-only", "--dry-run", help="Print points and time; run nothing.")
]
_Dask = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEDULER",
        help="Make simulated runs on the workers of this Dask scheduler (HOST:PORT, "
        "or tls://HOST:PORT).",
        show_default=False,
    ),
]
_Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of simulated runs at once on this machine; default: one for each CPU.",
        show_default=False,
    ),
]
_NoReport = Annotated[
    bool,
    typer.Option("--no-report", help="Make no report.html; dpctl report DIR makes it later."),
]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def register(app: typer.Typer) -> None:
    app.command(short_help="Run an experiment.")(run)


def run(
    file: _File = None,
    out: _Out = None,
    resume: _Resume = None,
    trust: _Trust = False,
    set_: SetOption = None,
    only: _Only = None,
    repetitions: _Repetitions = None,
    points_only: _PointsOnly = False,
    dask: _Dask = None,
    jobs: _Jobs = None,
    no_report: _NoReport = False,
    metrics: MetricsOption = None,
    quiet: _Quiet = False,
    fmt: FormatOption = Format.table,
) -> int:
    """Run an experiment: build the network, measure every point, judge the claims, report.

    \b
    dpctl run experiments/quickstart.yaml
    dpctl run my.yaml --set path.delay=1ms --repetitions 3 --out /tmp/try
    dpctl run my.yaml --only cc.algo=vpc --only path.loss=0 --only path.loss=1%
    dpctl run my.yaml --repetitions auto
    dpctl run my.yaml --dry-run
    dpctl run --resume results/quickstart-20250101T120000Z
    dpctl run --resume results/quickstart-20250101T120000Z --repetitions auto

    Exit code 0: all well; 1: a run or a claim failed; 2: the file is wrong; 3: this machine
    lacks something; 130: interrupted, to be resumed.
    """
    if dask is not None:
        from datapath.experiment.cluster import check_address

        check_address(dask)
    overrides = list(set_ or [])
    if only:
        overrides.append(f"sweep.only={json.dumps(_selector(only))}")
    fixed, most = _repetitions(repetitions)
    if fixed:
        overrides.append(f"sweep.repetitions={fixed}")
    experiment, store = _chosen(file, resume, out, overrides, trust=trust)
    if points_only:
        _print_points(experiment, fmt)
        return 0
    if metrics is not None:
        serve_beside(metrics)
    if store is None:
        store = _fresh_store(experiment, out)
    return _execute(
        experiment,
        store,
        fmt,
        resume=resume is not None,
        with_report=not no_report,
        quiet=quiet,
        dask=dask,
        jobs=jobs,
        most=most,
    )


def _selector(only: Sequence[str]) -> dict[str, list[str]]:
    """Axis -> values, from `--only axis=value` given once or more."""
    where: dict[str, list[str]] = {}
    for text in only:
        axis, equals, value = text.partition("=")
        if not axis or not equals:
            raise LocalError(
                f"--only {text} names no value",
                hint="--only AXIS=VALUE; --dry-run shows axes and values",
            )
        where.setdefault(axis, []).append(value)
    return where


def _repetitions(text: str | None) -> tuple[int, int]:
    """(repetitions instead of those of the file or 0, most that claims may ask for or 0)."""
    from datapath.experiment.runner import REPETITIONS_MOST

    if text is None:
        return 0, 0
    name, colon, limit = text.partition(":")
    number = limit if colon else name if name != "auto" else str(_MOST)
    if (colon and name != "auto") or not number.isascii() or not number.isdecimal():
        raise LocalError(f"--repetitions {text} is not a number", hint="N, auto or auto:MOST")
    count = int(number[:9])
    if count < 1:
        raise LocalError(f"--repetitions {text}: there is at least one")
    if name == "auto" and count > REPETITIONS_MOST:
        raise LocalError(f"--repetitions {text}: auto makes at most {REPETITIONS_MOST}")
    return (0, count) if name == "auto" else (count, 0)


def _chosen(
    file: Path | None,
    resume: Path | None,
    out: Path | None,
    overrides: list[str],
    *,
    trust: bool,
) -> tuple[LoadedExperiment, ResultStore | None]:
    """The experiment to run, and the result folder to continue, if there is one."""
    from datapath.experiment.load import load
    from datapath.experiment.store import ResultStore

    if resume is None:
        if trust:
            raise LocalError("--trust is for --resume", hint="a file that you name is run as it is")
        if file is None:
            raise LocalError("which experiment?", hint="dpctl run FILE, or dpctl run --resume DIR")
        return load(file, overrides), None
    if out is not None or overrides:
        raise LocalError(
            "--resume goes on with the experiment as it was",
            hint="leave out --out, --set, --only and --repetitions N, or start a new run",
        )
    store = ResultStore.existing(resume)
    return _recorded(store, file, trust=trust), store


def _fresh_store(experiment: LoadedExperiment, out: Path | None) -> ResultStore:
    """A new result folder, once this machine is known to be able to run the experiment."""
    from datapath.experiment import preflight
    from datapath.experiment.store import ResultStore

    preflight.fetch(experiment, _progress)
    preflight.check(experiment, out or Path.cwd())
    return ResultStore.create(out, experiment.spec.name)


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _recorded(store: ResultStore, file: Path | None, *, trust: bool) -> LoadedExperiment:
    """The experiment of a result folder; what it names is relative to the original file."""
    from datapath.experiment.load import read_experiment
    from datapath.experiment.trust import Begun

    begun = Begun.read(store.path, store.read_manifest())
    if file is not None and read_experiment(file) != begun.text:
        raise LocalError(
            f"{file} is not what {store.path} was begun with",
            hint="leave the file out to continue the old run, or start a new run",
        )
    if not trust:
        _ask_before_running(store.path, begun)
    return begun.load()


def _ask_before_running(folder: Path, begun: Begun) -> None:
    """Nothing when the folder was begun here; LocalError unless somebody agrees otherwise."""
    from datapath.experiment.trust import doubts

    why, named = doubts(begun)
    if not named:
        return
    tell = f"{folder} {why}; going on would run or use:\n" + "\n".join(f"  {n}" for n in named)
    if sys.stdin.isatty():
        print(tell, file=sys.stderr)
        if typer.confirm("go on?", err=True):
            return
        raise LocalError("nothing was run")
    raise LocalError(tell, hint=f"look at them, then: dpctl run --resume {folder} --trust")


def _execute(
    experiment: LoadedExperiment,
    store: ResultStore,
    fmt: Format,
    *,
    resume: bool,
    with_report: bool,
    quiet: bool,
    dask: str | None,
    jobs: int | None,
    most: int,
) -> int:
    from datapath import report
    from datapath.cli.progress import make_observer
    from datapath.experiment.runner import execute
    from datapath.interrupts import Interrupted

    observer = make_observer(quiet=quiet)
    argv = ["dpctl", *sys.argv[1:]]
    print(f"results: {store.path}", file=sys.stderr, flush=True)
    with store:  # until the report is there: dpctl clean leaves it alone
        try:
            result = execute(
                experiment,
                store,
                observer,
                argv=argv,
                resume=resume,
                dask=dask,
                jobs=jobs,
                most=most,
            )
        except Interrupted as error:
            observer.close()
            tell_error(f"interrupted by {error}", store.how_to_go_on())
            return INTERRUPTED
        finally:
            observer.close()
        page, unwritten = None, None
        try:
            page = report.build(store.path, None, tell_note) if with_report else None
        except DatapathError as error:  # a full disk, say: what was measured is told all the same
            unwritten = error
    _print_result(result, page, fmt, most)
    if unwritten is not None:
        raise unwritten
    return 1 if result.failed_runs or result.failed_claims else 0


def _print_points(experiment: LoadedExperiment, fmt: Format) -> None:
    rows: list[dict[str, Any]] = []
    for point in experiment.points:
        spec = point.spec.model_dump(mode="json", exclude_none=True)
        rows.append({"point": point.key, **point.axes, "workload": point.spec.kind, "spec": spec})
    axes = [axis.name for axis in experiment.axes]
    print_rows(rows, ["point", *axes, "workload"], fmt)
    runs = len(rows) * experiment.spec.sweep.repetitions
    parts = [counted(len(rows), "point"), counted(runs, "run"), _expected(experiment)]
    print(", ".join(parts), file=sys.stderr)


def _expected(experiment: LoadedExperiment) -> str:
    """How long it will take, as far as that is known."""
    from datapath.experiment.estimate import estimate
    from datapath.report.display import duration

    found = estimate(experiment, RESULTS)
    if found is None:
        return f"no earlier results in {RESULTS}/ tell how long they take"
    if found.source is None:
        return f"at least {duration(found.seconds)} by the durations of the workloads"
    return f"about {duration(found.seconds)} by {found.source}"


def _print_result(result: Result, page: Path | None, fmt: Format, most: int) -> None:
    """most: repetitions that claims could ask for; 0: they could not."""
    from datapath import report

    if fmt is not Format.table:
        summary = {
            "folder": str(result.folder),
            "report": str(page) if page else None,
            "runs": len(result.records),
            "failed_runs": result.failed_runs,
            "claims": [verdict.as_json() for verdict in result.verdicts],
        }
        print_record(summary, fmt)
        return
    report.print_answer(result.folder, sys.stdout, terminal_width())
    print(f"\nreport: {page or f'dpctl report {result.folder}'}\nmore: dpctl show {result.folder}")
    if not most and any(0 < (verdict.more or 0) < _MOST for verdict in result.verdicts):
        print(f"decide: dpctl run --resume {result.folder} --repetitions auto")
    sys.stdout.flush()
    failed_claims = [verdict for verdict in result.verdicts if not verdict.passed]
    if failed_claims:
        count = f"{len(failed_claims)} of {counted(len(result.verdicts), 'claim')} failed"
        tell_error(f"{count}, the first: {failed_claims[0].title}")
    if result.failed_runs:
        failed = [record for record in result.records if record.error is not None]
        first = failed[0].error["message"] if failed[0].error else ""
        tell_error(
            f"{len(failed)} of {counted(len(result.records), 'run')} failed, the first: {first}",
            f"logs are in {result.folder}/logs/{failed[0].name}; "
            f"`dpctl run --resume {result.folder}` makes them again",
        )
