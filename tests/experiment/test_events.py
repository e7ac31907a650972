# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events and groups of flows in experiment files: what fits together, and figures of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from datapath.experiment.document import InvalidFile
from datapath.experiment.load import load_text
from datapath.report import event_marks
from datapath.report.event_marks import Mark

FILE = """\
version: 1
name: changing
topology: {{lane: {lane}, preset: dumbbell, hosts: 4}}
path: {{rate: 200mbit, delay: 1ms}}
workload: {workload}
events: [{event}]
"""
GROUPS = "{kind: traffic, flows: [{name: old, from: 0, to: 2}]}"


def read(event: str, workload: str = GROUPS, lane: str = "sim") -> Any:
    text = FILE.format(lane=lane, workload=workload, event=event)
    return load_text(text, Path("changing.yaml"))


def test_a_point_has_its_events() -> None:
    (point,) = read("{at: 1s, cc: {algo: swift, base_target_ns: 50us}}, {at: 2s, stop: old}").points
    assert [event.text for event in point.spec.events] == ["all: swift", "stop old"]
    assert list(point.spec.algorithms) == [("cc",), ("events", 0, "cc")]


@pytest.mark.parametrize(
    ("event", "workload", "lane", "words"),
    [
        ("{at: 1s, stop: young}", GROUPS, "sim", "no group of flows 'young'"),
        ("{at: 1s, start: old}", GROUPS, "sim", "old was not stopped before"),
        ("{at: 1s, state: down, link: a>b}", GROUPS, "sim", "preset dumbbell has one path"),
        ("{at: 1s, cc: {algo: swiftt}}", GROUPS, "sim", "swiftt"),
        ("{at: 1s, stop: old}", "{kind: stream}", "sim", "needs `traffic`"),
        ("{at: 1s, state: down}", "{kind: iperf3}", "netns", "workloads of traffic tables"),
        ("{at: 1s, state: down}", GROUPS, "vm", "lanes netns and sim, not for vm"),
        ("{at: 1s, state: down}", GROUPS.replace("to: 2", "to: 9"), "sim", "there is no host 9"),
        ("{at: 1s, state: up}", GROUPS, "sim", "nothing is down before"),
        ("{at: 1s, state: down, link: a-b}", GROUPS, "sim", "written a>b, for one direction"),
        ("{at: 1s, path: {}}", GROUPS, "sim", "path sets nothing"),
        ("{at: -1s, state: down}", GROUPS, "sim", "is negative"),
        ("{state: down}", GROUPS, "sim", "a time, at, or a condition, when"),
        ("{at: 1s, when: {delivered: 1MB}, state: down}", GROUPS, "sim", "one of them"),
        ("{when: {}, state: down}", GROUPS, "sim", "not none of them"),
        ("{when: {delivered: 1MB}, start: old}", GROUPS, "sim", "and no event stops it"),
        ("{when: {finished: od}, state: down}", GROUPS, "sim", "did you mean old?"),
        ("{when: {finished: old}, state: down}", "{kind: stream}", "sim", "needs `traffic`"),
        ("{when: {event: x}, state: down}", GROUPS, "sim", "no event has the label 'x'"),
        ("{when: {event: x}, label: x, state: down}", GROUPS, "sim", "waits for itself"),
        (
            "{when: {queue: 1, link: a>b}, state: down}",
            GROUPS,
            "sim",
            "give direction, and no link",
        ),
        ("{when: {delivered: 1, direction: forward}, state: down}", GROUPS, "sim", "with queue"),
    ],
)
def test_what_does_not_fit_is_told(event: str, workload: str, lane: str, words: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        read(event, workload, lane)
    assert words in "\n".join(map(str, caught.value.problems))


def test_a_node_that_is_not_there_is_told() -> None:
    file = FILE.replace("preset: dumbbell, hosts: 4", "preset: rail, servers: 2, rails: 2")
    for node, rather in (("spin0", "did you mean spine0?"), ("server2", "server")):
        event = f"{{at: 1s, state: down, node: {node}}}"
        with pytest.raises(InvalidFile, match=f"there is no node {node}") as caught:
            load_text(file.format(lane="sim", workload=GROUPS, event=event), Path("rails.yaml"))
        assert rather in "\n".join(map(str, caught.value.problems))


def test_a_link_that_is_not_there_is_told() -> None:
    file = FILE.replace("preset: dumbbell, hosts: 4", "preset: parking-lot, hops: 2")
    for event in (
        "{at: 1s, state: down, link: switch0--switch9}",
        "{when: {queue: 1KiB, link: switch0>switch9}, stall: host0, lasts: 1ms}",
    ):
        with pytest.raises(InvalidFile, match=r"there is no link switch0(--|>)switch9"):
            load_text(file.format(lane="sim", workload=GROUPS, event=event), Path("lot.yaml"))
    many = "{when: {queue: 1KiB}, stall: host0, lasts: 1ms}"
    with pytest.raises(InvalidFile, match="this preset has many queues: name a link"):
        load_text(file.format(lane="sim", workload=GROUPS, event=many), Path("lot.yaml"))


def test_marks_of_a_run() -> None:
    told = [[3_000_000, "path up"], [2_000_000, "cut"], ["soon", "no event"], 7]
    record = {"point": "p", "repetition": 0, "series": {"events": told}}
    result = cast(Any, SimpleNamespace(records=[record]))
    marks = event_marks.of_run(result, "p-0", 1_000_000)
    assert marks == [Mark(1e6, "cut"), Mark(2e6, "path up")]
    text = event_marks.caption(marks).replace("\u00a0", " ")
    assert text == " Dashed lines are events: 1 ms cut; 2 ms path up."
    assert event_marks.of_run(result, "p-1", 0) == []
    assert event_marks.caption([]) == ""
