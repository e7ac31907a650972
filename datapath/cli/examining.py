# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl doctor | compare`: looks at this machine, and at result folders side by side."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

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

_SIGNS = {"good": "ok", "slow": "slow", "lacks": "LACKS", "told": "-"}


def register(app: typer.Typer) -> None:
    app.command(short_help="Tell what this machine can do, and how to mend what it lacks.")(doctor)
    app.command(short_help="Hold result folders against the first of them.")(compare)


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
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Result folders; the first is held to."),
    ],
    metric: MetricOption = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Hold result folders against the first: ratios with intervals, and where none is shown.

    Points are matched by their axis values. A difference is shown if the 95 % interval of the ratio
    does not hold 1, with 6 runs or more on both sides.

    \b
    dpctl compare results/quickstart-20250101T120000Z results/quickstart-20250201T120000Z
    dpctl compare results/before results/after results/other --metric latency_p99
    dpctl compare results/before results/after --metric all --format json
    """
    from datapath.report import answer
    from datapath.report import compare as comparing
    from datapath.report.folder import read

    if len(folders) < 2:
        raise LocalError("two folders or more are compared", hint="dpctl compare DIR DIR")
    results = [read(folder) for folder in folders]
    names = [] if metric == ["all"] else list(metric or [])
    answer.check_metrics(results[0], names)
    names = names or answer.names(results[0], every=bool(metric))
    rows = comparing.compare(results, names)
    if fmt is Format.table:
        answer.write(comparing.text(results, rows, terminal_width()), sys.stdout)
        return
    if fmt is Format.ndjson:
        print_rows(rows, [], fmt)
        return
    named = [str(folder) for folder in folders]
    notes = comparing.remarks(results)
    print_record({"folders": named, "remarks": notes, "comparisons": rows}, fmt)
