# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Metrics that follow from the series of one run.

A metric is a function of the run's table and of its flows, and a row of DERIVED, which says all
that claims, tables and plots have to know of it.  Nothing else names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datapath import card_metrics, change_metrics
from datapath.metric_kind import MetricKind
from datapath.quantiles import quantile
from datapath.series import Sampled, senders

if TYPE_CHECKING:
    import pandas as pd

_PLATEAU_SHARE = 0.9
_STARTUP_SAMPLES = 10
"""Of a flow, fewer than these do not tell a plateau."""


def derived(
    frame: pd.DataFrame, events_ns: Sequence[int] = (), *, interval_ns: int = 0
) -> dict[str, float]:
    """Metrics of the table of one run, by name; those that its series tell are there.

    events_ns: when something changed, on the clock of the table.  interval_ns: that was asked
    for between samples, 0: not known.
    """
    found: dict[str, float] = {}
    sampled = Sampled(frame, senders(frame), events_ns, interval_ns)
    for _, function in DERIVED:
        found |= function(sampled)
    return found


def _delay(name: str, quantity: Callable[[pd.DataFrame], Any]) -> _Function:
    """Mean and p99 of a quantity over the samples of all flows that sent."""

    def function(sampled: Sampled) -> dict[str, float]:
        import numpy as np

        delay = np.concatenate([np.empty(0), *(quantity(rows) for _, _, rows in sampled.sending)])
        if not delay.size:
            return {}
        return {f"{name}_mean": float(delay.mean()), f"{name}_p99": quantile(delay, 0.99)}

    return function


def _rtts(sampled: Sampled) -> dict[str, float]:
    import numpy as np

    rtt = np.concatenate([np.empty(0), *(_rtt(rows) for _, _, rows in sampled.sending)])
    if not rtt.size:
        return {}
    return {"rtt_p50": quantile(rtt, 0.5), "rtt_p99": quantile(rtt, 0.99)}


def _queues(sampled: Sampled) -> dict[str, float]:
    """Of the link with the longest queue, from its first sample with a queue to the last."""
    import numpy as np

    found = {"queue_mean": 0.0, "queue_p99": 0.0}
    frame = sampled.frame
    links = frame[frame["link"].notna() & frame["queue_bytes"].notna()]
    for _link, rows in links.groupby("link", sort=False):
        queue = rows["queue_bytes"].to_numpy()
        used = np.flatnonzero(queue)
        if not used.size:
            continue
        queue = queue[used[0] : used[-1] + 1]
        if queue.mean() > found["queue_mean"]:
            found = {"queue_mean": float(queue.mean()), "queue_p99": quantile(queue, 0.99)}
    return found if len(links) else {}


def _stall(sampled: Sampled) -> dict[str, float]:
    of_flows = sampled.frame[sampled.frame["qp"].notna()]
    if not of_flows["inflight_bytes"].notna().any():
        return {}
    flows_of = of_flows.groupby(["host", "qp"], sort=False)
    return {"longest_stall": max(_longest_stall(rows) for _, rows in flows_of)}


def _startup(sampled: Sampled) -> dict[str, float]:
    """Of the slowest flow."""
    times = [_startup_ns(rows) for _, _, rows in sampled.sending]
    known = [time for time in times if time is not None]
    return {"startup_time": max(known)} if known else {}


