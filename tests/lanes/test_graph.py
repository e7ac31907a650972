# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Networks of one's own: what a file may say, other files, and traffic across several links."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest

from datapath.cc.spec import Cc
from datapath.errors import LocalError
from datapath.experiment.load import load
from datapath.fabric import flows as traffic
from datapath.fabric.links import Loss
from datapath.fabric.topology import Custom, Graph, ParkingLot
from datapath.fabric.ways import Ways
from datapath.lanes.event_spec import Event
from datapath.lanes.link_events import link_changes
from datapath.lanes.shape import shape
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.spec import Transport

MS = 1_000_000
MBIT = 10**6
RUN = 500 * MS
TWO_SITES: list[dict[str, Any]] = [
    {"ends": "a--left"},
    {"ends": "b--left", "rate": "200mbit"},
    {"ends": "left--right", "rate": "100mbit", "delay": "1ms"},
    {"ends": "right>left", "loss": "1%", "max_packet": 1000},
    {"ends": "right--c"},
]
PATH = Path(rate="1gbit", delay="10us", queue="64KiB", duplicate="2%")


def topology(links: list[dict[str, Any]], **section: Any) -> Topology:
    return Topology.model_validate(
        {"lane": "sim", "preset": "graph", "graph": {"links": links}, **section}
    )


