# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A result folder on a terminal: the answer first, any metric on request.

`answer` has the claims with their numbers, one table of the headline metric (that of the
first figure) and what went wrong.  `metric` has one metric as a table.  Both fit the width
that they are given.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from datapath.errors import LocalError
from datapath.report import claims, display, pivot, plotspec, tables
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import PlotSpec
from datapath.spelling import counted, in_a_line, or_rather
from datapath.terminal import printable

if TYPE_CHECKING:
    import pandas as pd

_TABLE_LINES = 40
"""The headline's table is longer only on request."""

_FAILURES = 5
_INDENT = " " * 6

_PLAIN = {"µ": "u", display.DASH: "-", "≥": ">=", "≤": "<=", "…": "~"}


def answer(result: ResultFolder, width: int) -> list[str]:
    """Claims, headline metric, failures and remarks."""
    judged = claims.rows(result)
    verdict = claims.verdict(result, judged)
    detail = f"; {verdict['detail']}" if verdict["detail"] else ""
    lines = _wrap(f"{result.name}: {verdict['text']}{detail}", width)
    for claim in judged:
        lines += ["", *_claim(claim, width)]
    lines += _headline(result, width)
    lines += _failures(result, width)
    for remark in result.remarks:
        lines += _wrap(f"note: {remark}", width, "      ")
    return lines


def _claim(claim: Mapping[str, Any], width: int) -> list[str]:
    """The title behind the verdict, the numbers below it."""
    mark = {"fail": "FAIL", "not shown": "pass, not shown"}.get(claim["verdict"], claim["verdict"])
    mark = f"{mark}:  "
    numbers = f"measured {claim['measured']}"
    if claim["interval"] != display.DASH:
        numbers += f" [{claim['interval']}]"
    numbers += f", bound {claim['bound']}"
    if claim["n"]:
        numbers += f", n = {claim['n']}"
    below = [numbers, *filter(None, (claim["reason"], claim["doubt"]))]
    lines = [line for text in below for line in _wrap(_INDENT + text, width, _INDENT)]
    return [*_wrap(mark + claim["title"], width, _INDENT), *lines]


def _headline(result: ResultFolder, width: int) -> list[str]:
    spec = _headline_spec(result)
    if spec is None:
        return []
    name = spec.metrics[0]
    lines = metric(result, name, width, where=spec.where, spec=spec)
    if len(lines) > _TABLE_LINES:
        show = f"dpctl show {printable(str(result.path))} --metric {name}"
        more = f"... {counted(len(lines) - _TABLE_LINES, 'more line')}: {show}"
        lines = [*lines[:_TABLE_LINES], more]
    others = [other for other in names(result, every=True) if other != name]
    if others:
        lines += ["", *_wrap(f"Also measured: {', '.join(others)}", width, "  ")]
    return ["", *lines]


def _headline_spec(result: ResultFolder) -> PlotSpec | None:
    """The first figure of medians with values, or one of the first metric; None without numbers."""
    measured = names(result, every=True)
    specs, _ = plotspec.plan(result)
    rows = tables.measured(result.frame)
    found = next((spec for spec in specs if _has_values(spec, rows)), None)
    if found is None and measured:
        return PlotSpec("bar", (measured[0],), None, None)
    return found


def _has_values(spec: PlotSpec, rows: pd.DataFrame) -> bool:
    """Whether it is a figure of medians, and not all of its points are left out or failed."""
    if spec.kind not in ("bar", "line"):
        return False
    return bool((tables.select(rows, spec.where)["metric"] == spec.metrics[0]).any())


def names(result: ResultFolder, *, every: bool) -> list[str]:
    """The metrics that were measured, or the headline metric alone."""
    if every:
        return display.metric_order(set(tables.measured(result.frame)["metric"]))
    spec = _headline_spec(result)
    return [spec.metrics[0]] if spec else []


