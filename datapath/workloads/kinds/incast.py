# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All others send to one host at once, in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pydantic
from pydantic import Field

from datapath.errors import LocalError
from datapath.units import Bytes, DurationNs
from datapath.workloads.base import RunContext
from datapath.workloads.traffic.base import MS_NS, Traffic, TrafficParams, too_many

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows


class IncastParams(TrafficParams):
    """All others send to one host at once, in rounds."""

    senders: int | None = Field(
        None, ge=1, description="How many hosts send; unset: all but the receiver."
    )
    size: Bytes = Field(65536, ge=1, le=2**30, description="Bytes that each sends in a round.")
    rounds: int = Field(10, ge=1, le=100_000, description="How often.")
    interval: DurationNs = Field(
        10 * MS_NS, description="From the start of one round to that of the next."
    )

    def check_hosts(self, names: Sequence[str]) -> None:
        if wrong := too_many((self.senders or len(names) - 1) * self.rounds):
            raise ValueError(f"{wrong}: lower rounds or senders")


class Incast(Traffic):
    """Metrics: fct_*, slowdown_*, round_* (the last flow of a round), fairness, utilisation."""

    name: ClassVar[str] = "incast"
    Params: ClassVar[type[pydantic.BaseModel]] = IncastParams
    samples: ClassVar[tuple[str, ...]] = ("latency", "fct")

    def measured(self) -> dict[str, bool]:
        return {"completion": True, "rounds": True, "fair": True}

    def table(self, ctx: RunContext) -> Flows:
        from datapath.workloads.traffic import schedules

        p = self.common
        assert isinstance(p, IncastParams)
        receiver = len(ctx.network.hosts) - 1
        senders = p.senders or receiver
        if senders > receiver:
            raise LocalError(
                f"incast of {senders} senders needs {senders + 1} hosts, there are {receiver + 1}",
                hint="raise topology.hosts or lower workload.senders",
            )
        return schedules.incast(
            range(senders), receiver, size=p.size, rounds=p.rounds, interval_ns=p.interval
        )
