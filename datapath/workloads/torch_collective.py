# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One collective of torch.distributed after the other, a rank on each host in namespaces."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.errors import LocalError
from datapath.lanes.base import Host, Tool
from datapath.lanes.local import NetnsHost
from datapath.metric_kind import MetricKind
from datapath.units import Bytes
from datapath.verbs import sysfs
from datapath.workloads import collective_times
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.programs import Program, Programs, require_device
from datapath.workloads.torch_ranks import RankParams, rank_environment


class TorchCollectiveParams(RankParams):
    """One collective on float32 after the other, as in workload collective."""

    collective: Literal["allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall"] = (
        Field("allreduce", description="The library under torch has algorithms of its own.")
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


class TorchCollective:
    """Metrics: algbw, busbw, and latency_* of one collective by the slowest rank.

    backend: torch's name of the library.
    """

    name: ClassVar[str]
    backend: ClassVar[str]
    Params: ClassVar[type[pydantic.BaseModel]] = TorchCollectiveParams
    tools: ClassVar[tuple[Tool, ...]] = ()  # PyTorch is no program: needs_torch
    needs_torch: ClassVar[bool] = True
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]]
    samples: ClassVar[tuple[str, ...]] = ("latency",)
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, TorchCollectiveParams)
        self.params = params

    def environment(self, ctx: RunContext, host: Host) -> Mapping[str, str]:
        """What the library reads, on a host."""
        raise NotImplementedError

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        p, hosts = self.params, ctx.network.hosts
        if not all(isinstance(host, NetnsHost) for host in hosts):
            raise LocalError(
                f"workload {self.name} runs between namespaces", hint="use lane: netns"
            )
        unit = 4 * len(hosts)
        size = -(-p.size // unit) * unit
        with Programs(ctx, self.tools, p.pin) as programs:
            started = [
                self._start(ctx, programs, rank, host, size) for rank, host in enumerate(hosts)
            ]
            programs.finish_all(started)
        times = [
            collective_times.read_report(ctx.logs, host, rank) for rank, host in enumerate(hosts)
        ]
        return collective_times.outcome(p.collective, size, p.iterations, times)

    def _start(
        self, ctx: RunContext, programs: Programs, rank: int, host: Host, size: int
    ) -> Program:
        settings = {
            **self.params.model_dump(include={"collective", "iterations", "warm_up"}),
            "backend": self.backend,
            "size": size,
            "timeout_s": ctx.timeout_s,
            "report": str(ctx.logs.resolve() / collective_times.report_name(rank)),
        }
        file = (ctx.logs / f"collective-{rank}.json").resolve()
        file.write_text(json.dumps(settings))
        environment = {
            **ctx.device_env[rank],
            **self.environment(ctx, host),
            **rank_environment(ctx, rank),
        }
        words = [sys.executable, "-P", "-m", "datapath.train.rank", str(file)]
        if ctx.transport.device == "dp":
            words = sysfs.program(words)
        return programs.start(host, f"collective-{rank}", words, environment)
