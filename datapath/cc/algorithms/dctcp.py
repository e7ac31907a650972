# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""Data Center TCP: the window shrinks by the share of marked bytes."""

from datapath.cc import Ack, Flow, Loss, algorithm, param, state
from datapath.cc.algorithms.episodes import NO_THRESHOLD, PASSED


@algorithm("dctcp", source="Alizadeh et al., SIGCOMM 2010, section 3; RFC 8257, section 3.3")
class Dctcp(Flow):
    """Window control by the extent of congestion that ECN marks tell.

    Once per window of data, alpha <- (1 - g) alpha + g F with F the share of
    bytes marked in it (equation 1); on the first mark of a window, cwnd <-
    cwnd (1 - alpha / 2) (equation 2).  Growth, loss and time-out are those of
    RFC 5681 with byte counting.  It needs marking switches: on a path that
    only drops, this is Reno, and random loss halves the window each time.

    A window of data ends when a packet is acknowledged that was sent after it
    began (`prior_delivered_bytes`), which needs no sequence numbers.
    """

    g: float = param(1 / 16, min=0.001, max=1, doc="weight of the newest window in alpha")
    initial_alpha: float = param(1, min=0, max=1, doc="alpha of a new flow")
    initial_window: float = param(10, unit="packets", min=1, doc="window of a new flow")
    min_window: float = param(2, unit="packets", min=1, doc="no mark or loss shrinks it below")

    alpha: float = state(1)
    ssthresh_bytes: float = state(NO_THRESHOLD)
    window_acked_bytes: float = state()
    window_marked_bytes: float = state()
    window_end_bytes: float = state()
    reduced_until_bytes: float = state()
    halved_until_bytes: float = state()
    timeout_delivered_bytes: float = state(-1)

    def on_init(flow) -> None:
        flow.alpha = flow.initial_alpha
        flow.ssthresh_bytes = NO_THRESHOLD
        flow.window_end_bytes = flow.delivered_bytes
        flow.reduced_until_bytes = flow.delivered_bytes
        flow.halved_until_bytes = flow.delivered_bytes
        set_window(flow, flow.initial_window * flow.mss_bytes)

    def on_ack(flow, ack: Ack) -> None:
        flow.window_acked_bytes += ack.acked_bytes
        flow.window_marked_bytes += min(ack.marked_bytes, ack.acked_bytes)
        if ack.prior_delivered_bytes >= flow.window_end_bytes and flow.window_acked_bytes > 0:
            share = flow.window_marked_bytes / flow.window_acked_bytes
            flow.alpha = (1 - flow.g) * flow.alpha + flow.g * share
            flow.window_acked_bytes = 0
            flow.window_marked_bytes = 0
            flow.window_end_bytes = ack.delivered_bytes
        if ack.prior_delivered_bytes >= flow.reduced_until_bytes:
            if ack.marked_bytes > 0:
                reduce(flow, flow.alpha / 2)
                flow.reduced_until_bytes = ack.delivered_bytes
            else:
                grow(flow, ack)

    def on_loss(flow, loss: Loss) -> None:
        if loss.prior_delivered_bytes >= flow.halved_until_bytes:
            reduce(flow, 0.5)
            flow.halved_until_bytes = flow.delivered_bytes + PASSED
            flow.reduced_until_bytes = flow.delivered_bytes + PASSED

    def on_timeout(flow, now_ns: float) -> None:
        if flow.timeout_delivered_bytes != flow.delivered_bytes:  # not for its repetitions
            reduce(flow, 0.5)
        flow.timeout_delivered_bytes = flow.delivered_bytes
        flow.halved_until_bytes = flow.delivered_bytes + PASSED
        flow.reduced_until_bytes = flow.delivered_bytes
        set_window(flow, flow.mss_bytes)


def reduce(flow: Dctcp, share: float) -> None:
    """Take a share off the window, and leave slow start."""
    least = flow.min_window * flow.mss_bytes
    set_window(flow, max(flow.cwnd_bytes * (1 - share), min(least, flow.cwnd_bytes)))
    flow.ssthresh_bytes = max(flow.cwnd_bytes, least)


def grow(flow: Dctcp, ack: Ack) -> None:
    """Slow start, then one packet per window; only a window in use may grow."""
    if 2 * (ack.inflight_bytes + ack.acked_bytes) < flow.cwnd_bytes:
        return
    if flow.cwnd_bytes < flow.ssthresh_bytes:
        set_window(flow, min(flow.cwnd_bytes + ack.acked_bytes, flow.ssthresh_bytes))
    else:
        set_window(flow, flow.cwnd_bytes + flow.mss_bytes * ack.acked_bytes / flow.cwnd_bytes)


def set_window(flow: Dctcp, cwnd_bytes: float) -> None:
    """At least one packet, at most the window that the transport can track."""
    flow.cwnd_bytes = min(max(cwnd_bytes, flow.mss_bytes), flow.max_cwnd_bytes)
