# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl list | show | report | series`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath import foreign
from datapath.cli.output import (
    Format,
    FormatOption,
    MetricOption,
    print_record,
    print_rows,
    tell_note,
    terminal_width,
)
from datapath.errors import CapabilityError, LocalError

if TYPE_CHECKING:
    from datapath.report.folder import ResultFolder

EXPERIMENTS = Path("experiments")
RESULTS = Path("results")

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A result folder.")]


def register(app: typer.Typer) -> None:
    app.command("list", short_help="List experiments and results.")(list_)
    app.command(short_help="Print the answer of a result folder, or any of its metrics.")(show)
    app.command(short_help="Make the report of a result folder again.")(report)
    app.command(short_help="Print series over time, as CSV.")(series)


# --- list ------------------------------------------------------------------------------------


def list_(fmt: FormatOption = Format.table) -> None:
    """List the experiments in experiments/, and the results and comparisons in results/.

    \b
    dpctl list
    dpctl list --format json
    """
    experiments = [_experiment_row(file) for file in sorted(EXPERIMENTS.glob("*.y*ml"))]
    found = [_row(folder) for folder in result_folders(RESULTS)]
    if fmt is not Format.table:
        print_rows([*experiments, *found], [], fmt)
        return
    if not experiments and not found:
        print("no experiments/*.yaml and no results/ here", file=sys.stderr)
    results = [row for row in found if "result" in row]
    comparisons = [row for row in found if "comparison" in row]
    print_rows(experiments, ["experiment", "points", "runs", "description"], fmt, cut=True)
    if experiments and results:
        print()
    print_rows(results, ["result", "state", "runs", "failed", "claims"], fmt)
    if comparisons and (experiments or results):
        print()
    print_rows(comparisons, ["comparison", "state", "blocks", "revisions"], fmt)


def _experiment_row(file: Path) -> dict[str, Any]:
    from datapath.errors import DatapathError
    from datapath.experiment.load import load

    try:
        experiment = load(file)
    except DatapathError as error:
        first = str(error).partition("\n")[0]
        return {"experiment": str(file), "valid": False, "description": f"not valid: {first}"}
    points = len(experiment.points)
    return {
        "experiment": str(file),
        "valid": True,
        "points": points,
        "runs": points * experiment.spec.sweep.repetitions,
        "description": experiment.spec.description.strip().partition("\n")[0],
    }


def result_folders(root: Path) -> list[Path]:
    """The folders of results and of comparisons below `root`, by when they were begun."""
    from datapath.experiment.revisions import ABOUT

    marks = ("manifest.json", ABOUT)
    begun = {path.parent: _begun(path) for mark in marks for path in root.glob(f"*/{mark}")}
    return sorted(begun, key=lambda folder: (begun[folder], folder))


def _begun(mark: Path) -> float:
    """When a run or comparison began, by its file: a report that is made anew changes the folder.

    A comparison writes its file when it begins, and does not tell the time in it.
    """
    told = _json(mark)
    try:
        began = datetime.fromisoformat(told["started"])
        return began.replace(tzinfo=began.tzinfo or UTC).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return mark.stat().st_mtime


def _row(folder: Path) -> dict[str, Any]:
    from datapath.experiment.revisions import is_comparison

    return _comparison_row(folder) if is_comparison(folder) else _result_row(folder)


def _comparison_row(folder: Path) -> dict[str, Any]:
    from datapath.experiment.revisions import Comparison, look

    try:
        about = look(folder)
    except LocalError:
        about = Comparison([], 0, [])
    made = len(about.pairs)
    return {
        "comparison": str(folder),
        "state": "complete" if made and made >= about.planned else "partial",
        "blocks": f"{made}/{about.planned}",
        "revisions": about.names,
    }


def _result_row(folder: Path) -> dict[str, Any]:
    from datapath.report.folder import mapping, sequence

    manifest = mapping(_json(folder / "manifest.json"))
    claims = _json(folder / "claims.json")
    verdicts = [mapping(claim) for claim in sequence(claims)]
    runs = [mapping(_json(path)) for path in (folder / "runs").glob("*.json")]
    planned = manifest.get("runs_planned", 0)
    held = f"{sum(bool(v.get('pass')) for v in verdicts)}/{len(verdicts)}" if verdicts else ""
    return {
        "result": str(folder),
        "state": "complete" if claims is not None else "partial",
        "runs": f"{len(runs)}/{planned}",
        "failed": sum(run.get("status") != "ok" for run in runs),
        "claims": f"{held} hold" if held else "",
        "started": manifest.get("started"),
    }


def _json(path: Path) -> Any:
    try:
        return foreign.read_json(path)
    except (OSError, ValueError):
        return None


# --- show ------------------------------------------------------------------------------------


