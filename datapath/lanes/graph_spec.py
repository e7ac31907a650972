# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A network of one's own: hosts, switches and links, written in the file or read from another.

Two kinds of other files are read: topologies of containerlab (YAML), which tell what is joined to
what, and GraphML (`*.graphml`), in which edges may have keys of a link as data.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from datapath import foreign
from datapath.lanes.link_spec import LinkSettings
from datapath.lanes.loss_spec import Loss
from datapath.spelling import or_rather
from datapath.units import Probability

_NODES_MAX = 65536
_FILE_BYTES_MAX = 2**20
NODE = r"[A-Za-z_][\w.-]{0,31}?"
"""Pattern of a node's name; as short as can be, so that the dashes of a--b are no part of a."""


class GraphLink(LinkSettings):
    """A cable between two nodes, or other settings for one direction of it."""

    ends: str = Field(
        pattern=rf"^{NODE}(--|>){NODE}$",
        description="a--b: a cable, and its settings in both directions. a>b: other settings for "
        "that direction of a cable that is named as well.",
    )
    loss: Loss | None = Field(None, description="As path.loss.")
    corrupt: Probability | None = Field(None, description="As path.corrupt.")

    @model_validator(mode="after")
    def _for_all_links(self) -> GraphLink:
        for key in ("trim", "telemetry"):
            if getattr(self, key) is not None:
                raise ValueError(f"{key} holds for all links: set path.{key}")
        return self

    @property
    def nodes(self) -> tuple[str, str]:
        a, b = self.ends.split("--" if self.is_cable else ">")
        return a, b

    @property
    def is_cable(self) -> bool:
        return "--" in self.ends

    @property
    def keys(self) -> dict[str, Any]:
        """Its settings, by key."""
        return {key: value for key, value in self if key != "ends" and value is not None}


class NetworkGraph(BaseModel):
    """Nodes and links.  What a link does not set it has from `path`, or from the hosts' keys."""

    model_config = ConfigDict(extra="forbid")

    hosts: list[Annotated[str, Field(pattern=rf"^{NODE}$")]] = Field(
        default_factory=list,
        max_length=_NODES_MAX,
        description="Names of the hosts, in the order of their numbers; all other nodes are "
        "switches. Unset: the nodes that have one link.",
    )
    links: list[GraphLink] = Field(
        min_length=1, max_length=8 * _NODES_MAX, description="All links; of a host exactly one."
    )

    @model_validator(mode="after")
    def _a_network(self) -> NetworkGraph:
        cables = [link.nodes for link in self.links if link.is_cable]
        self._each_once(cables)
        degree = Counter(end for nodes in cables for end in nodes)
        self.hosts = self.hosts or [node for node, links in degree.items() if links == 1]
        if len(set(self.hosts)) != len(self.hosts):
            raise ValueError("hosts: a name stands there twice")
        for host in self.hosts:
            if degree[host] != 1:
                raise ValueError(f"host {host} has {degree[host]} links; a host has exactly one")
        if len(self.hosts) < 2:
            raise ValueError("fewer than two hosts; a node with one link is a host")
        for a, b in cables:
            if a in self.hosts and b in self.hosts:
                raise ValueError(f"{a}--{b} joins two hosts; put a switch between them")
        self._connected(cables)
        return self

    def _each_once(self, cables: Sequence[tuple[str, str]]) -> None:
        known: set[frozenset[str]] = set()
        for a, b in cables:
            if a == b:
                raise ValueError(f"{a}--{b} joins a node to itself")
            if frozenset((a, b)) in known:
                raise ValueError(f"{a}--{b}: two nodes have one link between them, not several")
            known.add(frozenset((a, b)))
        names = [f"{a}>{b}" for pair in cables for a, b in (pair, pair[::-1])]
        wanted = [link.ends for link in self.links if not link.is_cable]
        for ends, count in Counter(wanted).items():
            if ends not in names:
                raise ValueError(f"no cable for {ends}{or_rather(ends, names, 'directions')}")
            if count > 1:
                raise ValueError(f"{ends} stands there {count} times")

    def _connected(self, cables: Sequence[tuple[str, str]]) -> None:
        near: dict[str, list[str]] = {}
        for a, b in cables:
            near.setdefault(a, []).append(b)
            near.setdefault(b, []).append(a)
        reached, ring = {self.hosts[0]}, [self.hosts[0]]
        while ring:
            ring = list({n for node in ring for n in near[node]} - reached)
            reached |= set(ring)
        lost = [host for host in self.hosts if host not in reached]
        if lost:
            raise ValueError(f"no way leads from {self.hosts[0]} to {lost[0]}")

    @property
    def nodes(self) -> list[str]:
        """Hosts, and then switches in the order of the links."""
        others = {end: None for link in self.links for end in link.nodes}
        return [*self.hosts, *(node for node in others if node not in set(self.hosts))]

    def settings(self) -> Iterator[tuple[tuple[str, str], dict[str, Any], dict[str, Any]]]:
        """For each cable: its nodes, and the keys that it has in either direction."""
        own = {link.ends: link.keys for link in self.links if not link.is_cable}
        for link in self.links:
            if link.is_cable:
                a, b = link.nodes
                there, back = own.get(f"{a}>{b}", {}), own.get(f"{b}>{a}", {})
                yield (a, b), overlaid(link.keys, there), overlaid(link.keys, back)


