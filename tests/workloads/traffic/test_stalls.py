# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hosts whose programs stand still for a while."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

from datapath.cc.spec import HostCc
from datapath.fabric import flows as table
from datapath.lanes.event_spec import Event, stalls
from datapath.lanes.happening import Watch
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path as PathSection
from datapath.lanes.spec import Topology
from datapath.verbs.spec import Transport
from datapath.workloads.programs import Program
from datapath.workloads.traffic.stalls import Stalls, beside, next_turn, standing_at
from tests.processes import state_of
from tests.waiting import wait_until

MS = 1_000_000
HOSTS = ["a", "b"]


def events(*sections: dict[str, Any]) -> list[Event]:
    return [Event.model_validate(section) for section in sections]


def test_an_event_names_hosts_and_how_long() -> None:
    one = {"at": "3ms", "stall": ["b", 0], "lasts": "2ms"}
    assert stalls(events(one), HOSTS) == [(3 * MS, 0, 2 * MS), (3 * MS, 1, 2 * MS)]
    assert events(one)[0].text == "stall b, 0"
    with pytest.raises(ValueError, match="there is no host c"):
        stalls(events({"at": "1ms", "stall": "c", "lasts": "1ms"}), HOSTS)
    with pytest.raises(pydantic.ValidationError, match="stall and lasts go together"):
        events({"at": "1ms", "stall": "b"})


def test_stalls_that_overlap_are_one() -> None:
    found = stalls(
        events(
            {"at": "1ms", "stall": "a", "lasts": "5ms"},
            {"at": "2ms", "stall": ["a", "b"], "lasts": "6ms"},
            {"at": "3ms", "stall": "a", "lasts": "1ms"},
            {"at": "20ms", "stall": "a", "lasts": "1ms"},
        ),
        HOSTS,
    )
    told, now = [], 0
    while (turn := next_turn(found, now)) is not None:
        now = turn
        told.append((now // MS, standing_at(found, now)))
    assert told == [
        *((1, {0}), (2, {0, 1}), (3, {0, 1}), (4, {0, 1}), (6, {0, 1}), (8, set())),
        *((20, {0}), (21, set())),
    ]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    process = subprocess.Popen(["sleep", "60"])
    yield Program("sleep", process, tmp_path / "out", tmp_path / "err")
    process.kill()
    process.wait()


def state(program: Program) -> str:
    return state_of(program.process.pid)  # type: ignore[attr-defined]


def soon(program: Program, stopped: bool) -> None:
    what = "the program stands" if stopped else "the program runs"
    wait_until(lambda: (state(program) == "T") == stopped, what)


def test_programs_stop_and_go_on(program: Program) -> None:
    one = events({"at": "1us", "stall": "a", "lasts": "1h"})
    with Stalls(HOSTS, {0: [program], 1: []}, time.monotonic_ns()) as running:
        running.set(one)
        soon(program, stopped=True)
    assert state(program) != "T", "whatever comes, nobody is left behind stopped"


def test_a_stall_that_comes_within_another_does_not_end_it(program: Program) -> None:
    """The second one gets its time while the first one lasts, as one with a condition does."""
    zero = time.monotonic_ns()
    with Stalls(HOSTS, {0: [program], 1: []}, zero) as running:
        long = events({"at": "1us", "stall": "a", "lasts": "1h"})
        running.set(long)
        soon(program, stopped=True)
        now_ns = time.monotonic_ns() - zero
        short = long[0].model_copy(update={"at": now_ns, "lasts": MS})
        running.set([*long, short])
        while time.monotonic_ns() - zero < now_ns + 50 * MS:
            assert state(program) == "T"
            time.sleep(0.002)
        running.set([short])
        soon(program, stopped=False)


def test_a_simulated_host_stands_still(tmp_path: Path) -> None:
    """Nothing is acknowledged meanwhile; what arrived is read when the host goes on."""
    topology = Topology.model_validate({"lane": "sim", "mtu": 1500})
    path = PathSection.model_validate({"rate": "100mbit", "delay": "100us"})

    def finish(*sections: dict[str, Any]) -> int:
        flows = table.empty(1)
        flows["dst"], flows["bytes"], flows["message_bytes"] = 1, 500_000, 50_000
        with SimNetwork(topology, path, tmp_path) as network:
            done = network.simulate(
                flows,
                transport=Transport.model_validate({"mode": "auto"}),
                cc=HostCc(),
                watch=Watch(events(*sections), flows, {}),
                seed=1,
            )
        assert done.flows.rows["delivered_bytes"].tolist() == [500_000]
        return int(done.flows.rows["finish_ns"][0])

    alone = finish()
    sender = {"at": "10ms", "stall": 0, "lasts": "30ms"}
    receiver = {"at": "10ms", "stall": "host1", "lasts": "30ms"}
    assert alone < 60 * MS
    assert alone + 25 * MS < finish(sender) < alone + 80 * MS
    assert alone + 25 * MS < finish(receiver) < alone + 80 * MS
    assert finish(sender) == finish(sender)
    assert finish({"at": "200ms", "stall": 1, "lasts": "1s"}) == alone


def test_an_error_of_a_thread_is_raised_behind_the_body() -> None:
    """Of any kind: an event that cannot be made must not be missed in silence."""

    def work(_: threading.Event) -> None:
        os.close(-1)

    done = []
    with pytest.raises(OSError, match="Bad file"), beside("work", work):
        done.append("body")
    assert done == ["body"]
