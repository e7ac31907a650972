# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events on a condition: the same in the simulator and between namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest

from datapath.cc.spec import HostCc
from datapath.fabric.changes import OrderFlow
from datapath.fabric.flows import CC, HOLD, ORDER_DTYPE
from datapath.lanes.event_spec import Event
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.launch import device_environment
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.traffic.watching import OrderFifos
from tests.processes import state_of
from tests.waiting import wait_until

MS = 1_000_000
PATH = Path.model_validate({"rate": "100mbit", "delay": "1ms", "queue": "128KiB"})
FLOWS = [
    {"name": "old", "from": 0, "to": 2, "size": "16KiB"},
    {"name": "short", "from": 1, "to": 3, "bytes": "500kB"},
]
EVENTS: list[dict[str, Any]] = [
    {"when": {"finished": "short", "later": "20ms"}, "state": "down", "label": "cut"},
    {"when": {"event": "cut", "later": "50ms"}, "state": "up", "label": "back"},
    {"when": {"delivered": "2MB", "flows": "old"}, "path": {"rate": "50mbit"}},
    {"when": {"queue": "16KiB"}, "stall": "host0", "lasts": "5ms"},
    {"when": {"queue": "1MiB"}, "path": {"delay": "5ms"}, "label": "never"},
    {"at": "700ms", "path": {"loss": "50%"}, "label": "noise"},
]


def topology(lane: str) -> Topology:
    return Topology.model_validate({"lane": lane, "preset": "dumbbell", "hosts": 4, "mtu": 1500})


def run(
    network: Any, logs: FilePath, events: Sequence[Any] = EVENTS, flows: Sequence[Any] = FLOWS
) -> Outcome:
    network.set_path(PATH, 1)
    live = isinstance(network, NetnsNetwork)
    context = RunContext(
        network=network,
        transport=Transport.model_validate({"device": "dp", "port": "udp"}),
        cc=HostCc.model_validate({"algo": "newreno"}),
        device_env=[
            device_environment("dp0", f"udp:{h.endpoint.ipv4}") if live else {}
            for h in network.hosts
        ],
        logs=logs,
        seed=1,
        timeout_s=60,
        path=PATH,
        folder=logs,
        events=[Event.model_validate(event) for event in events],
    )
    kind = REGISTRY["traffic"]
    return kind(kind.Params.model_validate({"flows": flows, "duration": "800ms"})).run(context)


def check(outcome: Outcome, network: Any) -> dict[str, int]:
    """What holds in every lane; the times of the events by their names."""
    times = {event.text: event.time for event in outcome.events}
    assert list(times.values()) == sorted(times.values())
    assert set(times) == {"cut", "back", "rate 50mbit", "stall host0", "noise"}
    assert times["back"] == times["cut"] + 50 * MS
    assert times["noise"] == 700 * MS
    never = "never (waits for: queue of forward above 1048576 bytes)"
    assert outcome.notes["events"] == f"did not happen: {never}"
    # 64 packets or so in 50 ms are lost in a link that is down, and half of those at the end.
    assert network.path_counters().dropped["forward"] > 20
    return times


def test_simulated(tmp_path: FilePath) -> None:
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        first = run(network, tmp_path)
        times = check(first, network)
        again = run(network, tmp_path)
    assert again.metrics == first.metrics
    assert [event.time for event in again.events] == [event.time for event in first.events]
    assert times["stall host0"] < times["cut"], "the queue grows before 500 kB have gone"


def test_what_is_looked_at_alone_changes_nothing(tmp_path: FilePath) -> None:
    """A simulation that is looked at is the one that is not."""
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        plain = run(network, tmp_path, ())
        watched = run(network, tmp_path, [EVENTS[4]])
    assert watched.metrics == plain.metrics
    assert watched.events == []


