# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The drawing of a network, from what a manifest says of it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from datapath.lanes.shape import described
from datapath.lanes.spec import Topology
from datapath.report.network import drawing


def drawn(**section: Any) -> ElementTree.Element:
    topology = Topology.model_validate({"lane": "sim", **section})
    return ElementTree.fromstring(drawing(described(topology)))


def places(root: ElementTree.Element) -> dict[str, tuple[float, float]]:
    """Name of a node -> its place."""
    found = {}
    for node in root.iter():
        title = node.find("title")
        if title is not None and title.text:
            x, y = node.get("cx") or node.get("x"), node.get("cy") or node.get("y")
            found[title.text] = (float(x or 0), float(y or 0))
    return found


def test_switches_are_above_their_hosts() -> None:
    root = drawn(preset="leaf-spine", leaves=2, spines=2, hosts_per_leaf=2)
    at = places(root)
    assert len(at) == 8
    assert len(root.findall("path")) == 4 + 4
    assert at["host0"][1] > at["leaf0"][1] > at["spine0"][1]
    assert at["host0"][0] < at["host1"][0] < at["host2"][0]
    assert root.get("aria-label") == "4 hosts, 4 switches, 8 cables"


def test_hosts_stand_beside_those_of_their_switch() -> None:
    """Host 1 is at the far end of the chain."""
    at = places(drawn(preset="parking-lot", hops=2))
    assert at["host1"][0] > at["host2"][0] > at["host0"][0]
    assert at["switch0"][1] == at["switch2"][1]


def test_cables_tell_what_they_set() -> None:
    links = [{"ends": "a--s"}, {"ends": "s--b", "rate": "10mbit"}]
    root = drawn(preset="graph", graph={"links": links})
    assert [text.text for text in root.findall("text")] == ["10 Mbit/s", "a", "b", "s"]


@pytest.mark.parametrize(
    "graph",
    [
        {},
        {"hosts": "many", "nodes": ["a"], "cables": []},
        {"hosts": 2, "nodes": ["a", "b", "s"], "cables": [[0, 9, ""], [1, 1, ""], ["x"], 5]},
        {"hosts": 2, "nodes": [f"n{i}" for i in range(200)], "cables": [[0, 1, ""]]},
    ],
)
def test_what_cannot_be_drawn_is_left_out(graph: dict[str, Any]) -> None:
    assert drawing(graph) == ""


def test_names_of_a_strange_folder_are_text() -> None:
    graph = {"hosts": 1, "nodes": ["<script>", "s"], "cables": [[0, 1, "<b>"]]}
    assert "<script>" not in drawing(graph)
    assert "<b>" not in drawing(graph)
