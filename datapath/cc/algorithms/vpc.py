# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""VPC: a small, fair queue on paths that lose packets for no reason."""

import math

from datapath.cc import Ack, Flow, algorithm, param, state

BITS_NS = 8e9  # bytes per ns to bit/s
NONE_YET = 1e18  # of minima
SAMPLES = 4  # above the target in a row that end slow start
LOSS_BATCH = 32  # packets over which a share of loss is taken, at least
USUAL_MOST = 0.08  # share of loss that is taken for usual, at most
SURE_EXCESS = 0.05  # loss above the usual that counts, however many packets tell it
NARROWING = 12.0  # of the target, per share lost above the usual
NARROWEST = 0.1  # of it that is left
GROWTH_CALM = 1 / 16  # per RTT, after a long calm
STALL_KEPT = 0.9  # of the window, at the first sight of a long delay
FLAT = 0.1  # two RTTs that differ by less are taken for equal
FIRST_GAP = 8.0  # RTTs until a new flow drains its part of the queue
CLOSE = 0.25  # of an RTT: samples further apart differ by the queue, not by jitter
ROW = 8  # decreases in a row without effect that tell a longer path; half as many do
CUT = 4  # when they have made the window smaller by this


@algorithm("vpc", source="this toolkit; docs/cc.md, section vpc")
class Vpc(Flow):
    """Window control toward a small queueing delay; loss alone says nothing.

    Delay is the lowest sample of the last quarter of an RTT less the base RTT, or,
    where telemetry is there, the queues it tells.  Its target is a share of the base RTT,
    larger for small windows, which makes equal flows equal (Swift's flow
    scaling).  A path that holds few packets has the target of one that holds
    `least_packets`: a queue is made of whole packets, and flows over one switch
    and over three then stand equal at the port where they meet.

    Below the target the window grows by `ai` packets per RTT, less the nearer it
    is; above it shrinks by the excess, and far above (`far`) to what the path
    holds without a queue, so that a newcomer sees the path empty; the latter only
    when packets that were sent after the first sight of it see it too: a host
    that stands still for a while delays one round.

    The base RTT is the lowest seen.  Flows that have not seen it confirmed for
    `drain_rounds` empty their part of the queue for two round trips; as all of
    them last saw it together, they do so together.  It rises when decreases in
    a row leave the delay as it was (the route has changed), or when
    `relearn_rounds` have not come near it.

    Loss counts as congestion only as far as its share exceeds by `excess_loss` what was
    lost while the delay was low; less is enough when many packets tell it.  What
    exceeds it at all narrows the target: flows that have only ever seen a full buffer
    take its delay for their path's.  Marks shrink the window as in DCTCP.  A flow
    begins with what its port sends in `initial_rtt_ns`, `initial_bytes` at most:
    a switch has to hold the first windows of many at once.  Then it doubles per
    RTT; everything is paced.
    """

    target: float = param(0.15, min=0.01, max=10, doc="queueing delay aimed at, in base RTTs")
    scaling: float = param(0.4, min=0, max=10, doc="added to it for a window of one packet")
    slack: float = param(0.15, min=0, max=10, doc="added to it for what hosts add, in base RTTs")
    jitter_gain: float = param(
        3, min=0, max=100, doc="least target, in mean changes of the RTT from packet to packet"
    )
    longest_base_ns: float = param(
        250_000, unit="ns", min=1000, doc="longer base RTTs have the target of this one"
    )
    least_packets: float = param(
        10, unit="packets", min=0, doc="shorter base RTTs, at line rate, have the target of these"
    )
    span: float = param(
        0.25, unit="RTT", min=0, max=2, doc="of which the lowest delay counts, at least"
    )
    ai: float = param(1, unit="packets", min=0.001, max=1000, doc="additive increase per RTT")
    beta: float = param(0.8, min=0.01, max=1, doc="decrease per excess delay")
    far: float = param(2, min=1, max=100, doc="targets from which on the queue is drained at once")
    max_decrease: float = param(0.5, min=0.01, max=0.95, doc="largest decrease by delay, per RTT")
    g: float = param(1 / 16, min=0.001, max=1, doc="weight of the newest share of marks")
    excess_loss: float = param(
        0.15, min=0.01, max=1, doc="loss above the usual that counts, of 32 packets"
    )
    drain_rounds: float = param(75, unit="RTT", min=5, doc="age of the base RTT at which to drain")
    drain_share: float = param(
        0.8, min=0.1, max=1, doc="of the empty path's window, while draining"
    )
    relearn_rounds: float = param(2000, unit="RTT", min=50, doc="age of the base RTT to replace it")
    initial_rtt_ns: float = param(100_000, unit="ns", min=0, doc="at line rate: first window")
    initial_bytes: float = param(32_000, unit="bytes", min=1, doc="most of the first window")
    min_window: float = param(0.25, unit="packets", min=0.001, max=1, doc="least window")
    pacing_gain: float = param(1.2, min=1, max=10, doc="pacing rate, in windows per RTT")

    w: float = state()
    starting: bool = state(True)
    base_ns: float = state()
    jitter_ns: float = state()
    last_rtt_ns: float = state()
    last_sample_ns: float = state()
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
    drain_until_ns: float = state()
    drain_samples: int = state(0)
    drain_gap: float = state(FIRST_GAP)
    relearn_rtt_ns: float = state(NONE_YET)
    relearn_ns: float = state()
    dip_rtt_ns: float = state(NONE_YET)
    row: int = state(0)
    row_rtt_ns: float = state()
    row_w: float = state()
    alpha: float = state()
    marked_bytes: float = state()
    window_bytes: float = state()
    window_end_bytes: float = state()
    batch_bytes: float = state()
    batch_lost_bytes: float = state()
    usual_loss: float = state()
    recent_loss: float = state()
    timeout_delivered_bytes: float = state(-1)

    def on_init(flow) -> None:
        flow.starting = True
        flow.draining = False
        flow.drain_gap = FIRST_GAP
        flow.jitter_ns = 0
        flow.last_rtt_ns = 0
        flow.last_sample_ns = 0
        flow.low_ns = NONE_YET
        flow.last_low_ns = NONE_YET
        flow.base_ns = 0
        flow.confirmed_ns = flow.now_ns
        flow.decreased_ns = flow.now_ns
        flow.relearn_ns = flow.now_ns
        flow.window_end_bytes = flow.delivered_bytes
        flow.timeout_delivered_bytes = -1
        first_bytes = 10 * flow.mss_bytes
        if flow.line_rate_bps > 0:
            first_bytes = flow.line_rate_bps * flow.initial_rtt_ns / BITS_NS
        flow.w = max(min(first_bytes, flow.initial_bytes) / flow.mss_bytes, 2)
        apply(flow)

    def on_ack(flow, ack: Ack) -> None:
        if ack.rtt_ns > 0:
            learn_base(flow, ack)
            delay_ns = queueing_delay(flow, ack)
            used = 2 * (ack.inflight_bytes + ack.acked_bytes) >= flow.cwnd_bytes
            acked = ack.acked_bytes / flow.mss_bytes if used else 0.0
            if flow.draining:
                drain(flow, ack)
            elif flow.starting:
                start(flow, ack, delay_ns, acked)
            elif delay_ns < target_ns(flow):
                flow.seen_bytes = ack.delivered_bytes + flow.mss_bytes
                grow(flow, delay_ns, acked)
            elif ack.now_ns - flow.decreased_ns >= ack.rtt_ns:
                shrink(flow, ack, delay_ns)
        heed_marks(flow, ack)
        heed_loss(flow, ack)
        apply(flow)

    def on_timeout(flow, now_ns: float) -> None:
        if flow.timeout_delivered_bytes != flow.delivered_bytes:
            flow.w = min(flow.w, 1)
        else:
            flow.w /= 2  # nothing was delivered since the last one
        flow.starting = True
        flow.timeout_delivered_bytes = flow.delivered_bytes
        forget_losses(flow)
        apply(flow)


