# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Mistakes in the network of a point that no machine could make good."""

from __future__ import annotations

from collections.abc import Iterator

from datapath.errors import LocalError
from datapath.experiment.spec import PointSpec
from datapath.fabric.links import frame_bytes
from datapath.lanes.link_events import link_changes
from datapath.lanes.shape import refuse_lossless, shape
from datapath.places import Path
from datapath.xdp.impair import DIRECTIONS


def mistakes(spec: PointSpec) -> Iterator[tuple[Path, LocalError]]:
    """Each with its place in the file."""
    yield from _policers(spec)
    if spec.topology.buffer is None or not spec.topology.of_lane.simulated:
        return
    try:
        refuse_lossless(spec.topology, spec.path)
        shape(spec.topology, spec.path)
    except LocalError as error:
        yield ("topology",), error
        return
    try:
        timed = [event for event in spec.events if event.when is None]
        link_changes(spec.topology, spec.path, timed)
    except LocalError as error:
        yield ("events",), error


def _policers(spec: PointSpec) -> Iterator[tuple[Path, LocalError]]:
    """A bucket that is smaller than a packet never lets one pass."""
    if spec.topology.of_lane.keeps_mtu:
        return
    largest = frame_bytes(spec.topology.mtu)
    for direction in DIRECTIONS:
        policer = spec.path.link(direction).policer
        if policer is not None and policer.burst_bytes < largest:
            own = getattr(spec.path, direction)
            place = ("path", direction, "policer") if own and own.policer else ("path", "policer")
            yield (
                place,
                LocalError(
                    f"a burst of {policer.burst_bytes} bytes passes no {direction} packet of "
                    f"topology.mtu {spec.topology.mtu}, which takes {largest} on the wire",
                    hint=f"give a burst of {largest}B or more",
                ),
            )
