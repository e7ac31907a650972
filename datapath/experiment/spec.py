# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The experiment file: its sections, their keys, types, defaults and meaning.

This is the one definition; `dpctl schema` prints it as JSON Schema, and docs/experiment-file.md
explains it.  A section that a lower layer consumes is defined by that layer: `topology` and
`path` in datapath.lanes.spec, `transport` in datapath.verbs.spec, `workload` by the `Params`
of each workload in datapath.workloads.REGISTRY.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from datapath.cc.spec import HostCc
from datapath.lanes.event_spec import Event, check_events, stalls
from datapath.lanes.spec import Path, Topology
from datapath.places import Path as Place
from datapath.series import Name as SeriesName
from datapath.series import Request
from datapath.units import DurationNs
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.programs import WorkloadParams
from datapath.workloads.traffic.base import TrafficParams

SECTIONS = ("topology", "path", "transport", "cc", "xdp", "workload", "events")
"""What makes a point: the sections that decide what is measured, and that a sweep may vary."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a whole number")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth_value)]
"""A whole number, which `true` is not."""


class Xdp(_Model):
    """An XDP program of the user's own, compiled by bcc and run beside the measurement."""

    source: str = Field(
        min_length=1, description="C source, relative to the experiment file; one XDP function."
    )
    hook: Literal["host0", "host1", "middle-forward", "middle-backward"] = Field(
        "middle-forward",
        description="Where it runs: as a host's device receives, or in the middle of the path.",
    )


def _constant(text: str) -> Any:
    return Literal[text]


def _workload_union() -> Any:
    """A discriminated union over the registry, `kind` naming the workload."""
    models = [
        create_model(
            f"{kind.replace('-', ' ').title().replace(' ', '')}Workload",
            __base__=workload.Params,
            __doc__=workload.Params.__doc__,
            kind=(_constant(kind), Field(description="Which workload.")),
        )
        for kind, workload in sorted(REGISTRY.items())
    ]
    if len(models) == 1:
        return models[0]
    return Annotated[functools.reduce(operator.or_, models), Field(discriminator="kind")]


if TYPE_CHECKING:
    WorkloadSection = BaseModel
else:
    WorkloadSection = _workload_union()


Scalar = str | int | float | bool
Where = dict[str, Any]
"""Axis -> value, or a list of values, as they stand in the matrix."""


class NamedValue(_Model):
    """A value of a named axis: a label, and the paths that it sets."""

    label: str = Field(min_length=1, description="Shown in tables and plots.")
    set: dict[str, Any] = Field(
        description="Dotted path into this file -> value. A mapping replaces the mapping there."
    )


class Adjustment(_Model):
    """Settings for the points in which axes have certain values together."""

    where: Where = Field(description="Axis -> value (or list of values) that a point must have.")
    set: dict[str, Any] = Field(description="Dotted path -> value, on top of the axes' own.")


class Sweep(_Model):
    """Which points are measured, how often, and in which order."""

    matrix: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="Axis -> values. The axis is a dotted path into this file (`path.loss`) "
        "with its values, or a name of your own with values {label: ..., set: {path: value}}.",
    )
    adjust: list[Adjustment] = Field(
        default_factory=list, description="Settings for combinations of axis values, in order."
    )
    include: list[dict[str, Any]] = Field(
        default_factory=list, description="Further points: {axis: value, ...}, every axis named."
    )
    exclude: list[Where] = Field(
        default_factory=list, description="Points to leave out: {axis: value, ...}, all must match."
    )
    only: Where = Field(
        default_factory=dict,
        description="Measure only the points with these values, and judge only claims about them.",
    )
    repetitions: Whole = Field(
        10, ge=1, le=10_000, description="Runs of each point; every repetition is one block."
    )
    order: Literal["blocked-random", "sequential"] = Field(
        "blocked-random",
        description="Order of the points within a block: shuffled by the seed, or as listed.",
    )
    retakes: Whole = Field(
        0,
        ge=0,
        le=100,
        description="How often a run is made again, at once, for which the CPUs did not suffice: "
        "the emulated path was not what was asked for (CPU-limited), or programs waited too long "
        "for a CPU (CPU-starved). The last time counts.",
    )
    baseline: Where = Field(
        default_factory=dict, description="The points that the report compares others with."
    )
    timeout: DurationNs = Field(
        60_000_000_000,
        ge=1_000_000,
        description="Longest time of one run before it has failed, without that in which its "
        "network is made.",
    )


