# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What receiver-driven algorithms share: what is on the way, silent senders, and no grants.

Where the receiver gives no grants, the sender keeps a window by loss, as NewReno does.  The flow
has a member `next_cut_bytes` for it.  The port has `least_rtt_ns` for learn_rtt() and one_rtt().
"""

from collections.abc import Sequence

from datapath.cc import Ack, Flow, Loss, Port, Sender


def is_silent(port: Port, sender: Sender) -> bool:
    """Whether a sender has not been heard for so long that it holds up no other."""
    return port.now_ns - sender.heard_ns > port.patience_ns


def learn_rtt(port: Port, sender: Sender) -> None:
    if sender.rtt_ns > 0 and (port.least_rtt_ns == 0 or sender.rtt_ns < port.least_rtt_ns):
        port.least_rtt_ns = sender.rtt_ns


def one_rtt(port: Port, senders: Sequence[Sender]) -> float:
    """RTTbytes of the paper: the least that keeps the port busy."""
    rtt_ns, mss_bytes = 0.0, 0.0
    for i in range(len(senders)):
        rtt_ns = max(rtt_ns, senders[i].rtt_ns)
        mss_bytes = max(mss_bytes, senders[i].mss_bytes)
    # A sender may have measured a queue; no path is thought to be twice as long as another.
    known = min(rtt_ns, 2 * port.least_rtt_ns) * port.line_rate_bps / 8e9
    if port.rtt_bytes > 0:
        known = port.rtt_bytes
    return max(known if known > 0 else port.unknown_bytes, mss_bytes)


def on_the_way(port: Port, sender: Sender) -> float:
    if is_silent(port, sender):
        return 0.0
    return max(min(sender.granted_bytes, sender.wanted_bytes) - sender.arrived_bytes, 0.0)


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
