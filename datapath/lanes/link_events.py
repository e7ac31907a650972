# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `events` section as changes of a network, simulated or emulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from datapath.fabric.changes import Change, SetLink, SetRoute, StallHost
from datapath.fabric.links import Link, Loss
from datapath.fabric.topology import Graph
from datapath.lanes.event_spec import Event, path_changes, stalls
from datapath.lanes.shape import changed_arguments, joined, shape
from datapath.lanes.spec import ONE_PATH, Path, Topology


def all_changes(topology: Topology, path: Path, events: Sequence[Event]) -> list[Change]:
    """Of links, routes and hosts."""
    return [
        *link_changes(topology, path, events),
        *(StallHost(*one) for one in stalls(events, topology.host_names)),
    ]


def link_changes(topology: Topology, path: Path, events: Sequence[Event]) -> list[Change]:
    """Changes of links and routes; LocalError for a link that is not there."""
    state = _Links(topology, path)
    changes: list[Change] = []
    of_path = path_changes(events, path) if topology.preset in ONE_PATH else iter(())
    for event in sorted(events, key=lambda one: one.at):
        if not event.about_links:
            continue
        if topology.preset in ONE_PATH:
            _, state.path = next(of_path)
        elif event.link is None:
            state.path = state.path.model_copy(update=_without_other_rate(event.path_keys))
        else:
            changes += state.change(event)
        changes += state.differing(event.at)
    return sorted(changes, key=lambda change: change.at_ns)


def _without_other_rate(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys; a rate takes the place of a trace, and the other way round."""
    return {
        **({"trace": None} if "rate" in keys else {}),
        **({"rate": None} if "trace" in keys else {}),
        **keys,
    }


class _Links:
    """The settings of all links as time goes on.

    own: link -> arguments of Link that events have set for it alone.  down: links that lose all.
    """

    def __init__(self, topology: Topology, path: Path) -> None:
        self.topology = topology
        self.path = path
        self.graph: Graph = shape(topology, path).graph()
        self.own: dict[int, dict[str, Any]] = {}
        self.down: set[int] = set()
        self.now = self._settings()

    def change(self, event: Event) -> Iterator[Change]:
        """Take up an event about one link; the changes of routes that follow from it."""
        assert event.link is not None
        arguments = changed_arguments(event.path_keys)
        for link in _numbers(self.graph, event.link):
            self.own[link] = joined(self.own.get(link, {}), arguments)
            if event.state == "down":
                self.down.add(link)
            elif event.state == "up":
                self.down.discard(link)
            if event.reroute is not None:
                yield SetRoute(event.at + event.reroute, link, event.state == "up")

    def differing(self, at_ns: int) -> Iterator[Change]:
        """The links whose settings are not what they were."""
        before, self.now = self.now, self._settings()
        for link, (old, new) in enumerate(zip(before, self.now, strict=True)):
            if old != new:
                yield SetLink(at_ns, link, new)

    def _settings(self) -> list[Link]:
        graph = shape(self.topology, self.path).graph()
        links = [link for cable in graph.cables for link in (cable.forward, cable.backward)]
        for link, arguments in self.own.items():
            before = {"impairments": links[link].impairments}
            links[link] = replace(links[link], **joined(before, arguments))
        for link in self.down:
            links[link] = replace(links[link], loss=Loss(good=1.0))
        return links


def _numbers(graph: Graph, name: str) -> list[int]:
    """The links of a name: a>b is one, a--b both directions."""
    both = "--" in name
    a, b = name.split("--" if both else ">")
    return [graph.link(a, b), *([graph.link(b, a)] if both else [])]
