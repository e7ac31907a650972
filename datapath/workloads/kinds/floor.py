# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""AF_XDP and UDP sockets without a protocol: what a kernel interface gives at best."""

from __future__ import annotations

import json
import time
from typing import Any, ClassVar, Literal

import pydantic
from pydantic import Field, model_validator

from datapath.errors import RunFailed
from datapath.lanes.base import Host, Tool
from datapath.metric_kind import MetricKind
from datapath.native import paths
from datapath.units import Bytes, DurationNs
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import (
    Program,
    Programs,
    WorkloadParams,
    latency_metrics,
    require_device,
)

_POLL_S = 0.01
_SIZE_MAX = {"afxdp": 8064, "udp": 8972}
_CARRIED_MAX = 7604
"""Both as in experiments/bench/floor/floor.h."""


class FloorParams(WorkloadParams):
    """Messages go back and forth one at a time, or one way as fast as they can."""

    port: Literal["afxdp", "udp"] = Field(
        description="Frames of an AF_XDP socket, or datagrams of a UDP socket with segmentation "
        "offload both ways."
    )
    test: Literal["pingpong", "flood", "carry"] = Field(
        description="Latency; rate and goodput; those with a payload and an ICRC, which both ends "
        "copy and compute as a RoCE program in user space must."
    )
    size: Bytes = Field(64, ge=32, le=8972, description="Bytes of a message: the payload of UDP.")
    iterations: int = Field(20_000, ge=5, le=10**7, description="Round trips of pingpong.")
    duration: DurationNs = Field(
        1_000_000_000, ge=1_000_000, le=60 * 10**9, description="How long flood and carry send."
    )
    polling: bool = Field(
        True, description="true: both ends look for messages all the time. false: they sleep."
    )

    @model_validator(mode="after")
    def _fits_the_port(self) -> FloorParams:
        if self.size > _SIZE_MAX[self.port]:
            raise ValueError(f"a message over {self.port} has {_SIZE_MAX[self.port]} bytes at most")
        if self.test == "carry" and self.port == "afxdp" and self.size > _CARRIED_MAX:
            raise ValueError(f"a message carried over afxdp has {_CARRIED_MAX} bytes at most")
        return self


class Floor:
    """Metrics: latency_* of half round trips, or goodput, message_rate and lost_share of a flood.

    A flood has no flow control, so what counts is what arrives.
    """

    name: ClassVar[str] = "floor"
    Params: ClassVar[type[pydantic.BaseModel]] = FloorParams
    tools: ClassVar[tuple[Tool, ...]] = ()
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("kernel",)
    samples: ClassVar[tuple[str, ...]] = ("latency",)
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, FloorParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        p = self.params
        client, server = ctx.network.pairs[0]
        with Programs(ctx, self.tools, p.pin, busy=p.polling) as programs:
            listener = programs.start(
                server, "floor-server", self._command("server", server, client)
            )
            _wait_ready(programs, listener)
            asker = programs.start(client, "floor-client", self._command("client", client, server))
            told = json.loads(programs.finish(asker, server=listener))
        return outcome(p, told)

    def _command(self, side: str, host: Host, peer: Host) -> list[str]:
        p = self.params
        port = f"afxdp:{host.endpoint.netdev}" if p.port == "afxdp" else "udp"
        limit = p.iterations if p.test == "pingpong" else p.duration // 1_000_000
        words = [host.provide(paths.floor_program()), side, port]
        words += [host.endpoint.ipv4, peer.endpoint.ipv4, p.test, str(p.size), str(limit)]
        return [*words, "poll" if p.polling else "sleep", *p.extra]


def _wait_ready(programs: Programs, server: Program) -> None:
    while "ready" not in server.errors():
        if server.process.poll() is not None or programs.remaining_s() <= 0:
            raise programs.failed(server, "does not listen")
        time.sleep(_POLL_S)


def outcome(params: FloorParams, told: dict[str, Any]) -> Outcome:
    """told: the client's report.  RunFailed when nothing arrived."""
    if params.test == "pingpong":
        samples = [float(ns) for ns in told["half_round_trips_ns"]]
        return Outcome(latency_metrics(samples), {"latency_ns": samples})
    if told["received"] < 2 or told["seconds"] <= 0:
        raise RunFailed("no message of the flood arrived", hint="see floor-server.err")
    # The first message begins the time and is none of those that came in it.
    rate = (told["received"] - 1) / told["seconds"]
    return Outcome(
        [
            Metric("goodput", 8 * params.size * rate, "bit/s"),
            Metric("message_rate", rate, "1/s"),
            Metric("lost_share", 1 - told["received"] / told["sent"], "1"),
        ]
    )
