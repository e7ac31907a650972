# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Bars and lines: one mark for each point, with its runs and its interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datapath import stats
from datapath.report import canvas, display, tables
from datapath.report.canvas import INK, MUTED, Panel
from datapath.report.claims import where_text
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import Colours, PlotSpec, numeric

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_NUMBER_SIZE = 7.2
_BARS = 24
_MAX_GROUPS, _MAX_BARS = 40, 250
"""In a panel: values of x, of which the labels can be read, and bars, which can be told apart."""

_INCHES_PER_CHAR = 0.072


@dataclass(frozen=True)
class Cell:
    """The runs behind one mark: their values, the median and its interval."""

    values: NDArray[np.float64]
    estimate: stats.Estimate


def draw(result: ResultFolder, spec: PlotSpec, colours: Colours) -> tuple[Figure, str]:
    rows = _rows_of(result, spec)
    more = ""
    if spec.kind == "line":
        spec = canvas.small_multiples(result, spec, rows)
    else:
        rows, more = _first_bars(result, spec, rows)
    metric, unit = spec.metrics[0], _unit(rows)
    log = spec.log and bool((rows["value"] > 0).all())
    values = rows["value"].to_numpy()
    scale = display.scale_for([_typical(values)] if log else values, unit, metric)
    scaled = rows.assign(value=rows["value"] / scale.factor)
    panels = canvas.panels(result, spec, scaled)
    figure, axes = canvas.figure(len(panels), wide=_many_bars(result, spec, scaled))
    counts: list[int] = []
    multiples = False
    for panel, ax in zip(panels, axes, strict=True):
        draw_panel = _bars if spec.kind == "bar" else _lines
        counts += draw_panel(ax, result, spec, panel, colours, log)
        others = canvas.beside(spec, panel, scaled)
        _beside(ax, result, spec, others, canvas.values(result, spec.x, panel.rows))
        multiples |= bool(others)
        ax.set_title(panel.title, loc="left", color=MUTED)
        ax.grid(axis="y")
    if log:
        _log_axis(axes[0], scaled["value"].to_numpy(), bars=spec.kind == "bar")
    else:
        if float(scaled["value"].min()) >= 0:
            axes[0].set_ylim(0, _headroom(axes[0].get_ylim()[1], scaled))
        axes[0].yaxis.set_major_formatter(lambda v, _: display.tick(v))
    canvas.y_label(figure, axes, _axis_label(spec, scale))
    canvas.legend(figure, result, spec, scaled, colours)
    text = _caption(spec, counts, log) + canvas.left_out(result, spec, rows)
    text += more + (canvas.BESIDE_TEXT if multiples else "")
    return figure, text + canvas.held(result, rows)


def _many_bars(result: ResultFolder, spec: PlotSpec, rows: pd.DataFrame) -> bool:
    """More bars than half a page has room for."""
    if spec.kind != "bar":
        return False
    xs, series = _bars_of(result, spec, rows)
    return len(xs) * len(series) * len(spec.metrics) > _BARS


def _bars_of(
    result: ResultFolder, spec: PlotSpec, rows: pd.DataFrame
) -> tuple[list[str], list[str]]:
    """The values of x, and of the series that have a bar for each of them."""
    series = [""] if spec.x == spec.series else canvas.values(result, spec.series, rows)
    return canvas.values(result, spec.x, rows), series


