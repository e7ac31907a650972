# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""NewReno: one packet more per round trip, half the window at a loss."""

from datapath.cc import Ack, Flow, Loss, algorithm, param, state
from datapath.cc.algorithms.episodes import NO_THRESHOLD, PASSED


@algorithm("newreno", source="RFC 5681, section 3; RFC 6582; RFC 3168, section 6.1.2")
class NewReno(Flow):
    """Additive increase, multiplicative decrease, by loss and by ECN marks.

    Slow start, congestion avoidance and the reaction to a loss are those of RFC
    5681.  A loss episode lasts until everything that was in flight at the first
    loss has been acknowledged (RFC 6582's `recover`); further losses in it do
    not count, and the window does not grow.  The transport tells exactly what
    is lost and takes it out of flight, as with SACK (RFC 6675), so there is
    neither inflation nor deflation of the window.  A marked acknowledgement
    counts as a loss, once per window (RFC 3168), unless `ecn` is off.

    Bytes are counted, not acknowledgements (RFC 3465), without its limit in
    slow start, because one acknowledgement may stand for many packets.  A
    window that is not in use does not grow (RFC 7661).
    """

    initial_window: float = param(10, unit="packets", min=1, doc="window of a new flow (RFC 6928)")
    beta: float = param(0.5, min=0.01, max=0.99, doc="share of what is in flight kept at a loss")
    ecn: bool = param(True, doc="a marked window counts as a loss")

    ssthresh_bytes: float = state(NO_THRESHOLD)
    recover_bytes: float = state()
    timeout_delivered_bytes: float = state(-1)

    def on_init(flow) -> None:
        flow.ssthresh_bytes = NO_THRESHOLD
        flow.recover_bytes = flow.delivered_bytes
        flow.timeout_delivered_bytes = -1
        flow.pacing_rate_bps = 0
        set_window(flow, flow.initial_window * flow.mss_bytes)

    def on_ack(flow, ack: Ack) -> None:
        if ack.prior_delivered_bytes < flow.recover_bytes:
            return
        if flow.ecn and ack.marked_bytes > 0:
            reduce(flow, ack.inflight_bytes + ack.acked_bytes)
            flow.recover_bytes = ack.delivered_bytes
        elif 2 * (ack.inflight_bytes + ack.acked_bytes) >= flow.cwnd_bytes:
            grow(flow, ack.acked_bytes)

    def on_loss(flow, loss: Loss) -> None:
        begun = max(flow.recover_bytes, flow.timeout_delivered_bytes + PASSED)
        if loss.prior_delivered_bytes >= begun:
            reduce(flow, loss.inflight_bytes + loss.lost_bytes)
            flow.recover_bytes = flow.delivered_bytes + PASSED

    def on_timeout(flow, now_ns: float) -> None:
        if flow.timeout_delivered_bytes != flow.delivered_bytes:  # not for its repetitions
            reduce(flow, flow.cwnd_bytes)  # what is lost is in flight no longer
        flow.timeout_delivered_bytes = flow.delivered_bytes
        flow.recover_bytes = flow.delivered_bytes
        set_window(flow, flow.mss_bytes)


def grow(flow: NewReno, acked_bytes: float) -> None:
    """Slow start up to ssthresh (equation 2), then one packet per window (equation 3)."""
    if flow.cwnd_bytes < flow.ssthresh_bytes:
        set_window(flow, min(flow.cwnd_bytes + acked_bytes, flow.ssthresh_bytes))
    else:
        set_window(flow, flow.cwnd_bytes + flow.mss_bytes * acked_bytes / flow.cwnd_bytes)


def reduce(flow: NewReno, flight_bytes: float) -> None:
    """Equation 4, with the bytes in flight, which may be fewer than the window allowed."""
    flight_bytes = min(flight_bytes, flow.cwnd_bytes)
    flow.ssthresh_bytes = max(flow.beta * flight_bytes, 2 * flow.mss_bytes)
    set_window(flow, min(flow.ssthresh_bytes, flow.cwnd_bytes))


def set_window(flow: NewReno, cwnd_bytes: float) -> None:
    """At least one packet, at most the window that the transport can track."""
    flow.cwnd_bytes = min(max(cwnd_bytes, flow.mss_bytes), flow.max_cwnd_bytes)
