# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ratios to the baseline with their intervals, one row for each point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from datapath.report import canvas, display, tables
from datapath.report.canvas import MUTED
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import Colours, PlotSpec, numeric

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_RATIOS = 24
_ENDS = 10
"""Of more rows than fit, so many from each end of the order are drawn."""

_LABEL_CHARS = 54


def draw(result: ResultFolder, spec: PlotSpec, colours: Colours) -> tuple[Figure, str]:
    table = tables.select(tables.ratios(result, spec.metrics), spec.where)
    table = table[table["ratio"].map(math.isfinite)]
    if table.empty:
        raise canvas.NothingToDraw("no point has a baseline point with the same other settings")
    metrics = [m for m in spec.metrics if m in set(table["metric"])]
    sizes = [int((table["metric"] == metric).sum()) for metric in metrics]
    drawn = [_chosen(table[table["metric"] == metric]) for metric in metrics]
    figure, axes = _ratio_figure(list(map(len, drawn)))
    for metric, ax, rows in zip(metrics, axes, drawn, strict=True):
        _ratio_panel(ax, result, spec, rows, metric, colours)
    names = ", ".join(f"{axis} = {' or '.join(v)}" for axis, v in result.baseline.items())
    blocks = [int(n) for n in table["n"]]
    low, high = min(blocks), max(blocks)
    count = f"n = {low}" if low == high else f"n = {low} to {high}"
    text = (
        f"Ratio to the baseline ({names}) with the same other settings: the marker is the "
        f"median of the per-block ratios, the whisker its 95 % interval; {count} "
        f"block{'s' if high > 1 else ''}. The vertical line at 1 is the baseline itself; "
        f"each panel has its own scale."
    )
    if max(sizes) > _MAX_RATIOS:
        text += (
            f" Of {max(sizes)} points the {_ENDS} lowest and the {_ENDS} highest ratios are drawn, "
            "in their order; the table below has all."
        )
    return figure, text


def _chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """All rows, or those at both ends of the order of ratios."""
    import pandas as pd

    if len(rows) <= _MAX_RATIOS:
        return rows
    ordered = rows.sort_values("ratio", kind="stable")
    return pd.concat([ordered.head(_ENDS), ordered.tail(_ENDS)])


def _ratio_names(result: ResultFolder, rows: pd.DataFrame) -> list[str]:
    """`dp-afxdp, path.loss = 1%`: the values that tell the rows of a panel apart."""
    axes = tables.varying(rows, result.axes) or list(result.baseline)
    bare = {axis for axis in axes if numeric(result.axis_values(axis)) is not None}
    return [
        canvas.label(
            ", ".join(f"{axis} = {row[axis]}" if axis in bare else str(row[axis]) for axis in axes),
            _LABEL_CHARS,
        )
        for row in rows.to_dict("records")
    ]


def _ratio_figure(rows: Sequence[int]) -> tuple[Figure, list[Axes]]:
    """One panel below the other, each as tall as its rows: their names need the width."""
    from matplotlib.figure import Figure

    heights = [0.25 * count + 0.1 for count in rows]
    figure = Figure(figsize=(8.4, sum(heights) + 0.72 * len(rows)))
    grid = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)
    return figure, list(grid.flat)


def _ratio_panel(
    ax: Axes,
    result: ResultFolder,
    spec: PlotSpec,
    rows: pd.DataFrame,
    metric: str,
    colours: Colours,
) -> None:
    entries = rows.to_dict("records")
    for y, row in enumerate(entries):
        name = str(row[spec.series]) if spec.series else ""
        colour = colours.colour(spec.series, name)
        marker = colours.line(spec.series, name)["marker"]
        ratio, lo, hi = row["ratio"], row["lo"], row["hi"]
        error = [[canvas.or_zero(ratio - lo)], [canvas.or_zero(hi - ratio)]]
        ax.errorbar(ratio, y, xerr=error, fmt=marker, color=colour, markersize=5, capsize=2.5)
        ax.annotate(
            display.number(ratio), (1, y), xycoords=("axes fraction", "data"), xytext=(44, 0),
            textcoords="offset points", ha="right", va="center",
        )  # fmt: skip
    ax.set_yticks(range(len(entries)), _ratio_names(result, rows))
    ax.set_ylim(len(entries) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.axvline(1, color=MUTED, linewidth=0.9)
    _ratio_axis(ax, rows)
    ax.grid(axis="x")
    better = display.metric_better(metric)
    ax.set_title(display.metric_title(metric), loc="left", fontweight="bold")
    ax.set_xlabel("Ratio to baseline" + (f" ({better} is better)" if better else ""))


def _ratio_axis(ax: Axes, rows: pd.DataFrame) -> None:
    """A log axis around 1 and all whiskers: half is as far from 1 as twice."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if float(rows["ratio"].min()) > 0:
        ax.set_xscale("log")
        ends = [1.0, *(v for key in ("ratio", "lo", "hi") for v in rows[key] if v > 0)]
        margin = max(1.05, (max(ends) / min(ends)) ** 0.06)
        low, high = min(ends) / margin, max(ends) * margin
        ax.set_xlim(low, high)
        if high / low > 4:
            ax.xaxis.set_major_locator(LogLocator(subs=canvas.log_ticks(high / low)))
        else:  # decades and their simple multiples would leave one tick or none
            ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.xaxis.set_minor_locator(LogLocator(subs=()))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: display.tick(v)))
