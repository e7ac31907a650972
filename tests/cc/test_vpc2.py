# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vpc2: its rules, each against the number that docs/cc.md gives for it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from .hand import MSS, Hand

US = 1000.0
BASE = 100 * US
GBIT = 1e9


def steady(packets: float, **params: float) -> Hand:
    """A flow past its start, with a base RTT of 100 us and no jitter."""
    flow = Hand("vpc2", line_rate_bps=100 * GBIT, **params)
    flow.ack(1, rtt_ns=BASE)
    flow.flow.starting, flow.flow.w = False, packets
    flow.ack(1e-9, rtt_ns=BASE, wait_ns=BASE)
    return flow


def target(packets: float) -> float:
    """Queueing delay aimed at, ns."""
    return BASE * (0.15 + 0.4 / math.sqrt(packets) + 0.15)


def twice(flow: Hand, queue_ns: float, packets: float = 1e-9) -> float:
    """Two samples: the lowest of two spans counts.  The window after the second."""
    flow.ack(1e-9, rtt_ns=BASE + queue_ns, wait_ns=BASE)
    flow.flow.jitter_ns = 0
    return flow.ack(packets, rtt_ns=BASE + queue_ns, wait_ns=2 * BASE + queue_ns)


def test_first_window_is_what_the_port_sends_in_the_initial_rtt() -> None:
    """1 Gbit/s x 100 us = 12500 bytes; 32 kB at most, 2 packets at least, whatever the rate."""
    assert Hand("vpc2", line_rate_bps=GBIT).packets == pytest.approx(12500 / MSS)
    assert Hand("vpc2", line_rate_bps=100 * GBIT).packets == 32_000 / MSS
    assert Hand("vpc2", line_rate_bps=1e6).packets == 2
    assert Hand("vpc2", line_rate_bps=0).packets == 32_000 / MSS
    assert Hand("vpc2", line_rate_bps=0, initial_bytes=1e6).packets == 10
    assert Hand("vpc2", line_rate_bps=GBIT).rate_bps == GBIT


def test_it_doubles_until_four_samples_are_above_the_target() -> None:
    """Then half of its packets leave the queue for two RTTs, so that it sees the path empty."""
    flow = Hand("vpc2", line_rate_bps=100 * GBIT, initial_bytes=16 * MSS, jitter_gain=0)
    flow.ack(16, rtt_ns=BASE, inflight=0)
    assert flow.packets == 32
    for _ in range(2):
        flow.ack(1, rtt_ns=1.7 * BASE, wait_ns=BASE, inflight=31)
    assert flow.packets == 33  # the lowest of two spans was the empty path's, once
    for _ in range(2):
        flow.ack(1, rtt_ns=1.7 * BASE, wait_ns=BASE, inflight=31)
        assert flow.packets == 33
    assert flow.flow.starting
    flow.ack(1, rtt_ns=1.7 * BASE, wait_ns=BASE, inflight=31)
    assert not flow.flow.starting
    assert float(flow.flow.w) == pytest.approx(33 / 1.7)
    assert flow.packets == pytest.approx(33 / 1.7 / 2 / 1.7)


@pytest.mark.parametrize("packets", [2, 10, 100])
def test_growth_ends_at_the_target(packets: float) -> None:
    """One packet per RTT without a queue, half a packet at half of the target, none at it."""
    for share in (0.0, 0.5, 0.99):
        flow = steady(packets)
        grown = twice(flow, share * target(packets), packets) - packets
        assert grown == pytest.approx(1 - share, rel=0.02)


@pytest.mark.parametrize("packets", [2, 10, 100])
def test_decrease_by_the_excess(packets: float) -> None:
    queue = 1.5 * target(packets)
    flow = steady(packets)
    want = 1 - 0.8 * (queue - target(packets)) / (BASE + queue)
    assert twice(flow, queue) == pytest.approx(packets * want)
    once = flow.packets
    flow.ack(1e-9, rtt_ns=BASE + queue, wait_ns=BASE)  # not twice in an RTT
    assert flow.packets == pytest.approx(once, rel=0.01)


def test_far_above_the_target_the_queue_is_drained_at_once() -> None:
    """Twice the target: 0.9 of what the path holds without a queue."""
    flow = steady(50)
    queue = 3 * target(50)
    twice(flow, queue, 2)  # the first sight of it
    before = float(flow.flow.w)
    assert before == pytest.approx(50 * 0.9, rel=0.01)
    flow.flow.jitter_ns = 0
    flow.ack(1e-9, rtt_ns=BASE + queue, wait_ns=2 * BASE + queue)
    assert flow.packets == pytest.approx(before * 0.9 * BASE / (BASE + queue), rel=0.01)


