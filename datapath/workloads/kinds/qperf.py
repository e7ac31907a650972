# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""qperf over kernel sockets, or over RDMA: mean latency, or goodput.

Its RDMA tests connect by RDMA-CM: without it, qperf names its peer by a LID and no GID, as only
InfiniBand allows.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import pydantic
from pydantic import Field, model_validator

from datapath.errors import LocalError, RunFailed
from datapath.lanes.base import Host, Tool
from datapath.metric_kind import MetricKind
from datapath.units import Bytes, DurationNs
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import (
    CLIENT_ALONE,
    Programs,
    WorkloadParams,
    require_device,
)

_PORT = 19765
_RESULT = re.compile(r"^\s+(\w+)\s+=\s+([\d.]+) (ns|bytes/sec)\s*$", re.MULTILINE)
_UDP_BYTES_MAX = 65507

Test = Literal[
    "tcp_bw",
    "tcp_lat",
    "udp_bw",
    "udp_lat",
    "rc_bw",
    "rc_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_lat",
    "rc_rdma_read_bw",
    "rc_rdma_read_lat",
]


class QperfParams(WorkloadParams):
    """One test of qperf between a client and its server."""

    test: Test = Field(
        "tcp_lat",
        description="What carries the messages, and what is measured. rc_*: transport.device dp, "
        "rxe or siw; the others: kernel.",
    )
    size: Bytes = Field(64, ge=1, le=2**30, description="Bytes of each message.")
    duration: DurationNs = Field(
        2_000_000_000, ge=1_000_000_000, description="How long to measure, whole seconds."
    )
    extra: list[str] = Field(default_factory=list, description=CLIENT_ALONE)

    @property
    def over_rdma(self) -> bool:
        return self.test.startswith("rc_")

    @model_validator(mode="after")
    def _fits_qperf(self) -> QperfParams:
        if self.duration % 1_000_000_000:
            raise ValueError("qperf takes duration in whole seconds")
        if self.test.startswith("udp") and self.size > _UDP_BYTES_MAX:
            raise ValueError(f"a datagram of UDP has at most {_UDP_BYTES_MAX} bytes")
        return self


class Qperf:
    """Metrics: latency_mean (one way), or goodput; of udp_bw also lost_share."""

    name: ClassVar[str] = "qperf"
    Params: ClassVar[type[pydantic.BaseModel]] = QperfParams
    tools: ClassVar[tuple[Tool, ...]] = (Tool("qperf"),)
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("kernel", "dp", "rxe", "siw")
    samples: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, QperfParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        device = ctx.transport.device
        if self.params.over_rdma == (device == "kernel"):
            raise LocalError(
                f"qperf's {self.params.test} does not run on transport device {device}",
                hint="rc_* is for devices dp, rxe and siw, tcp_* and udp_* are for kernel",
            )
        client, server = ctx.network.pairs[0]
        names = [host.name for host in ctx.network.hosts]
        devices = dict(zip(names, ctx.device_env, strict=True))
        with Programs(ctx, self.tools, self.params.pin) as programs:
            programs.wait_free(server, _PORT)
            listener = programs.start(server, "qperf-server", ["qperf"], devices[server.name])
            programs.wait_listening(server, listener, _PORT)
            caller = programs.start(
                client, "qperf-client", self.command(server), devices[client.name]
            )
            output = programs.finish(caller, server=listener)
        return self.outcome(output)

    def command(self, server: Host) -> list[str]:
        """The client's command line."""
        p = self.params
        words = ["qperf", server.endpoint.ipv4, "--time", str(p.duration // 10**9)]
        words += ["--msg_size", str(p.size), "--unify_units", "--precision", "9"]
        words += ["--use_cm", "1"] if p.over_rdma else []
        return [*words, *p.extra, p.test]

    def outcome(self, output: str) -> Outcome:
        """From what the client prints in base units; RunFailed when that is no result."""
        found = {name: float(value) for name, value, _ in _RESULT.findall(output)}
        if "latency" in found:
            return Outcome([Metric("latency_mean", found["latency"], "ns")])
        received = found.get("recv_bw", found.get("bw"))
        if received is None:
            raise RunFailed("qperf printed no result", hint="see qperf-client.out and .err")
        metrics = [Metric("goodput", 8 * received, "bit/s")]
        if found.get("send_bw"):
            metrics.append(Metric("lost_share", max(0.0, 1 - received / found["send_bw"]), "1"))
        return Outcome(metrics)