class Collect(_Model):
    """Data that is kept besides the metrics."""

    samples: bool = Field(True, description="Keep single samples (latencies) for CDF plots.")
    counters: bool = Field(
        True, description="Keep the counters of engine, QPs and ports, and metrics made of them."
    )
    series: list[SeriesName] = Field(
        default_factory=list,
        description="What to sample of every QP, TCP flow and link, and metrics made of it.",
    )
    interval: DurationNs = Field(
        10_000_000, ge=100_000, le=10_000_000_000, description="Time from one sample to the next."
    )
    qps: Whole = Field(
        16, ge=1, le=4096, description="QPs sampled at a time, at most, of each process."
    )

    @model_validator(mode="after")
    def _once_each(self) -> Collect:
        twice = sorted({name for name in self.series if self.series.count(name) > 1})
        if twice:
            raise ValueError(f"series: {twice[0]} is there twice")
        return self

    @property
    def request(self) -> Request | None:
        """The series to sample; None: none."""
        if not self.series:
            return None
        return Request(tuple(self.series), self.interval, self.qps)


class Plot(_Model):
    """One figure of the report."""

    kind: Literal["bar", "line", "cdf", "ratio", "series"] = Field(
        "bar",
        description="bar, line: medians with intervals. cdf: distribution of single samples. "
        "ratio: relative to sweep.baseline. series: what was collected, over time.",
    )
    metric: str | list[str] = Field(
        "goodput",
        description="A metric (goodput, latency_p50), several of one unit for bars side by side, "
        "or the kind of sample for a CDF (latency). Of kind series: one panel for each of these "
        "series, or rate (of delivery); unset: those that were collected.",
    )
    where: Where = Field(default_factory=dict, description="Keep these points: axis -> value.")
    x: str | None = Field(None, description="Axis along the x axis.")
    series: str | None = Field(None, description="Axis whose values become series.")
    log: bool = Field(False, description="Logarithmic value axis.")
    title: str | None = Field(None, description="Heading; unset: made from the metric and axes.")
    repetition: Whole | None = Field(
        None,
        ge=0,
        description="Of kind series: the run that is drawn; unset: the median over the runs.",
    )
    qps: list[Annotated[Whole, Field(ge=0)]] | None = Field(
        None,
        min_length=1,
        description="Of kind series: the flows that are drawn, counted from 0 by host and QPN; "
        "unset: the first eight.",
    )


class Claim(_Model):
    """Something that the results must show; a claim that fails makes `dpctl run` exit 1.

    Without `ratio_to`, the median over the runs is held against min and max.  With it, each run is
    divided by that of the point which `ratio_to` describes in the same block, and the median of
    those ratios is held against them.
    """

    metric: str = Field(description="Name of a metric.")
    where: Where = Field(default_factory=dict, description="Axis -> value of the points meant.")
    ratio_to: Where | None = Field(
        None, description="Axes that differ in the points compared with; the rest is as in where."
    )
    min: str | int | float | None = Field(None, description="Lowest value allowed, with its unit.")
    max: str | int | float | None = Field(None, description="Highest value allowed.")
    title: str | None = Field(None, description="The claim in words.")
    shown: bool = Field(
        False,
        description="The claim fails unless its whole interval lies within the bound, of 6 runs "
        "or more. Otherwise the median alone decides.",
    )

    @model_validator(mode="after")
    def _bounded(self) -> Claim:
        if self.min is None and self.max is None:
            raise ValueError("a claim needs min, max or both")
        return self


class Report(_Model):
    """Figures and claims."""

    plots: list[Plot] = Field(default_factory=list, description="Figures, in order.")
    expect: list[Claim] = Field(default_factory=list, description="Claims the run must show.")


