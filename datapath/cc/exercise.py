# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Legal but unkind events for any algorithm, and the rules that must hold after each.

`Transport` keeps the books of one connection (what is in flight, when it was
sent, what was delivered) and turns a `Step` into a call that the engine could
make.  Tests draw steps with Hypothesis; `dpctl cc check` draws them from a
seed.
"""

from __future__ import annotations

import math
import random
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from datapath.cc import raised, records
from datapath.cc.algorithm import Algorithm
from datapath.cc.drivers import Driver, new_ack, new_loss, same_bytes

HOUR_NS = 3600 * 10**9
KINDS = ("ack", "loss", "timeout", "cnp", "idle")
LINE_RATES_BPS = (25e9, 0.0)
"""That of a port that tells it, and that of one that does not, such as veth."""


@dataclass(frozen=True)
class Step:
    """One thing that happens to a connection.

    kind: one of KINDS; "idle" only lets time pass and delivers all packets in flight.
    wait_ns: time since the step before.
    use: share of the open window that the application fills before it, 0..1.
    share: share of the bytes in flight that is acknowledged or lost, 0..1.
    marked: share of the acknowledged bytes that carries CE, 0..1.
    sampled: whether the acknowledgement gives an RTT (not after a retransmission).
    hosts: share of the time since sending that the two hosts took, 0..1.
    hops: telemetry records, 0..8, and how long their queues are.
    path: that the newest packet had taken; more than there are is taken for the last.
    """

    kind: str = "ack"
    wait_ns: int = 10_000
    use: float = 1.0
    share: float = 0.5
    marked: float = 0.0
    sampled: bool = True
    hosts: float = 0.0
    hops: int = 0
    queue_bytes: float = 0.0
    path: int = 0


@dataclass
class _Sent:
    size: float
    at_ns: int
    prior_delivered: float


class Transport:
    """Plays the engine's part for one driver."""

    def __init__(
        self,
        driver: Driver,
        *,
        mss_bytes: float = 4096,
        max_cwnd_bytes: float = 8 << 20,
        line_rate_bps: float = LINE_RATES_BPS[0],
        paths: int = 4,
        now_ns: int = 1_000_000,
    ) -> None:
        self.driver, self.now_ns = driver, now_ns
        self.sent: deque[_Sent] = deque()
        self.delivered = self.lost_since_ack = 0.0
        self.srtt_ns = self.min_rtt_ns = self.host_ns = 0.0
        self.round_bytes = 0.0
        flow = driver.flow
        flow.mss_bytes, flow.max_cwnd_bytes = mss_bytes, max_cwnd_bytes
        flow.line_rate_bps = line_rate_bps
        flow.next_path, flow.paths = -1, paths
        self._fill_flow()
        driver.on_init()

    @property
    def inflight(self) -> float:
        return sum(item.size for item in self.sent)

    def step(self, step: Step) -> None:
        """Send, wait, and let `step` happen."""
        self._send(step.use)
        self.now_ns += step.wait_ns
        self.wake()
        if step.kind == "timeout":
            self._fill_flow()
            self.driver.on_timeout(float(self.now_ns))
            self.sent.clear()
        elif step.kind == "cnp":
            self._fill_flow()
            self.driver.on_cnp(float(self.now_ns))
        elif step.kind == "idle":
            self.delivered += self.inflight
            self.sent.clear()
        elif self.sent:
            newest, size = self._take(step.share)
            if step.kind == "ack":
                self._ack(step, newest, size)
            else:
                self._loss(step, newest, size)

    def wake(self) -> bool:
        """Call on_wake if its time has come; whether it had."""
        if not 0 < self.driver.flow.wake_ns <= self.now_ns:
            return False
        self._fill_flow()
        self.driver.flow.wake_ns = 0
        self.driver.on_wake(float(self.now_ns))
        return True

    def _send(self, use: float) -> None:
        flow = self.driver.flow
        room = use * (float(flow.cwnd_bytes) - self.inflight)
        size = max(room, float(flow.mss_bytes) if not self.sent else 0.0)
        if size > 0 and math.isfinite(size):
            self.sent.append(_Sent(size, self.now_ns, self.delivered))

    def _take(self, share: float) -> tuple[_Sent, float]:
        """Take the oldest `share` of the packets in flight; the newest of them, and their size."""
        want, taken = self.inflight * share, 0.0
        newest = self.sent[0]
        while self.sent and taken < want:
            newest = self.sent[0]
            part = min(newest.size, want - taken)
            taken += part
            newest.size -= part
            if newest.size < 1:
                self.sent.popleft()
        return newest, taken

    def _ack(self, step: Step, newest: _Sent, size: float) -> None:
        rtt_ns = (1 - step.hosts) * (self.now_ns - newest.at_ns) if step.sampled else 0.0
        host_ns = self.now_ns - newest.at_ns - rtt_ns if rtt_ns > 0 else 0.0
        self.delivered += size
        if rtt_ns > 0:
            gain = 1 / 8 if self.srtt_ns else 1.0
            self.min_rtt_ns = min(self.min_rtt_ns or rtt_ns, rtt_ns)
            self.srtt_ns += gain * (rtt_ns - self.srtt_ns)
            self.host_ns += gain * (host_ns - self.host_ns)
        self._fill_flow()
        elapsed_ns = max(self.now_ns - newest.at_ns, 1)
        ack = new_ack(
            now_ns=self.now_ns,
            rtt_ns=rtt_ns,
            host_ns=host_ns,
            acked_bytes=size,
            marked_bytes=size * step.marked,
            lost_bytes=self.lost_since_ack,
            inflight_bytes=self.inflight,
            delivered_bytes=self.delivered,
            prior_delivered_bytes=newest.prior_delivered,
            delivery_rate_bps=8e9 * (self.delivered - newest.prior_delivered) / elapsed_ns,
            app_limited=float(step.use < 1),
            path=min(step.path, int(self.driver.flow.paths) - 1),
            n_hops=step.hops,
        )
        for index in range(step.hops):
            hop = ack.hop[index]
            hop.queue_bytes, hop.ts_ns = step.queue_bytes, self.now_ns
            hop.tx_bytes = self.delivered
            hop.rate_bps = self.driver.flow.line_rate_bps or LINE_RATES_BPS[0]
        self.lost_since_ack = 0.0
        self.driver.on_ack(ack)
        if newest.prior_delivered >= self.round_bytes:
            self.round_bytes = self.delivered
            self.driver.on_rtt(ack)

    def _loss(self, step: Step, newest: _Sent, size: float) -> None:
        self.lost_since_ack += size
        self._fill_flow()
        loss = new_loss(
            now_ns=self.now_ns,
            lost_bytes=size,
            inflight_bytes=self.inflight,
            prior_delivered_bytes=newest.prior_delivered,
            path=min(step.path, int(self.driver.flow.paths) - 1),
        )
        self.driver.on_loss(loss)

    def _fill_flow(self) -> None:
        flow = self.driver.flow
        flow.now_ns = self.now_ns
        flow.inflight_bytes = self.inflight
        flow.delivered_bytes = self.delivered
        flow.srtt_ns, flow.min_rtt_ns = self.srtt_ns, self.min_rtt_ns
        flow.host_ns = self.host_ns