def target_ns(flow: Vpc) -> float:
    """Queueing delay aimed at, for the window as it is."""
    width = 1 - crowding(flow)
    share = width * (flow.target + flow.scaling / math.sqrt(max(flow.w, flow.min_window)))
    slack_ns = width * flow.slack * min(flow.base_ns, flow.longest_base_ns)
    return max(share * length_ns(flow), flow.jitter_gain * flow.jitter_ns) + slack_ns


def crowding(flow: Vpc) -> float:
    """How sure it is that a buffer overflows, whatever the delay seems: 0 to 1 - NARROWEST."""
    excess = max(flow.recent_loss - flow.usual_loss, 0)
    return min(NARROWING * excess, 1 - NARROWEST)


def overflows(flow: Vpc) -> bool:
    """So much is lost that no RTT is that of an empty path."""
    return crowding(flow) >= 1 - NARROWEST


def length_ns(flow: Vpc) -> float:
    """Base RTT of which the target is a share: within its limits."""
    length = flow.base_ns
    if flow.line_rate_bps > 0:
        packet_ns = BITS_NS * flow.mss_bytes / flow.line_rate_bps
        length = max(length, flow.least_packets * packet_ns)
    return min(length, flow.longest_base_ns)


def queueing_delay(flow: Vpc, ack: Ack) -> float:
    """The lowest of the samples within one to two spans, of two at least.

    One late packet is no queue, nor are those that a host that stood still holds up.
    """
    sample_ns = ack.rtt_ns - flow.base_ns
    hops = min(int(ack.n_hops), len(ack.hop))
    if hops > 0:
        sample_ns = 0.0
        for i in range(hops):
            sample_ns += BITS_NS * ack.hop[i].queue_bytes / max(ack.hop[i].rate_bps, 1)
    if ack.now_ns >= flow.low_until_ns:
        flow.low_until_ns = ack.now_ns + flow.span * ack.rtt_ns
        flow.last_low_ns = flow.low_ns
        flow.low_ns = sample_ns
    flow.low_ns = min(flow.low_ns, sample_ns)
    flow.queue_ns = min(flow.low_ns, flow.last_low_ns)
    return flow.queue_ns


