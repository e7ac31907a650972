# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""Copa: a target rate of one packet per delta of queueing delay, and a mode beside rivals."""

from datapath.cc import Ack, Flow, Loss, algorithm, param, state

BITS_NS = 8e9  # bytes per ns to bit/s


@algorithm("copa", source="Arun and Balakrishnan, NSDI 2018, sections 2.1 and 2.2")
class Copa(Flow):
    """Delay-based window control that aims at the rate 1 / (delta d_q), in packets.

    d_q is RTTstanding, the lowest RTT of the last half of a smoothed RTT, less RTTmin, the lowest
    of the last `min_rtt_life_ns`.  Below the target rate the window grows by v / (delta cwnd)
    packets with each acknowledged packet, above it shrinks by as many.  The velocity v doubles
    once per RTT after the window has gone three RTTs in one direction, and is 1 again when the
    direction changes.  Slow start doubles the window per RTT until the rate exceeds its target.
    Packets are paced at 2 cwnd / RTTstanding.

    N flows alone make a queue that is empty once in five RTTs.  A queue that stays above a tenth
    of its oscillation for five RTTs (highest RTT of the last four, less RTTmin) is that of a rival
    that fills it: then 1 / delta grows by 1 per RTT and is halved by a loss, but not below the
    default, until the queue empties again (section 2.2).

    Not in the paper: a queue below half of the one that the default mode aims at counts as empty,
    too, since a queue is made of whole packets; a window that is not in use does not grow, none
    more than doubles in an RTT, v returns to 1 as soon as the window moves against its direction,
    and a time-out leaves two packets and starts again.  In the default mode loss changes nothing.
    """

    delta: float = param(0.5, min=0.004, max=10, doc="1 / packets of a flow in the queue")
    competitive: bool = param(True, doc="competes with flows that fill the queue")
    min_rtt_life_ns: float = param(10e9, unit="ns", min=1e6, doc="life of RTTmin")
    initial_window: float = param(10, unit="packets", min=1, doc="window of a new flow")

    velocity: float = state(1)
    rises: bool = state(True)
    same_rounds: int = state(0)
    slow_start: bool = state(True)
    round_end_bytes: float = state()
    round_cwnd_bytes: float = state()
    inverse_delta: float = state()  # 1 / delta in force
    lost_in_round: bool = state(False)
    full_rounds: int = state(0)  # in a row, in which the queue was never nearly empty
    nearly_empty: bool = state(False)
    standing_ns: float = state()  # lowest RTT of this quarter of an RTT, and of the one before
    standing_before_ns: float = state()
    standing_since_ns: float = state()
    lowest_ns: float = state()  # of this half of the life of RTTmin, and of the one before
    lowest_before_ns: float = state()
    lowest_since_ns: float = state()
    highest_ns: list[float] = state(length=4)  # of each of the last rounds

    def on_init(flow) -> None:
        flow.slow_start = True
        flow.lowest_ns = flow.lowest_before_ns = 0
        flow.standing_ns = flow.standing_before_ns = 0
        flow.inverse_delta = 1 / flow.delta
        flow.velocity, flow.same_rounds, flow.full_rounds = 1, 0, 0
        set_window(flow, flow.initial_window)
        begin_round(flow, flow.delivered_bytes)

    def on_ack(flow, ack: Ack) -> None:
        if ack.rtt_ns <= 0:
            return
        note_rtt(flow, ack)
        if ack.prior_delivered_bytes >= flow.round_end_bytes:
            choose_mode(flow)
            choose_velocity(flow)
            begin_round(flow, ack.delivered_bytes)
        move(flow, ack)

    def on_loss(flow, loss: Loss) -> None:
        flow.lost_in_round = True

    def on_timeout(flow, now_ns: float) -> None:
        flow.slow_start = True
        flow.velocity, flow.same_rounds = 1, 0
        set_window(flow, 2)


