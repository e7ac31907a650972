# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""VPC: a small, fair queue, also with loss, jitter, policers and flows that fill queues."""

import math

from datapath.cc import Ack, Flow, algorithm, param, state
from datapath.cc.algorithms.vpc_loss import forget_losses, heed_loss
from datapath.cc.algorithms.vpc_target import (
    BITS_NS,
    LONG_NS,
    LONGEST_NS,
    MOST_CHANGE,
    MOST_NARROWED,
    NONE_YET,
    ROOMY_PACKETS,
    SLOW_NS,
    UNCROWDED,
    crowding,
    kept_of_few,
    length_ns,
    long_path,
    noise_ns,
    room_ns,
    roomy,
    share_of_length,
    target_ns,
)

START_SHARE = 1 / 16  # of an RTT above SLOW_NS: a start ends at no shorter queue
SHORT_ROUNDS = 16  # RTTs without a full packet, after which short ones tell the delay
SPAN = 0.25  # of an RTT, of which the lowest delay counts, at least
CLOSE = 0.5  # of an RTT: samples further apart differ by the queue, not by jitter
JITTER_G, FADE_G = 0.02, 0.007  # weights of the newest change, and of a sample that is not close
MANY_PACKETS = 8  # the queue of a window of fewer changes by whole packets, which is no jitter
WANDER_G, WANDER_GAIN = 0.1, 1.5  # weight of the newest change of the lowest delay, and its factor
BETA, FAR = 0.8, 2  # decrease per excess delay; targets from which on the queue is drained
MOST_STRETCH = 2  # of the window, for return path queues
CALM_ROUNDS, MOST_GROWTH = 4, 1 / 8  # after so many, growth doubles per RTT; of the window
FIRST_GAP, LAST_GAP = 8, 75  # base RTTs without sight of an empty path until a flow drains
LEAST_GAP, ROOMY_GAP = 3, 10  # RTTs for it, at least; where there is room for a window
DRAINED = 0.8  # of the empty path's window, while draining
RELEARN_ROUNDS = 2000  # RTTs after which the lowest RTT since replaces the base RTT
FLAT, FLATTEST = 0.1, 0.02  # RTTs that differ by less are taken for equal, and for one
FALLING = 0.99  # of the delay that the last decrease left: below it others give way too
LONGER = 2.5  # delays of the least window: what is less may be many flows with such a window
CUT = 4  # when the window has become smaller by this, its packets have left the queue
CROWDED = 1 / 30  # loss above the usual: no rival from here on
RIVAL_PACKETS, PRESSED_PACKETS = 4, 48  # least path for windows of 4 or more to compete; of less
MUCH = 1 / 4  # of a path: a larger window is not that of one of many flows
RIVAL_ROUNDS = 96  # base RTTs for which a flow competes
FIRST_RTT_NS = 100_000  # at line rate: first window