def graph(links: list[dict[str, Any]], path: Path = PATH, **section: Any) -> Graph:
    made = shape(topology(links, **section), path)
    assert isinstance(made, Custom)
    return made.graph()


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([{"ends": "a-b"}], "should match pattern"),
        ([{"ends": "a--b"}], "a--b joins two hosts"),
        ([{"ends": "a--s"}, {"ends": "s--t"}, {"ends": "t--t"}], "joins a node to itself"),
        ([{"ends": "a--s"}, {"ends": "b--s"}, {"ends": "s--a"}], "have one link between them"),
        ([{"ends": "a--s"}, {"ends": "b--s"}, {"ends": "a>t"}], "no cable for a>t; did you mean"),
        ([{"ends": "a--s"}, {"ends": "b--s"}, *2 * [{"ends": "a>s"}]], "stands there 2 times"),
        ([{"ends": "a--s"}, {"ends": "s--t"}, {"ends": "t--u"}, {"ends": "u--s"}], "fewer than"),
        (
            [{"ends": "a--s"}, {"ends": "b--s"}, {"ends": "c--t"}, {"ends": "d--t"}],
            "no way leads from a to c",
        ),
        ([{"ends": "a--s", "trim": True}, {"ends": "b--s"}], "trim holds for all links"),
        ([{"ends": "a--s", "colour": "red"}, {"ends": "b--s"}], "Extra inputs"),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(links: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        topology(links)


def test_hosts_are_the_nodes_with_one_link_or_those_that_are_named() -> None:
    assert topology(TWO_SITES).host_names == ["a", "b", "c"]
    named = {"hosts": ["c", "a", "b"], "links": TWO_SITES}
    assert topology(TWO_SITES, graph=named).host_names == ["c", "a", "b"]
    with pytest.raises(pydantic.ValidationError, match="host left has 3 links"):
        topology(TWO_SITES, graph={"hosts": ["left", "a"], "links": TWO_SITES})
    with pytest.raises(pydantic.ValidationError, match="preset graph needs graph"):
        Topology.model_validate({"lane": "sim", "preset": "graph"})
    with pytest.raises(pydantic.ValidationError, match="graph: not for preset star"):
        topology(TWO_SITES, preset="star")
    with pytest.raises(pydantic.ValidationError, match="for lanes netns and sim, not for vm"):
        topology(TWO_SITES, lane="vm")


def test_links_have_what_they_set_and_else_what_the_path_has() -> None:
    made = graph(TWO_SITES, host_delay="5us")
    assert made.names == ("a", "b", "c", "left", "right")
    links = [link for cable in made.cables for link in (cable.forward, cable.backward)]
    by_name = dict(zip(made.link_names(), links, strict=True))
    assert [by_name[n].rate_bps // MBIT for n in ("a>left", "left>b", "left>right")] == [
        *(1000, 200, 100)
    ]
    assert [by_name[n].delay_ns for n in ("a>left", "left>right")] == [5_000, MS]
    assert {link.limit_bytes for link in links} == {65536}
    assert [by_name[n].loss for n in ("left>right", "right>left")] == [
        *(PATH.link("forward").loss, Loss(good=0.01))
    ]
    assert [by_name[n].impairments for n in ("left>right", "right>left")] == [
        *((), (("max_packet", 1000),))
    ]
    # The path's duplicates are of links between switches, as in all presets.
    assert [by_name[n].duplicate for n in ("a>left", "right>left")] == [0, 0.02]


def test_directions_of_the_path_are_refused() -> None:
    with pytest.raises(LocalError, match="preset graph has no directions") as refused:
        SimNetwork(topology(TWO_SITES), Path(rate="1gbit", forward={"loss": "1%"}))
    assert "ends: a>b" in refused.value.hint


GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="r" for="edge" attr.name="rate" attr.type="string"/>
  <key id="w" for="edge" attr.name="weight" attr.type="double"/>
  <graph edgedefault="undirected">
    <node id="a"/><node id="b"/><node id="s"/>
    <edge source="a" target="s"><data key="r">50mbit</data><data key="w">3</data></edge>
    <edge source="s" target="b"/>
  </graph>
</graphml>"""
CONTAINERLAB = """
name: lab
topology:
  nodes: {a: {kind: linux}, b: {kind: linux}, s: {kind: srl}}
  links:
    - endpoints: ["a:eth1", "s:e1-1"]
    - endpoints: ["s:e1-2", "b:eth1"]
"""
EXPERIMENT = """
version: 1
name: mine
topology: {lane: sim, preset: graph, graph: FILE}
path: {rate: 1gbit}
workload: {kind: traffic, duration: 10ms, flows: [{from: a, to: b}]}
"""


@pytest.mark.parametrize(
    ("name", "text", "rate"), [("n.graphml", GRAPHML, 50), ("n.clab.yml", CONTAINERLAB, 1000)]
)
def test_graphs_of_other_files(tmp_path: FilePath, name: str, text: str, rate: int) -> None:
    (tmp_path / name).write_text(text)
    source = tmp_path / "mine.yaml"
    source.write_text(EXPERIMENT.replace("FILE", name))
    loaded = load(source)
    (point,) = loaded.points
    assert point.spec.topology.host_names == ["a", "b"]
    made = shape(point.spec.topology, point.spec.path).graph()
    assert made.host_link(0).rate_bps == rate * MBIT
    # The run's record has the graph itself.
    assert loaded.resolved["topology"]["graph"]["links"][0]["ends"] == "a--s"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("n.graphml", "<graphml", "not GraphML"),
        ("n.graphml", GRAPHML.replace("50mbit", "fast"), "fast"),
        ("n.clab.yml", "[", "cannot be read as YAML"),
        ("n.clab.yml", "a: 1", "no topology of containerlab"),
        ("n.clab.yml", "topology: {links: [{endpoints: [a]}]}", 'endpoints: \\["a:eth1"'),
        ("n.clab.yml", "[" * 5000, "nested more than 50 deep"),
        ("missing.graphml", None, "cannot read missing.graphml"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: FilePath, name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    source = tmp_path / "mine.yaml"
    source.write_text(EXPERIMENT.replace("FILE", name))
    with pytest.raises(LocalError) as refused:
        load(source)
    assert any(words.replace("\\", "") in str(problem) for problem in [refused.value])


def _simulate(network: SimNetwork, pairs: list[tuple[int, int]]) -> list[float]:
    """Mbit/s of endless flows.  With a fixed window a burst at the end would decide them."""
    table = traffic.empty(len(pairs))
    table["src"], table["dst"] = zip(*pairs, strict=True)
    table["message_bytes"], table["depth"], table["stop_ns"] = 65536, 16, RUN
    table["bytes"] = traffic.UNTIL_STOP
    answer = network.simulate(
        table, transport=Transport(), cc=Cc(algo="cubic"), seed=1, until_ns=RUN
    )
    return [float(b) * 8e3 / (RUN) for b in answer.flows.rows["delivered_bytes"]]


def test_a_flow_is_as_fast_as_its_narrowest_link() -> None:
    (goodput,) = _simulate(SimNetwork(topology(TWO_SITES[:3] + TWO_SITES[4:]), PATH), [(0, 2)])
    assert 60 < goodput < 100


def test_a_parking_lot_has_a_bottleneck_in_each_hop() -> None:
    lot = Topology(lane="sim", preset="parking-lot", hops=3)
    assert lot.hosts == 8
    path = Path(rate="100mbit", delay="10us", backward={"rate": "50mbit"})
    made = shape(lot, path)
    assert isinstance(made, ParkingLot)
    graph = made.graph()
    assert [link for link in graph.link_names() if link.startswith("switch0")] == [
        *("switch0>switch1", "switch0>host0", "switch0>host2")
    ]
    assert Ways(graph).idle([0, 2, 4], [1, 3, 7]).delay_ns.tolist() == [30_000, 10_000, 20_000]
    assert graph.cables[0].backward.rate_bps == 50 * MBIT
    alone = _simulate(SimNetwork(lot, path), [(2, 3), (4, 5), (6, 7)])
    assert all(75 < goodput < 100 for goodput in alone)
    long, *short = _simulate(SimNetwork(lot, path), [(0, 1), (2, 3), (4, 5), (6, 7)])
    assert long > 0
    assert all(0.9 < (long + goodput) / alone[0] < 1.02 for goodput in short), (long, short)


def test_the_pairs_of_a_parking_lot_are_across_all_links_and_across_each() -> None:
    network = SimNetwork(Topology(lane="sim", preset="parking-lot", hops=2), Path(rate="1gbit"))
    pairs = [(client.name, server.name) for client, server in network.pairs]
    assert pairs == [("host0", "host1"), ("host2", "host3"), ("host4", "host5")]


def test_a_link_with_an_aqm_has_no_classes_of_the_path() -> None:
    links = [*TWO_SITES[:1], {**TWO_SITES[1], "aqm": "codel"}, *TWO_SITES[2:]]
    classes = Path.model_validate({"rate": "1gbit", "classes": [{"dscp": 3}, {}]})
    with pytest.raises(LocalError, match="aqm and classes exclude each other"):
        shape(topology(links), classes)


def test_events_name_links_of_a_graph() -> None:
    event = Event.model_validate({"at": "1ms", "link": "left>right", "path": {"rate": "10mbit"}})
    (change,) = link_changes(topology(TWO_SITES), PATH, [event])
    assert change.settings.rate_bps == 10 * MBIT  # type: ignore[union-attr]
    wrong = Event.model_validate({"at": "1ms", "link": "left>rihgt", "state": "down"})
    with pytest.raises(LocalError, match="no link from left to rihgt"):
        link_changes(topology(TWO_SITES), PATH, [wrong])
