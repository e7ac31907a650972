# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow or the port
"""ExpressPass: the receiver sends credits, and switches drop credits in the place of data."""

from collections.abc import Sequence

from datapath.cc import Ack, Data, Flow, Loss, Port, Sender, algorithm, param, state
from datapath.cc.algorithms.receiver_driven import (
    cut_window,
    grow_window,
    is_silent,
    open_window,
)


@algorithm("expresspass", source="Cho, Jang and Han, SIGCOMM 2017, algorithm 1")
class ExpressPass(Flow):
    """Credit-scheduled: a packet of data leaves for each credit that comes through the network.

    The receiver sends credits to each sender at a rate of its own.  Switches and NICs shape
    credits to what the data that they call for takes of the link in the other direction, and drop
    those above it.  So data is never dropped, whatever the number of senders, and no sender has to
    know the network.  Once in an RTT the sender tells which credits came; the receiver keeps the
    share that is lost near `target_loss`: below it the rate goes toward the largest one by
    `w`, which rises while it does; above it the rate falls by the loss, and `w` is halved.

    It needs links with a shaped class for credits (path.classes), and the same routes for data and
    credits, which the toolkit sees to.  Without such a class nothing limits the senders but the
    port of the receiver, and queues inside the network grow.

    Not in the paper: a sender has a credit each `longest_gap` at least, since a sender without
    credits tells of no loss and would wait for its turn.  A sender that wants nothing gets no
    credits, where the paper's says CREDIT_STOP.  Where the receiver gives no credits, the sender
    keeps a window by loss, as NewReno does.
    """

    target_loss: float = param(0.1, min=0.001, max=0.9, doc="share of credits that is lost")
    w_min: float = param(0.01, min=1e-4, max=1, doc="least step toward the largest rate")
    w_max: float = param(0.5, min=1e-4, max=1, doc="largest step toward it")
    alpha: float = param(0.5, min=1e-4, max=1, doc="rate of a new flow, of the largest")
    longest_gap: float = param(1, unit="RTTs", min=0.1, max=1e4, doc="between two credits")
    overhead: float = param(
        204, unit="bytes", min=0, doc="of a packet and its credit, on the wire, beside the payload"
    )
    late_ns: float = param(
        20_000, unit="ns", min=0, doc="a port that wakes late makes up for so much at most"
    )
    idle_ns: float = param(
        1e6, unit="ns", min=1e3, doc="a flow that had no credit for so long begins anew"
    )
    patience_ns: float = param(
        5e6, unit="ns", min=1e4, doc="a sender that is silent for so long gets no credit"
    )
    unknown_line_rate_bps: float = param(
        10e9, unit="bit/s", min=1e6, doc="taken for the port's rate where that is not known"
    )

    jitter: float = param(0.5, min=0, max=1, doc="by which the time between two credits varies")

    next_cut_bytes: float = state()
    noise: float = state(1, of="port")  # of a generator of random numbers
    rate: float = state(of="sender")  # cur_rate, of the largest
    w: float = state(of="sender")
    increasing: bool = state(False, of="sender")
    next_credit_ns: float = state(of="sender")
    seen_told: float = state(of="sender")  # credits that the feedback has taken up
    seen_heard: float = state(of="sender")

    def on_init(flow) -> None:
        flow.unscheduled_bytes = 0
        open_window(flow)

    def on_ack(flow, ack: Ack) -> None:
        grow_window(flow, ack)

    def on_loss(flow, loss: Loss) -> None:
        flow.next_cut_bytes = cut_window(flow, loss, flow.next_cut_bytes)

    @staticmethod
    def on_request(port: Port, sender: Sender) -> None:
        if sender.w <= 0 or port.now_ns - sender.next_credit_ns > port.idle_ns:
            sender.rate, sender.w, sender.increasing = port.alpha, port.w_max, False
            sender.next_credit_ns = port.now_ns
            sender.seen_told, sender.seen_heard = sender.credits_told, sender.credits_heard
        elif sender.credits_told > sender.seen_told:
            adapt(port, sender)
        port.timer_ns = port.now_ns

    @staticmethod
    def on_data(port: Port, sender: Sender, data: Data) -> None:
        pass

    @staticmethod
    def on_timer(port: Port, senders: Sequence[Sender]) -> None:
        """The credits that are due, and a timer for the next one."""
        port.timer_ns = 0
        for i in range(len(senders)):
            sender = senders[i]
            if is_silent(port, sender) or sender.wanted_bytes <= sender.arrived_bytes:
                continue
            send_credits(port, sender)
            if port.timer_ns == 0 or sender.next_credit_ns < port.timer_ns:
                port.timer_ns = sender.next_credit_ns


def adapt(port: Port, sender: Sender) -> None:
    """Algorithm 1, once for each report of the sender."""
    sent = sender.credits_told - sender.seen_told
    heard = sender.credits_heard - sender.seen_heard
    credit_loss = min(max(1 - heard / sent, 0.0), 1.0)
    if credit_loss <= port.target_loss:
        if sender.increasing:
            sender.w = (sender.w + port.w_max) / 2
        sender.increasing = True
        sender.rate = (1 - sender.w) * sender.rate + sender.w * (1 + port.target_loss)
    else:
        sender.increasing = False
        sender.rate *= (1 - credit_loss) * (1 + port.target_loss)
        sender.w = max(sender.w / 2, port.w_min)
    sender.seen_told, sender.seen_heard = sender.credits_told, sender.credits_heard


def send_credits(port: Port, sender: Sender) -> None:
    sender.next_credit_ns = max(sender.next_credit_ns, port.now_ns - port.late_ns)
    rate_bps = port.line_rate_bps if port.line_rate_bps > 0 else port.unknown_line_rate_bps
    packet_ns = (sender.mss_bytes + port.overhead) * 8e9 / rate_bps
    least = packet_ns / (packet_ns + port.longest_gap * max(sender.rtt_ns, packet_ns))
    sender.rate = max(sender.rate, least)
    gap_ns = packet_ns / sender.rate
    while sender.next_credit_ns <= port.now_ns:
        port.noise = port.noise * 16807 % 2147483647  # Park and Miller, CACM 1988
        sender.next_credit_ns += gap_ns * (1 + port.jitter * (port.noise / 1073741824 - 1))
        sender.credits += 1
