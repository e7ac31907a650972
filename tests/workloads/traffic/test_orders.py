# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Groups that stop, start and change their algorithm on a condition, in the simulator and live."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest

from datapath.errors import LocalError
from datapath.fabric.flows import UNTIL_STOP
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.sim import SimNetwork
from datapath.workloads.base import Outcome
from datapath.workloads.traffic import base
from datapath.workloads.traffic.orders import Plan
from tests.workloads.test_perftest import values
from tests.workloads.traffic.test_watching import MS, PATH, run, topology

FLOWS = [
    {"name": "old", "from": 0, "to": 2, "size": "16KiB"},
    {"name": "paced", "from": 1, "to": 3, "size": "4KiB", "rate": "10mbit"},
    {"name": "bulk", "from": 1, "to": 3, "bytes": "200kB", "count": 2, "stagger": "10ms"},
]
EVENTS: list[dict[str, Any]] = [
    {"when": {"finished": "bulk"}, "stop": ["old", "paced", "bulk"], "label": "pause"},
    {"when": {"event": "pause", "later": "200ms"}, "start": ["old", "bulk"], "label": "again"},
    {"when": {"event": "again", "later": "20ms"}, "cc": {"algo": "dctcp"}, "flows": "old"},
    {"when": {"event": "pause", "later": "350ms"}, "start": "paced", "label": "more"},
    {"when": {"event": "more", "later": "50ms"}, "stop": "old", "label": "end"},
    {"when": {"delivered": "1GB"}, "start": "old", "label": "never"},
]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """(table, results) of each run, as measured."""
    found: list[tuple[Any, Any]] = []
    plain = Plan.settled

    def spied(self: Plan, results: Any, *rest: Any) -> Any:
        flows, marked = plain(self, results, *rest)
        found.append((flows, results.rows))
        return flows, marked

    monkeypatch.setattr(Plan, "settled", spied)
    return found


def check(outcome: Outcome, flows: Any, rows: Any, late_ns: int) -> None:
    """What holds in every lane.  late_ns: an order may come so much later than its time."""
    times = {event.text: event.time for event in outcome.events}
    assert set(times) == {"pause", "again", "old: dctcp", "more", "end"}
    assert outcome.notes["events"].startswith("did not happen: never")
    pause, again, more, end = (times[name] for name in ("pause", "again", "more", "end"))
    assert (again, more, end) == (pause + 200 * MS, pause + 350 * MS, pause + 400 * MS)

    old = flows["bytes"] == UNTIL_STOP
    assert flows["start_ns"][old].tolist() == [0, again]
    for finish, when in zip(rows["finish_ns"][old].tolist(), (pause, end), strict=True):
        assert when <= finish <= when + late_ns
    assert (rows["delivered_bytes"][old] > 0).all()

    bulk = flows["bytes"] == 200_000
    assert sorted(flows["start_ns"][bulk].tolist()) == [0, 10 * MS, again, again + 10 * MS]
    assert (rows["delivered_bytes"][bulk] == 200_000).all()
    assert rows["finish_ns"][bulk & (flows["start_ns"] < pause)].max() <= pause

    paced = flows["start_ns"][flows["bytes"] == 4096].astype(np.int64)
    assert not ((paced > pause) & (paced <= more)).any()
    assert (paced > more).any()
    assert (np.diff(paced[paced > more]) < 4 * MS).all()
    assert (rows["finish_ns"][flows["bytes"] == 4096] > 0).all()


def test_simulated(tmp_path: FilePath, settled: list[tuple[Any, Any]]) -> None:
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        first = run(network, tmp_path, EVENTS, FLOWS)
        check(first, *settled[0], late_ns=0)
        assert run(network, tmp_path, EVENTS, FLOWS).metrics == first.metrics


