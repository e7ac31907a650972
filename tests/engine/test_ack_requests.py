# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: which packets ask for an acknowledgement."""

from __future__ import annotations

import pytest

from datapath.native import lib
from tests.engine.algorithms import Witness
from tests.engine.ladder import QP, US, World, ok

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


def measure_rtt(ext: World, a: QP, b: QP, rtt_us: int) -> None:
    """By a WRITE of one byte."""
    a.write(b"x", b.host.memory(1))
    (packet,) = a.host.send_all()
    ext.advance(rtt_us * US)
    ext.give(b.host, packet)
    ext.settle()


@pytest.mark.parametrize(
    ("window", "asking"),
    [
        (2, [1]),  # where the window closes
        (6, [1, 3, 5]),  # no more often than every second packet
        (12, [3, 7, 11]),
        (20, [5, 11, 17, 19]),
        (40, [10, 21, 32, 39]),
        (100, [15, 31, 47, 63, 79, 95, 99]),  # every sixteenth
    ],
)
def test_each_quarter_of_a_window_asks(ext: World, window: int, asking: list[int]) -> None:
    """Of a message that is longer: a packet that makes it more than a quarter since the last."""
    a, b = ext.extended_pair()
    segment = int(lib.dp_qp_segment(a.qp))
    Witness(a, cwnd_bytes=window * segment)
    measure_rtt(ext, a, b, 40)
    a.write(bytes(200 * segment), b.host.memory(200 * segment))
    assert asked(ext, a) == asking


def test_in_a_long_rtt_the_end_of_a_window_asks(ext: World) -> None:
    """The receiver holds no acknowledgement for so long."""
    a, b = ext.extended_pair()
    segment = int(lib.dp_qp_segment(a.qp))
    Witness(a, cwnd_bytes=12 * segment)
    measure_rtt(ext, a, b, 100)
    a.write(bytes(200 * segment), b.host.memory(200 * segment))
    assert asked(ext, a) == [11]


def test_each_quarter_of_what_a_rate_sends_in_an_rtt_asks(ext: World) -> None:
    """Eight packets, by a window of 40."""
    a, b = ext.extended_pair()
    segment = int(lib.dp_qp_segment(a.qp))
    seen = Witness(a, cwnd_bytes=40 * segment)
    measure_rtt(ext, a, b, 40)
    rtt_ns = seen.flow.srtt_ns + seen.flow.host_ns
    assert rtt_ns >= 40 * US
    seen.flow.pacing_rate_bps = 8 * segment * 8e9 / rtt_ns
    a.write(bytes(36 * segment), b.host.memory(36 * segment))
    asks: list[bool] = []
    while len(asks) < 36:
        asks += ["ack" in packet.words() for packet in a.host.send_all()]
        ext.advance(US)
    assert [i for i, ask in enumerate(asks) if ask] == list(range(2, 36, 3))


def test_requests_of_a_long_read_do_not_ask(ext: World) -> None:
    """Their answers acknowledge."""
    a, b = ext.extended_pair()
    segment = int(lib.dp_qp_segment(a.qp))
    Witness(a, cwnd_bytes=12 * segment)
    measure_rtt(ext, a, b, 40)
    a.read(64 * segment, b.host.memory(64 * segment))
    requests = a.host.send_all()
    assert len(requests) == 2  # for eight packets and for four
    assert not any("ack" in request.words() for request in requests)
