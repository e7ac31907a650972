# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl doctor | compare`: looks at this machine, and at result folders side by side."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from datapath.cli.output import (
    Format,
    FormatOption,
    MetricOption,
    print_record,
    print_rows,
    terminal_width,
)
from datapath.errors import LocalError

if TYPE_CHECKING:
    from datapath.report.folder import ResultFolder

_SIGNS = {"good": "ok", "slow": "slow", "lacks": "LACKS", "told": "-"}


_Sides = Annotated[
    list[str],
    typer.Argument(
        metavar="DIR... | REV REV FILE",
        help="Result folders, of which the first is held to; or two git revisions of this "
        "source tree (. is the tree as it is) and an experiment file.",
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
    fmt: FormatOption = Format.table,
) -> None:
    """Hold result folders, or two revisions, against the first: ratios with intervals.

    Points are matched by their axis values. A difference is shown if the 95 % interval of the ratio
    does not hold 1, and a test that is adjusted for all points of the table says so too.
    Revisions are set up in the cache folder, which keeps the newest four, and run the experiment in
    turn, block by block; their ratios are those within a block.

    \b
    dpctl compare results/before results/after
    dpctl compare results/before results/after results/other --metric latency_p99
    dpctl compare results/before results/after --metric all --format json
    dpctl compare main . -- experiments/quickstart.yaml
    dpctl compare --set path.loss=1% --repetitions 12 v1 v2 -- my.yaml
    """
    if len(sides) < 2:
        raise LocalError("two folders or more are compared", hint="dpctl compare DIR DIR")
    last = Path(sides[-1])
    if last.suffix in (".yaml", ".yml") and not last.exists():
        raise LocalError(f"{last}: no such file", hint="name an experiment file")
    if last.is_file():
        revisions = _Revisions(sides, list(set_ or []), repetitions, out)
        results, names = revisions.results(), revisions.names
    else:
        _refuse({"--repetitions": repetitions, "--set": set_, "--out": out})
        from datapath.report.folder import read

        results, names = [read(Path(side)) for side in sides], []
    _print_comparison(results, names, list(metric or []), fmt)


def _refuse(options: Mapping[str, object]) -> None:
    """LocalError when one of these is given, since folders are compared."""
    for option, given in options.items():
        if given:
            raise LocalError(f"{option} is for revisions", hint="dpctl compare REV REV -- FILE")


def _print_comparison(
    results: Sequence[ResultFolder], names: Sequence[str], metric: list[str], fmt: Format
) -> None:
    """names: of the revisions; none for folders."""
    from datapath.report import answer
    from datapath.report import compare as comparing

    metrics = [] if metric == ["all"] else metric
    answer.check_metrics(results[0], metrics)
    metrics = metrics or answer.names(results[0], every=bool(metric))
    rows = comparing.compare(results, metrics, paired=bool(names))
    if fmt is Format.table:
        lines = comparing.text(results, rows, terminal_width(), names=names)
        answer.write(lines, sys.stdout)
    elif fmt is Format.ndjson:
        print_rows(rows, [], fmt)
    else:
        notes = comparing.remarks(results)
        sides = {"revisions": names} if names else {"folders": [str(f.path) for f in results]}
        print_record({**sides, "remarks": notes, "comparisons": rows}, fmt)


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
        self.names = [
            f"{each.name} ({each.commit[:12] or 'the tree as it is'})" for each in self.revisions
        ]

    def results(self) -> list[ResultFolder]:
        """One folder for each revision, whose blocks are those of the other."""
        from datapath.experiment import revisions
        from datapath.experiment.store import ResultStore
        from datapath.report.compare import as_blocks
        from datapath.report.folder import read

        folder = ResultStore.create(self.out, f"compare-{self.experiment.spec.name}").path
        _tell(f"results: {folder}")
        with revisions.prepared(self.revisions, _tell, folder / "set-up.log"):
            made = revisions.run(
                self.experiment,
                self.file,
                self.overrides,
                self.revisions,
                self.blocks,
                folder,
                _tell,
            )
        return [as_blocks([read(path) for path in paths]) for paths in made]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
