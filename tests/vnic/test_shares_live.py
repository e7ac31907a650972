# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tenants and classes that share a card: who gets what of its rate."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

ROCE_PORT, STORAGE_PORT, WEB_PORT = 4791, 4420, 80
PAYLOAD = bytes(1200)
FRAME = 14 + 20 + 8 + len(PAYLOAD)
RATE_BPS = 8_000_000
ENOUGH = 2000 * FRAME
"""Bytes over which shares are compared: a frame more or less is far below 5 % of any."""


@contextlib.contextmanager
def cards(hosts: int, **vnic: Any) -> Iterator[NetnsNetwork]:
    """Hosts of two sides, on one card each, with a path that loses."""
    topology = Topology.model_validate(
        {
            "preset": "dumbbell" if hosts > 2 else "p2p",
            "hosts": hosts,
            "mtu": 1500,
            "vnic": {"rate": RATE_BPS, **vnic},
        }
    )
    with NetnsNetwork(topology) as network:
        network.set_path(Path.model_validate({"loss": "1%"}), 1)
        yield network


class Blast:
    """Sends datagrams from a host to its peer, more than it has a share of, while it is open."""

    def __init__(self, client: NetnsHost, server: NetnsHost, port: int) -> None:
        self._to = (server.endpoint.ipv4, port)
        self._sock = client.namespace.in_network(
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        # At once as many as the card holds, so that it matters little when this thread has a CPU.
        burst = 2000
        while not self._ended.is_set():
            for _ in range(burst):
                with contextlib.suppress(OSError):  # the device takes no more
                    self._sock.sendto(PAYLOAD, self._to)
            burst = 64
            self._ended.wait(0.05)

    def __enter__(self) -> Blast:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()
        self._sock.close()


def leaves(network: NetnsNetwork) -> Mapping[str, Mapping[str, Any]]:
    """Of the left card: tenant -> class -> counters."""
    assert network._cards is not None
    tenants = network._cards.counters()[0]["tenants"]
    return {vni: tenant["classes"] for vni, tenant in tenants.items()}


def shares(network: NetnsNetwork, keys: list[tuple[str, str]]) -> list[float]:
    """Part of each (tenant, class) while all of them have frames that wait."""

    def sent() -> list[int]:
        now = leaves(network)
        return [now[tenant][name]["tx_bytes"] for tenant, name in keys]

    def all_wait() -> bool:
        now = leaves(network)
        return all(now[tenant][name]["queued_frames"] > 20 for tenant, name in keys)

    wait_until(all_wait, "everybody has frames that wait")
    before = sent()
    wait_until(lambda: sum(sent()) > sum(before) + ENOUGH, "enough is sent")
    assert all_wait(), "somebody had no frames: the comparison is void"
    got = [now - was for now, was in zip(sent(), before, strict=True)]
    return [part / sum(got) for part in got]


def test_three_tenants_share_by_weight_and_a_fourth_need_not_wait() -> None:
    weights = [1, 2, 5]
    tenants = [{"weight": weight} for weight in weights]
    with cards(8, tenants=[*tenants, {"weight": 2}]) as network, contextlib.ExitStack() as stack:
        *first, newcomer = network.pairs
        for client, server in first:
            stack.enter_context(Blast(client, server, ROCE_PORT))
        got = shares(network, [(str(vni), "other") for vni in (1, 2, 3)])
        assert got == [pytest.approx(weight / 8, rel=0.05) for weight in weights]
        stack.enter_context(Blast(*newcomer, ROCE_PORT))
        wait_until(lambda: leaves(network)["4"]["other"]["tx_frames"] > 0, "it is served")
        # The line's bytes are the clock: 100 ms would be 100 kB.
        assert leaves(network)["4"]["other"]["first_wait_bytes"] <= 5 * FRAME
        got = shares(network, [(str(vni), "other") for vni in (1, 2, 3, 4)])
        assert got == [pytest.approx(weight / 10, rel=0.05) for weight in (1, 2, 5, 2)]


def test_classes_share_what_their_tenant_has() -> None:
    classes = {
        "rdma": {"udp": [ROCE_PORT], "weight": 6},
        "storage": {"udp": [STORAGE_PORT], "weight": 3},
        "other": {"weight": 1},
    }
    with (
        cards(4, classes=classes, tenants=[{"weight": 1}, {"weight": 1}]) as network,
        contextlib.ExitStack() as stack,
    ):
        one, two = network.pairs
        for port in (ROCE_PORT, STORAGE_PORT, WEB_PORT):
            stack.enter_context(Blast(*one, port))
        stack.enter_context(Blast(*two, ROCE_PORT))
        keys = [("1", "rdma"), ("1", "storage"), ("1", "other"), ("2", "rdma")]
        got = shares(network, keys)
        assert got == [pytest.approx(part, rel=0.05) for part in (0.3, 0.15, 0.05, 0.5)]


def test_guaranteed_and_largest_rates_hold() -> None:
    tenants = [{"min_rate": "3.2mbit"}, {"weight": 16}, {"weight": 16, "max_rate": "0.8mbit"}]
    with cards(6, tenants=tenants) as network, contextlib.ExitStack() as stack:
        for client, server in network.pairs:
            stack.enter_context(Blast(client, server, ROCE_PORT))
        got = shares(network, [(str(vni), "other") for vni in (1, 2, 3)])
        assert got == [pytest.approx(part, rel=0.05) for part in (0.4, 0.5, 0.1)]
