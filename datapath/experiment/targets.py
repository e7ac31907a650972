# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Delays that algorithms aim at, beside the RTT of the path that they are to fill."""

from __future__ import annotations

from collections.abc import Mapping

from datapath.cc import CompiledAlgorithm
from datapath.experiment.load import LoadedExperiment
from datapath.experiment.preflight import cc_key
from datapath.experiment.spec import PointSpec
from datapath.units import format_duration_ns
from datapath.workloads.traffic.ideal import framing


def remarks(experiment: LoadedExperiment, compiled: Mapping[str, CompiledAlgorithm]) -> list[str]:
    """What to tell of parameters that are below the RTT of a path without a queue."""
    longest: dict[tuple[str, str, float], int] = {}
    for point in experiment.points:
        rtt_ns = empty_rtt_ns(point.spec)
        for cc in point.spec.algorithms.values():
            if cc_key(cc) not in compiled:
                continue
            made = compiled[cc_key(cc)]
            for field in made.algorithm.params:
                if field.above_rtt and made.params[field.name] < rtt_ns:
                    key = made.name, field.name, made.params[field.name]
                    longest[key] = max(longest.get(key, 0), rtt_ns)
    return [
        f"{algorithm} aims at RTTs of {format_duration_ns(round(value))} ({name}), and a path of "
        f"this file has {format_duration_ns(round(rtt_ns, -3))} without a queue: flows will use "
        f"little of it; raise cc.{name}"
        for (algorithm, name, value), rtt_ns in longest.items()
    ]


def empty_rtt_ns(spec: PointSpec) -> int:
    """RTT of a full packet over the section `path` once, as far as the file tells it."""
    forward, backward = spec.path.link("forward"), spec.path.link("backward")
    packet_ns = 0.0
    if forward.rate_bps:
        frame = framing(spec.transport, spec.topology.mtu)
        packet_ns = (frame.payload + frame.overhead) * 8e9 / forward.rate_bps
    return round(forward.delay_ns + backward.delay_ns + packet_ns)
