# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `events` section as changes of a network, simulated or emulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from datapath.fabric.changes import Algorithm, Change, SetAlgorithm, SetLink, SetRoute, StallHost
from datapath.fabric.flows import CC
from datapath.fabric.links import Link, Loss
from datapath.fabric.topology import Graph
from datapath.lanes.event_spec import Event, numbers_of, path_changes, stalls
from datapath.lanes.happening import Seen, Watch
from datapath.lanes.shape import changed_arguments, joined, shape
from datapath.lanes.spec import ONE_PATH, Path, Topology
from datapath.spelling import or_rather
from datapath.xdp.impair import DIRECTIONS


def all_changes(topology: Topology, path: Path, events: Sequence[Event]) -> list[Change]:
    """Of links, routes and hosts, by events that have a time."""
    return [
        *link_changes(topology, path, events),
        *(StallHost(*one) for one in stalls(events, topology.host_names)),
    ]


def link_changes(topology: Topology, path: Path, events: Sequence[Event]) -> list[Change]:
    """Changes of links and routes; LocalError for a link that is not there."""
    state = _Links(topology, path)
    changes: list[Change] = []
    of_path = path_changes(events, path) if topology.preset in ONE_PATH else iter(())
    for event in sorted(events, key=lambda one: one.time):
        if not event.about_links:
            continue
        if topology.preset in ONE_PATH:
            _, state.path = next(of_path)
        elif event.link is None and event.node is None:
            state.path = state.path.model_copy(update=_without_other_rate(event.path_keys))
        else:
            state.change(event)
        changes += state.differing(event.time)
    return sorted([*state.routes(), *changes], key=lambda change: change.at_ns)


def _without_other_rate(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys; a rate takes the place of a trace, and the other way round."""
    return {
        **({"trace": None} if "rate" in keys else {}),
        **({"rate": None} if "trace" in keys else {}),
        **keys,
    }


class _Links:
    """The settings of all links as time goes on.

    own: link -> arguments of Link that events have set for it alone.  down: names of the links and
    nodes that events have taken down.  rerouted: when routes follow, and for which link.
    """

    def __init__(self, topology: Topology, path: Path) -> None:
        self.topology = topology
        self.path = path
        self.graph: Graph = shape(topology, path).graph()
        self.own: dict[int, dict[str, Any]] = {}
        self.down: set[str] = set()
        self.rerouted: list[tuple[int, int]] = []
        self._dead_since: list[tuple[int, set[int]]] = []
        self.now = self._settings()

    def change(self, event: Event) -> None:
        """Take up an event about a link or a node."""
        name = event.link or event.node
        assert name is not None
        arguments = changed_arguments(event.path_keys)
        for link in _numbers(self.graph, name):
            self.own[link] = joined(self.own.get(link, {}), arguments)
        if event.state == "down":
            self.down |= self._parts(name)
        elif event.state == "up":
            self.down -= self._parts(name)
        self._dead_since.append((event.time, self._dead()))
        if event.reroute is not None:
            due = event.time + event.reroute
            self.rerouted += [(due, link) for link in self._with_a_choice(name)]

    def routes(self) -> Iterator[Change]:
        """Routes follow the state that a link has by then; events may have come in between."""
        for due, link in self.rerouted:
            dead = next(dead for since, dead in reversed(self._dead_since) if since <= due)
            yield SetRoute(due, link, link not in dead)

    def differing(self, at_ns: int) -> Iterator[Change]:
        """The links whose settings are not what they were."""
        before, self.now = self.now, self._settings()
        for link, (old, new) in enumerate(zip(before, self.now, strict=True)):
            if old != new:
                yield SetLink(at_ns, link, new)

    def _with_a_choice(self, name: str) -> Iterator[int]:
        """The links of a name between switches; a host has one link, and no other way."""
        for link in _numbers(self.graph, name):
            cable = self.graph.cables[link // 2]
            if min(cable.a, cable.b) >= self.graph.hosts:
                yield link

    def _parts(self, name: str) -> set[str]:
        """A node, or the directions of a link."""
        if nodes := numbers_of(name, self.graph.names):
            return {self.graph.names[node] for node in nodes}
        names = self.graph.link_names()
        return {names[link] for link in _numbers(self.graph, name)}

    def _dead(self) -> set[int]:
        """The links that lose everything."""
        return {link for name in self.down for link in _numbers(self.graph, name)}

    def _settings(self) -> list[Link]:
        graph = shape(self.topology, self.path).graph()
        links = [link for cable in graph.cables for link in (cable.forward, cable.backward)]
        for link, arguments in self.own.items():
            before = {"impairments": links[link].impairments}
            links[link] = replace(links[link], **joined(before, arguments))
        for link in self._dead():
            links[link] = replace(links[link], loss=Loss(good=1.0))
        return links


class Watched:
    """The changes of a simulation that follow from its events: datapath.fabric.changes.Watcher.

    algorithms: those that orders name, from 0.
    """

    def __init__(
        self, topology: Topology, path: Path, watch: Watch, algorithms: Sequence[Algorithm] = ()
    ) -> None:
        self._topology, self._path, self._watch = topology, path, watch
        self._algorithms = algorithms
        self._names = shape(topology, path).graph().link_names()

    @property
    def look_ns(self) -> int:
        return self._watch.look_ns

    def changes(self) -> list[Change]:
        return [
            *all_changes(self._topology, self._path, self._watch.events),
            *(
                SetAlgorithm(order.at_ns, self._algorithms[order.cc], (order.flow,))
                if order.what == CC
                else order
                for order in self._watch.orders
            ),
        ]

    def look(self, now_ns: int, results: Any, queue_peak: Callable[[str], int]) -> bool:
        def peak(name: str) -> int:
            # The directions of a path are the first two links.
            return queue_peak(self._names[DIRECTIONS.index(name)] if name in DIRECTIONS else name)

        orders = self._watch.orders
        happened = self._watch.look(Seen(now_ns, results, peak))
        return bool(happened) or self._watch.orders is not orders


def check_links(topology: Topology, path: Path, events: Sequence[Event]) -> None:
    """ValueError for an event or a condition that names a link or node that is not there."""
    asked = [event.when.link for event in events if event.when is not None]
    named = [name for name in (*asked, *(event.link for event in events)) if name is not None]
    nodes = [event.node for event in events if event.node is not None]
    if not named and not nodes:
        return
    graph = shape(topology, path).graph()
    for node in nodes:
        if not numbers_of(node, graph.names):
            raise ValueError(f"there is no node {node}{or_rather(node, graph.names[:64], 'nodes')}")
    there = graph.link_names()
    for name in named:
        if (one := name.replace("--", ">")) not in there:
            raise ValueError(f"there is no link {name}{or_rather(one, there[:64], 'links')}")


def _numbers(graph: Graph, name: str) -> list[int]:
    """The links of a name: a>b is one, a--b both directions, a all of a node."""
    if nodes := set(numbers_of(name, graph.names)):
        mine = [index for index, c in enumerate(graph.cables) if nodes & {c.a, c.b}]
        return [2 * index + way for index in mine for way in (0, 1)]
    both = "--" in name
    a, b = name.split("--" if both else ">")
    return [graph.link(a, b), *([graph.link(b, a)] if both else [])]
