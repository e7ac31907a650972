# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Congestion-control algorithms: one that keeps what the engine tells it, one that never moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datapath.native import ffi, lib
from tests.engine.ladder import QP

ACK = [name for name, _ in ffi.typeof("struct dp_cc_ack").fields if name != "hop"]
LOSS = [name for name, _ in ffi.typeof("struct dp_cc_loss").fields]
HOP = [name for name, _ in ffi.typeof("struct dp_cc_hop").fields]


class Witness:
    """Sets a window, and the path of the next packet if `next_path` is given.

    by_path: called for each path of an acknowledgement, it sends what each call lets out over its
    path.  acks and losses are the events so far, as dictionaries; `hops` of an ack is a list of
    such.  cnps are the times of CNPs, rounds the bytes delivered at each on_rtt, round_paths the
    paths of its acknowledgements.  wake_ns: when on_wake is
    called first; wakes are the times of it, and it sets wake_ns to what `again` says of them.
    """

    def __init__(
        self,
        qp: QP,
        *,
        cwnd_bytes: float = 1e9,
        next_path: float | None = None,
        by_path: bool = False,
        wake_ns: float = 0,
        again: Callable[[float], float] | None = None,
    ) -> None:
        self.acks: list[dict[str, Any]] = []
        self.losses: list[dict[str, float]] = []
        self.cnps: list[float] = []
        self.rounds: list[float] = []
        self.round_paths: list[float] = []
        self.wakes: list[float] = []
        self.wake_ns, self.again = wake_ns, again
        self.next_path, self.by_path = next_path, by_path
        self.flow: Any = None
        record = ffi.new("struct dp_cc_flow *")
        record.cwnd_bytes = cwnd_bytes
        algo = ffi.new("struct dp_cc_algo *")
        name = ffi.new("char[]", b"witness")
        calls = [
            ffi.callback("void(void *)", self._on_init),
            ffi.callback("void(void *, const struct dp_cc_ack *)", self._on_ack),
            ffi.callback("void(void *, const struct dp_cc_loss *)", self._on_loss),
            ffi.callback("void(void *, double)", lambda flow, now: None),
            ffi.callback("void(void *, double)", lambda flow, now: self.cnps.append(now)),
            ffi.callback("void(void *, const struct dp_cc_ack *)", self._on_rtt),
            ffi.callback("void(void *, double)", self._on_wake),
        ]
        algo.abi, algo.name, algo.initial = lib.DP_CC_ABI, name, record
        algo.flow_bytes, algo.by_path = ffi.sizeof("struct dp_cc_flow"), by_path
        algo.on_init, algo.on_ack, algo.on_loss, algo.on_timeout, algo.on_cnp = calls[:5]
        algo.on_rtt, algo.on_wake = calls[5:]
        self._keep = (record, name, calls, algo)
        assert lib.dp_qp_set_cc(qp.qp, algo, qp.world.now) == 0
        qp.algorithm = self

    def _on_init(self, flow: Any) -> None:
        self.flow = ffi.cast("struct dp_cc_flow *", flow)
        self.flow.wake_ns = self.wake_ns
        if self.next_path is not None:
            self.flow.next_path = self.next_path

    def _on_ack(self, _: Any, ack: Any) -> None:
        event: dict[str, Any] = {name: getattr(ack, name) for name in ACK}
        event["hops"] = [
            {name: getattr(ack.hop[i], name) for name in HOP} for i in range(int(ack.n_hops))
        ]
        self.acks.append(event)
        if self.by_path:
            self.flow.next_path = ack.path

    def _on_rtt(self, _: Any, ack: Any) -> None:
        self.rounds.append(ack.delivered_bytes)
        self.round_paths.append(ack.path)

    def _on_wake(self, _: Any, now_ns: float) -> None:
        self.wakes.append(now_ns)
        self.flow.wake_ns = self.again(now_ns) if self.again else 0

    def _on_loss(self, _: Any, loss: Any) -> None:
        self.losses.append({name: getattr(loss, name) for name in LOSS})


