# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The code that the workloads stream, flows, incast, permutation, traffic and table share.

Each one makes a traffic table from its parameters and the run's seed; the generator runs it on a
live network, the simulator on a simulated one.  numpy is loaded when a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.cc import bpf
from datapath.cc.spec import STAND_INS, HostCc
from datapath.errors import LocalError
from datapath.lanes.base import Tool
from datapath.lanes.event_spec import Event
from datapath.lanes.happening import Watch, untold
from datapath.metric_kind import MetricKind
from datapath.units import BitRate, DurationNs
from datapath.verbs.spec import QP_ATTRIBUTES
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.programs import WorkloadParams, require_device

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows
    from datapath.lanes.spec import Path as PathSection
    from datapath.lanes.spec import Topology
    from datapath.workloads.traffic.busiest import BusiestLink
    from datapath.workloads.traffic.ideal import Framing, Ideal
    from datapath.workloads.traffic.orders import Plan

_DEVICES = ("dp", "rxe", "siw", "kernel")
MS_NS = 1_000_000
S_NS = 1_000_000_000
FLOWS_MAX = 10_000_000
"""Rows of a table, at most."""


def too_many(flows: float) -> str:
    """What is wrong with a table of so many flows; "": nothing."""
    if flows <= FLOWS_MAX:
        return ""
    return f"{flows:.3g} flows would be generated; the most is {FLOWS_MAX}"


class TrafficParams(WorkloadParams):
    """The parameters of them all."""

    operation: Literal["write", "send", "read"] = Field(
        "write", description="RC operation of each message; TCP has no read."
    )
    spin: DurationNs = Field(
        20_000,
        description="How long the generator polls without success before it sleeps; in lane sim "
        "with topology.wakeup.",
    )
    always_poll: bool = Field(
        False,
        description="The generator never sleeps; in lane sim topology.wakeup is then without "
        "effect.",
    )
    drain: DurationNs = Field(
        10 * S_NS,
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
        description="Rate that load, slowdown and utilisation refer to. Unset: those of the links "
        "of the network, or of the path.",
    )
    base_rtt: DurationNs | None = Field(
        None,
        description="RTT of the idle path, for the slowdown. Unset: twice the path's delay, or "
        "what the links of the network add up to.",
    )
    gid_index: int | None = Field(
        None, ge=0, le=255, description="Index of the GID that names each end; unset: IPv4's."
    )

    @property
    def has_load(self) -> bool:
        """Whether it offers a share of the link's rate."""
        return False

    def check_network(self, topology: Topology, path: PathSection) -> None:
        """ValueError for a load when nothing tells the rate of the link."""
        known = self.link_rate or path.rate or topology.has_links or topology.of_lane.simulated
        if self.has_load and not known:
            raise ValueError(f"load: a share of which rate? {_rate_hint(topology)}")

    def check_events(self, events: Sequence[Event]) -> None:
        """ValueError for an event about groups of flows that there are not."""
        for event in events:
            if event.about_flows:
                raise ValueError(f"there are no groups of flows: `{event.text}` needs `traffic`")
            if event.when is not None and event.when.groups:
                name = event.when.groups[0]
                raise ValueError(f"there is no group of flows {name!r}: that needs `traffic`")


