# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl doctor | compare`: looks at this machine, and at result folders side by side."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from datapath.cli import INTERRUPTED
from datapath.cli.output import (
    Format,
    FormatOption,
    MetricOption,
    print_record,
    print_rows,
    tell_error,
    terminal_width,
)
from datapath.errors import LocalError, RunFailed
from datapath.interrupts import Interrupted
from datapath.spelling import counted

if TYPE_CHECKING:
    from datapath.experiment.revisions import Comparison, Revision
    from datapath.report.folder import ResultFolder

_SIGNS = {"good": "ok", "slow": "slow", "lacks": "LACKS", "told": "-"}


_Sides = Annotated[
    list[str],
    typer.Argument(
        metavar="DIR... | REV REV FILE",
        help="Result folders, of which the first is held to; or two git revisions of this "
        "source tree (. is the tree as it is) and an experiment file; or the folder that such "
        "a comparison left.",
    ),
]
_Repetitions = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Of revisions: runs of each point with either. Default: those of the file, and as "
        "many as can show a difference at least.",
        show_default=False,
    ),
]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Of revisions: change one value of the file."),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        help="Of revisions: folder for the results; default: results/<name>-<time>.",
        show_default=False,
    ),
]
_Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also draw the first metric, a series for each side; .svg, .pdf or .png.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    app.command(short_help="Tell what this machine can do, and how to mend what it lacks.")(doctor)
    app.command(short_help="Hold result folders, or git revisions, against each other.")(compare)


def doctor(fmt: FormatOption = Format.table) -> int:
    """Tell what this machine can do and what it lacks, with the command that mends each.

    Looks at root, kernel, BPF, AF_XDP on each device, KVM, memory, CPUs and their speed, real-time
    priority, Debian packages, disk, and what each lane could do. Changes nothing.

    \b
    dpctl doctor
    dpctl doctor --format json

    Exit code 0: every lane is ready; 3: something is lacking.
    """
    from datapath.experiment.machine import examine
    from datapath.terminal import printable

    findings = list(examine())
    if fmt is not Format.table:
        print_rows([asdict(finding) for finding in findings], [], fmt)
    else:
        wide = max(len(finding.about) for finding in findings) + 2
        for finding in findings:
            head = f"{_SIGNS[finding.state]:<7}{printable(finding.about):<{wide}}"
            blank = " " * len(head)
            texts = [finding.found, f"mend: {finding.mend}" if finding.mend else ""]
            for text in filter(None, map(printable, texts)):
                lines = textwrap.wrap(text, max(20, terminal_width() - len(blank)))
                for line in lines:
                    print(head + line)
                    head = blank
    lacking = any(finding.state == "lacks" for finding in findings)
    return 3 if lacking else 0


def compare(
    sides: _Sides,
    metric: MetricOption = None,
    repetitions: _Repetitions = None,
    set_: _Set = None,
    out: _Out = None,
    plot: _Plot = None,
    fmt: FormatOption = Format.table,
) -> int:
    """Hold result folders, or two revisions, against the first: ratios with intervals.

    Points are matched by their axis values. A difference is shown if the 95 % interval of the ratio
    does not hold 1, and a test that is adjusted for all points of the table says so too.
    Revisions are set up in the cache folder, which keeps the newest four, and run the experiment in
    turn, block by block; their ratios are those within a block.

    \b
    dpctl compare results/before results/after
    dpctl compare results/before results/after results/other --metric latency_p99
    dpctl compare results/before results/after --metric all --format json
    dpctl compare results/before results/after --metric goodput --plot goodput.svg
    dpctl compare main . -- experiments/quickstart.yaml
    dpctl compare --set path.delay=1ms --repetitions 12 v1 v2 -- my.yaml
    dpctl compare results/compare-my-20250101T120000Z --metric latency_p99

    Interrupted, it tells what the complete blocks say, and exits with 130.
    """
    from datapath.experiment import revisions
    from datapath.report.folder import read

    last = Path(sides[-1])
    earlier = len(sides) == 1 and revisions.is_comparison(last)
    if len(sides) < 2 and not earlier:
        raise LocalError("two folders or more are compared", hint="dpctl compare DIR DIR")
    if last.suffix in (".yaml", ".yml") and not last.exists():
        raise LocalError(f"{last}: no such file", hint="name an experiment file")
    shown = _Shown(list(metric or []), fmt, plot)
    if last.is_file():
        shown.check_names()
        return _Revisions(sides, list(set_ or []), repetitions, out).compare(shown)
    _refuse({"--repetitions": repetitions, "--set": set_, "--out": out})
    if earlier:
        _print_blocks(revisions.read(last), shown)
    else:
        _print_comparison([read(Path(side)) for side in sides], [], shown)
    return 0


class _Shown:
    """What a comparison shows: which metrics (none: the usual ones), how, and a figure."""

    def __init__(self, metrics: list[str], fmt: Format, plot: Path | None) -> None:
        from datapath.report import overlay

        if plot is not None:
            overlay.check_file(plot)
        self.metrics, self.fmt, self.plot = metrics, fmt, plot

    def check_names(self) -> None:
        """LocalError for a metric that no run can have."""
        from datapath.experiment.metrics import UNITS
        from datapath.spelling import did_you_mean

        for name in self.metrics:
            if name not in UNITS and self.metrics != ["all"]:
                hint = did_you_mean(name, list(UNITS)) or "docs/results.md has all metrics"
                raise LocalError(f"there is no metric {name}", hint=hint)


