# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One figure of a plot's specification, with a title and the caption that explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datapath.report import comparison, display, distribution, points, tables, timeline
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import Colours, PlotSpec
from datapath.terminal import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_DRAW = {
    "bar": points.draw,
    "line": points.draw,
    "cdf": distribution.draw,
    "ratio": comparison.draw,
    "series": timeline.draw,
}


def draw(result: ResultFolder, spec: PlotSpec, colours: Colours) -> tuple[Figure, str]:
    """One figure and its caption; NothingToDraw when no run has the numbers."""
    return _DRAW[spec.kind](result, spec, colours)


def panes(figure: Figure, prefix: str) -> str:
    """The data with which a page reads a figure over time out; "": it is no such figure."""
    from datapath.report.panes import TimeFigure

    return figure.described(prefix) if isinstance(figure, TimeFigure) else ""


def data(result: ResultFolder, spec: PlotSpec, figure: Figure) -> pd.DataFrame:
    """The numbers behind a figure, a row for each mark or step of time, in base units."""
    from datapath.report.panes import TimeFigure

    if isinstance(figure, TimeFigure):
        return figure.numbers()
    if spec.kind == "cdf":
        return distribution.table(result, spec)
    if spec.kind == "ratio":
        return tables.select(tables.ratios(result, spec.metrics), spec.where)
    rows = result.frame[result.frame["metric"].isin(spec.metrics)]
    rows = tables.summarise(tables.select(rows, spec.where), result.axes)
    return tables.in_order(result, rows)


def alt(spec: PlotSpec, heading: str, table: pd.DataFrame) -> str:
    """The figure in a sentence or two: what it shows, and its ends."""
    kind = {"bar": "Bar chart", "line": "Line chart", "cdf": "Distribution", "ratio": "Ratios"}
    text = f"{kind.get(spec.kind, 'Series over time')}: {heading}"
    axes = [axis for axis in (spec.x, spec.series) if axis]
    text += f", by {' and '.join(dict.fromkeys(axes))}." if axes else "."
    column = {"ratio": "ratio", "cdf": "p50"}.get(spec.kind, "median")
    if spec.kind == "series" or column not in table:
        return printable(text)
    for metric in spec.metrics:
        rows = table[table["metric"] == metric].dropna(subset=[column])
        marks = sorted(rows.to_dict("records"), key=lambda row: float(row[column]))
        if len(marks) > 1:
            text += f" {display.metric_title(metric)}: lowest {_mark(spec, marks[0], column)}"
            text += f", highest {_mark(spec, marks[-1], column)}."
    return printable(text)


def _mark(spec: PlotSpec, row: Mapping[Any, Any], column: str) -> str:
    """`16.3 Gbit/s (tcp, 1%)`"""
    unit = "1" if column == "ratio" else str(row["unit"])
    where = ", ".join(str(row[axis]) for axis in (spec.series, spec.x) if axis)
    number = display.quantity(float(row[column]), unit, "" if unit == "1" else str(row["metric"]))
    return f"{number} ({where})" if where else number


def title(spec: PlotSpec) -> str:
    if spec.kind == "ratio":
        return "Ratio to the baseline"
    if spec.kind == "cdf":
        return f"Distribution of {display.family_title(spec.metrics[0].partition('_')[0]).lower()}"
    if spec.kind == "series":
        return "Over time"
    common = display.common_title(spec.metrics) if len(spec.metrics) > 1 else ""
    if common:
        return f"{common}: {' and '.join(map(display.own_title, spec.metrics))}"
    return " and ".join(display.metric_title(m) for m in spec.metrics)
