# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables of a result folder: tidy rows, summaries of points, ratios to the baseline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath import foreign, stats
from datapath.errors import LocalError
from datapath.report.folder import ResultFolder, first_line, read

if TYPE_CHECKING:
    import pandas as pd

Where = Mapping[str, Sequence[str]]
"""Axis -> the values of the points that are meant."""

RATIO_METRICS = ("goodput", "message_rate", "latency_p50", "latency_p99")
"""Metrics of which a ratio to the baseline says something; counts may well be zero."""


def load(result_folder: Path) -> pd.DataFrame:
    """The tidy rows of a result folder, see docs/results.md for the columns."""
    return read(result_folder).frame


def series(result_folder: Path, run: str) -> pd.DataFrame:
    """The series of one run; LocalError with the runs that have some when this one has not."""
    folder = result_folder / "series"
    known = sorted(file.stem for file in folder.glob("*.parquet"))
    if run not in known:
        there = f"runs with series: `dpctl series {result_folder}` lists them"
        raise LocalError(
            f"{result_folder} has no series of run {run!r}",
            hint=there if known else "they are collected when the experiment has collect.series",
        )
    try:
        return foreign.read_table(folder / f"{run}.parquet")
    except (OSError, ValueError) as error:
        raise LocalError(
            f"{folder / run}.parquet cannot be read: {first_line(error)}",
            hint="remove it with its runs/*.json; `dpctl run --resume` makes the run again",
        ) from None


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that hold a finite number of a run that went well."""
    good = (frame["status"] == "ok") & frame["metric"].notna()
    return frame[good & frame["value"].map(math.isfinite)]


def select(frame: pd.DataFrame, where: Where) -> pd.DataFrame:
    """The rows whose axes have one of the values that `where` names."""
    for axis, values in where.items():
        frame = frame[frame[axis].isin(values)]
    return frame


def in_order(result: ResultFolder, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows by their axis values, in the order of the experiment file; else as they were."""
    rank = {axis: {v: i for i, v in enumerate(result.axis_values(axis))} for axis in result.axes}
    if frame.empty or not rank:
        return frame
    return frame.sort_values(
        result.axes, key=lambda column: column.map(rank[str(column.name)]), kind="stable"
    )


def medians(frame: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """One row per point and metric, in the order of the file.

    Columns: point, the axes, metric, unit, n (runs with a value), median, min, max.  Values are
    in `unit`.
    """
    groups = measured(frame).groupby(["point", "metric"], sort=False)
    table = groups[[*axes, "unit"]].first()
    values = groups["value"]
    table = table.assign(
        n=groups.size(), median=values.median(), min=values.min(), max=values.max()
    ).reset_index()
    return table[["point", *axes, "metric", "unit", "n", "median", "min", "max"]]


def summarise(frame: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """The medians, with lo and hi: the interval of each (NaN for n < 2)."""
    intervals = {
        key: stats.median_interval(values.to_numpy())
        for key, values in measured(frame).groupby(["point", "metric"], sort=False)["value"]
    }
    table = medians(frame, axes)
    keys = list(zip(table["point"], table["metric"], strict=True))
    return table.assign(
        lo=[intervals[key].lo for key in keys], hi=[intervals[key].hi for key in keys]
    )


def ratio_metrics(result: ResultFolder) -> list[str]:
    """RATIO_METRICS that were measured; messages of one size repeat what goodput says."""
    rows = measured(result.frame)
    points = {m: set(rows.loc[rows["metric"] == m, "point"]) for m in RATIO_METRICS}
    told = points["message_rate"] <= points["goodput"]
    return [m for m in RATIO_METRICS if points[m] and not (m == "message_rate" and told)]


def ratios(result: ResultFolder, metrics: Sequence[str] = RATIO_METRICS) -> pd.DataFrame:
    """Each point against the baseline point that shares its other axis values.

    One row per point and metric: point, the axes, metric, n (blocks in which both
    sides have a value), ratio (median of the per-block ratios), lo, hi (its interval).
    Empty when the experiment names no baseline, or no point matches it.
    """
    import pandas as pd

    columns = ["point", *result.axes, "metric", "n", "ratio", "lo", "hi"]
    rows: list[dict[str, Any]] = []
    if result.baseline:
        frame = measured(result.frame)
        for metric in metrics:
            rows += _ratios_of(result, frame[frame["metric"] == metric], metric)
    return in_order(result, pd.DataFrame(rows, columns=columns))


def _ratios_of(result: ResultFolder, frame: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    groups = {
        tuple(group[axis].iloc[0] for axis in result.axes): group
        for _, group in frame.groupby("point", sort=False)
    }
    rows = []
    for key, group in groups.items():
        values = dict(zip(result.axes, key, strict=True))
        base = _baseline_of(result, values, groups)
        if base is None:
            continue
        blocks, base_blocks = group["block"].tolist(), base["block"].tolist()
        estimate = stats.paired_block_ratio(
            group["value"],
            base["value"],
            blocks,
            baseline_blocks=base_blocks,
        )
        rows.append(
            {
                "point": group["point"].iloc[0],
                **values,
                "metric": metric,
                "n": len(set(blocks) & set(base_blocks)),
                "ratio": estimate.median,
                "lo": estimate.lo,
                "hi": estimate.hi,
            }
        )
    return rows


def _baseline_of(
    result: ResultFolder, values: dict[str, str], groups: dict[tuple[str, ...], pd.DataFrame]
) -> pd.DataFrame | None:
    """Runs of the baseline point with the same other values; None for a baseline itself.

    Of several baselines the first that has the metric is taken: `stack: [tcp, sockperf]`
    compares goodput with one and latency with the other.
    """
    choices = list(itertools.product(*result.baseline.values()))
    combos = [dict(zip(result.baseline, choice, strict=True)) for choice in choices]
    if any(combo.items() <= values.items() for combo in combos):
        return None
    keys = (tuple({**values, **combo}[axis] for axis in result.axes) for combo in combos)
    return next((groups[key] for key in keys if key in groups), None)


def varying(frame: pd.DataFrame, axes: Iterable[str]) -> list[str]:
    """The axes that take more than one value in these rows."""
    return [axis for axis in axes if frame[axis].nunique() > 1]


def summary(
    result: ResultFolder, metrics: Sequence[str] = (), where: Where | None = None
) -> dict[str, Any]:
    """Claims, points, ratios and failures as plain data; numbers are in base units.

    metrics, where: keep the points and ratios of these metrics and axis values; empty: all.
    """
    sections = _sections(result, metrics, where or {})
    return {"name": result.name, "baseline": result.baseline, **sections}


def records(
    result: ResultFolder, metrics: Sequence[str] = (), where: Where | None = None
) -> list[dict[str, Any]]:
    """The same as one list, each record with its `kind`."""
    return [
        {"kind": section.removesuffix("s"), **record}
        for section, rows in _sections(result, metrics, where or {}).items()
        for record in rows
    ]


def _sections(
    result: ResultFolder, metrics: Sequence[str], where: Where
) -> dict[str, list[dict[str, Any]]]:
    chosen = tuple(metrics) or RATIO_METRICS
    rows = select(result.frame, where)
    if metrics:
        rows = rows[rows["metric"].isin(metrics)]
    summary = in_order(result, summarise(rows, result.axes))
    sections: dict[str, list[dict[str, Any]]] = {
        "claims": result.claims or [],
        "points": _records(summary),
        "ratios": _records(select(ratios(result, chosen), where)),
        "failures": [vars(failure) for failure in result.failures],
        "remarks": [{"text": remark} for remark in result.remarks],
    }
    return sections


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
