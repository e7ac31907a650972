# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Result folders side by side: how much each differs from the first, and whether that is shown.

Points are matched by their axis values.  The runs of two folders were not taken together, so
nothing pairs them: a ratio is that of two medians, and its interval comes from resampling each
side (datapath.stats.median_ratio).  A difference is shown if the interval does not hold 1 and
both sides have runs enough for an interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datapath import stats
from datapath.report import claims, display, pivot, tables
from datapath.report.folder import ResultFolder, mapping
from datapath.terminal import printable

if TYPE_CHECKING:
    import pandas as pd

_MARKS = {"better": "+", "worse": "-", "differs": "!", "no difference shown": "=", "too few": "?"}
_LEGEND = (
    "+ better, - worse, ! differs, = no difference shown, ? fewer than "
    f"{stats.FEWEST} runs on a side. Ratios of medians with 95 % intervals."
)


def compare(folders: Sequence[ResultFolder], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each metric, other folder, and point that both have, in base units.

    Keys: folder (its number, from 1), the axes, metric, unit, n, base_n, median, base_median,
    ratio, lo, hi, and verdict, one of better, worse, differs, no difference shown, too few.
    """
    first = folders[0]
    rows = []
    for metric, (number, other) in itertools.product(metrics, enumerate(folders[1:], 1)):
        axes = [axis for axis in first.axes if axis in other.axes]
        base, runs = (_by_point(folder, metric, axes) for folder in (first, other))
        for key, (values, unit) in runs.items():
            if key not in base:
                continue
            of_base = base[key][0]
            rng = stats.rng(first.seed, "compare", number, metric, *key)
            estimate = stats.median_ratio(values, of_base, rng)
            rows.append(
                {
                    "folder": number,
                    **dict.fromkeys(first.axes, ""),
                    **dict(zip(axes, key, strict=True)),
                    "metric": metric,
                    "unit": unit,
                    "n": len(values),
                    "base_n": len(of_base),
                    "median": stats.median(values),
                    "base_median": stats.median(of_base),
                    "ratio": estimate.median,
                    "lo": estimate.lo,
                    "hi": estimate.hi,
                    "verdict": _verdict(metric, estimate, min(len(values), len(of_base))),
                }
            )
    return rows


def _by_point(
    folder: ResultFolder, metric: str, axes: Sequence[str]
) -> dict[tuple[str, ...], tuple[list[float], str]]:
    """Values and unit of a metric by the values of these axes."""
    rows = tables.measured(folder.frame)
    rows = tables.in_order(folder, rows[rows["metric"] == metric])
    found: dict[tuple[str, ...], tuple[list[float], str]] = {}
    for row in rows.to_dict("records"):
        key = tuple(str(row[axis]) for axis in axes)
        found.setdefault(key, ([], str(row["unit"])))[0].append(float(row["value"]))
    return found


def _verdict(metric: str, estimate: stats.Estimate, n: int) -> str:
    if n < stats.FEWEST:
        return "too few"
    if not (estimate.lo > 1 or estimate.hi < 1):
        return "no difference shown"
    better = display.metric_better(metric)
    if not better:
        return "differs"
    return "better" if (estimate.median > 1) == (better == "higher") else "worse"


def text(
    folders: Sequence[ResultFolder], rows: Sequence[Mapping[str, Any]], width: int
) -> list[str]:
    """The folders, a table for each metric and other folder, and what it comes to."""
    import pandas as pd

    lines = [f"{_name(i)}  {_about(folder)}" for i, folder in enumerate(folders)]
    lines += [f"note: {remark}" for remark in remarks(folders)]
    table = pd.DataFrame(list(rows))
    for _, part in table.groupby(["metric", "folder"], sort=False) if len(table) else ():
        metric, number = str(part["metric"].iloc[0]), int(part["folder"].iloc[0])
        head = f"{display.metric_title(metric)}, {_name(number)} / {_name(0)}"
        if better := display.metric_better(metric):
            head += f", {better} is better"
        chosen = pivot.layout(folders[0], part, ())
        table_lines = pivot.lines(folders[0], part, metric, chosen, _cell, width)
        lines += ["", head, *table_lines, _summary(part, number)]
    if not rows:
        return [*lines, "", "The folders have no point and metric in common."]
    return [*lines, "", *pivot.wrapped(_LEGEND, width)]


def remarks(folders: Sequence[ResultFolder]) -> list[str]:
    """Differences between the folders that are not meant, perhaps."""
    found = []
    facts = {"kernel": "kernels", "cpu_model": "CPUs", "cores_usable": "numbers of CPUs"}
    for key, what in facts.items():
        values = {str(mapping(f.manifest.get("machine")).get(key)) for f in folders}
        if len(values) > 1:
            found.append(f"they ran on different {what}: {', '.join(sorted(values))}")
    if len({claims.where_text(f.sweep.get("matrix")) for f in folders}) > 1:
        found.append("their sweeps differ; only points that both have are compared")
    return found


def _about(folder: ResultFolder) -> str:
    git = mapping(folder.manifest.get("git"))
    parts = [folder.name, str(folder.manifest.get("started") or "")[:16].replace("T", " ")]
    if git.get("commit"):
        parts.append(str(git["commit"])[:12] + ("+" if git.get("dirty") else ""))
    return printable(f"{folder.path} ({', '.join(filter(None, parts))})")


def _name(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"folder {number + 1}"


def _cell(row: Mapping[Any, Any], _scale: display.Scale) -> str:
    mark = _MARKS[row["verdict"]]
    if not math.isfinite(row["ratio"]):
        return f"{display.DASH} {mark}"
    ends = f" [{display.number(row['lo'])}, {display.number(row['hi'])}]"
    return display.number(row["ratio"]) + (ends if math.isfinite(row["lo"]) else "") + f" {mark}"


def _summary(part: pd.DataFrame, number: int) -> str:
    counts = part["verdict"].value_counts().to_dict()
    told = [f"{counts[kind]} {kind}" for kind in ("better", "worse", "differs") if kind in counts]
    if not told:
        why = "too few runs to show one" if set(counts) == {"too few"} else f"of {len(part)} points"
        return f"{_name(number)}: no difference shown ({why})."
    chance = f"; of {len(part)} points about 1 in 20 would be by chance" if len(part) > 4 else ""
    return f"{_name(number)}: {', '.join(told)}{chance}."
