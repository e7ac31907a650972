# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Result folders side by side: how much each differs from the first, and whether that is shown.

Points are matched by their axis values.  The runs of two folders were not taken together, so
nothing pairs them: a ratio is that of two medians, and its interval comes from resampling each
side (datapath.stats.median_ratio).  Where both sides' runs were made in turn, block by block, a
ratio is the median of the blocks' ratios (datapath.stats.paired_block_ratio).  A difference is
shown if the interval does not hold 1 and both sides have runs enough for an interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from datapath import stats
from datapath.report import claims, display, pivot, tables
from datapath.report.folder import ResultFolder, mapping
from datapath.terminal import printable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_MARKS = {"better": "+", "worse": "-", "differs": "!", "no difference shown": "=", "too few": "?"}
_LEGEND = (
    "+ better, - worse, ! differs, = no difference shown, ? fewer than "
    f"{stats.FEWEST} runs on a side. "
)
_RATIOS = {
    False: "Ratios of medians with 95 % intervals.",
    True: "Medians of the blocks' ratios with 95 % intervals.",
}


@dataclass
class Runs:
    """The values of a metric at a point, and the block of each."""

    unit: str
    values: list[float] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


def as_blocks(folders: Sequence[ResultFolder]) -> ResultFolder:
    """Folders of one repetition each as one folder, of which each is a block."""
    import pandas as pd

    frames = [folder.frame.assign(block=block) for block, folder in enumerate(folders)]
    return replace(folders[0], frame=pd.concat(frames, ignore_index=True))


def compare(
    folders: Sequence[ResultFolder], metrics: Sequence[str], *, paired: bool = False
) -> list[dict[str, Any]]:
    """A row for each metric, other folder, and point that both have, in base units.

    paired: the blocks of the folders were made in turn.  Keys: folder (its number, from 1), the
    axes, metric, unit, n, base_n, median, base_median, ratio, lo, hi, and verdict, one of better,
    worse, differs, no difference shown, too few.
    """
    first = folders[0]
    rows = []
    for metric, (number, other) in itertools.product(metrics, enumerate(folders[1:], 1)):
        axes = [axis for axis in first.axes if axis in other.axes]
        base, runs = (_by_point(folder, metric, axes) for folder in (first, other))
        for key, mine in runs.items():
            if key not in base:
                continue
            of_base = base[key]
            rng = stats.rng(first.seed, "compare", number, metric, *key)
            estimate, n = _ratio(mine, of_base, rng, paired=paired)
            rows.append(
                {
                    "folder": number,
                    **dict.fromkeys(first.axes, ""),
                    **dict(zip(axes, key, strict=True)),
                    "metric": metric,
                    "unit": mine.unit,
                    "n": len(mine.values),
                    "base_n": len(of_base.values),
                    "median": stats.median(mine.values),
                    "base_median": stats.median(of_base.values),
                    "ratio": estimate.median,
                    "lo": estimate.lo,
                    "hi": estimate.hi,
                    "verdict": _verdict(metric, estimate, n),
                }
            )
    return rows


def _ratio(
    mine: Runs, base: Runs, rng: np.random.Generator, *, paired: bool
) -> tuple[stats.Estimate, int]:
    """The ratio, and how many runs of the side with fewer, or pairs of runs, are behind it."""
    if not paired:
        n = min(len(mine.values), len(base.values))
        return stats.median_ratio(mine.values, base.values, rng), n
    estimate = stats.paired_block_ratio(
        mine.values, base.values, mine.blocks, rng, baseline_blocks=base.blocks
    )
    _, _, blocks = stats.pair_by_block(mine.values, mine.blocks, base.values, base.blocks)
    return estimate, len(blocks)


def _by_point(
    folder: ResultFolder, metric: str, axes: Sequence[str]
) -> dict[tuple[str, ...], Runs]:
    """The runs of a metric by the values of these axes."""
    rows = tables.measured(folder.frame)
    rows = tables.in_order(folder, rows[rows["metric"] == metric])
    found: dict[tuple[str, ...], Runs] = {}
    for row in rows.to_dict("records"):
        key = tuple(str(row[axis]) for axis in axes)
        runs = found.setdefault(key, Runs(str(row["unit"])))
        runs.values.append(float(row["value"]))
        runs.blocks.append(int(row["block"]))
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
    folders: Sequence[ResultFolder],
    rows: Sequence[Mapping[str, Any]],
    width: int,
    *,
    names: Sequence[str] = (),
) -> list[str]:
    """The folders, a table for each metric and other folder, and what it comes to.

    names: how the sides are called whose blocks were made in turn.
    """
    import pandas as pd

    told = names or [_about(folder) for folder in folders]
    lines = [f"{_name(i)}  {side}" for i, side in enumerate(told)]
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
    return [*lines, "", *pivot.wrapped(_LEGEND + _RATIOS[bool(names)], width)]


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
