# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A collective of torch.distributed by gloo over TCP, a rank on each host: a baseline."""

from __future__ import annotations

import json
import sys
from typing import ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.errors import LocalError
from datapath.lanes.base import Host, Tool
from datapath.lanes.local import NetnsHost
from datapath.metric_kind import MetricKind
from datapath.units import Bytes
from datapath.workloads import collective_times
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.programs import Program, Programs, WorkloadParams, require_device

_PORT = 29500


class GlooParams(WorkloadParams):
    """One collective on float32 after the other, as in workload collective."""

    collective: Literal["allreduce", "broadcast", "allgather"] = Field(
        "allreduce", description="gloo has algorithms of its own."
    )
    size: Bytes = Field(
        2**20,
        ge=4,
        le=2**34,
        description="Data of each rank, bytes, as nccl-tests counts them; rounded up to what the "
        "ranks can divide.",
    )
    iterations: int = Field(5, ge=1, le=10**6, description="Collectives that are measured.")
    warm_up: int = Field(
        1, ge=0, le=10**6, description="Collectives before them, besides the one that is checked."
    )


class Gloo:
    """Metrics: algbw, busbw, and latency_* of one collective by the slowest rank."""

    name: ClassVar[str] = "gloo"
    Params: ClassVar[type[pydantic.BaseModel]] = GlooParams
    tools: ClassVar[tuple[Tool, ...]] = ()  # PyTorch is no program: needs_torch
    needs_torch: ClassVar[bool] = True
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("kernel",)
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, GlooParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        p, hosts = self.params, ctx.network.hosts
        if not all(isinstance(host, NetnsHost) for host in hosts):
            raise LocalError("workload gloo runs between namespaces", hint="use lane: netns")
        unit = 4 * len(hosts)
        size = -(-p.size // unit) * unit
        with Programs(ctx, self.tools, p.pin) as programs:
            started = [
                self._start(ctx, programs, rank, host, size) for rank, host in enumerate(hosts)
            ]
            for program in started:
                programs.finish(program)
        times = [
            collective_times.read_report(ctx.logs, host, rank) for rank, host in enumerate(hosts)
        ]
        return collective_times.outcome(p.collective, size, p.iterations, times)

    def _start(
        self, ctx: RunContext, programs: Programs, rank: int, host: Host, size: int
    ) -> Program:
        settings = {
            **self.params.model_dump(include={"collective", "iterations", "warm_up"}),
            "size": size,
            "timeout_s": ctx.timeout_s,
            "report": str(ctx.logs.resolve() / collective_times.report_name(rank)),
        }
        file = (ctx.logs / f"collective-{rank}.json").resolve()
        file.write_text(json.dumps(settings))
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(ctx.network.hosts)),
            "MASTER_ADDR": ctx.network.hosts[0].endpoint.mgmt_ipv4,
            "MASTER_PORT": str(_PORT),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": host.endpoint.netdev,
        }
        words = [sys.executable, "-P", "-m", "datapath.train.gloo", str(file)]
        return programs.start(host, f"collective-{rank}", words, environment)
