# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Congestion-control algorithms: one that keeps what the engine tells it, one that never moves."""

from __future__ import annotations

from typing import Any

from datapath.native import ffi, lib
from tests.engine.ladder import QP

ACK = [name for name, _ in ffi.typeof("struct dp_cc_ack").fields if name != "hop"]
LOSS = [name for name, _ in ffi.typeof("struct dp_cc_loss").fields]
HOP = [name for name, _ in ffi.typeof("struct dp_cc_hop").fields]


class Witness:
    """Sets a window, and the path of the next packet if `choose` is given (called per event).

    acks and losses are the events so far, as dictionaries; `hops` of an ack is a list of such.
    """

    def __init__(self, qp: QP, *, cwnd_bytes: float = 1e9, next_path: float | None = None) -> None:
        self.acks: list[dict[str, Any]] = []
        self.losses: list[dict[str, float]] = []
        self.next_path = next_path
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
        ]
        algo.abi, algo.name, algo.initial = lib.DP_CC_ABI, name, record
        algo.flow_bytes = ffi.sizeof("struct dp_cc_flow")
        algo.on_init, algo.on_ack, algo.on_loss, algo.on_timeout = calls
        self._keep = (record, name, calls, algo)
        assert lib.dp_qp_set_cc(qp.qp, algo, qp.world.now) == 0

    def _on_init(self, flow: Any) -> None:
        self.flow = ffi.cast("struct dp_cc_flow *", flow)
        if self.next_path is not None:
            self.flow.next_path = self.next_path

    def _on_ack(self, _: Any, ack: Any) -> None:
        event: dict[str, Any] = {name: getattr(ack, name) for name in ACK}
        event["hops"] = [
            {name: getattr(ack.hop[i], name) for name in HOP} for i in range(int(ack.n_hops))
        ]
        self.acks.append(event)

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
