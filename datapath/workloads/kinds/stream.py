# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every pair keeps messages outstanding for a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pydantic
from pydantic import Field, model_validator

from datapath.cc.spec import HostCc
from datapath.errors import LocalError
from datapath.units import Bytes, DurationNs
from datapath.workloads.base import RunContext
from datapath.workloads.traffic.base import (
    MS_NS,
    S_NS,
    Traffic,
    TrafficParams,
    pair_indices,
    too_many,
)

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows


class Competing(pydantic.BaseModel):
    """Flows on the same path that have another algorithm with its default parameters."""

    model_config = pydantic.ConfigDict(extra="forbid")

    algo: str = Field(description="A registered algorithm (`dpctl cc list`).")
    pairs: int = Field(1, ge=1, description="So many of the pairs that send, the last ones.")

    @model_validator(mode="after")
    def _known(self) -> Competing:
        from datapath.cc import registry

        if self.algo not in registry():
            raise ValueError(f"no algorithm {self.algo!r}: there are {', '.join(registry())}")
        return self


class StreamParams(TrafficParams):
    """Every pair keeps messages outstanding for a time: a closed loop."""

    size: Bytes = Field(65536, ge=1, le=2**30, description="Bytes of each message.")
    depth: int = Field(16, ge=1, le=8192, description="Messages outstanding on each QP.")
    qps: int = Field(1, ge=1, le=1024, description="QPs (or TCP connections) of each pair.")
    duration: DurationNs = Field(2 * S_NS, ge=MS_NS, description="How long each pair sends.")
    pairs: int | None = Field(
        None, ge=1, description="So many of the network's pairs send; unset: all."
    )
    stagger: DurationNs = Field(
        0, description="Each pair begins so long after the one before it, and all end together."
    )
    competing: Competing | None = Field(
        None, description="The last pairs have another algorithm than that of `cc`."
    )

    def check_hosts(self, names: Sequence[str]) -> None:
        there_are = len(names) // 2
        pairs = there_are if self.pairs is None else self.pairs
        if pairs > there_are:
            raise ValueError(f"pairs is {pairs}, but {len(names)} hosts make {there_are}")
        if wrong := too_many(pairs * self.qps):
            raise ValueError(f"{wrong}: lower qps or pairs")


class Stream(Traffic):
    """Metrics: goodput, message_rate, latency_* of messages, fairness, utilisation.

    With competing flows also fair_share and competing_fair_share.
    """

    name: ClassVar[str] = "stream"
    Params: ClassVar[type[pydantic.BaseModel]] = StreamParams

    def __init__(self, params: pydantic.BaseModel) -> None:
        super().__init__(params)
        self._competing = range(0)

    def measured(self) -> dict[str, bool]:
        return {"fair": True}

    def table(self, ctx: RunContext) -> Flows:
        from datapath.workloads.traffic import schedules

        p = self.common
        assert isinstance(p, StreamParams)
        pairs = pair_indices(ctx)[: p.pairs]
        if p.stagger * (len(pairs) - 1) >= p.duration:
            raise LocalError(
                f"the last of {len(pairs)} pairs would begin when all have ended",
                hint="lower workload.stagger, or raise workload.duration",
            )
        if p.competing and p.competing.pairs >= len(pairs):
            raise LocalError(
                f"{p.competing.pairs} of {len(pairs)} pairs compete, and no other is left",
                hint="lower workload.competing.pairs, or raise topology.hosts",
            )
        flows = schedules.stream(
            pairs,
            message_bytes=p.size,
            depth=p.depth,
            duration_ns=p.duration,
            qps=p.qps,
            stagger_ns=p.stagger,
        )
        first = len(flows) - (p.competing.pairs * p.qps if p.competing else 0)
        self._competing = range(first, len(flows))
        flows["cc"][first:] = 1
        return flows

    def algorithms(self) -> list[HostCc]:
        p = self.common
        assert isinstance(p, StreamParams)
        return [] if p.competing is None else [HostCc(algo=p.competing.algo)]

    def competing(self) -> Sequence[int]:
        return self._competing
