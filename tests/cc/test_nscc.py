# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nscc, case by case: marks and delay choose among four answers; quick adapt; lost packets."""

from __future__ import annotations

import pytest

from .hand import MSS, Hand

RTT = 12_000.0
LINE = 100e9
MOST = 1.5 * 150_000 / MSS


def hand(**params: float) -> Hand:
    return Hand("nscc", line_rate_bps=LINE, min_rtt_ns=RTT, eta=0, **params)


def begin(flow: Hand, packets: float) -> None:
    """A window, and an adjustment that is just over."""
    flow.flow.cwnd_bytes = packets * MSS
    flow.ack(0.001, wait_ns=1, rtt_ns=RTT + 2000, marked=1)
    flow.flow.cwnd_bytes = packets * MSS


def test_a_flow_begins_with_one_and_a_half_products() -> None:
    assert hand().flow.cwnd_bytes / MSS == pytest.approx(MOST)


@pytest.mark.parametrize(("unknown", "rate"), [({}, 10e9), ({"unknown_line_rate_bps": 4e11}, 4e11)])
def test_a_port_of_unknown_rate(unknown: dict[str, float], rate: float) -> None:
    flow = Hand("nscc", line_rate_bps=0, min_rtt_ns=RTT, **unknown)
    assert flow.flow.cwnd_bytes == pytest.approx(1.5 * rate * RTT / 8e9)


def test_below_the_target_the_window_grows_by_what_is_left() -> None:
    """Up to 4 packets per RTT, by how far the delay is below; no fair increase beside it."""
    flow = hand()
    begin(flow, 20)
    before = 20.0
    after = flow.ack(20, wait_ns=RTT + 1, rtt_ns=1.5 * RTT)
    assert after - before == pytest.approx(4 * 0.5, rel=0.01)


def test_above_the_target_without_a_mark_it_grows_by_the_fair_part() -> None:
    flow = hand()
    begin(flow, 20)
    assert flow.ack(20, wait_ns=RTT + 1, rtt_ns=2.5 * RTT) - 20 == pytest.approx(5, rel=0.01)


def test_a_mark_below_the_target_changes_nothing() -> None:
    flow = hand()
    begin(flow, 20)
    assert flow.ack(20, wait_ns=RTT + 1, rtt_ns=1.5 * RTT, marked=1) == 20


def test_marks_above_the_target_take_the_excess_of_the_mean_delay() -> None:
    """gamma times (mean - target) / mean, at most a half, and once per RTT."""
    flow = hand(delay_alpha=1, qa_threshold=100)
    begin(flow, 40)
    after = flow.ack(1, wait_ns=1, rtt_ns=3 * RTT, marked=1)
    assert after == pytest.approx(40 * (1 - 0.8 * 0.5))
    assert flow.ack(1, wait_ns=1, rtt_ns=3 * RTT, marked=1) == after
    assert flow.ack(1, wait_ns=RTT + 1, rtt_ns=30 * RTT, marked=1) == pytest.approx(after / 2)


def test_without_delay_it_grows_by_a_quarter_of_what_is_acknowledged() -> None:
    """From the second window on."""
    flow = hand()
    begin(flow, 10)
    flow.ack(9, rtt_ns=RTT)
    assert flow.ack(2, rtt_ns=RTT) == pytest.approx(10 + 2 / 4)


def test_quick_adapt_sets_the_window_to_what_was_delivered() -> None:
    flow = hand()
    begin(flow, 50)
    flow.ack(1, wait_ns=3 * RTT, rtt_ns=1.5 * RTT, marked=1)
    flow.ack(2, wait_ns=RTT, rtt_ns=2 * RTT, marked=1)
    after = flow.ack(1, wait_ns=2 * RTT, rtt_ns=8 * RTT, marked=1)
    assert after == pytest.approx(3)


def test_a_lost_packet_takes_itself_off_the_window() -> None:
    flow = hand()
    begin(flow, 50)
    flow.ack(20, wait_ns=3 * RTT, rtt_ns=1.5 * RTT, marked=1)
    before = flow.flow.cwnd_bytes / MSS
    assert flow.lose(2) == pytest.approx(before - 2)