@algorithm("vpc", source="this toolkit; docs/vpc.md")
class Vpc(Flow):
    """Window control toward a small queueing delay; loss alone says nothing.

    Delay is the lowest of the last RTTs less that of the drained path, or what telemetry tells.
    The target is a share of the base RTT, larger for small windows, which makes equal flows equal
    (flow scaling of Swift, SIGCOMM 2020).  Below it the window grows by a packet per RTT, faster
    when it is calm (velocity of Copa, NSDI 2018); far above it, it shrinks at once.

    A queue that stays when a flow's packets have left it is a rival's: the flow competes like
    NewReno for some RTTs (Copa's mode switching).  If the RTT stays the same, the path is longer.
    Loss counts beyond the usual; without a queue, much of it is a policer's.  Marks: RFC 8257.
    """

    target: float = param(0.15, min=0.01, max=10, doc="queueing delay aimed at, in base RTTs")
    scaling: float = param(0.4, min=0, max=10, doc="added to it for a window of one packet")
    slack: float = param(0.15, min=0, max=10, doc="added to it for what hosts add, in base RTTs")
    jitter_gain: float = param(6, min=0, max=100, doc="mean changes that it adds to the base RTT")
    excess_loss: float = param(0.15, min=0.01, max=1, doc="loss above the usual that counts")
    patience: float = param(6, min=2, max=100, doc="decreases without effect until it competes")
    initial_bytes: float = param(32_000, unit="bytes", min=1, doc="most of the first window")
    min_window: float = param(0.25, unit="packets", min=0.001, max=1, doc="least window")
    pacing_gain: float = param(1.2, min=1, max=10, doc="pacing rate, in windows per RTT")

    w: float = state()
    starting: bool = state(True)
    base_ns: float = state()
    jitter_ns: float = state()
    wander_ns: float = state()
    lowest_ns: float = state(NONE_YET)
    last_rtt_ns: float = state()
    last_cut_ns: float = state()
    stretch: float = state(1)
    last_sample_ns: float = state()
    full_ns: float = state(-NONE_YET)
    short: bool = state(False)
    confirmed_ns: float = state()
    queue_ns: float = state(NONE_YET)
    low_ns: float = state(NONE_YET)
    last_low_ns: float = state(NONE_YET)
    low_until_ns: float = state()
    start_samples: int = state(0)
    decreased_ns: float = state()
    seen_bytes: float = state()
    calm_bytes: float = state()
    draining: bool = state(False)
    drain_ns: float = state()
    drain_gap: float = state(FIRST_GAP)
    relearn_rtt_ns: float = state(NONE_YET)
    relearn_ns: float = state()
    dip_rtt_ns: float = state(NONE_YET)
    row: int = state(0)
    row_w: float = state()
    row_delay_ns: float = state()
    row_last_w: float = state()
    row_low_ns: float = state()
    row_high_ns: float = state()
    last_row_low_ns: float = state()
    competing: bool = state(False)
    rival_low_ns: float = state()
    rival_until_ns: float = state()
    rival_w: float = state(-1)  # below 0: it has not met a rival yet
    alpha: float = state()
    marked_bytes: float = state()
    window_bytes: float = state()
    window_end_bytes: float = state()
    batch_ns: float = state()
    batch_bytes: float = state()
    batch_lost_bytes: float = state()
    batch_queue_ns: float = state()
    usual_loss: float = state()
    recent_loss: float = state()
    crowd_loss: float = state()
    suspect_bps: float = state()
    policed_bps: float = state(NONE_YET)

    def on_init(flow) -> None:
        begin(flow)

    def on_ack(flow, ack: Ack) -> None:
        if ack.rtt_ns > 0:
            if tells_delay(flow, ack):
                learn_base(flow, ack)
                flow.queue_ns = queueing_delay(flow, ack)
            delay_ns = flow.queue_ns
            used = 2 * (ack.inflight_bytes + ack.acked_bytes) >= flow.cwnd_bytes
            acked = ack.acked_bytes / flow.mss_bytes if used else 0.0
            if flow.competing:
                compete(flow, ack, delay_ns, acked)
            elif flow.draining:
                drain(flow, ack)
            elif flow.starting:
                start(flow, ack, delay_ns, acked)
            elif delay_ns < room_ns(flow):
                flow.seen_bytes = ack.delivered_bytes + flow.mss_bytes
                grow(flow, delay_ns, acked)
            elif ack.now_ns - flow.decreased_ns >= ack.rtt_ns:
                shrink(flow, ack, delay_ns)
        heed_marks(flow, ack)
        heed_loss(flow, ack)
        apply(flow)

    def on_timeout(flow, now_ns: float) -> None:
        flow.w = min(flow.w / 2, 1)
        flow.starting, flow.competing = True, False
        if flow.policed_bps == NONE_YET:
            forget_losses(flow)
        apply(flow)


