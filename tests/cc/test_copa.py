# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""copa against sections 2.1 and 2.2 of Arun and Balakrishnan (NSDI 2018)."""

from __future__ import annotations

import pytest

from .hand import Hand

RTT = 100_000.0
DELTA = 0.5


def empty_path(cwnd: float = 20, **params: float) -> Hand:
    """A flow out of slow start that has seen the RTT of the empty path."""
    hand = Hand("copa", initial_window=cwnd, **params)
    hand.ack(1, rtt_ns=RTT, inflight=0)
    hand.flow.slow_start = 0
    return hand


def at_rtt(hand: Hand, rtt_ns: float, rounds: int = 1, lost: bool = False) -> float:
    """Whole windows, a packet at a time, with an RTT; the window after it, in packets."""
    for _ in range(rounds):
        begin = hand.delivered
        count = max(int(hand.packets), 1)
        for i in range(count):
            prior = begin if i == 0 else begin - 1
            hand.ack(1, rtt_ns=rtt_ns, wait_ns=rtt_ns / count, prior=prior, inflight=hand.packets)
        if lost:
            hand.lose()
    return hand.packets


def test_slow_start_doubles_until_the_rate_exceeds_its_target() -> None:
    hand = Hand("copa", initial_window=10)
    hand.ack(10, rtt_ns=RTT, inflight=10)
    assert hand.packets == pytest.approx(20)
    hand.ack(10, wait_ns=RTT, rtt_ns=2 * RTT, inflight=10)  # the standing RTT is still low
    hand.ack(10, wait_ns=RTT, rtt_ns=2 * RTT, inflight=10)
    before = hand.packets
    hand.ack(10, wait_ns=RTT, rtt_ns=2 * RTT, inflight=10)
    assert hand.packets < before
    assert not hand.flow.slow_start


def test_below_the_target_rate_the_window_grows_by_v_over_delta_cwnd() -> None:
    hand = empty_path(cwnd=20)
    before = hand.packets
    hand.ack(1, wait_ns=RTT, rtt_ns=RTT, prior=0, inflight=20)
    assert hand.packets - before == pytest.approx(1 / (DELTA * before))


def test_above_the_target_rate_it_shrinks_by_as_much() -> None:
    """1 / (delta d_q) of 2 packets per RTT: a window of 20 is far above it."""
    hand = empty_path(cwnd=20)
    for _ in range(3):
        hand.ack(1, wait_ns=RTT, rtt_ns=2 * RTT, prior=0, inflight=20)
    before = hand.packets
    hand.ack(1, wait_ns=RTT, rtt_ns=2 * RTT, prior=0, inflight=20)
    assert before - hand.packets == pytest.approx(1 / (DELTA * before))


def test_the_target_is_where_delta_packets_wait() -> None:
    """cwnd / RTT = 1 / (delta d_q): with cwnd packets of RTT 2 T, half of them wait."""
    for packets, grows in ((3.9, True), (4.1, False)):
        hand = empty_path(cwnd=packets)
        for _ in range(4):
            hand.flow.cwnd_bytes = packets * float(hand.flow.mss_bytes)
            hand.ack(0.01, wait_ns=RTT, rtt_ns=2 * RTT, prior=0, inflight=packets)
        assert (hand.packets > packets) == grows


def test_the_velocity_doubles_after_three_rtts_in_one_direction() -> None:
    hand = empty_path(cwnd=100)
    seen = []
    for _ in range(7):
        at_rtt(hand, RTT)
        seen.append(float(hand.flow.velocity))
    assert seen[:2] == [1, 1]
    assert seen[-1] / seen[-2] == 2
    at_rtt(hand, 3 * RTT, rounds=2)
    assert hand.flow.velocity == 1


def test_packets_are_paced_at_twice_the_window_per_rtt() -> None:
    hand = empty_path(cwnd=20)
    hand.ack(1, wait_ns=RTT, rtt_ns=RTT, inflight=20)
    assert hand.rate_bps == pytest.approx(2 * 8e9 * float(hand.flow.cwnd_bytes) / RTT)


def test_a_queue_that_never_empties_is_a_rivals() -> None:
    """Five RTTs above a tenth of the oscillation: 1 / delta grows by one per RTT."""
    hand = empty_path(cwnd=20)
    at_rtt(hand, 4 * RTT, rounds=6)
    before = float(hand.flow.inverse_delta)
    at_rtt(hand, 4 * RTT, rounds=4)
    assert hand.flow.inverse_delta == before + 4
    at_rtt(hand, 4 * RTT, lost=True)
    full = float(hand.flow.inverse_delta)
    at_rtt(hand, 4 * RTT)
    assert hand.flow.inverse_delta == pytest.approx(max(full / 2, 2))
    at_rtt(hand, RTT, rounds=2)
    assert hand.flow.inverse_delta == 1 / DELTA


def test_the_mode_can_be_switched_off() -> None:
    hand = empty_path(cwnd=20, competitive=False)
    at_rtt(hand, 4 * RTT, rounds=12)
    assert hand.flow.inverse_delta == 1 / DELTA


def test_loss_alone_changes_nothing() -> None:
    hand = empty_path(cwnd=20)
    before = hand.packets
    assert hand.lose() == before
    assert hand.timeout() == 2
