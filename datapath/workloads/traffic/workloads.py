# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The workloads stream, flows, incast and permutation.

Each one makes a traffic table from its parameters and the run's seed; the generator runs it on a
live network, the simulator on a simulated one.  numpy is loaded when a run begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pydantic
from pydantic import Field, model_validator

from datapath.errors import LocalError
from datapath.units import BitRate, Bytes, DurationNs, Fraction
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.programs import WorkloadParams, require_device

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows
    from datapath.workloads.traffic.ideal import Ideal
    from datapath.workloads.traffic.sizes import Sizes

_DEVICES = ("dp", "rxe", "siw", "kernel")
_MS = 1_000_000
_S = 1_000_000_000
_SHARED = ("p2p", "dumbbell")
"""Presets in which all pairs share one link."""


class TrafficParams(WorkloadParams):
    """What all of them take."""

    operation: Literal["write", "send", "read"] = Field(
        "write", description="RC operation of each message; TCP has no read."
    )
    tcp_cc: str | None = Field(
        None,
        description="transport.device kernel: TCP congestion control of both ends' kernels "
        "(cubic, bbr, reno ...). Unset: the kernel's default.",
    )
    spin: DurationNs = Field(
        20_000,
        description="Live lanes: how long the generator polls without success before it sleeps.",
    )
    always_poll: bool = Field(False, description="Live lanes: the generator never sleeps.")
    drain: DurationNs = Field(
        10 * _S,
        description="Flows that have not ended this long after the last one began count as "
        "unfinished.",
    )
    verify: bool = Field(
        False,
        description="Live lanes: fill each message with a pattern and compare it on arrival. "
        "Costs time, so it is for tests of a transport, not for measurements.",
    )
    link_rate: BitRate | None = Field(
        None,
        gt=0,
        description="Rate that load, slowdown and utilisation refer to. Unset: that of the path "
        "or of the simulated host's link.",
    )
    base_rtt: DurationNs | None = Field(
        None,
        description="RTT of the idle path, for the slowdown. Unset: twice the path's delay, or "
        "what the simulated links add up to.",
    )
    gid_index: int | None = Field(
        None, ge=0, le=255, description="Index of the GID that names each end; unset: IPv4's."
    )


class Traffic:
    """What the four have in common; a subclass makes the table and says what is measured."""

    Params: ClassVar[type[pydantic.BaseModel]]
    programs: ClassVar[tuple[str, ...]] = ()  # the generator is a part of datapath
    devices: ClassVar[tuple[str, ...]] = _DEVICES
    name: ClassVar[str]

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, TrafficParams)
        self.common = params

    def table(self, ctx: RunContext) -> Flows:
        """The schedule, without the operation."""
        raise NotImplementedError

    def measured(self) -> dict[str, bool]:
        """Further arguments of measure.outcome()."""
        raise NotImplementedError

    def run(self, ctx: RunContext) -> Outcome:
        from datapath.fabric.flows import OPCODES
        from datapath.workloads.traffic import measure

        require_device(ctx, self.name, self.devices)
        p = self.common
        if p.operation == "read" and _device(ctx) == "kernel":
            raise LocalError("TCP has no read", hint="use operation: write")
        if p.tcp_cc and _device(ctx) != "kernel":
            raise LocalError("tcp_cc is for transport device kernel", hint="take it away")
        if hasattr(ctx.network, "simulate"):
            _check_simulated(ctx, p)
        flows = self.table(ctx)
        if not len(flows):
            raise LocalError(
                f"workload {self.name}: not one flow begins", hint="raise duration or load"
            )
        flows["opcode"] = OPCODES[p.operation]
        last = int(max(flows["start_ns"].max(), flows["stop_ns"].max()))
        results, series = _run(ctx, flows, p, last + p.drain)
        outcome = measure.outcome(
            flows,
            results,
            ideal=self.ideal(ctx),
            shared_link=_preset(ctx) in _SHARED,
            **self.measured(),
        )
        outcome.series = series
        return outcome

    # --- what is known of the path ---

    def rate_bps(self, ctx: RunContext) -> float | None:
        """Of the link that a host's traffic meets; None: not known."""
        known = self.common.link_rate or getattr(ctx.network, "link_rate_bps", None)
        known = known or getattr(ctx.path, "rate", None)
        return float(known) if isinstance(known, (int, float)) and known else None

    def ideal(self, ctx: RunContext) -> Ideal | None:
        """None when the rate is not known."""
        from datapath.workloads.traffic.ideal import Ideal, framing

        rate = self.rate_bps(ctx)
        rtt: Any = self.common.base_rtt
        if rtt is None:
            rtt = getattr(ctx.network, "base_rtt_ns", None)
        if rtt is None and getattr(ctx.path, "delay", None) is not None:
            rtt = 2 * getattr(ctx.path, "delay")  # noqa: B009  (a later version's key)
        if rate is None:
            return None
        mtu = ctx.network.hosts[0].endpoint.mtu
        return Ideal(rate, framing(ctx.transport, mtu, self.common.operation), rtt)

    def needed_rate_bps(self, ctx: RunContext) -> float:
        rate = self.rate_bps(ctx)
        if rate is None:
            raise LocalError(
                f"workload {self.name} has to know the rate of the link that load refers to",
                hint="give workload.link_rate, or path: {backend: fabric, rate: ...}",
            )
        return rate


