# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow or the port
"""Homa: the receiver lets the senders with the least left to send go first, also in the network.

Homa (Montazeri et al., "Homa: A Receiver-Driven Low-Latency Transport Protocol Using Network
Priorities", SIGCOMM 2018), sections 3.3 to 3.5.  Not in the paper: a QP stands for its messages,
which it sends in order; the priority of packets without a grant is that of the QP, and no receiver
chooses it by the sizes that it has seen; and what all senders may have on the way together is
bounded, so that it fits into shallow buffers.  Where the receiver gives no grants, the sender keeps
a window by loss, as NewReno does.
"""

from collections.abc import Sequence

from datapath.cc import Ack, Data, Flow, Loss, Port, Sender, algorithm, param, state
from datapath.cc.algorithms.receiver_driven import (
    cut_window,
    grow_window,
    is_silent,
    learn_rtt,
    on_the_way,
    one_rtt,
    open_window,
)


@algorithm("homa", source="SIGCOMM 2018, sections 3.3 to 3.5")
class Homa(Flow):
    """Receiver-driven: grants by shortest remaining demand, a few senders at a time."""

    unscheduled: float = param(
        1024, unit="bytes", min=0, doc="that a sender may have in flight without a grant"
    )
    overcommit: float = param(
        2, min=1, max=64, doc="bandwidth-delay products that all senders may have on the way"
    )
    rtt_bytes: float = param(
        0, unit="bytes", min=0, doc="bandwidth-delay product; 0: RTT times the rate of the port"
    )
    unknown_bytes: float = param(
        65536, unit="bytes", min=256, doc="the same while the RTT or the rate is not known"
    )
    patience_ns: float = param(
        5e6, unit="ns", min=1e4, doc="a sender that is silent for so long holds up no other"
    )

    lowest_dscp: int = param(
        -1, min=-1, max=56, doc="of packets by grants, lowest priority; -1: that of the QP"
    )
    levels: int = param(4, min=1, max=8, doc="priorities, each one DSCP above the one before")

    next_cut_bytes: float = state()
    least_rtt_ns: float = state(of="port")

    def on_init(flow) -> None:
        flow.unscheduled_bytes = flow.unscheduled
        open_window(flow)

    def on_ack(flow, ack: Ack) -> None:
        grow_window(flow, ack)

    def on_loss(flow, loss: Loss) -> None:
        flow.next_cut_bytes = cut_window(flow, loss, flow.next_cut_bytes)

    @staticmethod
    def on_request(port: Port, sender: Sender) -> None:
        learn_rtt(port, sender)
        port.timer_ns = port.now_ns  # on_timer looks at all senders, at once

    @staticmethod
    def on_data(port: Port, sender: Sender, data: Data) -> None:
        port.timer_ns = port.now_ns

    @staticmethod
    def on_timer(port: Port, senders: Sequence[Sender]) -> None:
        """Grants to the shortest until the bound of what may be on the way is reached."""
        rtt_bytes = one_rtt(port, senders)
        room = port.overcommit * rtt_bytes
        for i in range(len(senders)):
            room -= on_the_way(port, senders[i])
        best = shortest(port, senders, rtt_bytes)
        while best >= 0 and room >= senders[best].mss_bytes:
            room -= grant(port, senders[best], room, rtt_bytes)
            best = shortest(port, senders, rtt_bytes)
        if port.lowest_dscp >= 0:
            set_priorities(port, senders)
        port.timer_ns = port.now_ns + port.patience_ns if len(senders) else 0.0


def shortest(port: Port, senders: Sequence[Sender], rtt_bytes: float) -> int:
    """The sender with the least left that may be granted more; -1: there is none."""
    best, least = -1, 0.0
    for i in range(len(senders)):
        sender = senders[i]
        left = left_of(sender)
        if sender.granted_bytes >= sender.wanted_bytes or is_silent(port, sender):
            continue
        if on_the_way(port, sender) + sender.mss_bytes > rtt_bytes:
            continue
        if best < 0 or left < least:
            best, least = i, left
    return best


def grant(port: Port, sender: Sender, room: float, rtt_bytes: float) -> float:
    """Grants full packets, until rtt_bytes of the sender are on the way; returns the bytes."""
    room = min(room, rtt_bytes - on_the_way(port, sender))
    left = sender.wanted_bytes - sender.granted_bytes
    more = min(left, room - room % sender.mss_bytes)
    sender.granted_bytes += more
    return more


def set_priorities(port: Port, senders: Sequence[Sender]) -> None:
    """Section 3.4: the longest has the lowest, so that one that comes later can be above it."""
    for i in range(len(senders)):
        if on_the_way(port, senders[i]) <= 0:
            continue
        longer = 0
        for j in range(len(senders)):
            if on_the_way(port, senders[j]) > 0 and left_of(senders[j]) > left_of(senders[i]):
                longer += 1
        senders[i].dscp = port.lowest_dscp + min(longer, port.levels - 1)


def left_of(sender: Sender) -> float:
    return sender.wanted_bytes - sender.arrived_bytes