def learn_base(flow: Vpc, ack: Ack) -> None:
    """Keep the lowest RTT, note when it was last seen, and drain when that is long ago.

    The lowest since the last drain counts as seen, too: it is when other flows drain, who
    may have seen less than this one.  All share these dips, so they come to drain together.
    """
    now_ns, rtt_ns = ack.now_ns, ack.rtt_ns
    flow.relearn_rtt_ns = min(flow.relearn_rtt_ns, rtt_ns)
    if flow.last_rtt_ns > 0 and now_ns - flow.last_sample_ns < CLOSE * rtt_ns:
        flow.jitter_ns += (abs(rtt_ns - flow.last_rtt_ns) - flow.jitter_ns) / 16
    flow.last_rtt_ns = rtt_ns
    flow.last_sample_ns = now_ns
    if flow.base_ns <= 0 or rtt_ns < flow.base_ns:
        if rtt_ns < flow.base_ns - target_ns(flow) / 4:
            flow.drain_gap = FIRST_GAP
        flow.base_ns = rtt_ns
        flow.confirmed_ns = now_ns
    else:
        empty = rtt_ns <= flow.base_ns * (1 + flow.target / 8) and not overflows(flow)
        if empty or (rtt_ns < flow.dip_rtt_ns and not flow.draining):
            flow.confirmed_ns = now_ns
    flow.dip_rtt_ns = min(flow.dip_rtt_ns, rtt_ns)
    if now_ns - flow.relearn_ns > flow.relearn_rounds * flow.base_ns:
        flow.base_ns = flow.relearn_rtt_ns
        flow.relearn_rtt_ns = NONE_YET
        flow.relearn_ns = now_ns
    old_ns = now_ns - flow.confirmed_ns
    gap_ns = flow.drain_gap * min(flow.base_ns, flow.longest_base_ns)
    due = not flow.draining and flow.row == 0 and old_ns > max(gap_ns, 3 * rtt_ns)
    if due and rtt_ns - flow.base_ns <= flow.far * target_ns(flow):  # above it, it shrinks
        begin_drain(flow, ack)


