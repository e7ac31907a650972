# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: which packets ask for an acknowledgement."""

from __future__ import annotations

import pytest

from datapath.native import lib
from tests.engine.ladder import QP, World, ok

pytestmark = pytest.mark.san


def asked(world: World, qp: QP) -> list[int]:
    """Which of the packets that it sends now ask, counted from 0; gives them to the peer."""
    packets = qp.host.send_all()
    for packet in packets:
        world.give(world.other(qp.host), packet)
    return [i for i, packet in enumerate(packets) if "ack" in packet.words()]


def test_short_messages_that_leave_together_ask_once(ext: World) -> None:
    a, b = ext.extended_pair()
    target = b.host.memory(64)
    for _ in range(10):
        a.write(bytes(64), target)
    assert asked(ext, a) == [9]
    ext.settle()
    assert a.poll() == [ok("RDMA_WRITE")] * 10
    assert b.stats()["acks_tx"] == 1


def test_one_asks_for_each_segment_of_bytes(ext: World) -> None:
    a, b = ext.extended_pair()
    segment = int(lib.dp_qp_segment(a.qp))
    size = segment // 4
    target = b.host.memory(size)
    for _ in range(10):
        a.write(bytes(size), target)
    assert asked(ext, a) == [3, 7, 9]


def test_each_message_of_a_segment_asks(ext: World) -> None:
    a, b = ext.extended_pair()
    segment = int(lib.dp_qp_segment(a.qp))
    target = b.host.memory(segment + 1)
    for size in (segment, segment, segment + 1, 1, 1):
        a.write(bytes(size), target)
    assert asked(ext, a) == [0, 1, 3, 5]


def test_every_sixteenth_packet_asks(ext: World) -> None:
    a, b = ext.extended_pair()
    target = b.host.memory(1)
    for _ in range(40):
        a.write(b"x", target)
    assert asked(ext, a) == [15, 31, 39]