def test_one_decrease_leaves_a_packet() -> None:
    """From more than one packet, however far above the target; from less, to three quarters."""
    flow = steady(2.5)
    queue = 20 * target(2.5)
    twice(flow, queue, 2)  # the first sight of it
    flow.flow.jitter_ns = 0
    flow.ack(1e-9, rtt_ns=BASE + queue, wait_ns=2 * BASE + queue)
    assert flow.packets == pytest.approx(1)
    flow = steady(0.8)
    assert twice(flow, queue) == pytest.approx(0.8 * 0.75)


def test_below_one_packet_growth_is_a_share_of_the_window() -> None:
    flow = steady(0.5)
    flow.ack(1e-9, rtt_ns=BASE, wait_ns=BASE)
    assert flow.ack(1, rtt_ns=BASE, wait_ns=2 * BASE) == pytest.approx(2 * 0.5)


def test_below_one_packet_the_last_rtt_paces() -> None:
    """The mean, of samples that come once in several RTTs, tells of a queue long gone."""
    flow = steady(0.5)
    for rtt_ns in (20 * BASE, 2 * BASE):
        flow.ack(1e-9, rtt_ns=rtt_ns, wait_ns=rtt_ns)
    assert flow.packets < 1
    assert flow.rate_bps == pytest.approx(flow.packets * MSS * 8e9 / (2 * BASE), rel=0.01)


def test_a_host_that_stood_still_is_no_queue() -> None:
    """A round of packets is late, all sent before that was seen: a tenth, not half."""
    flow = steady(50)
    sent = flow.delivered
    flow.ack(1, rtt_ns=50 * BASE, prior=sent, wait_ns=50 * BASE)
    for _ in range(20):
        flow.ack(1, rtt_ns=50 * BASE, prior=sent, wait_ns=BASE)
    assert flow.packets == pytest.approx(45, rel=0.01)


def test_a_quarter_of_an_rtt_of_late_packets_is_no_queue() -> None:
    flow = steady(50)
    for _ in range(24):
        flow.ack(1e-9, rtt_ns=2 * BASE, wait_ns=BASE / 50)
    assert flow.packets >= 50
    for _ in range(27):
        flow.ack(1e-9, rtt_ns=2 * BASE, wait_ns=BASE / 50)
    assert flow.packets < 50


def test_one_late_packet_is_no_queue() -> None:
    flow = steady(50)
    flow.ack(1e-9, rtt_ns=5 * BASE, wait_ns=2 * BASE)
    assert flow.packets >= 50


def test_jitter_widens_the_target() -> None:
    """RTTs that change by 40 us from one to the next: a target as on a path of 14 times that."""
    kept = {}
    for gain in (14.0, 0.0):
        flow = steady(100, jitter_gain=gain)
        for number in range(800):
            flow.flow.confirmed_ns = flow.now_ns  # no draining here
            if number == 600:
                flow.flow.w = 100
            flow.ack(1e-9, rtt_ns=BASE + 60 * US + 40 * US * (number % 2), wait_ns=10 * US)
        assert float(flow.flow.jitter_ns) == pytest.approx(40 * US, rel=0.01)
        kept[gain] = float(flow.flow.w)
    assert kept[14.0] == pytest.approx(100, rel=0.01)
    assert kept[0.0] < 70


def test_changes_over_a_round_trip_are_queue_and_not_jitter() -> None:
    """The same changes of the RTT, seen by a window of one packet: they widen nothing."""
    flow = steady(1)
    for number in range(100):
        flow.ack(1e-9, rtt_ns=BASE + 40 * US * (number % 2), wait_ns=BASE)
    assert flow.flow.jitter_ns == 0


def test_jitter_fades_when_samples_are_rare() -> None:
    """By 0.3 % with each sample that comes a round trip after the last one."""
    flow = steady(1)
    flow.flow.jitter_ns = 40 * US
    for _ in range(100):
        flow.ack(1e-9, rtt_ns=BASE, wait_ns=BASE)
    assert float(flow.flow.jitter_ns) == pytest.approx(40 * US * 0.997**100)


def test_equal_bytes_have_equal_targets() -> None:
    """Eight packets of 1 KiB have the target of two of 4 KiB: half of it grows half a packet."""
    flow = steady(8)
    flow.flow.mss_bytes = 1024
    twice(flow, 0.5 * target(2), 2)
    assert float(flow.flow.w) - 8 == pytest.approx(0.5, rel=0.02)