def begin_drain(flow: Vpc, ack: Ack) -> None:
    flow.draining = True
    flow.drain_until_ns = ack.now_ns + 2 * ack.rtt_ns
    flow.drain_samples = 0


def drain(flow: Vpc, ack: Ack) -> None:
    """Two round trips, and two samples, with less than the path holds."""
    flow.drain_samples += 1
    if ack.now_ns > flow.drain_until_ns and flow.drain_samples > 2:
        flow.draining = False
        flow.drain_gap = min(2 * flow.drain_gap, flow.drain_rounds)
        flow.confirmed_ns = ack.now_ns
        flow.dip_rtt_ns = NONE_YET


def start(flow: Vpc, ack: Ack, delay_ns: float, acked: float) -> None:
    """Double per RTT; drain when a few samples in a row are above the target."""
    if delay_ns <= target_ns(flow):
        flow.w += acked
        flow.start_samples = 0
        return
    flow.start_samples += 1
    if flow.start_samples < SAMPLES:
        return
    flow.starting = False
    flow.start_samples = 0
    flow.w *= max(flow.base_ns / (flow.base_ns + delay_ns), 1 - flow.max_decrease)
    flow.decreased_ns = ack.now_ns
    begin_drain(flow, ack)


def grow(flow: Vpc, delay_ns: float, acked: float) -> None:
    """Additive increase that ends at the target; a share of the window after eight calm RTTs."""
    near = delay_ns / target_ns(flow)
    flow.row = 0
    flow.calm_bytes = flow.calm_bytes + acked * flow.mss_bytes if near < 0.5 else 0.0
    step = flow.ai * min(flow.w, 1 / flow.w)
    if flow.calm_bytes > 8 * flow.cwnd_bytes:
        step = max(step, GROWTH_CALM)
    flow.w += (1 - max(near, 0)) * step * acked


def shrink(flow: Vpc, ack: Ack, delay_ns: float) -> None:
    """At most once per RTT."""
    limit = target_ns(flow)
    kept = 1 - flow.beta * (delay_ns - limit) / ack.rtt_ns
    least = 1 - flow.max_decrease
    if flow.w <= 1:
        least = 1 - flow.max_decrease / 2
    elif delay_ns > flow.far * limit and ack.prior_delivered_bytes < flow.seen_bytes:
        kept = STALL_KEPT  # sent before this was seen: perhaps a host that stood still
    elif delay_ns > flow.far * limit:
        kept = 0.9 * flow.base_ns / (flow.base_ns + delay_ns)
        least = max(least / 2, 1 / flow.w)  # one packet; below it each step is long
    floor = 0.0
    if notice_longer_path(flow, ack.rtt_ns):
        floor = min(max(flow.row_w, 1) / CUT, 1)
    if not flow.starting:
        flow.w = max(flow.w * max(kept, least), min(flow.w, floor))
    flow.decreased_ns = ack.now_ns
    flow.calm_bytes = 0


def notice_longer_path(flow: Vpc, rtt_ns: float) -> bool:
    """Several decreases that leave a long RTT as it is: it is not this flow's queue.

    True while that is open: the window must not become so small that samples are rare.
    """
    if flow.row == 0 or abs(rtt_ns - flow.row_rtt_ns) > FLAT * flow.row_rtt_ns:
        flow.row = 0
        flow.row_rtt_ns = rtt_ns
        flow.row_w = flow.w
    flow.row += 1
    flow.row_rtt_ns = min(flow.row_rtt_ns, rtt_ns)
    slack = 2 * (flow.target + flow.scaling / math.sqrt(flow.min_window))
    if rtt_ns < flow.base_ns + slack * length_ns(flow) or overflows(flow):
        return False
    if flow.row > ROW or (2 * flow.row > ROW and CUT * flow.w <= flow.row_w):
        flow.base_ns = flow.row_rtt_ns
        flow.relearn_ns = flow.now_ns
        flow.relearn_rtt_ns = NONE_YET
        flow.confirmed_ns = flow.now_ns
        flow.w = max(flow.w, flow.row_w)
        flow.starting = True
        flow.row = 0
        flow.jitter_ns = 0
        forget_losses(flow)
    return True


