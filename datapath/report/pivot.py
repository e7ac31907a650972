# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One metric as a table of text over two axes, in a given width.

The values of one axis are columns and those of another are rows.  Axes that vary beside
these two make sections, one below the other.  Columns that do not fit go below the first
ones; no number is ever cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datapath.report import display, tables
from datapath.report.folder import ResultFolder
from datapath.terminal import printable

if TYPE_CHECKING:
    import pandas as pd

_GAP = 2
_NAMES_MIN = 8

Entry = Mapping[Any, Any]
Cell = Callable[[Entry, display.Scale], str]


@dataclass(frozen=True)
class Layout:
    """Axes of a pivot: of its rows, its columns and its sections; None where none is left."""

    rows: str | None
    columns: str | None
    sections: list[str]


def layout(
    result: ResultFolder, summary: pd.DataFrame, preferred: Sequence[str | None], columns: str = ""
) -> Layout:
    """Which axis goes where.

    preferred: the axes that a figure of these points uses, which come before others.
    columns: the axis that the user wants as columns; "": the one with the shortest values.
    """
    free = tables.varying(summary, result.axes)
    if columns and columns not in free:
        free.append(columns)
    order = [axis for axis in dict.fromkeys([*preferred, *free]) if axis in free]
    pair = ([columns] if columns else []) + [axis for axis in order if axis != columns]
    pair = pair[:2]
    if not columns:
        pair.sort(key=lambda axis: _width(result.axis_values(axis)))
    if len(pair) < 2 and not columns:
        return Layout(pair[0] if pair else None, None, [])
    rows = pair[1] if len(pair) > 1 else None
    return Layout(rows, pair[0], [axis for axis in free if axis not in pair])


def lines(
    result: ResultFolder,
    summary: pd.DataFrame,
    metric: str,
    chosen: Layout,
    cell: Cell,
    width: int,
) -> list[str]:
    """The table.  summary: rows of `tables.summarise` of one metric, or ratios of it."""
    scale = _scale(summary, metric)
    found = []
    for keep, part in _sections(result, summary, chosen.sections):
        if keep:
            found += ["", *wrapped(keep, width)]
        found += _section(result, part, chosen, lambda entry: cell(entry, scale), width)
    return found


def heading(summary: pd.DataFrame, metric: str) -> str:
    """`Goodput (Gbit/s)`: the unit that all cells have."""
    unit = _scale(summary, metric).unit
    return display.metric_title(metric) + (f" ({unit})" if unit else "")


def _scale(summary: pd.DataFrame, metric: str) -> display.Scale:
    if "ratio" in summary:
        return display.Scale(1, "")
    middle = summary["median"].sort_values().iloc[len(summary) // 2 :]
    return display.scale_for(middle.head(1), str(summary["unit"].iloc[0]), metric)


def _sections(
    result: ResultFolder, summary: pd.DataFrame, axes: Sequence[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """(`lane = live, messages = eight`, its rows) of each combination that has points."""
    for combination in itertools.product(*(result.axis_values(axis) for axis in axes)):
        where = dict(zip(axes, combination, strict=True))
        part = tables.select(summary, {axis: [value] for axis, value in where.items()})
        if len(part):
            yield ", ".join(f"{axis} = {value}" for axis, value in where.items()), part


def _section(
    result: ResultFolder,
    part: pd.DataFrame,
    chosen: Layout,
    cell: Callable[[Entry], str],
    width: int,
) -> list[str]:
    rows, columns = (_values(result, axis, part) for axis in (chosen.rows, chosen.columns))
    texts = {
        tuple(entry[axis] if axis else "" for axis in (chosen.rows, chosen.columns)): cell(entry)
        for entry in part.to_dict("records")
    }
    grid = [[texts.get((row, column), display.DASH) for column in columns] for row in rows]
    corner = " / ".join(axis for axis in (chosen.rows, chosen.columns) if axis)
    alone = "ratio" if "ratio" in part else "median"
    heads = [printable(value) for value in columns] if chosen.columns else [alone]
    widths = [max(len(head), *(len(row[i]) for row in grid)) + _GAP for i, head in enumerate(heads)]
    names_width = _names_width([corner, *rows], max(widths), width)
    names = [_cut(name, names_width).ljust(names_width) for name in (corner, *rows)]
    found: list[str] = []
    for begin, end in _blocks(widths, width - names_width):
        for name, row in zip(names, [heads, *grid], strict=True):
            cells = [text.rjust(widths[i]) for i, text in enumerate(row) if begin <= i < end]
            found.append((name + "".join(cells)).rstrip())
    return found


def _values(result: ResultFolder, axis: str | None, part: pd.DataFrame) -> list[str]:
    if axis is None:
        return [""]
    seen = set(part[axis])
    return [value for value in result.axis_values(axis) if value in seen]


def _names_width(names: Sequence[str], widest: int, width: int) -> int:
    """Room for the names of rows: all they need, if one column of numbers still fits beside."""
    return max(_NAMES_MIN, min(_width(names), width - widest))


def _blocks(widths: Sequence[int], width: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of the columns that fit beside each other, at least one."""
    begin = 0
    while begin < len(widths):
        end, used = begin + 1, widths[begin]
        while end < len(widths) and used + widths[end] <= width:
            used += widths[end]
            end += 1
        yield begin, end
        begin = end


def wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(printable(text), width)


def _width(texts: Sequence[str]) -> int:
    return max((len(printable(text)) for text in texts), default=0)


def _cut(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else text[: width - 1] + "…"
