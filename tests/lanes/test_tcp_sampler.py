# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The sampler of kernel TCP against what iperf3 says of the same connections."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from datapath import series
from datapath.lanes.base import Process
from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as NetworkPath
from datapath.lanes.spec import Topology
from datapath.native import paths
from tests.waiting import wait_until

LISTENING = "until grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done"


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology()) as built:
        yield built


def sampler(host: NetnsHost, file: Path, *, flows: int = 16, max_bytes: int = 1 << 24) -> Process:
    numbers = map(str, (5_000_000, flows, max_bytes))
    addresses = [host.endpoint.ipv4, host.endpoint.ipv6]
    argv = [str(paths.tcp_sampler()), str(file), *numbers, *addresses]
    process = host.popen(argv, stderr=file.with_suffix(".err"))
    wait_until(lambda: file.exists() and file.stat().st_size, "the sampler has begun its file")
    return process


def iperf3(network: NetnsNetwork, *options: str, server: str = "") -> dict[str, dict[str, float]]:
    """The client's totals; it runs on host 0."""
    client, listener = network.hosts
    process = listener.popen(["iperf3", "--server", "--one-off"])
    try:
        listener.run(["sh", "-c", LISTENING])
        address = server or listener.endpoint.ipv4
        done = client.run(["iperf3", "--client", address, "--json", "--time", "1", *options])
        process.wait(10)
    finally:
        process.kill()
        process.wait()
    assert done.returncode == 0, done.stdout
    end = json.loads(done.stdout)["end"]
    assert isinstance(end, dict)
    return end


def segments_again(host: NetnsHost) -> int:
    """Segments that TCP has sent again in the host's namespace (RetransSegs of RFC 4022)."""
    table = host.run(["cat", "/proc/net/snmp"]).stdout
    names, values = (line.split() for line in table.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_it_sees_what_iperf3_sees(
    root: None, network: NetnsNetwork, tmp_path: Path, family: str
) -> None:
    network.set_path(NetworkPath(loss="1%"), seed=1)
    process = sampler(network.hosts[0], tmp_path / "t.series")
    address = getattr(network.hosts[1].endpoint, family)
    before = segments_again(network.hosts[0])
    end = iperf3(network, "--parallel", "2", server=address)
    process.kill()
    process.wait()
    file = series.read_file(tmp_path / "t.series", "host0")
    assert (file.rows_left_out, file.flows_left_out) == (0, 0)
    flows = series.flows(file.frame)
    # Two streams; the control connection carries too little to be one.
    assert len(flows) == 2
    delivered = sum(rows["delivered_bytes"].max() for _, _, rows in flows)
    again = sum(rows["retransmitted_packets"].max() for _, _, rows in flows)
    sent = end["sum_sent"]
    # The last sample may lie up to an interval before the end.  iperf3 from 3.18 on may leave out
    # the last write of each stream, of 128 KiB.
    assert 0.5 * sent["bytes"] < delivered <= sent["bytes"] + 2 * 2**17 + 1024
    # The kernel's own count goes on after iperf3's last look: what is lost at the end.
    assert 0 < again <= segments_again(network.hosts[0]) - before
    assert again >= 0.5 * sent["retransmits"]
    for _, _, rows in flows:
        assert len(rows) > 20
        assert rows["delivered_bytes"].is_monotonic_increasing
        assert rows["rtt_ns"].min() > 0
        assert (rows["cwnd_bytes"] > 1000).all()
        assert rows["sent_packets"].max() > again
    assert series.present(file.frame) == set(series.NAMES) - {"queue"}


def test_it_keeps_to_its_limits(root: None, network: NetnsNetwork, tmp_path: Path) -> None:
    network.set_path(NetworkPath(), seed=1)
    process = sampler(network.hosts[0], tmp_path / "t.series", flows=1, max_bytes=2048)
    iperf3(network, "--parallel", "3")
    assert process.poll() is None
    process.kill()
    process.wait()
    file = series.read_file(tmp_path / "t.series", "host0")
    assert (tmp_path / "t.series").stat().st_size <= 2048
    assert file.frame["qp"].nunique() == 1
    assert file.flows_left_out == 2
    assert file.rows_left_out > 0


def test_connections_of_before_are_not_sampled(
    root: None, network: NetnsNetwork, tmp_path: Path
) -> None:
    network.set_path(NetworkPath(), seed=1)
    client, server = network.hosts
    listener = server.namespace.in_network(
        lambda: socket.create_server((server.endpoint.ipv4, 0), backlog=2)
    )
    with listener:
        port = listener.getsockname()[1]
        with connect(client, server, port) as old, listener.accept()[0] as there:
            talk(old, there)
            process = sampler(client, tmp_path / "t.series")
            with connect(client, server, port) as new, listener.accept()[0] as here:
                while not any(qp for _, qp, _ in series.flows(read(tmp_path))):
                    talk(old, there)
                    talk(new, here)
                ports = {qp for _, qp, _ in series.flows(read(tmp_path))}
                assert ports == {new.getsockname()[1]}
            process.kill()
            process.wait()


def connect(client: NetnsHost, server: NetnsHost, port: int) -> socket.socket:
    address = (server.endpoint.ipv4, port)
    return client.namespace.in_network(lambda: socket.create_connection(address, 10))


def talk(sender: socket.socket, receiver: socket.socket) -> None:
    """More than makes a flow."""
    for _ in range(4):
        sender.sendall(bytes(50_000))
        left = 50_000
        while left:
            left -= len(receiver.recv(left))


def read(folder: Path) -> pd.DataFrame:
    return series.read_file(folder / "t.series", "host0").frame


def said(*arguments: object) -> tuple[int, str]:
    argv = [paths.tcp_sampler(), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


def test_it_does_not_write_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "t.series"
    file.write_text("mine")
    status, error = said(file, 1_000_000, 1, 4096, "127.0.0.1")
    assert (status, error) == (1, f"dp-tcp-sampler: {file}: File exists\n")
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("index", "wrong"), [(1, "99999"), (1, "1ms"), (2, "0"), (3, "-1"), (4, "10.0.0.256")]
)
def test_wrong_arguments_are_told(tmp_path: Path, index: int, wrong: str) -> None:
    arguments = [str(tmp_path / "t.series"), "1000000", "1", "4096", "127.0.0.1"]
    arguments[index] = wrong
    assert said(*arguments) == (1, f"dp-tcp-sampler: {wrong}: Invalid argument\n")
    assert list(tmp_path.iterdir()) == []
    assert said(*arguments[:4])[0] == 2
