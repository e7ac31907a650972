# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plots: the experiment's `report.plots`, or defaults; and one colour a series.

The palette is that of ten colours by Petroff ("Accessible Color Sequences for Data
Visualization", 2021), told apart with every common kind of colour blindness.  Lines differ by
marker and dash too, bars from the eleventh series on by hatching.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from datapath import units
from datapath.experiment.metrics import METRICS
from datapath.report import display, tables
from datapath.report.folder import ResultFolder, axis_text, mapping, sequence
from datapath.series import NAMES

KINDS = ("bar", "line", "cdf", "ratio", "series")
SERIES_COLOURS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)
DARK_COLOURS = (
    *("#3f90da", "#ffa90e", "#cb3117", "#94a4a2", "#9845cd"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)
"""The same on a dark page: the two darkest are lighter."""

_MARKERS = "osD^vPX<>*"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_HATCHES = ("", "////", "....", "xxxx")
_SHADES = (0.92, 0.45, 0.2)


@dataclass(frozen=True)
class PlotSpec:
    """One plot to be drawn.

    metrics: more than one is drawn side by side in a bar plot.
    x, series: axes, or None when nothing varies.  Axes that vary beside these two
    become panels.  where: axis -> values, keeps these points only.
    Of kind series: repetition is the run that is drawn (None: all, as medians), qps the
    flows (None: the first ones), and asked says whether the experiment named the panels.
    multiples: the series axis whose values have become panels, as lines they were too many.
    """

    kind: str
    metrics: tuple[str, ...]
    x: str | None
    series: str | None
    log: bool = False
    title: str = ""
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    repetition: int | None = None
    qps: tuple[int, ...] | None = None
    asked: bool = False
    multiples: str | None = None


class Colours:
    """Colour, marker and dash of each (axis, value), the same in every plot."""

    def __init__(self, result: ResultFolder, specs: Sequence[PlotSpec]) -> None:
        self._index: dict[tuple[str | None, str], int] = {}
        for spec in specs:
            if spec.series is not None:
                for value in result.axis_values(spec.series):
                    self._index.setdefault((spec.series, value), len(self._index))

    def index(self, axis: str | None, value: str) -> int:
        return self._index.get((axis, value), 0)

    def colour(self, axis: str | None, value: str) -> str:
        return SERIES_COLOURS[self.index(axis, value) % len(SERIES_COLOURS)]

    def dash(self, axis: str | None, value: str) -> Any:
        """Another one for series of the same colour, and for neighbours."""
        index = self.index(axis, value)
        return _DASHES[(index + index // len(SERIES_COLOURS)) % len(_DASHES)]

    def line(self, axis: str | None, value: str) -> dict[str, Any]:
        index = self.index(axis, value)
        return {
            "color": self.colour(axis, value),
            "marker": _MARKERS[(index + index // len(_MARKERS)) % len(_MARKERS)],
            "linestyle": self.dash(axis, value),
        }

    def bar(self, axis: str | None, value: str, shade: int = 0) -> list[dict[str, Any]]:
        """A bar of a series; shade: which of the metrics that stand side by side."""
        turn = min(self.index(axis, value) // len(SERIES_COLOURS), 3)
        return shaded(self.colour(axis, value), shade, turn)


def shaded(colour: str, shade: int, turn: int = 0) -> list[dict[str, Any]]:
    """Patches, one over the other, that make a bar of this colour.

    The later shades are lighter, outlined and hatched; so is a colour that was there before, in
    its `turn`.  A patch of its own has the lines: in an SVG file one patch has one opacity.
    """
    from matplotlib.colors import to_rgba

    alpha = _SHADES[min(shade, len(_SHADES) - 1)] * (0.6 if turn else 1)
    ground: dict[str, Any] = {"facecolor": to_rgba(colour, alpha), "linewidth": 0}
    hatch = _HATCHES[min(shade, len(_HATCHES) - 1)] + ("\\" * (2 + turn) if turn else "")
    if not hatch:
        return [ground]
    lines = {"facecolor": "none", "edgecolor": colour, "linewidth": 0.7, "hatch": hatch}
    return [ground, lines]


def plan(result: ResultFolder) -> tuple[list[PlotSpec], list[str]]:
    """The plots that the experiment asks for, or defaults; and remarks on odd ones."""
    remarks: list[str] = []
    asked = [mapping(entry) for entry in sequence(result.report.get("plots"))]
    specs = [_asked_for(result, entry, remarks) for entry in asked]
    chosen = [spec for spec in specs if spec is not None] if asked else _defaults(result)
    if result.baseline and not any(spec.kind == "ratio" for spec in chosen):
        chosen.append(_spec(result, "ratio", tuple(tables.ratio_metrics(result))))
    if _collected(result) and not any(spec.kind == "series" for spec in chosen):
        chosen.append(_spec(result, "series", _collected(result)))
    return chosen, remarks


def _asked_for(
    result: ResultFolder, entry: Mapping[str, Any], remarks: list[str]
) -> PlotSpec | None:
    kind = str(entry.get("kind", "bar"))
    if kind not in KINDS:
        remarks.append(f"report.plots: no kind of plot is called {kind!r}.")
        return None
    metric = entry.get("metric", "goodput")
    if kind == "cdf" and metric == "goodput":
        metric = "latency"  # the default of a plot's metric; goodput has no samples
    metrics = tuple(str(m) for m in (sequence(metric) or [metric]))
    named = metrics != ("goodput",)  # the default of a plot's metric; it is no series
    if kind == "series":
        metrics = _panels(metrics, remarks) if named else _collected(result)
        if not metrics:
            remarks.append("report.plots: no series were collected (collect.series).")
            return None
    chosen: dict[str, str | None] = {"x": None, "series": None}
    for key in chosen:
        axis = entry.get(key)
        if axis is not None and axis not in result.axes:
            remarks.append(f"report.plots: {key}: {axis} is not an axis of the sweep.")
        elif axis is not None:
            chosen[key] = str(axis)
    where = {
        str(axis): [axis_text(v) for v in sequence(value)] or [axis_text(value)]
        for axis, value in mapping(entry.get("where")).items()
    }
    return _spec(
        result,
        kind,
        metrics,
        **chosen,
        log=bool(entry.get("log", False)),
        title=str(entry.get("title") or ""),
        where={k: v for k, v in where.items() if k in result.axes},
        repetition=entry["repetition"] if isinstance(entry.get("repetition"), int) else None,
        qps=_flows(sequence(entry.get("qps")), remarks) or None,
        asked=named,
    )


def _flows(asked: Sequence[object], remarks: list[str]) -> tuple[int, ...]:
    """Those of the numbers asked for that a flow can have; a remark for each other."""
    flows = tuple(qp for qp in asked if isinstance(qp, int) and qp >= 0)
    remarks += [f"report.plots: qps: no flow has number {qp}." for qp in asked if qp not in flows]
    return flows


_PANELS = ("cwnd", "rtt", "inflight", "rate", "queue", "pacing_rate", "retransmits", "marks")
"""Of a figure of series that does not name them; `rate` is that of `delivered`."""


def _collected(result: ResultFolder) -> tuple[str, ...]:
    """The panels that collected series make, in order; none when there are no files of them."""
    if not any((result.path / "series").glob("*.parquet")):
        return ()
    names = sequence(mapping(result.resolved.get("collect")).get("series"))
    have = {"rate" if name == "delivered" else str(name) for name in names}
    return tuple(name for name in _PANELS if name in have)


def _panels(asked: Sequence[str], remarks: list[str]) -> tuple[str, ...]:
    """Those of the panels asked for that there can be; a remark for each other."""
    known = (*NAMES, "rate")
    remarks += [f"report.plots: {name} is not a series." for name in asked if name not in known]
    return tuple(name for name in asked if name in known)


def _defaults(result: ResultFolder) -> list[PlotSpec]:
    """Goodput (or message rate), latency p50 beside p99, the distribution, and whatever other
    metric asks to be drawn.
    """
    have = set(tables.measured(result.frame)["metric"])
    specs = []
    for metric in ("goodput", "message_rate"):
        if metric in have:
            specs.append(_spec(result, "bar", (metric,)))
            break
    latencies = tuple(m for m in ("latency_p50", "latency_p99") if m in have)
    if latencies:
        specs.append(_spec(result, "bar", latencies, log=True))
    if any((result.path / "samples").glob("*.parquet")):
        specs.append(_spec(result, "cdf", ("latency",)))
    specs += [
        _spec(result, "bar", (name,), log=kind.plot == "log")
        for name, kind in METRICS.items()
        if kind.plot and name in have
    ]
    if not specs:
        specs = [_spec(result, "bar", (m,)) for m in display.metric_order(have)[:2]]
    return specs


def by_series(result: ResultFolder, metric: str, series: str) -> PlotSpec:
    """A metric with a series for each value of an axis: lines where another axis has numbers."""
    log = metric in METRICS and METRICS[metric].plot == "log"
    spec = _spec(result, "bar", (metric,), series=series, log=log)
    if spec.x in (None, series) or len(set(numeric(result.axis_values(str(spec.x))) or ())) < 3:
        return spec
    return replace(spec, kind="line")


def _spec(
    result: ResultFolder,
    kind: str,
    metrics: tuple[str, ...],
    *,
    x: str | None = None,
    series: str | None = None,
    log: bool = False,
    title: str = "",
    where: Mapping[str, Sequence[str]] | None = None,
    repetition: int | None = None,
    qps: tuple[int, ...] | None = None,
    asked: bool = False,
) -> PlotSpec:
    """Fill in the axes that the experiment leaves open."""
    rows = tables.measured(result.frame)
    if kind not in ("cdf", "ratio", "series"):
        rows = rows[rows["metric"].isin(metrics)]
    rows = tables.select(rows, where or {})
    free = [axis for axis in tables.varying(rows, result.axes) if axis not in (x, series)]
    if series is None:
        series = next((axis for axis in _series_first(result) if axis in free), None)
    if x is None and kind in ("bar", "line"):
        rest = [axis for axis in free if axis != series]
        x = next((axis for axis in rest if numeric(result.axis_values(axis))), None)
        x = x or next(iter(rest), None) or series
    return PlotSpec(kind, metrics, x, series, log, title, where or {}, repetition, qps, asked)


def _series_first(result: ResultFolder) -> list[str]:
    """Axes by how well they name a series: the baseline's, then names, then numbers."""
    named = [axis for axis in result.axes if numeric(result.axis_values(axis)) is None]
    order = [*result.baseline, *named, *reversed(result.axes)]
    return list(dict.fromkeys(order))


def numeric(values: Sequence[str]) -> list[float] | None:
    """Axis values as numbers in one base unit, or None when they are names."""
    for parse in (
        float,
        units.parse_fraction,
        units.parse_bytes,
        units.parse_duration_ns,
        units.parse_bit_rate,
    ):
        try:
            parsed = [float(parse(value)) for value in values]
        except ValueError:
            continue
        return parsed if parsed and all(math.isfinite(v) for v in parsed) else None
    return None
