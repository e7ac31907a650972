# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs on devices that serve one receive queue each of a network device: an engine for each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datapath.native import paths
from tests.io.conftest import Host, Pair, make_pair
from tests.verbs.devices import PROGRAMS, PYTHON, environment

__all__ = ["make_pair"]

SERVING = 'until [ "$(cat /proc/net/{} | grep -c {})" -ge {} ]; do sleep 0.02; done'
SERVICE = "datapath-udp:.*:service-"


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair(queues=2)


def command(host: Host, queue: int, program: str) -> list[str]:
    """`program` on the device of this queue."""
    added = environment(f"afxdp:eth0,queue={queue}")
    return host.command("env", *(f"{k}={v}" for k, v in added.items()), *program.split())


@contextmanager
def serving(host: Host, queue: int, program: str) -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen(
        command(host, queue, program), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield server
        assert server.wait(timeout=30) == 0, server.communicate()[0]
    finally:
        server.kill()
        server.communicate()


@contextmanager
def other_queue(host: Host, queue: int) -> Iterator[None]:
    """A port on the other one of the two queues."""
    options = ("--sleep", "--seconds", "60", "--idle-ms", "60000")
    tool = host.tool(f"afxdp:eth0,queue={1 - queue}", "receive", *options)
    try:
        yield
    finally:
        tool.kill()


def run(host: Host, queue: int, program: str) -> str:
    done = subprocess.run(
        command(host, queue, program), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def await_line(host: Host, table: str, pattern: str, count: int = 1) -> None:
    """Until so many lines of /proc/net/TABLE match."""
    host.run("timeout", "15", "sh", "-c", SERVING.format(table, pattern, count))


def await_perftest(host: Host, port: int = 18515) -> None:
    await_line(host, "tcp*", f"':{port:04X} .* 0A '")


PERFTEST = ["ib_write_bw -F -s 65536 -n 500", "ib_send_lat -F -s 200 -n 500",
            "ib_read_bw -F -s 65536 -n 200 -q 4", "ib_send_bw -F -c UD -s 1000 -n 500"]  # fmt: skip


@pytest.mark.parametrize("program", PERFTEST)
def test_programs_on_the_same_queue(pair: Pair, program: str) -> None:
    with serving(pair.b, 1, program):
        await_perftest(pair.b)
        run(pair.a, 1, f"{program} {pair.b.ipv4}")


@pytest.mark.parametrize("program", PERFTEST)
def test_packets_to_a_queue_without_a_port(pair: Pair, program: str) -> None:
    """They come by the kernel, there and back."""
    with serving(pair.b, 1, program):
        await_perftest(pair.b)
        run(pair.a, 0, f"{program} {pair.b.ipv4}")


@pytest.mark.parametrize("program", PERFTEST)
def test_packets_to_the_queue_of_another_port(pair: Pair, program: str) -> None:
    """They come by the kernel, too: that port does not see them."""
    client, server = 0, 1
    with other_queue(pair.a, client), other_queue(pair.b, server), serving(pair.b, server, program):
        await_perftest(pair.b)
        run(pair.a, client, f"{program} {pair.b.ipv4}")


def test_two_programs_of_a_host_reach_each_other(pair: Pair) -> None:
    """Their packets do not leave the host."""
    program = "ib_write_bw -F -s 65536 -n 300"
    with serving(pair.b, 0, program):
        await_perftest(pair.b)
        run(pair.b, 1, f"{program} {pair.b.ipv4}")


def test_both_queues_at_once(pair: Pair) -> None:
    one, two = "ib_write_bw -F -s 65536 -n 500", "ib_write_bw -F -s 65536 -n 500 -p 18516"
    with serving(pair.b, 0, one), serving(pair.b, 1, two):
        for port in (18515, 18516):
            await_perftest(pair.b, port)
        with serving(pair.a, 0, f"{one} {pair.b.ipv4}"):
            run(pair.a, 1, f"{two} {pair.b.ipv4}")


def test_a_request_finds_the_service_on_another_queue(pair: Pair) -> None:
    """By RDMA-CM: the client's queue is that of another server."""
    servers = [f"rping -s -a {pair.b.ipv4} -p {port} -C 10 -V" for port in (7998, 7999)]
    clients = [f"rping -c -a {pair.b.ipv4} -p {port} -C 10 -V" for port in (7998, 7999)]
    with other_queue(pair.a, 0), serving(pair.b, 0, servers[0]):
        await_line(pair.b, "unix", SERVICE)
        with serving(pair.b, 1, servers[1]):
            await_line(pair.b, "unix", SERVICE, 2)
            run(pair.a, 0, clients[1])
        run(pair.a, 0, clients[0])


def test_one_program_has_both_queues(pair: Pair) -> None:
    """An engine for each queue in one process; data compared within them and between them."""
    both = environment("afxdp:eth0,queue=0")
    first = both["DATAPATH_DEVICES"].partition("=")[2]
    both["DATAPATH_DEVICES"] = f"dp0={first} dp1={first.replace('queue=0', 'queue=1')}"
    env = [f"{k}={v}" for k, v in both.items()]
    done = subprocess.run(
        pair.a.command("env", *env, PYTHON, str(PROGRAMS / "two_engines.py")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == [[0, 0], [1, 1]]


def test_ranks_of_a_host_take_a_queue_each(pair: Pair, tmp_path: Path) -> None:
    """MPI processes that have the same environment."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]
    command += ["env", f"PYTHONPATH={paths.ROOT}", sys.executable, "-m", "datapath.cli", "exec"]
    command += ["--device", "dp0=afxdp:eth0,queue=any", "--stats", str(tmp_path / "counted"), "--"]
    command += [str(paths.mpi_benchmark()), "latency", "8", "200", "10"]
    done = subprocess.run(
        pair.a.command(*command), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = [json.loads(path.read_text()) for path in tmp_path.glob("counted.*.json")]
    assert len(counted) == 2
    assert all(one["port_stats"]["rx_packets"] >= 200 for one in counted)
