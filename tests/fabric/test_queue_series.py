# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The queues of the emulator over time, as files of series."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path as FilePath

import pytest

from datapath import series
from datapath.errors import DatapathError
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

PACKETS, BYTES = 60, 1400


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(), "fabric") as built:
        yield built


def burst(network: NetnsNetwork) -> None:
    """Packets from host 0 to host 1, faster than the link takes them."""
    address = (network.hosts[1].endpoint.ipv4, 9)

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(PACKETS):
                sock.sendto(bytes(BYTES), address)

    network.hosts[0].namespace.in_network(send)


def until_passed(network: NetnsNetwork) -> None:
    wait_until(lambda: network.path_counters().passed["forward"] >= PACKETS, "the burst has passed")


def test_a_burst_fills_the_queue_and_drains(network: NetnsNetwork, tmp_path: FilePath) -> None:
    # A packet takes 1.2 ms, the burst 70 ms.
    network.set_path(Path.model_validate({"backend": "fabric", "rate": "10mbit"}), 1)
    with network.sampled_path(tmp_path / "p", 1_000_000, 1 << 20):
        burst(network)
        until_passed(network)
        time.sleep(0.02)
    files = {path.name: series.read_file(path, None).frame for path in tmp_path.iterdir()}
    assert set(files) == {"p.forward.series", "p.backward.series"}
    forward = files["p.forward.series"]
    assert set(forward["link"]) == {"forward"}
    assert forward["time_ns"].is_monotonic_increasing
    queue = forward["queue_bytes"]
    assert 10 * BYTES < queue.max() <= PACKETS * (BYTES + 100)
    assert queue.iloc[-1] == 0
    # Nothing is added behind the burst: from its peak on it only gets shorter.
    assert queue.iloc[int(queue.argmax()) :].is_monotonic_decreasing
    assert (forward["marked_packets"] == 0).all()
    assert files["p.backward.series"]["queue_bytes"].max() < BYTES


def test_sampling_ends_with_its_body(network: NetnsNetwork, tmp_path: FilePath) -> None:
    network.set_path(Path.model_validate({"backend": "fabric", "rate": "1gbit"}), 1)
    with network.sampled_path(tmp_path / "p", 100_000, 1024):
        time.sleep(0.2)  # of some 2,000 samples, 14 find room
    first = {path: path.stat().st_size for path in tmp_path.iterdir()}
    time.sleep(0.05)
    assert {path: path.stat().st_size for path in tmp_path.iterdir()} == first
    for path, size in first.items():
        file = series.read_file(path, None)
        assert size <= 1024
        assert file.rows_left_out > 0
    with (
        pytest.raises(DatapathError, match=r"cannot sample into .*: File exists"),
        network.sampled_path(tmp_path / "p", 1_000_000, 1024),
    ):
        pytest.fail("it does")


def test_a_place_that_is_not_there_is_told(network: NetnsNetwork, tmp_path: FilePath) -> None:
    with (
        pytest.raises(DatapathError, match="No such file or directory"),
        network.sampled_path(tmp_path / "none" / "p", 1_000_000, 1024),
    ):
        pytest.fail("it does")


def test_a_path_without_a_queue_leaves_no_file(tmp_path: FilePath) -> None:
    with (
        NetnsNetwork(Topology(), "none") as direct,
        direct.sampled_path(tmp_path / "p", 1_000_000, 1024),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
