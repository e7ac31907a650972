# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vpc: its rules, each against the number that docs/vpc.md gives for it."""

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
    flow = Hand("vpc", line_rate_bps=100 * GBIT, **params)
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
    assert Hand("vpc", line_rate_bps=GBIT).packets == pytest.approx(12500 / MSS)
    assert Hand("vpc", line_rate_bps=100 * GBIT).packets == 32_000 / MSS
    assert Hand("vpc", line_rate_bps=1e6).packets == 2
    assert Hand("vpc", line_rate_bps=0).packets == 32_000 / MSS
    assert Hand("vpc", line_rate_bps=0, initial_bytes=1e6).packets == 10
    assert Hand("vpc", line_rate_bps=GBIT).rate_bps == GBIT


def test_it_doubles_until_four_samples_are_above_the_target() -> None:
    """Then half of its packets leave the queue for two RTTs, so that it sees the path empty."""
    flow = Hand("vpc", line_rate_bps=100 * GBIT, initial_bytes=16 * MSS, jitter_gain=0)
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
    """From more than one packet, however far above the target; from less, a quarter of its square.

    So of two such windows the larger gives more, and flows of less than a packet become equal.
    """
    flow = steady(2.5)
    queue = 20 * target(2.5)
    twice(flow, queue, 2)  # the first sight of it
    flow.flow.jitter_ns = 0
    flow.ack(1e-9, rtt_ns=BASE + queue, wait_ns=2 * BASE + queue)
    assert flow.packets == pytest.approx(1)
    flow = steady(0.8)
    assert twice(flow, queue) == pytest.approx(0.8 - 0.8**2 / 4)


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


def test_a_short_packet_among_full_ones_tells_no_delay() -> None:
    """It leaves a slow link sooner; as base RTT it would make a queue of each full packet."""
    flow = steady(50)
    flow.ack(1, rtt_ns=BASE, wait_ns=BASE)
    flow.ack(0.5, rtt_ns=0.6 * BASE, wait_ns=BASE)
    assert flow.flow.base_ns == BASE
    flow.ack(7, rtt_ns=0.9 * BASE, wait_ns=BASE)
    assert flow.flow.base_ns == 0.9 * BASE


def test_short_packets_by_themselves_do() -> None:
    """And full ones after them begin with a base RTT of their own."""
    flow = steady(50)
    flow.ack(1, rtt_ns=BASE, wait_ns=BASE)
    flow.ack(0.5, rtt_ns=0.6 * BASE, wait_ns=20 * BASE)
    assert flow.flow.base_ns == 0.6 * BASE
    flow.ack(0.25, rtt_ns=0.5 * BASE, wait_ns=BASE)
    assert flow.flow.base_ns == 0.5 * BASE
    flow.ack(1, rtt_ns=1.1 * BASE, wait_ns=BASE)
    assert flow.flow.base_ns == pytest.approx(1.1 * BASE)
    flow.ack(0.5, rtt_ns=0.6 * BASE, wait_ns=BASE)
    assert flow.flow.base_ns == pytest.approx(1.1 * BASE)


def test_one_late_packet_is_no_queue() -> None:
    flow = steady(50)
    flow.ack(1e-9, rtt_ns=5 * BASE, wait_ns=2 * BASE)
    assert flow.packets >= 50


def drained(flow: Hand, rtt_ns: float) -> None:
    """Two round trips of draining in which the RTT has this length."""
    flow.flow.draining, flow.flow.drain_ns = True, flow.now_ns
    while flow.flow.draining:
        flow.ack(1e-9, rtt_ns=rtt_ns, wait_ns=BASE / 2)


def test_what_jitter_leaves_on_a_drained_path_is_the_base_rtt() -> None:
    """60 us above the lowest RTT, which was luck; half of it counts after each drain."""
    flow = steady(10)
    flow.flow.jitter_ns = 40 * US
    for base_ns in (30 * US, 45 * US, 52.5 * US):
        drained(flow, BASE + 60 * US)
        assert float(flow.flow.base_ns) == pytest.approx(BASE + base_ns)
        flow.flow.jitter_ns = 40 * US
    assert flow.flow.lowest_ns == BASE


def test_without_jitter_what_is_left_on_a_drained_path_is_a_queue() -> None:
    """What is taken for the path's: six mean changes of the RTT beyond a tenth of the base RTT.

    That is 160 us, as jitter had it.
    """
    for jitter_ns, base_ns in ((0.0, 0.0), (16 * US, 0.0), (20 * US, 6 * (20 - 16) * US)):
        flow = steady(10)
        flow.flow.jitter_ns, flow.flow.base_ns = jitter_ns, BASE + 60 * US
        flow.ack(1e-9, rtt_ns=BASE + 60 * US, wait_ns=BASE)
        assert float(flow.flow.base_ns) == pytest.approx(BASE + base_ns, rel=0.01)