def test_events_at_the_beginning_and_at_one_time(tmp_path: FilePath) -> None:
    events = [
        {"at": 0, "path": {"rate": "50mbit"}},
        {"at": "100ms", "state": "down"},
        {"at": "100ms", "state": "up"},
        {"at": "9s", "state": "down", "label": "too late"},
    ]
    with SimNetwork(topology("sim"), PATH, tmp_path) as network:
        outcome = run(network, tmp_path, events)
    assert [event.time for event in outcome.events] == [0, 100 * MS, 100 * MS]
    assert outcome.notes["events"] == "did not happen: too late (waits for: 9 s)"
    goodput = next(metric.value for metric in outcome.metrics if metric.name == "goodput")
    assert 35e6 < goodput < 50e6


def test_live(tmp_path: FilePath) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(topology("netns"), "fabric") as network:
        outcome = run(network, tmp_path)
        check(outcome, network)
    assert not list(tmp_path.glob("*.progress"))


def test_orders_go_while_others_are_still_made(tmp_path: FilePath) -> None:
    """To two programs: each has its own rows, in their order, and the first ones at once."""
    fifos = [tmp_path / "a", tmp_path / "b"]
    got: list[bytes] = [b"", b""]
    early: list[int] = []
    readers: list[int] = []

    def take() -> None:
        for number, reader in enumerate(readers):
            with contextlib.suppress(BlockingIOError):
                while more := os.read(reader, 1 << 16):
                    got[number] += more

    def place(row: int) -> tuple[FilePath, int, dict[int, int]]:
        take()
        early.append(len(got[0]))
        return fifos[row % 2], row // 2, {7: 1}

    orders = [OrderFlow(0, row, CC if row % 3 else HOLD, 7) for row in range(9001)]
    with OrderFifos(fifos, place) as given, contextlib.ExitStack() as opened:
        for fifo in fifos:
            readers.append(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))
            opened.callback(os.close, readers[-1])
        given.give(orders)
        take()
        assert not given.full
    assert early[-1] > 0
    for number in range(2):
        wanted = [(o.flow // 2, o.what, 1, 0) for o in orders if o.flow % 2 == number]
        assert np.frombuffer(got[number], ORDER_DTYPE).tolist() == wanted


def test_orders_wait_for_room(tmp_path: FilePath) -> None:
    fifo = tmp_path / "a"
    orders = [OrderFlow(0, row, HOLD) for row in range(9001)]
    with OrderFifos([fifo], lambda row: (fifo, row, {})) as given:
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        given.give(orders)
        got = b""
        while given.full:
            got += os.read(reader, 1 << 16)
            given.give([])
        got += os.read(reader, 1 << 16)
        os.close(reader)
    assert np.frombuffer(got, ORDER_DTYPE)["row"].tolist() == list(range(9001))


KILLED = """\
version: 1
name: killed
topology: {lane: netns, preset: dumbbell, hosts: 4, mtu: 1500}
path: {rate: 100mbit, delay: 1ms, queue: 128KiB}
transport: {device: dp, port: udp}
workload: {kind: traffic, duration: 20s, flows: [{name: old, from: 0, to: 2, size: 16KiB}]}
events:
  - {when: {delivered: 100kB}, stall: host0, lasts: 15s}
  - {when: {delivered: 100kB}, state: down}
"""


def test_nothing_is_left_of_a_run_that_is_killed_within_an_event(tmp_path: FilePath) -> None:
    """Not even the program that stands still."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    (tmp_path / "killed.yaml").write_text(KILLED)
    words = [sys.executable, "-m", "datapath.cli", "run", str(tmp_path / "killed.yaml")]
    words += ["--out", str(tmp_path / "out")]
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: "T" in states(tmp_path / "out"), "a host stands still")
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: not states(tmp_path / "out"), "all programs of the run have ended")


def states(folder: FilePath) -> list[str]:
    """Of the programs of a run, whose arguments name its folder."""
    found = []
    for at in FilePath("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{folder}/logs".encode() in (at / "cmdline").read_bytes():
                found.append(state_of(int(at.name)))
    return found
