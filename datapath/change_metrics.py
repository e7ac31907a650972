# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Metrics of change: how soon flows share fairly, and how soon they recover after an event.

Rates are those of windows of ten samples that begin at a sample.  A flow takes part from its
first delivery to its last; one that delivers nothing takes none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from datapath import series
from datapath.metric_kind import MetricKind

if TYPE_CHECKING:
    import pandas as pd

    from datapath.series import Flows, Sampled

_WINDOW_SAMPLES = 10
_FAIR = 0.9
"""Jain's index from which flows share fairly."""
_RECOVERED = 0.9
"""Share of the later rate from which flows have recovered."""

KINDS = (
    MetricKind("fairness_over_time", "1", "Fairness, mean over time", "higher", share=True),
    MetricKind("convergence_time", "ns", "Time to a fair share", "lower", plot="log"),
    MetricKind("recovery_time", "ns", "Time to recover", "lower", plot="log"),
    MetricKind("recovery_goodput", "bit/s", "Goodput until recovered", "higher"),
    MetricKind("recovery_queue", "B", "Longest queue until recovered", "lower"),
)


class Rates(NamedTuple):
    """Rates over time.

    at_ns: when each window begins, shape (windows,).  window_ns: its length.
    of: bit/s, shape (flows, windows); NaN while a flow takes no part.  begin_ns: of each flow.
    """

    at_ns: Any
    window_ns: float
    of: Any
    begin_ns: Any


def metrics(sampled: Sampled) -> Mapping[str, float]:
    """Those of KINDS that the series of a run tell."""
    found = rates(series.delivering(sampled.sending), sampled.interval_ns)
    if found is None:
        return {}
    spans = list(_recoveries(found, sampled.events_ns))
    return {**_of_shares(found), **_of_events(found, spans), **_queue(sampled.frame, spans)}


def rates(delivering: Flows, interval_ns: int = 0) -> Rates | None:
    """Of these flows; None: there are too few samples for a window.

    interval_ns: as Sampled has it.
    """
    import numpy as np

    counts = [(rows["time_ns"].to_numpy(float), rows["delivered_bytes"].to_numpy())
              for _, _, rows in delivering]  # fmt: skip
    counts = [(at[np.isfinite(sent)], sent[np.isfinite(sent)]) for at, sent in counts]
    interval = series.sampling_interval_ns((at for at, _ in counts), interval_ns)
    if interval <= 0:
        return None
    first, last = min(at[0] for at, _ in counts), max(at[-1] for at, _ in counts)
    window = _WINDOW_SAMPLES * interval
    grid = np.arange(first, last - window, interval)
    if not len(grid):
        return None
    lines, begins = [], []
    for at, sent in counts:
        begin, end = _part(at, sent)
        line = (np.interp(grid + window, at, sent) - np.interp(grid, at, sent)) * 8e9 / window
        line[(grid < begin) | (grid + window > end)] = np.nan
        lines.append(line)
        begins.append(begin)
    return Rates(grid, window, np.array(lines), np.array(begins))


def _part(at: Any, sent: Any) -> tuple[float, float]:
    """From the last sample before a delivery to the first with all that was delivered."""
    import numpy as np

    idle = np.flatnonzero(sent <= 0)
    whole = np.flatnonzero(sent >= sent.max())
    return float(at[idle[-1]] if len(idle) else at[0]), float(at[whole[0]])


def fairness(of: Any) -> Any:
    """Jain's index of the flows that take part, in each window; NaN of fewer than two."""
    import numpy as np

    known = np.isfinite(of)
    several = known.sum(axis=0) > 1
    rate = np.where(known, of, 0.0)
    squares = (rate**2).sum(axis=0) * known.sum(axis=0)
    index = np.full(of.shape[1], np.nan)
    able = several & (squares > 0)
    index[able] = rate.sum(axis=0)[able] ** 2 / squares[able]
    return index


def _of_shares(found: Rates) -> dict[str, float]:
    import numpy as np

    index = fairness(found.of)
    if not np.isfinite(index).any():
        return {}
    metrics = {"fairness_over_time": float(np.nanmean(index))}
    begins = np.sort(found.begin_ns)
    newcomers = begins[1:][np.diff(begins) > found.window_ns]
    times = []
    for begin, until in itertools.pairwise([*newcomers, np.inf]):
        within = (found.at_ns >= begin) & (found.at_ns < until) & np.isfinite(index)
        times.append(_lasting(found, within, index >= _FAIR, begin))
    if times and None not in times:
        metrics["convergence_time"] = max(time for time in times if time is not None)
    return metrics


class _Recovery(NamedTuple):
    """After an event.  time_ns: until flows have recovered; None: they do not.

    until_ns: the same as a time, at least a window behind the event; else the next event.
    """

    at_ns: float
    time_ns: float | None
    until_ns: float


def _recoveries(found: Rates, events_ns: Any) -> Iterator[_Recovery]:
    """Of the events behind which something is delivered."""
    import numpy as np

    total = np.nansum(found.of, axis=0)
    for at, until in itertools.pairwise([*sorted(set(events_ns)), np.inf]):
        within = (found.at_ns >= at) & (found.at_ns + found.window_ns <= until)
        later = total[within][within.sum() // 2 :]
        if len(later) and np.median(later) > 0:
            time = _lasting(found, within, total >= _RECOVERED * np.median(later), at)
            until = until if time is None else at + max(time, found.window_ns)
            yield _Recovery(at, time, until)


def _of_events(found: Rates, spans: Sequence[_Recovery]) -> dict[str, float]:
    import numpy as np

    if not spans:
        return {}
    total = np.nansum(found.of, axis=0)
    means = [total[(found.at_ns >= one.at_ns) & (found.at_ns < one.until_ns)] for one in spans]
    metrics = {"recovery_goodput": min(float(mean.mean()) for mean in means)}
    known = [one.time_ns for one in spans if one.time_ns is not None]
    if len(known) == len(spans):
        metrics["recovery_time"] = max(known)
    return metrics


def _queue(frame: pd.DataFrame, spans: Sequence[_Recovery]) -> dict[str, float]:
    """Of all links whose queues were sampled."""
    rows = frame[frame["link"].notna() & frame["queue_bytes"].notna()]
    at = rows["time_ns"]
    found = [
        rows["queue_bytes"][(at >= one.at_ns) & (at <= one.until_ns)].max()
        for one in spans
        if len(rows)
    ]
    known = [float(most) for most in found if most == most]  # a span may have no sample
    return {"recovery_queue": max(known)} if known else {}


def _lasting(found: Rates, within: Any, good: Any, since_ns: float) -> float | None:
    """From a time until windows begin to be good, as many in a row as one has samples."""
    import numpy as np

    good = good[within]
    if not len(good):
        return None
    runs = np.convolve(good, np.ones(_WINDOW_SAMPLES), "valid")
    first = np.flatnonzero(runs >= _WINDOW_SAMPLES - 0.5)
    return float(found.at_ns[within][first[0]] - since_ns) if len(first) else None
