# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The same tables in a simulated network, whose hosts run no programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pydantic

from datapath.fabric.flows import FlowResults, Flows
from datapath.series import Request
from datapath.workloads.base import RunContext


class Simulated(Protocol):
    """What a simulation answers."""

    @property
    def flows(self) -> FlowResults: ...


@runtime_checkable
class SimulatedNetwork(Protocol):
    """A network that runs traffic tables itself.

    link_rate_bps: of a host's link.  base_rtt_ns: both ways of a small packet on an idle path,
    one value or an array of shape (hosts, hosts).
    """

    link_rate_bps: float
    base_rtt_ns: Any

    def simulate(
        self,
        flows: Flows,
        *,
        transport: pydantic.BaseModel,
        cc: pydantic.BaseModel,
        seed: int,
        until_ns: int | None,
        series: Request | None,
        logs: Path,
    ) -> Simulated: ...


def run(ctx: RunContext, flows: Flows, until_ns: int | None) -> tuple[FlowResults, Any]:
    """(results, table of series or None)."""
    assert isinstance(ctx.network, SimulatedNetwork)
    result = ctx.network.simulate(
        flows,
        transport=ctx.transport,
        cc=ctx.cc,
        seed=ctx.seed,
        until_ns=until_ns,
        series=ctx.series,
        logs=ctx.logs,
    )
    return result.flows, getattr(result, "frame", None)
