# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The metrics of a run: names, units, and how a bound in an experiment file is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

from datapath import units

UNITS: Mapping[str, str] = {
    "goodput": "bit/s",
    "message_rate": "1/s",
    "latency_p50": "ns",
    "latency_p99": "ns",
    "latency_p999": "ns",
    "latency_mean": "ns",
    "latency_min": "ns",
    "retransmits": "1",
    "timeouts": "1",
    "retransmitted_share": "1",
    "lost_share": "1",
    "fairness": "1",
    "utilisation": "1",
    "unfinished_share": "1",
    **{f"fct_{quantile}": "ns" for quantile in ("p50", "p99", "p999")},
    **{f"round_{quantile}": "ns" for quantile in ("p50", "p99", "p999")},
    **{
        f"slowdown_{quantile}{bucket}": "1"
        for quantile in ("p50", "p99", "p999")
        for bucket in ("", "_small", "_medium", "_large")
    },
    "queueing_delay_mean": "ns",
    "queueing_delay_p99": "ns",
    "cpu_user": "s",
    "cpu_system": "s",
    "cpu_stolen": "s",
    "xdp_zero_copy": "1",
    "xdp_copies": "packets",
    "path_dropped": "packets",
    "path_passed": "packets",
    "path_overflowed": "packets",
    "path_marked": "packets",
    "path_paused": "ns",
    "path_late_p99": "ns",
    "path_cpu_limited": "1",
}
"""Metric -> unit of its values in runs.parquet."""

_PARSERS: Mapping[str, Callable[[str], float]] = {
    "bit/s": units.parse_bit_rate,
    "ns": units.parse_duration_ns,
    "s": lambda text: units.parse_duration_ns(text) / 1e9,
}


def parse_bound(metric: str, value: str | int | float) -> float:
    """A claim's bound in the unit of its metric: `10us` -> 10000.0 for latency_p50.

    A bare number is accepted where the metric has no unit (counts, shares).
    ValueError says what was expected.
    """
    unit = UNITS[metric]
    parse = _PARSERS.get(unit)
    if parse is None:
        return parse_number(value)
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
    return float(number / 100 if text.endswith("%") else number)
