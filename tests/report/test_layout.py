# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Nothing in a figure is cut off at its edge or covers something else."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from datapath.report import canvas, figures, plotspec
from datapath.report.folder import read
from tests.report import folders

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import BboxBase

LONG = {
    "dp-afxdp": "RDMA over AF_XDP, zero copy",
    "dp-udp": "RDMA over UDP sockets",
    "tcp": "kernel TCP with a tuned window",
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    """The figures of a folder with long names and tiny ratios, by kind and metric."""
    folder = folders.write(tmp_path_factory.mktemp("layout") / "r", repetitions=3)
    for file in (folder / "resolved.yaml", folder / "experiment.yaml"):
        text = file.read_text()
        for short, name in LONG.items():
            text = text.replace(f"label: {short}", f"label: {name!r}")
        file.write_text(text.replace("stack: tcp", f"stack: {LONG['tcp']!r}"))
    table = pd.read_parquet(folder / "runs.parquet")
    table["stack"] = table["stack"].map(LONG)
    lossy = (table["metric"] == "latency_p99") & (table["path.loss"] == "1%")
    tiny = lossy & (table["stack"] != LONG["tcp"])
    table["value"] = table["value"].where(~tiny, table["value"] * 1e-4)
    table.to_parquet(folder / "runs.parquet")
    result = read(folder)
    specs, remarks = plotspec.plan(result)
    assert remarks == []
    colours = plotspec.Colours(result, specs)
    shown = {}
    with mpl.rc_context(canvas.STYLE):
        for spec in specs:
            figure, _ = figures.draw(result, spec, colours)
            figure.draw_without_rendering()
            shown[f"{spec.kind} {spec.metrics[0]}"] = figure
    return shown


@pytest.fixture(params=["bar goodput", "bar latency_p50", "cdf latency", "ratio goodput"])
def figure(drawn: dict[str, Figure], request: pytest.FixtureRequest) -> Figure:
    return drawn[request.param]


def texts(ax: Axes) -> Iterator[BboxBase]:
    """Where the numbers and names of a panel are; an axis has ticks beyond its ends, unseen."""
    for text in ax.texts:
        yield text.get_window_extent()
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if low <= tick.get_loc() <= high and tick.label1.get_visible():
                yield tick.label1.get_window_extent()


def overlaps(boxes: Sequence[BboxBase]) -> int:
    return sum(bool(a.overlaps(b)) for a, b in itertools.combinations(boxes, 2))


def test_all_is_inside_the_figure(figure: Figure) -> None:
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= width
    assert box.y1 <= height


def test_panels_have_a_sensible_width(figure: Figure) -> None:
    for ax in figure.axes:
        assert ax.get_position().width * figure.get_figwidth() > 3
        assert ax.get_position().height * figure.get_figheight() > 0.5


def test_panels_and_legend_do_not_overlap(figure: Figure) -> None:
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    assert overlaps([box for box in boxes if box is not None]) == 0


def test_numbers_and_ticks_do_not_overlap(figure: Figure) -> None:
    for ax in figure.axes:
        assert overlaps(list(texts(ax))) == 0


def test_ratio_panels_are_one_below_the_other(drawn: dict[str, Figure]) -> None:
    positions = [ax.get_position() for ax in drawn["ratio goodput"].axes]
    assert len(positions) == 3
    assert np.ptp([p.x0 for p in positions]) < 1e-6
    assert [p.y0 for p in positions] == sorted((p.y0 for p in positions), reverse=True)


def test_every_ratio_axis_has_ticks_and_shows_the_baseline(drawn: dict[str, Figure]) -> None:
    for ax in drawn["ratio goodput"].axes:
        low, high = ax.get_xlim()
        assert low < 1 < high
        ticks = [t for t in ax.get_xticks() if low <= t <= high]
        assert 2 <= len(ticks) <= 10
    assert drawn["ratio goodput"].axes[2].get_xlim()[0] < 1e-3


@pytest.fixture(scope="module")
def multiples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    """Nine series at three losses, which are too many lines for one panel; by kind."""
    result = read(folders.write(tmp_path_factory.mktemp("many") / "r", repetitions=3))
    sent = result.frame[result.frame["test"] == "64 B send"]
    lost = sent[sent["path.loss"] == "1%"]
    less = lost.assign(**{"path.loss": "0.1%", "point": "less" + lost["point"]})
    sent = pd.concat([sent, less]).sort_values("path.loss", kind="stable")
    copies = [sent.assign(stack=f"{i} " + sent["stack"], point=f"{i}" + sent["point"])
              for i in range(3)]  # fmt: skip
    for file in list((result.path / "samples").iterdir()):
        for i in range(3):
            shutil.copy(file, file.with_name(f"{i}{file.name}"))
    result = replace(result, frame=pd.concat(copies, ignore_index=True))
    line = plotspec.PlotSpec("line", ("latency_p50",), "path.loss", "stack")
    cdf = plotspec.PlotSpec("cdf", ("latency",), None, "stack", where={"path.loss": ["1%"]})
    bar = plotspec.PlotSpec("bar", ("latency_p50",), "stack", "path.loss")
    colours = plotspec.Colours(result, [line])
    shown = {}
    with mpl.rc_context(canvas.STYLE):
        for spec in (line, cdf, bar):
            shown[spec.kind], _ = figures.draw(result, spec, colours)
            shown[spec.kind].draw_without_rendering()
    return shown


@pytest.mark.parametrize("kind", ["line", "cdf", "bar"])
def test_ticks_of_many_panels_do_not_overlap(multiples: dict[str, Figure], kind: str) -> None:
    for ax in multiples[kind].axes:
        assert overlaps(list(texts(ax))) == 0


@pytest.mark.parametrize(
    ("x", "names", "drawn", "count"), [("stack", 90, 40, 90), ("path.loss", 300, 250, 600)]
)
def test_more_bars_than_can_be_told_apart_are_told(
    tmp_path: Path, x: str, names: int, drawn: int, count: int
) -> None:
    from matplotlib.patches import Rectangle

    result = read(folders.write(tmp_path / "r", repetitions=1, samples=False))
    rows = result.frame[(result.frame["metric"] == "goodput") & (result.frame["stack"] == "tcp")]
    rows = rows if x == "path.loss" else rows[rows["path.loss"] == "0"]
    copies = [rows.assign(stack=f"s{i}", point=f"p{i}" + rows["point"]) for i in range(names)]
    result = replace(result, frame=pd.concat(copies, ignore_index=True))
    spec = plotspec.PlotSpec("bar", ("goodput",), x, "stack")
    with mpl.rc_context(canvas.STYLE):
        figure, caption = figures.draw(result, spec, plotspec.Colours(result, [spec]))
    assert f"The first {drawn} of {count} bars of a panel are drawn; the data has all." in caption
    (ax,) = figure.axes
    # A hatched bar is two patches.
    places = {patch.get_x() for patch in ax.patches if isinstance(patch, Rectangle)}
    assert len(places) == drawn
    assert len(figures.data(result, spec, figure)) == count


@pytest.mark.parametrize("kind", ["line", "cdf"])
def test_panels_can_be_held_against_each_other(multiples: dict[str, Figure], kind: str) -> None:
    """Small multiples have the same axes, and the lines of the others in grey."""
    axes = multiples[kind].axes
    assert len(axes) == 9
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in axes}) == 1
    for ax in axes:
        colours = [line.get_color() for line in ax.get_lines() if len(line.get_xdata()) > 2]
        assert colours.count(canvas.BESIDE["color"]) == 8


@pytest.mark.parametrize("count", [2, 5, 12])
def test_legend_wraps_and_is_read_line_by_line(count: int) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    with mpl.rc_context(canvas.STYLE):
        figure = Figure(figsize=(4.8, 3.1))
        figure.subplots()
        names = [f"a stack with a long name {i}" for i in range(count)]
        canvas.wrapped_legend(figure, [(Patch(), name) for name in names], handlelength=2.6)
        figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    places = [(t.get_window_extent(), t.get_text()) for t in legend.get_texts()]
    read = [name for _, name in sorted(places, key=lambda p: (-round(p[0].y0), p[0].x0))]
    assert read == names
    assert figure.axes[0].get_position().height * figure.get_figheight() > 2.2