def metric(
    result: ResultFolder,
    name: str,
    width: int,
    *,
    where: Mapping[str, Sequence[str]] | None = None,
    columns: str = "",
    ratio: bool = False,
    intervals: bool = False,
    spec: PlotSpec | None = None,
) -> list[str]:
    """One metric: medians, or ratios to the baseline, with their intervals if wanted."""
    spec = spec or PlotSpec("bar", (name,), None, None)
    if ratio:
        rows = tables.ratios(result, [name])
        rows = rows[rows["ratio"].map(math.isfinite)]
    else:
        runs = tables.select(result.frame[result.frame["metric"] == name], where or {})
        rows = tables.summarise(runs, result.axes)
    rows = tables.in_order(result, tables.select(rows, where or {}))
    if rows.empty:
        what = "a ratio of it to the baseline" if ratio else "a value of it"
        return _wrap(f"{display.metric_title(name)}: no point has {what}.", width)
    chosen = pivot.layout(result, rows, (spec.x, spec.series), columns)
    held = claims.where_text(
        {axis: rows[axis].iloc[0] for axis in result.axes if _is_held(result, rows, axis)}
    )
    head = f"{display.metric_title(name)}, ratio to {claims.where_text(result.baseline)}"
    if not ratio:
        head = f"{pivot.heading(rows, name)}, median of {_runs(rows)}"
    if better := display.metric_better(name):
        head += f", {better} is better"
    cell = _ratio if ratio else _median
    text = pivot.lines(
        result, rows, name, chosen, lambda row, scale: cell(row, scale, intervals), width
    )
    return [*_wrap(head + (f"; {held}" if held else ""), width), *text]


def _is_held(result: ResultFolder, rows: pd.DataFrame, axis: str) -> bool:
    """Whether these rows have one value of an axis of which there are several."""
    return rows[axis].nunique() == 1 and result.frame[axis].nunique() > 1


def _runs(rows: pd.DataFrame) -> str:
    low, high = int(rows["n"].min()), int(rows["n"].max())
    return counted(low, "run") if low == high else f"{low} to {high} runs"


def _median(row: Mapping[Any, Any], scale: display.Scale, intervals: bool) -> str:
    text = display.number(row["median"] / scale.factor)
    return text + (_ends(row, scale) if intervals else "")


def _ratio(row: Mapping[Any, Any], scale: display.Scale, intervals: bool) -> str:
    return display.number(row["ratio"]) + (_ends(row, scale) if intervals else "")


def _ends(row: Mapping[Any, Any], scale: display.Scale) -> str:
    """` [0.91, 0.95]`; nothing where one run gives no interval."""
    if not math.isfinite(row["lo"]):
        return ""
    low, high = (display.number(row[key] / scale.factor) for key in ("lo", "hi"))
    return f" [{low}, {high}]"


def _failures(result: ResultFolder, width: int) -> list[str]:
    lines: list[str] = []
    told: set[str] = set()
    for failure in result.failures[:_FAILURES]:
        where = ", ".join(failure.axes.values()) or failure.point
        log = f" ({failure.logs})" if failure.logs else ""
        lines += _wrap(
            f"failed: {where}, run {failure.repetition}: {in_a_line(failure.reason)}{log}",
            width,
            "  ",
        )
        if failure.hint and failure.hint not in told:
            lines += _wrap(f"  hint: {failure.hint}", width, "  ")
            told.add(failure.hint)
    if len(result.failures) > _FAILURES:
        lines.append(f"and {counted(len(result.failures) - _FAILURES, 'more run')} failed")
    return ["", *lines] if lines else []


def check_metrics(results: Sequence[ResultFolder], names: Sequence[str]) -> None:
    """LocalError for a metric that no run of these folders has."""
    measured = [set(tables.measured(result.frame)["metric"]) for result in results]
    have = display.metric_order(set.union(*measured))
    for name in names:
        if name not in have:
            more = or_rather(name, have, "there are")
            raise LocalError(f"no run has a metric {name}{more}", hint="--metric all shows all")


def check_where(result: ResultFolder, where: Mapping[str, Sequence[str]]) -> None:
    """LocalError for an axis, or a value of it, that the sweep has not."""
    for axis, values in where.items():
        if axis not in result.axes:
            more = or_rather(axis, result.axes, "there are")
            raise LocalError(f"the sweep has no axis {axis}{more}")
        known = result.axis_values(axis)
        for value in values:
            if value not in known:
                raise LocalError(f"{axis} has no value {value}{or_rather(value, known, 'it has')}")


def write(lines: Sequence[str], stream: TextIO) -> None:
    """Write lines, in plain ASCII where the stream cannot carry µ and dashes."""
    text = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ") + "\n"
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        for sign, plain in _PLAIN.items():
            text = text.replace(sign, plain)
        text = text.encode("ascii", "replace").decode("ascii")
    stream.write(text)


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most `width`, the later ones indented; a leading indent stays."""
    lead = text[: len(text) - len(text.lstrip(" "))]
    wrapped = textwrap.wrap(
        printable(text).strip(), max(width, 20), initial_indent=lead, subsequent_indent=indent
    )
    return wrapped or [lead]