def constant_cc(cwnd_bytes: float, rate_bps: float) -> tuple[Any, Any]:
    """An algorithm that never changes its mind, and what must live as long as it."""
    record = ffi.new("struct dp_cc_flow *")
    record.cwnd_bytes, record.pacing_rate_bps = cwnd_bytes, rate_bps
    algo = ffi.new("struct dp_cc_algo *")
    name = ffi.new("char[]", b"constant")
    calls = [
        ffi.callback("void(void *)", lambda flow: None),
        ffi.callback("void(void *, const struct dp_cc_ack *)", lambda flow, ack: None),
        ffi.callback("void(void *, const struct dp_cc_loss *)", lambda flow, loss: None),
        ffi.callback("void(void *, double)", lambda flow, now: None),
    ]
    algo.abi, algo.name, algo.initial = lib.DP_CC_ABI, name, record
    algo.flow_bytes = ffi.sizeof("struct dp_cc_flow")
    algo.on_init, algo.on_ack, algo.on_loss, algo.on_timeout = calls
    return algo, (record, name, calls)


KEPT: list[Any] = []
"""Engines of a test end after its variables, and use their algorithm until then."""


class Granting:
    """Grants each sender up to `window_bytes` on the way; its own sender has a constant window.

    gives: so many credits for each event, in the place of grants.  dscp: of what is granted.
    requests, reports, data and hops are the events so far: (wanted, arrived), (told, heard) of
    credits, (bytes, marked, trimmed) and the telemetry of each packet that has some.  rounds: when
    on_round was called.
    """

    def __init__(
        self,
        window_bytes: float = 1e9,
        unscheduled_bytes: float = 0,
        gives: int = 0,
        dscp: int = -1,
    ) -> None:
        KEPT.append(self)
        self.window_bytes, self.gives, self.dscp = window_bytes, gives, dscp
        self.hops: list[list[tuple[float, ...]]] = []
        self.next_ns = 0.0
        self.rounds: list[float] = []
        self.reports: list[tuple[float, float]] = []
        self.requests: list[tuple[float, float]] = []
        self.data: list[tuple[float, float, float]] = []
        self.algo, self._keep = constant_cc(1e6, 0)
        flow = self._keep[0]
        flow.unscheduled_bytes = unscheduled_bytes
        port, sender = ffi.new("struct dp_cc_port *"), ffi.new("struct dp_cc_sender *")
        calls = [
            ffi.callback("void(void *, void *)", self._on_request),
            ffi.callback("void(void *, void *, const struct dp_cc_data *)", self._on_data),
            ffi.callback("void(void *, void *, uint64_t)", self._on_timer),
            ffi.callback("void(void *, void *)", self._on_round),
        ]
        self.algo.port_bytes, self.algo.port_initial = ffi.sizeof("struct dp_cc_port"), port
        self.algo.sender_bytes, self.algo.sender_initial = (
            ffi.sizeof("struct dp_cc_sender"),
            sender,
        )
        self.algo.on_request, self.algo.on_data, self.algo.on_timer, self.algo.on_round = calls
        self._more = (port, sender, calls)

    def _on_request(self, port: Any, sender: Any) -> None:
        s = ffi.cast("struct dp_cc_sender *", sender)
        self.requests.append((s.wanted_bytes, s.arrived_bytes))
        self.reports.append((s.credits_told, s.credits_heard))
        self._at_once(port)

    def _on_data(self, port: Any, _: Any, data: Any) -> None:
        self.data.append((data.bytes, data.marked, data.trimmed))
        if data.n_hops:
            each = data.hop[0 : int(data.n_hops)]
            self.hops.append([tuple(getattr(hop, name) for name in HOP) for hop in each])
        self._at_once(port)

    def _on_round(self, port: Any, _: Any) -> None:
        self.rounds.append(ffi.cast("struct dp_cc_port *", port).now_ns)

    def _at_once(self, port: Any) -> None:
        p = ffi.cast("struct dp_cc_port *", port)
        p.timer_ns = p.now_ns

    def _on_timer(self, port: Any, senders: Any, n: int) -> None:
        p = ffi.cast("struct dp_cc_port *", port)
        if self.next_ns > p.now_ns:
            p.timer_ns = self.next_ns
            return
        array = ffi.cast("struct dp_cc_sender *", senders)
        for i in range(n):
            if self.gives:
                array[i].credits += self.gives
            else:
                array[i].granted_bytes = array[i].arrived_bytes + self.window_bytes
                array[i].dscp = self.dscp
