# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Congestion control in guests' kernels: rxe paced by an algorithm, and TCP beneath siw."""

from __future__ import annotations

import re
import sys
from pathlib import Path as FilePath

import pytest

from datapath.cc import compile_algorithm
from datapath.lanes import kernels
from datapath.lanes.pacing import pacing
from datapath.lanes.spec import Topology
from datapath.lanes.tcp_control import tcp_control
from datapath.lanes.vm import VmNetwork
from tests.guests.test_traffic import run
from tests.lanes.test_pacer import MIDDLE, frame
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


FQ = ["dev", "eth1", "root"]
QPS = 500
MANY_PACKETS = f"""
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth1", 0))
frame = bytearray.fromhex(sys.argv[1])
def send(port, count):
    frame[34:36] = port.to_bytes(2, "big")
    for psn in range(count):
        frame[50:54] = psn.to_bytes(4, "big")
        link.send(frame)
for port in range(0xC000, 0xC000 + {QPS}):
    send(port, 3)
send(0xF000, 512)
"""


def test_fq_has_room_for_all(network: VmNetwork, tmp_path: FilePath) -> None:
    """Each QP is a flow of fq.  None of their packets is dropped, nor of two QPs that are one flow.

    A packet takes 25 ms, so that the second and third of a QP wait.  If the guest halts between
    them they do not, and fq needs no flow for them.  With 1024 flows, 500 QPs would have about 395.
    """
    algorithm = compile_algorithm("fixed", {"window_bytes": 1024})
    packet = frame(0, MIDDLE, 0, bytes(1024))
    with pacing(network.hosts, algorithm.path, tmp_path, ecn=False):
        done = network.hosts[0].run(["python3", "-c", MANY_PACKETS, packet])
        queue = network.hosts[0].run(["tc", "-s", "qdisc", "show", *FQ]).stdout
    assert done.returncode == 0, done.stderr
    flows, limit = re.search(r"flows (\d+) ", queue), re.search(r" limit (\d+)p ", queue)
    assert flows, queue
    assert int(flows[1]) > 0.9 * QPS
    assert "(dropped 0," in queue
    assert limit, queue
    assert int(limit[1]) >= 512 * 256


@pytest.mark.parametrize("device", ["rxe"])
def test_rxe_goes_on_when_fq_drops(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    """rxe hands over 64 packets, which wait for a window of four; the queue has room for eight."""
    network.prepare(device)
    algorithm = compile_algorithm("fixed", {"window_bytes": 4096})
    section = {**STREAM, "operation": "send", "verify": True}
    with pacing(network.hosts, algorithm.path, tmp_path, ecn=False) as told:
        for host in network.hosts:
            done = host.run(["tc", "qdisc", "change", *FQ, "fq", "limit", "8"])
            assert done.returncode == 0, done.stderr
        found = values(run(network, tmp_path, device, "stream", section))
        queue = network.hosts[0].run(["tc", "-s", "qdisc", "show", *FQ]).stdout
    assert "(dropped " in queue
    assert "(dropped 0," not in queue
    assert found["goodput"] > 0
    assert found["unfinished_share"] == 0
    assert " 0 losses" not in told["host0"]


@pytest.mark.minutes  # another kernel, which may have to be fetched first
@pytest.mark.usefixtures("root")
def test_an_older_verifier_takes_the_pacer(tmp_path: FilePath) -> None:
    """Linux 6.1 knows less of values that have been on the stack than 6.12."""
    kernels.ensure("6.1", lambda text: print(text, file=sys.stderr))
    algorithm = compile_algorithm("swift")
    with (
        VmNetwork(Topology(lane="vm", kernel="6.1"), "none", tmp_path) as network,
        pacing(network.hosts, algorithm.path, tmp_path, ecn=True),
    ):
        assert "6.1." in network.hosts[0].run(["uname", "-r"]).stdout


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
