# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One figure of a plot's specification, with a title and the caption that explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datapath.report import canvas, comparison, display, distribution, points, timeline
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import Colours, PlotSpec

if TYPE_CHECKING:
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


def title(spec: PlotSpec) -> str:
    if spec.kind == "ratio":
        return "Ratio to the baseline"
    if spec.kind == "cdf":
        of_what = spec.metrics[0].partition("_")[0]
        return f"Distribution of {display.metric_title(of_what).lower()}"
    if spec.kind == "series":
        return "Over time"
    if len(spec.metrics) > 1 and all(m.startswith("latency_") for m in spec.metrics):
        return "Latency: " + " and ".join(canvas.short(m) for m in spec.metrics)
    return " and ".join(display.metric_title(m) for m in spec.metrics)
