# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events of an experiment in figures over time: a dashed line for each, named in the caption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from datapath.report import display
from datapath.report.canvas import MUTED
from datapath.report.folder import ResultFolder, mapping

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_MOST = 12
"""More of them in a caption nobody reads."""


class Mark(NamedTuple):
    """An event.  at_ns: on the axis of the figure."""

    at_ns: float
    text: str


def of_run(result: ResultFolder, run: str, start_ns: int) -> list[Mark]:
    """The events of a run, by time.  start_ns: where the figure begins, on the series' clock."""
    for record in result.records:
        if f"{record.get('point')}-{record.get('repetition')}" == run:
            events = mapping(record.get("series")).get("events")
            pairs = [pair for pair in events if _is_event(pair)] if isinstance(events, list) else []
            return sorted(Mark(float(at) - start_ns, text) for at, text in pairs)
    return []


def _is_event(pair: Any) -> bool:
    """A record may come from anywhere."""
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    at, text = pair
    return isinstance(at, int) and not isinstance(at, bool) and isinstance(text, str)


def draw(axes: Iterable[Axes], marks: Sequence[Mark]) -> list[Line2D]:
    """A line at each event, through all panels of a column."""
    style: Any = {"color": MUTED, "linewidth": 0.8, "linestyle": "--", "zorder": 0}
    return [ax.axvline(mark.at_ns / 1e9, **style) for ax in axes for mark in marks]


def caption(marks: Iterable[Mark]) -> str:
    """A sentence that names the events; "": there are none."""
    told = {mark.text: mark for mark in sorted(marks, reverse=True)}
    each = sorted(told.values())
    if not each:
        return ""
    named = [f"{display.quantity(mark.at_ns / 1e9, 's')} {mark.text}" for mark in each[:_MOST]]
    more = f", and {len(each) - _MOST} more" if len(each) > _MOST else ""
    return f" Dashed lines are events: {'; '.join(named)}{more}."
