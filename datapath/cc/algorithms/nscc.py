# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""NSCC: marks and queueing delay together choose one of four answers to each acknowledgement."""

from datapath.cc import Ack, Flow, Loss, algorithm, param, state
from datapath.cc.algorithms.base_rtt import base_rtt, learn_base_rtt

REFERENCE_BDP_BYTES = 150_000.0  # 100 Gbit/s and 12 us, for which the constants are meant
REFERENCE_RTT_NS = 12_000.0


@algorithm("nscc", source="Ultra Ethernet 1.0, congestion management, and uet-htsim")
class Nscc(Flow):
    """Ultra Ethernet's Network-signalled Congestion Control: a window by marks and delay.

    A mark tells what a queue is now (where switches mark packets that leave), the delay what it
    was.  So there are four cases:

    - no mark, delay below the target: proportional increase, by how far it is below;
    - no mark, delay above the target: fair increase, a little, since the queue is going;
    - mark, delay below the target: nothing, since the queue has just begun, or is on one of
      several paths only;
    - mark, delay above the target: multiplicative decrease, once per RTT, by the mean delay.

    Without any delay for a whole window the window grows by `fast_scale` of what is acknowledged
    (fast increase).  After a loss, or a delay above `qa_threshold` targets, quick adapt sets the
    window to what was delivered in the last RTT, and acknowledgements of what was under way count
    for nothing.  Each lost packet takes itself off the window.

    The constants are for 100 Gbit/s and 12 us; for other paths they are scaled by the
    bandwidth-delay product, as the specification does.  Not in the specification: an
    acknowledgement speaks for several packets and counts as marked if one of them was; the base
    RTT is measured, `base_rtt_ns` sets it.  Ultra Ethernet sprays packets over many paths: set
    `paths`.
    """

    base_rtt_ns: float = param(0, unit="ns", min=0, doc="RTT without queues; 0: the lowest seen")
    target: float = param(
        1, unit="RTTs", min=0.05, max=100, doc="delay aimed at; 0.75 with trimming"
    )
    fair: float = param(5, unit="packets", min=0, doc="fair increase per RTT")
    proportional: float = param(
        4, unit="packets", min=0, doc="most of proportional increase per RTT"
    )
    fast_scale: float = param(0.25, min=0, max=1, doc="fast increase, of what is acknowledged")
    eta: float = param(0.15, unit="packets", min=0, doc="added once per RTT in any case")
    gamma: float = param(0.8, min=0, max=1, doc="decrease per excess of the mean delay")
    max_decrease: float = param(0.5, min=0, max=0.99, doc="of one multiplicative decrease")
    delay_alpha: float = param(0.0125, min=0.001, max=1, doc="weight of a sample in the mean delay")
    qa_threshold: float = param(4, unit="targets", min=1, doc="delay that calls for quick adapt")
    qa_gate: float = param(0.125, min=0, max=1, doc="quick adapt: delivered less of the most")
    max_bdps: float = param(1.5, min=0.1, max=16, doc="largest window, bandwidth-delay products")
    fast_delay_ns: float = param(1_000, unit="ns", min=0, doc="what counts as no delay")
    unknown_line_rate_bps: float = param(
        10e9, unit="bit/s", min=1e6, doc="taken for the port's rate where that is not known"
    )

    lowest_rtt_ns: float = state()
    avg_delay_ns: float = state()
    increase_bytes2: float = state()  # summed increases, times the window
    clear_bytes: float = state()  # acknowledged in a row without delay
    fast: bool = state(False)
    next_decrease_ns: float = state()
    next_adjust_ns: float = state()
    achieved_bytes: float = state()  # delivered since qa_end_ns was set
    qa_end_ns: float = state()
    lost: bool = state(False)  # since the last quick adapt
    ignore_until_bytes: float = state()  # what is delivered up to there was sent before it

    def on_init(flow) -> None:
        flow.lowest_rtt_ns = flow.min_rtt_ns
        flow.cwnd_bytes = most_bytes(flow)

    def on_ack(flow, ack: Ack) -> None:
        learn_base_rtt(flow)
        flow.achieved_bytes += ack.acked_bytes
        if ack.rtt_ns <= 0:
            return
        delay_ns = max(ack.rtt_ns - base_or_reference(flow), 0.0)
        marked = ack.marked_bytes > 0
        note_delay(flow, delay_ns, marked)
        if marked and ack.prior_delivered_bytes < flow.ignore_until_bytes:
            return
        if quick_adapts(flow, delay_ns):
            return
        if not marked:
            increase(flow, ack.acked_bytes, delay_ns)
        elif delay_ns >= target_ns(flow):
            decrease(flow)
        if flow.now_ns >= flow.next_adjust_ns:
            flow.cwnd_bytes += flow.increase_bytes2 / flow.cwnd_bytes
            flow.cwnd_bytes += flow.eta * scale(flow) * flow.mss_bytes
            flow.increase_bytes2 = 0
            flow.next_adjust_ns = flow.now_ns + base_or_reference(flow)
        confine(flow)

    def on_loss(flow, loss: Loss) -> None:
        flow.lost = True
        if loss.prior_delivered_bytes < flow.ignore_until_bytes or quick_adapts(flow, 0.0):
            return
        flow.cwnd_bytes -= loss.lost_bytes
        confine(flow)

    def on_timeout(flow, now_ns: float) -> None:
        flow.lost = True


