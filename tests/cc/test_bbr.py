# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bbr against draft-cardwell-iccrg-bbr-congestion-control-00."""

from __future__ import annotations

import pytest

from .hand import MSS, Hand

RTT_NS = 1e6
RATE = 100e6
BDP = RATE * RTT_NS / 8e9 / MSS  # packets
STARTUP, DRAIN, PROBE_BW, PROBE_RTT = range(4)


def bbr(**params: float) -> Hand:
    return Hand("bbr", send_quantum=0, **params)


def round_(flow: Hand, rate_bps: float = RATE, rtt_ns: float = RTT_NS, **more: float) -> None:
    """One round trip in one acknowledgement, with a rate sample."""
    flow.ack(BDP, wait_ns=rtt_ns, rtt_ns=rtt_ns, rate_bps=rate_bps, **more)


def in_probe_bw() -> Hand:
    flow = bbr()
    for _ in range(8):
        round_(flow, inflight=BDP)
    assert flow.flow.mode == PROBE_BW
    return flow


def test_startup_paces_at_the_high_gain() -> None:
    """Section 4.3.2.1: 2.89, about 2 / ln 2, for both rate and window."""
    flow = bbr()
    round_(flow)
    assert flow.rate_bps == pytest.approx(2.89 * RATE)
    for rate in (2, 4, 8):
        round_(flow, rate * RATE)
        assert flow.rate_bps == pytest.approx(2.89 * rate * RATE)
    assert flow.flow.mode == STARTUP


def test_three_rounds_without_a_quarter_more_fill_the_pipe() -> None:
    """Section 4.3.2.2, and the reciprocal gain of 4.3.3 until one BDP is in flight."""
    flow = bbr()
    round_(flow)
    for _ in range(2):
        round_(flow, 1.2 * RATE, inflight=3 * BDP)
    assert flow.flow.mode == STARTUP
    round_(flow, 1.2 * RATE, inflight=3 * BDP)
    assert flow.flow.mode == DRAIN
    assert flow.rate_bps == pytest.approx(1.2 * RATE / 2.89)
    round_(flow, 1.2 * RATE, inflight=BDP)
    assert flow.flow.mode == PROBE_BW


def test_app_limited_rounds_do_not_fill_the_pipe() -> None:
    flow = bbr()
    for _ in range(8):
        round_(flow, app_limited=True)
    assert flow.flow.mode == STARTUP


def test_the_gain_cycle() -> None:
    """Section 4.3.4: eight phases, 5/4, 3/4, then 1, with two BDP at most in flight."""
    flow = in_probe_bw()
    gains = []
    for _ in range(16):
        round_(flow, rtt_ns=1.01 * RTT_NS, inflight=1.25 * BDP)
        gains.append(round(flow.rate_bps / RATE, 2))
    start = gains.index(1.25)
    assert (gains + gains)[start : start + 8] == [1.25, 0.75, 1, 1, 1, 1, 1, 1]
    assert flow.packets == pytest.approx(2 * BDP, rel=0.02)


def test_bandwidth_is_the_maximum_of_ten_rounds() -> None:
    flow = in_probe_bw()
    round_(flow, 3 * RATE)
    for number in range(12):
        assert float(flow.flow.btl_bw_bps) == (3 * RATE if number <= 9 else RATE)
        round_(flow, RATE)


def test_a_lower_sample_of_an_app_limited_flow_does_not_count() -> None:
    flow = in_probe_bw()
    for _ in range(20):
        round_(flow, RATE / 10, app_limited=True)
    assert float(flow.flow.btl_bw_bps) == RATE


def test_probe_rtt() -> None:
    """Section 4.3.5: when RTprop is ten seconds old, four packets for 200 ms."""
    flow = in_probe_bw()
    while flow.flow.mode != PROBE_RTT:
        round_(flow, rtt_ns=1.5 * RTT_NS, inflight=BDP)
        assert flow.now_ns < 13e9
    assert flow.now_ns - 1e9 == pytest.approx(10e9, rel=0.01)
    assert flow.packets == 4
    start = flow.now_ns
    while flow.flow.mode == PROBE_RTT:
        round_(flow, inflight=4)
    assert flow.now_ns - start == pytest.approx(200e6, rel=0.02)
    assert flow.packets > BDP
    assert float(flow.flow.rtprop_ns) == RTT_NS


def test_loss_is_conserved_for_a_round_then_the_window_comes_back() -> None:
    """Section 4.2.3.4."""
    flow = in_probe_bw()
    before = flow.packets
    sent = flow.delivered
    assert flow.lose(prior=sent - 2, inflight=10) == pytest.approx(11)
    flow.ack(1, prior=sent - 1, inflight=9, rtt_ns=RTT_NS, rate_bps=RATE)
    assert flow.packets == pytest.approx(11)
    round_(flow, prior=flow.delivered + 1)
    assert flow.packets == pytest.approx(before, rel=0.05)
    assert flow.rate_bps > 0.7 * RATE


def test_the_floor_of_four_packets_waits_until_the_loss_is_over() -> None:
    """Section 4.2.3.6: BBRMinPipeCwnd is for the time without packet conservation."""
    flow = in_probe_bw()
    sent = flow.delivered
    assert flow.lose(prior=sent - 2, inflight=1) == pytest.approx(2)
    flow.ack(1, prior=sent - 1, inflight=1, rtt_ns=RTT_NS, rate_bps=RATE)
    assert flow.packets == pytest.approx(2)


def test_timeout_leaves_one_packet_and_the_model() -> None:
    flow = in_probe_bw()
    before = flow.packets
    assert flow.timeout() == 1
    round_(flow, prior=flow.delivered + 1)
    assert flow.packets == pytest.approx(before, rel=0.05)
