# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""Swift: two windows keep the delays of fabric and hosts near their targets."""

import math

from datapath.cc import Ack, Flow, Loss, algorithm, param, state

BITS_NS = 8e9  # bytes per ns to bit/s


@algorithm("swift", source="Kumar et al., SIGCOMM 2020, section 3, algorithm 1")
class Swift(Flow):
    """Delay-based window control toward a target delay.

    Below the target the window grows by `ai` packets per RTT; above it, at most
    once per RTT, it shrinks in proportion to the excess, by `max_mdf` at most.
    Fabric and hosts are congested apart from each other (section 3.3), so there
    are two windows: `fcwnd` follows the delay of the fabric, `ecwnd` that of the
    end hosts, smoothed since it is the noisier of the two.  The smaller one is in
    force.

    The target of the fabric grows for flows with a small window (section 3.5), so
    that many flows share a queue.  A window below one packet is paced at
    cwnd / RTT (section 3.4).  ECN marks are not used.

    Loss and time-out shrink `fcwnd` by `loss_mdf`, once per RTT (the paper
    uses `max_mdf` for them too): random loss therefore costs throughput although
    the delay is low.  Where loss is no sign of congestion, set it near 0.

    Differences from the paper: what smoothes the end-host delay is the transport
    (one eighth of each new sample), and it contains how long the receiver waits for
    more before it acknowledges, 50 us at most.  A window that is not in use
    does not grow.  The instant of the last decrease moves with a decrease only;
    taken literally, algorithm 1 moves it with every acknowledgement that leaves
    the window unchanged, and a busy flow above its target would not decrease
    again.  The defaults are for hosts with software transports: a CPU that other
    programs use adds a millisecond now and then, and a window that shrinks for it
    only starves the flow.
    """

    base_target_ns: float = param(
        50_000, unit="ns", min=1, above_rtt=True, doc="target delay of a large flow"
    )
    endpoint_target_ns: float = param(
        5_000_000, unit="ns", min=1, doc="target delay of the two end hosts together"
    )
    hop_ns: float = param(0, unit="ns", min=0, doc="added to the target per hop of telemetry")
    fs_range_ns: float = param(100_000, unit="ns", min=0, doc="most that flow scaling adds")
    fs_min_cwnd: float = param(
        0.1, unit="packets", min=0.001, max=1, doc="window with the largest target"
    )
    fs_max_cwnd: float = param(
        100, unit="packets", min=2, doc="window from which on nothing is added"
    )
    ai: float = param(1, unit="packets", min=0.001, doc="additive increase per RTT")
    beta: float = param(0.8, min=0, max=1, doc="multiplicative decrease per excess delay")
    max_mdf: float = param(0.5, min=0, max=0.99, doc="largest decrease for delay, per RTT")
    loss_mdf: float = param(0.5, min=0, max=0.99, doc="decrease for loss and time-out, per RTT")
    initial_cwnd: float = param(16, unit="packets", min=0.01, doc="window of a new flow")
    min_cwnd: float = param(0.01, unit="packets", min=0.001, max=1, doc="least window")
    retx_reset_threshold: int = param(
        5, min=1, doc="time-outs in a row after which the window is min_cwnd"
    )

    fcwnd_bytes: float = state()
    ecwnd_bytes: float = state()
    t_last_fabric_decrease_ns: float = state()
    t_last_endpoint_decrease_ns: float = state()
    retransmit_cnt: int = state(0)

    def on_init(flow) -> None:
        flow.retransmit_cnt = 0
        flow.t_last_fabric_decrease_ns = flow.t_last_endpoint_decrease_ns = 0
        flow.fcwnd_bytes = flow.ecwnd_bytes = limited(flow, flow.initial_cwnd)
        apply(flow, rtt(flow))

    def on_ack(flow, ack: Ack) -> None:
        flow.retransmit_cnt = 0
        if ack.rtt_ns <= 0 or ack.acked_bytes <= 0:
            return
        rtt_ns = ack.rtt_ns + ack.host_ns
        cwnd = flow.fcwnd_bytes / flow.mss_bytes
        target_delay = flow.base_target_ns + ack.n_hops * flow.hop_ns + flow_scaling(flow, cwnd)
        may = can_decrease(flow, ack.now_ns, rtt_ns, flow.t_last_fabric_decrease_ns)
        cwnd = adjusted(flow, ack, cwnd, ack.rtt_ns, target_delay, may)
        set_fabric_window(flow, cwnd, ack.now_ns)

        cwnd = flow.ecwnd_bytes / flow.mss_bytes
        may = can_decrease(flow, ack.now_ns, rtt_ns, flow.t_last_endpoint_decrease_ns)
        cwnd = adjusted(flow, ack, cwnd, flow.host_ns, flow.endpoint_target_ns, may)
        set_endpoint_window(flow, cwnd, ack.now_ns)
        apply(flow, rtt_ns)

    def on_loss(flow, loss: Loss) -> None:
        flow.retransmit_cnt = 0
        lose(flow, loss.now_ns)

    def on_timeout(flow, now_ns: float) -> None:
        flow.retransmit_cnt += 1
        if flow.retransmit_cnt >= flow.retx_reset_threshold:
            set_fabric_window(flow, flow.min_cwnd, now_ns)
            apply(flow, rtt(flow))
        else:
            lose(flow, now_ns)


