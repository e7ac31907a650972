#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The table of a result folder whose claims hold points against floors and peers.

    python experiments/bench/table.py DIR --markdown docs/speed-table.md

A row for each claim: the figure, what it is held against, the ratio with its interval, the target.
Figures are medians of the runs, with the least and the greatest one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datapath.report import claims, display, folder
from datapath.report.folder import ResultFolder

HEADINGS = ("what", "figure", "floor or peer", "ratio, interval", "target", "verdict")
PASSED, MISSED = "pass", "miss"


def spread(result: ResultFolder, metric: str, where: Mapping[str, str]) -> str:
    """`2.50 µs (2.42 to 2.61)` of the points that `where` selects; a dash without a run."""
    frame = result.frame
    chosen = (frame["metric"] == metric) & (frame["status"] == "ok")
    for axis, text in where.items():
        chosen &= frame[axis].isin(text.split(" or "))
    values = frame.loc[chosen, "value"].dropna()
    if not len(values):
        return display.DASH
    unit = str(frame.loc[chosen, "unit"].iloc[0])
    scale = display.scale_for([float(values.median())], unit, metric)
    median, least, most = (
        display.number(float(value) / scale.factor)
        for value in (values.median(), values.min(), values.max())
    )
    return f"{median} {scale.unit}".strip() + f" ({least} to {most})"


def row(result: ResultFolder, claim: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """The cells of a claim; `shown` is the same claim as reports have it."""
    metric, where = str(claim["metric"]), folder.mapping(claim["where"])
    against = claim.get("ratio_to")
    floor, ratio = display.DASH, display.DASH
    if against is not None:
        other = {**where, **folder.mapping(against)}
        floor = f"{', '.join(folder.mapping(against).values())}: {spread(result, metric, other)}"
        ratio = f"{shown['measured']} [{shown['interval']}]"
    told = PASSED if shown["passed"] else MISSED
    if shown["passed"] and shown["verdict"] == "not shown":
        told += ", not shown"
    figure = spread(result, metric, where)
    return [str(shown["title"]), figure, floor, ratio, str(shown["bound"]), told]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEADINGS, ["---"] * len(HEADINGS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """For a terminal: a row's own line, and what it is held against below it."""
    lines = []
    for title, figure, floor, ratio, target, told in rows:
        lines.append(f"{told:16} {title}: {figure}")
        held = f"{ratio} of {floor}" if floor != display.DASH else figure
        lines.append(f"{'':16} {held}; target {target}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="result folder of `dpctl run`")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here, too")
    args = parser.parse_args()
    result = folder.read(args.folder)
    if not result.claims:
        sys.exit(f"{args.folder} has no claims.json: the run did not come to its end")
    shown = claims.rows(result)
    rows = [row(result, *pair) for pair in zip(result.claims, shown, strict=True)]
    print(aligned(rows), end="")
    missed = sum(line[-1] == MISSED for line in rows)
    print(f"{len(rows) - missed} of {len(rows)} targets met; {len(result.failures)} runs failed")
    if args.markdown:
        args.markdown.write_text(markdown(rows))


if __name__ == "__main__":
    main()
