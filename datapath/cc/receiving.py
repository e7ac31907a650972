# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The receiver's side of an algorithm, run as Python or as compiled code, and tried by events.

`PythonReceiver` and `NativeReceiver` are for the hooks of the receiver what the classes of
drivers.py are for those of the sender.  `Arrivals` plays the engine's part: senders that ask for
bytes, and packets that arrive.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from datapath.cc import records
from datapath.cc.algorithm import Algorithm
from datapath.cc.compiler import CompiledAlgorithm
from datapath.cc.drivers import Descriptor, Record, address_of, new_data, record_view
from datapath.cc.exercise import LINE_RATES_BPS
from datapath.cc.loading import load

SENDERS = 6


class Receiver(Protocol):
    """The record of a port, those of its senders, and the hooks.

    The caller plays the transport: it sets the inputs in the records, then calls.
    """

    algorithm: Algorithm
    port: Record
    senders: list[Record]

    def on_request(self, sender: int) -> None: ...
    def on_data(self, sender: int, data: Record) -> None: ...
    def on_timer(self) -> None: ...
    def on_round(self, sender: int) -> None: ...


class PythonReceiver:
    """Runs the functions as they stand in the file, under the interpreter."""

    def __init__(
        self, name_or_path: str, params: Mapping[str, Any] | None = None, senders: int = SENDERS
    ) -> None:
        self.algorithm = load(name_or_path)
        values = self.algorithm.resolve(params or {})
        dtype = self.algorithm.dtype_of
        self.port = record_view(bytearray(self.algorithm.image(values, "port")), dtype("port"))
        self.senders = [
            record_view(bytearray(self.algorithm.image(values, "sender")), dtype("sender"))
            for _ in range(senders)
        ]
        _own_dscp(self.senders)

    def on_request(self, sender: int) -> None:
        self._call("on_request", self.senders[sender])

    def on_data(self, sender: int, data: Record) -> None:
        self._call("on_data", self.senders[sender], data)

    def on_timer(self) -> None:
        self._call("on_timer", self.senders)

    def on_round(self, sender: int) -> None:
        if "on_round" in self.algorithm.hooks:
            self._call("on_round", self.senders[sender])

    def _call(self, hook: str, *arguments: Any) -> None:
        with np.errstate(all="ignore"):
            self.algorithm.hooks[hook](self.port, *arguments)


class NativeReceiver:
    """Opens a compiled algorithm and calls the receiver's hooks as the engine does."""

    def __init__(self, compiled: CompiledAlgorithm, senders: int = SENDERS) -> None:
        self.algorithm = compiled.algorithm
        self._descriptor = Descriptor(compiled)
        self.port = record_view(
            self._descriptor.image("port_initial", "port_bytes"), self.algorithm.dtype_of("port")
        )
        image = self._descriptor.image("sender_initial", "sender_bytes")
        array = np.frombuffer(bytearray(image * senders), self.algorithm.dtype_of("sender"))
        self.senders = [Record(item) for item in array]
        _own_dscp(self.senders)

    def on_request(self, sender: int) -> None:
        self._descriptor.on_request(address_of(self.port), address_of(self.senders[sender]))

    def on_data(self, sender: int, data: Record) -> None:
        self._descriptor.on_data(
            address_of(self.port), address_of(self.senders[sender]), address_of(data)
        )

    def on_timer(self) -> None:
        first = address_of(self.senders[0])
        self._descriptor.on_timer(address_of(self.port), first, len(self.senders))

    def on_round(self, sender: int) -> None:
        if self._descriptor.on_round:
            self._descriptor.on_round(address_of(self.port), address_of(self.senders[sender]))


def _own_dscp(senders: list[Record]) -> None:
    """As the engine does it for a new sender."""
    for sender in senders:
        sender.dscp = -1


@dataclass(frozen=True)
class Event:
    """One thing that happens at a receiver.

    kind: "request": a sender wants `bytes` more; "data": a packet arrives, of what was granted;
    "lost": it does not arrive, and the sender tells so; "time": only time passes.
    """

    kind: str
    sender: int
    bytes: int
    wait_ns: int
    marked: bool = False


def random_events(seed: int, count: int) -> Iterator[Event]:
    """Events for a check by hand."""
    draw = random.Random(seed)
    for _ in range(count):
        kind = draw.choices(("request", "data", "lost", "time"), (20, 70, 5, 5))[0]
        yield Event(
            kind=kind,
            sender=draw.randrange(SENDERS),
            bytes=int(10 ** draw.uniform(0, 5)),
            wait_ns=int(10 ** draw.uniform(1, 5)),
            marked=draw.random() < 0.1,
        )