def heed_marks(flow: Vpc, ack: Ack) -> None:
    """RFC 8257: alpha is the usual share of marks; a window with marks shrinks by half of it."""
    flow.window_bytes += ack.acked_bytes
    flow.marked_bytes += min(ack.marked_bytes, ack.acked_bytes)
    if ack.prior_delivered_bytes < flow.window_end_bytes or flow.window_bytes <= 0:
        return
    share = flow.marked_bytes / flow.window_bytes
    flow.alpha += flow.g * (share - flow.alpha)
    if share > 0:
        flow.w *= 1 - flow.alpha / 2
        flow.starting = False
    flow.marked_bytes = 0
    flow.window_bytes = 0
    flow.window_end_bytes = ack.delivered_bytes


def heed_loss(flow: Vpc, ack: Ack) -> None:
    """Learn the usual share of loss; shrink when far more is lost, by twice the excess."""
    told_bytes = ack.acked_bytes + ack.lost_bytes
    if told_bytes > 0:
        weight = min(told_bytes / (LOSS_BATCH * flow.mss_bytes), 1)
        flow.recent_loss += weight * (ack.lost_bytes / told_bytes - flow.recent_loss)
    flow.batch_bytes += told_bytes
    flow.batch_lost_bytes += ack.lost_bytes
    packets = flow.batch_bytes / flow.mss_bytes
    if packets < max(LOSS_BATCH, 2 * flow.w):
        return
    share = flow.batch_lost_bytes / flow.batch_bytes
    excess = share - flow.usual_loss
    # A share of n packets varies by 1 / sqrt(n).
    if excess > max(flow.excess_loss * math.sqrt(LOSS_BATCH / packets), SURE_EXCESS):
        flow.w *= 1 - min(2 * excess, flow.max_decrease)
        flow.starting = False
    if flow.queue_ns < target_ns(flow):
        flow.usual_loss += (min(share, USUAL_MOST) - flow.usual_loss) / 8
    forget_losses(flow)


def forget_losses(flow: Vpc) -> None:
    """Of the batch under way."""
    flow.batch_bytes = 0
    flow.batch_lost_bytes = 0


def apply(flow: Vpc) -> None:
    """Clamp the window and pace it."""
    flow.w = min(max(flow.w, flow.min_window), flow.max_cwnd_bytes / flow.mss_bytes)
    window = flow.w
    rtt_ns = flow.srtt_ns
    if flow.draining and flow.base_ns > 0:
        share = flow.drain_share if flow.drain_gap >= flow.drain_rounds else 0.5
        window *= share * min(flow.base_ns / max(rtt_ns, 1), 1)
    window = max(window, flow.min_window)
    flow.cwnd_bytes = min(window * flow.mss_bytes, flow.max_cwnd_bytes)
    rate_bps = flow.line_rate_bps
    if rtt_ns > 0:
        gain = 2 if flow.starting else flow.pacing_gain
        if window < 1:
            gain = 1
            if flow.last_rtt_ns > 0:  # samples are rare: their mean tells of a queue long gone
                rtt_ns = min(rtt_ns, flow.last_rtt_ns)
        paced_bps = gain * BITS_NS * flow.cwnd_bytes / rtt_ns
        most_bps = flow.pacing_gain * rate_bps  # above the line: for what is lost on the way
        rate_bps = min(paced_bps, most_bps) if rate_bps > 0 else paced_bps
    flow.pacing_rate_bps = rate_bps
