# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A collective among ranks on all hosts: live by libdpcoll, or its plan in the simulator."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.errors import LocalError
from datapath.lanes.base import Tool
from datapath.lanes.local import NetnsHost
from datapath.metric_kind import MetricKind
from datapath.units import BitRate, Bytes, DurationNs
from datapath.workloads import collective_times
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.job import run_job
from datapath.workloads.programs import WorkloadParams, refuse_own_port, require_device
from datapath.workloads.traffic.simulated import SimulatedNetwork

if TYPE_CHECKING:
    from datapath.collectives import Plan
    from datapath.collectives.choose import Chooser, Terms
    from datapath.collectives.plan import Array
    from datapath.collectives.simulate import Node, Simulated

AUTO = "auto"
"""The algorithm that is chosen by a measurement."""
Kind = Literal[
    "allreduce",
    "reduce_scatter",
    "allgather",
    "broadcast",
    "alltoall",
    "reduce",
    "gather",
    "scatter",
]
_PATIENCE_NS = 2e9
_ITEM_BYTES = {
    "int8": 1,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "uint8": 1,
}
_NS = 8e9
_PROVED_STEPS = 2**13
"""The longest plan that is proved before a run begins: it takes a fifth of a second."""


class CollectiveParams(WorkloadParams):
    """One collective after the other."""

    algorithm: str = Field(
        "ring",
        min_length=1,
        description="Algorithm of the collective (dpctl collective list), or one of your own: "
        "./file.py:function. auto: the one that a short measurement before the run finds fastest.",
    )
    collective: Kind | None = Field(
        None,
        description="With algorithm: auto, what an algorithm is chosen for; unset: allreduce.",
    )
    params: dict[str, int | float | str] = Field(
        default_factory=dict, description="Parameters of the algorithm."
    )
    size: Bytes = Field(
        2**20,
        ge=1,
        le=2**34,
        description="Data of each rank, bytes, as nccl-tests counts them; rounded up to what the "
        "ranks can divide.",
    )
    type: Literal[
        "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"
    ] = Field("float32", description="Type of the items.")
    op: Literal["sum", "product", "min", "max"] = Field(
        "sum", description="How items of several ranks become one."
    )
    ranks_per_host: int = Field(
        1, ge=1, le=64, description="Processes on each host; several need port udp, and 1 in sim."
    )
    channels: int = Field(
        1, ge=1, le=64, description="QPs between two ranks, which slices of the data take in turn."
    )
    transfer: Bytes = Field(
        2**18, ge=64, le=2**26, description="The largest transfer, bytes: larger data is sliced."
    )
    iterations: int = Field(5, ge=1, le=10**6, description="Collectives that are measured.")
    warm_up: int = Field(
        1, ge=0, le=10**6, description="Collectives before them, besides the one that is checked."
    )
    rdma_cm: bool = Field(
        False, description="Live lanes: connect by RDMA-CM, which siw always does."
    )
    silence: DurationNs = Field(
        2_500_000_000,
        ge=100_000_000,
        description="Live lanes: a peer without a sign of life for so long is gone.",
    )
    shares: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=list,
        description="The share of the data that each channel carries, for links of unequal speed; "
        "unset: equal ones.",
    )
    node: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Ranks that follow each other, so many, share the memory of a node, and send "
        "each other nothing over the network; live, in namespaces of one machine. 1: nobody "
        "shares. Unset: live the ranks of a host, in lane sim nobody.",
    )
    node_rate: BitRate = Field(
        400_000_000_000,
        gt=0,
        description="Lane sim: how fast a rank copies to another one of its node.",
    )
    sum_rate: BitRate = Field(
        40_000_000_000,
        gt=0,
        description="Lane sim: how fast a rank sums up what has arrived; it copies twice as fast.",
    )

    def code(self) -> Mapping[tuple[str | int, ...], str]:
        from datapath.collectives.loading import file_of

        file = file_of(self.algorithm)
        return {("algorithm",): file} if file else {}

    def check_code(self, folder: Path, hosts: int) -> None:
        from datapath.collectives import check, load
        from datapath.collectives.make import TooLong
        from datapath.collectives.trace import typed

        if self.algorithm == AUTO:
            return
        algorithm = load(self.algorithm, folder)
        if algorithm.ours:  # of which the function is known to be right
            typed(algorithm, self.params)
            return
        ranks, terms = hosts * self.ranks_per_host, self.terms(steps_max=_PROVED_STEPS)
        with contextlib.suppress(TooLong):
            check(terms.plan(algorithm, ranks, self.size))

    def terms(self, **more: Any) -> Terms:
        """Arguments that all plans of the workload share, whatever their algorithm and size."""
        from datapath.collectives.choose import Terms
        from datapath.collectives.make import Costs

        reduce_ns = _NS / float(self.sum_rate)
        shared = {
            "channels": self.channels,
            "transfer_bytes": self.transfer,
            "shares": self.shares,
            "params": self.params,
            "costs": Costs(copy_ns=reduce_ns / 2, reduce_ns=reduce_ns),
        }
        return Terms(_ITEM_BYTES[self.type], more={**shared, **more})

    @pydantic.model_validator(mode="after")
    def _has_a_share_for_each_channel(self) -> CollectiveParams:
        if self.shares and len(self.shares) != self.channels:
            raise ValueError(
                f"shares {self.shares}: there are {self.channels} channels, each with a share"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _has_an_algorithm_for_params(self) -> CollectiveParams:
        if self.algorithm == AUTO and self.params:
            raise ValueError("params are of one algorithm; name it in place of auto")
        if self.algorithm != AUTO and self.collective is not None:
            raise ValueError("collective is for algorithm: auto; another one has its collective")
        return self


class Collective:
    """Metrics: algbw, busbw, and latency_* of one collective by the slowest rank."""

    name: ClassVar[str] = "collective"
    Params: ClassVar[type[pydantic.BaseModel]] = CollectiveParams
    tools: ClassVar[tuple[Tool, ...]] = ()  # the program is a part of datapath
    simulated: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("dp", "rxe", "siw")
    samples: ClassVar[tuple[str, ...]] = ("latency",)
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ("ack_timeout", "retry_count")

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, CollectiveParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        from datapath.collectives import check

        require_device(ctx, self.name, self.devices)
        if self.params.algorithm != AUTO:
            return self.execute(ctx, check(self.plan(ctx, self.params.algorithm)))
        chooser = self.choose(ctx)
        best = chooser.best(self.params.size)
        outcome = self.execute(ctx, check(self.plan(ctx, best.algorithm)))
        outcome.notes["chosen"] = chooser.words(self.params.size)
        return outcome

    def execute(self, ctx: RunContext, plan: Plan) -> Outcome:
        """Run a checked plan, live or in virtual time."""
        if isinstance(ctx.network, SimulatedNetwork):
            return self.simulate(ctx, plan)
        p = self.params
        self._refuse_node(ctx, plan.ranks)
        if p.ranks_per_host > 1:
            refuse_own_port(ctx, "ranks_per_host: 1")
        words = ["--iterations", str(p.iterations), "--warm-up", str(p.warm_up)]
        words += ["--rdma-cm"] if p.rdma_cm else []
        words += ["--type", p.type, "--op", p.op, "--silence-ms", str(p.silence // 1_000_000)]
        times = run_job(ctx, plan, p.ranks_per_host, [*words, *p.extra], p.pin, p.node)
        return self.outcome(plan, times)

    def _refuse_node(self, ctx: RunContext, ranks: int) -> None:
        """LocalError for a node that these hosts cannot be."""
        node = self.params.node or 1
        if ranks % node:
            raise LocalError(f"workload.node: {ranks} ranks do not make nodes of {node}")
        if node > 1 and not all(isinstance(host, NetnsHost) for host in ctx.network.hosts):
            raise LocalError(
                "workload.node: live, only namespaces of one machine share memory",
                hint="use lane: netns, or ranks_per_host",
            )

    def plan(self, ctx: RunContext, algorithm: str) -> Plan:
        """Of as many ranks as the hosts have."""
        from datapath.collectives import load

        found = load(algorithm, ctx.folder)
        return self.params.terms().plan(found, self._ranks(ctx), self.params.size)

    def choose(self, ctx: RunContext, sizes: Sequence[int] = ()) -> Chooser:
        """Measure the algorithms of the collective on the network.

        sizes: unset: those that tell of the workload's own size.
        """
        from datapath.collectives import check
        from datapath.collectives.choose import around, measure

        live = not isinstance(ctx.network, SimulatedNetwork)
        often = {"iterations": 3 if live else 1, "warm_up": 1 if live else 0}
        trial = Collective(self.params.model_copy(update=often))
        quiet = replace(ctx, series=None)

        def time_of(plan: Plan) -> float:
            samples = trial.execute(quiet, check(plan)).samples
            return statistics.median(samples["latency_ns"])

        return measure(
            self.params.collective or "allreduce",
            self._ranks(ctx),
            time_of,
            sizes=sizes or around(self.params.size),
            terms=self.params.terms(),
            patience_ns=_PATIENCE_NS if live else math.inf,
        )

    def _ranks(self, ctx: RunContext) -> int:
        return len(ctx.network.hosts) * self.params.ranks_per_host

    def simulate(self, ctx: RunContext, plan: Plan) -> Outcome:
        """The same collectives in virtual time."""
        before = self.params.warm_up + 1
        scheduled, result = self._simulated(ctx, plan, before + self.params.iterations)
        ends = result.result.step_ns[scheduled.ends].astype(float)
        outcome = self.outcome(plan, ends[before - 1 :].T.tolist())
        outcome.metrics.append(Metric("timeouts", float(result.qps["timeouts"]), "1"))
        outcome.series = result.frame
        return outcome

    def transfers_ns(self, ctx: RunContext, plan: Plan) -> Array:
        """How long each SEND of the plan takes in virtual time, in a collective after others."""
        import numpy as np

        often = 3
        scheduled, result = self._simulated(ctx, plan, often)
        rows = result.flows.rows
        took = rows["finish_ns"].astype(float) - rows["posted_ns"]
        all_ns = plan.steps["bytes"] * self._node().byte_ns  # copies, but for what takes a link
        all_ns[scheduled.far] = took.reshape(often, -1)[1:].mean(axis=0)
        return np.asarray(all_ns[plan.sends])

    def _node(self) -> Node:
        from datapath.collectives.simulate import Node

        return Node(self.params.node or 1, _NS / float(self.params.node_rate))

    def _simulated(self, ctx: RunContext, plan: Plan, iterations: int) -> tuple[Simulated, Any]:
        """The plan in virtual time, so often, and the network's answer."""
        from datapath.collectives.simulate import schedule

        if self.params.ranks_per_host > 1 or self.params.extra:
            what = "extra" if self.params.extra else "ranks_per_host"
            raise LocalError(f"workload.{what} is for live lanes", hint="take it away")
        scheduled = schedule(plan, iterations=iterations, node=self._node())
        assert isinstance(ctx.network, SimulatedNetwork)
        return scheduled, ctx.network.simulate(
            scheduled.flows,
            steps=scheduled.steps,
            transport=ctx.transport,
            cc=ctx.cc,
            seed=ctx.seed,
            series=ctx.series,
            logs=ctx.logs,
            timeout_s=ctx.timeout_s,
        )

    def outcome(self, plan: Plan, times_ns: Sequence[Sequence[float]]) -> Outcome:
        """times_ns: of each rank, when the measured collectives began and when each had ended."""
        found = collective_times.outcome(
            plan.collective, plan.data_bytes, self.params.iterations, times_ns
        )
        found.notes["plan"] = f"{plan.algorithm}, {plan.ranks} ranks, {len(plan.steps)} steps"
        return found
