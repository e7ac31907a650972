# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Congestion control in guests' kernels: rxe paced by an algorithm, and TCP beneath siw."""

from __future__ import annotations

from pathlib import Path as FilePath

import pytest

from datapath.cc import compile_algorithm
from datapath.lanes.pacing import pacing
from datapath.lanes.tcp_control import tcp_control
from datapath.lanes.vm import VmNetwork
from tests.guests.test_traffic import run
from tests.waiting import wait_for_words
from tests.workloads.test_perftest import values

STREAM = {"duration": "2s", "size": "16KiB", "depth": 4}


@pytest.mark.parametrize("device", ["rxe"])
def test_rxe_is_paced(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    """A window of two packets paces; the data are right."""
    network.prepare(device)
    algorithm = compile_algorithm("fixed", {"window_bytes": 2048})
    section = {**STREAM, "operation": "send", "verify": True}
    with pacing(network.hosts, algorithm.path, tmp_path, ecn=True) as told:
        found = values(run(network, tmp_path, device, "stream", section))
        queue = network.hosts[0].run(["tc", "-s", "qdisc", "show", "dev", "eth1"]).stdout
    assert found["goodput"] > 0
    assert found["unfinished_share"] == 0
    assert "qdisc fq" in queue
    assert "throttled 0 " not in queue.partition("highprio")[2]  # packets have waited
    assert "no connection" not in told["host0"]
    assert told["host0"].startswith("1 connections, ")
    assert " 0 acknowledgements" not in told["host0"]
    for host in network.hosts:
        assert not host.run(["pgrep", "dp-rxe-pacer"]).stdout


@pytest.mark.parametrize("device", ["siw"])
@pytest.mark.parametrize("name", ["bbr", "dp_copa"])
def test_tcp_beneath_siw(network: VmNetwork, tmp_path: FilePath, name: str, device: str) -> None:
    network.prepare(device)
    seen = tmp_path / "sockets"
    look = "echo ready; while :; do ss -tinH dst 198.18.0.2; sleep 0.1; done"
    with tcp_control(network.hosts, name, tmp_path, tmp_path, one_kernel=False):
        watcher = network.hosts[0].popen(["sh", "-c", look], stdout=seen)
        try:
            wait_for_words(seen, "ready", watcher)
            found = values(run(network, tmp_path, device, "stream", STREAM))
        finally:
            watcher.kill()
            watcher.wait(timeout=20)
    assert found["goodput"] > 0
    assert f" {name} " in seen.read_text()
