# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A few flows through one queue: enough to see whether an algorithm does its job.

Every packet is an event; the queue is FIFO with drop-tail and an ECN step (a
packet is marked when it finds more than the threshold, as in the DCTCP paper).
All propagation delay lies behind the queue.  A lost packet is noticed when its
acknowledgement would have come, and `on_timeout` and `on_cnp` are never called.
The queue tells telemetry of itself: what a packet found waiting, and the port's
counter and clock when it left.

It takes a flow that runs as Python, so an algorithm can be stepped through with a
debugger; `datapath.fabric.simulator` runs the compiled one in the real engine.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from datapath.cc.drivers import Driver, new_ack, new_loss


@dataclass(frozen=True)
class Bottleneck:
    """The path that all flows share.

    mark_bytes: packets that find a longer queue are marked; 0: none are.
    telemetry: acknowledgements carry a record of the queue.
    loss: share of packets lost at random, 0..1.
    """

    rate_bps: float
    base_rtt_ns: float
    buffer_bytes: float
    mark_bytes: float = 0.0
    loss: float = 0.0
    telemetry: bool = False
    seed: int = 1


@dataclass
class Trace:
    """The history of one flow: one item per acknowledgement in each list."""

    time_ns: list[float] = field(default_factory=list)
    rtt_ns: list[float] = field(default_factory=list)
    cwnd_bytes: list[float] = field(default_factory=list)
    queue_bytes: list[float] = field(default_factory=list)
    marked: list[bool] = field(default_factory=list)
    losses: int = 0
    delivered_bytes: float = 0.0


@dataclass
class _Packet:
    flow: int
    sent_ns: float
    prior_delivered: float
    queue_bytes: float = 0.0
    marked: bool = False
    lost: bool = False
    left_ns: float = 0.0
    tx_bytes: float = 0.0


@dataclass
class _Sender:
    driver: Driver
    trace: Trace
    inflight: float = 0.0
    lost_since_ack: float = 0.0
    next_send_ns: float = 0.0
    wake_ns: float = -1.0
    timer_ns: float = 0.0
    round_bytes: float = 0.0


def simulate(
    drivers: Sequence[Driver], path: Bottleneck, duration_ns: float, mss_bytes: float = 4096
) -> list[Trace]:
    """Let the flows send as much as they may for `duration_ns`; one trace for each."""
    return _Simulation(drivers, path, mss_bytes).run(duration_ns)


