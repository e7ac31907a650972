# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How late the programs of a live run woke, as a value of topology.wakeup of lane sim.

The thread of each device counts for each sleep how long after its end the thread ran, and for
how long it was then awake; so does the emulator of the link (io/device.h, fabric/emulator/).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from datapath import lanes
from datapath.errors import RunFailed
from datapath.experiment import live, preflight
from datapath.experiment.load import load_text
from datapath.experiment.measuring import Conditions
from datapath.experiment.store import RunRecord, to_yaml
from datapath.lanes.wakeup_spec import HostWakeup

if TYPE_CHECKING:
    from datapath.experiment.spec import PointSpec
    from datapath.lanes.base import Network

_SLEEPS_MIN = 100
"""Fewer of a kind tell no distribution."""

_LONGEST = 0.999
"""Share of the sleeps that tells of a machine, and not of one run.

The slowest thousandth has the stops of the whole machine, and a few of them do not tell how rare
they are.
"""

_KINDS = ("packet", "timer")
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Report:
    """The measured delays, and their conditions.  sleeps: kind -> number of sleeps counted."""

    setting: HostWakeup
    sleeps: Mapping[str, int]
    scheduling: str
    kept_awake: int
    trouble: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """The content of a file that topology.wakeup may name."""
        about = {
            "scheduling": self.scheduling,
            "cpus_kept_awake": self.kept_awake,
            "sleeps": self.sleeps,
        }
        return {"about": about, **self.setting.model_dump(mode="json")}


def measure(
    topology: Mapping[str, object], *, rate_bps: int, delay_ns: int, cc: str, seconds: int
) -> Report:
    """Run one stream over an emulated link for so many seconds.

    topology: keys of it for lane netns.  RunFailed when the devices slept too seldom.
    """
    experiment = load_text(
        to_yaml(
            {
                "version": 1,
                "name": "wakeup",
                "topology": {"lane": "netns", "preset": "p2p", "mtu": "4400B", **topology},
                "path": {
                    "backend": "fabric",
                    "rate": f"{rate_bps}bit",
                    "delay": f"{delay_ns}ns",
                    "queue": "256KiB",
                },
                "transport": {"device": "dp", "port": "afxdp", "options": {"segment": 4096}},
                "cc": {"algo": cc},
                "workload": {
                    "kind": "stream",
                    "size": "32KiB",
                    "depth": 8,
                    "duration": f"{seconds}s",
                },
            }
        ).decode(),
        Path("wakeup.yaml"),
    )
    preflight.check(experiment)
    spec = experiment.points[0].spec
    algorithms = preflight.compile_algorithms(experiment)
    with tempfile.TemporaryDirectory(prefix="datapath-wakeup-") as folder:
        conditions = Conditions(
            collect=experiment.spec.collect,
            folder=Path(),
            logs=Path(folder),
            seed=1,
            traffic_seed=1,
            timeout_s=seconds + _PATIENCE_S,
        )
        record = _record(spec)
        with lanes.open_network(spec.topology, spec.path) as network:
            about = cast(Mapping[str, Any], network.describe()["cpu"])

            def opened() -> Network:
                return network

            live.measure(spec, opened, conditions, algorithms, record)
    return Report(
        measured(record, longest=_LONGEST),
        {kind: sum(one[kind]["n"] for one in _sleeps(record)) for kind in _KINDS},
        about["scheduling"],
        about["kept_awake"],
        about["trouble"],
    )


def _record(spec: PointSpec) -> RunRecord:
    return RunRecord(
        point="wakeup",
        repetition=0,
        block=0,
        axes={},
        seed=1,
        status="ok",
        started="",
        seconds=0.0,
        spec=spec.model_dump(mode="json"),
    )


def _sleeps(record: RunRecord) -> list[dict[str, Any]]:
    return [entry["sleeps"] for entry in record.device if "sleeps" in entry]


def measured(record: RunRecord, longest: float = 1.0) -> HostWakeup:
    """How late the programs of a live run woke; RunFailed when it has not counted enough.

    longest: the highest share of which the quantile is kept.
    """
    sleeps = _sleeps(record)
    packet, timer = (_merged([one[kind] for one in sleeps], longest) for kind in _KINDS)
    if not packet and not timer:
        raise RunFailed(
            f"run {record.name} has not counted enough sleeps of its devices",
            hint="its programs polled all the time, or collect.counters is off",
        )
    wakes = sum(one["wakes"] for one in sleeps)
    awake_ns = sum(one["awake_ns"] for one in sleeps) // max(wakes, 1)
    emulator = record.emulator_late_ns
    return HostWakeup.model_validate(
        {
            "packet": packet or timer,
            "timer": timer or packet,
            "emulator": _named(emulator, longest) if emulator else None,
            "awake": awake_ns,
        }
    )


def _merged(histograms: Sequence[Mapping[str, Any]], longest: float) -> dict[str, int]:
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
    together = {share: round(ns) for share, ns in zip(every[0]["quantiles_ns"], found, strict=True)}
    return _named(together, longest)


def _named(quantiles: Mapping[str, int], longest: float) -> dict[str, int]:
    """Share -> ns as name -> ns: 0.5 is p50."""
    return {
        f"p{float(share) * 100:g}": ns for share, ns in quantiles.items() if float(share) <= longest
    }
