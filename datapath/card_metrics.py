# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Metrics of the tunnels of virtual cards, and of the classes in them, over one run.

Of several tunnels or classes the one with the highest mean counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datapath.metric_kind import MetricKind
from datapath.quantiles import quantile
from datapath.series import Sampled, classes, tunnels

if TYPE_CHECKING:
    import pandas as pd

KINDS = (
    MetricKind("card_queue_mean", "B", "Queue in a card, mean", "lower"),
    MetricKind("card_queue_p99", "B", "Queue in a card, p99", "lower"),
    MetricKind("card_wait_mean", "ns", "Wait in a card, mean", "lower"),
    MetricKind("card_wait_p99", "ns", "Wait in a card, p99", "lower"),
    MetricKind("card_rtt_mean", "ns", "RTT between cards, mean", "lower"),
    MetricKind("card_rtt_p99", "ns", "RTT between cards, p99", "lower"),
    MetricKind("card_window_mean", "B", "Window between cards, mean", ""),
    MetricKind("card_window_p99", "B", "Window between cards, p99", ""),
)


def metrics(sampled: Sampled) -> Mapping[str, float]:
    """Those that the series of the run tell."""
    of_tunnels = [rows for _, _, rows in tunnels(sampled.frame)]
    of_classes = [rows for _, _, rows in classes(sampled.frame)]
    return {
        **_highest("card_queue", of_tunnels, _used("queue_bytes")),
        **_highest("card_wait", of_classes, _while_sending("wait_ns")),
        **_highest("card_rtt", of_tunnels, _while_sending("rtt_ns")),
        **_highest("card_window", of_tunnels, _while_sending("cwnd_bytes")),
    }


_Values = Callable[["pd.DataFrame"], Any]


def _used(column: str) -> _Values:
    """From the first sample that is not 0 to the last one; a single 0 when there is none."""

    def values(rows: pd.DataFrame) -> Any:
        import numpy as np

        found = rows[column].to_numpy()
        used = np.flatnonzero(found)
        return found[used[0] : used[-1] + 1] if used.size else found[:1]

    return values


def _while_sending(column: str) -> _Values:
    """The samples before which something was delivered, since the sample before them."""

    def values(rows: pd.DataFrame) -> Any:
        import numpy as np

        busy = np.diff(rows["delivered_bytes"].to_numpy(), prepend=np.nan) > 0
        return rows[column].to_numpy()[busy]

    return values


def _highest(name: str, parts: Iterable[pd.DataFrame], of: _Values) -> dict[str, float]:
    import numpy as np

    found: Sequence[Any] = [of(rows) for rows in parts]
    found = [values[np.isfinite(values)] for values in found]
    found = [values for values in found if values.size]
    if not found:
        return {}
    worst = max(found, key=lambda values: float(values.mean()))
    return {f"{name}_mean": float(worst.mean()), f"{name}_p99": quantile(worst, 0.99)}
