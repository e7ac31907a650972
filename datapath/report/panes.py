# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A figure over time that a page can read out and zoom (over_time.js), and the numbers in it.

The page reads values from the curves of the SVG itself.  So all that it is told of a panel is
where its frame is, what its axes mean and what its curves are called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from datapath import strict_json
from datapath.terminal import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

POINTS_PER_INCH = 72
"""Of matplotlib's SVG."""


@dataclass
class Pane:
    """A panel of one quantity; shown = value / factor, in `unit`."""

    ax: Axes
    title: str
    unit: str
    factor: float
    curves: dict[str, str] = field(default_factory=dict)  # id -> name


class TimeFigure(Figure):
    """A figure whose panels share the axis of time."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._panes: dict[Axes, Pane] = {}
        self._moving = 0
        self._numbers: list[pd.DataFrame] = []

    def moves(self, artist: Artist) -> str:
        """Say that a part of a panel moves when the page zooms; returns its id in the SVG."""
        self._moving += 1
        artist.set_gid(f"moves-{self._moving}")
        return str(artist.get_gid())

    def pane(self, ax: Axes, title: str, unit: str, factor: float) -> None:
        """Tell what a panel shows, once its curves are there."""
        curves = self._panes[ax].curves if ax in self._panes else {}
        self._panes[ax] = Pane(ax, title, unit, factor, curves)
        ax.set_gid(f"pane-{list(self._panes).index(ax)}")

    def curve(self, ax: Axes, artist: Artist, name: str, numbers: Mapping[str, Any]) -> None:
        """A curve of a panel, and the numbers behind it: columns of a table."""
        import pandas as pd

        pane = self._panes.setdefault(ax, Pane(ax, "", "", 1.0))
        pane.curves[self.moves(artist)] = printable(name)
        self._numbers.append(pd.DataFrame({**numbers}))

    def numbers(self) -> pd.DataFrame:
        """All curves in one table."""
        import pandas as pd

        return pd.concat(self._numbers, ignore_index=True)

    def described(self, prefix: str) -> str:
        """The panels as JSON, when the figure is drawn.  prefix: of ids in the page."""
        width, height = (inches * POINTS_PER_INCH for inches in self.get_size_inches())
        return strict_json.text(
            [_described(pane, width, height, prefix) for pane in self._panes.values()]
        )


def _described(pane: Pane, width: float, height: float, prefix: str) -> dict[str, Any]:
    box = pane.ax.get_position()
    bottom, top = pane.ax.get_ylim()
    return {
        "id": f"{prefix}-{pane.ax.get_gid()}",
        "title": printable(pane.title),
        "of": printable(pane.ax.get_title(loc="left")),
        "unit": pane.unit,
        "frame": _rounded([width * box.x0, height * (1 - box.y1), width * box.width,
                           height * box.height]),
        "time": list(pane.ax.get_xlim()),
        "range": [bottom / pane.factor, top / pane.factor],
        "log": pane.ax.get_yscale() == "log",
        "curves": [{"id": f"{prefix}-{gid}", "name": name} for gid, name in pane.curves.items()],
    }  # fmt: skip


def _rounded(numbers: Sequence[float]) -> list[float]:
    return [round(number, 3) for number in numbers]
