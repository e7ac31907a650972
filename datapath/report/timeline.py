# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Series over time: a row of panels for each quantity, a column for each point.

All runs are laid on one grid of time, which begins at the first delivery of the run, so
that a figure never draws more steps than a reader can see.  A gauge (window, RTT) is the
median of the samples within a step; a count is interpolated at its ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from datapath import foreign, series
from datapath.report import canvas, display, event_marks, tables
from datapath.report.canvas import GRID, MUTED
from datapath.report.event_marks import Mark
from datapath.report.folder import ResultFolder, mapping
from datapath.report.plotspec import SERIES_COLOURS, Colours, PlotSpec

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from datapath.report.panes import TimeFigure
    from datapath.report.steps import Line, Values

_COLUMNS = 4
_FLOWS = 8
_BANDS = 3  # more of them in one panel hide each other
_LINKS = 3


class Quantity(NamedTuple):
    """The quantity of a panel: a column of the table, as it is, or its growth per second."""

    title: str
    column: str
    unit: str
    kind: str  # gauge, count or rate


QUANTITIES: Mapping[str, Quantity] = {
    "cwnd": Quantity("Window", "cwnd_bytes", "B", "gauge"),
    "rtt": Quantity("RTT", "rtt_ns", "ns", "gauge"),
    "inflight": Quantity("In flight", "inflight_bytes", "B", "gauge"),
    "pacing_rate": Quantity("Pacing rate", "pacing_rate_bps", "bit/s", "gauge"),
    "rate": Quantity("Delivery rate", "delivered_bytes", "bit/s", "rate"),
    "delivered": Quantity("Delivered", "delivered_bytes", "B", "count"),
    "queue": Quantity("Queue", "queue_bytes", "B", "gauge"),
    "retransmits": Quantity("Sent again", "retransmitted_packets", "packets", "count"),
    "marks": Quantity("CE marks", "marked_packets", "packets", "count"),
}
_SILENT_AT_ZERO = ("pacing_rate", "queue", "retransmits", "marks")
"""Panels left out of a default figure when all they have is zeros."""


@dataclass(frozen=True)
class Trace:
    """A flow (or a tunnel), a link or a receiving QP of one run; ns since its first delivery."""

    name: str
    role: Literal["flow", "link", "receiver"]
    rows: pd.DataFrame
    marks: list[Mark] = field(default_factory=list)

    @property
    def times(self) -> Values:
        return self.rows["time_ns"].to_numpy(dtype="float64")

    def values(self, quantity: Quantity) -> Values:
        return self.rows[quantity.column].to_numpy(dtype="float64")


@dataclass
class Drawing:
    """The settings that panels share, and the text of the caption."""

    result: ResultFolder
    spec: PlotSpec
    colours: Colours
    figure: TimeFigure
    grid: Values
    flows: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    bands: bool = False
    links: bool = False
    handles: dict[str, Any] = field(default_factory=dict)
    tops: dict[str, float] = field(default_factory=dict)  # by title: greatest of the middles
    known: set[str] = field(default_factory=set)  # titles of quantities of which a line has values
    marks: set[Mark] = field(default_factory=set)


def draw(result: ResultFolder, spec: PlotSpec, colours: Colours) -> tuple[TimeFigure, str]:
    runs = result.frame[result.frame["status"] == "ok"]
    runs = tables.select(runs.drop_duplicates(["point", "repetition"]), spec.where)
    if spec.repetition is not None:
        runs = runs[runs["repetition"] == spec.repetition]
    damaged: list[str] = []
    traces = {
        row.Index: found
        for row in runs.itertuples()
        if (found := _traces(result, f"{row.point}-{row.repetition}", spec, damaged))
    }
    if not traces:
        unread = f", and {len(damaged)} files of series cannot be read" if damaged else ""
        asked = "" if spec.qps is None else f" and is number {' or '.join(map(str, spec.qps))}"
        text = f"no run left series of a flow that delivered anything{asked}{unread}"
        raise canvas.NothingToDraw(text)
    kept = runs.loc[list(traces)]
    names = [name for name in spec.metrics if _has(name, traces, asked=spec.asked)]
    if not names:
        raise canvas.NothingToDraw(f"no run has series of {' or '.join(spec.metrics)}")
    drawing, columns = _drawn(result, spec, colours, kept, traces, names)
    empty = [name for name in names if QUANTITIES[name].title not in drawing.known]
    if empty:
        names = [name for name in names if name not in empty]
        if not names:
            raise canvas.NothingToDraw(_no_line(empty))
        drawing, columns = _drawn(result, spec, colours, kept, traces, names)
    caption = _caption(drawing, kept, columns, damaged)
    return drawing.figure, caption + (f" There is {_no_line(empty)}." if empty else "")


