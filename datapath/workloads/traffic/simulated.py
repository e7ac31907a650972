# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The same tables in a simulated network, whose hosts run no programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from datapath.cc.spec import Cc
from datapath.fabric import flows as table
from datapath.fabric.flows import FlowResults, Flows
from datapath.fabric.steps import Steps
from datapath.lanes.happening import Watch
from datapath.series import Request
from datapath.verbs.spec import Transport
from datapath.workloads.base import Metric, RunContext

if TYPE_CHECKING:
    import pandas as pd

_KEPT_MOST = 20_000
"""Flows of a run whose results are kept one by one: they take 104 bytes each."""


class Simulated(Protocol):
    """The answer of a simulation.

    frame: the table of datapath.series, if one was asked for.  qps: counters summed over all QPs.
    end_ns: of the simulated time.  link_bytes: that each link of the network carried.
    """

    @property
    def flows(self) -> FlowResults: ...
    @property
    def frame(self) -> pd.DataFrame | None: ...
    @property
    def qps(self) -> Mapping[str, int]: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def link_bytes(self) -> Any: ...


@runtime_checkable
class SimulatedNetwork(Protocol):
    """A network that runs traffic tables itself.

    algorithms: those that rows name in their column `cc`, from 1.  watch: the events; those of
    links, the path and hosts are made.
    steps: work of hosts that begins flows and waits for them.  spin_ns: how long programs poll
    after a completion before they sleep; None: they never do.
    """

    def simulate(
        self,
        flows: Flows,
        *,
        transport: Transport,
        cc: Cc,
        algorithms: Sequence[Cc] = (),
        watch: Watch | None = None,
        steps: Steps | None = None,
        seed: int,
        until_ns: int | None = None,
        series: Request | None,
        logs: Path,
        spin_ns: int | None = 0,
        timeout_s: float | None,
    ) -> Simulated: ...


def run(
    ctx: RunContext,
    flows: Flows,
    until_ns: int | None,
    algorithms: Sequence[Cc],
    spin_ns: int | None,
    watch: Watch,
) -> tuple[FlowResults, pd.DataFrame | None, list[Metric], int, int, Any]:
    """(results, series or None, metrics of the transport, zero, end, bytes of each link).

    The zero is that of Outcome.zero_ns.
    """
    assert isinstance(ctx.network, SimulatedNetwork)
    result = ctx.network.simulate(
        flows,
        transport=ctx.transport,
        cc=ctx.cc,
        algorithms=algorithms,
        watch=watch,
        seed=ctx.seed,
        until_ns=until_ns,
        series=ctx.series,
        logs=ctx.logs,
        spin_ns=spin_ns,
        timeout_s=ctx.timeout_s,
    )
    _keep(ctx, flows, result.flows)
    sent = max(result.qps["tx_packets"], 1)
    metrics = [
        Metric("timeouts", float(result.qps["timeouts"]), "1"),
        Metric("spurious_share", result.qps["spurious"] / sent, "1"),
    ]
    return result.flows, result.frame, metrics, 0, result.end_ns, result.link_bytes


def _keep(ctx: RunContext, flows: Flows, results: FlowResults) -> None:
    """Table and results in the logs, as a live run has them, but one report of all hosts."""
    if len(flows) <= _KEPT_MOST:
        hosts = len(ctx.network.hosts)
        table.write(ctx.logs / "traffic.table", flows, hosts, seed=ctx.table_seed)
        results.write(ctx.logs / "traffic-hosts.report")
