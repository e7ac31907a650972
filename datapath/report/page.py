# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The report as one self-contained HTML page, from page.html.j2.

Everything that comes from a result folder is text to this module: the template
escapes it, and only the SVG made by datapath.report.plots goes in as markup.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.disk import write_atomic
from datapath.report import display, plots, plotspec, provenance, tables
from datapath.report.folder import Failure, ResultFolder, axis_text, mapping, read, sequence
from datapath.terminal import LAYOUT, printable

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

_FAMILIES = ("goodput", "latency")
"""Points with the same of these metrics share a table."""

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


def build(result_folder: Path) -> Path:
    """Write report.html, renamed into place when complete; returns its path."""
    result = read(result_folder)
    page = render(result)
    target = result.path / "report.html"
    write_atomic(target, page.encode())
    return target


def render(result: ResultFolder) -> str:
    """The page as text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("datapath.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    return environment.get_template("page.html.j2").render(_context(result))


def _shown(value: Any) -> Any:
    """Markup as it is; of text what XML can carry."""
    return value if hasattr(value, "__html__") else printable(value, keep=LAYOUT)


def _context(result: ResultFolder) -> dict[str, Any]:
    drawn, remarks = plots.draw_all(result)
    claims = [_claim(result, index, claim) for index, claim in enumerate(result.claims or [])]
    summary = tables.summarise(result.frame, result.axes, seed=result.seed)
    return {
        "name": result.name,
        "description": result.description,
        "folder": result.path.resolve().name,
        "verdict": _verdict(result, claims),
        "claims": claims,
        "claims_asked": bool(sequence(result.report.get("expect"))),
        "has_claims_file": result.claims is not None,
        "remarks": [*result.remarks, *remarks],
        "subtitle": _subtitle(result),
        "plots": [p for p in drawn if p.kind != "ratio"],
        "ratio_plots": [p for p in drawn if p.kind == "ratio"],
        "colours": plotspec.SERIES_COLOURS,
        "baseline": _where_text(result.sweep.get("baseline")),
        "ratio_tables": _ratio_tables(result),
        "table_axes": result.axes,
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


# --- verdict and claims


def _runs(result: ResultFolder) -> tuple[int, int]:
    """(runs that went well, all runs here)."""
    runs = result.frame.drop_duplicates(["point", "repetition"])
    return int((runs["status"] == "ok").sum()), len(runs)


def _verdict(result: ResultFolder, claims: Sequence[Row]) -> Row:
    """One line for the top: kind is good, bad or open."""
    failed = sum(not claim["passed"] for claim in claims)
    well, total = _runs(result)
    lost = total - well
    runs = f"{lost} of {total} runs failed" if lost else f"all {total} runs succeeded"
    if not total:
        return {"kind": "open", "text": "No result yet", "detail": "no run has finished"}
    if failed:
        text = f"{failed} of {len(claims)} claims failed"
        return {"kind": "bad", "text": text, "detail": runs}
    if not well:
        return {"kind": "bad", "text": "All runs failed", "detail": "there is nothing to compare"}
    if lost:
        held = f"{_all(len(claims))} held, but " if claims else ""
        return {"kind": "bad", "text": f"{held}{runs}".capitalize(), "detail": ""}
    if total < result.runs_planned:
        text = f"Not finished: {total} of {result.runs_planned} runs"
        return {"kind": "open", "text": text, "detail": "all of them succeeded"}
    if claims:
        return {"kind": "good", "text": f"{_all(len(claims))} passed".capitalize(), "detail": runs}
    why = (
        "claims were not judged" if result.report.get("expect") else "the experiment claims nothing"
    )
    return {"kind": "open", "text": runs.capitalize(), "detail": why}


def _all(count: int) -> str:
    return {1: "the one claim", 2: "both claims"}.get(count, f"all {count} claims")


def _claim(result: ResultFolder, index: int, claim: Mapping[str, Any]) -> Row:
    """A claim as shown; the bound comes from the experiment when claims.json has none."""
    asked = sequence(result.report.get("expect"))
    wanted = {**(mapping(asked[index]) if index < len(asked) else {}), **claim}
    metric = str(wanted.get("metric", ""))
    relative = wanted.get("ratio_to") is not None
    unit = "1" if relative else str(wanted.get("unit") or _unit_of(result, metric))
    interval = sequence(wanted.get("interval"))
    return {
        "passed": bool(wanted.get("pass")),
        "title": wanted.get("title") or _claim_title(wanted),
        "metric": display.metric_title(metric) + (", ratio" if relative else ""),
        "where": _where_text(wanted.get("where")),
        "against": _where_text(_differing(wanted.get("ratio_to"), wanted.get("where"))),
        "measured": _measured(wanted.get("measured"), unit, metric),
        "interval": _interval(interval, unit, metric),
        "n": wanted.get("n"),
        "bound": _bound(wanted, unit, metric),
        "reason": display.reason(wanted.get("reason")),
    }


def _differing(reference: object, where: object) -> Row:
    """The axes of the reference that are not as in `where`."""
    same = mapping(where)
    return {k: v for k, v in mapping(reference).items() if same.get(k) != v}


def _unit_of(result: ResultFolder, metric: str) -> str:
    rows = result.frame[(result.frame["metric"] == metric) & (result.frame["unit"] != "")]
    return str(rows["unit"].iloc[0]) if len(rows) else ""


def _measured(value: Any, unit: str, metric: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return display.DASH if value is None else str(value)
    return display.quantity(float(value), unit, metric)


def _interval(ends: Sequence[Any], unit: str, metric: str) -> str:
    """`3.20 to 3.40 µs`; a dash where there is none (a single run)."""
    known = [e for e in ends if isinstance(e, (int, float)) and math.isfinite(e)]
    if len(known) != 2:
        return display.DASH
    scale = display.scale_for(known, unit, metric)
    text = " to ".join(display.number(end / scale.factor) for end in known)
    return f"{text}\N{NO-BREAK SPACE}{scale.unit}" if scale.unit else text


def _bound(claim: Mapping[str, Any], unit: str, metric: str) -> str:
    """`≥ 0.9`; numbers are in base units, text is as the experiment has it."""
    bound = claim.get("bound")
    ends = mapping(bound) or {key: claim.get(key) for key in ("min", "max")}
    signs = {"min": "≥", "max": "≤"}
    parts = [
        f"{sign} {_limit(ends[key], unit, metric)}"
        for key, sign in signs.items()
        if ends.get(key) is not None
    ]
    return " and ".join(parts) or _measured(bound, unit, metric)


def _limit(value: Any, unit: str, metric: str) -> str:
    """A bound, with no more digits than it was written with."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    scale = display.scale_for([float(value)], unit, metric)
    return f"{display.tick(value / scale.factor)}\N{NO-BREAK SPACE}{scale.unit}".strip()


