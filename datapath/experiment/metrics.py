# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The metrics of a run: one row for each, and how a bound in an experiment file is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

from datapath import units
from datapath.metric_kind import MetricKind
from datapath.series_metrics import DERIVED
from datapath.workloads import REGISTRY

SAMPLES = ("latency", "fct")
"""The kinds of samples of which there are CDFs; metrics of a kind begin with its name."""

OF_FINISHED_FLOWS = ("fct_", "slowdown_")
"""How metrics begin that leave out the flows which did not finish."""

_QUANTILES = {"p50": "median", "p99": "p99", "p999": "p99.9"}

_OF_WORKLOADS = (
    MetricKind("goodput", "bit/s", "Goodput", "higher"),
    MetricKind("message_rate", "1/s", "Message rate", "higher"),
    MetricKind("algbw", "bit/s", "Algorithm bandwidth", "higher", "bar"),
    MetricKind("busbw", "bit/s", "Bus bandwidth", "higher", "bar"),
    MetricKind("latency_p50", "ns", "Latency, median", "lower"),
    MetricKind("latency_p99", "ns", "Latency, p99", "lower"),
    MetricKind("latency_p999", "ns", "Latency, p99.9", "lower"),
    MetricKind("latency_mean", "ns", "Latency, mean", "lower"),
    MetricKind("latency_min", "ns", "Latency, minimum", "lower"),
    MetricKind("retransmits", "1", "Retransmitted, packets", "lower"),
    MetricKind("retransmitted_share", "1", "Retransmitted, share", "lower", share=True),
    MetricKind("timeouts", "1", "Timeouts", "lower"),
    MetricKind("lost_share", "1", "Lost share", "lower", share=True),
    MetricKind("fairness", "1", "Fairness", "higher", share=True),
    MetricKind("utilisation", "1", "Utilisation", "higher"),
    MetricKind("unfinished_share", "1", "Unfinished flows, share", "lower", share=True),
    *(
        MetricKind(f"{name}_{quantile}", "ns", f"{title}, {said}", "lower")
        for name, title in (("fct", "Flow completion time"), ("round", "Time of a round"))
        for quantile, said in _QUANTILES.items()
    ),
    *(
        MetricKind(f"slowdown_{quantile}{bucket}", "1", f"Slowdown{of}, {said}", "lower")
        for bucket, of in (
            ("", ""),
            ("_small", " of small flows"),
            ("_medium", " of medium flows"),
            ("_large", " of large flows"),
        )
        for quantile, said in _QUANTILES.items()
    ),
)

_OF_RUNS = (
    MetricKind("spurious_share", "1", "Sent again in vain, share", "lower", share=True),
    MetricKind("fair_share", "1", "Goodput, of the fair share", "higher"),
    MetricKind("competing_fair_share", "1", "Goodput of competing flows, of the fair share", ""),
    MetricKind("xdp_zero_copy", "1", "Zero-copy, share of sockets", "higher", share=True),
    MetricKind("xdp_copies", "packets", "Copied by the kernel", "lower"),
    MetricKind("cpu_user", "s", "CPU, user", "lower"),
    MetricKind("cpu_system", "s", "CPU, system", "lower"),
    MetricKind("cpu_stolen", "s", "CPU, stolen", "lower"),
    MetricKind("cpu_waited", "s", "CPU, waited for", "lower"),
    MetricKind("cpu_starved", "1", "CPU-starved", "lower", share=True),
    MetricKind("pacing_late_mean", "ns", "Pacing late, mean", "lower"),
    MetricKind("pacing_late_max", "ns", "Pacing late, most", "lower"),
    MetricKind("pacing_burst_max", "packets", "Pacing, longest burst", "lower"),
    MetricKind("path_dropped", "packets", "Dropped on path", ""),
    MetricKind("path_passed", "packets", "Passed on path", ""),
    MetricKind("path_overflowed", "packets", "Dropped by the queue", ""),
    MetricKind("path_policed", "packets", "Dropped by the policer", ""),
    MetricKind("path_aqm_dropped", "packets", "Dropped by the AQM", ""),
    MetricKind("path_shaped", "packets", "Dropped by shaped classes", ""),
    MetricKind("path_marked", "packets", "Marked on path", ""),
    MetricKind("path_paused", "ns", "Paused by PFC, all links", "lower"),
    MetricKind("path_late_p99", "ns", "Emulation late, p99", "lower"),
    MetricKind("path_cpu_limited", "1", "Emulation CPU-limited", "lower", share=True),
    MetricKind(
        "card_retransmitted_share", "1", "Sent again between cards, share", "lower", share=True
    ),
    MetricKind(
        "card_class_retransmitted_share", "1", "Sent again, share of a class", "lower", share=True
    ),
    MetricKind("card_timeouts", "1", "Timeouts between cards", "lower"),
    MetricKind("card_rtt", "ns", "RTT between cards, at the end", "lower"),
    MetricKind("card_first_wait", "ns", "Wait of a class's first frame, longest", "lower"),
    MetricKind("card_share_error", "1", "Share of a tenant, off its weight's", "lower"),
)

METRICS: Mapping[str, MetricKind] = {
    kind.name: kind
    for kind in (
        *_OF_WORKLOADS,
        *(kind for kinds, _ in DERIVED for kind in kinds),
        *_OF_RUNS,
        *(kind for workload in REGISTRY.values() for kind in workload.metrics),
    )
}
"""The metrics that a run may have, by name, in the order in which tables show them."""

OF_SERIES = frozenset(kind.name for kinds, _ in DERIVED for kind in kinds) - frozenset(
    kind.name for kind in (*_OF_WORKLOADS, *_OF_RUNS)
)
"""Metrics that only series tell."""

UNITS: Mapping[str, str] = {kind.name: kind.unit for kind in METRICS.values()}
"""Metric -> unit of its values in runs.parquet."""

_PARSERS: Mapping[str, Callable[[str], float]] = {
    "B": units.parse_bytes,
    "bit/s": units.parse_bit_rate,
    "ns": units.parse_duration_ns,
    "s": lambda text: units.parse_duration_ns(text) / 1e9,
}


def parse_bound(metric: str, value: str | int | float) -> float:
    """A claim's bound in the unit of its metric: `10us` -> 10000.0 for latency_p50.

    A bare number is accepted where the metric has no unit (shares), or counts something (packets,
    bytes).  ValueError tells the expected form.
    """
    kind = METRICS[metric]
    unit = kind.unit
    parse = units.parse_fraction if kind.share else _PARSERS.get(unit)
    if parse is None:
        if unit != "1" and str(value).strip().endswith("%"):
            raise ValueError(f"{value!r} is a share, and {metric} is in {unit}")
        return parse_number(value)
    if kind.share or unit == "B":
        return float(parse(str(value)))
    if not isinstance(value, str):
        example = {"bit/s": "1gbit", "ns": "10us", "s": "2s"}[unit]
        raise ValueError(f"{value} has no unit; a bound on {metric} is written like {example}")
    return float(parse(value))


def parse_number(value: str | int | float) -> float:
    """A ratio, share or count: 0.9 or `90%`."""
    text = str(value).strip()
    try:
        number = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a number; write for example 0.9 or 90%") from None
    if number.is_finite():
        found = float(number / 100 if text.endswith("%") else number)
        if math.isfinite(found):
            return found
    raise ValueError(f"{value!r} is not a finite number")
