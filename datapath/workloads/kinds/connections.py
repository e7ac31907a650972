# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connections made by RDMA-CM, used once and ended: how many in a second, how long each takes."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pydantic
from pydantic import Field

from datapath.errors import RunFailed
from datapath.lanes.base import Tool
from datapath.metric_kind import MetricKind
from datapath.native import paths
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import (
    Programs,
    WorkloadParams,
    latency_metrics,
    require_device,
)

_PORT = 18540


class ConnectionsParams(WorkloadParams):
    """Each connection carries one message of 64 bytes."""

    count: int = Field(1000, ge=1, le=100_000, description="Connections, all together.")
    at_a_time: int = Field(16, ge=1, le=1024, description="Connections that are open at once.")


class Connections:
    """Metrics: connection_rate, latency_* of making one, connections_lost, connections_left.

    A connection is lost that was not made, used and ended at both ends.  What is left are
    connections and descriptors that either process still has after the last one.
    """

    name: ClassVar[str] = "connections"
    Params: ClassVar[type[pydantic.BaseModel]] = ConnectionsParams
    tools: ClassVar[tuple[Tool, ...]] = ()
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("dp", "rxe", "siw")
    samples: ClassVar[tuple[str, ...]] = ("latency",)
    metrics: ClassVar[tuple[MetricKind, ...]] = (
        MetricKind("connection_rate", "1/s", "Connections per second", "higher", "bar"),
        MetricKind("connections_lost", "1", "Connections lost", "lower"),
        MetricKind("connections_left", "1", "Connections left behind", "lower"),
    )
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, ConnectionsParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        p = self.params
        client, server = ctx.network.pairs[0]
        named = dict(zip([host.name for host in ctx.network.hosts], ctx.device_env, strict=True))
        program = paths.connections_program()
        to = [server.endpoint.ipv4, str(_PORT), str(p.count)]
        with Programs(ctx, self.tools, p.pin) as programs:
            words = [server.provide(program), "server", *to, *p.extra]
            serving = programs.start(server, "connections-server", words, named[server.name])
            programs.wait_saying(serving, "listening")
            words = [client.provide(program), "client", *to, str(p.at_a_time), *p.extra]
            asking = programs.start(client, "connections-client", words, named[client.name])
            told = [json.loads(programs.finish(asking, server=serving))]
            if serving.process.poll() is None:
                server.run(["kill", serving.errors().partition("process ")[2].split()[0]])
            told.append(json.loads(programs.finish(serving)))
        return outcome(p.count, told)


def outcome(count: int, told: list[dict[str, Any]]) -> Outcome:
    """told: the reports of client and server.  RunFailed when no connection was made."""
    client = told[0]
    times_ns = [1000.0 * us for us in client["times_us"]]
    if not times_ns:
        raise RunFailed("no connection was made", hint="see connections-client.err")
    complete = min(end[key] for end in told for key in ("made", "used", "ended"))
    return Outcome(
        [
            Metric("connection_rate", client["made"] / client["seconds"], "1/s"),
            Metric("connections_lost", count - complete, "1"),
            Metric("connections_left", sum(end["left"] for end in told), "1"),
            *latency_metrics(times_ns),
        ],
        {"latency_ns": times_ns},
    )
