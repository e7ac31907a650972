# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CoDel, FQ-CoDel and PIE as their RFCs' pseudocode has them, and a transmitter that asks them.

Written from RFC 8289 (section 5), RFC 8290 (section 4) and RFC 8033 (sections 4 and 5), not from
the link model.  Times are whole nanoseconds, and a byte takes a whole number of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

ECT, CE = (1, 2), 3


@dataclass
class Packet:
    number: int
    size: int
    ecn: int = 0
    flow: int = 0
    arrived_ns: int = 0


@dataclass
class Outcome:
    """sent: (packet, start of transmission).  dropped: (packet, why).  marked: packets."""

    sent: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[tuple[int, str]] = field(default_factory=list)
    marked: list[int] = field(default_factory=list)

    def mark(self, packet: Packet) -> bool:
        """Whether ECN takes the place of a drop."""
        if packet.ecn in ECT:
            packet.ecn = CE
            self.marked.append(packet.number)
        return packet.ecn == CE


class Queue(Protocol):
    outcome: Outcome

    def enqueue(self, packet: Packet, now: int, idle: bool) -> None: ...
    def dequeue(self, now: int) -> Packet | None: ...
    def confine(self) -> None: ...
    def time_passes(self, before: int) -> None: ...


def transmit(queue: Queue, arrivals: Sequence[tuple[int, Packet]], ns_per_byte: int) -> Outcome:
    """Every packet's fate: the transmitter asks whenever it is free, until it gets nothing."""
    free_at = 0
    idle = True

    def ask(until: int) -> None:
        nonlocal free_at, idle
        while not idle and free_at <= until:
            queue.time_passes(free_at)
            packet = queue.dequeue(free_at)
            idle = packet is None
            if packet is not None:
                queue.outcome.sent.append((packet.number, free_at))
                free_at += packet.size * ns_per_byte

    for now, packet in arrivals:
        ask(now)
        queue.time_passes(now + 1)
        packet.arrived_ns = now
        queue.enqueue(packet, now, idle)
        if idle:
            idle, free_at = False, now
            ask(now)
        queue.confine()
    ask(2**63)
    return queue.outcome


class Fifo(deque[Packet]):
    """Packets, and how many bytes they have."""

    bytes = 0

    def put(self, packet: Packet) -> None:
        self.append(packet)
        self.bytes += packet.size

    def take(self) -> Packet:
        packet = self.popleft()
        self.bytes -= packet.size
        return packet


class CoDelState:
    """The algorithm of RFC 8289, section 5, over any list of packets."""

    def __init__(self, target: int, interval: int, ecn: bool, outcome: Outcome) -> None:
        self.target, self.interval, self.ecn, self.outcome = target, interval, ecn, outcome
        self.first_above_time = 0
        self.drop_next = 0
        self.count = 0
        self.lastcount = 0
        self.dropping = False
        self.begun = 0  # how often it began to drop, and how often at the rate that it had
        self.resumed = 0

    def control_law(self, t: int, count: int) -> int:
        return t + int(self.interval / math.sqrt(count))

    def dodequeue(
        self, packets: Fifo, now: int, short: Callable[[], bool]
    ) -> tuple[Packet | None, bool]:
        if not packets:
            self.first_above_time = 0
            return None, False
        packet = packets.take()
        if now - packet.arrived_ns < self.target or short():
            self.first_above_time = 0
        elif self.first_above_time == 0:
            self.first_above_time = now + self.interval
        elif now >= self.first_above_time:
            return packet, True
        return packet, False

    def dequeue(self, packets: Fifo, now: int, short: Callable[[], bool]) -> Packet | None:
        packet, ok_to_drop = self.dodequeue(packets, now, short)
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            while now >= self.drop_next and self.dropping:
                assert packet is not None
                self.count += 1
                if self.ecn and self.outcome.mark(packet):
                    self.drop_next = self.control_law(self.drop_next, self.count)
                    break
                self.outcome.dropped.append((packet.number, "aqm"))
                packet, ok_to_drop = self.dodequeue(packets, now, short)
                if not ok_to_drop:
                    self.dropping = False
                else:
                    self.drop_next = self.control_law(self.drop_next, self.count)
        elif ok_to_drop:
            assert packet is not None
            if not (self.ecn and self.outcome.mark(packet)):
                self.outcome.dropped.append((packet.number, "aqm"))
                packet, ok_to_drop = self.dodequeue(packets, now, short)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = 1
            if delta > 1 and now - self.drop_next < 16 * self.interval:
                self.count = delta
                self.resumed += 1
            self.begun += 1
            self.drop_next = self.control_law(now, self.count)
            self.lastcount = self.count
        return packet


class CoDel:
    """limit: bytes that may wait."""

    def __init__(self, target: int, interval: int, ecn: bool, limit: int) -> None:
        self.outcome = Outcome()
        self.limit = limit
        self.packets = Fifo()
        self.state = CoDelState(target, interval, ecn, self.outcome)
        self.maxpacket = 0

    def enqueue(self, packet: Packet, now: int, idle: bool) -> None:
        self.maxpacket = max(self.maxpacket, packet.size)
        if not idle and self.packets.bytes + packet.size > self.limit:
            self.outcome.dropped.append((packet.number, "queue"))
        else:
            self.packets.put(packet)

    def dequeue(self, now: int) -> Packet | None:
        return self.state.dequeue(self.packets, now, lambda: self.packets.bytes <= self.maxpacket)

    def confine(self) -> None: ...

    def time_passes(self, before: int) -> None: ...