def begin(flow: Vpc) -> None:
    flow.confirmed_ns = flow.decreased_ns = flow.relearn_ns = flow.batch_ns = flow.now_ns
    flow.window_end_bytes = flow.delivered_bytes
    rate_bytes = flow.line_rate_bps * FIRST_RTT_NS / BITS_NS
    first_bytes = rate_bytes if rate_bytes > 0 else 10 * flow.mss_bytes
    flow.w = max(min(first_bytes, flow.initial_bytes) / flow.mss_bytes, 2)
    apply(flow)


def tells_delay(flow: Vpc, ack: Ack) -> bool:
    """Not of a short packet, which leaves a slow link sooner, unless there are no full ones."""
    full = ack.acked_bytes % flow.mss_bytes < 1
    alone = ack.now_ns - flow.full_ns > SHORT_ROUNDS * ack.rtt_ns
    if full and flow.short:
        flow.lowest_ns = flow.base_ns = NONE_YET  # that of short ones
    flow.short, flow.full_ns = alone and not full, ack.now_ns if full else flow.full_ns
    return full or alone


def queueing_delay(flow: Vpc, ack: Ack) -> float:
    """The lowest of the samples within one to two spans: a few late packets are no queue."""
    rtt_ns = ack.rtt_ns - ack.back_ns
    if ack.n_hops > 0:
        rtt_ns = flow.base_ns
        for i in range(min(int(ack.n_hops), len(ack.hop))):
            rtt_ns += BITS_NS * ack.hop[i].queue_bytes / max(ack.hop[i].rate_bps, 1)
    if ack.now_ns >= flow.low_until_ns:
        flow.low_until_ns = ack.now_ns + SPAN * ack.rtt_ns
        learn_wander(flow)
        flow.last_low_ns, flow.low_ns = flow.low_ns, rtt_ns
    flow.low_ns = min(flow.low_ns, rtt_ns)
    return min(flow.low_ns, flow.last_low_ns) - flow.base_ns


def learn_jitter(flow: Vpc, ack: Ack, rtt_ns: float) -> None:
    """Mean change from one sample to a close one; the others let it fade."""
    if not flow.starting and ack.now_ns - flow.last_sample_ns < CLOSE * ack.rtt_ns:
        flow.jitter_ns += JITTER_G * (abs(rtt_ns - flow.last_cut_ns) - flow.jitter_ns)
    else:
        flow.jitter_ns -= FADE_G * flow.jitter_ns
    flow.last_rtt_ns, flow.last_cut_ns, flow.last_sample_ns = ack.rtt_ns, rtt_ns, ack.now_ns
    flow.stretch = min(ack.rtt_ns / rtt_ns, MOST_STRETCH)


def learn_wander(flow: Vpc) -> None:
    """On long paths packets that follow each other are late together: look at lowest delays."""
    long = flow.min_rtt_ns > LONG_NS and flow.w > MANY_PACKETS
    if long and flow.last_low_ns < NONE_YET and not flow.draining:
        change_ns = WANDER_GAIN * abs(flow.low_ns - flow.last_low_ns)
        flow.wander_ns += WANDER_G * (change_ns - flow.wander_ns)


