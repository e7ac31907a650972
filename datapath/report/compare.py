# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Result folders side by side: how much each differs from the first, and whether that is shown.

Points are matched by their axis values.  The runs of two folders were not taken together, so
nothing pairs them: a ratio is that of two medians, and its interval comes from resampling each
side (datapath.stats.median_ratio).  Where both sides' runs were made in turn, block by block, a
ratio is the median of the blocks' ratios (datapath.stats.paired_block_ratio).

A table is the points of a metric and a folder.  A difference is shown if the point's interval does
not hold 1, and if a test says so too that is adjusted for the number of points in the table
(datapath.stats.holm): the sign test of the blocks, or the rank-sum test.  So the chance
that a table of equal sides shows anything is 5 %, however many points it has.

A first side of 0 has no ratio, or no interval of it: differences, which are held against 0, decide
there, in the same way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from datapath import stats
from datapath.report import display, pivot, tables
from datapath.report.folder import ResultFolder, mapping
from datapath.terminal import printable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_MARKS = {"better": "+", "worse": "-", "differs": "!", "no difference shown": "=", "too few": "?"}
_LEGEND = "+ better, - worse, ! differs, = no difference shown, ? too few runs to show one. "
_RATIOS = {
    False: "Ratios of medians with 95 % intervals. ",
    True: "Medians of the blocks' ratios with 95 % intervals. ",
}
_NO_RATIO = (
    "Where a ratio would divide by 0, the medians stand in its place, that of A first, and the "
    "interval of the difference decides. "
)
_FAMILY = (
    "Each interval is that of its point alone; the marks allow for all points of the table, so "
    "that 1 table in 20 shows a difference by chance."
)


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
    axes, metric, unit, n, base_n, median, base_median, ratio, lo, hi, p (adjusted for the points of
    the table), and verdict, one of better, worse, differs, no difference shown, too few.
    """
    rows = []
    for metric, (number, other) in itertools.product(metrics, enumerate(folders[1:], 1)):
        rows += _table(folders[0], other, metric, number, paired=paired)
    return rows


def _table(
    first: ResultFolder, other: ResultFolder, metric: str, number: int, *, paired: bool
) -> list[dict[str, Any]]:
    """The rows of one metric and one folder."""
    axes = [axis for axis in first.axes if axis in other.axes]
    if alone(first, other, metric):
        return []
    base, runs = (_by_point(folder, metric, axes) for folder in (first, other))
    keys = [key for key in runs if key in base]
    held = []
    for key in keys:
        if paired:
            held.append(_paired(runs[key], base[key]))
            continue
        rng = stats.rng(first.seed, "compare", number, metric, *key)
        held.append(_unpaired(runs[key], base[key], rng))
    adjusted = stats.holm([each.p for each in held])
    return [
        {
            "folder": number,
            **dict.fromkeys(first.axes, ""),
            **dict(zip(axes, key, strict=True)),
            "metric": metric,
            "unit": runs[key].unit,
            "n": len(runs[key].values),
            "base_n": len(base[key].values),
            "median": stats.median(runs[key].values),
            "base_median": stats.median(base[key].values),
            "ratio": each.ratio.median,
            "lo": each.ratio.lo,
            "hi": each.ratio.hi,
            "p": p,
            "verdict": _verdict(metric, each, p, len(held)),
        }
        for key, each, p in zip(keys, held, adjusted, strict=True)
    ]


@dataclass(frozen=True)
class _Held:
    """A point held against the same point of the first folder.

    ratio: with its interval.  side: where the interval lies that decides: 1 above no difference,
    -1 below, 0 if it holds it.  n: runs of the side with fewer, or pairs of runs.  p: how likely it
    is by chance; least_p: the least that so many runs can say.
    """

    ratio: stats.Estimate
    side: int
    n: int
    p: float
    least_p: float


def _unpaired(mine: Runs, base: Runs, rng: np.random.Generator) -> _Held:
    sizes = len(mine.values), len(base.values)
    ratio = stats.median_ratio(mine.values, base.values, rng)
    side = _side(ratio, 1.0)
    if not math.isfinite(ratio.lo):
        side = _side(stats.median_difference(mine.values, base.values, rng), 0.0)
    p = stats.rank_sum_p(mine.values, base.values)
    return _Held(ratio, side, min(sizes), p, stats.least_rank_sum_p(*sizes))


def _paired(mine: Runs, base: Runs) -> _Held:
    top, bottom, blocks = stats.pair_by_block(mine.values, mine.blocks, base.values, base.blocks)
    ratio = stats.paired_block_ratio(
        mine.values, base.values, mine.blocks, baseline_blocks=base.blocks
    )
    side = _side(ratio, 1.0)
    if not math.isfinite(ratio.lo):
        side = _side(stats.median_interval(top - bottom), 0.0)
    p = stats.sign_p(top - bottom)
    return _Held(ratio, side, len(blocks), p, stats.least_sign_p(len(blocks)))


def _side(estimate: stats.Estimate, bound: float) -> int:
    """1 if an interval lies above a bound, -1 if below; 0 if it holds it, or there is none."""
    return int(estimate.lo > bound) - int(estimate.hi < bound)


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


def _verdict(metric: str, held: _Held, p: float, points: int) -> str:
    """p: adjusted for so many points."""
    chance = 1 - stats.LEVEL
    if held.n < stats.FEWEST or points * held.least_p > chance:
        return "too few"
    if not held.side or p > chance:
        return "no difference shown"
    better = display.metric_better(metric)
    if not better:
        return "differs"
    return "better" if (held.side > 0) == (better == "higher") else "worse"


def text(
    folders: Sequence[ResultFolder],
    rows: Sequence[Mapping[str, Any]],
    width: int,
    *,
    names: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> list[str]:
    """The folders, a table for each metric and other folder, and what it comes to.

    names: how the sides are called whose blocks were made in turn.  notes: such as `remarks`.
    """
    import pandas as pd

    told = names or [_about(folder) for folder in folders]
    lines = [f"{_name(i)}  {side}" for i, side in enumerate(told)]
    lines += [f"note: {note}" for note in notes]
    table = pd.DataFrame(list(rows))
    for _, part in table.groupby(["metric", "folder"], sort=False) if len(table) else ():
        metric, number = str(part["metric"].iloc[0]), int(part["folder"].iloc[0])
        head = f"{display.metric_title(metric)}, {_name(number)} / {_name(0)}"
        if better := display.metric_better(metric):
            head += f", {better} is better"
        chosen = pivot.layout(folders[0], part, ())
        table_lines = pivot.lines(folders[0], part, metric, chosen, _cell, width)
        lines += ["", head, *table_lines, _summary(part, number, paired=bool(names))]
    if not rows:
        return [*lines, "", "The folders have no point and metric in common."]
    legend = _LEGEND + _RATIOS[bool(names)]
    legend += "" if all(math.isfinite(row["ratio"]) for row in rows) else _NO_RATIO
    return [*lines, "", *pivot.wrapped(legend + _FAMILY, width)]


def remarks(folders: Sequence[ResultFolder]) -> list[str]:
    """Differences between the folders that are not meant, perhaps."""
    found = []
    facts = {"kernel": "kernels", "cpu_model": "CPUs", "cores_usable": "numbers of CPUs"}
    for key, what in facts.items():
        values = {str(mapping(f.manifest.get("machine")).get(key)) for f in folders}
        if len(values) > 1:
            found.append(f"they ran on different {what}: {', '.join(sorted(values))}")
    if len({_points(folder) for folder in folders}) > 1:
        found.append("their points differ; only those that both have are compared")
    return found


def _points(folder: ResultFolder) -> frozenset[tuple[tuple[str, str], ...]]:
    """Axes and values of the points, as their runs spell them.

    Files may spell a value in several ways, and resolved.yaml of older folders has another one.
    """
    axes = sorted(folder.axes)
    rows = folder.frame[axes].drop_duplicates().itertuples(index=False, name=None)
    return frozenset(tuple(zip(axes, row, strict=True)) for row in rows)


def alone(one: ResultFolder, other: ResultFolder, metric: str) -> list[str]:
    """Axes over which one of two folders has the metric, and that the other has not: which points
    of the one are like a point of the other, nothing tells.
    """
    found = []
    for mine, theirs in ((one, other), (other, one)):
        rows = tables.measured(mine.frame)
        rows = rows[rows["metric"] == metric]
        found += [axis for axis in tables.varying(rows, mine.axes) if axis not in theirs.axes]
    return found


def gaps(
    folders: Sequence[ResultFolder], metrics: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The metrics that a folder has at no point of the first, and why not.  rows: the table."""
    there = {(row["folder"], row["metric"]) for row in rows}
    have = [set(tables.measured(folder.frame)["metric"]) for folder in folders]
    found = []
    for (number, other), metric in itertools.product(enumerate(folders[1:], 1), metrics):
        without = [_name(side) for side in (0, number) if metric not in have[side]]
        if without:
            has = "has" if len(without) == 1 else "have"
            found.append(f"{' and '.join(without)} {has} no {metric}")
        elif (number, metric) not in there:
            axes = ", ".join(alone(folders[0], other, metric))
            told = f"{_name(0)} and {_name(number)} have no point in common with {metric}"
            found.append(told + (f": only one of them varies {axes}" if axes else ""))
    return found


