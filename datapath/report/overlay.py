# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A figure of several result folders: a metric at the points that all have, a series for each."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datapath.disk import disk_errors
from datapath.errors import LocalError
from datapath.report import canvas, compare, plots, plotspec, tables
from datapath.report.folder import ResultFolder

_SIDE = "side"


def check_file(file: Path) -> None:
    """LocalError where no figure can be written, to be told before runs of hours."""
    plots.check_format(file.suffix[1:])
    if file.is_dir():
        raise LocalError(f"{file} is a folder", hint="name a file")
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise LocalError(
            f"cannot write {file}: {error.strerror}", hint="make its folder, or name another file"
        ) from None


def draw(
    folders: Sequence[ResultFolder], names: Sequence[str], metric: str, file: Path
) -> list[str]:
    """Write the figure, as PDF, SVG or PNG by the end of the file's name; tells who is not in it.

    names: of the folders, each another one.  LocalError: for another ending, a file that cannot be
    written, and when no point and metric is in two folders.
    """
    plots.check_format(file.suffix[1:])
    have = [_of_metric(folder, metric) for folder in folders]
    with_it = [(f, name) for f, name in zip(have, names, strict=True) if len(f.frame)]
    without = [name for f, name in zip(have, names, strict=True) if not len(f.frame)]
    hint = "dpctl compare DIR DIR --metric NAME"
    if len(with_it) < 2:
        alone = f"only {with_it[0][1]} has" if with_it else "no folder has"
        raise LocalError(f"no figure: {alone} {metric}", hint=hint)
    for other, name in with_it[1:]:
        if axes := compare.alone(with_it[0][0], other, metric):
            told = f"only one of {with_it[0][1]} and {name} varies {', '.join(axes)}"
            raise LocalError(f"no figure: {told}", hint=hint)
    both = overlaid([f for f, _ in with_it], [name for _, name in with_it])
    spec = plotspec.by_series(both, metric, both.axes[-1])
    try:
        with disk_errors(file):
            plots.write(both, spec, plotspec.Colours(both, [spec]), file)
    except canvas.NothingToDraw as reason:
        raise LocalError(f"no figure: {reason}", hint=hint) from None
    return [f"{name} has no {metric}, and is not in the figure" for name in without]


def _of_metric(folder: ResultFolder, metric: str) -> ResultFolder:
    frame = tables.measured(folder.frame)
    return replace(folder, frame=frame[frame["metric"] == metric])


def overlaid(folders: Sequence[ResultFolder], names: Sequence[str]) -> ResultFolder:
    """The points that all folders have as one folder, whose last axis has the folders' names."""
    import pandas as pd

    first = folders[0]
    axes = [axis for axis in first.axes if all(axis in folder.axes for folder in folders)]
    side = _SIDE
    while any(side in folder.axes for folder in folders):
        side += "_"
    frames = [f.frame.assign(**{side: name}) for f, name in zip(folders, names, strict=True)]
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
        axes=[*axes, side],
        resolved={**first.resolved, "sweep": {**first.sweep, "baseline": {}}},
    )