def _device(ctx: RunContext) -> str:
    return str(getattr(ctx.transport, "device", "dp"))


def _check_simulated(ctx: RunContext, params: TrafficParams) -> None:
    """LocalError for what only programs on live hosts can do."""
    if _device(ctx) != "dp":
        raise LocalError(
            f"lane sim has no device {_device(ctx)}", hint="use transport: {device: dp}"
        )
    if params.verify or params.extra:
        what = "verify" if params.verify else "extra"
        raise LocalError(
            f"workload.{what} is for live lanes",
            hint="a simulated packet has a length and no content, and no program takes arguments",
        )


def _preset(ctx: RunContext) -> str:
    """Of the topology; a network that does not say has hosts with links of their own."""
    return str(getattr(getattr(ctx.network, "topology", None), "preset", ""))


def _run(ctx: RunContext, flows: Flows, params: TrafficParams, deadline_ns: int) -> Any:
    """(results, series or None) from the simulator or the generator."""
    from datapath.workloads.traffic import live, simulated

    if isinstance(ctx.network, simulated.SimulatedNetwork):
        return simulated.run(ctx, flows, deadline_ns)
    options = live.Options(
        spin_ns=None if params.always_poll else params.spin,
        deadline_ns=deadline_ns,
        verify=params.verify,
        tcp_cc=params.tcp_cc,
        gid_index=params.gid_index,
        pin=params.pin,
        extra=params.extra,
    )
    return live.run(ctx, flows, options), None


def _indices(ctx: RunContext) -> list[tuple[int, int]]:
    """The network's pairs as host indices."""
    names = [host.name for host in ctx.network.hosts]
    return [(names.index(a.name), names.index(b.name)) for a, b in ctx.network.pairs]


# --- stream ----------------------------------------------------------------------------------


class StreamParams(TrafficParams):
    """Every pair keeps messages outstanding for a time: a closed loop."""

    size: Bytes = Field(65536, ge=1, le=2**30, description="Bytes of each message.")
    depth: int = Field(16, ge=1, le=8192, description="Messages outstanding on each QP.")
    qps: int = Field(1, ge=1, le=1024, description="QPs (or TCP connections) of each pair.")
    duration: DurationNs = Field(2 * _S, ge=_MS, description="How long each pair sends.")
    pairs: int | None = Field(
        None, ge=1, description="So many of the network's pairs send; unset: all."
    )


class Stream(Traffic):
    """Metrics: goodput, message_rate, latency_* of messages, fairness, utilisation."""

    name: ClassVar[str] = "stream"
    Params: ClassVar[type[pydantic.BaseModel]] = StreamParams

    def measured(self) -> dict[str, bool]:
        return {"fair": True}

    def table(self, ctx: RunContext) -> Flows:
        from datapath.workloads.traffic import schedules

        p = self.common
        assert isinstance(p, StreamParams)
        return schedules.stream(
            _indices(ctx)[: p.pairs],
            message_bytes=p.size,
            depth=p.depth,
            duration_ns=p.duration,
            qps=p.qps,
        )