def base_or_reference(flow: Nscc) -> float:
    """The base RTT, ns; while it is unknown that for which the constants are meant."""
    return base_rtt(flow) if base_rtt(flow) > 0 else REFERENCE_RTT_NS


def target_ns(flow: Nscc) -> float:
    return flow.target * base_or_reference(flow)


def bdp_bytes(flow: Nscc) -> float:
    """The port's rate times the base RTT."""
    rate_bps = flow.line_rate_bps if flow.line_rate_bps > 0 else flow.unknown_line_rate_bps
    return max(rate_bps * base_or_reference(flow) / 8e9, flow.mss_bytes)


def scale(flow: Nscc) -> float:
    """scaling_factor_a of the specification."""
    return bdp_bytes(flow) / REFERENCE_BDP_BYTES


def most_bytes(flow: Nscc) -> float:
    return min(max(flow.max_bdps * bdp_bytes(flow), 2 * flow.mss_bytes), flow.max_cwnd_bytes)


def confine(flow: Nscc) -> None:
    flow.cwnd_bytes = min(max(flow.cwnd_bytes, flow.mss_bytes), most_bytes(flow))


def note_delay(flow: Nscc, delay_ns: float, marked: bool) -> None:
    """A long delay without a mark is that of a queue that is gone: it counts as a short one."""
    if not marked and delay_ns > target_ns(flow):
        delay_ns = base_or_reference(flow) / 4
    flow.avg_delay_ns += flow.delay_alpha * (delay_ns - flow.avg_delay_ns)


def quick_adapts(flow: Nscc, delay_ns: float) -> bool:
    """Once per RTT and target: the window becomes what has been delivered in that time."""
    if flow.now_ns < flow.qa_end_ns:
        return False
    wanted = flow.lost or delay_ns > flow.qa_threshold * target_ns(flow)
    few = flow.achieved_bytes < flow.qa_gate * most_bytes(flow)
    adapts = flow.qa_end_ns > 0 and wanted and few and flow.achieved_bytes < flow.cwnd_bytes
    if adapts:
        flow.cwnd_bytes = max(flow.achieved_bytes, flow.mss_bytes)
        flow.ignore_until_bytes = flow.delivered_bytes + 1
        flow.increase_bytes2 = 0
        flow.lost = False
    flow.achieved_bytes = 0
    flow.qa_end_ns = flow.now_ns + base_or_reference(flow) + target_ns(flow)
    return adapts


def increase(flow: Nscc, acked_bytes: float, delay_ns: float) -> None:
    if delay_ns < flow.fast_delay_ns:
        flow.clear_bytes += acked_bytes
        if flow.fast or flow.clear_bytes > flow.cwnd_bytes:
            flow.fast = True
            flow.cwnd_bytes += acked_bytes * flow.fast_scale * scale(flow)
            return
    else:
        flow.clear_bytes = 0
    flow.fast = False
    if delay_ns < target_ns(flow):
        packets = flow.proportional * (target_ns(flow) - delay_ns) / REFERENCE_RTT_NS
    else:
        packets = flow.fair
    flow.increase_bytes2 += packets * scale(flow) * flow.mss_bytes * acked_bytes


def decrease(flow: Nscc) -> None:
    flow.fast = False
    flow.clear_bytes = 0
    excess_ns = flow.avg_delay_ns - target_ns(flow)
    if excess_ns <= 0 or flow.now_ns < flow.next_decrease_ns:
        return
    flow.cwnd_bytes *= max(1 - flow.gamma * excess_ns / flow.avg_delay_ns, 1 - flow.max_decrease)
    flow.next_decrease_ns = flow.now_ns + base_or_reference(flow)