def _no_line(names: Sequence[str]) -> str:
    titles = " and ".join(QUANTITIES[name].title for name in names)
    return f"no line for {titles}: in no step have half of the flows a value"


def _drawn(
    result: ResultFolder,
    spec: PlotSpec,
    colours: Colours,
    kept: pd.DataFrame,
    traces: Mapping[Any, Sequence[Trace]],
    names: Sequence[str],
) -> tuple[Drawing, int]:
    """The figure with panels of these quantities, and how many combinations there are."""
    columns = canvas.panels(result, spec, kept)
    figure, axes = _figure(len(names), min(len(columns), _COLUMNS))
    drawing = Drawing(result, spec, colours, figure, _grid(result, traces))
    for panel, below in zip(columns, zip(*axes, strict=True), strict=False):
        below[0].set_title(panel.title, loc="left", color=MUTED)
        for name, ax in zip(names, below, strict=True):
            _panel(ax, drawing, QUANTITIES[name], panel.rows, traces)
        marks = traces[panel.rows.index[0]][0].marks
        for mark in event_marks.draw(below, marks):
            figure.moves(mark)
        drawing.marks |= set(marks)
        below[-1].set_xlabel("Time since the first delivery (s)")
    for name, line in zip(names, axes, strict=True):
        _scale(line, QUANTITIES[name], drawing, log=spec.log)
    if len(drawing.handles) > 1:
        handles = [(line, str(line.get_label())) for line in drawing.handles.values()]
        canvas.wrapped_legend(figure, handles, handlelength=2.0)
    return drawing, len(columns)


# --- reading ---------------------------------------------------------------------------------


def _traces(result: ResultFolder, run: str, spec: PlotSpec, damaged: list[str]) -> list[Trace]:
    """The flows and links of a run that are to be drawn; none when it left no series."""
    file = result.path / "series" / f"{run}.parquet"
    if not file.is_file():
        return []
    try:
        frame = series.checked(foreign.read_table(file))
    except (OSError, ValueError):
        damaged.append(file.name)
        return []
    found = [(f"{host} QP {qp}", rows) for host, qp, rows in series.flows(frame)]
    # The kernel tells nothing of the QPs of rxe and siw; the card beneath them does of its own.
    found = found or [(f"{card} to {peer}", rows) for card, peer, rows in series.tunnels(frame)]
    wanted = range(_FLOWS) if spec.qps is None else spec.qps
    chosen = [found[index] for index in wanted if index < len(found)]
    if not chosen:
        return []
    start = min(_first_delivery(rows) for _, rows in found)
    marks = event_marks.of_run(result, run, start)
    traces = [Trace(name, "flow", _since(rows, start), marks) for name, rows in chosen]
    end = max(int(trace.rows["time_ns"].max()) for trace in traces)
    return [*traces, *_links(frame, start, end), *_receivers(frame, start, end)]


def _links(frame: pd.DataFrame, start: int, end: int) -> list[Trace]:
    """The links with the longest queues, that have any."""
    links = frame[frame["link"].notna()].groupby("link", sort=False)
    longest = links["queue_bytes"].max().nlargest(_LINKS)
    names = list(longest[longest > 0].index) or list(longest.index[:1])
    return [Trace(str(name), "link", _between(links.get_group(name), start, end)) for name in names]


def _receivers(frame: pd.DataFrame, start: int, end: int) -> list[Trace]:
    """QPs that received marked packets, and have sent nothing themselves."""
    rows = frame[frame["qp"].notna()]
    found = []
    for _, group in rows.groupby(["host", "qp"], sort=False):
        if group["marked_packets"].max() > 0 and not group["delivered_bytes"].max() > 0:
            name = f"{group['host'].iloc[0]} QP {group['qp'].iloc[0]}"
            found.append(Trace(name, "receiver", _between(group, start, end)))
    return found[:_FLOWS]


