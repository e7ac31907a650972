# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that connect by RDMA-CM, unmodified, over our devices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from datapath.lanes.base import Host, Process
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as NetworkPath
from datapath.lanes.spec import Topology
from datapath.native import paths
from datapath.verbs.launch import device_environment
from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS, PYTHON, environment
from tests.waiting import wait_for_words

both_ports = pytest.mark.parametrize("port", ["afxdp", "udp"])

# Until an id is bound to a port of RDMA-CM: clients are refused when none is.
BOUND = "until grep -q 'datapath-udp:.*:service-' /proc/net/unix; do sleep 0.02; done"


def device_of(host: Host, port: str, *, ipv6: bool = False) -> dict[str, str]:
    endpoint = host.endpoint
    address = endpoint.ipv6 if ipv6 else endpoint.ipv4
    spec = f"afxdp:{endpoint.netdev},ip={address}" if port == "afxdp" else f"udp:{address}"
    return environment(spec)


def run_pair(
    pair: Pair,
    port: str,
    server: Sequence[str],
    client: Sequence[str],
    *,
    server_ends: bool = True,
    ipv6: bool = False,
) -> tuple[str, str]:
    """Both programs, "{}" being the server's address; both must end with 0."""
    left, right = pair.hosts
    log = pair.logs / "server"
    log.unlink(missing_ok=True)
    address = left.endpoint.ipv6 if ipv6 else left.endpoint.ipv4
    environments = [device_of(host, port, ipv6=ipv6) for host in pair.hosts]
    running = left.popen(
        [word.format(address) for word in server],
        env=environments[0],
        stdout=log,
        stderr=log,
    )
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        done = right.run(
            [word.format(address) for word in client],
            env=environments[1],
            timeout_s=60,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said + log.read_text()
        if server_ends:
            assert running.wait(timeout=30) == 0, said + log.read_text()
        else:
            assert running.poll() is None, said + log.read_text()
    finally:
        running.kill()
        running.wait()
    return log.read_text(), said


@both_ports
@pytest.mark.parametrize(
    ("server", "client"),
    [
        ("rping -s -a {} -C 20 -V", "rping -c -a {} -C 20 -V"),
        ("rping -s -C 5 -V -S 4096", "rping -c -a {} -C 5 -V -S 4096"),
        ("ucmatose -c 20", "ucmatose -s {} -c 20"),
        ("udaddy -c 10", "udaddy -s {} -c 10"),
        ("rdma_server", "rdma_client -s {}"),
        ("rdma_xserver -c r", "rdma_xclient -s {} -c r"),
        ("riostream -S 4096 -C 100", "riostream -s {} -S 4096 -C 100"),
        ("rstream -S 4096 -C 100", "rstream -s {} -S 4096 -C 100"),
        ("rstream -S 4096 -C 100 -T n", "rstream -s {} -S 4096 -C 100 -T n"),
        ("ib_write_bw -R -F -s 65536 -n 200", "ib_write_bw -R -F -s 65536 -n 200 {}"),
        ("ib_send_lat -R -F -n 200", "ib_send_lat -R -F -n 200 {}"),
        ("ib_read_bw -R -F -q 4 -n 200", "ib_read_bw -R -F -q 4 -n 200 {}"),
        ("ib_send_bw -R -F -c UD -n 200", "ib_send_bw -R -F -c UD -n 200 {}"),
    ],
)
def test_programs_connect(pair: Pair, port: str, server: str, client: str) -> None:
    run_pair(pair, port, server.split(), client.split())


@both_ports
@pytest.mark.parametrize(
    ("server", "client"),
    [
        ("rping -s -a {} -C 20 -V", "rping -c -a {} -C 20 -V"),
        ("ucmatose -f ip6 -b {} -c 5", "ucmatose -f ip6 -s {} -c 5"),
        ("udaddy -b {} -c 5", "udaddy -s {} -c 5"),
        ("riostream -f ip6 -b {} -S 4096 -C 20", "riostream -f ip6 -s {} -S 4096 -C 20"),
    ],
)
def test_programs_connect_over_ipv6(pair: Pair, port: str, server: str, client: str) -> None:
    run_pair(pair, port, server.split(), client.split(), ipv6=True)


SERVE = "until [ $(grep -c 'datapath-udp:.*:service-' /proc/net/unix) -ge {} ]; do sleep 0.02; done"


def test_a_stopped_server_holds_up_no_other(pair: Pair) -> None:
    """It opened the address first; a request is for another process's service."""
    left, right = pair.hosts
    address, log = left.endpoint.ipv4, pair.logs / "servers"
    servers = []
    try:
        for number, port in enumerate(("7999", "7998"), 1):
            argv = ["rping", "-s", "-a", address, "-p", port, "-C", "10", "-V"]
            env = device_of(left, "udp")
            servers.append(left.popen(argv, env=env, stdout=log, stderr=log))
            left.run(["sh", "-c", SERVE.format(number)], timeout_s=30)
            if number == 1:
                servers[0].send_signal(signal.SIGSTOP)
        argv = ["rping", "-c", "-a", address, "-p", "7998", "-C", "10", "-V"]
        done = right.run(argv, env=device_of(right, "udp"), timeout_s=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert servers[1].wait(timeout=20) == 0
    finally:
        for server in servers:
            server.kill()
            server.wait()


@both_ports
def test_cmtime_makes_its_connections(pair: Pair, port: str) -> None:
    _, said = run_pair(
        pair, port, ["cmtime"], ["cmtime", "-s", "{}", "-c", "100"], server_ends=False
    )
    assert "connect" in said
    assert "failed" not in said


@both_ports
def test_datagrams_reach_a_multicast_group(pair: Pair, port: str) -> None:
    """mckey joins by RDMA-CM, which attaches its QP; the receiver ends when it has all."""
    receiver, sender = (
        ["mckey", "-m", "239.1.2.3", "-b", host.endpoint.ipv4, "-C", "10"] for host in pair.hosts
    )
    log = pair.logs / "receiver"
    running = pair.hosts[0].popen(receiver, env=pair.environment(0, port), stdout=log, stderr=log)
    try:
        ready = "until grep -q 030201EF /proc/net/igmp; do sleep 0.02; done"
        pair.hosts[0].run(["sh", "-c", ready], timeout_s=30)
        done = pair.hosts[1].run([*sender, "-s"], env=pair.environment(1, port), timeout_s=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert running.wait(timeout=30) == 0, log.read_text()
    finally:
        running.kill()
        running.wait()


@both_ports
def test_a_file_is_copied(pair: Pair, port: str) -> None:
    source, copy = pair.logs / "source", pair.logs / "copy"
    source.write_bytes(bytes(range(256)) * 4096)
    run_pair(pair, port, ["rcopy"], ["rcopy", str(source), f"{{}}:{copy}"], server_ends=False)
    assert copy.read_bytes() == source.read_bytes()


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(), "bpf") as made:
        yield made


@pytest.fixture
def lossy(root: None, request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """Two hosts whose packets are lost at random, both ways."""
    network: NetnsNetwork = request.getfixturevalue("network")
    network.set_path(NetworkPath(loss=request.param), seed=7)
    return Pair(network.hosts, tmp_path)


@both_ports
@pytest.mark.parametrize("lossy", ["1%", "5%"], indirect=True)
@pytest.mark.parametrize(
    ("server", "client"),
    [
        ("rping -s -a {} -C 50 -V", "rping -c -a {} -C 50 -V"),
        ("ucmatose -c 50", "ucmatose -s {} -c 50"),
        ("udaddy -c 20 -C 0", "udaddy -s {} -c 20 -C 0"),
        ("riostream -S 4096 -C 100", "riostream -s {} -S 4096 -C 100"),
    ],
)
def test_programs_connect_though_messages_are_lost(
    lossy: Pair, port: str, server: str, client: str
) -> None:
    run_pair(lossy, port, server.split(), client.split())


@both_ports
@pytest.mark.parametrize("lossy", ["1%"], indirect=True)
def test_no_connection_is_lost_or_left(lossy: Pair, port: str) -> None:
    program = str(paths.connections_program())
    words = [program, "server", "{}", "7900", "300"]
    for said in run_pair(lossy, port, words, [program, "client", *words[2:], "16"]):
        told = json.loads(said.splitlines()[-1])
        assert [told[key] for key in ("made", "used", "ended")] == [300] * 3
        assert [told[key] for key in ("failed", "left")] == [0, 0]


def test_the_counters_tell_the_messages(pair: Pair) -> None:
    left, right = pair.hosts
    counted = [pair.logs / "counted0", pair.logs / "counted1"]
    envs = [
        pair.environment(number, "udp") | {"DATAPATH_STATS": str(prefix)}
        for number, prefix in enumerate(counted)
    ]
    argv = ["rping", "-a", left.endpoint.ipv4, "-C", "1", "-v"]
    server = left.popen([*argv, "-s"], env=envs[0])
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        assert right.run([*argv, "-c"], env=envs[1], timeout_s=60).returncode == 0
        server.wait(timeout=30)
    finally:
        server.kill()
        server.wait()
    (of_server,), (of_client,) = (list(pair.logs.glob(f"{p.name}.*.json")) for p in counted)
    server_cm, client_cm = (json.loads(p.read_text())["cm"] for p in (of_server, of_client))
    assert all(client_cm[name] for name in ("tx_req", "rx_rep", "tx_rtu", "tx_mads"))
    assert all(server_cm[name] for name in ("rx_req", "tx_rep", "rx_rtu", "rx_mads"))
    assert client_cm["timeouts"] == server_cm["timeouts"] == client_cm["rx_req"] == 0


def test_processes_share_an_address(pair: Pair) -> None:
    """Each message reaches the process that has the service, or the connection."""
    left, right = pair.hosts
    address = left.endpoint.ipv4
    started: list[tuple[Process, Path]] = []

    def start(host: Host, number: int, words: str) -> None:
        log = pair.logs / f"log{len(started)}"
        env = pair.environment(number, "udp")
        started.append((host.popen(words.format(address).split(), env=env, stdout=log), log))

    try:
        for port in (7801, 7802, 7803):
            start(left, 0, f"rping -s -a {{}} -p {port} -C 200 -V")
        for port in (7801, 7802, 7803):
            left.run(["sh", "-c", BOUND.replace("service-", f"service-.*{port:04x}")], timeout_s=30)
        start(right, 1, "rping -c -a {} -p 7801 -C 200 -V")
        start(right, 1, "rping -c -a {} -p 7802 -C 200 -V")
        start(left, 0, "rping -c -a {} -p 7803 -C 200 -V")  # to itself
        for process, log in started:
            assert process.wait(timeout=60) == 0, log.read_text()
    finally:
        for process, _ in started:
            process.kill()
            process.wait()


@both_ports
def test_a_port_in_use_is_refused(pair: Pair, port: str) -> None:
    left, _ = pair.hosts
    argv = ["rping", "-s", "-a", left.endpoint.ipv4]
    env = pair.environment(0, "udp")
    first = left.popen(argv, env=env)
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        second = left.run(argv, env=env, timeout_s=30)
        assert second.returncode != 0
        assert "Address already in use" in second.stderr
    finally:
        first.kill()
        first.wait()


LATE = """
ip neigh flush nud all dev eth1
sysctl -q net.ipv4.conf.eth1.arp_ignore=8
(sleep 0.3; sysctl -q net.ipv4.conf.eth1.arp_ignore=0) &
"""


@both_ports
def test_a_link_address_that_is_learnt_late(pair: Pair, port: str) -> None:
    """The first requests for it have no answer; the kernel asks again a second later."""
    left, right = pair.hosts
    late = f"{LATE} exec rping -s -a {left.endpoint.ipv4} -C 1 -V"
    right.run(["ip", "neigh", "flush", "nud", "all", "dev", "eth1"])
    run_pair(pair, port, ["sh", "-c", late], ["rping", "-c", "-a", "{}", "-C", "1", "-V"])


@both_ports
def test_nobody_listens(pair: Pair, port: str) -> None:
    """A process with the connection manager at work says so; otherwise there is no answer."""
    left, right = pair.hosts
    address = left.endpoint.ipv4
    server = left.popen(["rping", "-s", "-a", address, "-p", "7810"], env=pair.environment(0, port))
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        done = right.run(
            ["rping", "-c", "-a", address, "-p", "7811", "-v", "-d"],
            env=pair.environment(1, port),
            timeout_s=30,
        )
        assert done.returncode != 0
        assert "RDMA_CM_EVENT_REJECTED" in done.stdout + done.stderr
    finally:
        server.kill()
        server.wait()


# Until some megabytes have come in.
FLOWING = """
bytes=/sys/class/net/eth1/statistics/rx_bytes
start=$(cat $bytes)
until [ $(($(cat $bytes) - start)) -gt 5000000 ]; do sleep 0.05; done
"""


@both_ports
def test_a_peer_that_is_killed_ends_a_connection(pair: Pair, port: str) -> None:
    left, right = pair.hosts
    log = pair.logs / "client"
    argv = ["ib_write_bw", "-R", "-F", "-s", "65536", "-n", "10000000"]
    server = left.popen(argv, env=pair.environment(0, port))
    client = None
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        env = pair.environment(1, port)
        client = right.popen([*argv, left.endpoint.ipv4], env=env, stdout=log, stderr=log)
        left.run(["sh", "-c", FLOWING], timeout_s=30)
        assert client.poll() is None, log.read_text()
        server.kill()
        server.wait()
        assert client.wait(timeout=60) != 0
        assert "Failed status 12" in log.read_text()  # IBV_WC_RETRY_EXC_ERR
    finally:
        for process in (server, client):
            if process is not None:
                process.kill()
                process.wait()


@both_ports
def test_a_program_leaves_in_time(pair: Pair, port: str) -> None:
    """Its peer was killed, and it disconnects at exit: no answer comes, and it does not wait long.

    Its sleeps are 50 times as long as they should be, so 1.5 s are 30 of them.  Nor does a thread
    end it that meanwhile uses a closed channel.
    """
    left, right = pair.hosts
    log, leaves = pair.logs / "leaves.log", pair.logs / "leaves"
    source = PROGRAMS / "leaves.c"
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-rdynamic"]
    libraries = ["-libverbs", "-lrdmacm", "-pthread"]
    subprocess.run(["gcc", *options, "-o", leaves, source, *libraries], check=True)
    address = left.endpoint.ipv4
    server = left.popen(["rping", "-s", "-a", address], env=device_of(left, port))
    client = None
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        script = f"(until grep -q go {pair.logs}/go; do sleep 0.1; done) | {leaves} {address} 7174"
        client = right.popen(["sh", "-c", script], env=device_of(right, port), stdout=log)
        wait_for_words(log, "connected", client)
        server.kill()
        server.wait()
        (pair.logs / "go").write_text("go")
        assert client.wait(timeout=60) == 0
        assert 0 < int(log.read_text().split()[1]) <= 31
    finally:
        for process in (server, client):
            if process is not None:
                process.kill()
                process.wait()


def test_a_thread_asks_a_channel_that_is_being_destroyed(tmp_path: Path) -> None:
    """As the kernel's: the channel is closed already, or the thread waits for ever."""
    program = tmp_path / "closes"
    options = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]
    libraries = ["-libverbs", "-lrdmacm", "-pthread"]
    source = PROGRAMS / "closes.c"
    subprocess.run(["gcc", *options, "-o", program, source, *libraries], check=True)
    done = subprocess.run(
        [program, "2000"],
        env={**os.environ, **environment("udp:127.0.0.1")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(map(int, done.stdout.split())) == 2000


@both_ports
def test_a_child_keeps_nothing_of_its_parents_device(pair: Pair, port: str) -> None:
    """After fork() the parent closes the device: the child does not hold its queue or its place."""
    left, _ = pair.hosts
    log = pair.logs / "forks"
    program = str(PROGRAMS / "forks.py")
    parent = left.popen([PYTHON, program], env=pair.environment(0, port), stdout=log, stderr=log)
    try:
        wait_for_words(log, "closed", parent)
        words = ["rping", "-a", "{}", "-C", "3", "-V"]
        run_pair(pair, port, [*words, "-s"], [*words, "-c"])
        assert parent.poll() is None, log.read_text()
    finally:
        parent.kill()
        parent.wait()


def test_a_child_keeps_nothing_of_a_device_that_another_thread_opens() -> None:
    program = str(PROGRAMS / "forks_meanwhile.py")
    done = subprocess.run(
        [PYTHON, program],
        env={**os.environ, **environment("udp:127.0.0.1")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_a_signal_handler_ends_the_program() -> None:
    program = Path(__file__).parent / "programs" / "exit_in_signal.py"
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, **device_environment("dp0", "udp:127.0.0.1")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
