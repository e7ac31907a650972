# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The parts that all figures share: style, panels, legends and ticks of log axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from datapath.report import display, tables
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import Colours, PlotSpec, numeric, shaded
from datapath.spelling import counted
from datapath.terminal import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1b1c1e", "#5c6066", "#dfe2e6"

_MAX_PANELS = 24
_MAX_LINES = 6
"""More lines than these in one panel become panels of their own."""

_LABEL_CHARS = 36

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a user's label is a dollar
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 8.5,
    "axes.unicode_minus": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "savefig.transparent": True,
    "figure.constrained_layout.use": True,
}


class NothingToDraw(Exception):
    """No run has the numbers that a plot asks for; the text says which."""


@dataclass(frozen=True)
class Panel:
    """The rows of one panel and the axes (`fixed`) whose values set it apart."""

    title: str
    rows: pd.DataFrame
    fixed: Sequence[str] = ()


def panels(result: ResultFolder, spec: PlotSpec, rows: pd.DataFrame) -> list[Panel]:
    """One panel for each combination of the axes that x and series leave over."""
    rest = [a for a in tables.varying(rows, result.axes) if a not in (spec.x, spec.series)]
    if not rest:
        return [Panel("", rows)]
    found = rows[rest].drop_duplicates().itertuples(index=False, name=None)
    order = {axis: result.axis_values(axis) for axis in rest}
    combos = sorted(found, key=lambda c: [order[a].index(v) for a, v in zip(rest, c, strict=True)])
    panels = []
    for combo in combos[:_MAX_PANELS]:
        keep = rows
        for axis, value in zip(rest, combo, strict=True):
            keep = keep[keep[axis] == value]
        title = ", ".join(f"{a} = {v}" for a, v in zip(rest, combo, strict=True))
        title = label(title) if len(combos) <= 6 else textwrap.fill(label(title, 60), 26)
        panels.append(Panel(title, keep, rest))
    return panels


def small_multiples(result: ResultFolder, spec: PlotSpec, rows: pd.DataFrame) -> PlotSpec:
    """The same figure with a panel for each series, if as lines they are too many."""
    if spec.series is None or len(values(result, spec.series, rows)) <= _MAX_LINES:
        return spec
    rest = [a for a in tables.varying(rows, result.axes) if a not in (spec.x, spec.series)]
    few = [axis for axis in rest if len(values(result, axis, rows)) <= _MAX_LINES]
    return replace(spec, series=next(iter(few), None), multiples=spec.series)


def line_style(spec: PlotSpec, panel: Panel, colours: Colours, name: str) -> dict[str, Any]:
    """Of a series, which a panel of small multiples has from the series that it was."""
    if spec.multiples is None or spec.series is not None:
        return colours.line(spec.series, name)
    return colours.line(spec.multiples, str(panel.rows[spec.multiples].iloc[0]))


def left_out(result: ResultFolder, spec: PlotSpec, rows: pd.DataFrame) -> str:
    """Says so when there are more panels than a figure has."""
    rest = [a for a in tables.varying(rows, result.axes) if a not in (spec.x, spec.series)]
    count = len(rows[rest].drop_duplicates()) if rest else 1
    if count <= _MAX_PANELS:
        return ""
    return f" The first {_MAX_PANELS} of {count} panels are drawn; the data has all."


