# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Algorithms that read telemetry or marks, where a file sets only one of the two keys for them."""

from __future__ import annotations

from collections.abc import Iterator

from datapath.cc import load
from datapath.cc.subset import analyse
from datapath.experiment.load import LoadedExperiment
from datapath.experiment.spec import PointSpec
from datapath.lanes.spec import Path

_HOPS = frozenset({"ack.hop", "data.hop"})
_MARKS = frozenset({"ack.marked_bytes", "data.marked", "on_cnp"})
_OTHERS = frozenset(
    f"ack.{name}" for name in ("rtt_ns", "back_ns", "lost_bytes", "delivery_rate_bps")
)
_BOTH = "path.telemetry and transport.options.telemetry"


def remarks(experiment: LoadedExperiment) -> list[str]:
    """What to tell of a signal that an algorithm reads and does not get.

    A key that is set to false is meant so.
    """
    found: dict[str, None] = {}
    known: dict[str, tuple[str, frozenset[str]]] = {}
    for point in experiment.points:
        spec = point.spec
        lane = spec.topology.of_lane
        if spec.transport.device != "dp" or not (lane.local or lane.simulated):
            continue
        for cc in spec.algorithms.values():
            name = cc.located(experiment.folder)
            if name not in known:
                known[name] = _signals(name)
            found |= dict.fromkeys(_lacking(*known[name], spec))
    return list(found)


def _signals(name: str) -> tuple[str, frozenset[str]]:
    """The name of an algorithm, and what its functions read and are called for."""
    algorithm = load(name)
    return algorithm.name, frozenset({*analyse(algorithm).reads, *algorithm.hooks})


def _lacking(name: str, reads: frozenset[str], spec: PointSpec) -> Iterator[str]:
    if reads & _HOPS:
        yield from _telemetry(name, reads, spec)
    key = _marking(spec.path)
    if reads & _MARKS and key and "ecn" not in spec.transport.model_fields_set:
        yield (
            f"{name} reads marks, and transport.ecn is not set: packets are not ECN-capable, and "
            f"{key} marks none of them; set {key} and transport.ecn: true"
        )


def _telemetry(name: str, reads: frozenset[str], spec: PointSpec) -> Iterator[str]:
    path, options = spec.path.telemetry, spec.transport.options
    own = options.telemetry if "telemetry" in options.model_fields_set else None
    if path and own is None:
        yield (
            f"{name} reads telemetry, and transport.options.telemetry is not set: packets have no "
            f"room for what path.telemetry would write; set {_BOTH}"
        )
    elif own and path is None:
        yield (
            f"{name} reads telemetry, and path.telemetry is not set: no link writes into the room "
            f"that packets have by transport.options.telemetry; set {_BOTH}"
        )
    elif own is path is None and not reads & (_OTHERS | _MARKS):
        yield (f"{name} knows of a queue from telemetry alone, and this file has none; set {_BOTH}")


def _marking(path: Path) -> str:
    """The key by which packets that are ECN-capable would be marked, "" without one."""
    parts = [part for part in (path, path.forward, path.backward) if part is not None]
    if any(part.ecn is not None for part in parts):
        return "path.ecn"
    return "path.ecn_mark" if any(part.ecn_mark for part in parts) else ""