def _between(rows: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """Rows of these times, `end` counting from `start`."""
    rows = rows.assign(time_ns=rows["time_ns"] - start)
    return rows[(rows["time_ns"] >= 0) & (rows["time_ns"] <= end)]


def _shown_by(quantity: Quantity, found: Sequence[Trace]) -> list[Trace]:
    """Whose rows a panel shows: flows; links for queues; for marks, whoever received them."""
    role = "flow"
    if quantity.column == "queue_bytes":
        role = "link"
    elif quantity.column == "marked_packets" and any(t.role == "receiver" for t in found):
        role = "receiver"
    return [trace for trace in found if trace.role == role]


def _first_delivery(rows: pd.DataFrame) -> int:
    """When the last sample was taken before something was delivered, ns."""
    before = rows.loc[rows["delivered_bytes"] <= 0, "time_ns"]
    return int(before.max() if len(before) else rows["time_ns"].min())


def _since(rows: pd.DataFrame, start: int) -> pd.DataFrame:
    """Rows from the start on, less the idle ones at the end but for the first."""
    rows = rows.assign(time_ns=rows["time_ns"] - start)
    rows = rows[rows["time_ns"] >= 0]
    final = rows["delivered_bytes"].max()
    idle = rows.loc[rows["delivered_bytes"] >= final, "time_ns"]
    return rows if idle.empty else rows[rows["time_ns"] <= idle.min()]


def _has(name: str, traces: Mapping[Any, Sequence[Trace]], *, asked: bool) -> bool:
    """Whether a panel would show anything (that the experiment did not ask for by name)."""
    quantity = QUANTITIES[name]
    shown = [trace for found in traces.values() for trace in _shown_by(quantity, found)]
    values = [trace.rows[quantity.column].max() for trace in shown]
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and (asked or name not in _SILENT_AT_ZERO or max(known) > 0)


def _grid(result: ResultFolder, traces: Mapping[Any, Sequence[Trace]]) -> Values:
    from datapath.report import steps

    every = [trace for found in traces.values() for trace in found if trace.role == "flow"]
    return steps.grid([trace.times for trace in every], result.interval_ns)


def _lines(traces: Sequence[Trace], quantity: Quantity, grid: Values) -> list[Line]:
    from datapath.report import steps

    return [steps.on_grid(t.times, t.values(quantity), quantity.kind, grid) for t in traces]


# --- drawing -----------------------------------------------------------------------------------


def _figure(lines: int, columns: int) -> tuple[TimeFigure, list[list[Axes]]]:
    from datapath.report.panes import TimeFigure

    figure = TimeFigure(figsize=(8.4, 0.7 + 1.15 * lines))
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey="row")
    return figure, [list(line) for line in grid]


def _panel(
    ax: Axes,
    drawing: Drawing,
    quantity: Quantity,
    rows: pd.DataFrame,
    traces: Mapping[Any, Sequence[Trace]],
) -> None:
    """The lines of one quantity of one point, or of those that differ in the series axis."""
    from datapath.report import steps

    spec = drawing.spec
    values = canvas.values(drawing.result, spec.series, rows)
    several = len(values) > 1
    wants_links = quantity.column == "queue_bytes"
    for value in values:
        own = rows if spec.series is None else rows[rows[spec.series] == value]
        found = [_shown_by(quantity, traces[i]) for i in own.index]
        most = max(map(len, found), default=0)
        if wants_links and several:
            found, most = [of_run[:1] for of_run in found], 1
        drawing.links |= wants_links and most > 0
        drawing.flows += [] if wants_links else [most]
        drawing.runs.append(len(own))
        if several:
            lines = _lines([t for of_run in found for t in of_run], quantity, drawing.grid)
            text = canvas.label(value)
            style = {
                "color": drawing.colours.colour(spec.series, value),
                "linestyle": drawing.colours.dash(spec.series, value),
            }
            if lines:
                line = steps.together(lines)
                _line(ax, drawing, quantity, line, text, style, own, band=len(values) <= _BANDS)
            continue
        for index in range(most):
            runs = [of_run[index] for of_run in found if index < len(of_run)]
            lines = _lines(runs, quantity, drawing.grid)
            line = steps.together(lines, pooled=len(own) > 1)
            text = runs[0].name if len(runs) == 1 or wants_links else f"flow {index}"
            colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
            if spec.series is not None and most == 1 and not wants_links:
                colour = drawing.colours.colour(spec.series, value)
            style = {"color": colour, "linestyle": ":" if wants_links else "-"}
            _line(ax, drawing, quantity, line, text, style, own, band=most <= _BANDS)
    ax.grid(axis="y", color=GRID)


def _line(
    ax: Axes,
    drawing: Drawing,
    quantity: Quantity,
    line: Line,
    text: str,
    style: Mapping[str, Any],
    rows: pd.DataFrame,
    *,
    band: bool,
) -> None:
    import numpy as np
    from matplotlib.lines import Line2D

    at, figure = drawing.grid / 1e9, drawing.figure
    shown = np.append(line.middle, line.middle[-1])
    (curve,) = ax.step(at, shown, where="post", linewidth=1.1, **style)
    curve.get_path().should_simplify = False  # the page may draw a part of it much larger
    figure.curve(ax, curve, text, _numbers(drawing, quantity, line, text, rows))
    if band and line.low is not None and line.high is not None:
        low, high = (np.append(edge, edge[-1]) for edge in (line.low, line.high))
        colour = style["color"]
        figure.moves(
            ax.fill_between(at, low, high, step="post", color=colour, alpha=0.18, linewidth=0)
        )
        drawing.bands = True
    if np.isfinite(line.middle).any():
        drawing.known.add(quantity.title)
    top = float(np.max(line.middle, initial=0.0, where=np.isfinite(line.middle)))
    drawing.tops[quantity.title] = max(top, drawing.tops.get(quantity.title, 0.0))
    drawing.handles.setdefault(text, Line2D([], [], label=text, linewidth=1.6, **style))