def note_rtt(flow: Copa, ack: Ack) -> None:
    """RTTmin, RTTstanding and the highest RTT.

    Each lowest is that of one period and the one before, so it spans one period to two.
    """
    if flow.lowest_ns == 0 or ack.now_ns - flow.lowest_since_ns > flow.min_rtt_life_ns / 2:
        flow.lowest_before_ns = flow.lowest_ns
        flow.lowest_ns, flow.lowest_since_ns = ack.rtt_ns, ack.now_ns
    flow.lowest_ns = min(flow.lowest_ns, ack.rtt_ns)
    if flow.standing_ns == 0 or ack.now_ns - flow.standing_since_ns > flow.srtt_ns / 4:
        flow.standing_before_ns = flow.standing_ns
        flow.standing_ns, flow.standing_since_ns = ack.rtt_ns, ack.now_ns
    flow.standing_ns = min(flow.standing_ns, ack.rtt_ns)
    flow.highest_ns[0] = max(flow.highest_ns[0], ack.rtt_ns)
    highest_ns = flow.highest_ns[0]
    for i in range(1, 4):
        highest_ns = max(highest_ns, flow.highest_ns[i])
    aim_ns = rtt_standing(flow) * flow.mss_bytes / (flow.delta * flow.cwnd_bytes)
    if queue_ns(flow) < max(0.1 * (highest_ns - rtt_min(flow)), aim_ns / 2):
        flow.nearly_empty = True


def lower(now_ns: float, before_ns: float) -> float:
    return min(now_ns, before_ns) if before_ns > 0 else now_ns


def rtt_min(flow: Copa) -> float:
    return lower(flow.lowest_ns, flow.lowest_before_ns)


def rtt_standing(flow: Copa) -> float:
    return lower(flow.standing_ns, flow.standing_before_ns)


def queue_ns(flow: Copa) -> float:
    """d_q."""
    return rtt_standing(flow) - rtt_min(flow)


def choose_mode(flow: Copa) -> None:
    """Once per RTT: whether somebody else fills the queue, and delta (section 2.2)."""
    flow.full_rounds = 0 if flow.nearly_empty or flow.slow_start else flow.full_rounds + 1
    least = 1 / flow.delta
    if not flow.competitive or flow.full_rounds < 5:
        flow.inverse_delta = least
    elif flow.lost_in_round:
        flow.inverse_delta = max(flow.inverse_delta / 2, least)
    else:
        flow.inverse_delta += 1


def choose_velocity(flow: Copa) -> None:
    """Once per RTT: the direction is that of the window since the round began."""
    rises = flow.cwnd_bytes > flow.round_cwnd_bytes
    if rises != flow.rises:
        flow.velocity, flow.same_rounds = 1, 0
    else:
        flow.same_rounds += 1
        if flow.same_rounds >= 3:
            flow.velocity = min(2 * flow.velocity, flow.max_cwnd_bytes / flow.mss_bytes)
    flow.rises = rises


def begin_round(flow: Copa, delivered_bytes: float) -> None:
    flow.round_end_bytes = delivered_bytes
    flow.round_cwnd_bytes = flow.cwnd_bytes
    flow.lost_in_round = flow.nearly_empty = False
    for i in range(3, 0, -1):
        flow.highest_ns[i] = flow.highest_ns[i - 1]
    flow.highest_ns[0] = 0


def move(flow: Copa, ack: Ack) -> None:
    """Section 2.1, steps 2 to 4, in packets."""
    cwnd = flow.cwnd_bytes / flow.mss_bytes
    acked = ack.acked_bytes / flow.mss_bytes
    # cwnd / RTTstanding <= 1 / (delta d_q), without a division by an empty queue
    up = cwnd * queue_ns(flow) <= flow.inverse_delta * rtt_standing(flow)
    used = 2 * (ack.inflight_bytes + ack.acked_bytes) >= flow.cwnd_bytes
    if flow.slow_start and up:
        set_window(flow, cwnd + acked if used else cwnd)
        return
    flow.slow_start = False
    if up != flow.rises and flow.velocity > 1:
        flow.velocity, flow.same_rounds = 1, 0
    step = flow.velocity * flow.inverse_delta * acked / cwnd
    rise = min(step, acked) if used else 0.0
    set_window(flow, cwnd + rise if up else cwnd - step)


def set_window(flow: Copa, cwnd: float) -> None:
    """The window of `cwnd` packets within its limits, and its rate."""
    least = min(2 * flow.mss_bytes, flow.max_cwnd_bytes)
    flow.cwnd_bytes = min(max(cwnd * flow.mss_bytes, least), flow.max_cwnd_bytes)
    standing_ns = rtt_standing(flow)
    flow.pacing_rate_bps = 2 * BITS_NS * flow.cwnd_bytes / standing_ns if standing_ns > 0 else 0
