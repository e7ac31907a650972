# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`topology.wakeup: live`: simulated programs wake as late as those of the live twin did.

The live twin of a simulated point is the point of lane netns with the same settings otherwise.
Its devices count how late their threads woke, and the emulator how late it handed frames over;
the simulated run takes the distributions that its twin measured in the same repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datapath.errors import RunFailed
from datapath.lanes.wakeup_spec import LIVE, HostWakeup

if TYPE_CHECKING:
    from datapath.experiment.spec import PointSpec
    from datapath.experiment.store import RunRecord
    from datapath.experiment.sweep import Point

_OWN = ("lane", "wakeup", "scheduling", "keep_awake")
"""Keys of the topology in which twins may differ."""

_SLEEPS_MIN = 100
"""Fewer of a kind tell no distribution."""


def wants_twin(spec: PointSpec) -> bool:
    return spec.topology.wakeup == LIVE


def twin_of(spec: PointSpec, points: Iterable[Point]) -> Point:
    """The live twin of a simulated point; ValueError with the reason when there is not just one."""
    wanted = _settings(spec)
    found = [
        point
        for point in points
        if point.spec.topology.lane == "netns" and _settings(point.spec) == wanted
    ]
    if not found:
        raise ValueError("live: no point of lane netns has the same settings otherwise")
    if len(found) > 1:
        raise ValueError(f"live: {found[0].label} and {found[1].label} are both its live twin")
    if found[0].spec.transport.device != "dp":
        raise ValueError("live: only device dp counts how late its programs wake")
    return found[0]


def _settings(spec: PointSpec) -> dict[str, Any]:
    data = spec.model_dump(mode="json")
    data["topology"] = {k: v for k, v in data["topology"].items() if k not in _OWN}
    return data


def measured(record: RunRecord) -> HostWakeup:
    """How late the programs of a live run woke; RunFailed when it has not counted enough."""
    sleeps = [entry["sleeps"] for entry in record.device if "sleeps" in entry]
    packet, timer = (_merged([one[kind] for one in sleeps]) for kind in ("packet", "timer"))
    if not packet and not timer:
        raise RunFailed(
            f"run {record.name} has not counted enough sleeps of its devices",
            hint="its programs polled all the time, or collect.counters is off",
        )
    wakes = sum(one["wakes"] for one in sleeps)
    awake_ns = sum(one["awake_ns"] for one in sleeps) // max(wakes, 1)
    emulator = record.path_counters.get("turn_late_ns")
    return HostWakeup.model_validate(
        {
            "packet": packet or timer,
            "timer": timer or packet,
            "emulator": _named(emulator) if emulator else None,
            "awake": awake_ns,
        }
    )


def _merged(histograms: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Quantiles of several distributions together; none of too few sleeps."""
    import numpy as np

    total = sum(one["n"] for one in histograms)
    if total < _SLEEPS_MIN:
        return {}
    every = [one for one in histograms if one["n"]]
    shares = np.array([float(share) for share in every[0]["quantiles_ns"]])
    values = [np.array(list(one["quantiles_ns"].values()), dtype=float) for one in every]
    at = np.unique(np.concatenate(values))
    below = sum(
        one["n"] / total * np.interp(at, value, shares)
        for one, value in zip(every, values, strict=True)
    )
    found = np.interp(shares, below, at)
    return _named(
        {share: round(ns) for share, ns in zip(every[0]["quantiles_ns"], found, strict=True)}
    )


def _named(quantiles: Mapping[str, int]) -> dict[str, int]:
    """Share -> ns as name -> ns: 0.5 is p50."""
    return {f"p{float(share) * 100:g}": ns for share, ns in quantiles.items()}
