# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Topologies of the simulator: hosts, switches, and cables between them.

Each is a small dataclass; `graph()` lists its cables.  Hosts are numbered from 0, and switches
behind them.  A switch sends along all shortest paths, by the hash of the flow (ECMP).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from datapath.errors import LocalError
from datapath.fabric.links import Link, SharedBuffer
from datapath.fabric.members import check_whole


@dataclass(frozen=True)
class Cable:
    """Two nodes and a link in each direction; link 2i of cable i leads from a to b."""

    a: int
    b: int
    forward: Link
    backward: Link


@dataclass(frozen=True)
class Graph:
    """The network as the simulator takes it; a topology, too.

    names: of all nodes, hosts first.  buffers: of each switch, None: queues by themselves.
    """

    name: ClassVar[str] = "graph"
    hosts: int
    names: tuple[str, ...]
    cables: tuple[Cable, ...]
    buffers: tuple[SharedBuffer | None, ...] = ()

    def graph(self) -> Graph:
        return self

    @property
    def switches(self) -> int:
        return len(self.names) - self.hosts

    def link_names(self) -> list[str]:
        """`a>b` of each direction, in the order of links."""
        return [
            f"{self.names[x]}>{self.names[y]}"
            for cable in self.cables
            for x, y in ((cable.a, cable.b), (cable.b, cable.a))
        ]

    def host_link(self, host: int) -> Link:
        """From a host to its switch."""
        for cable in self.cables:
            if host in (cable.a, cable.b):
                return cable.forward if cable.a == host else cable.backward
        raise LocalError(f"{self.names[host]} has no link")

    def link(self, a: str, b: str) -> int:
        """Number of the link from node a to node b; LocalError when there is none."""
        names = self.link_names()
        if f"{a}>{b}" not in names:
            raise LocalError(f"there is no link from {a} to {b}", hint=f"links: {names[:8]} ...")
        return names.index(f"{a}>{b}")


class Topology(Protocol):
    """Anything that makes a graph."""

    name: ClassVar[str]

    def graph(self) -> Graph: ...


def _at_least(topology: object, **dimensions: int) -> None:
    for name, value in dimensions.items():
        check_whole(topology, name, value)
        if value < 1:
            raise LocalError(f"{type(topology).__name__}: {name} is {value}, at least 1 is needed")


def _build(
    hosts: list[str], switches: list[str], cables: Iterator[Cable], buffer: SharedBuffer | None
) -> Graph:
    return Graph(len(hosts), (*hosts, *switches), tuple(cables), tuple(buffer for _ in switches))