def test_jitter_is_the_mean_change_between_close_samples() -> None:
    """RTTs that change by 40 us from one to the next.

    What exceeds a tenth of the base RTT, 30 us, widens the target by twice itself.
    """
    flow = steady(100, jitter_gain=0)
    for number in range(600):
        flow.flow.confirmed_ns = flow.now_ns  # no draining here
        flow.ack(1e-9, rtt_ns=BASE + 40 * US * (number % 2), wait_ns=10 * US)
    assert float(flow.flow.jitter_ns) == pytest.approx(40 * US, rel=0.01)
    for share, grows in ((0.95, True), (1.05, False)):
        flow = steady(100, jitter_gain=0)
        flow.flow.jitter_ns = 40 * US
        flow.ack(1e-9, rtt_ns=BASE + share * (target(100) + 60 * US), wait_ns=BASE)
        flow.flow.jitter_ns = 40 * US
        flow.ack(10, rtt_ns=BASE + share * (target(100) + 60 * US), wait_ns=2 * BASE)
        assert (float(flow.flow.w) > 100) == grows


def test_on_a_long_path_jitter_is_the_change_of_lowest_delays() -> None:
    """Packets that follow each other closely are late together: half as much again as the mean.

    A shorter path learns nothing from that.
    """
    for base_ms, learnt in ((20, 1.5), (5, 0)):
        flow = Hand("vpc", line_rate_bps=100 * GBIT)
        flow.ack(1, rtt_ns=base_ms * 1e6)
        for number in range(200):
            flow.flow.draining = False
            flow.ack(1e-9, rtt_ns=(base_ms + number % 2) * 1e6, wait_ns=0.3 * base_ms * 1e6)
        assert float(flow.flow.wander_ns) == pytest.approx(learnt * 1e6, rel=0.01)


def test_changes_over_a_round_trip_are_queue_and_not_jitter() -> None:
    """The same changes of the RTT, seen by a window of one packet: they widen nothing."""
    flow = steady(1)
    for number in range(100):
        flow.ack(1e-9, rtt_ns=BASE + 40 * US * (number % 2), wait_ns=BASE)
    assert flow.flow.jitter_ns == 0


def test_jitter_fades_when_samples_are_rare() -> None:
    """By 0.7 % with each sample that comes a round trip after the last one."""
    flow = steady(1)
    flow.flow.jitter_ns = 40 * US
    for _ in range(100):
        flow.ack(1e-9, rtt_ns=BASE, wait_ns=BASE)
    assert float(flow.flow.jitter_ns) == pytest.approx(40 * US * 0.993**100)


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
        flow = Hand("vpc", line_rate_bps=rate)
        flow.ack(1, rtt_ns=10 * US)
        flow.flow.starting, flow.flow.w = False, 4
        queue = 0.5 * (length_ns * (0.15 + 0.4 / 2) + 0.15 * 10 * US)
        flow.ack(1e-9, rtt_ns=10 * US + queue, wait_ns=200 * US)
        flow.flow.jitter_ns, flow.flow.draining = 0, False
        flow.flow.confirmed_ns, before = flow.now_ns, float(flow.flow.w)
        flow.ack(before, rtt_ns=10 * US + queue, wait_ns=20 * US)
        assert float(flow.flow.w) - before == pytest.approx(0.5, rel=0.03)


def test_on_a_long_path_a_window_has_the_target_of_a_smaller_one() -> None:
    """4.5 ms are nine times 500 us: 48 packets have the target of 16.

    A queue of half of that target grows the window by half a packet.
    """
    base = 4.5e6
    flow = Hand("vpc", line_rate_bps=GBIT)
    flow.ack(1, rtt_ns=base)
    flow.flow.starting, flow.flow.w = False, 48
    queue = 0.5 * 250 * US * (0.15 + 0.4 / math.sqrt(16) + 0.15)
    flow.ack(1e-9, rtt_ns=base + queue, wait_ns=base)
    flow.flow.jitter_ns, before = 0, float(flow.flow.w)
    flow.ack(before, rtt_ns=base + queue, wait_ns=2 * base)
    assert float(flow.flow.w) - before == pytest.approx(0.5, rel=0.03)


