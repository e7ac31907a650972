# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Samples over time, laid on a grid of steps that several runs share."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datapath.series import sampling_interval_ns

Values = NDArray[np.float64]

_MOST = 200


@dataclass
class Line:
    """The curve of one panel: the middle, and a band around it where there is one."""

    middle: Values
    low: Values | None = None
    high: Values | None = None


def grid(flows: Sequence[Values], interval_ns: int = 0) -> Values:
    """Ends of the steps of time, ns: no more than a few hundred, none shorter than a sample.

    flows: the times of their samples, ns.  interval_ns: that was asked for between them, 0: not
    known.
    """
    end = max((float(times[-1]) for times in flows if len(times)), default=0.0)
    interval = sampling_interval_ns(flows, interval_ns)
    steps = min(_MOST, int(end / interval) if interval > 0 else 1)
    return np.linspace(0.0, max(end, 1.0), max(1, steps) + 1)


def on_grid(times: Values, values: Values, kind: str, grid: Values) -> Line:
    """The quantity in each step; NaN where the flow has no samples.

    kind: gauge (median of the samples of a step), count (value at its end), or rate (bit/s, of
    bytes that are counted).
    """
    known = np.isfinite(values) & (times <= grid[-1])
    times, values = times[known], values[known]
    nothing = np.full(len(grid) - 1, np.nan)
    if not len(times):
        return Line(nothing)
    if kind != "gauge":
        at = np.interp(grid, times, values, left=np.nan, right=np.nan)
        return Line(at[1:] if kind == "count" else np.diff(at) * 8e9 / (grid[1] - grid[0]))
    step = np.clip(np.searchsorted(grid, times, side="right") - 1, 0, len(nothing) - 1)
    low, middle, high = nothing.copy(), nothing.copy(), nothing.copy()
    ends = np.flatnonzero(np.diff(step, append=len(grid))) + 1
    for begin, end in itertools.pairwise([0, *ends.tolist()]):
        part = values[begin:end]
        low[step[begin]], high[step[begin]] = part.min(), part.max()
        middle[step[begin]] = np.median(part)
    held = [_held(line, int(step[-1])) for line in (middle, low, high)]
    return Line(held[0], held[1], held[2]) if len(times) > 1.5 * len(ends) else Line(held[0])


def _held(values: Values, last: int) -> Values:
    """Steps without a sample keep the value of the one before, up to the last sample."""
    filled = np.where(np.isfinite(values), np.arange(len(values)), 0)
    held = values[np.maximum.accumulate(filled)]
    held[last + 1 :] = np.nan
    return held


def together(lines: Sequence[Line], *, pooled: bool = True) -> Line:
    """Median and middle half of several lines, in the steps where most have a value.

    pooled: the band of a figure is the middle half, so one line alone has none.
    """
    if len(lines) == 1:
        return Line(lines[0].middle) if pooled else lines[0]
    stacked = np.stack([line.middle for line in lines])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # steps of which no line has a value
        quartiles = np.nanquantile(stacked, [0.25, 0.5, 0.75], axis=0)
    few = 2 * np.isfinite(stacked).sum(axis=0) < len(lines)
    low, middle, high = np.where(few, np.nan, quartiles)
    return Line(middle, low, high)
