# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""sockperf ping-pong over kernel sockets: one-way latency, as a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import pydantic
from pydantic import Field, model_validator

from datapath.errors import RunFailed
from datapath.lanes.base import Tool
from datapath.metric_kind import MetricKind
from datapath.units import Bytes, DurationNs
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.programs import Programs, WorkloadParams, latency_metrics, require_device

_PORT = 11111
_LOG = "sockperf.csv"
_LOG_HEADER = "packet, txTime(sec), rxTime(sec), latency(usec)"


class SockperfParams(WorkloadParams):
    """One message at a time goes back and forth."""

    protocol: Literal["udp", "tcp"] = Field("udp", description="What carries the messages.")
    size: Bytes = Field(64, ge=14, le=65507, description="Bytes of each message.")
    duration: DurationNs = Field(
        1_000_000_000,
        ge=1_000_000_000,
        description="How long to send, whole seconds; sockperf leaves out some 0.45 s of them.",
    )
    polling: bool = Field(
        True, description="true: both ends spin on non-blocking sockets. false: they block."
    )

    @model_validator(mode="after")
    def _whole_seconds(self) -> SockperfParams:
        if self.duration % 1_000_000_000:
            raise ValueError("sockperf takes duration in whole seconds")
        return self


class Sockperf:
    """Metrics: latency_* of half round trips.  Samples: latency_ns, one for each round trip."""

    name: ClassVar[str] = "sockperf"
    Params: ClassVar[type[pydantic.BaseModel]] = SockperfParams
    tools: ClassVar[tuple[Tool, ...]] = (Tool("sockperf"),)
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("kernel",)
    samples: ClassVar[tuple[str, ...]] = ("latency",)
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, SockperfParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        p = self.params
        client, server = ctx.network.pairs[0]
        common = ["-i", server.endpoint.ipv4, "-p", str(_PORT)]
        common += ["--tcp"] if p.protocol == "tcp" else []
        common += ["--nonblocked"] if p.polling else []
        common += p.extra
        with Programs(ctx, self.tools, p.pin, busy=p.polling) as programs:
            listener = programs.start(server, "sockperf-server", ["sockperf", "server", *common])
            programs.wait_listening(server, listener, _PORT, udp=p.protocol == "udp")
            ping_pong = ["sockperf", "ping-pong", *common, "-m", str(p.size)]
            ping_pong += ["-t", str(p.duration // 10**9)]
            ping_pong += ["--full-log", f"{client.outputs(ctx.logs)}/{_LOG}"]
            pinger = programs.start(client, "sockperf-client", ping_pong)
            programs.finish(pinger, server=listener)
        client.fetch(ctx.logs)
        log = ctx.logs / _LOG
        samples = read_full_log(log)
        log.unlink(missing_ok=True)  # the samples go to the results
        if not samples:
            hint = "over UDP, sockperf stops at the first lost message: use protocol: tcp"
            raise RunFailed("sockperf has no valid observation", hint=hint)
        notes = {"mode": "polling" if p.polling else "blocking", "samples": str(len(samples))}
        return Outcome(latency_metrics(samples), {"latency_ns": samples}, notes)


def read_full_log(path: Path) -> list[float]:
    """Half round trips in nanoseconds, in order of sending, from a --full-log file."""
    if not path.exists():
        return []
    lines = iter(path.read_text().splitlines())
    for line in lines:
        if line.strip() == _LOG_HEADER:
            break
    samples = []
    for line in lines:
        fields = line.split(", ")
        if len(fields) == 4:
            samples.append(float(fields[3]) * 1e3)
    return samples
