# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""RDMA-CM and addresses: which device an address stands for, and where a peer is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.verbs.conftest import Pair
from tests.verbs.devices import environment
from tests.verbs.test_rdmacm import BOUND
from tests.waiting import wait_for_words

NEIGHBOUR = ["ip", "neigh", "replace", "dev", "eth1"]


def test_a_peer_comes_back_with_another_link_address(pair: Pair) -> None:
    """The server has spoken to it before.  Its own kernel drops what is sent to the old address."""
    left, right = pair.hosts
    words = ["rping", "-a", left.endpoint.ipv4, "-v", "-d"]
    server = left.popen([*words, "-s", "-P"], env=pair.environment(0, "afxdp"))
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        for address in ("02:00:00:00:77:01", "02:00:00:00:77:02"):
            right.run(["ip", "link", "set", "eth1", "address", address])
            left.run([*NEIGHBOUR, right.endpoint.ipv4, "lladdr", address])
            client = [*words, "-c", "-C", "1"]
            done = right.run(client, env=pair.environment(1, "udp"), timeout_s=60)
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        server.kill()
        server.wait()


def test_the_device_of_another_address_stays_closed() -> None:
    devices = {"DATAPATH_DEVICES": "dp0=udp:127.0.93.1 dp1=udp:127.0.93.2"}
    env = {**os.environ, **environment("udp:127.0.93.1"), **devices}
    with subprocess.Popen(["rping", "-s", "-a", "127.0.93.2"], env=env) as server:
        names = Path("/proc/net/unix")
        try:
            wait_for_words(names, "datapath-udp:127.0.93.2:service-", server)
            assert "datapath-udp:127.0.93.1:" not in names.read_text()
        finally:
            server.kill()
