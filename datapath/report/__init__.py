# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reports of finished (or broken-off) experiments, made from the result folder alone.

    folder.py      reads a result folder, whole or not, into one value
    tables.py      summaries of points, ratios to the baseline, JSON
    claims.py      the claims and the verdict, in words
    compare.py     folders held against the first of them; overlay.py: a figure of them
    answer.py      what a terminal shows; pivot.py: one metric over two axes
    plotspec.py    which plots, over which axes, in which colours
    figures.py     draws one: points.py, distribution.py, comparison.py, timeline.py (steps.py,
                   panes.py) on canvas.py
    plots.py       all plots, for the page (svg.py) and as files for papers
    provenance.py  machine, network, devices, revision, command line
    network.py     the network as a drawing; event_marks.py: events in figures over time
    page.py        the self-contained HTML page, from page.html.j2
    display.py     units and names as people read them

Nothing here runs an experiment or knows how one is run; docs/results.md tells
the format.  pandas and matplotlib are loaded on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pandas as pd


def build(
    result_folder: Path, out: Path | None = None, tell: Callable[[str], None] | None = None
) -> Path:
    """Write `report.html` into the result folder, or into `out`; returns its path.

    tell: called with a line for each plot that is left out, and why.
    """
    from datapath.report import page

    return page.build(Path(result_folder), out, tell)


def load(result_folder: Path) -> pd.DataFrame:
    """The tidy rows of a result folder: one per run and metric, base units."""
    from datapath.report import tables

    return tables.load(Path(result_folder))


def print_answer(result_folder: Path, stream: TextIO, width: int) -> None:
    """Write claims, headline metric, failures and remarks, for people."""
    from datapath.report import answer, folder

    answer.write(answer.answer(folder.read(Path(result_folder)), width), stream)


def series(result_folder: Path, run: str) -> pd.DataFrame:
    """The series that one run (`<point>-<repetition>`) collected; docs/results.md has the columns.

    LocalError when the run left none, or a file that cannot be read.
    """
    from datapath.report import tables

    return tables.series(Path(result_folder), run)


def export_plots(result_folder: Path, fmt: str = "pdf", out: Path | None = None) -> list[Path]:
    """Write every plot of the report to `plots/` as pdf, svg or png; returns the files.

    out: the folder that gets `plots/`, in place of the result folder.
    """
    from datapath.report import plots

    return plots.export(Path(result_folder), fmt, out)