class FqCoDel:
    """queue_of: which queue a flow is in.  limit: bytes that may wait, all queues together."""

    def __init__(
        self,
        target: int,
        interval: int,
        ecn: bool,
        limit: int,
        quantum: int,
        queue_of: Callable[[int], int],
    ) -> None:
        self.outcome = Outcome()
        self.limit, self.quantum, self.queue_of = limit, quantum, queue_of
        self.new: deque[int] = deque()
        self.old: deque[int] = deque()
        self.packets: dict[int, Fifo] = {}
        self.credits: dict[int, int] = {}
        self.states: dict[int, CoDelState] = {}
        self.parameters = (target, interval, ecn, self.outcome)
        self.maxpacket = 0

    def bytes(self) -> int:
        return sum(packets.bytes for packets in self.packets.values())

    def enqueue(self, packet: Packet, now: int, idle: bool) -> None:
        self.maxpacket = max(self.maxpacket, packet.size)
        queue = self.queue_of(packet.flow)
        self.packets.setdefault(queue, Fifo()).put(packet)
        self.states.setdefault(queue, CoDelState(*self.parameters))
        if queue not in self.new and queue not in self.old:
            self.credits[queue] = self.quantum
            self.new.append(queue)

    def dequeue(self, now: int) -> Packet | None:
        while self.new or self.old:
            of_new = bool(self.new)
            queue = self.new[0] if of_new else self.old[0]
            current = self.new if of_new else self.old
            if self.credits[queue] <= 0:
                self.credits[queue] += self.quantum
                self.old.append(current.popleft())
                continue
            packet = self.states[queue].dequeue(
                self.packets[queue], now, lambda: self.bytes() <= self.maxpacket
            )
            if packet is not None:
                self.credits[queue] -= packet.size
                return packet
            current.popleft()
            if of_new:  # so that it does not starve the old ones by emptying again and again
                self.old.append(queue)
        return None

    def confine(self) -> None:
        while self.bytes() > self.limit:
            most = max(packets.bytes for packets in self.packets.values())
            fattest = self.packets[min(q for q, ps in self.packets.items() if ps.bytes == most)]
            for _ in range(min(64, math.ceil(len(fattest) / 2))):
                self.outcome.dropped.append((fattest.take().number, "queue"))

    def time_passes(self, before: int) -> None: ...


class Pie:
    """draws: 32-bit numbers.  limit: bytes that may wait."""

    def __init__(
        self,
        target: int,
        update: int,
        *,
        limit: int,
        draws: Iterator[int],
        ecn: bool = False,
        alpha: float = 0.125,
        beta: float = 1.25,
        max_burst: int = 150_000_000,
        mark_max: float = 0.1,
    ) -> None:
        self.outcome = Outcome()
        self.target, self.update, self.limit, self.draws = target, update, limit, draws
        self.ecn, self.alpha, self.beta = ecn, alpha, beta
        self.max_burst, self.mark_max = max_burst, mark_max
        self.packets = Fifo()
        self.maxpacket = 0
        self.next_update: int | None = None
        self.drop_prob = 0.0
        self.accu_prob = 0.0
        self.qdelay = 0
        self.qdelay_old = 0
        self.burst_allowance = max_burst
        self.forced = 0  # drops for certain

    def enqueue(self, packet: Packet, now: int, idle: bool) -> None:
        if self.next_update is None:
            self.next_update = now + self.update
        self.maxpacket = max(self.maxpacket, packet.size)
        if not idle and self.packets.bytes + packet.size > self.limit:
            self.outcome.dropped.append((packet.number, "queue"))
            return
        half = self.target // 2
        if self.drop_prob == 0 and self.qdelay < half and self.qdelay_old < half:
            self.burst_allowance = self.max_burst
        if self.burst_allowance == 0 and self.drop_early():
            self.accu_prob = 0.0
            low = self.drop_prob < self.mark_max
            if not (self.ecn and low and self.outcome.mark(packet)):
                self.outcome.dropped.append((packet.number, "aqm"))
                return
        self.packets.put(packet)

    def drop_early(self) -> bool:
        if self.qdelay_old < self.target // 2 and self.drop_prob < 0.2:
            return False
        if self.packets.bytes <= 2 * self.maxpacket:
            return False
        if self.drop_prob == 0:
            self.accu_prob = 0.0
        self.accu_prob += self.drop_prob
        if self.accu_prob < 0.85:
            return False
        if self.accu_prob >= 8.5:
            self.forced += 1
            return True
        return next(self.draws) / 2**32 < self.drop_prob

    def dequeue(self, now: int) -> Packet | None:
        if not self.packets:
            return None
        packet = self.packets.take()
        self.qdelay = now - packet.arrived_ns if self.packets else 0
        return packet

    def confine(self) -> None: ...

    def time_passes(self, before: int) -> None:
        while self.next_update is not None and self.next_update < before:
            self.calculate_drop_prob()
            self.next_update += self.update

    def calculate_drop_prob(self) -> None:
        delay, old = self.qdelay / 1e9, self.qdelay_old / 1e9
        p = self.alpha * (delay - self.target / 1e9) + self.beta * (delay - old)
        if self.drop_prob < 0.000001:
            p /= 2048
        elif self.drop_prob < 0.00001:
            p /= 512
        elif self.drop_prob < 0.0001:
            p /= 128
        elif self.drop_prob < 0.001:
            p /= 32
        elif self.drop_prob < 0.01:
            p /= 8
        elif self.drop_prob < 0.1:
            p /= 2
        if self.drop_prob >= 0.1:
            p = min(p, 0.02)
        self.drop_prob += p
        if self.qdelay == 0 and self.qdelay_old == 0:
            self.drop_prob *= 0.98
        self.drop_prob = min(max(self.drop_prob, 0.0), 1.0)
        self.qdelay_old = self.qdelay
        self.burst_allowance = max(0, self.burst_allowance - self.update)
