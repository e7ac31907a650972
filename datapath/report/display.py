# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How numbers and names look to a reader: scaled units, three digits, titles.

Files hold base units (bit/s, ns, s, 1); everything shown goes through here, so
that a table, a plot and a terminal never disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from datapath.experiment.metrics import METRICS

DASH = "–"
"""Shown where there is no value."""


class Scale(NamedTuple):
    """shown = value / factor, labelled `unit` (empty for a plain number)."""

    factor: float
    unit: str


AXES: Mapping[str, str] = {
    "path.loss": "Packet loss",
    "path.ecn_mark": "ECN-marked share",
    "path.corrupt": "Corrupted share",
    "workload.size": "Message size",
    "topology.mtu": "Device MTU",
    "transport.path_mtu": "Path MTU",
    "cc.algo": "Congestion control",
    "workload.kind": "Workload",
    "workload.test": "Test",
    "transport.device": "Device",
    "transport.port": "Port",
}

_REASONS: Mapping[str, str] = {
    "the interval reaches the bound": "the interval reaches it",
    "above max": "above the bound",
    "below min": "below the bound",
}

_LADDERS: Mapping[str, tuple[Scale, ...]] = {
    "bit/s": (
        Scale(1e9, "Gbit/s"),
        Scale(1e6, "Mbit/s"),
        Scale(1e3, "kbit/s"),
        Scale(1, "bit/s"),
    ),
    "ns": (Scale(1e9, "s"), Scale(1e6, "ms"), Scale(1e3, "µs"), Scale(1, "ns")),
    "s": (Scale(1, "s"), Scale(1e-3, "ms"), Scale(1e-6, "µs")),
    "1/s": (Scale(1e6, "M/s"), Scale(1e3, "k/s"), Scale(1, "/s")),
    "B": (Scale(2**30, "GiB"), Scale(2**20, "MiB"), Scale(2**10, "KiB"), Scale(1, "B")),
}


def metric_title(name: str) -> str:
    known = METRICS.get(name)
    return known.title if known else name.replace("_", " ").capitalize()


def common_title(names: Iterable[str]) -> str:
    """What the titles of these metrics have in common: `Latency` of `latency_p50` and `_p99`."""
    heads = dict.fromkeys(metric_title(name).rpartition(", ")[0] for name in names)
    return " and ".join(heads) if all(heads) else ""


def own_title(name: str) -> str:
    """The word that tells metrics of one kind apart: `median` of `latency_p50`."""
    return metric_title(name).rpartition(", ")[2]


def family_title(stem: str) -> str:
    """The name of a kind of sample: `Flow completion time` of `fct`."""
    titles = [kind.title for name, kind in METRICS.items() if name.startswith(f"{stem}_")]
    return titles[0].rpartition(", ")[0] or titles[0] if titles else metric_title(stem)


def metric_better(name: str) -> str:
    known = METRICS.get(name)
    return known.better if known else ""


def metric_order(names: Iterable[str]) -> list[str]:
    """Known metrics in the order of METRICS, then the others by name."""
    rank = {name: index for index, name in enumerate(METRICS)}
    return sorted(names, key=lambda name: (rank.get(name, len(rank)), name))


def axis_title(name: str) -> str:
    """`path.loss` -> `Packet loss (path.loss)`; a name of the user's own stays."""
    return f"{AXES[name]} ({name})" if name in AXES else name


def scale_for(values: Iterable[float], unit: str, metric: str = "") -> Scale:
    """The unit in which the largest value has one to three digits before the point.

    One scale serves a whole column or axis, so that its numbers compare by eye.
    """
    if unit == "1" and metric.endswith("_share"):
        return Scale(0.01, "%")
    ladder = _LADDERS.get(unit, (Scale(1, "" if unit == "1" else unit),))
    top = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    for scale in ladder:
        if top >= scale.factor:
            return scale
    return ladder[0] if top == 0 else ladder[-1]


def number(value: float | None) -> str:
    """Three significant digits, thousands grouped, whole numbers left whole."""
    if value is None or not math.isfinite(value):
        return DASH
    size = abs(value)
    if value == int(value) and size < 1e15:
        return f"{int(value):,}"
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    if size >= 0.0009995:
        return f"{value:.{2 - math.floor(math.log10(size))}f}"
    return f"{value:.3g}"


def tick(value: float) -> str:
    """A tick or bound: the digits it has, no more; 0.5, 20, 1,000."""
    short = float(f"{value:.6g}")
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{short:g}"


def quantity(value: float | None, unit: str, metric: str = "") -> str:
    """9.1e9, "bit/s" -> "9.10 Gbit/s"."""
    if value is None or not math.isfinite(value):
        return DASH
    scale = scale_for([value], unit, metric)
    text = number(value / scale.factor)
    return f"{text}\N{NO-BREAK SPACE}{scale.unit}" if scale.unit else text


def reason(text: object) -> str:
    """Why a claim does not hold, in words: `above max` -> `above the bound`."""
    words = str(text or "")
    for short, long in _REASONS.items():
        words = words.replace(short, long)
    return words


def duration(seconds: float) -> str:
    """`80 s`, `12 min`, `3.5 h`"""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