def test_a_window_grows_faster_over_a_long_path() -> None:
    """36 ms are four times 9 ms: two packets per RTT, half of that halfway to the target."""
    base = 36e6
    flow = Hand("vpc", line_rate_bps=GBIT, min_rtt_ns=base)
    flow.ack(1, rtt_ns=base)
    flow.flow.starting, flow.flow.w = False, 80
    queue = 0.5 * 250 * US * (0.15 + 0.4 / math.sqrt(80 * math.sqrt(0.5 / 36)) + 0.15)
    flow.ack(1e-9, rtt_ns=base + queue, wait_ns=base)
    flow.flow.jitter_ns, before = 0, float(flow.flow.w)
    flow.ack(before, rtt_ns=base + queue, wait_ns=2 * base)
    assert float(flow.flow.w) - before == pytest.approx(1, rel=0.03)


def test_jitter_is_no_queue_over_a_long_path() -> None:
    """A delay that jitter explains leaves a large window growing, and shrinks a small one."""
    base, noise = 20e6, 400 * US
    for w, grows in ((80, True), (8, False)):
        flow = Hand("vpc", line_rate_bps=GBIT, min_rtt_ns=base)
        flow.ack(1, rtt_ns=base)
        flow.flow.starting, flow.flow.w, flow.flow.jitter_gain = False, w, 0
        for _ in range(2):
            flow.ack(1e-9, rtt_ns=base + 4 * noise, wait_ns=base)
        flow.flow.jitter_ns, flow.flow.row, before = noise + 25 * US, 0, w
        flow.flow.w = w
        flow.ack(w, rtt_ns=base + 4 * noise, wait_ns=2 * base)
        assert (float(flow.flow.w) > before) == grows


def test_a_start_over_a_long_path_outlasts_a_short_queue() -> None:
    """Ten samples at a twentieth of the RTT end a start at 4 ms, and not one at 20 ms."""
    for base, ends in ((4e6, True), (20e6, False)):
        flow = Hand("vpc", line_rate_bps=GBIT, min_rtt_ns=base)
        flow.ack(1, rtt_ns=base)
        for _ in range(10):
            flow.ack(1, rtt_ns=1.05 * base, wait_ns=base / 2)
        assert bool(flow.flow.starting) != ends


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
    """Decreases until the flow competes, behind a queue that changes a little."""
    for number in range(1, 40):
        flow.ack(1, rtt_ns=rtt_ns * (1 + 0.04 * (number % 2)), wait_ns=1.1 * rtt_ns)
        if flow.flow.competing:
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


@pytest.mark.parametrize(("kept", "competes"), [(0.95, False), (1.0, True)])
def test_a_queue_that_gets_shorter_is_nobodys(kept: float, competes: bool) -> None:
    """Of many flows of vpc that began together, all give way: the delay falls by 5 % each time."""
    flow = steady(30)
    delay_ns, competed = 100.0 * BASE, False
    for number in range(40):
        late = 1 + 0.03 * (number % 2)  # not the same each time: no longer path
        flow.ack(1, rtt_ns=late * (BASE + delay_ns), wait_ns=1.1 * (BASE + delay_ns))
        delay_ns *= kept
        competed |= bool(flow.flow.competing)
    assert delay_ns > 10 * BASE
    assert competed == competes


def test_it_competes_no_more_when_the_queue_empties() -> None:
    flow = steady(30)
    give_up(flow, 8 * BASE)
    for _ in range(3):
        flow.ack(1e-9, rtt_ns=BASE, wait_ns=BASE)
    assert not flow.flow.competing
    assert not flow.flow.starting


def squeezed(flow: Hand, lost: float = 0) -> None:
    """It competes until it is time to try, and the rival leaves it one packet."""
    give_up(flow, 8 * BASE)
    for number in range(70):
        if not flow.flow.competing:
            break
        flow.ack(1, rtt_ns=8 * BASE * (1 + 0.04 * (number % 2)), wait_ns=2 * BASE, lost=lost)
    assert not flow.flow.competing
    flow.flow.w, flow.flow.row, flow.flow.last_row_low_ns = 1, 0, 0


def test_it_goes_back_to_the_window_that_it_had_beside_a_rival() -> None:
    flow = steady(30)
    squeezed(flow)
    had = float(flow.flow.rival_w)
    assert had >= 30
    give_up(flow, 8 * BASE)
    assert float(flow.flow.w) == pytest.approx(had, rel=0.1)


