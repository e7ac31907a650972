# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow or the port
"""vpc with a receiver that keeps an incast from its port: grants beside vpc's own window."""

from collections.abc import Sequence

from datapath.cc import Data, Port, Sender, algorithm, param, state
from datapath.cc.algorithms.receiver_driven import is_silent, learn_rtt, on_the_way, one_rtt
from datapath.cc.algorithms.vpc import Vpc, begin


@algorithm("vpc-granted", source="this toolkit; docs/vpc.md, section vpc-granted")
class VpcGranted(Vpc):
    """Vpc at the sender; the receiver bounds what all senders may have on the way to its port.

    A window is learnt in some round trips, and an incast is over by then.  So a sender may send
    `unscheduled` bytes and then what the receiver has granted, within its window.  The receiver
    grants packet by packet, to the sender that has the least on the way, until `overcommit`
    bandwidth-delay products of its port are on the way from all.  It knows nothing of queues
    elsewhere: there the window of vpc holds.  Where the receiver gives no grants this is vpc.
    """

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

    least_rtt_ns: float = state(of="port")

    def on_init(flow) -> None:
        flow.unscheduled_bytes = flow.unscheduled
        begin(flow)

    @staticmethod
    def on_request(port: Port, sender: Sender) -> None:
        learn_rtt(port, sender)
        port.timer_ns = port.now_ns  # on_timer looks at all senders, at once

    @staticmethod
    def on_data(port: Port, sender: Sender, data: Data) -> None:
        port.timer_ns = port.now_ns

    @staticmethod
    def on_timer(port: Port, senders: Sequence[Sender]) -> None:
        """One packet after the other, until the bound of what may be on the way is reached."""
        room = port.overcommit * one_rtt(port, senders)
        for i in range(len(senders)):
            room -= packets_on_the_way(port, senders[i])
        best = neediest(port, senders)
        while best >= 0 and room >= senders[best].mss_bytes:
            left = senders[best].wanted_bytes - senders[best].granted_bytes
            more = min(left, senders[best].mss_bytes)
            senders[best].granted_bytes += more
            room -= more
            best = neediest(port, senders)
        port.timer_ns = port.now_ns + port.patience_ns if len(senders) else 0.0


def packets_on_the_way(port: Port, sender: Sender) -> float:
    """In bytes, whole packets only: a message's last packet may leave a grant for part of one."""
    way = on_the_way(port, sender)
    return way - way % sender.mss_bytes


def neediest(port: Port, senders: Sequence[Sender]) -> int:
    """The sender with the least on the way of those that want more; -1: there is none."""
    best, least = -1, 0.0
    for i in range(len(senders)):
        if senders[i].granted_bytes >= senders[i].wanted_bytes or is_silent(port, senders[i]):
            continue
        way = packets_on_the_way(port, senders[i])
        if best < 0 or way < least:
            best, least = i, way
    return best