def _numbers(
    drawing: Drawing, quantity: Quantity, line: Line, text: str, rows: pd.DataFrame
) -> dict[str, Any]:
    """Columns for a file: the values of a curve in base units, at the begins of the steps.

    rows: the runs of the curve.  An axis in which they differ is empty.
    """
    axes = {axis: rows[axis].iloc[0] if rows[axis].nunique() == 1 else ""
            for axis in drawing.result.axes}  # fmt: skip
    return {
        **axes,
        "quantity": quantity.title,
        "unit": quantity.unit,
        "line": text,
        "time_s": drawing.grid[:-1] / 1e9,
        "value": line.middle,
        "low": math.nan if line.low is None else line.low,
        "high": math.nan if line.high is None else line.high,
    }


def _scale(axes: Sequence[Axes], quantity: Quantity, drawing: Drawing, *, log: bool) -> None:
    """One unit and one range for a row of panels, and its label at the left."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    first, top = axes[0], drawing.tops.get(quantity.title, 0.0)
    scale = display.scale_for([top], quantity.unit)
    first.set_ylabel(f"{quantity.title}\n({scale.unit})" if scale.unit else quantity.title)
    if log and quantity.kind == "gauge" and top > 0:
        first.set_yscale("log")
    else:
        top = 1.15 * top or 1.0
        ticks = np.asarray(MaxNLocator(4).tick_values(0, top / scale.factor)) * scale.factor
        first.set_yticks(ticks[ticks <= top])
        first.set_ylim(0, top)
    for ax in axes:
        ax.yaxis.set_major_formatter(lambda v, _: display.tick(v / scale.factor))
        ax.xaxis.set_major_formatter(lambda v, _: display.tick(v))
        ax.set_xlim(0, float(drawing.grid[-1]) / 1e9)
        drawing.figure.pane(ax, quantity.title, scale.unit, scale.factor)


# --- the caption -------------------------------------------------------------------------------


def _caption(drawing: Drawing, rows: pd.DataFrame, columns: int, damaged: Sequence[str]) -> str:
    spec, flows, runs = drawing.spec, max(drawing.flows, default=0), max(drawing.runs)
    several = spec.series is not None and rows[spec.series].nunique() > 1
    of_flows = f"the {flows} flows" if flows > 1 else "the flow"
    if several:
        text = f"Each line is the median over {of_flows} of {canvas.runs(drawing.runs)}"
        text += ", in the steps in which half of them have a value" if flows > 1 else ""
    else:
        text = "Each line is one flow" if flows > 1 else "The line is the flow"
        which = f"run {spec.repetition}" if spec.repetition is not None else "the one run"
        text += f", the median over {canvas.runs(drawing.runs)}" if runs > 1 else f" of {which}"
    if drawing.bands:
        pooled = runs > 1 or (several and flows > 1)
        text += (
            "; the band is the middle half of them"
            if pooled
            else "; the band reaches from the least to the greatest sample of a step"
        )
        text += ", cut at the edge of its panel"
    if drawing.links:
        text += (
            ". The queue is that of the busiest link of a run"
            if several
            else ". Dotted lines are links"
        )
    step_s = (drawing.grid[1] - drawing.grid[0]) / 1e9
    text += f". A step is {display.quantity(step_s, 's')}."
    if columns > _COLUMNS:
        text += f" The first {_COLUMNS} of {columns} combinations are drawn."
    text += event_marks.caption(drawing.marks) + canvas.held(drawing.result, rows)
    if damaged:
        text += f" {len(damaged)} files of series cannot be read and are left out."
    return text + _gaps(drawing.result, rows)


def _gaps(result: ResultFolder, rows: pd.DataFrame) -> str:
    """Series that were asked for and are missing, in the words of the runs' records."""
    shown = {(str(row.point), row.repetition) for row in rows.itertuples()}
    absent: dict[str, list[str]] = {}
    lost = 0
    for record in result.records:
        if (str(record.get("point")), record.get("repetition")) not in shown:
            continue
        about = mapping(record.get("series"))
        for name, reason in mapping(about.get("absent")).items():
            names = absent.setdefault(str(reason), [])
            names += [name] if name not in names else []
        lost += about.get("rows_left_out") or 0
    text = "".join(f" No {', '.join(names)}: {reason}." for reason, names in absent.items())
    return text + (f" {lost:,} samples found no room in their files." if lost else "")
