# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Mistakes in the network of a point that no machine could make good."""

from __future__ import annotations

from collections.abc import Iterator

from datapath.errors import LocalError
from datapath.experiment.spec import PointSpec
from datapath.fabric.links import Policer, frame_bytes
from datapath.lanes.link_events import link_changes
from datapath.lanes.shape import refuse_lossless, shape
from datapath.places import Path
from datapath.xdp.impair import DIRECTIONS


def mistakes(spec: PointSpec) -> Iterator[tuple[Path, LocalError]]:
    """Each with its place in the file."""
    yield from _policers(spec)
    yield from _hook(spec)
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
    for place, what, policer in _buckets(spec):
        if policer.burst_bytes < largest:
            yield (
                place,
                LocalError(
                    f"a burst of {policer.burst_bytes} bytes passes no {what} of "
                    f"topology.mtu {spec.topology.mtu}, which takes {largest} on the wire",
                    hint=f"give a burst of {largest}B or more",
                ),
            )


def _buckets(spec: PointSpec) -> Iterator[tuple[Path, str, Policer]]:
    """All policers, each with its place and what it polices."""
    for direction in DIRECTIONS:
        policer = spec.path.link(direction).policer
        if policer is not None:
            own = getattr(spec.path, direction)
            place = ("path", direction, "policer") if own and own.policer else ("path", "policer")
            yield place, f"{direction} packet", policer
    links = spec.topology.graph.links if spec.topology.graph else []
    for index, link in enumerate(links):
        if link.policer is not None:
            yield ("topology", "graph", "links", index, "policer"), "packet", link.policer.setting()
    for index, event in enumerate(spec.events):
        if event.path is not None and event.path.policer is not None:
            yield ("events", index, "path", "policer"), "packet", event.path.policer.setting()


def _hook(spec: PointSpec) -> Iterator[tuple[Path, LocalError]]:
    """A program of the user's own where the network has no place for it."""
    topology = spec.topology
    if spec.xdp is None or not topology.of_lane.hooks:
        return
    hook = spec.xdp.hook
    carrier = "fabric" if topology.has_links else spec.path.carrier
    problem = None
    if hook.startswith("middle-"):
        if carrier != "bpf":
            problem = LocalError(
                f"path backend {carrier} has no XDP hook {hook}",
                hint="use a host's hook, or a path that backend bpf can make",
            )
    elif hook not in topology.host_names:
        problem = LocalError(
            f"there is no host {hook}",
            hint="name one of the hosts so, or use another hook",
        )
    elif spec.transport.uses_afxdp:
        problem = LocalError(
            f"a port of kind afxdp has an XDP program of its own at {hook}",
            hint="use transport: {port: udp}, or a hook in the middle",
        )
    if problem is not None:
        yield ("xdp", "hook"), problem