def _startup_ns(rows: pd.DataFrame) -> float | None:
    """From a flow's first sample until it has nine tenths of its median rate of the second half."""
    import numpy as np

    at, delivered = rows["time_ns"].to_numpy(), rows["delivered_bytes"].to_numpy()
    if len(at) <= _STARTUP_SAMPLES:
        return None
    rate = np.diff(delivered) / np.diff(at)
    plateau = float(np.median(rate[len(rate) // 2 :]))
    if not plateau > 0:
        return None
    return float(at[1 + int(np.argmax(rate >= _PLATEAU_SHARE * plateau))] - at[0])


def _fairness(sampled: Sampled) -> dict[str, float]:
    from datapath.stats import jain

    if len(sampled.sending) < 2:
        return {}
    return {
        "fairness": jain([float(rows["delivered_bytes"].max()) for _, _, rows in sampled.sending])
    }


def _retransmitted(sampled: Sampled) -> dict[str, float]:
    import numpy as np

    sent = sum(float(rows["sent_packets"].max()) for _, _, rows in sampled.sending)
    again = sum(float(rows["retransmitted_packets"].max()) for _, _, rows in sampled.sending)
    return {"retransmitted_share": again / sent} if sent > 0 and np.isfinite(again) else {}


def _queueing_delay(rows: pd.DataFrame) -> Any:
    """RTT less the lowest, ns, of the samples before which something was delivered."""
    import numpy as np

    lowest = np.concatenate([rows["rtt_ns"].to_numpy(), rows["min_rtt_ns"].to_numpy()])
    lowest = lowest[np.isfinite(lowest)]
    rtt = _rtt(rows)
    return rtt - lowest.min() if lowest.size else rtt[:0]


def _rtt(rows: pd.DataFrame) -> Any:
    """RTT, ns, of the samples before which something was delivered."""
    import numpy as np

    rtt = rows["rtt_ns"].to_numpy()
    return rtt[_busy(rows) & np.isfinite(rtt)]


def _host_delay(rows: pd.DataFrame) -> Any:
    """The hosts' part of the RTT, ns, of the same samples."""
    import numpy as np

    host = rows["host_ns"].to_numpy()
    return host[_busy(rows) & np.isfinite(host)]


def _busy(rows: pd.DataFrame) -> Any:
    """Whether something was delivered before each sample, and since the one before."""
    import numpy as np

    return np.diff(rows["delivered_bytes"].to_numpy(), prepend=np.nan) > 0


def _longest_stall(rows: pd.DataFrame) -> float:
    """The longest time, ns, in which a flow had something in flight and delivered nothing."""
    import numpy as np

    waits = rows["inflight_bytes"].to_numpy() > 0
    still = np.diff(rows["delivered_bytes"].to_numpy()) == 0
    still &= waits[:-1] | waits[1:]
    if not still.any():
        return 0.0
    stalled = np.cumsum(np.where(still, np.diff(rows["time_ns"].to_numpy()), 0))
    before = np.maximum.accumulate(np.where(still, 0, stalled))
    return float((stalled - before).max())


_Function = Callable[[Sampled], Mapping[str, float]]

DERIVED: tuple[tuple[tuple[MetricKind, ...], _Function], ...] = (
    (
        (
            MetricKind("queue_mean", "B", "Queue of the link, mean", "lower"),
            MetricKind("queue_p99", "B", "Queue of the link, p99", "lower"),
        ),
        _queues,
    ),
    (
        (
            MetricKind("queueing_delay_mean", "ns", "Queueing delay, mean", "lower"),
            MetricKind("queueing_delay_p99", "ns", "Queueing delay, p99", "lower"),
        ),
        _delay("queueing_delay", _queueing_delay),
    ),
    (
        (
            MetricKind("host_delay_mean", "ns", "Delay by hosts, mean", "lower"),
            MetricKind("host_delay_p99", "ns", "Delay by hosts, p99", "lower"),
        ),
        _delay("host_delay", _host_delay),
    ),
    (
        (
            MetricKind("rtt_p50", "ns", "RTT, median", "lower"),
            MetricKind("rtt_p99", "ns", "RTT, p99", "lower"),
        ),
        _rtts,
    ),
    ((MetricKind("longest_stall", "ns", "Longest stall", "lower"),), _stall),
    ((MetricKind("startup_time", "ns", "Time to the full rate", "lower", plot="log"),), _startup),
    (change_metrics.KINDS, change_metrics.metrics),
    (card_metrics.KINDS, card_metrics.metrics),
    # Workloads measure these too, and their rows are in experiment/metrics.py.
    ((), _fairness),
    ((), _retransmitted),
)
"""(What there is to know of the metrics, the function that makes them of a run's table)."""
