# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""fi_pingpong of libfabric over our device or over the kernel's TCP and UDP."""

from __future__ import annotations

from typing import ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.errors import RunFailed
from datapath.lanes.base import Host, Tool
from datapath.metric_kind import MetricKind
from datapath.units import Bytes
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import Programs, WorkloadParams, require_device

_PROGRAM = "fi_pingpong"
_PORT = 47592
_VERBS_DOMAINS = {"msg": "dp0", "rdm": "dp0", "dgram": "dp0-dgram"}
_VERBS = {"msg": "verbs", "rdm": "verbs;ofi_rxm", "dgram": "verbs"}
_KERNEL = {"msg": "tcp", "rdm": "tcp;ofi_rxm", "dgram": "udp"}


class LibfabricParams(WorkloadParams):
    """One fi_pingpong between client and server."""

    endpoint: Literal["msg", "rdm", "dgram"] = Field(
        "msg",
        description="Connected (RC or TCP), reliable datagrams that the provider ofi_rxm makes of "
        "such connections, as MPI uses them, or datagrams (UD or UDP), none of which may be lost.",
    )
    size: Bytes = Field(64, ge=1, le=2**26, description="Bytes of each message.")
    iterations: int = Field(1000, ge=1, le=10**8, description="Messages each way.")


class Libfabric:
    """Metrics: latency_mean (half round trips), and the goodput of one message at a time."""

    name: ClassVar[str] = "libfabric"
    Params: ClassVar[type[pydantic.BaseModel]] = LibfabricParams
    tools: ClassVar[tuple[Tool, ...]] = (Tool(_PROGRAM, version=()),)
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("dp", "kernel")
    samples: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, LibfabricParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        client, server = ctx.network.pairs[0]
        names = [host.name for host in ctx.network.hosts]
        devices = dict(zip(names, ctx.device_env, strict=True))
        over_verbs = ctx.transport.device == "dp"

        def words(host: Host) -> list[str]:
            return self.command(None if over_verbs else host.endpoint.netdev)

        with Programs(ctx, self.tools, self.params.pin, busy=True) as programs:
            listener = programs.start(
                server, "libfabric-server", words(server), devices[server.name]
            )
            programs.wait_listening(server, listener, _PORT)
            asks = [*words(client), server.endpoint.mgmt_ipv4]
            caller = programs.start(client, "libfabric-client", asks, devices[client.name])
            output = programs.finish(caller, server=listener)
        return self.outcome(output, self.provider(over_verbs))

    def provider(self, over_verbs: bool) -> str:
        return (_VERBS if over_verbs else _KERNEL)[self.params.endpoint]

    def command(self, netdev: str | None) -> list[str]:
        """The server's command line; netdev: over the kernel's sockets on it, None: our device."""
        p = self.params
        domain = _VERBS_DOMAINS[p.endpoint] if netdev is None else netdev
        words = [_PROGRAM, "-p", self.provider(netdev is None), "-e", p.endpoint, "-d", domain]
        return [*words, "-S", str(p.size), "-I", str(p.iterations), *p.extra]

    def outcome(self, output: str, provider: str = "tcp") -> Outcome:
        """From the table's only row; RunFailed when there is none."""
        rows = [line.split() for line in output.splitlines() if line.strip()]
        try:
            header, row = rows[-2:]
            mean_ns = float(dict(zip(header, row, strict=True))["usec/xfer"]) * 1e3
            goodput = 8 * self.params.size / mean_ns * 1e9
        except (KeyError, ValueError, ZeroDivisionError):
            raise RunFailed(
                "fi_pingpong printed no result", hint="see libfabric-client.err"
            ) from None
        metrics = [Metric("latency_mean", mean_ns, "ns"), Metric("goodput", goodput, "bit/s")]
        return Outcome(metrics, notes={"transport": f"libfabric over {provider}"})
