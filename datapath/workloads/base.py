# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a workload is: parameters, needs, and one measured run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import pydantic

from datapath.cc.spec import HostCc
from datapath.lanes.base import Network, Tool
from datapath.lanes.event_spec import Event
from datapath.lanes.spec import Path as PathSection
from datapath.metric_kind import MetricKind
from datapath.series import Request
from datapath.verbs.spec import Transport

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Metric:
    """One number of one run, e.g. Metric("goodput", 9.1e9, "bit/s")."""

    name: str
    value: float
    unit: str


@dataclass
class Outcome:
    """The result of one run: metrics, and optionally samples and series.

    samples: name -> values of one kind ("latency_ns"), for histograms.
    notes: short facts worth showing ("mode: copy"), name -> text.
    series: of a simulated network, the table of datapath.series; live hosts leave theirs in
    files that the runner reads.
    zero_ns: from when events count, on the clock of the series (CLOCK_REALTIME; 0 of a simulated
    network); None: not known.
    events: those that happened, with their times.
    """

    metrics: list[Metric] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    series: pd.DataFrame | None = None
    zero_ns: int | None = None
    events: Sequence[Event] = ()


@dataclass(frozen=True)
class RunContext:
    """Everything a workload may use.

    transport, cc, path: the resolved sections of the experiment.
    device_env: environment for programs that use the verbs device under test,
    one mapping for each host, in the order of network.hosts.
    logs: folder of this run's logs.
    series: what a simulated network shall sample, None: nothing.
    folder: where relative file names of the experiment begin.
    events: what changes meanwhile; times are those of the traffic table.
    traffic_seed: of random traffic, equal for all points of a block; None: seed.
    """

    network: Network
    transport: Transport
    cc: HostCc
    device_env: list[Mapping[str, str]]
    logs: Path
    seed: int
    timeout_s: float
    series: Request | None = None
    path: PathSection = field(default_factory=PathSection)
    folder: Path = field(default_factory=Path)
    traffic_seed: int | None = None
    events: Sequence[Event] = ()

    @property
    def table_seed(self) -> int:
        """Of a traffic table: points of a block that differ in nothing else have the same one."""
        return self.seed if self.traffic_seed is None else self.traffic_seed


class Workload(Protocol):
    """A class in a file of datapath/workloads/kinds/."""

    name: ClassVar[str]
    Params: ClassVar[type[pydantic.BaseModel]]
    tools: ClassVar[tuple[Tool, ...]]  # programs it needs, looked for beforehand
    simulated: ClassVar[bool]  # whether it runs in lane sim
    devices: ClassVar[tuple[str, ...]]  # values of transport.device it can use
    metrics: ClassVar[tuple[MetricKind, ...]]  # those that no other workload has
    samples: ClassVar[tuple[str, ...]]  # kinds of single samples that its runs may leave
    qp_attributes: ClassVar[tuple[str, ...]]  # of verbs.spec.QP_ATTRIBUTES, those it can set

    def __init__(self, params: pydantic.BaseModel) -> None: ...

    def run(self, ctx: RunContext) -> Outcome:
        """Raise datapath.errors.RunFailed when the run gives no valid result."""
        ...
