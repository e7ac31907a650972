# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ucx_perftest over our device or over TCP: what an MPI program gets with and without RDMA."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.errors import RunFailed
from datapath.lanes.base import Host, Tool
from datapath.metric_kind import MetricKind
from datapath.units import Bytes
from datapath.verbs import sysfs
from datapath.verbs.launch import UCX_TRANSPORTS
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import Programs, WorkloadParams, require, require_device

_PROGRAM = "ucx_perftest"
_PORT = 13337
_VERBS_DEVICE = "dp0:1"
_TESTS: Mapping[str, str] = {
    "tag_lat": "tag_lat",
    "tag_bw": "tag_bw",
    "put_lat": "ucp_put_lat",
    "put_bw": "ucp_put_bw",
}
_TRANSPORTS: Mapping[str, str] = {
    "rc": UCX_TRANSPORTS,
    "ud": "ud_verbs,self",
}
_MIB = 2**20


class UcxParams(WorkloadParams):
    """One ucx_perftest between client and server."""

    test: Literal["tag_lat", "tag_bw", "put_lat", "put_bw"] = Field(
        "tag_lat", description="UCP operation, and what is measured: latency or bandwidth."
    )
    qp_type: Literal["rc", "ud"] = Field(
        "rc", description="Transport of UCX on device dp: rc_verbs or ud_verbs."
    )
    size: Bytes = Field(64, ge=1, le=2**30, description="Bytes of each message.")
    iterations: int = Field(10_000, ge=10, le=10**8, description="Messages that are counted.")
    warmup: int = Field(1_000, ge=0, le=10**7, description="Messages before those.")


class Ucx:
    """Metrics: latency_p50, latency_mean (half round trips), or goodput and message_rate."""

    name: ClassVar[str] = "ucx"
    Params: ClassVar[type[pydantic.BaseModel]] = UcxParams
    tools: ClassVar[tuple[Tool, ...]] = (Tool(_PROGRAM, version=()),)
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("kernel", "dp")
    samples: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, UcxParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        p = self.params
        client, server = ctx.network.pairs[0]
        test = ["-t", _TESTS[p.test], "-s", str(p.size), "-n", str(p.iterations)]
        test += ["-w", str(p.warmup), "-f", "-v"]
        over_tcp = ctx.transport.device == "kernel"
        names = [host.name for host in ctx.network.hosts]
        devices = dict(zip(names, ctx.device_env, strict=True))
        qp_type = None if over_tcp else p.qp_type

        def words(host: Host, *more: str) -> list[str]:
            plain = [*_command(host), *p.extra, *more]
            return plain if over_tcp else sysfs.program(plain)

        def settings(host: Host) -> dict[str, str]:
            return {**devices[host.name], **environment(host, qp_type)}

        with Programs(ctx, self.tools, p.pin, busy=True) as programs:
            listener = programs.start(server, "ucx-server", words(server), settings(server))
            programs.wait_listening(server, listener, _PORT)
            asks = words(client, server.endpoint.mgmt_ipv4, *test)
            caller = programs.start(client, "ucx-client", asks, settings(client))
            output = programs.finish(caller, server=listener)
        return self.outcome(output, "TCP" if over_tcp else f"{p.qp_type}_verbs")

    def outcome(self, output: str, transport: str = "TCP") -> Outcome:
        """From the comma-separated result that -f -v prints; RunFailed when there is none."""
        rows = list(csv.DictReader(line.strip() for line in output.splitlines() if "," in line))
        try:
            metrics = self._metrics(rows[-1])
        except (IndexError, KeyError, TypeError, ValueError):
            raise RunFailed("ucx_perftest printed no result", hint="see ucx-client.err") from None
        return Outcome(metrics, notes={"transport": f"UCX over {transport}"})

    def _metrics(self, row: Mapping[str, str]) -> list[Metric]:
        if self.params.test.endswith("_lat"):
            return [
                Metric("latency_p50", float(row["50.0_percentile_lat"]) * 1e3, "ns"),
                Metric("latency_mean", float(row["overall_lat"]) * 1e3, "ns"),
            ]
        return [
            Metric("goodput", float(row["overall_bw"]) * _MIB * 8, "bit/s"),
            Metric("message_rate", float(row["overall_mr"]), "1/s"),
        ]


def _command(host: Host) -> list[str]:
    """The host's ucx_perftest, alone.

    One that is built with MPI (Debian 13) takes every call without a terminal for one by mpirun,
    and ends as there is no second process; its option -P, which others lack, makes it do without.
    """
    require(host, _PROGRAM, Ucx.tools)
    has_mpi = "MPI mode" in host.run([_PROGRAM, "-h"]).stdout
    return [_PROGRAM, *(["-P", "0"] if has_mpi else []), "-p", str(_PORT)]


def environment(host: Host, qp_type: str | None) -> dict[str, str]:
    """UCX on the device under test alone: over verbs, or over TCP when qp_type is None."""
    over = "tcp,self" if qp_type is None else _TRANSPORTS[qp_type]
    device = host.endpoint.netdev if qp_type is None else _VERBS_DEVICE
    return {"UCX_TLS": over, "UCX_NET_DEVICES": device, "UCX_LOG_LEVEL": "warn"}
