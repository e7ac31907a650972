# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reports of finished (or broken-off) experiments, made from the result folder alone.

    folder.py      reads a result folder, whole or not, into one value
    tables.py      summaries of points, ratios to the baseline, text and JSON
    plotspec.py    which plots, over which axes, in which colours
    figures.py     draws one: points.py, distribution.py, comparison.py, timeline.py on canvas.py
    plots.py       all plots, for the page (svg.py) and as files for papers
    provenance.py  machine, network, devices, revision, command line
    page.py        the self-contained HTML page, from page.html.j2
    display.py     units and names as people read them

Nothing here runs an experiment or knows how one is run; docs/results.md tells
the format.  pandas and matplotlib are loaded on first use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pandas as pd


def build(result_folder: Path) -> Path:
    """Write `report.html` into the result folder and return its path."""
    from datapath.report import page

    return page.build(Path(result_folder))


def load(result_folder: Path) -> pd.DataFrame:
    """The tidy rows of a result folder: one per run and metric, base units."""
    from datapath.report import tables

    return tables.load(Path(result_folder))


def print_table(result_folder: Path, stream: TextIO) -> None:
    """Write the summary to a stream, for people."""
    from datapath.report import tables

    tables.print_table(Path(result_folder), stream)


def summary(result_folder: Path) -> dict[str, Any]:
    """Claims, points, ratios and failures as plain data, numbers in base units."""
    from datapath.report import tables

    return tables.summary(Path(result_folder))


def records(result_folder: Path) -> list[dict[str, Any]]:
    """The same as one list, each record with its `kind`."""
    from datapath.report import tables

    return tables.records(Path(result_folder))


def series(result_folder: Path, run: str) -> pd.DataFrame:
    """The series that one run (`<point>-<repetition>`) collected; docs/results.md has the columns.

    LocalError when the run left none, or a file that cannot be read.
    """
    from datapath.report import tables

    return tables.series(Path(result_folder), run)


def export_plots(result_folder: Path, fmt: str = "pdf") -> list[Path]:
    """Write every plot of the report to `plots/` as pdf, svg or png; returns the files."""
    from datapath.report import plots

    return plots.export(Path(result_folder), fmt)
