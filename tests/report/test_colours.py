# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Series can be told apart, by colour also without colour vision, and beyond the colours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Patch

from datapath.report import canvas
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import DARK_COLOURS, SERIES_COLOURS, Colours, PlotSpec

# Machado, Oliveira and Fernandes, A Physiologically-based Model for Simulation of Color Vision
# Deficiency, 2009: severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# Ottosson, A perceptual color space for image processing, 2020 (Oklab).
LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
APART = 0.05
"""Distance in Oklab; a step of lightness of 0.02 is just seen."""


def seen(colour: str, vision: str) -> Any:
    """A colour in Oklab, as somebody with this vision sees it."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return LAB @ np.cbrt(LMS @ np.clip(VISION[vision] @ linear, 0, 1))


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("palette", [SERIES_COLOURS, DARK_COLOURS])
def test_colours_differ(palette: Sequence[str], vision: str) -> None:
    assert len(palette) >= 10
    for a, b in itertools.combinations(palette, 2):
        assert np.linalg.norm(seen(a, vision) - seen(b, vision)) > APART, (a, b)


def colours(count: int) -> tuple[Colours, list[str]]:
    names = [f"s{i}" for i in range(count)]
    result = cast(ResultFolder, SimpleNamespace(axis_values=lambda _: names))
    return Colours(result, [PlotSpec("line", ("goodput",), None, "stack")]), names


def test_lines_differ_beyond_the_colours() -> None:
    chosen, names = colours(40)
    for style in ("line", "dash"):
        looks = set()
        for name in names:
            look = chosen.line("stack", name)
            marker = look["marker"] if style == "line" else ""
            looks.add((look["color"], str(look["linestyle"]), marker))
        assert len(looks) == 40


def test_bars_differ_beyond_the_colours_and_by_shade() -> None:
    chosen, names = colours(30)
    bars = [str(chosen.bar("stack", name)) for name in names]
    assert len(set(bars)) == 30
    for name in names:
        shades = [chosen.bar("stack", name, shade) for shade in range(3)]
        assert len({bar[0]["facecolor"][3] for bar in shades}) == 3
        assert len({bar[-1].get("hatch") for bar in shades}) == 3


def test_the_lines_of_a_bar_are_seen_in_an_svg() -> None:
    """A hatched patch has one opacity there: on a ground of their own colour lines are lost."""
    chosen, names = colours(12)
    for name in (names[0], names[11]):
        for style in (style for shade in range(3) for style in chosen.bar("stack", name, shade)):
            assert "hatch" not in style or style["facecolor"] == "none"


@pytest.mark.parametrize("vision", VISION)
def test_shades_are_told_in_a_colour_of_no_series(vision: str) -> None:
    """A legend tells series by colour and metrics by shade; two of the colours are grey."""
    chosen, _ = colours(1)
    figure, _ = canvas.figure(1)
    spec = PlotSpec("bar", ("latency_p50", "latency_p99"), None, None)
    canvas.legend(figure, cast(ResultFolder, None), spec, pd.DataFrame(), chosen)
    patches = figure.legends[0].findobj(Patch, include_self=False)
    told = {to_hex(patch.get_facecolor()) for patch in patches if patch.get_facecolor()[3]}
    told -= {"#ffffff"}  # the legend's own ground
    assert told
    for colour, series in itertools.product(told, SERIES_COLOURS):
        assert np.linalg.norm(seen(colour, vision) - seen(series, vision)) > 3 * APART


def test_a_series_keeps_its_colour() -> None:
    chosen, names = colours(12)
    assert (
        chosen.line("stack", names[3])["color"] == chosen.bar("stack", names[3], 1)[-1]["edgecolor"]
    )
