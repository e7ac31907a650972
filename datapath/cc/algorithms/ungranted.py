# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The window of a sender whose receiver should give grants, and perhaps gives none.

With grants they alone limit the sender.  Without, it keeps a window by loss, as NewReno does.  The
flow has a member `next_cut_bytes` for it.
"""

from datapath.cc import Ack, Flow, Loss


def open_window(flow: Flow) -> None:
    flow.cwnd_bytes = min(10 * flow.mss_bytes, flow.max_cwnd_bytes)
    if flow.needs_grants:
        flow.cwnd_bytes = flow.max_cwnd_bytes


def grow_window(flow: Flow, ack: Ack) -> None:
    if flow.needs_grants:
        flow.cwnd_bytes = flow.max_cwnd_bytes
    else:
        step = flow.mss_bytes * ack.acked_bytes / flow.cwnd_bytes
        flow.cwnd_bytes = min(flow.cwnd_bytes + step, flow.max_cwnd_bytes)


def cut_window(flow: Flow, loss: Loss, next_cut_bytes: float) -> float:
    """Once per RTT; returns the new next_cut_bytes."""
    if flow.needs_grants or loss.prior_delivered_bytes < next_cut_bytes:
        return next_cut_bytes
    flow.cwnd_bytes = max(flow.cwnd_bytes / 2, flow.mss_bytes)
    return flow.delivered_bytes + 1