def show(
    folder: _Folder,
    metric: MetricOption = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="AXIS=VALUE",
            help="Only these points; repeatable, several values of an axis are alternatives.",
            show_default=False,
        ),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(metavar="AXIS", help="Axis whose values become columns.", show_default=False),
    ] = None,
    ratio: Annotated[bool, typer.Option("--ratio", help="Ratios to the baseline.")] = False,
    fmt: FormatOption = Format.table,
) -> None:
    """Print what a result folder says: its claims and the headline metric, or what is asked for.

    \b
    dpctl show results/quickstart-20250101T120000Z
    dpctl show results/quickstart-20250101T120000Z --metric latency_p99 --ratio
    dpctl show results/loss-tolerance-20250101T120000Z --metric goodput \\
        --where path.loss=1% --pivot lane
    dpctl show results/quickstart-20250101T120000Z --format json | jq .claims
    """
    from datapath.report import answer, tables
    from datapath.report.folder import read

    result = read(folder)
    chosen = _selector(where or [])
    answer.check_where(result, chosen | ({pivot: []} if pivot else {}))
    names = [] if metric == ["all"] else list(metric or [])
    answer.check_metrics([result], names)
    if fmt is Format.json:
        print_record(tables.summary(result, names, chosen), fmt)
    elif fmt is Format.ndjson:
        print_rows(tables.records(result, names, chosen), [], fmt)
    elif metric or chosen or pivot or ratio:
        shown = names or answer.names(result, every=bool(metric))
        _print_metrics(result, shown, chosen, columns=pivot or "", ratio=ratio)
    else:
        answer.write(answer.answer(result, terminal_width()), sys.stdout)


def _print_metrics(
    result: ResultFolder,
    names: list[str],
    where: dict[str, list[str]],
    *,
    columns: str,
    ratio: bool,
) -> None:
    from datapath.report import answer

    for name in names:
        lines = answer.metric(
            result,
            name,
            terminal_width(),
            where=where,
            columns=columns,
            ratio=ratio,
            intervals=True,
        )
        answer.write(lines if name == names[-1] else [*lines, ""], sys.stdout)


def _selector(conditions: list[str]) -> dict[str, list[str]]:
    """`AXIS=VALUE` several times as axis -> values."""
    chosen: dict[str, list[str]] = {}
    for condition in conditions:
        axis, equals, value = condition.partition("=")
        if not equals:
            raise LocalError(f"--where {condition} is not AXIS=VALUE", hint="for example stack=tcp")
        chosen.setdefault(axis, []).append(value)
    return chosen


# --- report ----------------------------------------------------------------------------------


def report(
    folder: _Folder,
    open_: Annotated[bool, typer.Option("--open", help="Show the report in a browser.")] = False,
    plots: Annotated[
        str | None,
        typer.Option(
            metavar="pdf|svg|png",
            help="Export every plot in this format.",
            show_default=False,
            autocompletion=lambda: ["pdf", "svg", "png"],
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder to write to; default: the result folder.",
            show_default=False,
        ),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Make report.html of a result folder again, also of an unfinished one.

    \b
    dpctl report results/quickstart-20250101T120000Z --open
    dpctl report results/quickstart-20250101T120000Z --plots pdf
    dpctl report /archive/quickstart-20250101T120000Z --out /tmp/quickstart
    """
    from datapath import report as reports

    if plots is not None and plots not in ("pdf", "svg", "png"):
        raise LocalError(f"no plot format {plots!r}", hint="one of pdf, svg, png")
    page = reports.build(folder, out, tell_note)
    files = [] if plots is None else reports.export_plots(folder, plots, out)
    if fmt is Format.table:
        for path in (page, *files):
            print(path)
    else:
        print_record({"report": str(page), "plots": list(map(str, files))}, fmt)
    if open_:
        _show(page)


def _show(page: Path) -> None:
    viewer = shutil.which("xdg-open")
    if viewer is None or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise CapabilityError(
            "no browser to show the report in", hint=f"copy {page} to your machine and open it"
        )
    subprocess.Popen([viewer, str(page)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# --- series ----------------------------------------------------------------------------------


def series(
    folder: _Folder,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The run: <point>-<repetition>.", show_default=False),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Print the series of a run as CSV, or as JSON; without RUN, list the runs that have series.

    \b
    dpctl series results/quickstart-20250101T120000Z
    dpctl series results/quickstart-20250101T120000Z 17f660f573df-0 > run.csv
    dpctl series results/quickstart-20250101T120000Z 17f660f573df-0 --format json
    """
    from datapath import report as reports
    from datapath.report.folder import mapping

    if run is not None:
        frame = reports.series(folder, run)
        if fmt is Format.table:
            frame.to_csv(sys.stdout, index=False)
        else:
            rows = [
                {str(key): value for key, value in row.items()} for row in frame.to_dict("records")
            ]
            print_rows(rows, [], fmt)
        return
    rows = []
    for file in sorted((folder / "series").glob("*.parquet")):
        record = mapping(_json(folder / "runs" / f"{file.stem}.json"))
        about = mapping(record.get("series"))
        rows.append(
            {
                "run": file.stem,
                **mapping(record.get("axes")),
                "rows": about.get("rows"),
                "left_out": about.get("rows_left_out"),
                "absent": ", ".join(mapping(about.get("absent"))),
            }
        )
    if not rows:
        raise LocalError(
            f"{folder} has no series",
            hint="an experiment collects them with, for example, collect: {series: [cwnd, rtt]}",
        )
    print_rows(rows, list(rows[0]), fmt)
