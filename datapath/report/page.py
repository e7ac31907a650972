# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The report as one self-contained HTML page, from page.html.j2.

Everything that comes from a result folder is text to this module: the template
escapes it, and only the SVG made by datapath.report.plots goes in as markup.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.disk import disk_errors, write_atomic
from datapath.report import claims, display, plots, plotspec, provenance, tables
from datapath.report.claims import where_text
from datapath.report.folder import NOT_VARIED, Failure, ResultFolder, read, sequence
from datapath.spelling import counted
from datapath.terminal import LAYOUT, printable

if TYPE_CHECKING:
    import jinja2
    import pandas as pd

Row = dict[str, Any]

_FAMILIES = ("goodput", "latency")
"""Points with the same of these metrics share a table."""

_LONG_TABLE = 12
"""Rows of a table that is closed at first."""

_COSTS = ("cpu_", "path_")
"""Metrics that a table shows apart, so that the others fit the width of the page."""


@dataclass(frozen=True)
class PointTable:
    """Points that have the same metrics; cells hold shown text.

    held: axis values that all points share, which are not columns.
    groups: (common title or "", heads below it), side by side: `Latency` over p50 and p99.
    costs: the same points' CPU times and counters of the path, if these are not all.
    """

    held: str
    axes: list[str]
    groups: list[tuple[str, list[Row]]]
    rows: list[Row]
    costs: PointTable | None = None


def build(
    result_folder: Path, out: Path | None = None, tell: Callable[[str], None] | None = None
) -> Path:
    """Write report.html, renamed into place when complete; returns its path.

    out: the folder that gets it, which is made; the result folder unless it is given.
    tell: called with a line for each plot that is left out, and why.
    """
    result = read(result_folder)
    folder = out or result.path
    context = _context(result, beside=folder.resolve() == result.path.resolve())
    page = _template().render(context)
    if tell is not None:
        for line in context["left_out"]:
            tell(line)
    target = folder / "report.html"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomic(target, page.encode())
    return target


