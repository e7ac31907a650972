# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What receiver-driven algorithms share: windows of senders without grants, and silent senders.

With grants they alone limit a sender.  Without, it keeps a window by loss, as NewReno does.  The
flow has a member `next_cut_bytes` for it.
"""

from datapath.cc import Ack, Flow, Loss, Port, Sender


def is_silent(port: Port, sender: Sender) -> bool:
    """Whether a sender has not been heard for so long that it holds up no other."""
    return port.now_ns - sender.heard_ns > port.patience_ns


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
