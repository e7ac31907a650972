# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Empirical distributions of single samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from datapath import foreign
from datapath.quantiles import quantile
from datapath.report import canvas, display, tables
from datapath.report.canvas import MUTED
from datapath.report.folder import ResultFolder
from datapath.report.plotspec import Colours, PlotSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


_QUANTILES = ("0", "1", "5", "10", "25", "50", "75", "90", "95", "99", "99.9", "100")
"""Of the table behind a distribution, in percent."""


def draw(result: ResultFolder, spec: PlotSpec, colours: Colours) -> tuple[Figure, str]:
    runs = result.frame[result.frame["status"] == "ok"]
    runs = runs.drop_duplicates(["point", "repetition"])
    runs = tables.select(runs, spec.where)
    damaged: list[str] = []
    found = list(_samples(result, runs, spec.metrics[0], damaged))
    if not found:
        unread = f", and {len(damaged)} files of samples cannot be read" if damaged else ""
        raise canvas.NothingToDraw(f"no run left samples of it{unread}")
    kept = runs.loc[[index for index, _ in found]]
    column = found[0][1].name
    unit = str(column).rpartition("_")[2]
    everything = _pool([s for _, s in found])
    log = spec.log or _spread(everything) > 15
    scale = display.scale_for([everything[len(everything) // 2]], unit)
    by_run = dict(found)
    spec = canvas.small_multiples(result, spec, kept)
    panels = canvas.panels(result, spec, kept)
    figure, axes = canvas.figure(len(panels), same_x=True)
    counts, sizes = [], []
    multiples = False
    for panel, ax in zip(panels, axes, strict=True):
        for name in canvas.values(result, spec.series, panel.rows):
            rows = panel.rows
            if spec.series is not None:
                rows = rows[rows[spec.series] == name]
            pooled = _pool([by_run[index] for index in rows.index]) / scale.factor
            x, y = _thinned(pooled)
            style = canvas.line_style(spec, panel, colours, name) | {"marker": ""}
            ax.step(x, y, where="post", **style)
            counts.append(len(rows))
            sizes.append(len(pooled))
        for other in canvas.beside(spec, panel, kept):
            multiples = True
            x, y = _thinned(_pool([by_run[index] for index in other.index]) / scale.factor)
            ax.step(x, y, where="post", **canvas.BESIDE)
        ax.set_title(panel.title, loc="left", color=MUTED)
        ax.grid()
        if log:
            _log_x(ax)
        else:
            ax.xaxis.set_major_formatter(lambda v, _: display.tick(v))
        ax.set_xlabel(_cdf_label(str(column), scale))
    axes[0].set_ylim(0, 1.01)
    canvas.y_label(figure, axes, "Share of samples at or below")
    canvas.legend(figure, result, spec, kept, colours)
    text = (
        f"Empirical distribution of {_sample_title(str(column)).lower()}, the samples of all runs "
        f"of a point taken together; {canvas.runs(counts)}, {_sample_count(sizes)} per line. "
        f"The lines are the samples themselves: there are no error bars."
    )
    text += canvas.BESIDE_TEXT if multiples else ""
    text += canvas.left_out(result, spec, kept) + canvas.held(result, kept)
    if damaged:
        text += f" {len(damaged)} files of samples cannot be read and are left out."
    return figure, text + (" The horizontal axis is logarithmic." if log else "")


def table(result: ResultFolder, spec: PlotSpec) -> pd.DataFrame:
    """Quantiles of the samples of each point, all its runs together."""
    import pandas as pd

    runs = result.frame[result.frame["status"] == "ok"].drop_duplicates(["point", "repetition"])
    runs = tables.select(runs, spec.where)
    found = dict(_samples(result, runs, spec.metrics[0], []))
    rows = []
    for point, group in runs.loc[list(found)].groupby("point", sort=False):
        pooled = _pool([found[index] for index in group.index])
        values = [quantile(pooled, float(q) / 100) for q in _QUANTILES]
        name = str(found[group.index[0]].name)
        about = {"metric": spec.metrics[0], "unit": name.rpartition("_")[2], "samples": len(pooled)}
        axes = {axis: group[axis].iloc[0] for axis in result.axes}
        quantiles = {f"p{q}": v for q, v in zip(_QUANTILES, values, strict=True)}
        rows.append({"point": point, **axes, **about, **quantiles})
    return tables.in_order(result, pd.DataFrame(rows))


def _sample_count(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low:,} samples" if low == high else f"{low:,} to {high:,} samples"


def _sample_title(column: str) -> str:
    return display.family_title(column.rpartition("_")[0] or column)


def _cdf_label(column: str, scale: display.Scale) -> str:
    return f"{_sample_title(column)} ({scale.unit})" if scale.unit else _sample_title(column)


def _samples(
    result: ResultFolder, runs: pd.DataFrame, metric: str, damaged: list[str]
) -> Iterator[tuple[Any, pd.Series[float]]]:
    """(row index, samples named after their kind) of each run that left some of the metric.

    `latency_ns` is meant by its own name, by `latency`, and by any `latency_...` metric;
    `samples` means the first kind there is.  Files that cannot be read go to `damaged`.
    """
    import pandas as pd

    stem = metric.partition("_")[0]
    for row in runs.itertuples():
        file = result.path / "samples" / f"{row.point}-{row.repetition}.parquet"
        if not file.is_file():
            continue
        try:
            table = foreign.read_table(file)
        except (OSError, ValueError):
            damaged.append(file.name)
            continue
        names = [str(name) for name in table.columns]
        wanted = [name for name in names if metric in (name, "samples")]
        wanted += [name for name in names if name.startswith(stem)]
        if wanted:
            values = pd.to_numeric(table[wanted[0]], errors="coerce")
            values = values[values.map(math.isfinite)]
            if len(values):
                yield row.Index, values


def _pool(parts: Sequence[Any]) -> NDArray[np.float64]:
    import numpy as np

    return np.sort(np.concatenate([np.asarray(part, dtype=np.float64) for part in parts]))


def _spread(ordered: NDArray[np.float64]) -> float:
    """How far the tail lies from the body, as a factor."""
    low, high = ordered[len(ordered) // 100], ordered[-1 - len(ordered) // 1000]
    return float(high / low) if low > 0 else 1.0


def _thinned(ordered: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most some 600 steps of the distribution, close together in the tail."""
    import numpy as np

    n = len(ordered)
    ranks = np.arange(n)
    if n > 600:
        body = np.linspace(0, 0.99 * n, 400)
        tail = n - np.geomspace(0.01 * n, 1, 200)
        ranks = np.unique(np.concatenate([body, tail]).astype(int))
    share = (ranks + 1) / n
    return np.append(ordered[ranks[0]], ordered[ranks]), np.append(0.0, share)


def _log_x(ax: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=canvas.log_ticks(high / low)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: display.tick(v)))
    ax.xaxis.set_minor_formatter(NullFormatter())
