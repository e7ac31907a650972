# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl list | report | series`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from datapath import foreign
from datapath.cli.output import Format, FormatOption, print_record, print_rows
from datapath.errors import CapabilityError, LocalError

EXPERIMENTS = Path("experiments")
RESULTS = Path("results")

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A result folder.")]


def register(app: typer.Typer) -> None:
    app.command("list", short_help="List experiments and results.")(list_)
    app.command(short_help="Make the report of a result folder again.")(report)
    app.command(short_help="Print series over time, as CSV.")(series)


# --- list ------------------------------------------------------------------------------------


def list_(fmt: FormatOption = Format.table) -> None:
    """List the experiments in experiments/ and the results in results/.

    \b
    dpctl list
    dpctl list --format json
    """
    experiments = [_experiment_row(file) for file in sorted(EXPERIMENTS.glob("*.y*ml"))]
    results = [_result_row(folder) for folder in result_folders(RESULTS)]
    if fmt is not Format.table:
        print_rows([*experiments, *results], [], fmt)
        return
    if not experiments and not results:
        print("no experiments/*.yaml and no results/ here", file=sys.stderr)
    print_rows(experiments, ["experiment", "points", "runs", "description"], fmt)
    if experiments and results:
        print()
    print_rows(results, ["result", "state", "runs", "failed", "claims"], fmt)


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
    """The result folders below `root`, oldest first."""
    found = [path.parent for path in root.glob("*/manifest.json")]
    return sorted(found, key=lambda folder: folder.stat().st_mtime)


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


# --- report ----------------------------------------------------------------------------------


def report(
    folder: _Folder,
    open_: Annotated[bool, typer.Option("--open", help="Show the report in a browser.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Print the table as well.")] = False,
    plots: Annotated[
        str | None,
        typer.Option(
            metavar="pdf|svg|png", help="Export every plot in this format.", show_default=False
        ),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Make report.html of a result folder again, also of an unfinished one.

    \b
    dpctl report results/quickstart-20250101T120000Z --open
    dpctl report results/quickstart-20250101T120000Z --plots pdf
    dpctl report results/quickstart-20250101T120000Z --table --format json | jq
    """
    from datapath import report as reports

    page = reports.build(folder)
    if not table:
        print(page)
    elif fmt is Format.table:
        reports.print_table(folder, sys.stdout)
    elif fmt is Format.json:
        print_record(reports.summary(folder), fmt)
    else:
        print_rows(reports.records(folder), [], fmt)
    if plots is not None:
        if plots not in ("pdf", "svg", "png"):
            raise LocalError(f"no plot format {plots!r}", hint="one of pdf, svg, png")
        for path in reports.export_plots(folder, plots):
            print(path)
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
        typer.Argument(metavar="[RUN]", help="The run: <point>-<repetition>.", show_default=False),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Print the series of a run as CSV; without RUN, list the runs that have series.

    \b
    dpctl series results/quickstart-20250101T120000Z
    dpctl series results/quickstart-20250101T120000Z 17f660f573df-0 > run.csv
    """
    from datapath import report as reports
    from datapath.report.folder import mapping

    if run is not None:
        reports.series(folder, run).to_csv(sys.stdout, index=False)
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
                "left out": about.get("rows_left_out"),
                "absent": ", ".join(mapping(about.get("absent"))),
            }
        )
    if not rows:
        raise LocalError(
            f"{folder} has no series",
            hint="an experiment collects them with, for example, collect: {series: [cwnd, rtt]}",
        )
    print_rows(rows, list(rows[0]), fmt)
