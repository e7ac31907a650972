# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The links of a topology in the emulator, between the hosts' ports `port0`, `port1`, ...

A host's own link is emulated when it has a rate or a delay.  Otherwise the port is at the switch.
The two directions of a path are `forward` and `backward`; links of other presets have the names
of the simulator: `leaf0>spine1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from datapath.errors import DatapathError, LocalError
from datapath.fabric import emulation
from datapath.fabric.changes import SetLink, SetRoute
from datapath.fabric.emulation import Emulator, Port, Start, Wire
from datapath.fabric.links import Link
from datapath.fabric.topology import Graph
from datapath.lanes.base import PathCounters
from datapath.lanes.event_spec import Event
from datapath.lanes.link_events import link_changes
from datapath.lanes.local import link_address
from datapath.lanes.shape import (
    refuse_directions,
    refuse_lossless,
    refuse_shared_aqm,
    shape,
    traffic_classes,
)
from datapath.lanes.spec import ONE_PATH, TWO_SIDED, Path, Topology
from datapath.xdp.impair import DIRECTIONS, stream_seed

EARLY_NS = 45_000
"""How long before its date a frame may reach a host; less than DP_DATE_EARLY_NS of xdp/steer.h."""

_SEED_MASK = 2**64 - 1
_SUMS = (
    *("overflowed", "policed", "aqm_dropped", "shaped", "corrupted"),
    *("trimmed", "duplicated", "reordered"),
)
_OF_PORTS = ("exempt", "unstamped")
_LATE = ("late_p50_ns", "late_p99_ns", "late_max_ns")


class EmulatedLinks:
    """The emulator of one network, from construction to close()."""

    def __init__(self, topology: Topology, start: Start) -> None:
        self.topology = topology
        self._graph = shape(topology, Path()).graph()
        self._wires = dict(_wires(topology, self._graph))
        self._now: dict[int, Link] = {}
        self._path, self._seed = Path(), 0
        ports = list(_ports(topology, self._graph))
        _refuse_many(self._graph, ports, self._wires)
        self.emulator = Emulator(ports, list(self._wires.values()), start)

    def set_path(self, path: Path, seed: int, *, held: bool = False) -> None:
        """Make all links and routes anew, with the settings of a `path` section.

        held: as lanes.base.Network has it.
        """
        refuse_unemulated(self.topology, path)
        self._path, self._seed = path, seed
        self._now = {}
        graph = shape(self.topology, path).graph()
        if self.topology.buffer is not None:
            for name, buffer in zip(graph.names[graph.hosts :], graph.buffers, strict=True):
                self.emulator.share(name, buffer)
        for number, link in enumerate(_links(graph)):
            if number in self._wires:
                self._now[number] = self._stamping(number, link)
                self.emulator.configure(
                    self._wires[number].name, self._now[number], **self._beside(number)
                )
        self.emulator.reset_routes(seed & _SEED_MASK)
        self.emulator.hand_over_early(EARLY_NS if held and dates_frames(self.topology) else 0)

    def change(self, zero_ns: int, events: Sequence[Event], since_ns: int = 0) -> None:
        """Hand the emulator the changes that it will make at their times, from since_ns on.

        They take the place of those that it was told before.
        """
        self.emulator.forget_changes()
        for change in link_changes(self.topology, self._path, events):
            if change.at_ns < since_ns:
                continue
            if isinstance(change, SetRoute):
                name = self._wires[change.link].name
                self.emulator.route(zero_ns + change.at_ns, name, used=change.used)
            elif isinstance(change, SetLink):
                self._change_link(zero_ns + change.at_ns, change)

    def _change_link(self, at_ns: int, change: SetLink) -> None:
        if change.link not in self._wires:
            raise LocalError(
                f"{self._graph.link_names()[change.link]} has no rate and no delay, and so no link "
                "model",
                hint="give topology.host_rate or host_delay",
            )
        settings = self._stamping(change.link, change.settings)
        name = self._wires[change.link].name
        self.emulator.change(at_ns, name, settings, **self._beside(change.link))

    def counters(self) -> PathCounters:
        """Since set_path(): of the links that the path is about.

        In a network of many links, forward are those with even numbers, as in the simulator.
        """
        everything = self.emulator.counters()
        refused = [w.name for w in self._wires.values() if everything[w.name]["refused"]]
        if refused:
            raise DatapathError(f"link {refused[0]} could not take a change")
        counters = PathCounters()
        for parity, direction in enumerate(DIRECTIONS):
            numbers = [number for number in self._wires if number % 2 == parity]
            found = self._count(everything, numbers)
            for name, value in found.items():
                getattr(counters, name)[direction] = value
        return counters

    def _count(self, everything: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, int]:
        every = [everything[self._wires[number].name] for number in numbers]
        judged = every[:1] if self.topology.preset in ONE_PATH else every

        def total(name: str, rows: Sequence[Mapping[str, int]]) -> int:
            return sum(row[name] for row in rows)

        return {
            "passed": total("delivered", judged),
            "dropped": total("lost", judged),
            "marked": total("marked", judged) + total("random_marks", judged),
            **{name: total(name, judged) for name in _SUMS},
            "queue_max_bytes": max(row["queue_max_bytes"] for row in judged),
            **({"paused_ns": total("paused_ns", every)} if self.topology.lossless else {}),
            "starved": total("starved", every) + total("ring_drops", every),
            **{name: total(name, every) for name in _OF_PORTS},
            **{name: max(row[name] for row in every) for name in _LATE},
            "late_allowed_ns": emulation.allowed_lateness_ns(
                min(
                    (self._now[number].delay_ns for number in numbers if number in self._now),
                    default=0,
                )
            ),
        }

    def link_counters(self) -> dict[str, dict[str, int]]:
        """As lanes.base.Network."""
        everything = self.emulator.counters()
        return {
            wire.name: {
                **self._count(everything, [number]),
                "queue_bytes": everything[wire.name]["waiting_bytes"],
            }
            for number, wire in self._wires.items()
        }

    def queue_peaks(self) -> dict[str, int]:
        """The most bytes that waited since set_path(), by link."""
        everything = self.emulator.counters()
        return {w.name: everything[w.name]["queue_max_bytes"] for w in self._wires.values()}

    def late_ns(self) -> dict[str, int]:
        """As lanes.base.Network.emulator_late_ns()."""
        late = self.emulator.counters()["turn_late"]
        return dict(late["quantiles_ns"]) if late["n"] else {}

    def sampled(
        self, prefix: FilePath, interval_ns: int, max_bytes: int
    ) -> AbstractContextManager[None]:
        """Sample the queues of switches."""
        hosts = set(self._graph.names[: self._graph.hosts])
        names = [wire.name for wire in self._wires.values() if wire.start not in hosts]
        return self.emulator.sampled(prefix, interval_ns, max_bytes, names)

    def close(self) -> None:
        """End the program; safe to call twice."""
        self.emulator.close()

    def _stamping(self, number: int, link: Link) -> Link:
        """Switches write telemetry, NICs do not."""
        cable = self._graph.cables[number // 2]
        start = cable.b if number % 2 else cable.a
        return replace(link, telemetry=False) if start < self._graph.hosts else link

    def _beside(self, number: int) -> dict[str, Any]:
        """Facts of a link beside its settings."""
        wire = self._wires[number]
        marks = self._path.ecn_mark_of(DIRECTIONS[number % 2]) if wire.name in DIRECTIONS else 0.0
        return {"ecn_mark": marks, "seed": stream_seed(self._seed, wire.name, "link")}


def dates_frames(topology: Topology) -> bool:
    """Whether hosts get RoCEv2 frames with the time at which their last link let them go.

    Their steering program reads it, with the same clock.  Cards and machines do not know it.
    """
    return topology.lane == "netns" and not topology.vnic


def refuse_unemulated(topology: Topology, path: Path) -> None:
    """LocalError for a network that the emulator cannot make."""
    refuse_directions(path, topology.preset)
    refuse_shared_aqm(topology, path)
    refuse_lossless(topology, path)
    if topology.lossless is not None and not traffic_classes(path):
        raise LocalError(
            f"lane {topology.lane} pauses classes, by their DSCP",
            hint="give path.classes, one of them lossless: true",
        )
    if topology.preset in ONE_PATH:
        return
    if any(path.ecn_mark_of(direction) for direction in DIRECTIONS):
        raise LocalError(
            f"path.ecn_mark is of one path; preset {topology.preset} has many links",
            hint="use path.ecn, marks by the queue",
        )
    if path.rate is None and path.trace is None:
        raise LocalError(
            f"lane {topology.lane} emulates the links of preset {topology.preset} in real time",
            hint="give path.rate, such as 100mbit",
        )


def _links(graph: Graph) -> list[Link]:
    """By their numbers."""
    return [link for cable in graph.cables for link in (cable.forward, cable.backward)]


def _at_switch(topology: Topology) -> bool:
    """Whether the hosts' own links take no time."""
    without = topology.host_rate is None and topology.host_delay is None
    without &= topology.buffer is None
    return topology.preset in TWO_SIDED and without


def _wires(topology: Topology, graph: Graph) -> Iterator[tuple[int, Wire]]:
    """Number of a link in the graph, and what the emulator has of it."""
    for index, cable in enumerate(graph.cables):
        if _at_switch(topology) and min(cable.a, cable.b) < graph.hosts:
            continue
        ends = (graph.names[cable.a], graph.names[cable.b])
        names = [f"{a}>{b}" for a, b in (ends, ends[::-1])]
        if topology.preset in ONE_PATH and not index:
            names = list(DIRECTIONS)
        yield 2 * index, Wire(names[0], *ends)
        yield 2 * index + 1, Wire(names[1], *ends[::-1])


def _ports(topology: Topology, graph: Graph) -> Iterator[Port]:
    """A port for each host; two hosts reach each other whatever their link addresses."""
    switch = {
        min(cable.a, cable.b): max(cable.a, cable.b)
        for cable in graph.cables
        if min(cable.a, cable.b) < graph.hosts
    }
    for host in range(graph.hosts):
        node = switch[host] if _at_switch(topology) else host
        mac = "" if graph.hosts == 2 else link_address(host)
        yield Port(f"port{host}", graph.names[node], mac, dated=dates_frames(topology))


def _refuse_many(graph: Graph, ports: Sequence[Port], wires: Mapping[int, Wire]) -> None:
    """LocalError for more than the emulator has room for."""
    for what, count, most in (
        ("hosts", len(ports), emulation.PORTS_MAX),
        ("hosts and switches", len(graph.names), emulation.NODES_MAX),
        ("links", len(wires), emulation.WIRES_MAX),
    ):
        if count > most:
            raise LocalError(
                f"the emulator has at most {most} {what}, and this network has {count}",
                hint="use topology: {lane: sim}",
            )
