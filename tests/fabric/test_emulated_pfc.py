# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""PFC by class: the same senders and file in the emulator, between namespaces, and simulated."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.spec import HostCc
from datapath.errors import LocalError
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.launch import device_environment
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import RunContext

SENDERS = 3
CLASSES = [{"dscp": 3, "weight": 1, "lossless": True}, {"weight": 1}]
CC = HostCc.model_validate({"algo": "fixed", "window_bytes": 262144})


def topology(lane: str, **more: Any) -> Topology:
    section = {"lane": lane, "preset": "star", "hosts": SENDERS + 1, "mtu": 1500}
    return Topology.model_validate({**section, "buffer": "120kB", "pfc": True, **more})


def path(**more: Any) -> Path:
    return Path.model_validate({"rate": "100mbit", "delay": "20us", "classes": CLASSES, **more})


def incast(network: Any, logs: FilePath, dscp: int) -> tuple[int, int]:
    """All others send to the last host; (packets dropped by full buffers, ns paused)."""
    network.set_path(path(), 1)
    live = isinstance(network, NetnsNetwork)
    cc = compile_algorithm("fixed", CC.params).path
    environments: list[Any] = [
        device_environment("dp0", f"udp:{host.endpoint.ipv4}", cc=cc) if live else {}
        for host in network.hosts
    ]
    kind = REGISTRY["traffic"]
    group = {"from": f"0-{SENDERS - 1}", "to": SENDERS, "bytes": "1MB", "dscp": dscp}
    kind(kind.Params.model_validate({"flows": [group], "duration": "1s", "spin": "0s"})).run(
        RunContext(
            network=network,
            transport=Transport.model_validate({"device": "dp", "port": "udp"}),
            cc=CC,
            device_env=environments,
            logs=logs,
            seed=1,
            timeout_s=60,
            path=path(),
            folder=logs,
        )
    )
    counters = network.path_counters()
    assert sum(counters.starved.values()) == 0
    return sum(counters.overflowed.values()), sum(counters.paused_ns.values())


def check(network: Any, logs: FilePath) -> None:
    dropped, paused_ns = incast(network, logs, 3)
    assert dropped == 0
    assert paused_ns > 0
    dropped, paused_ns = incast(network, logs, 0)
    assert dropped > 0
    assert paused_ns == 0


def test_simulated(tmp_path: FilePath) -> None:
    check(SimNetwork(topology("sim"), path(), tmp_path), tmp_path)


@pytest.mark.usefixtures("root")
def test_live(tmp_path: FilePath) -> None:
    with NetnsNetwork(topology("netns"), "fabric") as network:
        check(network, tmp_path)
        with pytest.raises(LocalError, match="lane netns pauses classes, by their DSCP"):
            network.set_path(Path.model_validate({"rate": "100mbit", "delay": "20us"}), 1)
        check(network, tmp_path)
