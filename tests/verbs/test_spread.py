# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A network that spreads packets over the queues of a host by their UDP source port.

Each host's device has two queues, of which a port serves one.  A bridge joins the hosts, and a
program at its ports chooses the queue, as a card with RSS does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.native import paths
from tests.bpf import compile_bpf
from tests.io.conftest import Host, configure, run
from tests.verbs.test_queues import await_perftest

MTU = 9000
QPS, DEPTH = 32, 8  # the bridge drops what is more than some 1,000 packets
QUEUES = ("numtxqueues", "2", "numrxqueues", "2")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return compile_bpf(Path(__file__).with_name("spread.bpf.c"), tmp_path, "-g")


@pytest.fixture
def hosts(program: Path) -> Iterator[list[Host]]:
    made = [Host(f"dpspread-{os.getpid()}-{i}", f"10.123.0.{i}", f"fd12:3::{i}") for i in (1, 2)]
    middle = Host(f"dpspread-{os.getpid()}-0", "", "")
    everyone = [middle, *made]
    try:
        for host in everyone:
            run("ip", "netns", "add", host.namespace)
            host.run("ip", "link", "set", "lo", "up")
        middle.run("ip", "link", "add", "br0", "type", "bridge")
        middle.run("ip", "link", "set", "br0", "up")
        for number, host in enumerate(made):
            join(host, middle, f"port{number}", program)
        yield made
    finally:
        for host in everyone:
            for process in host.started:
                process.kill()
                process.communicate()
            run("ip", "netns", "delete", host.namespace, check=False)


def join(host: Host, middle: Host, port: str, program: Path) -> None:
    """A cable from the host's eth0 to a port of the bridge, which spreads what it sends."""
    host.run("ip", "link", "add", "eth0", *QUEUES, "type", "veth", "peer", "name", port, *QUEUES)
    host.run("ip", "link", "set", port, "netns", middle.namespace)
    middle.run("ip", "link", "set", port, "mtu", str(MTU), "master", "br0", "up")
    middle.run("tc", "qdisc", "add", "dev", port, "clsact")
    load = ("bpf", "direct-action", "object-file", str(program), "section", "tc")
    middle.run("tc", "filter", "add", "dev", port, "egress", *load)
    configure(host, MTU)


def program_on(queue: int, mode: str, counted: Path, words: str) -> list[str]:
    device = f"dp0=afxdp:eth0,queue={queue};mode={mode}"
    python = ("env", f"PYTHONPATH={paths.ROOT}", sys.executable, "-m", "datapath.cli", "exec")
    return [*python, "--device", device, "--stats", str(counted), "--", *words.split()]


@pytest.mark.parametrize("mode", ["auto", "standard"])
def test_source_ports_are_found(hosts: list[Host], tmp_path: Path, mode: str) -> None:
    """In extended mode packets come to the queue of their port, but for the first of each QP.
    In standard mode, where nobody looks for source ports, many come by the kernel."""
    words = f"ib_write_bw -F -s 4096 -n 1000 -t {DEPTH} -q {QPS}"
    left, right = hosts
    server = right.popen(*program_on(1, mode, tmp_path / "right", words))
    await_perftest(right)
    client = left.command(*program_on(0, mode, tmp_path / "left", words), right.ipv4)
    done = subprocess.run(client, capture_output=True, text=True, timeout=100, check=False)
    out, error = server.communicate(timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr + (out + error).decode()
    assert server.returncode == 0, (out + error).decode()
    for side in ("left", "right"):
        (path,) = tmp_path.glob(f"{side}.*.json")
        stats = json.loads(path.read_text())["port_stats"]
        elsewhere = stats["rx_other_queue"]
        assert (elsewhere < stats["rx_packets"] / 5) == (mode == "auto"), stats