def test_a_path_of_few_packets_has_the_target_of_ten() -> None:
    """At 1 Gbit/s ten packets of 4096 bytes take 328 us, at 10 Gbit/s 33 us.

    A queue of half the target grows a window by half a packet; the base RTT is 10 us.
    """
    for rate, length_ns in (
        (GBIT, 250 * US),
        (10 * GBIT, 10 * MSS * 8 / 10),
        (100 * GBIT, 10 * US),
    ):
        flow = Hand("vpc2", line_rate_bps=rate)
        flow.ack(1, rtt_ns=10 * US)
        flow.flow.starting, flow.flow.w = False, 4
        queue = 0.5 * (length_ns * (0.15 + 0.4 / 2) + 0.15 * 10 * US)
        flow.ack(1e-9, rtt_ns=10 * US + queue, wait_ns=200 * US)
        flow.flow.jitter_ns, flow.flow.draining = 0, False
        flow.flow.confirmed_ns, before = flow.now_ns, float(flow.flow.w)
        flow.ack(before, rtt_ns=10 * US + queue, wait_ns=20 * US)
        assert float(flow.flow.w) - before == pytest.approx(0.5, rel=0.03)


def test_telemetry_takes_the_place_of_the_delay() -> None:
    """Two queues of 12500 bytes at 10 Gbit/s are 20 us, whatever the RTT says."""
    hops = [(12500, 0, 0, 10e9), (12500, 0, 0, 10e9), (0, 0, 0, 10e9)]
    flow = steady(10)
    flow.ack(1e-9, rtt_ns=4 * BASE, hops=hops, wait_ns=BASE)
    flow.flow.jitter_ns = 0
    before = flow.packets
    flow.ack(before, rtt_ns=4 * BASE, hops=hops, wait_ns=4 * BASE)
    # the second sample's change of RTT is 0
    assert flow.packets - before == pytest.approx(1 - 20 * US / target(before), rel=0.01)


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


def test_loss_without_a_queue_is_a_policer() -> None:
    """Half of 200 packets is lost in 8 ms: 95 % of what was delivered, then 2 % more by batches."""
    flow = steady(64)
    flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    flow.flow.batch_ns = flow.now_ns
    flow.ack(100, rtt_ns=BASE, lost=100, inflight=0, wait_ns=8e6)
    kept_bps = 0.95 * 100 * MSS * 8e9 / 8e6
    assert flow.rate_bps == pytest.approx(kept_bps)
    assert flow.packets >= 64
    for _ in range(3):
        kept_bps *= 1.02
        flow.ack(160, rtt_ns=BASE, inflight=0, wait_ns=8e6)
        assert flow.rate_bps == pytest.approx(kept_bps)


def test_a_policed_flow_keeps_the_least_window() -> None:
    """All of a batch is lost: a rate of nothing would be no pacing at all, for ever."""
    flow = steady(64)
    flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    flow.ack(1e-9, rtt_ns=BASE, lost=200, inflight=0, wait_ns=8e6)
    assert flow.rate_bps == pytest.approx(0.25 * MSS * 8e9 / BASE)


def test_a_policer_that_is_gone_is_forgotten() -> None:
    """When the rate kept is twice what the window needs."""
    flow = steady(20)
    flow.flow.policed_bps = 2.1 * 20 * MSS * 8e9 / BASE
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


def test_no_more_than_8_percent_are_taken_for_usual() -> None:
    flow = steady(20)
    for _ in range(200):
        flow.ack(17, rtt_ns=BASE, wait_ns=BASE, lost=3, inflight=1)
    assert float(flow.flow.usual_loss) == pytest.approx(0.08, rel=0.01)


def test_a_buffer_that_overflows_is_no_longer_path() -> None:
    """The delay stays as it is, whatever the window: with 30 % lost it is no path's."""
    flow = losing(0.3, 30)
    for _ in range(30):
        flow.ack(0.7, rtt_ns=4 * BASE, wait_ns=4 * BASE, lost=0.3)
        flow.flow.jitter_ns = 0
    assert flow.flow.base_ns == BASE
    assert flow.packets < 1


def test_a_dip_of_the_delay_puts_draining_off() -> None:
    """When others drain the RTT has its lowest since the last time: this flow drains with them."""
    flow = steady(30)
    queue, step = 0.1 * BASE, 0.1 * BASE
    flow.flow.drain_gap, flow.flow.dip_rtt_ns = 32.0, BASE + queue
    dip, rounds = 200, 0
    while not flow.flow.draining:
        flow.ack(1e-9, rtt_ns=BASE + (queue / 2 if rounds == dip else queue), wait_ns=step)
        rounds += 1
    assert (rounds - dip) * step == pytest.approx(32 * BASE, abs=2 * step)