def render(result: ResultFolder) -> str:
    """The page as text."""
    return _template().render(_context(result, beside=True))


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("datapath.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    return environment.get_template("page.html.j2")


def _script(*, over_time: bool) -> str:
    names = ["page.js", *(["over_time.js"] if over_time else [])]
    files = [Path(__file__).with_name(name) for name in names]
    return "\n" + "\n".join(file.read_text(encoding="utf-8") for file in files)


def _shown(value: Any) -> Any:
    """Markup as it is; of text what XML can carry."""
    return value if hasattr(value, "__html__") else printable(value, keep=LAYOUT)


def _context(result: ResultFolder, *, beside: bool) -> dict[str, Any]:
    """beside: the page lies in the result folder, so that links lead to the files there."""
    judged = claims.rows(result)
    summary = tables.medians(result.frame, result.axes)
    drawn, remarks = plots.draw_all(result)
    script = _script(over_time=any(plot.kind == "series" for plot in drawn))
    digest = hashlib.sha256(script.encode()).digest()
    return {
        "name": result.name,
        "description": result.description,
        "folder": result.path.resolve().name,
        "beside": beside,
        "verdict": claims.verdict(result, judged),
        "claims": judged,
        "claims_asked": bool(sequence(result.report.get("expect"))),
        "has_claims_file": result.claims is not None,
        "remarks": [*result.remarks, *remarks],
        "left_out": remarks,
        "subtitle": _subtitle(result),
        "plots": [p for p in drawn if p.kind != "ratio"],
        "ratio_plots": [p for p in drawn if p.kind == "ratio"],
        "colours": plotspec.SERIES_COLOURS,
        "dark_colours": plotspec.DARK_COLOURS,
        "script": script,
        "script_hash": f"'sha256-{base64.b64encode(digest).decode()}'",
        "long_table": _LONG_TABLE,
        "baseline": where_text(result.sweep.get("baseline")),
        "ratio_tables": _ratio_tables(result),
        "table_axes": result.axes,
        "axis_numbers": {axis: _axis_numbers(result, axis) for axis in result.axes},
        "point_tables": _point_tables(result, summary),
        "silent_points": _silent_points(result, summary),
        "failures": [_failure(failure) for failure in result.failures],
        "notes": provenance.notes(result),
        "xdp_maps": provenance.xdp_maps(result),
        "machine": provenance.machine(result),
        "networks": provenance.networks(result),
        "ports": provenance.ports(result),
        "versions": provenance.versions(result),
        "manifest_text": json.dumps(result.manifest, indent=2, default=str),
        "resolved_text": result.resolved_text,
        "repeat": provenance.repeat(result),
        "files": provenance.files(result),
    }


# --- tables


def _axis_numbers(result: ResultFolder, axis: str) -> dict[str, float]:
    """The values of an axis of numbers in one unit, by which a table is sorted."""
    values = [value for value in result.axis_values(axis) if value != NOT_VARIED]
    return dict(zip(values, plotspec.numeric(values) or (), strict=False))


def _point_tables(result: ResultFolder, summary: pd.DataFrame) -> list[PointTable]:
    """One table for points with rates, one for those with latencies, and so on."""
    runs = result.frame.drop_duplicates(["point", "repetition"])
    totals = runs.groupby("point", sort=False).size().to_dict()
    kinds: dict[tuple[bool, ...], list[str]] = {}
    measured = summary.groupby("point")["metric"].agg(list).to_dict()
    for point in tables.in_order(result, result.frame)["point"].unique():
        if names := measured.get(point):
            families = [any(n.startswith(f) for n in names) for f in _FAMILIES]
            kinds.setdefault(tuple(families), []).append(point)
    shown = []
    for points in kinds.values():
        rows = summary[summary["point"].isin(points)]
        cost = rows["metric"].str.startswith(_COSTS)
        if cost.any() and not cost.all():
            costs = _point_table(result, rows[cost], points, totals)
            shown.append(replace(_point_table(result, rows[~cost], points, totals), costs=costs))
        else:
            shown.append(_point_table(result, rows, points, totals))
    return shown


def _silent_points(result: ResultFolder, summary: pd.DataFrame) -> list[str]:
    """Points of which no run gave a number, for the line below the tables."""
    first = tables.in_order(result, result.frame.drop_duplicates("point"))
    silent = first[~first["point"].isin(summary["point"])].to_dict("records")
    return [where_text({axis: row[axis] for axis in result.axes}) for row in silent]


def _point_table(
    result: ResultFolder,
    summary: pd.DataFrame,
    points: Sequence[str],
    totals: Mapping[Any, int],
) -> PointTable:
    found = {(row["point"], row["metric"]): row for row in summary.to_dict("records")}
    names = display.metric_order(set(summary["metric"]))
    scales = {name: _column_scale(summary, name) for name in names}
    axes = tables.varying(summary, result.axes) or result.axes
    shared = {a: summary[a].iloc[0] for a in result.axes if a not in axes}
    rows = []
    for point in points:
        own = {name: found[point, name] for name in names if (point, name) in found}
        if not own:
            continue
        some = next(iter(own.values()))
        n = max(int(row["n"]) for row in own.values())
        rows.append(
            {
                "axes": [some[axis] for axis in axes],
                "n": str(n) if n == totals[point] else f"{n} of {totals[point]}",
                "cells": [_cell(own.get(name), scales[name], n) for name in names],
            }
        )
    return PointTable(where_text(shared), axes, _groups(names, scales), rows)


def _groups(
    names: Sequence[str], scales: Mapping[str, display.Scale]
) -> list[tuple[str, list[Row]]]:
    """Heads of columns; neighbours whose titles begin alike go under one title."""
    titles = [display.metric_title(name).rpartition(", ") for name in names]
    heads = [
        {"group": group, "title": title, "unit": scales[name].unit}
        for name, (group, _, title) in zip(names, titles, strict=True)
    ]
    return [(group, list(under)) for group, under in itertools.groupby(heads, lambda h: h["group"])]


def _column_scale(summary: pd.DataFrame, name: str) -> display.Scale:
    """The unit of a column; latencies of a table share one, but for columns of thousands."""
    column = summary[summary["metric"] == name]
    unit, values = str(column["unit"].iloc[0]), column["median"]
    if name.startswith("latency_"):
        several = summary.loc[summary["metric"].str.startswith("latency_"), "median"]
        common = display.scale_for(several.nsmallest(1 + len(several) // 2).tail(1), unit, name)
        if float(values.median()) < 1000 * common.factor:
            return common
        values = values.nsmallest(1 + len(values) // 2).tail(1)
    return display.scale_for(values, unit, name)


def _cell(row: Mapping[Any, Any] | None, scale: display.Scale, n: int) -> Row:
    if row is None:
        return {"median": display.DASH, "spread": "", "n": ""}
    low, high = (display.number(row[key] / scale.factor) for key in ("min", "max"))
    return {
        "median": display.number(row["median"] / scale.factor),
        "spread": f"{low}–{high}" if low != high else "",
        "n": f"n = {row['n']}" if row["n"] != n else "",
    }


def _ratio_tables(result: ResultFolder) -> list[Row]:
    table = tables.ratios(result, tables.ratio_metrics(result))
    shown = []
    for metric in display.metric_order(set(table["metric"])):
        rows = table[table["metric"] == metric].to_dict("records")
        better = display.metric_better(metric)
        shown.append(
            {
                "title": display.metric_title(metric),
                "better": f"{better} is better" if better else "",
                "rows": [_ratio_row(result, row) for row in rows],
            }
        )
    return shown if any(entry["rows"] for entry in shown) else []


def _ratio_row(result: ResultFolder, row: Mapping[Any, Any]) -> Row:
    known = math.isfinite(row["lo"])
    ends = [display.number(row[key]) for key in ("lo", "hi")]
    return {
        "axes": [row[axis] for axis in result.axes],
        "ratio": display.number(row["ratio"]),
        "interval": f"{ends[0]} to {ends[1]}" if known else display.DASH,
        "n": row["n"],
    }


def _failure(failure: Failure) -> Row:
    where = ", ".join(f"{axis} = {value}" for axis, value in failure.axes.items())
    return {**vars(failure), "where": where or failure.point}


# --- the line under the title


def _subtitle(result: ResultFolder) -> list[str]:
    """A line of facts under the title: when, how much, seed."""
    parts = []
    started = result.frame["started"].dropna()
    when = result.manifest.get("started") or (started.min() if len(started) else None)
    if when is not None:
        parts.append(f"{str(when)[:16].replace('T', ' ')} UTC")
    points = result.frame["point"].nunique()
    _, total = claims.runs(result)
    if total:
        parts.append(f"{counted(points, 'point')}, {counted(total, 'run')}")
    seconds = result.frame.drop_duplicates(["point", "repetition"])["seconds"].sum()
    if seconds > 0:
        parts.append(f"{display.duration(float(seconds))} of measuring")
    if "seed" in result.resolved:
        parts.append(f"seed {result.seed}")
    return parts