def _refuse(options: Mapping[str, object]) -> None:
    """LocalError when one of these is given, since folders are compared."""
    for option, given in options.items():
        if given:
            raise LocalError(f"{option} is for revisions", hint="dpctl compare REV REV -- FILE")


def _print_comparison(
    results: Sequence[ResultFolder],
    names: Sequence[str],
    shown: _Shown,
    remarks: Sequence[str] = (),
) -> None:
    """names: of the revisions; none for folders.  remarks: what else a reader must know."""
    from datapath.report import answer, overlay
    from datapath.report import compare as comparing

    fmt = shown.fmt
    metrics = [] if shown.metrics == ["all"] else shown.metrics
    answer.check_metrics(results, metrics)
    metrics = metrics or answer.names(results[0], every=bool(shown.metrics))
    rows = comparing.compare(results, metrics, paired=bool(names))
    notes = [*remarks, *comparing.remarks(results)]
    if shown.metrics != ["all"]:
        notes += comparing.gaps(results, metrics, rows)
    if fmt is Format.table:
        lines = comparing.text(results, rows, terminal_width(), names=names, notes=notes)
        answer.write(lines, sys.stdout)
    elif fmt is Format.ndjson:
        print_rows(rows, [], fmt)
    else:
        sides = {"revisions": names} if names else {"folders": [str(f.path) for f in results]}
        print_record({**sides, "remarks": notes, "comparisons": rows}, fmt)
    if shown.plot is not None:
        if not metrics:
            raise LocalError("no figure: no run has a metric")
        lettered = comparing.lettered(names or [result.path.resolve().name for result in results])
        for remark in overlay.draw(results, lettered, metrics[0], shown.plot):
            _tell(f"note: {remark}")
        _tell(f"figure: {shown.plot}")


def _print_blocks(comparison: Comparison, shown: _Shown) -> None:
    """The complete blocks of two revisions."""
    from datapath.report.compare import as_blocks
    from datapath.report.folder import read

    results = [as_blocks(list(map(read, side))) for side in zip(*comparison.pairs, strict=True)]
    made, planned = len(comparison.pairs), comparison.planned
    remarks = [] if made >= planned else [f"only {made} of {counted(planned, 'block')} were made"]
    _print_comparison(results, comparison.names, shown, remarks)


class _Revisions:
    """An experiment that two revisions run in turn."""

    def __init__(
        self, sides: Sequence[str], overrides: list[str], repetitions: int | None, out: Path | None
    ) -> None:
        from datapath.experiment import revisions
        from datapath.experiment.load import load
        from datapath.report.compare import runs_needed

        *wanted, file = sides
        if len(wanted) != 2:
            raise LocalError("two revisions are compared", hint="dpctl compare REV REV -- FILE")
        self.file, self.overrides, self.out = Path(file), overrides, out
        self.experiment = load(self.file, overrides)
        needed = runs_needed(len(self.experiment.points), paired=True)
        self.blocks = repetitions or max(needed, self.experiment.spec.sweep.repetitions)
        self.revisions = [revisions.find(name) for name in wanted]

    def compare(self, shown: _Shown) -> int:
        """Make the blocks, and print what they say; of those that are complete, if it ends early.

        Raises RunFailed, behind what is printed, when a revision could not run.
        """
        from datapath.experiment import revisions
        from datapath.experiment.lock import locked
        from datapath.experiment.store import ResultStore

        folder = ResultStore.create(self.out, f"compare-{self.experiment.spec.name}").path
        _tell(f"results: {folder}")
        revisions.begin(self.revisions, self.blocks, folder)
        early: Interrupted | RunFailed | None = None
        log = folder / "set-up.log"
        try:
            # Locked: dpctl clean leaves it alone.
            with locked(folder), revisions.prepared(self.revisions, _tell, log):
                self._run(folder)
        except (Interrupted, RunFailed) as error:
            early = error
        try:
            comparison = revisions.read(folder)
        except LocalError as nothing:
            raise (early or nothing) from None
        _print_blocks(comparison, shown)
        if isinstance(early, RunFailed):
            raise early
        if early is None:
            return 0
        sys.stdout.flush()
        tell_error(f"interrupted by {early}", f"the blocks stay: dpctl compare {folder}")
        return INTERRUPTED

    def _run(self, folder: Path) -> None:
        from datapath.experiment import revisions
        from datapath.report.display import duration

        sides, blocks, since = self.revisions, self.blocks, time.monotonic()

        def begun(made: int, revision: Revision) -> None:
            text = f"block {made // 2 + 1} of {blocks}: {revision.name}"
            if made:
                left = (time.monotonic() - since) / made * (2 * blocks - made)
                text += f", about {duration(left)} left"
            _tell(text)

        revisions.run(self.experiment, self.file, self.overrides, sides, blocks, folder, begun)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