def beside(spec: PlotSpec, panel: Panel, rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The other lines of small multiples, which each panel has in grey; [] in other figures."""
    if spec.multiples is None or spec.series is not None:
        return []
    own = panel.rows.iloc[0]
    for axis in panel.fixed:
        if axis != spec.multiples:
            rows = rows[rows[axis] == own[axis]]
    rows = rows[rows[spec.multiples] != own[spec.multiples]]
    return [other for _, other in rows.groupby(spec.multiples, sort=False)]


BESIDE: Any = {"color": MUTED, "alpha": 0.3, "linewidth": 0.8, "zorder": 1.5}
"""How the lines of the other panels look."""

BESIDE_TEXT = " Each panel has the lines of the others in grey."


def figure(
    count: int, *, height: float = 3.1, wide: bool = False, same_x: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure for so many panels, 4.8 inches wide for one that is not `wide`, and 8.4 for more.

    same_x: all panels have one horizontal axis.
    """
    from matplotlib.figure import Figure

    columns = min(count, 2 if count in (2, 4) else 3 if count <= 6 else 4)
    lines = -(-count // columns)
    each = 2.6 if count <= 6 else 1.9
    width = 8.4 if count > 1 or wide else 4.8
    figure = Figure(figsize=(width, height if lines == 1 else each * lines))
    grid = figure.subplots(lines, columns, squeeze=False, sharex=same_x, sharey=True)
    axes = list(grid.flat)
    for ax in axes:
        ax.tick_params(axis="x", labelbottom=True)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def values(result: ResultFolder, axis: str | None, rows: pd.DataFrame) -> list[str]:
    """Values of an axis that occur in these rows, in the order of the experiment."""
    if axis is None:
        return [""]
    seen = set(rows[axis])
    return [value for value in result.axis_values(axis) if value in seen]


def label(text: str, chars: int = _LABEL_CHARS) -> str:
    text = printable(text)
    return text if len(text) <= chars else text[: chars - 1] + "…"


def y_label(figure: Figure, axes: Sequence[Axes], text: str) -> None:
    if len(axes) > 3:
        figure.supylabel(text, fontsize=8.5)
    else:
        axes[0].set_ylabel(text)


def log_ticks(span: float) -> list[float]:
    """Multiples of a decade that give a handful of ticks over a span (a factor)."""
    if span > 50:
        return [1] if span > 500 else [1, 3]
    return [1, 2, 5] if span > 5 else [1, 1.5, 2, 3, 4, 5, 6, 8]


def legend(
    figure: Figure, result: ResultFolder, spec: PlotSpec, rows: pd.DataFrame, colours: Colours
) -> None:
    """Above the panels: the series, and which shade is which metric."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[tuple[Any, str]] = []
    if spec.series is not None and spec.series != spec.x:
        shown = values(result, spec.series, rows)
        bare = numeric(shown) is not None  # "1%" alone does not say of what
        for value in shown:
            text = label(f"{spec.series} = {value}" if bare else value)
            if spec.kind == "bar":
                patches = tuple(Patch(**style) for style in colours.bar(spec.series, value))
                handles.append((patches, text))
            else:
                style = colours.line(spec.series, value)
                if spec.kind == "cdf":
                    style["marker"] = ""
                handles.append((Line2D([], [], markersize=4.5, **style), text))
    if len(spec.metrics) > 1 and spec.kind in ("bar", "line"):
        for k, metric in enumerate(spec.metrics):
            # Ink, since two of the colours of series are grey.
            patches = tuple(Patch(**style) for style in shaded(INK, k))
            handles.append((patches, display.own_title(metric)))
    if len(handles) > 1:
        wrapped_legend(figure, handles, handlelength=1.6 if spec.kind == "bar" else 2.6)


def wrapped_legend(
    figure: Figure, handles: Sequence[tuple[Any, str]], *, handlelength: float
) -> None:
    """A legend in as few lines as fit the figure, which grows by the lines beyond the first.

    handles: (artist, or a tuple of those that lie one over the other; text).
    It is read line by line; matplotlib fills column by column, hence the new order.
    """
    for columns in range(min(len(handles), 5), 0, -1):
        ordered = [h for column in range(columns) for h in handles[column::columns]]
        legend = figure.legend(
            [artist for artist, _ in ordered], [text for _, text in ordered],
            loc="outside upper left", ncols=columns, fontsize=8, handlelength=handlelength,
            columnspacing=1.4, borderpad=0.1,
        )  # fmt: skip
        box = legend.get_window_extent()
        if box.width <= 0.98 * figure.bbox.width or columns == 1:
            break
        legend.remove()
    lines = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi * (1 - 1 / lines))


def held(result: ResultFolder, rows: pd.DataFrame) -> str:
    """` All with test = bulk.`: axes that vary in the sweep, but not among these rows."""
    axes = [axis for axis in tables.varying(result.frame, result.axes) if rows[axis].nunique() == 1]
    text = ", ".join(f"{axis} = {rows[axis].iloc[0]}" for axis in axes)
    return f" All with {text}." if text else ""


def runs(counts: Sequence[int]) -> str:
    """`n = 10 runs per point`, or the range when points differ."""
    low, high = min(counts), max(counts)
    if low == high:
        return f"n = {counted(low, 'run')} per point"
    return f"n = {low} to {high} runs per point"


def or_zero(value: float) -> float:
    return max(0.0, value) if math.isfinite(value) else 0.0