class Traffic:
    """The code of them all; a subclass makes the table and chooses the metrics."""

    Params: ClassVar[type[pydantic.BaseModel]]
    tools: ClassVar[tuple[Tool, ...]] = ()  # the generator is a part of datapath
    simulated: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = _DEVICES
    samples: ClassVar[tuple[str, ...]] = ("latency",)
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = QP_ATTRIBUTES
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

    def algorithms(self) -> Sequence[HostCc]:
        """Those that rows of the table name in their column `cc`, from 1."""
        return ()

    def competing(self) -> Sequence[int]:
        """Rows of the table that compete with those that are judged, once it is made."""
        return ()

    def groups(self) -> Mapping[str, Sequence[int]]:
        """Rows of the table of each group of flows, once it is made."""
        return {}

    def plan(self) -> Plan | None:
        """Of flows that events decide about while the run goes on, once the table is made."""
        return None

    def run(self, ctx: RunContext) -> Outcome:
        from datapath.fabric.flows import OPCODES
        from datapath.workloads.traffic import measure, simulated

        require_device(ctx, self.name, self.devices)
        p = self.common
        if p.operation == "read" and _device(ctx) == "kernel":
            raise LocalError("TCP has no read", hint="use operation: write")
        if isinstance(ctx.network, simulated.SimulatedNetwork):
            _check_simulated(ctx, p)
        flows = self.table(ctx)
        if not len(flows):
            raise LocalError(
                f"workload {self.name}: not one flow begins", hint="raise duration or load"
            )
        flows["opcode"] = OPCODES[p.operation]
        last = int(max(flows["start_ns"].max(), flows["stop_ns"].max()))
        plan = self.plan()
        if plan is not None:
            last = max(last, plan.end_ns)
        self._refuse_changes(ctx, flows)
        watch = Watch(ctx.events, flows, self.groups(), plan)
        deadline_ns = last + p.drain
        results, series, metrics, zero_ns, end_ns, carried = _run(
            ctx, flows, self.algorithms(), p, deadline_ns, watch
        )
        competing = self.competing()
        if plan is not None:
            flows, competing = plan.settled(results, watch.orders, competing)
        outcome = measure.outcome(
            flows,
            results,
            deadline_ns=deadline_ns,
            ideal=self.ideal(ctx),
            busiest=self.busiest_link(ctx, carried),
            competing=competing,
            **self.measured(),
        )
        outcome.metrics += metrics
        outcome.series, outcome.zero_ns = series, zero_ns
        outcome.events = watch.happened(end_ns)
        if missed := untold(watch.missed(end_ns)):
            outcome.notes["events"] = f"did not happen: {missed}"
        if isinstance(ctx.network, simulated.SimulatedNetwork) and (names := self._tcp_names()):
            stand = ", ".join(f"{name} is {STAND_INS[name]}" for name in names)
            outcome.notes["tcp"] = f"no TCP in lane sim: flows of our engine stand for it ({stand})"
        return outcome

    def _tcp_names(self) -> list[str]:
        return sorted({cc.tcp for cc in self.algorithms() if cc.tcp is not None})

    def _refuse_changes(self, ctx: RunContext, flows: Flows) -> None:
        """LocalError for an event that would take a group from TCP to RDMA, or back."""
        own = _device(ctx) == "kernel"
        over_tcp = [own, *(own or cc.tcp is not None for cc in self.algorithms())]
        for event in ctx.events:
            for name, rows in self.groups().items():
                if event.cc is None or name not in (event.flows or [name]):
                    continue
                after = own or event.cc.tcp is not None
                if {over_tcp[cc] for cc in flows["cc"][list(rows)]} != {after}:
                    raise LocalError(
                        f"event {event.text!r} would change the flows {name} from TCP to another "
                        "transport, or back",
                        hint="an event gives groups with cc: {tcp: NAME} another NAME only",
                    )

    # --- facts of the path ---

    def rates_bps(self, ctx: RunContext) -> list[float]:
        """Of the link that each host's traffic meets; 0: not known."""
        hosts = len(ctx.network.hosts)
        if self.common.link_rate:
            return [float(self.common.link_rate)] * hosts
        of_path = float(ctx.path.rate or 0)
        return [rate or of_path for rate in ctx.network.link_rates_bps or [0.0] * hosts]

    def ideal(self, ctx: RunContext) -> Ideal | None:
        """None when no rate is known."""
        from datapath.fabric.ways import Ways
        from datapath.workloads.traffic.ideal import Ideal

        p, graph, framing = self.common, ctx.network.graph, self._framing(ctx)
        if graph is not None:
            rate = float(p.link_rate) if p.link_rate else None
            return Ideal(framing, rate, p.base_rtt, Ways(graph), self._reads)
        rate = self.rates_bps(ctx)[0]
        rtt_ns = p.base_rtt
        if rtt_ns is None and ctx.path.delay is not None:
            rtt_ns = 2 * ctx.path.delay
        return Ideal(framing, rate, rtt_ns) if rate else None

    def busiest_link(self, ctx: RunContext, carried: Any) -> BusiestLink:
        """The links of the run.  carried: bytes of each of them, None: not known."""
        from datapath.fabric.links import Link
        from datapath.fabric.topology import Dumbbell
        from datapath.workloads.traffic.busiest import BusiestLink

        rate, graph = self.common.link_rate, ctx.network.graph
        if graph is None:
            free, shared = Link(rate_bps=0), Link(rate_bps=int(self.rates_bps(ctx)[0]))
            graph, rate = Dumbbell(len(ctx.network.hosts) // 2, free, shared).graph(), None
        return BusiestLink(graph, self._framing(ctx), rate, self._reads, carried)

    @property
    def _reads(self) -> bool:
        return self.common.operation == "read"

    def _framing(self, ctx: RunContext) -> Framing:
        from datapath.workloads.traffic.ideal import framing

        mtu = ctx.network.hosts[0].endpoint.mtu
        return framing(ctx.transport, mtu, self.common.operation)

    def needed_rates_bps(self, ctx: RunContext) -> list[float]:
        rates = self.rates_bps(ctx)
        if not all(rates):
            raise LocalError(
                f"workload {self.name} has to know the rate of the link that load refers to",
                hint=_rate_hint(ctx.network.topology),
            )
        return rates


def _rate_hint(topology: Topology) -> str:
    """How an experiment tells the rate that load refers to: only some lanes emulate a path."""
    lane = topology.of_lane
    if lane.local or lane.simulated:
        return "give workload.link_rate, or path.rate"
    return "give workload.link_rate, the rate of the machines' links"


def _device(ctx: RunContext) -> str:
    return ctx.transport.device


def _check_simulated(ctx: RunContext, params: TrafficParams) -> None:
    """LocalError for settings that only live hosts support."""
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


def _run(
    ctx: RunContext,
    flows: Flows,
    algorithms: Sequence[HostCc],
    params: TrafficParams,
    deadline_ns: int,
    watch: Watch,
) -> Any:
    """What simulated.run() answers; the end is on the clock of the events."""
    from datapath.workloads.traffic import live, simulated

    spin_ns = None if params.always_poll else params.spin
    if isinstance(ctx.network, simulated.SimulatedNetwork):
        return simulated.run(ctx, flows, deadline_ns, algorithms, spin_ns, watch)
    options = live.Options(
        spin_ns=spin_ns,
        deadline_ns=deadline_ns,
        verify=params.verify,
        tcp_cc=_own_tcp(ctx),
        algorithms=[_live_algorithm(ctx, cc) for cc in algorithms],
        gid_index=params.gid_index,
        qp_attributes=ctx.transport.qp_attributes(),
        pin=params.pin,
        extra=params.extra,
    )
    measured = live.run(ctx, flows, options, watch)
    return measured.flows, None, [], measured.zero_ns, measured.end_ns, None


def _live_algorithm(ctx: RunContext, cc: HostCc) -> str | Path:
    """The generator's argument: a compiled algorithm, or a name that the kernel knows."""
    device = _device(ctx)
    over_tcp = device == "kernel" or (device == "dp" and ctx.network.local)
    if over_tcp and cc.tcp is not None and bpf.source_of(cc.tcp, ctx.folder) is None:
        return cc.tcp
    if device == "dp" and cc.tcp is None:
        from datapath.cc import compile_algorithm

        return compile_algorithm(cc.located(ctx.folder), cc.params).path
    raise LocalError(
        f"flows on device {device} cannot have {cc.tcp or cc.algo} for themselves",
        hint="device dp takes {algo: NAME}; device kernel, and dp in lane netns, take {tcp: NAME}, "
        "which the kernel knows",
    )


def _own_tcp(ctx: RunContext) -> str | None:
    """The TCP algorithm of the generator's own sockets, one that kernels have by themselves."""
    name = ctx.cc.tcp
    known = name is not None and bpf.source_of(name, ctx.folder) is None
    return name if known and _device(ctx) == "kernel" else None


def pair_indices(ctx: RunContext) -> list[tuple[int, int]]:
    """The network's pairs as host indices."""
    number = {host.name: index for index, host in enumerate(ctx.network.hosts)}
    return [(number[a.name], number[b.name]) for a, b in ctx.network.pairs]