class _Simulation:
    def __init__(self, drivers: Sequence[Driver], path: Bottleneck, mss_bytes: float) -> None:
        self.path, self.mss = path, mss_bytes
        self.draw = random.Random(path.seed)
        self.order = itertools.count()
        self.events: list[tuple[float, int, int, _Packet | None]] = []
        self.busy_until_ns = self.tx_bytes = 0.0
        self.senders = [_Sender(driver, Trace()) for driver in drivers]
        for index, sender in enumerate(self.senders):
            flow = sender.driver.flow
            flow.mss_bytes, flow.line_rate_bps = mss_bytes, path.rate_bps
            flow.max_cwnd_bytes = 2048 * mss_bytes
            flow.next_path, flow.paths = -1, 1
            sender.driver.on_init()
            self._at(0.0, index, None)

    def run(self, duration_ns: float) -> list[Trace]:
        while self.events and self.events[0][0] <= duration_ns:
            now_ns, _, index, packet = heapq.heappop(self.events)
            if packet is not None:
                self._answer(now_ns, self.senders[index], packet)
            self._call_timer(now_ns, index)
            self._send(now_ns, index)
        return [sender.trace for sender in self.senders]

    def _at(self, time_ns: float, index: int, packet: _Packet | None) -> None:
        heapq.heappush(self.events, (time_ns, next(self.order), index, packet))

    def _call_timer(self, now_ns: float, index: int) -> None:
        """on_wake if it is due; else an event at its time."""
        sender = self.senders[index]
        flow = sender.driver.flow
        if 0 < flow.wake_ns <= now_ns:
            flow.now_ns, flow.wake_ns = now_ns, 0
            sender.driver.on_wake(now_ns)
        if flow.wake_ns > now_ns and flow.wake_ns != sender.timer_ns:
            sender.timer_ns = float(flow.wake_ns)
            self._at(sender.timer_ns, index, None)

    def _send(self, now_ns: float, index: int) -> None:
        """Send as window and pacing allow; wake up when pacing allows more."""
        sender = self.senders[index]
        flow = sender.driver.flow
        while sender.inflight == 0 or sender.inflight + self.mss <= flow.cwnd_bytes:
            if now_ns < sender.next_send_ns:
                if sender.wake_ns <= now_ns:
                    sender.wake_ns = sender.next_send_ns
                    self._at(sender.wake_ns, index, None)
                return
            self._enqueue(now_ns, index)
            rate_bps = float(flow.pacing_rate_bps)
            if not rate_bps and flow.cwnd_bytes < self.mss and flow.srtt_ns:
                rate_bps = 8e9 * flow.cwnd_bytes / flow.srtt_ns
            if rate_bps > 0:
                sender.next_send_ns = now_ns + 8e9 * self.mss / rate_bps

    def _enqueue(self, now_ns: float, index: int) -> None:
        sender, path = self.senders[index], self.path
        packet = _Packet(index, now_ns, sender.trace.delivered_bytes)
        packet.queue_bytes = max(self.busy_until_ns - now_ns, 0.0) * path.rate_bps / 8e9
        packet.marked = 0 < path.mark_bytes < packet.queue_bytes
        packet.lost = (
            packet.queue_bytes + self.mss > path.buffer_bytes or self.draw.random() < path.loss
        )
        leaves_ns = max(self.busy_until_ns, now_ns)
        if not packet.lost:
            leaves_ns += 8e9 * self.mss / path.rate_bps
            self.busy_until_ns = leaves_ns
            self.tx_bytes += self.mss
        packet.left_ns, packet.tx_bytes = leaves_ns, self.tx_bytes
        sender.inflight += self.mss
        self._at(leaves_ns + path.base_rtt_ns, index, packet)

    def _answer(self, now_ns: float, sender: _Sender, packet: _Packet) -> None:
        """Give an acknowledgement or a loss to the algorithm."""
        flow, trace = sender.driver.flow, sender.trace
        sender.inflight -= self.mss
        rtt_ns = now_ns - packet.sent_ns
        if not packet.lost:
            trace.delivered_bytes += self.mss
            flow.min_rtt_ns = min(flow.min_rtt_ns or rtt_ns, rtt_ns)
            flow.srtt_ns += (rtt_ns - flow.srtt_ns) / 8 if flow.srtt_ns else rtt_ns
        flow.now_ns, flow.inflight_bytes = now_ns, sender.inflight
        flow.delivered_bytes = trace.delivered_bytes
        if packet.lost:
            self._lose(now_ns, sender, packet)
            return
        ack = new_ack(
            now_ns=now_ns,
            rtt_ns=rtt_ns,
            acked_bytes=self.mss,
            marked_bytes=self.mss * packet.marked,
            lost_bytes=sender.lost_since_ack,
            inflight_bytes=sender.inflight,
            delivered_bytes=trace.delivered_bytes,
            prior_delivered_bytes=packet.prior_delivered,
            delivery_rate_bps=8e9 * (trace.delivered_bytes - packet.prior_delivered) / rtt_ns,
        )
        if self.path.telemetry:
            hop, ack.n_hops = ack.hop[0], 1
            hop.queue_bytes, hop.rate_bps = packet.queue_bytes, self.path.rate_bps
            hop.tx_bytes, hop.ts_ns = packet.tx_bytes, packet.left_ns
        sender.lost_since_ack = 0.0
        sender.driver.on_ack(ack)
        if packet.prior_delivered >= sender.round_bytes:
            sender.round_bytes = trace.delivered_bytes
            sender.driver.on_rtt(ack)
        trace.time_ns.append(now_ns)
        trace.rtt_ns.append(rtt_ns)
        trace.cwnd_bytes.append(float(flow.cwnd_bytes))
        trace.queue_bytes.append(packet.queue_bytes)
        trace.marked.append(packet.marked)

    def _lose(self, now_ns: float, sender: _Sender, packet: _Packet) -> None:
        sender.lost_since_ack += self.mss
        sender.trace.losses += 1
        loss = new_loss(
            now_ns=now_ns,
            lost_bytes=self.mss,
            inflight_bytes=sender.inflight,
            prior_delivered_bytes=packet.prior_delivered,
        )
        sender.driver.on_loss(loss)
