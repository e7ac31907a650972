# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The sections `topology` and `path` as a network of links, for simulator and emulator.

What `path` says holds for

    p2p, dumbbell                      the one link between the two sides
    star                               the links from the switch to the hosts
    parking-lot                        the links between switches
    leaf-spine, fat-tree, rail, graph  likewise

and what it says of queues and marking for all links of the last row.

The hosts' own links have topology.host_rate and host_delay, and spoil nothing (in a star,
those to the hosts do).
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf, isinf
from typing import Any

from datapath.errors import LocalError
from datapath.fabric.links import (
    Link,
    QueueClass,
    SharedBuffer,
    classes_by_dscp,
    frame_bytes,
    headroom_bytes,
)
from datapath.fabric.topology import (
    Cable,
    Custom,
    Dumbbell,
    FatTree,
    Graph,
    LeafSpine,
    ParkingLot,
    Rail,
    Star,
)
from datapath.fabric.topology import Topology as Shape
from datapath.lanes.class_spec import pfc_mask, refuse_differing
from datapath.lanes.link_spec import LINK_KEYS, LinkSettings, given_arguments
from datapath.lanes.spec import ONE_PATH, TWO_SIDED, Path, Topology
from datapath.xdp.impair import DIRECTIONS

DEFAULT_RATE_BPS = 100_000_000_000
"""Of links in presets with more than one switch, unless the file gives another."""
DATA_CLASS = 1
"""Class of data where a class for packets without payload goes before it."""
DRAWN_NODES_MAX = 96
"""Networks of more nodes are not drawn, and not written into the manifest."""
_OF_QUEUES = ("limit_bytes", "marking", "aqm", "trim", "telemetry", "classes")
"""Settings that the links of hosts share with those between switches."""
_TWO_CLASSES = (QueueClass(), QueueClass())
"""Strict."""


def shape(topology: Topology, path: Path) -> Shape:
    """The topology of datapath.fabric that the two sections describe."""
    forward, backward = _switched(path.link("forward")), _switched(path.link("backward"))
    edge = host_link(topology, path)
    shared = topology.preset in TWO_SIDED
    if not shared and not forward.rate_bps and not forward.trace_ms:
        forward = replace(forward, rate_bps=DEFAULT_RATE_BPS)
    if shared:  # a link puts frames of a class that it does not have into its last one, for good
        edge = replace(edge, classes=forward.classes or backward.classes)
    else:
        edge = replace(edge, **{name: getattr(forward, name) for name in _OF_QUEUES})
    if topology.lossless is not None:
        edge, forward, backward = (
            replace(link, limit_bytes=0, classes=link.classes or _TWO_CLASSES)
            for link in (edge, forward, backward)
        )
    made = _assembled(topology, edge, forward, backward)
    refuse_differing(_links(made.graph()))
    _refuse_aqm_of_classes(made.graph())
    if topology.lossless is not None:
        return replace(made, buffer=_lossless_buffer(topology, made.graph()))
    if topology.buffer is not None:
        return replace(made, buffer=SharedBuffer(topology.buffer))
    return made


def _refuse_aqm_of_classes(graph: Graph) -> None:
    """LocalError for a link of a graph with an AQM, and classes that the path has."""
    for name, link in zip(graph.link_names(), _links(graph), strict=True):
        if link.aqm is not None and len(link.classes) > 1:
            raise LocalError(
                f"link {name}: aqm and classes exclude each other",
                hint="classes of path are of all links: give one of them up",
            )


def _links(graph: Graph) -> list[Link]:
    return [link for cable in graph.cables for link in (cable.forward, cable.backward)]


