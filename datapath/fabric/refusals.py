# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which member of a network or of its transport a simulation refuses.

The rules are in C, beside what needs them, and C only says that something is wrong.  Here members
are given their defaults, one after another, until it agrees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, replace
from typing import Any

from datapath.errors import LocalError
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link
from datapath.fabric.topology import Cable, Graph


def reason(
    graph: Graph, options: EngineOptions, accepts: Callable[[Graph, EngineOptions], bool]
) -> LocalError:
    """Why a simulation is refused.  accepts: whether one can be made of these."""
    for what in _faults(graph):
        return LocalError(f"this is no network: {what}", hint="see datapath.fabric.topology.Graph")
    plain = _star(Link())
    if not accepts(plain, options):
        return _named(options, lambda other: accepts(plain, other))
    for number, link in enumerate(way for c in graph.cables for way in (c.forward, c.backward)):
        if not accepts(_star(link), options):
            error = _named(link, lambda other: accepts(_star(other), options))
            return LocalError(f"link {graph.link_names()[number]}: {error}", hint=error.hint)
    if not accepts(graph, options):
        return LocalError(
            "the switches refuse their SharedBuffer",
            hint="headroom_bytes of each port and lossless class fit into total_bytes, and "
            "xon_bytes is at most xoff_bytes; links with an aqm or trim have no shared buffer",
        )
    return LocalError(
        "the simulator refuses what is beside network and transport",
        hint="trace_events is 0 or a power of two, up to 2**20; see datapath.fabric.wakeup",
    )


def _faults(graph: Graph) -> Iterator[str]:
    """What keeps a graph from being a network."""
    nodes = range(len(graph.names))
    for cable in graph.cables:
        if cable.a not in nodes or cable.b not in nodes or cable.a == cable.b:
            yield f"a cable from node {cable.a} to node {cable.b} of {len(nodes)} nodes"
            return
    if graph.hosts < 2:
        yield f"it has {graph.hosts} hosts, at least 2 are needed"
    links = Counter(end for cable in graph.cables for end in (cable.a, cable.b))
    for host in range(graph.hosts):
        if links[host] != 1:
            yield f"host {graph.names[host]} has {links[host]} cables, and needs one"
    far = set(range(graph.hosts)) - _reached(graph)
    if far:
        yield f"no way leads from {graph.names[0]} to {graph.names[min(far)]}"


def _reached(graph: Graph) -> set[int]:
    """The nodes to which a way leads from the first."""
    near: dict[int, list[int]] = {}
    for cable in graph.cables:
        near.setdefault(cable.a, []).append(cable.b)
        near.setdefault(cable.b, []).append(cable.a)
    found, todo = {0}, [0]
    while todo:
        more = set(near.get(todo.pop(), [])) - found
        found |= more
        todo += more
    return found


def _star(link: Link) -> Graph:
    """The smallest network that has such a link, from its switch."""
    cables = (Cable(0, 2, Link(), link), Cable(1, 2, Link(), Link()))
    return Graph(2, ("host0", "host1", "switch"), cables)


def _named(settings: Any, accepts: Callable[[Any], bool]) -> LocalError:
    """The member without which it is accepted, or all that differ from their defaults."""
    set_ = [one for one in fields(settings) if getattr(settings, one.name) != _default(one)]
    for one in set_:
        if accepts(replace(settings, **{one.name: _default(one)})):
            set_ = [one]
            break
    told = ", ".join(f"{one.name} = {getattr(settings, one.name)!r}" for one in set_)
    kind = type(settings)
    return LocalError(
        f"{kind.__name__}: the simulator refuses {told}",
        hint=f"see {kind.__module__}.{kind.__name__} for what values may be",
    )


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()
