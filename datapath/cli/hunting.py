# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl cc hunt`: look for what breaks an algorithm."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath.cli import INTERRUPTED
from datapath.cli.algorithms import Params, names, parameters
from datapath.cli.output import Format, FormatOption, print_rows, tell_error
from datapath.cli.screen import obeys
from datapath.errors import LocalError
from datapath.terminal import printable, raw

if TYPE_CHECKING:
    from datapath.hunt.findings import Finding, Findings
    from datapath.hunt.space import Dimension

_COLUMNS = ("file", "symptom", "score", "measured", "limit", "cause", "cases")
_DEFAULT_SECONDS = 60.0
_ANY = "{version: 1, name: hunt, topology: {lane: sim}, workload: {kind: stream}}"
"""The case on which settings are tried before there is another."""
_LINE_S = 10.0
"""From one line of progress to the next, where stderr is no terminal."""

_Algorithm = Annotated[
    str,
    typer.Argument(
        metavar="NAME|./FILE.py:CLASS",
        show_default=False,
        help="The algorithm.",
        autocompletion=names,
    ),
]
_Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="DURATION",
        help="How long to hunt, e.g. 5min; default: 1min.",
        show_default=False,
    ),
]
_Cases = Annotated[
    int | None,
    typer.Option(min=1, help="Number of cases to try, in place of a time.", show_default=False),
]
_Seed = Annotated[int, typer.Option(min=0, help="With --cases, the same seed finds the same.")]
_Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Cases at once; default: one for each CPU.", show_default=False),
]
_Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the findings; default: hunts/<name>-<time>.", show_default=False),
]
_Only = Annotated[
    str | None,
    typer.Option(metavar="DIM,DIM...", help="Vary these dimensions only.", show_default=False),
]
_Without = Annotated[
    str | None,
    typer.Option(metavar="DIM,DIM...", help="Do not vary these dimensions.", show_default=False),
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Set a key for all cases: of transport, or path.ecn, path.trim, path.telemetry.",
    ),
]
_List = Annotated[bool, typer.Option("--dimensions", help="List the dimensions, and end.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def register(app: typer.Typer) -> None:
    app.command("hunt", short_help="Look for networks that break an algorithm, in the simulator.")(
        hunt
    )


def hunt(
    algorithm: _Algorithm,
    param: Params = None,
    time_: _Time = None,
    cases: _Cases = None,
    seed: _Seed = 1,
    jobs: _Jobs = None,
    out: _Out = None,
    only: _Only = None,
    without: _Without = None,
    set_: _Set = None,
    dimensions: _List = False,
    quiet: _Quiet = False,
    fmt: FormatOption = Format.table,
) -> int:
    """Look for networks and traffic in which an algorithm does badly.

    Simulates random cases, then changes of the worst. Reduces each finding to
    its cause, and writes it as an experiment file: `dpctl run FILE` gives the
    same score again, and fails until the algorithm is better. docs/hunt.md tells
    what counts as bad.

    \b
    dpctl cc hunt cubic
    dpctl cc hunt ./my_cc.py:MyCC -p gain=0.8 --time 10min --out /tmp/hunt
    dpctl cc hunt vpc --cases 500 --seed 7
    dpctl cc hunt vpc --only loss,burst,rtt --format json
    dpctl cc hunt dctcp --set transport.ecn=true --set path.ecn=30kB
    dpctl cc hunt vpc --dimensions

    Exit code 0: no finding; 1: at least one; 130: interrupted, with the
    findings until then in the folder.
    """
    from datapath.hunt.space import SPACE

    if dimensions:
        _print_dimensions(SPACE, fmt)
        return 0
    from datapath.hunt.findings import Findings, new_folder
    from datapath.hunt.hunting import Budget
    from datapath.interrupts import Interrupted, ending_signals

    space = _space(SPACE, only, without)
    setup, made = _setup(algorithm, param, set_, seed)
    budget = Budget(cases, _seconds(time_, cases))
    findings = Findings(out or new_folder(made.name), setup)
    with ending_signals():
        try:
            tried = _hunt(space, findings, budget, made.sources, jobs, quiet=quiet)
        except Interrupted as error:
            _print_findings(findings, fmt)
            tell_error(f"interrupted by {error}", f"the findings are in {findings.folder}")
            return INTERRUPTED
    _print_findings(findings, fmt)
    count = len(findings.all)
    print(f"{tried} cases, {count} findings in {findings.folder}", file=sys.stderr)
    return 1 if count else 0


def _hunt(
    space: Sequence[Dimension],
    findings: Findings,
    budget: Any,
    files: Sequence[Path],
    jobs: int | None,
    *,
    quiet: bool,
) -> int:
    from datapath.hunt import hunting

    progress = _Progress(quiet=quiet)
    sources = hunting.Sources(files)
    try:
        return hunting.hunt(space, findings, budget, progress, jobs=jobs, sources=sources)
    finally:
        progress.close()


def _space(every: Sequence[Dimension], only: str | None, without: str | None) -> list[Dimension]:
    """The dimensions that vary; LocalError names an unknown one."""
    from datapath.hunt.space import by_name

    chosen = [by_name(name) for name in _names(only)] or list(every)
    left_out = [by_name(name) for name in _names(without)]
    space = [dimension for dimension in chosen if dimension not in left_out]
    if not space:
        raise LocalError("nothing is left to vary", hint="see dpctl cc hunt ALGORITHM --dimensions")
    return space


def _names(listed: str | None) -> list[str]:
    return [name.strip() for name in listed.split(",")] if listed else []


def _setup(
    algorithm: str, param: list[str] | None, settings: list[str] | None, seed: int
) -> tuple[Any, Any]:
    """The settings of all cases, and the compiled algorithm."""
    from datapath.cc import compile_algorithm
    from datapath.cc.spec import Cc
    from datapath.hunt.case import Setup

    values = parameters(algorithm, param)
    made = compile_algorithm(algorithm, values)
    algorithm = Cc(algo=algorithm).located(Path())
    return Setup(algorithm, values, _settings(settings or []), seed), made


def _settings(pairs: Sequence[str]) -> Mapping[str, Any]:
    """PATH=VALUE as `dpctl run --set` takes them; InvalidFile says what is wrong with one."""
    from datapath.experiment.document import parse
    from datapath.experiment.load import load_text

    load_text(_ANY, Path("hunt.yaml"), pairs)
    split = (pair.partition("=") for pair in pairs)
    return {path: parse(f"value: {value}", "--set").data["value"] for path, _, value in split}


def _seconds(text: str | None, cases: int | None) -> float | None:
    from datapath.units import parse_duration_ns

    if text is None:
        return _DEFAULT_SECONDS if cases is None else None
    try:
        return parse_duration_ns(text) / 1e9
    except ValueError as error:
        raise LocalError(f"--time: {error}", hint="for example --time 5min") from None


# --- what is shown -----------------------------------------------------------------------------


class _Progress:
    """Findings as lines on stderr; on a terminal also a line that counts, below them."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet, self.live = quiet, obeys(sys.stderr)
        self.begun = self.told = time.monotonic()

    def tried(self, cases: int, findings: int) -> None:
        now = time.monotonic()
        if self.quiet or now - self.told < (0.2 if self.live else _LINE_S):
            return
        self.told = now
        line = f"{cases} cases, {findings} findings, {now - self.begun:.0f} s"
        self._write(f"\r\x1b[K{line}" if self.live else f"{line}\n")

    def found(self, finding: Finding) -> None:
        if self.quiet:
            return
        row = _row(finding)
        what = f"{row['measured']}, {row['limit']}" if row["limit"] else row["measured"]
        clear = "\r\x1b[K" if self.live else ""
        self._write(clear + printable(f"{finding.name}: {what}; {row['cause']}") + "\n")

    def close(self) -> None:
        if self.live and not self.quiet:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        stream = raw(sys.stderr)
        stream.write(text)
        stream.flush()


def _row(finding: Finding) -> dict[str, Any]:
    """A finding with its numbers as people read them."""
    from datapath.experiment.metrics import UNITS
    from datapath.report import display

    row = finding.row()
    row["cause"] += "" if finding.minimal else " (not yet made smaller)"
    metric = row["metric"]
    if not metric:
        return {**row, "measured": row["error"], "limit": ""}

    def shown(value: float) -> str:
        return display.quantity(value, UNITS[metric], metric)

    bound = "at least" if row["min"] is not None else "at most"
    limit = row["min"] if row["min"] is not None else row["max"]
    return {
        **row,
        "measured": f"{metric} {shown(row['measured'])}",
        "limit": f"{bound} {shown(limit)}",
    }


def _print_findings(findings: Findings, fmt: Format) -> None:
    rows = [
        _row(finding) if fmt is Format.table else finding.row() for finding in findings.sorted()
    ]
    print_rows(rows, _COLUMNS, fmt)


def _print_dimensions(space: Sequence[Dimension], fmt: Format) -> None:
    rows = [
        {
            "dimension": dimension.name,
            "meaning": dimension.meaning,
            "default": "" if dimension.default is None else dimension.text(dimension.default),
        }
        for dimension in space
    ]
    print_rows(rows, ("dimension", "default", "meaning"), fmt)