def _claim_title(claim: Mapping[str, Any]) -> str:
    metric = display.metric_title(str(claim.get("metric", "a metric")))
    where = _where_text(claim.get("where"))
    return f"{metric} at {where}" if where else metric


def _where_text(where: object) -> str:
    return ", ".join(f"{axis} = {_choice(value)}" for axis, value in mapping(where).items())


def _choice(value: object) -> str:
    return " or ".join(axis_text(v) for v in sequence(value)) or axis_text(value)


# --- tables


def _point_tables(result: ResultFolder, summary: pd.DataFrame) -> list[PointTable]:
    """One table for points with rates, one for those with latencies, and so on."""
    runs = result.frame.drop_duplicates(["point", "repetition"])
    totals = runs.groupby("point", sort=False).size().to_dict()
    kinds: dict[tuple[bool, ...], list[str]] = {}
    for point in tables.in_order(result, result.frame)["point"].unique():
        names = set(summary.loc[summary["point"] == point, "metric"])
        if names:
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
    return [_where_text({axis: row[axis] for axis in result.axes}) for row in silent]


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
    return PointTable(_where_text(shared), axes, _groups(names, scales), rows)


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
    _, total = _runs(result)
    if total:
        parts.append(f"{points} point{'s' if points != 1 else ''}, {total} runs")
    seconds = result.frame.drop_duplicates(["point", "repetition"])["seconds"].sum()
    if seconds > 0:
        parts.append(f"{_duration(float(seconds))} of measuring")
    if "seed" in result.resolved:
        parts.append(f"seed {result.seed}")
    return parts


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
