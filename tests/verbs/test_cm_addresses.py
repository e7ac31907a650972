# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""RDMA-CM and addresses: which device an address stands for, and where a peer is."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS, environment
from tests.verbs.test_rdmacm import BOUND
from tests.waiting import wait_for_words

NEIGHBOUR = ["ip", "neigh", "replace", "dev", "eth1"]
ARP_IGNORE = ["sh", "-c", 'echo "$0" > /proc/sys/net/ipv4/conf/eth1/arp_ignore']
FORGET = ["ip", "neigh", "del", "dev", "eth1"]


def messages(prefix: Path) -> Mapping[str, int]:
    """The counters that the connection manager of the only process with the prefix has left."""
    (left,) = prefix.parent.glob(f"{prefix.name}.*.json")
    counters: Mapping[str, int] = json.loads(left.read_text())["cm"]
    return counters


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


def test_refusals_reach_a_peer_that_the_kernel_does_not_know(pair: Pair) -> None:
    """No program hears of the first one, so none resolves the peer.  Before the second one the
    kernel has forgotten the peer, and gets no answer: the known link address serves on."""
    left, right = pair.hosts
    address, counters = left.endpoint.ipv4, pair.logs / "counters"
    words = ["rping", "-a", address, "-C", "1", "-v"]
    env = pair.environment(0, "afxdp") | {"DATAPATH_STATS": str(counters)}
    server = left.popen([*words, "-s"], env=env)
    here = left.run(["cat", "/sys/class/net/eth1/address"]).stdout.strip()
    env = pair.environment(1, "afxdp")
    try:
        left.run(["sh", "-c", BOUND], timeout_s=30)
        right.run([*NEIGHBOUR, address, "lladdr", here])  # or left's kernel would hear it ask
        for ignores in (0, 8):
            right.run([*ARP_IGNORE, str(ignores)])
            left.run([*FORGET, right.endpoint.ipv4])
            refused = right.run([*words, "-c", "-p", "7811"], env=env, timeout_s=60)
            assert "RDMA_CM_EVENT_REJECTED" in refused.stdout + refused.stderr
            time.sleep(1.5)  # after a second a link address is looked up again
        done = right.run([*words, "-c"], env=env, timeout_s=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.wait(timeout=60) == 0
    finally:
        right.run([*ARP_IGNORE, "0"])
        right.run([*FORGET, address])
        server.kill()
        server.wait()
    told = messages(counters)
    assert told["tx_unsent"] == 0
    assert told["tx_rej"] >= 2


def test_a_port_has_room_beside_a_crowd_of_peers(tmp_path: Path) -> None:
    """Messages to all peers that have address handles wait: no further ones are made."""
    program = tmp_path / "crowd"
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-rdynamic"]
    source = PROGRAMS / "crowd.c"
    subprocess.run(["gcc", *options, "-o", program, source, "-libverbs", "-lrdmacm"], check=True)
    done = subprocess.run(
        [program, "127.0.94.1"],
        env={**os.environ, **environment("udp:127.0.94.1")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("room\n", "", 0)