def rtt(flow: Swift) -> float:
    """The smoothed RTT from host to host, ns; 0: none yet."""
    return flow.srtt_ns + flow.host_ns


def adjusted(
    flow: Swift, ack: Ack, cwnd: float, delay: float, target_delay: float, may_decrease: bool
) -> float:
    """The new window after `cwnd` packets at a delay, in packets (algorithm 1)."""
    if delay < target_delay:
        if 2 * (ack.inflight_bytes + ack.acked_bytes) >= cwnd * flow.mss_bytes:
            num_acked = ack.acked_bytes / flow.mss_bytes
            cwnd += flow.ai * num_acked / max(cwnd, 1.0)
    elif may_decrease:
        mdf = flow.beta * (delay - target_delay) / delay
        cwnd *= max(1 - mdf, 1 - flow.max_mdf)
    return cwnd


def flow_scaling(flow: Swift, cwnd: float) -> float:
    """Target delay added for a window of `cwnd` packets, ns (section 3.5)."""
    least = 1 / math.sqrt(flow.fs_max_cwnd)
    alpha = flow.fs_range_ns / (1 / math.sqrt(flow.fs_min_cwnd) - least)
    return max(0.0, min(alpha * (1 / math.sqrt(cwnd) - least), flow.fs_range_ns))


def can_decrease(flow: Swift, now_ns: float, rtt_ns: float, t_last_decrease_ns: float) -> bool:
    """At most one decrease per RTT; before the first sample, per largest target delay.

    A flow whose first window is lost would otherwise pay for each of its packets.
    """
    if rtt_ns <= 0:
        rtt_ns = flow.base_target_ns + flow.fs_range_ns
    return now_ns - t_last_decrease_ns >= rtt_ns


def lose(flow: Swift, now_ns: float) -> None:
    """React to a lost packet."""
    cwnd = flow.fcwnd_bytes / flow.mss_bytes
    if can_decrease(flow, now_ns, rtt(flow), flow.t_last_fabric_decrease_ns):
        cwnd *= 1 - flow.loss_mdf
    set_fabric_window(flow, cwnd, now_ns)
    apply(flow, rtt(flow))


def limited(flow: Swift, cwnd: float) -> float:
    """A window of `cwnd` packets within the limits, in bytes."""
    least = min(flow.min_cwnd * flow.mss_bytes, flow.max_cwnd_bytes)
    return min(max(cwnd * flow.mss_bytes, least), flow.max_cwnd_bytes)


def set_fabric_window(flow: Swift, cwnd: float, now_ns: float) -> None:
    """Set fcwnd to `cwnd` packets."""
    fcwnd_bytes = limited(flow, cwnd)
    if fcwnd_bytes < flow.fcwnd_bytes:
        flow.t_last_fabric_decrease_ns = now_ns
    flow.fcwnd_bytes = fcwnd_bytes


def set_endpoint_window(flow: Swift, cwnd: float, now_ns: float) -> None:
    """Set ecwnd to `cwnd` packets."""
    ecwnd_bytes = limited(flow, cwnd)
    if ecwnd_bytes < flow.ecwnd_bytes:
        flow.t_last_endpoint_decrease_ns = now_ns
    flow.ecwnd_bytes = ecwnd_bytes


def apply(flow: Swift, rtt_ns: float) -> None:
    """The smaller window is in force; pace it when it is under one packet."""
    flow.cwnd_bytes = min(flow.fcwnd_bytes, flow.ecwnd_bytes)
    if flow.cwnd_bytes < flow.mss_bytes and rtt_ns > 0:
        flow.pacing_rate_bps = BITS_NS * flow.cwnd_bytes / rtt_ns
    else:
        flow.pacing_rate_bps = 0
