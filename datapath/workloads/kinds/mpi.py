# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MPI (Open MPI over UCX) on our device, or over TCP: latency, bandwidth, allreduce.

Each host has an equal number of ranks.  mpirun starts those of the other hosts through a process
that this workload keeps there, so the hosts have to be namespaces.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.errors import LocalError, RunFailed
from datapath.lanes.base import Host, Tool
from datapath.lanes.local import MGMT_DEVICE, NetnsHost
from datapath.metric_kind import MetricKind
from datapath.native import paths
from datapath.units import Bytes
from datapath.verbs import sysfs
from datapath.verbs.launch import OPEN_MPI, OPEN_MPI_YIELDS
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.collective_times import bandwidths
from datapath.workloads.kinds.ucx import environment
from datapath.workloads.programs import Programs, WorkloadParams, refuse_own_port, require_device

_FOLDER = Path(__file__).parents[1] / "mpi"
_POLL_S = 0.01
_DOUBLE_BYTES = 8


class MpiParams(WorkloadParams):
    """One benchmark among the ranks."""

    test: Literal["latency", "bandwidth", "allreduce"] = Field(
        "latency",
        description="Between the first and the last rank, one message after the other or 64 at "
        "once; or a sum of doubles over all ranks.",
    )
    ranks: int = Field(
        4, ge=2, le=64, description="Processes, as many on each host as on the others."
    )
    qp_type: Literal["rc", "ud"] = Field(
        "rc", description="Transport of UCX on device dp: rc_verbs or ud_verbs."
    )
    size: Bytes = Field(8, ge=8, le=2**26, description="Bytes of each message or sum.")
    iterations: int = Field(1000, ge=1, le=10**7, description="Messages, windows or sums.")
    warm_up: int = Field(10, ge=0, le=10**7, description="Those before them.")
    extra: list[str] = Field(
        default_factory=list, description="More command-line arguments for mpirun."
    )

    @pydantic.model_validator(mode="after")
    def _whole(self) -> MpiParams:
        if self.test == "allreduce" and self.size % _DOUBLE_BYTES:
            raise ValueError(
                f"size is {self.size} bytes: allreduce sums doubles, of {_DOUBLE_BYTES} bytes each"
            )
        return self

    def check_hosts(self, names: Sequence[str]) -> None:
        if self.ranks % len(names):
            raise ValueError(f"ranks is {self.ranks}, which {len(names)} hosts cannot share evenly")


class Mpi:
    """Metrics: latency_mean of a message (half round trips) or a sum, goodput, algbw and busbw."""

    name: ClassVar[str] = "mpi"
    Params: ClassVar[type[pydantic.BaseModel]] = MpiParams
    tools: ClassVar[tuple[Tool, ...]] = (Tool("mpirun"),)
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("dp", "kernel")
    samples: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, MpiParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        hosts = ctx.network.hosts
        if not all(isinstance(host, NetnsHost) for host in hosts):
            raise LocalError("workload mpi runs between namespaces", hint="use lane: netns")
        if self.params.ranks > len(hosts):
            refuse_own_port(ctx, f"ranks: {len(hosts)}")
        program = paths.mpi_benchmark()
        with Programs(ctx, self.tools, pin=False, busy=True) as programs:
            for host in hosts[1:]:
                _keep_entrance(ctx, programs, host)
            words = self.command(ctx, program)
            output = programs.finish(programs.start(hosts[0], "mpirun", words))
        return self.outcome(output)

    def command(self, ctx: RunContext, program: Path) -> list[str]:
        """mpirun's command line, with a part for each host."""
        p, hosts = self.params, ctx.network.hosts
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        words += ["--mca", "plm_rsh_agent", f"{_FOLDER / 'agent.sh'} {ctx.logs.resolve()}"]
        words += ["--mca", "oob_tcp_if_include", MGMT_DEVICE]
        words += p.extra
        over_tcp = ctx.transport.device == "kernel"
        call = [str(program), p.test, str(p.size), str(p.iterations), str(p.warm_up)]
        each = str(p.ranks // len(hosts))
        for host, device in zip(hosts, ctx.device_env, strict=True):
            qp_type = None if over_tcp else p.qp_type
            settings = {**device, **OPEN_MPI, **environment(host, qp_type)}
            if p.ranks > len(host.cpus):
                settings |= OPEN_MPI_YIELDS
            part = ["-np", each, "--host", f"{host.endpoint.mgmt_ipv4}:{each}", "env"]
            part += [f"{key}={value}" for key, value in settings.items()]
            words += [*part, *(call if over_tcp else sysfs.program(call)), ":"]
        return words[:-1]

    def outcome(self, output: str) -> Outcome:
        """From the line that the first rank prints; RunFailed when there is none."""
        fields = [line.split() for line in output.splitlines() if line.startswith(self.params.test)]
        try:
            [[_, number]] = fields
            value = float(number)
        except ValueError:
            raise RunFailed("MPI printed no result", hint="see mpirun.out and .err") from None
        if self.params.test == "bandwidth":
            return Outcome([Metric("goodput", 8 * value, "bit/s")])
        metrics = [Metric("latency_mean", value, "ns")]
        if self.params.test == "allreduce":
            metrics += bandwidths("allreduce", self.params.ranks, self.params.size, value)
        return Outcome(metrics)


def _keep_entrance(ctx: RunContext, programs: Programs, host: Host) -> None:
    """A process on the host, whose namespaces agent.sh enters."""
    file = _pid_file(ctx.logs.resolve(), host)
    keep = ["sh", "-c", f"echo $$ >'{file}'; exec sleep infinity"]
    peer = programs.start(host, f"mpi-{host.name}", keep)
    while not file.exists() or not file.read_text().strip():
        if peer.process.poll() is not None or programs.remaining_s() <= 0:
            raise programs.failed(peer, "did not start")
        time.sleep(_POLL_S)


def _pid_file(folder: Path, host: Host) -> Path:
    """Named by the address by which mpirun knows the host."""
    return folder / f"mpi-{host.endpoint.mgmt_ipv4}.pid"
