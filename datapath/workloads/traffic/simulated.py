# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The same tables in a simulated network, whose hosts run no programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pydantic

from datapath.fabric.flows import FlowResults, Flows
from datapath.lanes.event_spec import Event
from datapath.series import Request
from datapath.workloads.base import Metric, RunContext


class Simulated(Protocol):
    """The answer of a simulation.

    qps: counters summed over all QPs.
    """

    @property
    def flows(self) -> FlowResults: ...
    @property
    def qps(self) -> Mapping[str, int]: ...


@runtime_checkable
class SimulatedNetwork(Protocol):
    """A network that runs traffic tables itself.

    link_rate_bps: of a host's link.  base_rtt_ns: both ways of a small packet on an idle path,
    one value or an array of shape (hosts, hosts).  algorithms: those that rows name in their
    column `cc`, from 1.  events: of links and the path.  spin_ns: how long programs poll after a
    completion before they sleep; None: they never do.
    """

    link_rate_bps: float
    base_rtt_ns: Any

    def simulate(
        self,
        flows: Flows,
        *,
        transport: pydantic.BaseModel,
        cc: pydantic.BaseModel,
        algorithms: Sequence[pydantic.BaseModel],
        events: Sequence[Event],
        seed: int,
        until_ns: int | None,
        series: Request | None,
        logs: Path,
        spin_ns: int | None,
        timeout_s: float | None,
    ) -> Simulated: ...


def run(
    ctx: RunContext,
    flows: Flows,
    until_ns: int | None,
    algorithms: Sequence[pydantic.BaseModel],
    spin_ns: int | None,
) -> tuple[FlowResults, Any, list[Metric], int]:
    """(results, table of series or None, metrics of the transport, the schedule's zero)."""
    assert isinstance(ctx.network, SimulatedNetwork)
    result = ctx.network.simulate(
        flows,
        transport=ctx.transport,
        cc=ctx.cc,
        algorithms=algorithms,
        events=ctx.events,
        seed=ctx.seed,
        until_ns=until_ns,
        series=ctx.series,
        logs=ctx.logs,
        spin_ns=spin_ns,
        timeout_s=ctx.timeout_s,
    )
    sent = max(result.qps["tx_packets"], 1)
    metrics = [
        Metric("timeouts", float(result.qps["timeouts"]), "1"),
        Metric("spurious_share", result.qps["spurious"] / sent, "1"),
    ]
    return result.flows, getattr(result, "frame", None), metrics, 0
