# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ratios to the baseline with their intervals, one row for each point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from datapath.report import canvas, display, tables
from datapath.report.canvas import MUTED
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import Colours, PlotSpec, numeric

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_RATIOS = 40


def draw(result: ResultFolder, spec: PlotSpec, colours: Colours) -> tuple[Figure, str]:
    table = tables.select(tables.ratios(result, spec.metrics), spec.where)
    table = table[table["ratio"].map(math.isfinite)]
    if table.empty:
        raise canvas.NothingToDraw("no point has a baseline point with the same other settings")
    metrics = [m for m in spec.metrics if m in set(table["metric"])]
    most = max(int((table["metric"] == m).sum()) for m in metrics)
    shown = [_ratio_names(result, table[table["metric"] == m]) for m in metrics]
    same = all(names == shown[0] for names in shown)
    figure, axes = _ratio_figure(len(metrics), most, shared=same)
    for metric, ax in zip(metrics, axes, strict=True):
        _ratio_panel(ax, result, spec, table[table["metric"] == metric], metric, colours)
    names = ", ".join(f"{axis} = {' or '.join(v)}" for axis, v in result.baseline.items())
    blocks = [int(n) for n in table["n"]]
    low, high = min(blocks), max(blocks)
    count = f"n = {low}" if low == high else f"n = {low} to {high}"
    text = (
        f"Ratio to the baseline ({names}) with the same other settings: the marker is the "
        f"median of the per-block ratios, the whisker its bootstrap 95 % interval; {count} "
        f"block{'s' if high > 1 else ''}. The vertical line at 1 is the baseline itself."
    )
    return figure, text


def _ratio_names(result: ResultFolder, rows: pd.DataFrame) -> list[str]:
    """`dp-afxdp, path.loss = 1%`: the values that tell the rows of a panel apart."""
    axes = tables.varying(rows, result.axes) or list(result.baseline)
    bare = {axis for axis in axes if numeric(result.axis_values(axis)) is not None}
    return [
        canvas.label(
            ", ".join(f"{axis} = {row[axis]}" if axis in bare else str(row[axis]) for axis in axes)
        )
        for row in rows.head(_MAX_RATIOS).to_dict("records")
    ]


def _ratio_figure(count: int, rows: int, *, shared: bool) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(count, 3)
    lines = -(-count // columns)
    height = (0.3 * min(rows, _MAX_RATIOS) + 0.95) * lines
    figure = Figure(figsize=(4.8 if count == 1 else 8.4, height))
    axes = list(figure.subplots(lines, columns, squeeze=False, sharey=shared).flat)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _ratio_panel(
    ax: Axes,
    result: ResultFolder,
    spec: PlotSpec,
    rows: pd.DataFrame,
    metric: str,
    colours: Colours,
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    entries = rows.head(_MAX_RATIOS).to_dict("records")
    for y, row in enumerate(entries):
        name = str(row[spec.series]) if spec.series else ""
        colour = colours.colour(spec.series, name)
        marker = colours.line(spec.series, name)["marker"]
        ratio, lo, hi = row["ratio"], row["lo"], row["hi"]
        error = [[canvas.or_zero(ratio - lo)], [canvas.or_zero(hi - ratio)]]
        ax.errorbar(ratio, y, xerr=error, fmt=marker, color=colour, markersize=5, capsize=2.5)
        ax.annotate(
            display.number(ratio), (ratio, y), xytext=(0, 4), textcoords="offset points",
            ha="center", va="bottom", fontsize=7.2,
        )  # fmt: skip
    ax.set_yticks(range(len(entries)), _ratio_names(result, rows))
    ax.set_ylim(len(entries) - 0.5, -0.7)
    ax.tick_params(axis="y", length=0)
    ax.axvline(1, color=MUTED, linewidth=0.9)
    if float(rows["ratio"].min()) > 0:
        ax.set_xscale("log")
        ends = [1.0, *(v for key in ("ratio", "lo", "hi") for v in rows[key] if v > 0)]
        low, high = min(ends) / 1.25, max(ends) * 1.25
        ax.set_xlim(low, high)
        ax.xaxis.set_major_locator(LogLocator(subs=canvas.log_ticks(high / low)))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.xaxis.set_minor_locator(LogLocator(subs=()))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: display.tick(v)))
    ax.grid(axis="x")
    better = display.metric_better(metric)
    ax.set_title(display.metric_title(metric), loc="left")
    ax.set_xlabel("Ratio to baseline" + (f" ({better} is better)" if better else ""))