def _about(folder: ResultFolder) -> str:
    git = mapping(folder.manifest.get("git"))
    parts = [folder.name, str(folder.manifest.get("started") or "")[:16].replace("T", " ")]
    if git.get("commit"):
        parts.append(str(git["commit"])[:12] + ("+" if git.get("dirty") else ""))
    return printable(f"{folder.path} ({', '.join(filter(None, parts))})")


def lettered(names: Sequence[str]) -> list[str]:
    """Names of the sides in a figure: the letter of the tables, which no two have, and the name."""
    return [f"{_name(i)} {name}" for i, name in enumerate(names)]


def _name(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"folder {number + 1}"


def _cell(row: Mapping[Any, Any], _scale: display.Scale) -> str:
    mark = _MARKS[row["verdict"]]
    if not math.isfinite(row["ratio"]):
        medians = row["base_median"], row["median"]
        scale = display.scale_for(medians, row["unit"], row["metric"])
        base, mine = (display.number(value / scale.factor) for value in medians)
        return f"{base} to {' '.join(filter(None, (mine, scale.unit, mark)))}"
    ends = f" [{display.number(row['lo'])}, {display.number(row['hi'])}]"
    return display.number(row["ratio"]) + (ends if math.isfinite(row["lo"]) else "") + f" {mark}"


def _summary(part: pd.DataFrame, number: int, *, paired: bool) -> str:
    counts = part["verdict"].value_counts().to_dict()
    told = [f"{counts[kind]} {kind}" for kind in ("better", "worse", "differs") if kind in counts]
    points = f"of {len(part)} point{'' if len(part) == 1 else 's'}"
    if told:
        return f"{_name(number)}: {', '.join(told)} {points}."
    if set(counts) == {"too few"}:
        needed = runs_needed(len(part), paired=paired)
        return f"{_name(number)}: too few runs; {needed} on each side can show one {points}."
    return f"{_name(number)}: no difference shown ({points})."


def runs_needed(points: int, *, paired: bool) -> int:
    """Runs of each point on either side with which a table of so many points can show anything."""
    if paired:
        return stats.values_to_show(points, stats.least_sign_p)
    return stats.values_to_show(points, lambda n: stats.least_rank_sum_p(n, n))
