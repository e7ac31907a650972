# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flows of drawn sizes begin at drawn times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from datapath.units import Bytes, DurationNs, Fraction
from datapath.workloads.base import RunContext
from datapath.workloads.traffic.base import MS_NS, S_NS, Traffic, TrafficParams, pair_indices
from datapath.workloads.traffic.sizes import SizesName

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows


class SmallFlows(BaseModel):
    """The flows of a few bytes, which have packets of another DSCP."""

    model_config = ConfigDict(extra="forbid")

    bytes: Bytes = Field(10_000, ge=1, description="Flows of at most so much are small.")
    dscp: int = Field(
        46, ge=1, le=63, description="DSCP of their packets: path.classes says what it means."
    )


class FlowsParams(TrafficParams):
    """Flows of drawn sizes begin at drawn times: an open loop."""

    sizes: SizesName = Field(
        "websearch",
        description="Distribution of flow sizes: websearch, fb_hadoop, alistorage2019, or a file "
        "of your own (with a / in its name) with two columns: bytes, and the percentage of flows "
        "that are not larger. Or one size for all flows: 64KiB.",
    )
    load: Fraction = Field(
        0.5, gt=0, description="Payload that each source offers, as a share of its link's rate."
    )
    duration: DurationNs = Field(S_NS, ge=MS_NS, description="How long flows begin.")
    between: Literal["any", "pairs"] = Field(
        "any",
        description="any: each host sends to all others, chosen evenly for each flow. pairs: the "
        "client of each pair to its server.",
    )
    qps: int = Field(
        8, ge=1, le=1024, description="QPs of each pair, which its flows take in turn."
    )

    small: SmallFlows | None = Field(
        None,
        description="Small flows have QPs of their own, as many as the others, and another DSCP. "
        "Unset: all flows share QPs and DSCP 0.",
    )

    @property
    def has_load(self) -> bool:
        return True

    def data(self) -> Mapping[tuple[str | int, ...], str]:
        return {("sizes",): self.sizes} if "/" in self.sizes else {}

    def mistakes(
        self, folder: Path, hosts: Sequence[str]
    ) -> Mapping[tuple[str | int, ...], Sequence[str]]:
        from datapath.workloads.traffic import sizes

        return {place: sizes.mistakes(folder / name) for place, name in self.data().items()}


class PoissonFlows(Traffic):
    """Metrics: fct_*, slowdown_* overall and by size, goodput, latency_*, utilisation."""

    name: ClassVar[str] = "flows"
    Params: ClassVar[type[pydantic.BaseModel]] = FlowsParams
    samples: ClassVar[tuple[str, ...]] = ("latency", "fct")

    def measured(self) -> dict[str, bool]:
        return {"completion": True}

    def table(self, ctx: RunContext) -> Flows:
        import numpy as np

        from datapath.workloads.traffic import schedules, sizes

        p = self.common
        assert isinstance(p, FlowsParams)
        hosts = len(ctx.network.hosts)
        servers = dict(pair_indices(ctx)) if p.between == "pairs" else None
        every = np.arange(hosts)

        def destinations(host: int) -> Any:
            if servers is None:
                return np.delete(every, host)
            return [servers[host]] if host in servers else []

        flows = schedules.poisson(
            sizes.named(p.sizes, ctx.folder),
            hosts=hosts,
            load=p.load,
            rates_bps=self.needed_rates_bps(ctx),
            duration_ns=p.duration,
            seed=ctx.table_seed,
            qps=p.qps,
            destinations=destinations,
        )
        if p.small is not None:
            small = flows["bytes"] <= p.small.bytes
            flows["qp"][small] += flows["qp"].dtype.type(p.qps)
            flows["dscp"][small] = p.small.dscp
        return flows