@dataclass(frozen=True)
class Dumbbell:
    """`pairs` hosts on the left, as many on the right, one shared link.

    Host i and host pairs + i face each other.  backward: the shared link from right to left,
    unset: as bottleneck.
    """

    name: ClassVar[str] = "dumbbell"
    pairs: int = 1
    edge: Link = field(default_factory=Link)
    bottleneck: Link = field(default_factory=Link)
    backward: Link | None = None
    buffer: SharedBuffer | None = None

    def graph(self) -> Graph:
        _at_least(self, pairs=self.pairs)
        count = 2 * self.pairs
        hosts = [f"host{i}" for i in range(count)]
        back = self.bottleneck if self.backward is None else self.backward

        def cables() -> Iterator[Cable]:
            yield Cable(count, count + 1, self.bottleneck, back)
            for i in range(count):
                yield Cable(i, count + i // self.pairs, self.edge, self.edge)

        return _build(hosts, ["left", "right"], cables(), self.buffer)


@dataclass(frozen=True)
class Star:
    """Hosts around one switch.  downlink: from the switch to each host, unset: as edge."""

    name: ClassVar[str] = "star"
    hosts: int = 2
    edge: Link = field(default_factory=Link)
    downlink: Link | None = None
    buffer: SharedBuffer | None = None

    def graph(self) -> Graph:
        if self.hosts < 2:
            raise LocalError(f"Star: hosts is {self.hosts}, at least 2 are needed")
        hosts = [f"host{i}" for i in range(self.hosts)]
        down = self.edge if self.downlink is None else self.downlink
        cables = (Cable(i, self.hosts, self.edge, down) for i in range(self.hosts))
        return _build(hosts, ["switch"], cables, self.buffer)


@dataclass(frozen=True)
class LeafSpine:
    """Hosts on leaves, every leaf joined to every spine: two-level Clos."""

    name: ClassVar[str] = "leaf-spine"
    leaves: int = 2
    spines: int = 2
    hosts_per_leaf: int = 2
    edge: Link = field(default_factory=Link)
    core: Link = field(default_factory=Link)
    buffer: SharedBuffer | None = None

    def graph(self) -> Graph:
        _at_least(self, leaves=self.leaves, spines=self.spines, hosts_per_leaf=self.hosts_per_leaf)
        count = self.leaves * self.hosts_per_leaf
        hosts = [f"host{i}" for i in range(count)]
        switches = [f"leaf{i}" for i in range(self.leaves)]
        switches += [f"spine{i}" for i in range(self.spines)]

        def cables() -> Iterator[Cable]:
            for i in range(count):
                yield Cable(i, count + i // self.hosts_per_leaf, self.edge, self.edge)
            for leaf in range(self.leaves):
                for spine in range(self.spines):
                    yield Cable(count + leaf, count + self.leaves + spine, self.core, self.core)

        return _build(hosts, switches, cables(), self.buffer)


@dataclass(frozen=True)
class FatTree:
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core switches, k^3/4 hosts.

    Al-Fares, Loukissas and Vahdat, SIGCOMM 2008, section 3.
    """

    name: ClassVar[str] = "fat-tree"
    k: int = 4
    edge: Link = field(default_factory=Link)
    core: Link = field(default_factory=Link)
    buffer: SharedBuffer | None = None

    def graph(self) -> Graph:
        if self.k < 2 or self.k % 2:
            raise LocalError(f"FatTree: k is {self.k}, which has to be an even number")
        half, k = self.k // 2, self.k
        count = k * half * half
        hosts = [f"host{i}" for i in range(count)]
        edges, aggregations = count, count + k * half
        cores = aggregations + k * half
        switches = [f"edge{pod}-{i}" for pod in range(k) for i in range(half)]
        switches += [f"aggregation{pod}-{i}" for pod in range(k) for i in range(half)]
        switches += [f"core{i}" for i in range(half * half)]

        def cables() -> Iterator[Cable]:
            for i in range(count):
                yield Cable(i, edges + i // half, self.edge, self.edge)
            for pod in range(k):
                for i in range(half):
                    for j in range(half):
                        lower, upper = edges + pod * half + i, aggregations + pod * half + j
                        yield Cable(lower, upper, self.core, self.core)
            for pod in range(k):
                for j in range(half):
                    for i in range(half):
                        upper = aggregations + pod * half + j
                        yield Cable(upper, cores + j * half + i, self.core, self.core)

        return _build(hosts, switches, cables(), self.buffer)


@dataclass(frozen=True)
class Rail:
    """Servers of several NICs, NIC r of every server on rail switch r; spines join the rails.

    Each NIC is a host: NIC r of server s is host s * rails + r.  What joins the NICs inside a
    server is not part of it: traffic between rails crosses a spine.
    """

    name: ClassVar[str] = "rail"
    servers: int = 2
    rails: int = 8
    spines: int = 2
    edge: Link = field(default_factory=Link)
    core: Link = field(default_factory=Link)
    buffer: SharedBuffer | None = None

    def graph(self) -> Graph:
        _at_least(self, servers=self.servers, rails=self.rails, spines=self.spines)
        count = self.servers * self.rails
        hosts = [f"server{i // self.rails}-nic{i % self.rails}" for i in range(count)]
        switches = [f"rail{i}" for i in range(self.rails)]
        switches += [f"spine{i}" for i in range(self.spines)]

        def cables() -> Iterator[Cable]:
            for i in range(count):
                yield Cable(i, count + i % self.rails, self.edge, self.edge)
            for rail in range(self.rails):
                for spine in range(self.spines):
                    yield Cable(count + rail, count + self.rails + spine, self.core, self.core)

        return _build(hosts, switches, cables(), self.buffer)


@dataclass(frozen=True)
class ParkingLot:
    """A chain of switches; each of its `hops` links is a bottleneck (RFC 5166, section 3.2.3).

    Host 0 is at one end and host 1 at the other: what they send crosses every hop.  Hosts 2 + 2i
    and 3 + 2i are before and behind hop i alone.  backward: the hops from the last switch to the
    first, unset: as hop.
    """

    name: ClassVar[str] = "parking-lot"
    hops: int = 2
    edge: Link = field(default_factory=Link)
    hop: Link = field(default_factory=Link)
    backward: Link | None = None
    buffer: SharedBuffer | None = None

    def graph(self) -> Graph:
        _at_least(self, hops=self.hops)
        count = 2 * self.hops + 2
        hosts = [f"host{i}" for i in range(count)]
        switches = [f"switch{i}" for i in range(self.hops + 1)]
        back = self.hop if self.backward is None else self.backward

        def cables() -> Iterator[Cable]:
            for i in range(self.hops):
                yield Cable(count + i, count + i + 1, self.hop, back)
            yield Cable(0, count, self.edge, self.edge)
            yield Cable(1, count + self.hops, self.edge, self.edge)
            for i in range(self.hops):
                yield Cable(2 + 2 * i, count + i, self.edge, self.edge)
                yield Cable(3 + 2 * i, count + i + 1, self.edge, self.edge)

        return _build(hosts, switches, cables(), self.buffer)


@dataclass(frozen=True)
class Custom:
    """Any graph; the hosts come first in `names`, and each has one cable, to a switch."""

    name: ClassVar[str] = "graph"
    hosts: int
    names: tuple[str, ...]
    cables: tuple[Cable, ...]
    buffer: SharedBuffer | None = None

    def graph(self) -> Graph:
        buffers = tuple(self.buffer for _ in self.names[self.hosts :])
        return Graph(self.hosts, self.names, self.cables, buffers)