def learn_base(flow: Vpc, ack: Ack) -> None:
    """Keep the lowest RTT, and drain when it, or the lowest since the last drain, is long ago."""
    now_ns, rtt_ns = ack.now_ns, ack.rtt_ns - ack.back_ns
    learn_jitter(flow, ack, rtt_ns)
    flow.relearn_rtt_ns = min(flow.relearn_rtt_ns, rtt_ns)
    if rtt_ns < flow.lowest_ns:
        if rtt_ns < flow.lowest_ns - target_ns(flow) / 4:
            flow.drain_gap = FIRST_GAP
        flow.lowest_ns, flow.confirmed_ns = rtt_ns, now_ns
    else:
        empty = rtt_ns <= flow.lowest_ns * (1 + flow.target / 8) and crowding(flow) < MOST_NARROWED
        if empty or (rtt_ns < flow.dip_rtt_ns and not flow.draining):
            flow.confirmed_ns = now_ns
    flow.dip_rtt_ns = min(flow.dip_rtt_ns, rtt_ns)
    if now_ns - flow.relearn_ns > RELEARN_ROUNDS * flow.lowest_ns:
        flow.lowest_ns = flow.relearn_rtt_ns
        flow.relearn_rtt_ns, flow.relearn_ns = NONE_YET, now_ns
    most_ns = flow.lowest_ns + flow.jitter_gain * noise_ns(flow)
    flow.base_ns = min(max(flow.base_ns, flow.lowest_ns), most_ns)
    gap_ns = flow.drain_gap * min(flow.base_ns, LONGEST_NS)
    gap_ns = max(gap_ns, (ROOMY_GAP if roomy(flow) else LEAST_GAP) * ack.rtt_ns)
    due = flow.row == 0 and now_ns - flow.confirmed_ns > gap_ns
    if due and not flow.draining and rtt_ns - flow.base_ns <= FAR * target_ns(flow):
        flow.draining, flow.drain_ns = True, now_ns  # above that it shrinks


def drain(flow: Vpc, ack: Ack) -> None:
    """Two round trips with less than the path holds.  The RTT that is left is the path's."""
    if ack.now_ns - flow.drain_ns > 2 * ack.rtt_ns:
        flow.draining = False
        left_ns = (flow.base_ns + min(flow.low_ns, flow.last_low_ns)) / 2
        flow.base_ns = min(left_ns, flow.lowest_ns + flow.jitter_gain * noise_ns(flow))
        flow.drain_gap = min(2 * flow.drain_gap, LAST_GAP)
        flow.confirmed_ns, flow.dip_rtt_ns = ack.now_ns, NONE_YET


def start(flow: Vpc, ack: Ack, delay_ns: float, acked: float) -> None:
    """Double per RTT; drain when a few samples in a row are above the target."""
    if double(flow, delay_ns, acked):
        return
    flow.w *= max(flow.base_ns / (flow.base_ns + delay_ns), 1 - MOST_CHANGE)
    flow.draining, flow.decreased_ns, flow.drain_ns = True, ack.now_ns, ack.now_ns


def double(flow: Vpc, delay_ns: float, acked: float) -> bool:
    """True until a few samples in a row are above the target."""
    slow = flow.min_rtt_ns > SLOW_NS
    if delay_ns <= max(room_ns(flow), START_SHARE * flow.min_rtt_ns * slow):
        flow.w, flow.start_samples = flow.w + acked, 0
        return True
    flow.start_samples += 1
    if flow.start_samples >= 4:
        flow.starting, flow.start_samples = False, 0
    return flow.starting


def grow(flow: Vpc, delay_ns: float, acked: float) -> None:
    """One packet per RTT, more on long paths; after some calm RTTs, twice as much in each."""
    doubt_ns, flow.row = 4 * noise_ns(flow) * long_path(flow), 0
    near = max(delay_ns - doubt_ns, 0) / max(room_ns(flow) - doubt_ns, 1)
    flow.calm_bytes = flow.calm_bytes + acked * flow.mss_bytes if near < 0.5 else 0.0
    step = max(min(flow.w, 1 / flow.w), math.sqrt(flow.min_rtt_ns / SLOW_NS) / max(flow.w, 20))
    rounds = flow.calm_bytes / max(flow.cwnd_bytes, flow.mss_bytes) - CALM_ROUNDS
    if rounds > 0:
        step = max(step, min(2**rounds / flow.w, MOST_GROWTH))
    flow.w += (1 - near) * step * acked


