# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every host sends to one other and receives from one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pydantic
from pydantic import Field, model_validator

from datapath.units import Bytes, DurationNs
from datapath.workloads.base import RunContext
from datapath.workloads.traffic.base import MS_NS, S_NS, Traffic, TrafficParams

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows


class PermutationParams(TrafficParams):
    """Every host sends to one other and receives from one."""

    size: Bytes = Field(65536, ge=1, le=2**30, description="Bytes of each message.")
    depth: int = Field(16, ge=1, le=8192, description="Messages outstanding.")
    duration: DurationNs | None = Field(
        None, ge=MS_NS, description="How long each host sends (default 2s, unless bytes is given)."
    )
    bytes: Bytes | None = Field(
        None, ge=1, description="In place of duration: how much each host sends."
    )

    @model_validator(mode="after")
    def _one_end(self) -> PermutationParams:
        if self.duration is not None and self.bytes is not None:
            raise ValueError("give duration or bytes, not both")
        return self


class Permutation(Traffic):
    """Metrics: goodput, fairness, latency_*, utilisation, and fct_* of flows of given bytes."""

    name: ClassVar[str] = "permutation"
    Params: ClassVar[type[pydantic.BaseModel]] = PermutationParams
    samples: ClassVar[tuple[str, ...]] = ("latency", "fct")

    def measured(self) -> dict[str, bool]:
        assert isinstance(self.common, PermutationParams)
        return {"fair": True, "completion": self.common.bytes is not None}

    def table(self, ctx: RunContext) -> Flows:
        from datapath.workloads.traffic import schedules

        p = self.common
        assert isinstance(p, PermutationParams)
        return schedules.permutation(
            len(ctx.network.hosts),
            seed=ctx.table_seed,
            message_bytes=p.size,
            depth=p.depth,
            duration_ns=p.duration or 2 * S_NS,
            size=p.bytes or 0,
        )