def overlaid(before: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Both; where both set a key, the later. A rate takes the place of a trace, and vice versa."""
    kept = dict(before)
    if "rate" in later or "trace" in later:
        kept = {key: value for key, value in kept.items() if key not in ("rate", "trace")}
    return {**kept, **later}


# ---- files ---------------------------------------------------------------------------


def _of_file(value: Any, info: ValidationInfo) -> Any:
    """The content of a file in place of its name, relative to the experiment's folder."""
    if not isinstance(value, str):
        return value
    path = FilePath((info.context or {}).get("folder", ""), value)
    try:
        text = foreign.read_text(path, _FILE_BYTES_MAX, encoding="utf-8")
    except (OSError, UnicodeError, foreign.Refused) as error:
        raise ValueError(f"cannot read {value}: {error}") from None
    if path.suffix == ".graphml":
        return _of_graphml(text, value)
    return _of_containerlab(text, value)


def _of_containerlab(text: str, name: str) -> dict[str, Any]:
    """Links have endpoints: [NODE:INTERFACE, NODE:INTERFACE]."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        _check_nesting(text)
        content = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError) as error:
        raise ValueError(f"{name} cannot be read as YAML: {error}") from None
    topology = content.get("topology") if isinstance(content, dict) else None
    links = topology.get("links") if isinstance(topology, dict) else None
    if not isinstance(links, list):
        raise ValueError(f"{name} is no topology of containerlab: topology.links is not a list")
    return {"links": [{"ends": "--".join(_endpoints(link, name))} for link in links]}


def _check_nesting(text: str) -> None:
    from ruamel.yaml import YAML
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

    depth = 0
    for event in YAML(typ="safe", pure=True).parse(io.StringIO(text)):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > foreign.NESTING_MAX:
            raise ValueError(f"nested more than {foreign.NESTING_MAX} deep")


def _endpoints(link: Any, name: str) -> list[str]:
    ends = link.get("endpoints") if isinstance(link, dict) else None
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(e, str) for e in ends):
        raise ValueError(f'{name}: each link has endpoints: ["a:eth1", "b:eth1"]')
    return [end.partition(":")[0] for end in ends]


def _of_graphml(text: str, name: str) -> dict[str, Any]:
    from xml.etree.ElementTree import ParseError

    import networkx

    try:
        graph = networkx.parse_graphml(text, force_multigraph=True)
    except (ParseError, networkx.NetworkXError, KeyError, ValueError) as error:
        raise ValueError(f"{name} is not GraphML: {error}") from None
    names = {node: str(data.get("label", node)) for node, data in graph.nodes(data=True)}
    known = GraphLink.model_fields.keys()
    links = [
        {"ends": f"{names[a]}--{names[b]}", **{k: v for k, v in data.items() if k in known}}
        for a, b, data in graph.edges(data=True)
    ]
    return {"links": links}


class _OrFile:
    """The schema of a model whose place a file's name may take."""

    @staticmethod
    def __get_pydantic_json_schema__(core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"type": "string"}]}


GraphSetting = Annotated[NetworkGraph | None, BeforeValidator(_of_file), _OrFile()]
"""A graph, or the name of a file that has one."""