def test_marks_shrink_the_window_by_half_of_alpha() -> None:
    """g = 1/16: the first window that is marked as a whole takes off 1/32."""
    flow = steady(20)
    before = flow.packets
    after = flow.ack(1e-6, marked=1)
    assert after == pytest.approx(before * (1 - 1 / 32), rel=1e-3)


def test_the_queue_is_drained_when_the_base_rtt_is_old() -> None:
    """A new flow after 8 RTTs, to half of the empty path's window for two; then after 16, 32."""
    flow = steady(30)
    queue, step = 0.1 * BASE, 0.1 * BASE
    draining, starts = False, []
    for _ in range(800):
        flow.ack(1e-9, rtt_ns=BASE + queue, wait_ns=step)
        if flow.flow.draining and not draining:
            starts.append(flow.now_ns)
            assert flow.packets == pytest.approx(30 * 0.5 * BASE / (BASE + queue), rel=0.01)
        draining = bool(flow.flow.draining)
    gaps = [(b - a) / BASE for a, b in pairwise(starts)]
    assert gaps == pytest.approx([16 + 2.2, 32 + 2.2], abs=0.5)


def give_up(flow: Hand, rtt_ns: float) -> int:
    """Decreases until the flow starts anew, as a rival or on a longer path."""
    for number in range(1, 40):
        flow.ack(1, rtt_ns=rtt_ns, wait_ns=1.1 * rtt_ns)
        if flow.flow.starting:
            return number
    raise AssertionError("it never gave up")


def test_a_queue_that_stays_is_somebody_elses() -> None:
    """The seventh decrease gives up; the window is back, doubles, and grows like NewReno's."""
    flow = steady(30)
    assert give_up(flow, 8 * BASE) == 1 + 7  # the first sample alone is no queue
    assert flow.flow.competing
    assert flow.packets == pytest.approx(30, rel=0.1)
    before = flow.packets
    flow.ack(before, rtt_ns=8 * BASE, wait_ns=US, inflight=0)
    assert flow.packets == pytest.approx(2 * before)
    flow.ack(1, rtt_ns=8 * BASE, wait_ns=9 * BASE, lost=1)
    assert flow.packets == pytest.approx(before, rel=0.01)
    at = flow.packets
    flow.ack(at, rtt_ns=8 * BASE, wait_ns=US, inflight=0)
    assert flow.packets == pytest.approx(at + 1)


def test_it_competes_no_more_when_the_queue_empties() -> None:
    flow = steady(30)
    give_up(flow, 8 * BASE)
    for _ in range(3):
        flow.ack(1e-9, rtt_ns=BASE, wait_ns=BASE)
    assert not flow.flow.competing
    assert not flow.flow.starting


def test_flows_of_a_few_packets_do_not_compete() -> None:
    """The queue may be that of many such flows."""
    flow = steady(3)
    for _ in range(40):
        flow.ack(1e-9, rtt_ns=4 * BASE, wait_ns=5 * BASE)
        assert not flow.flow.competing


def test_a_longer_path_is_learnt() -> None:
    """10 ms more: the same RTT is found twice, and then the flow starts anew from where it was."""
    flow = steady(30)
    longer = 10e6 + BASE
    give_up(flow, longer)
    assert flow.flow.competing
    while flow.flow.competing:
        assert flow.flow.base_ns == BASE
        flow.ack(1e-9, rtt_ns=longer, wait_ns=longer)
    flow.flow.starting = False
    give_up(flow, longer)
    assert not flow.flow.competing
    assert flow.flow.base_ns == longer
    assert flow.packets == pytest.approx(30, rel=0.1)


def test_loss_before_a_time_out_is_not_counted_after_it() -> None:
    flow = steady(20)
    flow.ack(1, rtt_ns=BASE, lost=12)
    flow.timeout()
    flow.ack(25, rtt_ns=BASE, wait_ns=BASE)
    assert flow.flow.starting
    assert flow.packets == 26


def test_pacing_goes_above_the_line_rate_for_what_is_lost_on_the_way() -> None:
    """1.2 times the line rate at most; without an RTT the line rate."""
    flow = Hand("vpc2", line_rate_bps=GBIT)
    assert flow.rate_bps == GBIT
    flow.ack(1, rtt_ns=BASE)
    flow.flow.starting, flow.flow.w = False, 1000
    flow.ack(1, rtt_ns=BASE)
    assert flow.rate_bps == pytest.approx(1.2 * GBIT)


def test_timeouts() -> None:
    flow = steady(30)
    flow.ack(1, rtt_ns=BASE)
    assert flow.timeout() == 1
    assert flow.timeout() == 0.5
    assert flow.rate_bps == pytest.approx(0.5 * MSS * 8e9 / BASE)
    assert flow.flow.starting