# --- flows -----------------------------------------------------------------------------------


class FlowsParams(TrafficParams):
    """Flows of drawn sizes begin at drawn times: an open loop."""

    sizes: str = Field(
        "websearch",
        min_length=1,
        description="Distribution of flow sizes: websearch, fb_hadoop, alistorage2019, or a file "
        "of your own (with a / in its name) with two columns: bytes, and the percentage of flows "
        "that are not larger.",
    )
    load: Fraction = Field(
        0.5, gt=0, description="Payload that each source offers, as a share of its link's rate."
    )
    duration: DurationNs = Field(_S, ge=_MS, description="How long flows begin.")
    between: Literal["any", "pairs"] = Field(
        "any",
        description="any: each host sends to all others, chosen evenly for each flow. pairs: the "
        "client of each pair to its server.",
    )
    qps: int = Field(
        8, ge=1, le=1024, description="QPs of each pair, which its flows take in turn."
    )

    @model_validator(mode="after")
    def _known_sizes(self) -> FlowsParams:
        from datapath.workloads.traffic.sizes import PUBLISHED

        if self.sizes not in PUBLISHED and self.file is None:
            raise ValueError(
                f"no distribution {self.sizes!r}: there are {', '.join(PUBLISHED)}; a file of "
                "your own is written with a slash, ./my.cdf"
            )
        return self

    @property
    def file(self) -> str | None:
        """The file of a distribution of the user's own, as written."""
        return self.sizes if "/" in self.sizes else None

    def distribution(self, folder: Path) -> Sizes:
        """folder: where a relative file name begins."""
        from datapath.workloads.traffic import sizes

        if self.file is None:
            return sizes.published(self.sizes)
        return sizes.read(folder / self.file)


class PoissonFlows(Traffic):
    """Metrics: fct_*, slowdown_* overall and by size, goodput, latency_*, utilisation."""

    name: ClassVar[str] = "flows"
    Params: ClassVar[type[pydantic.BaseModel]] = FlowsParams

    def measured(self) -> dict[str, bool]:
        return {"completion": True}

    def table(self, ctx: RunContext) -> Flows:
        from datapath.workloads.traffic import schedules

        p = self.common
        assert isinstance(p, FlowsParams)
        hosts = len(ctx.network.hosts)
        if p.between == "any":
            destinations = [[d for d in range(hosts) if d != s] for s in range(hosts)]
        else:
            pairs = dict(_indices(ctx))
            destinations = [[pairs[s]] if s in pairs else [] for s in range(hosts)]
        return schedules.poisson(
            p.distribution(ctx.folder),
            hosts=hosts,
            load=p.load,
            rate_bps=self.needed_rate_bps(ctx),
            duration_ns=p.duration,
            seed=ctx.table_seed,
            qps=p.qps,
            destinations=destinations,
        )


# --- incast ----------------------------------------------------------------------------------


class IncastParams(TrafficParams):
    """All others send to one host at once, in rounds."""

    senders: int | None = Field(
        None, ge=1, description="How many hosts send; unset: all but the receiver."
    )
    size: Bytes = Field(65536, ge=1, le=2**30, description="Bytes that each sends in a round.")
    rounds: int = Field(10, ge=1, le=100_000, description="How often.")
    interval: DurationNs = Field(
        10 * _MS, description="From the start of one round to that of the next."
    )


class Incast(Traffic):
    """Metrics: fct_*, slowdown_*, round_* (the last flow of a round), fairness, utilisation."""

    name: ClassVar[str] = "incast"
    Params: ClassVar[type[pydantic.BaseModel]] = IncastParams

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


# --- permutation -----------------------------------------------------------------------------


class PermutationParams(TrafficParams):
    """Every host sends to one other and receives from one."""

    size: Bytes = Field(65536, ge=1, le=2**30, description="Bytes of each message.")
    depth: int = Field(16, ge=1, le=8192, description="Messages outstanding.")
    duration: DurationNs | None = Field(
        None, ge=_MS, description="How long each host sends (default 2s, unless bytes is given)."
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
            duration_ns=p.duration or 2 * _S,
            size=p.bytes or 0,
        )