def violations(driver: Driver) -> list[str]:
    """Mistakes in the outputs and the state of a flow; [] when there are none."""
    flow, found = driver.flow, []
    cwnd, rate = float(flow.cwnd_bytes), float(flow.pacing_rate_bps)
    if not (math.isfinite(cwnd) and 0 < cwnd <= flow.max_cwnd_bytes):
        most = f"at most {float(flow.max_cwnd_bytes):.0f}"
        found.append(f"cwnd_bytes is {cwnd:.10g}; it must be above 0 and {most}")
    if not (math.isfinite(rate) and rate >= 0):
        found.append(f"pacing_rate_bps is {rate:g}")
    if not (math.isfinite(flow.wake_ns) and flow.wake_ns >= 0):
        found.append(f"wake_ns is {float(flow.wake_ns):g}")
    path, paths = float(flow.next_path), float(flow.paths)
    if path not in range(-1, int(paths)):
        found.append(f"next_path is {path:g}, of {paths:g} paths")
    for item in driver.algorithm.state:
        value = getattr(flow, item.name)
        if not np.isfinite(value).all():
            found.append(f"state {item.name} is {value}")
    return found


def port_in_words(line_rate_bps: float) -> str:
    """What a finding says of the port; "" where that is nothing special."""
    return "" if line_rate_bps else ", where line_rate_bps is 0 as on veth"


def difference(one: Driver, other: Driver, ulps: int = 0) -> list[str]:
    """Members in which two flows differ by more than `ulps` units in the last place."""
    if same_bytes(one.flow, other.flow):
        return []
    names = [*records.FLOW_MEMBERS, *(item.name for item in one.algorithm.fields)]
    found = []
    for name in names:
        a = np.asarray(getattr(one.flow, name), float)
        b = np.asarray(getattr(other.flow, name), float)
        near = np.abs(a - b) <= ulps * np.spacing(np.maximum(np.abs(a), np.abs(b)))
        if not np.all((a == b) | near):
            found.append(f"{name}: {a} and {b}")
    return found


def random_steps(seed: int, count: int) -> Iterator[Step]:
    """Steps for a check by hand: mostly acknowledgements, all kinds of trouble, an idle hour."""
    draw = random.Random(seed)
    for number in range(count):
        kind = draw.choices(KINDS, (87, 8, 2, 1, 2))[0]
        idle = kind == "idle" and number % 2 == 0
        yield Step(
            kind=kind,
            wait_ns=HOUR_NS if idle else int(10 ** draw.uniform(1, 6.5)),
            use=draw.choice((1.0, 1.0, draw.random())),
            share=draw.random(),
            marked=draw.choice((0.0, 0.0, draw.random(), 1.0)),
            sampled=draw.random() < 0.95,
            hosts=draw.choice((0.0, draw.random())),
            hops=draw.choice((0, 0, draw.randint(1, records.HOPS_MAX))),
            queue_bytes=draw.expovariate(1e-5),
            path=draw.randint(0, 3),
        )


def patient(run: Iterator[list[str]], algorithm: Algorithm, seconds: float) -> Iterator[list[str]]:
    """As `run`, the violations after each event of an algorithm in Python, until it is stuck.

    What a hook raises is a violation, and so is an event that uses more than `seconds` of CPU time.
    Compiled code cannot be stopped so: nothing interrupts a loop without end but kill -9.
    """

    def expired(*_: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGVTALRM, expired)
    try:
        while True:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            found = next(run, None)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if found is None:
                return
            yield found
    except _Endless:
        last = f"it has not returned after {seconds:g} s of CPU time: does a loop of it end?"
    except Exception as error:
        last = raised.finding(error, algorithm)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    yield [last]


class _Endless(Exception):
    pass


def replay(driver: Driver, steps: list[Step], **path: Any) -> Iterator[list[str]]:
    """Drive a flow through steps; the violations after each."""
    transport = Transport(driver, **path)
    yield violations(driver)
    for step in steps:
        transport.step(step)
        yield violations(driver)
