# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plots of a report: as SVG for the page, and as files for a paper."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.disk import disk_errors, write_atomic
from datapath.errors import LocalError
from datapath.report import canvas, figures, plotspec, svg
from datapath.report.folder import ResultFolder, read
from datapath.report.plotspec import Colours, PlotSpec
from datapath.terminal import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPORT_FORMATS = ("pdf", "svg", "png")


@dataclass
class Plot:
    """A drawn plot; svg fits into an HTML page, `wide` asks for its full width.

    files: {kind, name, address} of what a reader can save, each a data: address.
    """

    name: str
    kind: str
    title: str
    caption: str
    svg: str
    wide: bool
    files: list[dict[str, str]]


def draw_all(result: ResultFolder) -> tuple[list[Plot], list[str]]:
    """Every plot of the report as SVG for a page, and remarks on those left out."""
    import matplotlib as mpl

    specs, remarks = plotspec.plan(result)
    colours = plotspec.Colours(result, specs)
    plots: list[Plot] = []
    for spec in specs:
        name = f"plot{len(plots) + 1}"
        title = printable(spec.title or figures.title(spec))
        style = {**canvas.STYLE, "svg.fonttype": "none", "svg.hashsalt": name}
        try:
            with mpl.rc_context(style):
                figure, caption = figures.draw(result, spec, colours)
                content = svg.written(figure)
                pdf = _pdf(figure)
        except canvas.NothingToDraw as reason:
            remarks.append(f"No plot “{title}”: {reason}.")
            continue
        data = figures.data(result, spec, figure)
        alt = figures.alt(spec, title, data)
        markup = svg.inline(figure, content, name, alt, figures.panes(figure, name))
        wide = figure.get_figwidth() > 5.9
        stem = f"{len(plots) + 1}-{spec.kind}-{_plain(spec.metrics[0])}"
        files = [_saved(stem, "svg", "image/svg+xml", content)]
        files.append(_saved(stem, "pdf", "application/pdf", pdf))
        table = data.to_csv(index=False, float_format="%.10g").encode("utf-8", "replace")
        files.append(_saved(stem, "csv", "text/csv", table))
        plots.append(Plot(name, spec.kind, title, caption, markup, wide, files))
    return plots, remarks


def _pdf(figure: Figure) -> bytes:
    """Of a figure that was written as SVG, which has placed its parts."""
    figure.set_layout_engine("none")
    content = io.BytesIO()
    figure.savefig(content, format="pdf", metadata={"CreationDate": None})
    return content.getvalue()


def _saved(stem: str, suffix: str, media_type: str, content: bytes) -> dict[str, str]:
    address = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
    return {"kind": suffix.upper(), "name": f"{stem}.{suffix}", "address": address}


def _plain(metric: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", metric)


def export(result_folder: Path, fmt: str = "pdf", out: Path | None = None) -> list[Path]:
    """Write each plot to `plots/<number>-<metric>.<fmt>`, of the result folder or of `out`."""
    check_format(fmt)
    result = read(result_folder)
    specs, _ = plotspec.plan(result)
    colours = plotspec.Colours(result, specs)
    folder = (out or result.path) / "plots"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for spec in specs:
        file = folder / f"{len(files) + 1}-{spec.kind}-{_plain(spec.metrics[0])}.{fmt}"
        try:
            write(result, spec, colours, file)
        except canvas.NothingToDraw:
            continue
        files.append(file)
    return files


def check_format(fmt: str) -> None:
    if fmt not in EXPORT_FORMATS:
        raise LocalError(
            f"unknown plot format {fmt!r}", hint=f"use one of {', '.join(EXPORT_FORMATS)}"
        )


def write(result: ResultFolder, spec: PlotSpec, colours: Colours, file: Path) -> None:
    """One figure as a file for a paper, of the format that its name ends with."""
    import matplotlib as mpl

    fmt = file.suffix[1:]
    metadata = {"CreationDate": None} if fmt == "pdf" else {"Date": None}
    # A page shows a picture on its own ground, which may be dark; a paper has one.
    style: Any = {"svg.hashsalt": file.stem, "savefig.transparent": fmt == "pdf"}
    content = io.BytesIO()
    with mpl.rc_context({**canvas.STYLE, **style}):
        figure, _ = figures.draw(result, spec, colours)
        figure.savefig(content, format=fmt, dpi=300, metadata=None if fmt == "png" else metadata)
    write_atomic(file, content.getvalue())
