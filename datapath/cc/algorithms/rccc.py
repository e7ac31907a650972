# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow or the port
"""RCCC: the receiver shares the rate of its port among the senders, packet by packet."""

import math
from collections.abc import Sequence

from datapath.cc import Ack, Data, Flow, Loss, Port, Sender, algorithm, param, state
from datapath.cc.algorithms.receiver_driven import (
    cut_window,
    grow_window,
    is_silent,
    open_window,
)


@algorithm("rccc", source="Ultra Ethernet 1.0, congestion management, and uet-htsim")
class Rccc(Flow):
    """Credits paced at the rate of the port: Ultra Ethernet's Receiver-Credit Congestion Control.

    The receiver grants `credit` packets to each sender in turn, at `share` of the rate of its
    port, and no more than the sender asked for.  A sender that was idle may send its first
    `initial` bandwidth-delay products without a credit (ten packets while the RTT is not known),
    and all others with credit alone.  The specification lets switches trim what such first windows
    of many senders make too much; without trimming it is lost.  So with `initial` 0 nothing is
    ever lost at the receiver's port, and each message costs an RTT more.

    RCCC knows nothing of queues inside the network: it is meant for networks whose core is not
    the bottleneck, or beside NSCC.  Where the receiver gives no grants, the sender keeps a window
    by loss, as NewReno does.
    """

    initial: float = param(1.5, min=0, max=16, doc="bandwidth-delay products without a credit")
    credit: float = param(1, unit="packets", min=1, max=64, doc="granted at a time")
    share: float = param(0.99, min=0.1, max=1, doc="of the port's rate that is granted")
    overhead: float = param(118, unit="bytes", min=0, doc="headers of a packet, on the wire")
    late_ns: float = param(
        20_000, unit="ns", min=0, doc="a port that wakes late makes up for so much at most"
    )
    patience_ns: float = param(
        5e6, unit="ns", min=1e4, doc="a sender that is silent for so long gets no credit"
    )
    unknown_line_rate_bps: float = param(
        10e9, unit="bit/s", min=1e6, doc="taken for the port's rate where that is not known"
    )

    next_cut_bytes: float = state()
    next_credit_ns: float = state(of="port")  # when the port has earned the next credit
    turns: float = state(of="port")
    turn: float = state(of="sender")  # the last one that it had

    def on_init(flow) -> None:
        flow.unscheduled_bytes = first_window(flow)
        open_window(flow)

    def on_ack(flow, ack: Ack) -> None:
        flow.unscheduled_bytes = first_window(flow) if ack.inflight_bytes <= 0 else 0
        grow_window(flow, ack)

    def on_loss(flow, loss: Loss) -> None:
        flow.next_cut_bytes = cut_window(flow, loss, flow.next_cut_bytes)

    @staticmethod
    def on_request(port: Port, sender: Sender) -> None:
        wake(port)

    @staticmethod
    def on_data(port: Port, sender: Sender, data: Data) -> None:
        pass

    @staticmethod
    def on_timer(port: Port, senders: Sequence[Sender]) -> None:
        """All credits that the port has earned, and a timer for when the next one is."""
        give_credits(port, senders)


def first_window(flow: Rccc) -> float:
    """Bytes that may leave without a credit."""
    if flow.min_rtt_ns <= 0:
        return 10 * flow.mss_bytes if flow.initial > 0 else 0.0
    rate_bps = flow.line_rate_bps if flow.line_rate_bps > 0 else flow.unknown_line_rate_bps
    return flow.initial * rate_bps * flow.min_rtt_ns / 8e9


def wake(port: Port) -> None:
    """A port that gave no credits has earned none: only a late timer is made up for."""
    if port.timer_ns == 0:
        port.next_credit_ns = max(port.next_credit_ns, port.now_ns)
        port.timer_ns = port.next_credit_ns


def give_credits(port: Port, senders: Sequence[Sender]) -> None:
    """All credits that are due, in turn, and a timer for when the next one is."""
    port.timer_ns = 0
    port.next_credit_ns = max(port.next_credit_ns, port.now_ns - port.late_ns)
    best = next_in_turn(port, senders)
    while best >= 0 and port.next_credit_ns <= port.now_ns:
        port.next_credit_ns += give(port, senders[best])
        best = next_in_turn(port, senders)
    if best >= 0:
        port.timer_ns = port.next_credit_ns


def give(port: Port, sender: Sender) -> float:
    """A credit; returns the time that its packets take of the port, ns."""
    granted_bytes = min(port.credit * sender.mss_bytes, sender.wanted_bytes - sender.granted_bytes)
    sender.granted_bytes += granted_bytes
    port.turns += 1
    sender.turn = port.turns
    rate_bps = port.line_rate_bps if port.line_rate_bps > 0 else port.unknown_line_rate_bps
    packets = math.ceil(granted_bytes / sender.mss_bytes)
    return (granted_bytes + packets * port.overhead) * 8e9 / (port.share * rate_bps)


def next_in_turn(port: Port, senders: Sequence[Sender]) -> int:
    """The sender that has waited longest, of those that want more; -1: there is none."""
    best = -1
    for i in range(len(senders)):
        sender = senders[i]
        if sender.granted_bytes >= sender.wanted_bytes:
            continue
        if is_silent(port, sender):
            continue
        if best < 0 or sender.turn < senders[best].turn:
            best = i
    return best