def shrink(flow: Vpc, ack: Ack, delay_ns: float) -> None:
    """At most once per RTT."""
    limit = room_ns(flow)
    kept = 1 - BETA * (delay_ns - limit) / ack.rtt_ns
    least = 1 - MOST_CHANGE * (flow.w / 2 if flow.w <= 1 else 1)
    far = flow.w > 1 and delay_ns > FAR * limit
    if far and ack.prior_delivered_bytes < flow.seen_bytes:
        kept = 0.9  # sent before this was seen: perhaps a host that stood still
    elif far:
        held = flow.w * flow.base_ns / (flow.base_ns + delay_ns)
        kept = max(0.9 * held, kept_of_few(flow, held)) / flow.w
        least = max(least / 2, 1 / flow.w)  # one packet; below it each step is long
    flow.decreased_ns, flow.calm_bytes = ack.now_ns, 0
    floor = count_row(flow, ack.rtt_ns - ack.back_ns, delay_ns)
    if flow.row > 0:
        flow.w = max(flow.w * max(kept, least), min(flow.w, floor))


def count_row(flow: Vpc, rtt_ns: float, delay_ns: float) -> float:
    """Count decreases in a row while nobody else gives way, as many flows of this kind would.

    Returns the least window meanwhile: with fewer packets, samples would get rare.
    """
    low_ns = flow.base_ns + delay_ns
    if flow.row == 0:
        flow.row_w = max(flow.w, flow.rival_w if crowding(flow) < UNCROWDED else 0.0)
    if flow.row == 0 or flow.row == 2:  # again until a third counts
        flow.row_low_ns, flow.row_high_ns = low_ns, rtt_ns
    if flow.row == 0 or delay_ns >= FALLING * (flow.row_delay_ns - taken_ns(flow)):
        flow.row += 1
    flow.row_delay_ns, flow.row_last_w = delay_ns, flow.w
    flow.row_low_ns = min(flow.row_low_ns, low_ns)
    flow.row_high_ns = max(flow.row_high_ns, rtt_ns)
    own_ns = share_of_length(flow, flow.min_window) * length_ns(flow)
    if flow.rival_w < 0 and flow.row_w / MUCH > holds(flow) >= PRESSED_PACKETS:
        flow.rival_w = RIVAL_PACKETS  # what took a window of this size from it is no crowd
    if delay_ns < own_ns or flow.crowd_loss > CROWDED:
        return 0.0
    longer = delay_ns > LONGER * own_ns  # or many flows with the least window
    cut = flow.row > flow.patience and CUT * flow.w <= 1.01 * flow.row_w
    fewer = flow.w < max(flow.row_w - 1, ROOMY_PACKETS)  # windows of 5.9 and 5.1 send the same
    if cut or (flow.row > 2 * flow.patience and fewer):
        give_up(flow, longer)
    return min(max(flow.row_w, 1) / CUT, 1) if longer else 0.0


def taken_ns(flow: Vpc) -> float:
    """Delay that the last decrease took out of the queue, at the rate of the port."""
    packet_ns = BITS_NS * flow.mss_bytes / flow.line_rate_bps if flow.line_rate_bps > 0 else 0.0
    return (flow.row_last_w - flow.w) * packet_ns


def give_up(flow: Vpc, longer: bool) -> None:
    """The queue is not this flow's: the path is longer, or others fill it."""
    low_ns = flow.row_low_ns
    same = abs(low_ns - flow.last_row_low_ns) <= FLAT * low_ns
    least = RIVAL_PACKETS if flow.row_w >= RIVAL_PACKETS else PRESSED_PACKETS
    flow.last_row_low_ns = low_ns
    spread = (flow.row_high_ns - low_ns) / low_ns
    if longer and (spread <= FLATTEST or (same and spread <= 2 * FLAT)):
        flow.row_w *= low_ns / flow.base_ns / 2  # half of the rate that it had
        flow.base_ns = flow.lowest_ns = low_ns
        flow.relearn_rtt_ns, flow.last_row_low_ns = NONE_YET, 0
        flow.jitter_ns = flow.wander_ns = 0
        flow.relearn_ns = flow.confirmed_ns = flow.now_ns
        flow.w = max(flow.w, flow.row_w)
        forget_losses(flow)
    elif (flow.row_w >= RIVAL_PACKETS or longer) and not 0 < holds(flow) < least:
        flow.row_w = max(flow.row_w, RIVAL_PACKETS)
        flow.competing = flow.starting = True
        flow.rival_low_ns = low_ns
        flow.rival_until_ns = flow.now_ns + RIVAL_ROUNDS * flow.lowest_ns
        flow.w = flow.rival_w = max(flow.w, flow.row_w)
    flow.row = 0