def _first_bars(
    result: ResultFolder, spec: PlotSpec, rows: pd.DataFrame
) -> tuple[pd.DataFrame, str]:
    """The rows of as many bars as a panel has; says so when there are more."""
    xs, series = _bars_of(result, spec, rows)
    each = len(spec.metrics)
    count = len(xs) * len(series) * each
    if len(xs) <= _MAX_GROUPS and count <= _MAX_BARS:
        return rows, ""
    some = series[: max(1, _MAX_BARS // each)]
    first = xs[: max(1, min(_MAX_GROUPS, _MAX_BARS // (each * len(some))))]
    for axis, shown, known in ((spec.series, some, series), (spec.x, first, xs)):
        if axis is not None and len(shown) < len(known):
            rows = rows[rows[axis].isin(shown)]
    drawn = len(first) * len(some) * each
    return rows, f" The first {drawn} of {count} bars of a panel are drawn; the data has all."


def _rows_of(result: ResultFolder, spec: PlotSpec) -> pd.DataFrame:
    rows = tables.measured(result.frame)
    rows = rows[rows["metric"].isin(spec.metrics)]
    rows = tables.select(rows, spec.where)
    if rows.empty:
        where = f" where {where_text(spec.where)}" if spec.where else ""
        raise canvas.NothingToDraw(f"no run has a value of {' or '.join(spec.metrics)}{where}")
    return rows


def _unit(rows: pd.DataFrame) -> str:
    """Of all rows, since one axis has one unit."""
    units = sorted(set(rows["unit"]))
    if len(units) > 1:
        raise canvas.NothingToDraw(
            f"one axis has one unit, and its values have {' and '.join(units)}"
        )
    return str(units[0])


def _cell(rows: pd.DataFrame, key: Mapping[str | None, str]) -> Cell | None:
    """The runs with these axis values, or None when there are none."""
    for axis, value in key.items():
        if axis is not None:
            rows = rows[rows[axis] == value]
    if rows.empty:
        return None
    values = rows["value"].to_numpy()
    return Cell(values, stats.median_interval(values))


def _typical(values: NDArray[np.float64]) -> float:
    """Geometric mean: the middle of a log axis."""
    return math.exp(sum(math.log(v) for v in values.tolist()) / len(values))


def _headroom(top: float, rows: pd.DataFrame) -> float:
    """Room above the tallest mark for the number written over it."""
    most = float(rows["value"].max())
    return max(top, most * 1.1) if most > 0 else 1.0


def _axis_label(spec: PlotSpec, scale: display.Scale) -> str:
    title = display.metric_title(spec.metrics[0])
    if len(spec.metrics) > 1:
        several = map(display.metric_title, spec.metrics)
        title = display.common_title(spec.metrics) or " and ".join(several)
    return f"{title} ({scale.unit})" if scale.unit else title


def _bars(
    ax: Axes,
    result: ResultFolder,
    spec: PlotSpec,
    panel: Panel,
    colours: Colours,
    log: bool,
) -> list[int]:
    """Bars grouped by x, one for each series and metric; returns n of each."""
    xs, series = _bars_of(result, spec, panel.rows)
    same = spec.x == spec.series
    slots = [(s, m) for s in series for m in spec.metrics]
    width = 0.8 / len(slots)
    found: list[tuple[float, Cell]] = []
    for i, x in enumerate(xs):
        for j, (name, metric) in enumerate(slots):
            at = i + (j - (len(slots) - 1) / 2) * width
            rows = panel.rows[panel.rows["metric"] == metric]
            key = {spec.x: x} if same else {spec.x: x, spec.series: name}
            cell = _cell(rows, key)
            if cell is None:
                _no_data(ax, at)
                continue
            own = (spec.x, x) if same or spec.series is None else (spec.series, name)
            styles = colours.bar(*own, spec.metrics.index(metric))
            _bar(ax, at, width * 0.88, cell, styles)
            found.append((at, cell))
    ax.set_xlim(-0.55, len(xs) - 0.45)
    _written(ax, found, width)
    _category_ticks(ax, spec.x, xs)
    return [len(cell.values) for _, cell in found]


def _bar(
    ax: Axes, at: float, width: float, cell: Cell, styles: Sequence[Mapping[str, Any]]
) -> None:
    median, lo, hi = cell.estimate
    for style in styles:
        ax.bar(at, median, width, **style)
    n = len(cell.values)
    if n > 1:
        offsets = [at + width * 0.5 * ((k + 0.5) / n - 0.5) for k in range(n)]
        ax.plot(offsets, cell.values, "o", color=INK, markersize=2.8, alpha=0.45, mew=0)
    if math.isfinite(lo):
        error = [[max(0.0, median - lo)], [max(0.0, hi - median)]]
        ax.errorbar(
            at, median, yerr=error, fmt="none", color=INK, ecolor=INK, elinewidth=1.0, capsize=2.2
        )


def _written(ax: Axes, bars: Sequence[tuple[float, Cell]], width: float) -> None:
    """The medians above their bars, if the widest of them fits between its neighbours."""
    texts = [display.number(cell.estimate.median) for _, cell in bars]
    points_each = 72 * width * _inches(ax) / abs(float(ax.get_xlim()[1] - ax.get_xlim()[0]))
    if max(map(len, texts), default=0) * 0.62 * _NUMBER_SIZE > points_each:
        return
    for (at, cell), text in zip(bars, texts, strict=True):
        ends = [float(cell.values.max()), cell.estimate.median, cell.estimate.hi]
        ax.annotate(
            text, (at, max(end for end in ends if math.isfinite(end))), xytext=(0, 2.5),
            textcoords="offset points", ha="center", va="bottom", fontsize=_NUMBER_SIZE,
        )  # fmt: skip


def _inches(ax: Axes) -> float:
    """Width of a panel, as far as it is known before the layout."""
    return float(ax.get_position().width * ax.get_figure().get_figwidth())  # type: ignore[union-attr]


def _no_data(ax: Axes, at: float) -> None:
    """A gap must not be taken for a zero."""
    from matplotlib.transforms import blended_transform_factory

    where = blended_transform_factory(ax.transData, ax.transAxes)
    ax.text(
        at, 0.02, "no data", rotation=90, ha="center", va="bottom", color=MUTED, fontsize=7,
        transform=where,
    )  # fmt: skip


def _category_ticks(ax: Axes, axis: str | None, values: Sequence[str]) -> None:
    labels = [canvas.label(value) for value in values]
    ax.set_xticks(range(len(values)), labels)
    ax.tick_params(axis="x", length=0)
    if _crowded(ax, labels):
        ax.set_xticks(range(len(values)), labels, rotation=28, ha="right", rotation_mode="anchor")
    if axis is not None:
        ax.set_xlabel(canvas.label(display.axis_title(axis)))


def _crowded(ax: Axes, labels: Sequence[str]) -> bool:
    """Whether the labels of ticks would touch each other."""
    return max(map(len, labels)) * len(labels) > 14 * _inches(ax)


def _lines(
    ax: Axes,
    result: ResultFolder,
    spec: PlotSpec,
    panel: Panel,
    colours: Colours,
    log: bool,
) -> list[int]:
    """A line over x for each series and metric, with the interval as whiskers."""
    xs = canvas.values(result, spec.x, panel.rows)
    positions, to_scale = _positions(xs, _inches(ax))
    counts = []
    for name in canvas.values(result, spec.series, panel.rows):
        for k, metric in enumerate(spec.metrics):
            rows = panel.rows[panel.rows["metric"] == metric]
            cells = [_cell(rows, {spec.series: name, spec.x: x}) for x in xs]
            found = [(p, c) for p, c in zip(positions, cells, strict=True) if c is not None]
            if not found:
                continue
            style = canvas.line_style(spec, panel, colours, name)
            at, kept = zip(*found, strict=True)
            medians = [c.estimate.median for c in kept]
            below = [canvas.or_zero(c.estimate.median - c.estimate.lo) for c in kept]
            above = [canvas.or_zero(c.estimate.hi - c.estimate.median) for c in kept]
            ax.errorbar(
                at, medians, yerr=[below, above], markersize=4.5, elinewidth=0.9, capsize=2.2,
                alpha=0.5 if k else 1.0, **style,
            )  # fmt: skip
            counts += [len(c.values) for c in kept]
    if to_scale == "log":
        ax.set_xscale("log")
    labels = [canvas.label(x) for x in xs]
    ax.set_xticks(positions, labels)
    if _crowded(ax, labels):
        ax.set_xticks(positions, labels, rotation=40, ha="right", rotation_mode="anchor")
    ax.minorticks_off()
    if spec.x is not None:
        ax.set_xlabel(canvas.label(display.axis_title(spec.x)))
    return counts


def _beside(
    ax: Axes, result: ResultFolder, spec: PlotSpec, others: Sequence[pd.DataFrame],
    xs: Sequence[str],
) -> None:  # fmt: skip
    """The medians of the lines of other panels."""
    if spec.x is None:
        return
    positions, _ = _positions(xs, _inches(ax))
    for rows, metric in itertools.product(others, spec.metrics):
        medians = rows[rows["metric"] == metric].groupby(spec.x)["value"].median()
        found = [(p, medians[x]) for p, x in zip(positions, xs, strict=True) if x in medians]
        ax.plot([p for p, _ in found], [median for _, median in found], **canvas.BESIDE)


def _positions(xs: Sequence[str], inches: float) -> tuple[list[float], str]:
    """Where the values of x go: to scale where their ticks then stay readable.

    inches: width of the panel.
    """
    even = [float(i) for i in range(len(xs))]
    parsed = numeric(xs)
    if parsed is None or len(set(parsed)) < 2:
        return even, "even"
    if min(parsed) > 0 and max(parsed) / min(parsed) >= 20:
        return parsed, "log"
    ordered = sorted(zip(parsed, map(len, xs), strict=True))
    inch = (ordered[-1][0] - ordered[0][0]) / (0.9 * inches)
    for (a, chars), (b, more) in itertools.pairwise(ordered):
        if b - a < (0.5 * (chars + more) + 0.5) * _INCHES_PER_CHAR * inch:
            return even, "even"
    return parsed, "linear"


def _log_axis(ax: Axes, values: NDArray[np.float64], *, bars: bool) -> None:
    """Log axis with plain numbers; bars begin at a round number below the least."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_yscale("log")
    least, most = float(values.min()), float(values.max())
    decade = 10 ** math.floor(math.log10(least))
    floor = max(decade * step for step in (0.5, 1, 2, 5) if decade * step <= least / 1.3)
    ax.set_ylim(floor if bars else least / 1.3, most * (1.6 if bars else 1.3))
    ax.yaxis.set_major_locator(LogLocator(subs=canvas.log_ticks(most / floor)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: display.tick(v)))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _caption(spec: PlotSpec, counts: Sequence[int], log: bool) -> str:
    """Number of runs, and meaning of the marks and whiskers."""
    mark = "bar" if spec.kind == "bar" else "marker"
    text = f"The {mark} is the median over the runs of a point"
    if max(counts) > 1:
        dots = ", each dot is one run" if spec.kind == "bar" else ""
        text += f"{dots}, and the whisker is the 95 % interval of the median"
    text += f"; {canvas.runs(counts)}."
    if max(counts) == 1:
        text += " With one run no interval can be given."
    elif max(counts) < stats.FEWEST:
        text += (
            f" With fewer than {stats.FEWEST} runs the interval covers the true median less often."
        )
    elif min(counts) == 1:
        text += " A point with one run has no whisker."
    better = {display.metric_better(m) for m in spec.metrics}
    if better in ({"higher"}, {"lower"}):
        text += f" {better.pop().capitalize()} is better."
    if spec.log and not log:
        text += " A log axis was asked for, but some values are zero."
    elif log:
        text += " The vertical axis is logarithmic."
    return text
