# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""UCX and Open MPI over a device of `dpctl exec`, with nothing else set by the user."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from datapath.lanes.local import MGMT_DEVICE, NetnsHost
from datapath.native import paths
from tests.listening import await_listener
from tests.verbs.conftest import Pair
from tests.verbs.devices import sanitizer
from tests.waiting import wait_until

AGENT = paths.ROOT / "datapath" / "workloads" / "mpi" / "agent.sh"
MESSAGES = 500


def words(pair: Pair, host: NetnsHost, program: Sequence[str]) -> list[str]:
    """`dpctl exec` of the program, which leaves its counters behind."""
    device = f"dp0=udp:{host.endpoint.ipv4}"
    stats = ["--stats", str(pair.logs / "counted")]
    python = ["env", f"PYTHONPATH={paths.ROOT}", sys.executable, "-m", "datapath.cli"]
    return [*python, "exec", "--device", device, *stats, "--", *program]


def sent(pair: Pair) -> list[int]:
    """Packets that each process sent, the least first."""
    files = pair.logs.glob("counted.*.json")
    return sorted(json.loads(path.read_text())["port_stats"]["tx_packets"] for path in files)


def test_ucx_finds_the_device(pair: Pair) -> None:
    left, right = pair.hosts
    log = pair.logs / "server"
    program = ["ucx_perftest", "-p", "13338"]
    server = left.popen(words(pair, left, program), env=sanitizer(), stdout=log, stderr=log)
    try:
        await_listener(left, server)
        program += [left.endpoint.ipv4, "-t", "tag_lat", "-n", str(MESSAGES), "-w", "10"]
        done = right.run(words(pair, right, program), env=sanitizer(), timeout_s=60)
        assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
        assert server.wait(timeout=30) == 0, log.read_text()
    finally:
        server.kill()
        server.wait()
    assert sent(pair)[0] >= MESSAGES


def test_mpi_finds_the_device(pair: Pair) -> None:
    """Two hosts that share a name, and so shared memory, as far as Open MPI knows."""
    keep = []
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    command += ["--mca", "plm_rsh_agent", f"{AGENT} {pair.logs}"]
    command += ["--mca", "oob_tcp_if_include", MGMT_DEVICE]
    program = [str(paths.mpi_benchmark()), "latency", "8", str(MESSAGES), "10"]
    try:
        for host in pair.hosts:
            file = pair.logs / f"mpi-{host.endpoint.mgmt_ipv4}.pid"
            keep.append(
                host.popen(["sh", "-c", f"echo $$ >{file}.new; mv {file}.new {file}; sleep 900"])
            )
            wait_until(file.exists, "the host's process is there")
            at = f"{host.endpoint.mgmt_ipv4}:2"
            command += ["-np", "2", "--host", at, *words(pair, host, program), ":"]
        done = pair.hosts[0].run(command[:-1], env={**os.environ, **sanitizer()}, timeout_s=150)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for process in keep:
            process.kill()
            process.wait()
    counted = sent(pair)
    assert len(counted) == 4
    assert counted[-2] >= MESSAGES