class Arrivals:
    """Plays the engine's part for one receiver: all senders are known to it from the beginning."""

    def __init__(
        self,
        receiver: Receiver,
        *,
        mss_bytes: int = 4096,
        line_rate_bps: float = LINE_RATES_BPS[0],
    ) -> None:
        self.receiver, self.mss_bytes, self.now_ns = receiver, mss_bytes, 1_000_000
        self.line_rate_bps = line_rate_bps
        self.granted = [0.0] * len(receiver.senders)
        self.credited = [0.0] * len(receiver.senders)  # bytes that credits let them send
        self.round_bytes = [0.0] * len(receiver.senders)  # whose arrival ends a round trip
        for sender in receiver.senders:
            sender.mss_bytes = mss_bytes

    def happen(self, event: Event) -> list[str]:
        """Let an event happen; mistakes in what the hooks set."""
        found = self._pass(event.wait_ns)
        sender = self.receiver.senders[event.sender]
        way = max(self._may_send(event.sender) - float(sender.arrived_bytes), 0.0)
        if event.kind == "request":
            sender.wanted_bytes += event.bytes
            self._heard(sender)
            self.receiver.on_request(event.sender)
            self._round(event.sender)
        elif event.kind == "data" and way:
            size = min(way, self.mss_bytes)
            sender.arrived_bytes += size
            self._heard(sender)
            data = new_data(now_ns=self.now_ns, bytes=size, marked=float(event.marked))
            self.receiver.on_data(event.sender, data)
            self._round(event.sender)
        elif event.kind == "lost" and way:
            lost = min(way, self.mss_bytes)
            sender.arrived_bytes += lost
            sender.wanted_bytes += lost
            self._heard(sender)
            self.receiver.on_request(event.sender)
            self._round(event.sender)
        return found + self._settle()

    def drain(self) -> Iterator[list[str]]:
        """Let what is granted arrive until nothing is wanted; the mistakes after each event."""
        senders = self.receiver.senders
        left = sum(float(item.wanted_bytes - item.arrived_bytes) for item in senders)
        for number in range(1000 + 4 * int(left / self.mss_bytes)):
            waiting = [i for i, s in enumerate(senders) if s.arrived_bytes < s.wanted_bytes]
            if not waiting:
                return
            sender = waiting[number % len(waiting)]
            stuck = self._may_send(sender) <= float(senders[sender].arrived_bytes)
            # A sender that waits repeats its DEMAND; a packet takes its time on the line.
            yield self.happen(Event("request" if stuck else "data", sender, 0, 10_000))
        yield ["a sender waits for a grant for ever"]

    def _may_send(self, sender: int) -> float:
        return max(self.granted[sender], self.credited[sender])

    def _heard(self, sender: Record) -> None:
        sender.heard_ns = self.now_ns

    def _round(self, sender: int) -> None:
        if self.receiver.senders[sender].arrived_bytes >= self.round_bytes[sender] > 0:
            self.receiver.on_round(sender)

    def _show(self) -> None:
        port, senders = self.receiver.port, self.receiver.senders
        port.now_ns, port.line_rate_bps = self.now_ns, self.line_rate_bps
        port.n_senders = sum(item.arrived_bytes < item.wanted_bytes for item in senders)
        for sender in senders:
            sender.rtt_ns = 20_000.0

    def _pass(self, wait_ns: int) -> list[str]:
        at = float(self.receiver.port.timer_ns)
        end = self.now_ns + wait_ns
        found: list[str] = []
        if 0 < at <= end:
            self.now_ns = max(self.now_ns, int(at))
            self.receiver.port.timer_ns = 0.0
            self._show()
            self.receiver.on_timer()
            found = self._settle()
        self.now_ns = end
        self._show()
        return found

    def _settle(self) -> list[str]:
        """The engine's part after a call: on_timer if it is due, and the grants."""
        port, found = self.receiver.port, []
        if not math.isfinite(port.timer_ns):
            found.append(f"timer_ns is {float(port.timer_ns):g}")
        elif 0 < port.timer_ns <= self.now_ns:
            port.timer_ns = 0.0
            self.receiver.on_timer()
        for i, sender in enumerate(self.receiver.senders):
            granted = float(sender.granted_bytes)
            if not math.isfinite(granted) or granted < self.granted[i]:
                found.append(
                    f"granted_bytes of sender {i} goes from {self.granted[i]} to {granted}"
                )
            self.granted[i] = max(self.granted[i], min(granted, float(sender.wanted_bytes)))
            sender.granted_bytes = self.granted[i]
            if float(sender.dscp) not in range(-1, 64):
                found.append(f"dscp of sender {i} is {float(sender.dscp):g}")
            found += self._credit(i, sender)
            if self.round_bytes[i] <= float(sender.arrived_bytes):
                more = self._may_send(i) > float(sender.arrived_bytes)
                self.round_bytes[i] = self._may_send(i) if more else 0.0
        return found + self._unsound()

    def _credit(self, index: int, sender: Record) -> list[str]:
        """Every credit arrives at once, and is told at once."""
        more = float(sender.credits) - float(sender.credits_told)
        if not math.isfinite(more) or more < 0:
            return [f"credits of sender {index} go from {sender.credits_told} to {sender.credits}"]
        begin = max(self.credited[index], float(sender.arrived_bytes))
        aim = min(begin + math.floor(more) * self.mss_bytes, float(sender.wanted_bytes))
        self.credited[index] = max(self.credited[index], aim)
        sender.credits = sender.credits_told = sender.credits_heard = math.floor(sender.credits)
        return []

    def _unsound(self) -> list[str]:
        found = []
        for field in self.receiver.algorithm.receiver_state:
            owners = [self.receiver.port] if field.of == "port" else self.receiver.senders
            for owner in owners:
                if not np.isfinite(getattr(owner, field.name)).all():
                    found.append(f"state {field.name} of the {field.of} is not finite")
        return found


def receiver_differences(one: Receiver, other: Receiver) -> list[str]:
    """The values that differ between two receivers, beyond rounding."""
    found = []
    names = [*records.HEADS["sender"]]
    for i, (a, b) in enumerate(zip(one.senders, other.senders, strict=True)):
        for name in names:
            if not math.isclose(getattr(a, name), getattr(b, name), rel_tol=1e-12, abs_tol=1e-9):
                found.append(f"{name} of sender {i}: {getattr(a, name)} and {getattr(b, name)}")
    if not math.isclose(one.port.timer_ns, other.port.timer_ns, rel_tol=1e-12):
        found.append(f"timer_ns: {one.port.timer_ns} and {other.port.timer_ns}")
    return found
