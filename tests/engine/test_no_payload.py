# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Engines of the simulator move lengths only: the protocol is the same, memory is not touched."""

from __future__ import annotations

import pytest

from datapath.native import lib
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import Channel, ok, pattern

pytestmark = pytest.mark.san


@pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_lengths_only(make_world: MakeWorld, extended: bool, loss: float) -> None:
    world = make_world(extended=extended, no_payload=1)
    a, b = world.extended_pair() if extended else world.pair()
    target, source = b.host.memory(50_000), b.host.memory(pattern(50_000))
    received = b.recv(50_000)
    a.write(pattern(50_000), target)
    a.send(pattern(49_999))
    into = a.read(50_000, source)
    counter = b.host.memory(bytes(8))
    a.faa(counter, 1)
    sizes: list[tuple[int, int]] = []

    def watch(_: object, packet: object) -> bool:
        sizes.append((len(packet.data), packet.pay_len))  # type: ignore[attr-defined]
        return False

    assert world.run(Channel(loss=loss, lose=watch), limit_ns=100 * 10**9)
    done = ["RDMA_WRITE", "SEND", "RDMA_READ", "FETCH_ADD"]
    assert a.poll() == [ok(op) for op in done]
    assert b.poll_recv() == [ok("RECV", byte_len=49_999)]
    assert bytes(target) == bytes(received) == bytes(into) == bytes(50_000)
    assert max(data for data, _ in sizes) < 320
    assert max(pay for _, pay in sizes) == 1024


def test_a_packet_is_its_headers(make_world: MakeWorld) -> None:
    world = make_world(no_payload=1)
    a, b = world.pair()
    a.write(pattern(2047), b.host.memory(2047))
    first, last = a.host.send_all()
    assert (len(first.data), first.pay_len) == (lib.DP_BTH_LEN + lib.DP_RETH_LEN, 1024)
    assert (len(last.data), last.pay_len) == (lib.DP_BTH_LEN, 1023)


def test_all_of_the_extended_mode_at_once(make_world: MakeWorld) -> None:
    """Longer packets, several paths, telemetry, and switches that trim."""
    config = {"path_mtu_max": 1024, "segment_max": 1408, "paths": 4, "telemetry": 1}
    world = make_world(extended=True, no_payload=1, **config)
    a, b = world.pair()
    assert world.run()
    target = b.host.memory(50_000)
    for _ in range(3):
        a.write(pattern(50_000), target)
        packets = a.host.send_all()
        world.advance(10_000)
        assert {p.pay_len for p in packets} == {1408 - 136, 50_000 % (1408 - 136)}
        for i, packet in enumerate(packets):
            cut = packet._replace(pay_len=0, tos=lib.DP_DSCP_TRIMMED << 2)
            world.give(b.host, packet if i % 5 else cut)
        assert world.run(Channel(loss=0.02))
    assert a.poll() == [ok("RDMA_WRITE")] * 3
    assert b.stats()["trimmed"] == 24