class PointSpec(_Model):
    """One point of a sweep, resolved: everything that decides what one run measures."""

    topology: Topology = Field(default_factory=lambda: Topology())
    path: Path = Field(default_factory=lambda: Path())
    transport: Transport = Field(default_factory=lambda: Transport())
    cc: HostCc = Field(default_factory=lambda: HostCc())
    xdp: Xdp | None = None
    workload: WorkloadSection
    events: list[Event] = Field(default_factory=list)

    @field_validator("workload")
    @classmethod
    def _workload_fits_hosts(cls, value: Any, info: ValidationInfo) -> Any:
        if "topology" in info.data:
            value.check_hosts(info.data["topology"].host_names)
        if {"topology", "path"} <= set(info.data):
            value.check_network(info.data["topology"], info.data["path"])
        return value

    @field_validator("events")
    @classmethod
    def _events_fit(cls, value: list[Event], info: ValidationInfo) -> list[Event]:
        if not value or not {"topology", "path", "workload"} <= set(info.data):
            return value
        topology, workload = info.data["topology"], info.data["workload"]
        lane = topology.of_lane
        if not isinstance(workload, TrafficParams):
            kind = getattr(workload, "kind", "this one")
            raise ValueError(f"events are for workloads of traffic tables, not for {kind}")
        if not lane.simulated and not (lane.local and not lane.own_kernels):
            raise ValueError(f"events are for lanes netns and sim, not for {topology.lane}")
        check_events(value, info.data["path"], topology.preset)
        if any(event.link or event.node or event.when is not None for event in value):
            from datapath.lanes.link_events import check_links

            check_links(topology, info.data["path"], value)
        stalls(value, topology.host_names)
        workload.check_events(value)
        return value

    @property
    def of_workload(self) -> WorkloadParams:
        """The section `workload`."""
        assert isinstance(self.workload, WorkloadParams)
        return self.workload

    @property
    def algorithms(self) -> dict[Place, HostCc]:
        """Each congestion control that the point names, by the place of its section."""
        of_workload = self.of_workload.algorithms().items()
        of_events = enumerate(event.cc for event in self.events)
        return {
            ("cc",): self.cc,
            **{("workload", *place): cc for place, cc in of_workload},
            **{("events", index, "cc"): cc for index, cc in of_events if cc is not None},
        }

    @property
    def code(self) -> dict[Place, str]:
        """Python files that are loaded, as written, by the place of the name."""
        named = {(*place, "algo"): cc.file for place, cc in self.algorithms.items()}
        own = {("workload", *place): name for place, name in self.of_workload.code().items()}
        return {place: name for place, name in named.items() if name is not None} | own

    @property
    def data(self) -> dict[Place, str]:
        """Files with data, likewise."""
        return {("workload", *place): name for place, name in self.of_workload.data().items()}

    @property
    def kind(self) -> str:
        """Name of the workload in the registry."""
        return str(getattr(self.workload, "kind"))  # noqa: B009  (made at run time)


class Experiment(_Model):
    """An experiment: a network, its faults, a transport, a workload, a sweep."""

    version: Literal[1] = Field(description="Version of this format.")
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Short name; the result folder's name begins with it.",
    )
    description: str = Field("", description="One or two lines, shown in the report.")
    seed: Whole = Field(1, ge=0, lt=2**63, description="All randomness of the run follows from it.")
    topology: Topology = Field(default_factory=lambda: Topology())
    path: Path = Field(default_factory=lambda: Path())
    transport: Transport = Field(default_factory=lambda: Transport())
    cc: HostCc = Field(default_factory=lambda: HostCc())
    xdp: Xdp | None = Field(None, description="An XDP program of your own.")
    workload: WorkloadSection | None = Field(
        None, description="What is driven; needed here or in every value of an axis."
    )
    events: list[Event] = Field(
        default_factory=list,
        max_length=256,
        description="What changes while a run is measured, and when; lanes netns and sim, with "
        "workloads of traffic tables.",
    )
    sweep: Sweep = Field(default_factory=lambda: Sweep())
    collect: Collect = Field(default_factory=lambda: Collect())
    report: Report = Field(default_factory=lambda: Report())


def json_schema() -> dict[str, Any]:
    """The format as JSON Schema (draft 2020-12), for editors and for close matches."""
    schema = Experiment.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "datapath experiment",
    }
