# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collectives of gloo over its transport ibverbs, on our device, and over its TCP beside that.

gloo compares their results, and each test prints how long a collective took.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as NetworkPath
from datapath.lanes.spec import Topology
from tests.verbs.conftest import Pair

BENCHMARK = os.environ["GLOO_BENCHMARK"]
ITERATIONS = 200


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(Topology(), "bpf") as made:
        yield made


def transport(pair: Pair, host: int, port: str) -> list[str]:
    if port == "tcp":
        return ["--transport", "tcp", "--tcp-device", pair.hosts[host].endpoint.netdev]
    return ["--transport", "ibverbs", "--ib-device", "dp0"]


@pytest.mark.parametrize("loss", ["0", "1%"])
@pytest.mark.parametrize(
    ("port", "ranks"), [("afxdp", 2), ("udp", 2), ("udp", 4), ("tcp", 2), ("tcp", 4)]
)
@pytest.mark.parametrize(
    "collective",
    ["allreduce_ring_chunked", "allreduce_halving_doubling", "broadcast_one_to_all", "allgather"],
)
def test_collective(
    network: NetnsNetwork, tmp_path: Path, collective: str, port: str, ranks: int, loss: str
) -> None:
    """Half of the ranks on each host; they find each other in a folder."""
    network.set_path(NetworkPath.model_validate({"loss": loss}), seed=7)
    pair = Pair(network.hosts, tmp_path)
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    logs = [tmp_path / f"rank-{rank}" for rank in range(ranks)]
    running = []
    try:
        for rank, log in enumerate(logs):
            host = rank * 2 // ranks
            words = transport(pair, host, port)
            words += ["--size", str(ranks), "--rank", str(rank), "--shared-path", str(meeting)]
            words += ["--iteration-count", str(ITERATIONS), "--prefix", "run"]
            words += ["--elements", "10000", collective]
            env = {} if port == "tcp" else pair.environment(host, port)
            running.append(
                pair.hosts[host].popen([BENCHMARK, *words], env=env, stdout=log, stderr=log)
            )
        for process, log in zip(running, logs, strict=True):
            assert process.wait(timeout=100) == 0, log.read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()
    said = logs[0].read_text()
    assert ("dev=dp0" in said) == (port != "tcp")
    found = re.search(rf"(?m)^ +\d+ +10000 +(\d+) +(\d+) +(\d+) .* {ITERATIONS}$", said)
    assert found, said
    print("microseconds, least, p50, p99:", *found.groups())