def test_live(tmp_path: FilePath, settled: list[tuple[Any, Any]]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(topology("netns"), "fabric") as network:
        outcome = run(network, tmp_path, EVENTS, FLOWS)
    # Far above what a busy machine needs: behind it the events would be one.
    check(outcome, *settled[0], late_ns=190 * MS)
    assert not list(tmp_path.glob("*.orders"))


def test_a_run_ends_when_nothing_can_begin_what_is_held(
    tmp_path: FilePath, settled: list[tuple[Any, Any]]
) -> None:
    """And not when the patience for flows that hang is over."""
    events = [
        {"when": {"delivered": "100kB"}, "stop": "bulk"},
        {"when": {"delivered": "1GB"}, "start": "bulk"},
    ]
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        outcome = run(network, tmp_path, events, FLOWS[2:])
    flows, rows = settled[0]
    assert len(flows) == 1 or (flows["held"] == 0).all()
    assert (rows["delivered_bytes"] == 200_000).all()
    assert "1 GB" in outcome.notes["events"] or "1000000000" in outcome.notes["events"]


def test_rows_that_are_held_are_rows_of_the_table(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two flows, and as many again for each event that may start them."""
    events = [
        {"when": {"delivered": "100kB"}, "stop": "bulk"},
        {"when": {"delivered": "200kB"}, "start": "bulk"},
    ]
    monkeypatch.setattr(base, "FLOWS_MAX", 3)
    with (
        SimNetwork(topology("sim"), PATH, tmp_path) as network,
        pytest.raises(LocalError, match="4 flows would be generated; the most is 3"),
    ):
        run(network, tmp_path, events, FLOWS[2:])


NEVER: dict[str, Any] = {"when": {"delivered": "1GB"}, "start": "held"}


@pytest.mark.parametrize(
    ("names", "events"),
    [
        (["first", "second", "stopped"], [{"at": 0, "stop": "stopped"}]),
        (["held"], [{"when": {"delivered": "10kB"}, "stop": "held"}, NEVER, NEVER]),
    ],
)
def test_rounds_that_never_begin_are_none(
    tmp_path: FilePath, names: list[str], events: list[dict[str, Any]]
) -> None:
    """Those of a group that is stopped before it begins, or held until the end."""
    bulk = {"from": 1, "to": 3, "bytes": "100kB"}
    flows = [{"name": name, **bulk} for name in names]
    flows.append({"name": "last", **bulk, "start": "400ms"})
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        found = values(run(network, tmp_path, events, flows))
    assert found["unfinished_share"] == 0
    assert 8 * MS < found["round_p50"] <= found["round_p999"] < 200 * MS, "100 kB at 100 Mbit/s"


REPEATED = [
    {"name": "clock", "from": 0, "to": 2, "bytes": "100kB"},
    {"name": "onoff", "from": 0, "to": 2, "size": "16KiB", "stop": "20ms", "repeat": 20,
     "every": "50ms"},
    {"name": "rounds", "from": 1, "to": 3, "bytes": "40kB", "repeat": 20, "every": "50ms"},
]  # fmt: skip
WAITING = [
    {"name": "first", "from": 1, "to": 3, "bytes": "1MB", "size": "16KiB", "count": 2,
     "stagger": "300ms"},
    {"name": "second", "from": 1, "to": 3, "bytes": "1MB", "count": 2, "after": "first"},
]  # fmt: skip
PAUSED = [
    {"when": {"finished": "clock", "later": "110ms"}, "stop": ["onoff", "rounds"], "label": "a"},
    {"when": {"event": "a", "later": "150ms"}, "start": ["onoff", "rounds"], "label": "b"},
]
STOPPED_WHILE_WAITING = [
    {"when": {"delivered": "80kB", "flows": "first"}, "stop": ["second", "first"], "label": "a"},
    {"when": {"event": "a", "later": "350ms"}, "start": "second", "label": "b"},
    {"when": {"event": "a", "later": "450ms"}, "start": "first", "label": "c"},
]


def check_repeated(outcome: Outcome, flows: Any, rows: Any) -> None:
    """The repeats go on as if they had not been stopped."""
    times = {event.text: event.time for event in outcome.events}
    onoff = flows["bytes"] == UNTIL_STOP
    rounds = flows["bytes"] == 40_000
    for mine in (onoff, rounds):
        starts = flows["start_ns"][mine].astype(np.int64)
        resumed = starts[(starts > times["a"]) & (starts <= times["b"])]
        assert resumed.tolist() in ([], [times["b"]])  # in the middle of a repeat
        later = starts[starts > times["b"]]
        assert len(later) > 1
        assert (later % (50 * MS) == 0).all()
        assert (starts < times["a"]).sum() > 1
    assert (rows["delivered_bytes"][rounds] == 40_000).all()


def check_waiting(outcome: Outcome, flows: Any, rows: Any) -> None:
    """What has begun is completed; the others begin when they may, and have what they wait for."""
    times = {event.text: event.time for event in outcome.events}
    assert (rows["delivered_bytes"] == 1_000_000).all()
    first, second = flows["after"] == 0, flows["after"] > 0
    begun = rows["posted_ns"]
    assert sorted(begun[first] >= times["c"]) == [False, True]
    assert (begun[second] >= times["b"]).all()
    waited = rows["finish_ns"][flows["after"][second].astype(np.int64) - 1]
    assert (begun[second] >= waited).all()


@pytest.mark.parametrize(
    ("flows", "events", "check_it"),
    [(REPEATED, PAUSED, check_repeated), (WAITING, STOPPED_WHILE_WAITING, check_waiting)],
)
def test_groups_that_repeat_or_wait_stop_too(
    tmp_path: FilePath, settled: list[tuple[Any, Any]], flows: Any, events: Any, check_it: Any
) -> None:
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        check_it(run(network, tmp_path, events, flows), *settled[0])
    if os.geteuid() != 0:
        pytest.skip("live it needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(topology("netns"), "fabric") as live:
        check_it(run(live, tmp_path, events, flows), *settled[1])


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_run_ends_when_flows_wait_for_what_is_held(
    tmp_path: FilePath, settled: list[tuple[Any, Any]], name: str
) -> None:
    events = [{"when": {"delivered": "80kB"}, "stop": name}]
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        run(network, tmp_path, events, WAITING)
    flows, rows = settled[0]
    assert len(flows) == 2
    assert (rows["delivered_bytes"] == 1_000_000).all()


def test_an_algorithm_that_comes_on_a_condition(tmp_path: FilePath) -> None:
    """A window of one packet after 100 kB: what comes later is slow."""

    def goodput(*events: dict[str, Any]) -> float:
        with SimNetwork(topology("sim"), PATH, tmp_path) as network:
            outcome = run(network, tmp_path, events, FLOWS[:1])
        return next(one.value for one in outcome.metrics if one.name == "goodput")

    small = {"cc": {"algo": "fixed", "window_bytes": 4096}}
    slow = goodput({"when": {"delivered": "100kB"}, **small})
    assert slow < 0.3 * goodput()
    assert goodput({"at": 0, **small}) < slow
