# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl run | validate | schema`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath.cli import INTERRUPTED
from datapath.cli.output import Format, FormatOption, print_record, print_rows, tell_error
from datapath.errors import LocalError

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.runner import Result
    from datapath.experiment.store import ResultStore
    from datapath.experiment.trust import Begun

_File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The experiment file.", show_default=False)
]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the file; repeatable."),
]

_Out = Annotated[
    Path | None,
    typer.Option(help="Result folder; default: results/<name>-<time>.", show_default=False),
]
_Resume = Annotated[
    Path | None,
    typer.Option(help="Continue this result folder.", show_default=False),
]
_Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="With --resume: run the code that the folder names, even if it is not yours.",
    ),
]
_Repetitions = Annotated[
    int | None,
    typer.Option(min=1, help="Short for --set sweep.repetitions=N.", show_default=False),
]
_PointsOnly = Annotated[
    bool,
    typer.Option("--points-only", "--dry-run", help="Print the points, and run nothing."),
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
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def register(app: typer.Typer) -> None:
    app.command(short_help="Run an experiment.")(run)
    app.command(short_help="Check an experiment file.")(validate)
    app.command(short_help="Print the file format as JSON Schema.")(schema)


def run(
    file: _File = None,
    out: _Out = None,
    resume: _Resume = None,
    trust: _Trust = False,
    set_: _Set = None,
    repetitions: _Repetitions = None,
    points_only: _PointsOnly = False,
    dask: _Dask = None,
    jobs: _Jobs = None,
    quiet: _Quiet = False,
    fmt: FormatOption = Format.table,
) -> int:
    """Run an experiment: build the network, measure every point, judge the claims, report.

    \b
    dpctl run experiments/quickstart.yaml
    dpctl run my.yaml --set path.loss=1% --repetitions 3 --out /tmp/try
    dpctl run my.yaml --dry-run
    dpctl run --resume results/quickstart-20250101T120000Z

    Exit code 0: all well; 1: a run or a claim failed; 2: the file is wrong; 3: this machine
    lacks something; 130: interrupted, to be resumed.
    """
    overrides = list(set_ or [])
    if repetitions is not None:
        overrides.append(f"sweep.repetitions={repetitions}")
    experiment, store = _chosen(file, resume, out, overrides, trust=trust)
    if points_only:
        _print_points(experiment, fmt)
        return 0
    if store is None:
        store = _fresh_store(experiment, out)
    return _execute(
        experiment, store, fmt, resume=resume is not None, quiet=quiet, dask=dask, jobs=jobs
    )


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
            hint="leave out --out, --set and --repetitions, or start a new run",
        )
    store = ResultStore.existing(resume)
    return _recorded(store, file, trust=trust), store


def _fresh_store(experiment: LoadedExperiment, out: Path | None) -> ResultStore:
    """A new result folder, once this machine is known to be able to run the experiment."""
    from datapath.experiment import preflight
    from datapath.experiment.store import ResultStore

    preflight.fetch_kernels(experiment, _progress)
    preflight.check(experiment)
    return ResultStore.create(out, experiment.spec.name)


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _recorded(store: ResultStore, file: Path | None, *, trust: bool) -> LoadedExperiment:
    """The experiment of a result folder; what it names is relative to the original file."""
    from datapath.experiment.load import load_text, read_experiment
    from datapath.experiment.trust import Begun

    begun = Begun.read(store.path, store.read_manifest())
    if file is not None and read_experiment(file) != begun.text:
        raise LocalError(
            f"{file} is not what {store.path} was begun with",
            hint="leave the file out to continue the old run, or start a new run",
        )
    if not trust:
        _ask_before_running(store.path, begun)
    return load_text(begun.text, begun.source, begun.overrides)


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
    quiet: bool,
    dask: str | None,
    jobs: int | None,
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
                experiment, store, observer, argv=argv, resume=resume, dask=dask, jobs=jobs
            )
        except Interrupted as error:
            tell_error(f"interrupted by {error}", f"go on with: dpctl run --resume {store.path}")
            return INTERRUPTED
        finally:
            observer.close()
        page = report.build(store.path)
    _print_result(result, page, fmt)
    return 1 if result.failed_runs or result.failed_claims else 0


def _print_points(experiment: LoadedExperiment, fmt: Format) -> None:
    rows: list[dict[str, Any]] = []
    for point in experiment.points:
        spec = point.spec.model_dump(mode="json", exclude_none=True)
        rows.append({"point": point.key, **point.axes, "workload": point.spec.kind, "spec": spec})
    axes = [axis.name for axis in experiment.axes]
    print_rows(rows, ["point", *axes, "workload"], fmt)
    runs = len(rows) * experiment.spec.sweep.repetitions
    print(f"{len(rows)} points, {runs} runs", file=sys.stderr)


def _print_result(result: Result, page: Path, fmt: Format) -> None:
    from datapath import report
    from datapath.report import display

    if fmt is not Format.table:
        summary = {
            "folder": str(result.folder),
            "report": str(page),
            "runs": len(result.records),
            "failed_runs": result.failed_runs,
            "claims": [verdict.as_json() for verdict in result.verdicts],
        }
        print_record(summary, fmt)
        return
    report.print_table(result.folder, sys.stdout)
    print(f"\nreport: {page}")
    sys.stdout.flush()
    for verdict in result.verdicts:
        if not verdict.passed:
            name = verdict.metric if verdict.ratio_to is None else ""
            measured = display.quantity(verdict.measured, verdict.unit, name)
            reason = f" ({verdict.reason})" if verdict.reason else ""
            tell_error(f"claim failed: {verdict.title}: measured {measured}{reason}")
    if result.failed_runs:
        failed = [record for record in result.records if record.error is not None]
        first = failed[0].error["message"] if failed[0].error else ""
        tell_error(
            f"{len(failed)} of {len(result.records)} runs failed, the first: {first}",
            f"logs are in {result.folder}/logs/{failed[0].name}; "
            f"`dpctl run --resume {result.folder}` makes them again",
        )


def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file.")],
    set_: _Set = None,
    fmt: FormatOption = Format.table,
) -> int:
    """Check an experiment file; tells every mistake with its line, its column and a hint.

    \b
    dpctl validate experiments/quickstart.yaml
    dpctl validate my.yaml --set workload.size=1MiB --format json
    """
    from datapath.experiment.document import InvalidFile
    from datapath.experiment.load import load

    try:
        experiment = load(file, list(set_ or []))
    except InvalidFile as error:
        if fmt is Format.table:
            raise
        rows = [
            {
                "file": problem.file,
                "line": problem.place.line,
                "column": problem.place.column,
                "path": problem.path,
                "message": problem.message,
            }
            for problem in error.problems
        ]
        print_rows(rows, [], fmt)
        return error.exit_code
    points, repetitions = len(experiment.points), experiment.spec.sweep.repetitions
    if fmt is Format.table:
        runs = points * repetitions
        claims = len(experiment.spec.report.expect)
        print(f"{file}: valid: {points} points, {runs} runs, {claims} claims")
    else:
        print_rows([], [], fmt)
    return 0


def schema() -> None:
    """Print the format of experiment files as JSON Schema.

    \b
    dpctl schema > experiment.schema.json

    An editor with a YAML language server takes it from the first line of a file:

    \b
    # yaml-language-server: $schema=experiment.schema.json
    """
    from datapath.experiment.spec import json_schema

    print(json.dumps(json_schema(), indent=2))