def test_a_loss_beside_the_rival_ends_that_memory() -> None:
    """The rivals may be many flows of vpc in a small buffer: later it competes with the least."""
    flow = steady(30)
    squeezed(flow, lost=1)
    for number in range(20):
        flow.ack(1, rtt_ns=8 * BASE * (1 + 0.04 * (number % 2)), wait_ns=9 * BASE)
        assert not flow.flow.competing
    give_up(flow, 8 * BASE)
    assert float(flow.flow.rival_w) == 4


def test_after_26_packets_without_loss_it_competes() -> None:
    """However many it lost before: all overshoot when two flows begin together."""
    for lost in (32, 1000):
        flow = steady(30)
        flow.ack(1e-9, rtt_ns=8 * BASE, lost=lost)
        flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
        flow.flow.w = 30
        assert 26 <= give_up(flow, 8 * BASE) <= 28, lost


@pytest.mark.parametrize("lost", [0, 32])
@pytest.mark.parametrize(("holds", "competes"), [(50, True), (46, False), (300, False)])
def test_a_start_that_overshot_is_no_crowd(holds: float, competes: bool, lost: int) -> None:
    """Two flows that begin together overshoot, and one of them loses most of its window.

    While it loses packets it takes nobody for a rival, nor before the seventh decrease.  Later
    it is behind a queue of 1.6 base RTTs, which may be that of many flows with the least window.
    It competes all the same, if its window was more than a quarter of a path of 48 packets or
    more.
    """
    flow = steady(30)
    flow.flow.line_rate_bps = holds * MSS * 8e9 / BASE
    flow.ack(1e-9, rtt_ns=8 * BASE, lost=lost)
    flow.flow.batch_bytes = flow.flow.batch_lost_bytes = 0
    flow.flow.w = 30
    for number in range(12 if lost else 6):
        flow.ack(1, rtt_ns=8 * BASE * (1 + 0.04 * (number % 2)), wait_ns=9 * BASE)
    assert not flow.flow.competing
    flow.flow.w, flow.flow.row, flow.flow.crowd_loss, flow.flow.recent_loss = 1, 0, 0, 0
    competed = False
    for number in range(40):
        flow.ack(1e-9, rtt_ns=2.6 * BASE * (1 + 0.1 * (number % 2)), wait_ns=3 * BASE)
        competed |= bool(flow.flow.competing)
    assert competed == competes


@pytest.mark.parametrize(
    ("rtts", "holds", "competes"), [(8, 50, True), (8, 46, False), (3.2, 50, False)]
)
def test_flows_of_a_few_packets(rtts: float, holds: float, competes: bool) -> None:
    """They compete where the queue cannot be that of many such flows.

    These aim at 0.95 base RTTs with the least window.  The queue is 7 or 2.2 of them, and the
    path holds so many packets at the rate of the port.
    """
    flow = steady(3)
    flow.flow.line_rate_bps = holds * MSS * 8e9 / BASE
    competed = False
    for number in range(40):
        late = 1 + 0.04 * (number % 2)
        flow.ack(1e-9, rtt_ns=rtts * BASE * late, wait_ns=1.1 * rtts * BASE)
        competed |= bool(flow.flow.competing)
    assert competed == competes


def test_a_longer_path_is_learnt() -> None:
    """2 ms more, always the same: seven decreases, then half of the rate that the flow had."""
    flow = steady(30)
    longer = 2e6 + BASE
    for _ in range(1 + 7):
        assert flow.flow.base_ns == BASE
        flow.ack(1, rtt_ns=longer, wait_ns=1.1 * longer)
    assert flow.flow.base_ns == longer
    assert not flow.flow.competing
    assert flow.packets == pytest.approx(30 * longer / BASE / 2, rel=0.1)


def test_a_longer_path_with_jitter_is_learnt_at_the_second_try() -> None:
    """RTTs that differ by 4 % may be a rival's; the lowest is found twice, so it is a path."""
    flow = steady(30)
    longer = 2e6 + BASE
    give_up(flow, longer)
    while flow.flow.competing:
        assert flow.flow.base_ns == BASE
        flow.ack(1e-9, rtt_ns=longer, wait_ns=longer)
    for number in range(20):
        flow.ack(1, rtt_ns=longer * (1 + 0.04 * (number % 2)), wait_ns=1.1 * longer)
        assert not flow.flow.competing
    assert longer <= flow.flow.base_ns < 1.04 * longer


def test_pacing_goes_above_the_line_rate_for_what_is_lost_on_the_way() -> None:
    """1.2 times the line rate at most; without an RTT the line rate."""
    flow = Hand("vpc", line_rate_bps=GBIT)
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