def holds(flow: Vpc) -> float:
    """Packets that the empty path holds at the rate of the port."""
    return flow.line_rate_bps * flow.base_ns / (BITS_NS * flow.mss_bytes)


def compete(flow: Vpc, ack: Ack, delay_ns: float, acked: float) -> None:
    """As NewReno, from where the window was, until the queue empties or it is time to try."""
    emptied = delay_ns < target_ns(flow)
    if emptied:
        flow.last_row_low_ns = flow.rival_w = 0
    if emptied or ack.now_ns > flow.rival_until_ns:
        flow.competing = flow.starting = False
        flow.decreased_ns = ack.now_ns
        flow.rival_w = flow.w if flow.rival_w > 0 else 0.0
        return
    low_ns = flow.base_ns + delay_ns
    flow.rival_low_ns = min(flow.rival_low_ns, low_ns)
    if ack.lost_bytes > 0:
        flow.starting, flow.rival_w = False, 0
        if ack.now_ns - flow.decreased_ns >= ack.rtt_ns:
            flow.decreased_ns = ack.now_ns
            flow.w /= 2
    if not flow.starting:
        flow.w += acked * min(flow.w, 1 / flow.w)
    else:
        double(flow, low_ns - flow.rival_low_ns, acked)


def heed_marks(flow: Vpc, ack: Ack) -> None:
    """RFC 8257: alpha is the usual share of marks; a window with marks shrinks by half of it."""
    flow.window_bytes += ack.acked_bytes
    flow.marked_bytes += min(ack.marked_bytes, ack.acked_bytes)
    if ack.prior_delivered_bytes < flow.window_end_bytes or flow.window_bytes <= 0:
        return
    share = flow.marked_bytes / flow.window_bytes
    flow.alpha += (share - flow.alpha) / 16
    if share > 0:
        flow.w *= 1 - flow.alpha / 2
        flow.starting = False
    flow.marked_bytes = flow.window_bytes = 0
    flow.window_end_bytes = ack.delivered_bytes


def apply(flow: Vpc) -> None:
    """Clamp the window and pace it."""
    flow.w = min(max(flow.w, flow.min_window), flow.max_cwnd_bytes / flow.mss_bytes)
    window, rtt_ns = flow.w, flow.srtt_ns
    if flow.draining and flow.base_ns > 0:
        share = DRAINED if flow.drain_gap >= LAST_GAP else 0.5
        window *= share * min(flow.base_ns / max(rtt_ns, 1), 1)
    window = max(window * flow.stretch, flow.min_window)
    flow.cwnd_bytes = min(window * flow.mss_bytes, flow.max_cwnd_bytes)
    rate_bps = flow.line_rate_bps
    if rtt_ns > 0:
        gain = 2 if flow.starting else flow.pacing_gain
        if window < 1 and flow.last_rtt_ns > 0:
            gain, rtt_ns = 1, min(rtt_ns, flow.last_rtt_ns)  # samples are rare: the mean is old
        paced_bps = gain * BITS_NS * flow.cwnd_bytes / rtt_ns
        most_bps = flow.pacing_gain * rate_bps if rate_bps > 0 else NONE_YET  # for what is lost
        rate_bps = min(paced_bps, most_bps, flow.policed_bps)
    flow.pacing_rate_bps = rate_bps
