# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A figure of several result folders: a metric at the points that all have, a series for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datapath.disk import disk_errors
from datapath.errors import LocalError
from datapath.report import canvas, plots, plotspec
from datapath.report.folder import ResultFolder

SIDE = "side"
"""The axis whose values are the folders' names."""


def draw(folders: Sequence[ResultFolder], names: Sequence[str], metric: str, file: Path) -> None:
    """Write the figure, as PDF, SVG or PNG by the end of the file's name.

    names: of the folders, each another one.  LocalError: for another ending, a file that cannot be
    written, and when no point and metric is in all folders.
    """
    plots.check_format(file.suffix[1:])
    both = overlaid(folders, names)
    spec = plotspec.by_series(both, metric, SIDE)
    try:
        with disk_errors(file):
            plots.write(both, spec, plotspec.Colours(both, [spec]), file)
    except canvas.NothingToDraw as reason:
        raise LocalError(
            f"no figure: {reason}", hint="dpctl compare DIR DIR --metric NAME"
        ) from None


def overlaid(folders: Sequence[ResultFolder], names: Sequence[str]) -> ResultFolder:
    """The points that all folders have as one folder, with the axis SIDE."""
    import pandas as pd

    first = folders[0]
    axes = [axis for axis in first.axes if all(axis in folder.axes for folder in folders)]
    frames = [f.frame.assign(**{SIDE: name}) for f, name in zip(folders, names, strict=True)]
    if axes:
        points = [set(frame[axes].itertuples(index=False, name=None)) for frame in frames]
        common = set.intersection(*points)
        frames = [
            frame[[key in common for key in frame[axes].itertuples(index=False, name=None)]]
            for frame in frames
        ]
    return replace(
        first,
        frame=pd.concat(frames, ignore_index=True),
        axes=[*axes, SIDE],
        resolved={**first.resolved, "sweep": {**first.sweep, "baseline": {}}},
    )
