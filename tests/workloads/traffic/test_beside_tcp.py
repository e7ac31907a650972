# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flows of the kernel's TCP beside flows of our device, on one emulated link."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.cc import registry
from datapath.cc.spec import STAND_INS, HostCc
from datapath.errors import LocalError
from datapath.fabric.flows import FlowResults
from datapath.lanes.event_spec import Event
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.launch import device_environment
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext
from tests.workloads.test_perftest import values

DUMBBELL: dict[str, Any] = {"preset": "dumbbell", "hosts": 4, "mtu": 1500}
PATH = Path.model_validate({"rate": "50mbit", "delay": "1ms", "queue": "64KiB"})
TRAFFIC = REGISTRY["traffic"]
BESIDE: list[dict[str, Any]] = [
    {"name": "rdma", "from": 0, "to": 2, "size": "16KiB"},
    {"name": "tcp", "from": 1, "to": 3, "size": "16KiB", "cc": {"tcp": "cubic"}},
    {"name": "back", "from": 2, "to": 1, "bytes": "64KiB", "cc": {"tcp": "reno"}, "start": "50ms"},
]


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(Topology.model_validate(DUMBBELL), "fabric") as built:
        yield built


def run(
    network: Any, logs: FilePath, flows: Sequence[Mapping[str, Any]], events: Sequence[Any] = ()
) -> Outcome:
    network.set_path(PATH, 1)
    environment = [device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts]
    context = RunContext(
        network=network,
        transport=Transport.model_validate({"device": "dp", "port": "udp"}),
        cc=HostCc.model_validate({"algo": "newreno"}),
        device_env=environment,
        logs=logs,
        seed=1,
        timeout_s=60,
        path=PATH,
        folder=logs,
        events=[Event.model_validate(event) for event in events],
    )
    params = TRAFFIC.Params.model_validate({"flows": flows, "duration": "400ms"})
    return TRAFFIC(params).run(context)


def test_both_share_the_link(network: NetnsNetwork, tmp_path: FilePath) -> None:
    found = values(run(network, tmp_path, BESIDE))
    assert 0 < found["fair_share"] < 2
    assert 0 < found["competing_fair_share"] < 2
    assert found["unfinished_share"] == 0
    # Which process has which rows: flows begin at 0, 0 and 50 ms.
    assert _rows(tmp_path, "traffic-host0") == [0]
    assert _rows(tmp_path, "traffic-tcp-host1") == [0]
    assert _rows(tmp_path, "traffic-tcp-host2") == [1]
    assert _rows(tmp_path, "traffic-host1") == []
    assert "--tcp" in (tmp_path / "traffic-tcp-host1.cmd").read_text()


def _rows(logs: FilePath, name: str) -> list[int]:
    """Of the part's own table."""
    return [int(flow) for flow in FlowResults.read(logs / f"{name}.report").rows["flow"]]


def test_events_of_either(network: NetnsNetwork, tmp_path: FilePath) -> None:
    """TCP gets another algorithm, and stops; the path changes for both."""
    events = [
        {"at": "100ms", "cc": {"tcp": "reno"}, "flows": "tcp"},
        {"at": "150ms", "cc": {"algo": "cubic"}, "flows": "rdma"},
        {"at": "200ms", "path": {"rate": "40mbit"}},
        {"at": "300ms", "stop": "tcp"},
    ]
    found = values(run(network, tmp_path, BESIDE[:2], events))
    assert found["goodput"] > 0
    assert network.emulator().counters()["forward"]["refused"] == 0


SIMULATED = Topology.model_validate({"lane": "sim", **DUMBBELL})


@pytest.mark.parametrize(
    "event",
    [
        {"at": "100ms", "cc": {"tcp": "cubic"}, "flows": "rdma"},
        {"when": {"delivered": "64KiB"}, "cc": {"algo": "cubic"}, "flows": "tcp"},
        {"at": "100ms", "cc": {"algo": "cubic"}},
    ],
)
def test_a_flow_does_not_change_its_transport(tmp_path: FilePath, event: dict[str, Any]) -> None:
    with (
        SimNetwork(SIMULATED, PATH, tmp_path) as network,
        pytest.raises(LocalError, match=r"would change the flows .* from TCP to another transport"),
    ):
        run(network, tmp_path, BESIDE[:2], [event])


def test_live_flows_do_not_either(network: NetnsNetwork, tmp_path: FilePath) -> None:
    event = {"at": "100ms", "cc": {"tcp": "cubic"}, "flows": "rdma"}
    with pytest.raises(LocalError, match="would change the flows rdma from TCP"):
        run(network, tmp_path, BESIDE[:2], [event])


def test_flows_of_our_engine_stand_for_tcp_in_the_simulator(tmp_path: FilePath) -> None:
    """The same as with the algorithm named, and the run says so."""
    with SimNetwork(SIMULATED, PATH, tmp_path) as network:
        stood_for = run(network, tmp_path, BESIDE)
        named = [
            {**BESIDE[0]},
            {**BESIDE[1], "cc": {"algo": "cubic"}},
            {**BESIDE[2], "cc": {"algo": "newreno"}},
        ]
        as_named = run(network, tmp_path, named)
    assert values(stood_for) == values(as_named)
    assert stood_for.notes["tcp"].endswith("(cubic is cubic, reno is newreno)")
    assert "tcp" not in as_named.notes


def test_what_nothing_stands_for_is_refused(tmp_path: FilePath) -> None:
    with (
        SimNetwork(SIMULATED, PATH, tmp_path) as network,
        pytest.raises(LocalError, match="no TCP, and nothing that stands for its vegas") as refused,
    ):
        run(network, tmp_path, [{**BESIDE[1], "cc": {"tcp": "vegas"}}])
    assert "cubic, reno" in (refused.value.hint or "")


@pytest.mark.parametrize("tcp", STAND_INS)
def test_what_stands_for_tcp_is_included(tcp: str) -> None:
    assert HostCc(tcp=tcp).simulated.algo in registry()
