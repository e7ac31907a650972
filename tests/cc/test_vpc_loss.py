# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vpc: what it makes of loss, each rule against the number that docs/vpc.md gives for it."""

from __future__ import annotations

import math

import pytest

from .hand import MSS, Hand
from .test_vpc import BASE, steady, target, twice


def test_loss_at_random_changes_nothing() -> None:
    """One packet in twenty is lost, for long, with no delay: the window grows as without."""
    flow, other = steady(20), steady(20)
    for _ in range(100):
        flow.ack(19, rtt_ns=BASE, wait_ns=BASE, lost=1, inflight=1)
        other.ack(19, rtt_ns=BASE, wait_ns=BASE, inflight=1)
        flow.lose()
    assert flow.packets == other.packets
    assert float(flow.flow.usual_loss) == pytest.approx(0.05, rel=0.1)


def behind_a_queue(packets: float) -> Hand:
    """A flow that has just seen a queue longer than its target, and not yet shrunk."""
    flow = steady(packets)
    twice(flow, 1.5 * target(packets))
    flow.flow.w = packets
    flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    return flow


def test_much_more_loss_than_usual_is_congestion() -> None:
    """Behind a queue: by twice the excess, here all of the share, and half at most."""
    for lost in (32, 64):
        flow = behind_a_queue(64)
        flow.ack(144, lost=lost, inflight=0)  # no sample: neither growth nor decrease by delay
        share = lost / (144 + lost)
        assert flow.packets == pytest.approx(64 * (1 - min(2 * share, 0.5)), rel=0.01)


@pytest.mark.parametrize(
    ("window", "batch", "counts"), [(10, 32, 0.15), (63, 128, 0.075), (499, 1000, 0.05)]
)
def test_more_packets_tell_a_smaller_excess(window: float, batch: float, counts: float) -> None:
    """15 % of 32 packets; less by the root of their number; never less than 5 %."""
    for share, counted in ((0.9 * counts, False), (1.1 * counts, True)):
        flow = behind_a_queue(window)
        flow.ack(batch * (1 - share), lost=batch * share, inflight=0)
        assert (float(flow.flow.w) < window) == counted


def losing_half(flow: Hand, packets: int = 200) -> None:
    """A batch of which half is lost, in 8 ms."""
    flow.ack(packets / 2, rtt_ns=BASE, lost=packets / 2, inflight=0, wait_ns=8e6)


def policed() -> Hand:
    """A flow that has lost half of two batches, in 8 ms each."""
    flow = steady(64)
    flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    flow.flow.batch_ns = flow.now_ns
    losing_half(flow)
    losing_half(flow)
    flow.flow.usual_loss = 0
    return flow


def test_loss_without_a_queue_is_a_policer() -> None:
    """What came through is the rate; it grows by 2 % times the share that targets have."""
    flow = policed()
    kept_bps = 100 * MSS * 8e9 / 8e6
    assert flow.rate_bps == pytest.approx(kept_bps)
    for _ in range(3):
        kept_bps *= 1 + 0.02 * (0.15 + 0.4 / math.sqrt(kept_bps * BASE / (8e9 * MSS)))
        flow.ack(160, rtt_ns=BASE, inflight=0, wait_ns=8e6)
        assert flow.rate_bps == pytest.approx(kept_bps)


def test_a_policed_flow_gives_up_what_it_loses() -> None:
    """4 % of a batch above the usual: it is paced with that much less, but for the growth."""
    flow = policed()
    before = flow.rate_bps
    growth = 0.02 * (0.15 + 0.4 / math.sqrt(before * BASE / (8e9 * MSS)))
    flow.ack(192, rtt_ns=BASE, lost=8, inflight=0, wait_ns=8e6)
    assert flow.rate_bps == pytest.approx(before * (1 + growth - 0.04))


def test_one_burst_of_loss_is_no_policer() -> None:
    """Nor are two with good packets between them, nor two of which other rates came through."""
    flow = steady(64)
    flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    losing_half(flow)
    flow.ack(200, rtt_ns=BASE, inflight=0, wait_ns=8e6)
    losing_half(flow)
    assert flow.flow.policed_bps > 1e17
    flow.ack(100, rtt_ns=BASE, lost=100, inflight=0, wait_ns=30e6)
    assert flow.flow.policed_bps > 1e17


def test_a_policed_flow_keeps_a_least_rate() -> None:
    """A quarter of the least window per RTT; if nothing came through, there is no rate to keep.

    A rate of nothing would be no pacing at all, for ever.
    """
    flow = steady(64)
    flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    for _ in range(3):
        flow.ack(1e-9, rtt_ns=BASE, lost=200, inflight=0, wait_ns=8e6)
    assert flow.flow.policed_bps > 1e17
    flow = policed()
    for _ in range(12):
        flow.ack(1e-9, rtt_ns=BASE, lost=200, inflight=0, wait_ns=8e6)
    assert flow.rate_bps == pytest.approx(0.25 / 4 * MSS * 8e9 / BASE)


def test_time_outs_between_losses_do_not_keep_a_policed_flow_from_learning() -> None:
    """Several flows lose so much at first that each few packets end in a time-out."""
    flow = policed()
    before = flow.rate_bps
    for _ in range(8):
        flow.ack(8, rtt_ns=BASE, lost=8, inflight=0, wait_ns=2e6)
        flow.timeout()
    assert flow.rate_bps < 0.7 * before


def test_a_policer_that_is_gone_is_forgotten() -> None:
    """When the rate kept is twice what the window needs."""
    flow = steady(20)
    flow.flow.policed_bps = 2.1 * 40 * MSS * 8e9 / BASE
    flow.ack(150, rtt_ns=BASE, inflight=0, wait_ns=BASE)
    assert flow.flow.policed_bps > 1e17


def losing(share: float, packets: float = 64) -> Hand:
    """A flow that has lately lost this share of its packets, in batches too small to count."""
    flow = steady(packets)
    for _ in range(40):
        flow.ack(8 * (1 - share), lost=8 * share, inflight=packets)
        flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    flow.flow.w = packets
    return flow


def test_loss_above_the_usual_narrows_the_target() -> None:
    """By 12 times what exceeds it: at 5 % to 0.4, at 10 % to a tenth, which is the least."""
    for share, width in ((0.0, 1.0), (0.05, 0.4), (0.1, 0.1), (0.3, 0.1)):
        for side, grows in ((0.97, True), (1.03, False)):
            flow = losing(share)
            assert (twice(flow, side * width * target(64), 1) > 64) == grows, (share, side)


def test_no_more_than_15_percent_are_taken_for_usual() -> None:
    flow = steady(20)
    for _ in range(200):
        flow.ack(16, rtt_ns=BASE, wait_ns=BASE, lost=4, inflight=1)
    assert float(flow.flow.usual_loss) == pytest.approx(0.15, rel=0.01)


def test_a_buffer_that_overflows_is_no_longer_path() -> None:
    """The delay stays as it is, whatever the window: with 30 % lost it is no path's."""
    flow = losing(0.3, 30)
    for _ in range(30):
        flow.ack(0.7, rtt_ns=4 * BASE, wait_ns=4 * BASE, lost=0.3)
        flow.flow.jitter_ns = 0
    assert flow.flow.base_ns == BASE
    assert flow.packets < 1


def test_loss_before_a_time_out_is_not_counted_after_it() -> None:
    flow = steady(20)
    flow.ack(1, rtt_ns=BASE, lost=12)
    flow.timeout()
    flow.ack(25, rtt_ns=BASE, wait_ns=BASE)
    assert flow.flow.starting
    assert flow.packets == 26