def _assembled(
    topology: Topology, edge: Link, forward: Link, backward: Link
) -> Dumbbell | Star | ParkingLot | LeafSpine | FatTree | Rail | Custom:
    """The topology, without buffers."""
    if topology.preset in ONE_PATH:
        return Dumbbell(topology.hosts // 2, edge, forward, backward)
    if topology.preset == "parking-lot":
        return ParkingLot(topology.hops, edge, forward, backward)
    if topology.preset == "graph":
        return _custom(topology, edge, forward)
    if topology.preset == "star":
        down = replace(forward, rate_bps=edge.rate_bps, delay_ns=edge.delay_ns)
        return Star(topology.hosts, edge, down)
    if topology.preset == "leaf-spine":
        size = (topology.leaves, topology.spines, topology.hosts_per_leaf)
        return LeafSpine(*size, edge, forward)
    if topology.preset == "fat-tree":
        return FatTree(topology.k, edge, forward)
    size = (topology.servers, topology.rails, topology.spines)
    return Rail(*size, edge, forward)


def _custom(topology: Topology, edge: Link, core: Link) -> Custom:
    """The graph of the file; links have what they set, else what edge or core has."""
    graph = topology.graph
    assert graph is not None
    hosts = set(graph.hosts)
    number = {name: index for index, name in enumerate(graph.nodes)}
    cables = []
    for (a, b), there, back in graph.settings():
        common = edge if a in hosts or b in hosts else core
        forward, backward = (_with_keys(common, keys) for keys in (there, back))
        cables.append(Cable(number[a], number[b], forward, backward))
    return Custom(len(graph.hosts), tuple(graph.nodes), tuple(cables))


def _with_keys(link: Link, keys: Mapping[str, Any]) -> Link:
    before = {"impairments": link.impairments}
    return replace(link, **joined(before, changed_arguments(keys)))


def changed_arguments(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of Link that keys of `path` set, in place of others."""
    arguments = given_arguments({key: value for key, value in keys.items() if key in LINK_KEYS})
    if "rate_bps" in arguments:
        arguments["trace_ms"] = ()
    if "loss" in keys:
        arguments["loss"] = keys["loss"].setting()
    if "corrupt" in keys:
        arguments["corrupt"] = keys["corrupt"]
    return arguments


def joined(before: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Both; where both set a key, the later. Impairments of either; 0 turns one off."""
    impairments = dict(before.get("impairments", ())) | dict(later.get("impairments", ()))
    return {**before, **later, "impairments": tuple(impairments.items())}


def _lossless_buffer(topology: Topology, graph: Graph) -> SharedBuffer:
    """A buffer with PFC for data.  Default thresholds lose nothing.

    LocalError when the buffer is too small for them.
    """
    pfc, total = topology.lossless, topology.buffer
    assert pfc is not None
    assert total is not None
    frame = frame_bytes(topology.mtu)
    ends = collections.Counter(end for cable in graph.cables for end in (cable.a, cable.b))
    ports = max(count for node, count in ends.items() if node >= graph.hosts)
    links = _links(graph)
    classes = next((one for link in links if (one := link.classes)), ())
    mask = pfc_mask(classes) if classes_by_dscp(classes) else 1 << DATA_CLASS
    parts = ports * mask.bit_count()
    headroom = pfc.headroom
    if headroom is None:
        headroom = _default_headroom(topology, graph)
    if headroom < frame:
        raise LocalError(
            f"topology.pfc: a headroom of {headroom} bytes holds no packet of {frame} bytes, which "
            "arrives after each pause",
            hint=f"give at least {frame}"
            if isinf(_ample_headroom(topology, graph))
            else "leave headroom out: it then follows from the links' settings and the MTU",
        )
    xoff = total // parts - headroom if pfc.xoff is None else pfc.xoff
    if headroom * parts > total or xoff <= 0:
        raise LocalError(
            f"topology.buffer: {total} bytes are too few for PFC on {ports} ports with "
            f"{headroom} bytes of headroom each",
            hint=f"at least {parts * (headroom + 3 * frame)} let a switch forward at full rate",
        )
    xon = max(xoff - 2 * frame, 0) if pfc.xon is None else pfc.xon
    if xon > xoff:
        raise LocalError(f"topology.pfc: xon is {xon}, above xoff, which is {xoff}")
    return SharedBuffer(
        total,
        pfc_classes=mask,
        xoff_bytes=xoff,
        xon_bytes=xon,
        headroom_bytes=headroom,
    )


def _ample_headroom(topology: Topology, graph: Graph) -> float:
    """With so much no port drops: what its link can carry until the peer has stopped.

    inf: nothing is enough.
    """
    frame = frame_bytes(topology.mtu)
    return max(
        headroom_bytes(link, back, frame)
        for cable in graph.cables
        for end, link, back in (
            (cable.b, cable.forward, cable.backward),
            (cable.a, cable.backward, cable.forward),
        )
        if end >= graph.hosts
    )


def _default_headroom(topology: Topology, graph: Graph) -> int:
    ample = _ample_headroom(topology, graph)
    if isinf(ample):
        raise LocalError(
            "topology.pfc: a jitter of model normal or pareto has no longest delay, and needs an "
            "endless headroom",
            hint="give topology.pfc.headroom, or samples: jitter: {model: trace, samples: [...]}",
        )
    return ceil(ample)


def lacking_headroom(topology: Topology, path: Path) -> float:
    """How many bytes topology.pfc.headroom has to have; 0: it has them, or is not set.

    inf: nothing is enough.
    """
    pfc = topology.lossless
    if pfc is None or pfc.headroom is None:
        return 0
    ample = _ample_headroom(topology, shape(topology, path).graph())
    if pfc.headroom >= ample:
        return 0
    return inf if isinf(ample) else ceil(ample)


def _switched(link: Link) -> Link:
    """Links of switches.  With trimming they have a queue for trimmed packets, which goes first."""
    return replace(link, classes=_TWO_CLASSES) if link.trim else link


def traffic_classes(path: Path) -> tuple[QueueClass, ...]:
    """The classes that packets have by their DSCP; (): none are named."""
    classes = path.link("forward").classes or path.link("backward").classes
    return classes if classes_by_dscp(classes) else ()


def host_link(topology: Topology, path: Path) -> Link:
    rate, delay = topology.host_rate, topology.host_delay
    shared = topology.preset in TWO_SIDED
    if rate is None:
        rate = 0 if shared else path.rate or DEFAULT_RATE_BPS
    if delay is None:
        delay = 0 if shared else path.delay or 0
    return Link(rate_bps=rate, delay_ns=delay)


def link_rates_bps(topology: Topology, path: Path) -> list[float]:
    """Of each host's link, or of the shared one if that is slower; 0: not limited."""
    if topology.preset == "graph":
        graph = shape(topology, path).graph()
        return [float(graph.host_link(host).rate_bps) for host in range(graph.hosts)]
    rate = host_link(topology, path).rate_bps
    shared = path.rate or 0
    if topology.preset in TWO_SIDED:
        rate = min(rate, shared) if rate and shared else rate or shared
    return [float(rate)] * topology.hosts


def described(topology: Topology) -> dict[str, Any]:
    """The network for the manifest: nodes, hosts first; cables, with what they set themselves."""
    graph = shape(topology, Path()).graph()
    own = {}
    for link in topology.graph.links if topology.graph else []:
        if link.is_cable:
            rate = f"{link.rate / 1e6:g} Mbit/s" if link.rate is not None else ""
            delay = f"{link.delay / 1e3:g} us" if link.delay is not None else ""
            own[frozenset(link.nodes)] = ", ".join(filter(None, (rate, delay)))
    return {
        "hosts": graph.hosts,
        "nodes": list(graph.names),
        "cables": [
            [cable.a, cable.b, own.get(frozenset((graph.names[cable.a], graph.names[cable.b])), "")]
            for cable in graph.cables
        ],
    }


def refuse_path(path: Path, preset: str) -> None:
    """LocalError for settings of a `path` section that cannot be simulated."""
    if path.backend not in ("auto", "fabric"):
        raise LocalError(
            f"lane sim has no path backend {path.backend}", hint="use backend auto or fabric"
        )
    if path.faults or any(path.ecn_mark_of(direction) for direction in DIRECTIONS):
        raise LocalError(
            "lane sim has no aimed faults and no random marking",
            hint="use loss and ecn (marks by the queue)",
        )
    refuse_directions(path, preset)


def refuse_directions(path: Path, preset: str) -> None:
    """LocalError for settings of a direction where there is none."""
    if preset not in TWO_SIDED and (path.forward or path.backward):
        hint = "take path.forward and path.backward away"
        if preset == "graph":
            hint += "; topology.graph.links may have one of ends: a>b"
        raise LocalError(f"preset {preset} has no directions", hint=hint)


def refuse_infinite(topology: Topology, path: Path) -> None:
    """LocalError for a network without any rate: nothing in it would take time."""
    if topology.preset not in TWO_SIDED or topology.host_rate:
        return
    for direction in DIRECTIONS:
        link = path.link(direction)
        if not link.rate_bps and not link.trace_ms:
            raise LocalError(
                f"nothing limits the {direction} rate of this network",
                hint="give path.rate or topology.host_rate",
            )


def refuse_shared_aqm(topology: Topology, path: Path) -> None:
    """LocalError for AQMs on queues that share a buffer."""
    if topology.buffer is None:
        return
    own = topology.graph.links if topology.graph else []
    if any(link.aqm for link in (path, path.forward, path.backward, *own) if link is not None):
        raise LocalError(
            "path.aqm is for queues of their own, not for a shared topology.buffer",
            hint="give path.queue in place of topology.buffer",
        )


def refuse_lossless(topology: Topology, path: Path) -> None:
    """LocalError for a section beside which PFC makes no sense."""
    if topology.lossless is None:
        if any(one.lossless for one in traffic_classes(path)):
            raise LocalError("a lossless class needs topology.pfc", hint="give buffer and pfc")
        return
    links: list[LinkSettings] = [path, *filter(None, (path.forward, path.backward))]
    links += topology.graph.links if topology.graph else []
    if topology.buffer is None:
        raise LocalError("topology.pfc needs a buffer to guard", hint="give topology.buffer")
    if any(link.queue is not None or link.trim for link in links):
        raise LocalError(
            "path.queue and path.trim: with topology.pfc no queue drops or trims",
            hint="take them away; topology.buffer limits what waits",
        )
    rates = [host_link(topology, path).rate_bps]
    if topology.preset in TWO_SIDED:  # elsewhere links have a rate of their own
        rates += [path.link(direction).rate_bps for direction in DIRECTIONS]
    if any(link.trace for link in links) or not all(rates):
        raise LocalError(
            "topology.pfc: a link without a constant rate needs an endless headroom",
            hint="give path.rate and topology.host_rate",
        )
