# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""CUBIC: the window grows by the cube of the time since the last loss."""

from datapath.cc import Ack, Flow, Loss, algorithm, param, state
from datapath.cc.algorithms.episodes import NO_THRESHOLD, PASSED

SECOND_NS = 1e9


@algorithm("cubic", source="RFC 9438, section 4")
class Cubic(Flow):
    """Window control of TCP CUBIC, by loss and by ECN marks.

    W_cubic(t) = C (t - K)^3 + W_max (equation 1), with t in seconds since the
    congestion-avoidance stage began, and W_est, what Reno would have, as the
    lower bound (section 4.3).  A congestion event keeps `beta_cubic` of the
    window (4.6); with `fast_convergence` a window that stayed below its last
    maximum leaves more room (4.7); a time-out starts again from one packet
    (4.8).  A mark is a congestion event unless `ecn` is off.  Time in which the
    application does not fill the window does not count (5.8).

    Windows are in packets, as in the RFC.  A loss episode ends when everything
    in flight at its first loss is acknowledged.  Slow start is plain (RFC 5681);
    the round-trip times that HyStart++ looks for (4 ms and up) do not occur in a
    data centre.  Spurious losses are not undone (4.9): the transport is slow to
    declare them.
    """

    c: float = param(0.4, unit="packets/s^3", min=0.0001, max=1e6, doc="C, steepness of growth")
    beta_cubic: float = param(0.7, min=0.05, max=0.95, doc="share of the window kept")
    fast_convergence: bool = param(True, doc="give way to new flows sooner")
    initial_window: float = param(10, unit="packets", min=1, doc="window of a new flow (RFC 6928)")
    ecn: bool = param(True, doc="a marked window is a congestion event")

    ssthresh_bytes: float = state(NO_THRESHOLD)
    w_max: float = state()
    cwnd_prior: float = state()
    k: float = state()
    w_est: float = state()
    epoch_start_ns: float = state(-1)
    last_ack_ns: float = state()
    recover_bytes: float = state()
    timeout_delivered_bytes: float = state(-1)

    def on_init(flow) -> None:
        flow.ssthresh_bytes = NO_THRESHOLD
        flow.w_max = 0
        flow.cwnd_prior = 0
        flow.epoch_start_ns = -1
        flow.recover_bytes = flow.delivered_bytes
        flow.timeout_delivered_bytes = -1
        flow.pacing_rate_bps = 0
        set_window(flow, flow.initial_window)

    def on_ack(flow, ack: Ack) -> None:
        pause_ns = ack.now_ns - flow.last_ack_ns
        flow.last_ack_ns = ack.now_ns
        if ack.prior_delivered_bytes < flow.recover_bytes:
            return
        if flow.ecn and ack.marked_bytes > 0:
            congestion_event(flow)
            flow.recover_bytes = ack.delivered_bytes
        elif 2 * (ack.inflight_bytes + ack.acked_bytes) < flow.cwnd_bytes:
            if flow.epoch_start_ns >= 0:
                flow.epoch_start_ns += pause_ns
        elif flow.cwnd_bytes < flow.ssthresh_bytes:
            bound = min(flow.cwnd_bytes + ack.acked_bytes, flow.ssthresh_bytes)
            set_window(flow, bound / flow.mss_bytes)
        else:
            avoid_congestion(flow, ack)

    def on_loss(flow, loss: Loss) -> None:
        begun = max(flow.recover_bytes, flow.timeout_delivered_bytes + PASSED)
        if loss.prior_delivered_bytes >= begun:
            congestion_event(flow)
            flow.recover_bytes = flow.delivered_bytes + PASSED

    def on_timeout(flow, now_ns: float) -> None:
        if flow.timeout_delivered_bytes != flow.delivered_bytes:  # not for its repetitions
            congestion_event(flow)
        flow.timeout_delivered_bytes = flow.delivered_bytes
        flow.recover_bytes = flow.delivered_bytes
        flow.w_max = 0  # the next stage takes its own first window for it, and K = 0
        set_window(flow, 1)


def avoid_congestion(flow: Cubic, ack: Ack) -> None:
    """Sections 4.2 to 4.5, for the packets that one acknowledgement tells."""
    cwnd, acked = flow.cwnd_bytes / flow.mss_bytes, ack.acked_bytes / flow.mss_bytes
    if flow.epoch_start_ns < 0:
        begin_epoch(flow, cwnd, ack.now_ns)
    beta = flow.beta_cubic
    alpha = 3 * (1 - beta) / (1 + beta) if flow.w_est < flow.cwnd_prior else 1.0
    flow.w_est += alpha * acked / cwnd
    t = (ack.now_ns - flow.epoch_start_ns) / SECOND_NS
    w_cubic = flow.c * (t - flow.k) ** 3 + flow.w_max
    if w_cubic < flow.w_est:  # the Reno-friendly region
        set_window(flow, max(flow.w_est, cwnd))
        return
    ahead = t + flow.srtt_ns / SECOND_NS
    target = flow.c * (ahead - flow.k) ** 3 + flow.w_max
    target = min(max(target, cwnd), 1.5 * cwnd)
    set_window(flow, cwnd + (target - cwnd) * min(acked / cwnd, 1))


def begin_epoch(flow: Cubic, cwnd: float, now_ns: float) -> None:
    """Equation 2; without a maximum to return to, growth starts at once."""
    flow.epoch_start_ns = now_ns
    flow.w_est = cwnd
    if flow.w_max > cwnd:
        flow.k = ((flow.w_max - cwnd) / flow.c) ** (1 / 3)
    else:
        flow.w_max = cwnd
        flow.k = 0


def congestion_event(flow: Cubic) -> None:
    """Sections 4.6 and 4.7."""
    cwnd = flow.cwnd_bytes / flow.mss_bytes
    flow.epoch_start_ns = -1
    flow.cwnd_prior = cwnd
    if flow.fast_convergence and cwnd < flow.w_max:
        flow.w_max = cwnd * (1 + flow.beta_cubic) / 2
    else:
        flow.w_max = cwnd
    flow.ssthresh_bytes = max(cwnd * flow.beta_cubic, 2) * flow.mss_bytes
    set_window(flow, min(cwnd, flow.ssthresh_bytes / flow.mss_bytes))


def set_window(flow: Cubic, cwnd: float) -> None:
    """`cwnd` packets: at least one, at most the window that the transport can track."""
    flow.cwnd_bytes = min(max(cwnd, 1) * flow.mss_bytes, flow.max_cwnd_bytes)
