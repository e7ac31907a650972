# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A figure as SVG for the inside of an HTML page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from datapath.report.canvas import GRID, INK, MUTED
from datapath.report.plotspec import SERIES_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS_PER_INCH = 115
"""Largest size on a page: text of 8.5 points is then that of the page's small print."""

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_FAMILY = re.compile(r"font-family:[^;]*|(font:[^;]*?\d+(?:\.\d+)?px)[^;]+")


def written(figure: Figure) -> bytes:
    """The figure as an SVG file, the same whenever it is written."""
    buffer = io.BytesIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def inline(figure: Figure, content: bytes, name: str, alt: str, panes: str = "") -> str:
    """The same SVG for the inside of an HTML page: theme colours, no global style or id.

    alt: what a reader is told who does not see it.  panes: what the page has to know to read a
    figure over time out.

    Text stays text (it can be found and read aloud) in the font of the page; colours
    become CSS variables, so that the page's dark mode reaches the plot.
    """
    root = ElementTree.fromstring(content)
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _inline_attribute(key, value, name))
    root.set("role", "img")
    root.set("aria-label", alt)
    if panes:
        root.set("data-panes", panes)
    for key in ("width", "height"):
        root.attrib.pop(key, None)
    width_px = figure.get_figwidth() * PIXELS_PER_INCH
    root.set("style", f"max-width: {width_px:.0f}px")
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _inline_attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href") and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    value = value.replace("url(#", f"url(#{name}-")
    if key == "style":
        value = _FAMILY.sub(lambda m: f"{m[1]} inherit" if m[1] else "font-family: inherit", value)
    for colour, variable in _variables():
        value = value.replace(colour, f"var({variable})")
    return value


def _variables() -> Iterator[tuple[str, str]]:
    """Colours that the page's style sheet may change, and the names it knows them by."""
    yield from ((INK, "--ink"), (MUTED, "--muted"), (GRID, "--grid"))
    for index, colour in enumerate(SERIES_COLOURS):
        yield colour, f"--series-{index}"
