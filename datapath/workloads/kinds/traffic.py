# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Groups of flows that differ: in time, in size, in algorithm."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pydantic
from pydantic import Field, model_validator

from datapath.cc.spec import HostCc
from datapath.errors import LocalError
from datapath.lanes.event_spec import Event
from datapath.spelling import or_rather
from datapath.units import DurationNs
from datapath.workloads.base import RunContext
from datapath.workloads.traffic import groups
from datapath.workloads.traffic.base import MS_NS, S_NS, Traffic, TrafficParams, too_many
from datapath.workloads.traffic.groups import FlowGroup, Phase

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows
    from datapath.workloads.traffic.orders import Plan
    from datapath.workloads.traffic.qps import QpNumbers


class TrafficGroupsParams(TrafficParams):
    """Groups of flows that differ."""

    flows: list[FlowGroup] = Field(
        min_length=1, max_length=256, description="The groups; the first one is what is judged."
    )
    duration: DurationNs = Field(
        2 * S_NS, ge=MS_NS, description="When flows without bytes and `stop` end."
    )

    @model_validator(mode="after")
    def _names(self) -> TrafficGroupsParams:
        for index, group in enumerate(self.flows):
            group.name = group.name or f"flows{index}"
            if group.stop is None and group.start >= self.duration:
                raise ValueError(f"{group.name} would begin when all end: raise duration")
        self._groups_before()
        twice = [name for name, n in Counter(g.name for g in self.flows).items() if n > 1]
        if twice:
            raise ValueError(f"two groups have the name {twice[0]}")
        return self

    def _groups_before(self) -> None:
        """Each group that waits for another one comes behind it."""
        before: dict[str, FlowGroup] = {}
        for group in self.flows:
            if group.after is not None and group.after not in before:
                near = or_rather(group.after, list(before), "groups before it")
                raise ValueError(f"{group.name}: after is no group before it{near}")
            if group.after is not None and before[group.after].bytes is None:
                raise ValueError(f"{group.name}: {group.after} has no number of bytes")
            before[group.name] = group

    @property
    def has_load(self) -> bool:
        return any(group.load is not None for group in self.flows)

    def algorithms(self) -> Mapping[tuple[str | int, ...], HostCc]:
        return {
            ("flows", index, "cc"): group.cc
            for index, group in enumerate(self.flows)
            if group.cc is not None
        }

    def data(self) -> Mapping[tuple[str | int, ...], str]:
        return {
            ("flows", index, "distribution"): group.file
            for index, group in enumerate(self.flows)
            if group.file is not None
        }

    def mistakes(
        self, folder: Path, hosts: Sequence[str]
    ) -> Mapping[tuple[str | int, ...], Sequence[str]]:
        from datapath.workloads.traffic import sizes

        return {place: sizes.mistakes(folder / name) for place, name in self.data().items()}

    def check_events(self, events: Sequence[Event]) -> None:
        names = [group.name for group in self.flows]
        planned = self.planned(events)
        for name in sorted(planned):
            self._check_planned(name, events)
        stopped: set[str] = set()
        for event in sorted(events, key=lambda one: one.at or 0):
            of_condition = event.when.groups if event.when is not None else []
            for name in (
                *of_condition,
                *(event.stop or ()),
                *(event.start or ()),
                *(event.flows or ()),
            ):
                if name not in names:
                    raise ValueError(
                        f"no group of flows {name!r}{or_rather(name, names, 'groups')}"
                    )
            for name in event.start or ():
                if name not in stopped and name not in planned:
                    raise ValueError(f"{name} was not stopped before the event that starts it")
            stopped = (stopped | set(event.stop or ())) - set(event.start or ())

    def planned(self, events: Sequence[Event]) -> set[str]:
        """Groups that events stop, start or change on a condition."""
        named = (
            name
            for event in events
            if event.about_flows and event.when is not None
            for name in (event.stop or event.start or event.flows or [g.name for g in self.flows])
        )
        return set(named)

    def _check_planned(self, name: str, events: Sequence[Event]) -> None:
        """ValueError for a group whose events, one with a condition among them, make no sense."""
        starts = any(name in (event.start or ()) for event in events)
        stops = any(name in (event.stop or ()) for event in events)
        if starts and not stops:
            raise ValueError(f"{name} is started by an event, and no event stops it")

    def begins_anew(self, group: FlowGroup) -> bool:
        """As group.is_begun_anew; flows for which others wait go on, too."""
        return group.is_begun_anew and all(other.after != group.name for other in self.flows)

    def check_hosts(self, names: Sequence[str]) -> None:
        for group in self.flows:
            try:
                group.number_hosts(names)
            except ValueError as error:
                raise ValueError(f"{group.name}: {error}") from None
        if wrong := too_many(sum(groups.most_flows(one, self.duration) for one in self.flows)):
            raise ValueError(f"{wrong}: lower count, repeat, rate or duration")


def _refuse_many(rows: int, parts: Sequence[Flows]) -> None:
    """LocalError for a table of so many rows beside the parts that it has."""
    if wrong := too_many(rows + sum(map(len, parts))):
        raise LocalError(wrong, hint="lower load, rate or duration, or have fewer events")


class TrafficGroups(Traffic):
    """Metrics: goodput, latency_*, fairness, utilisation, fct_* and slowdown_* of finite flows.

    With several groups also fair_share of the first and competing_fair_share of the others; with
    flows of a number of bytes that begin again and again, round_*.
    """

    name: ClassVar[str] = "traffic"
    Params: ClassVar[type[pydantic.BaseModel]] = TrafficGroupsParams
    samples: ClassVar[tuple[str, ...]] = ("latency", "fct")

    def __init__(self, params: pydantic.BaseModel) -> None:
        super().__init__(params)
        assert isinstance(params, TrafficGroupsParams)
        self.params = params
        self._later: Sequence[int] = ()
        self._rows_of: Mapping[str, Sequence[int]] = {}
        self._of_events: list[HostCc | None] = []
        self._plan: Plan | None = None

    def algorithms(self) -> list[HostCc]:
        return [cc for cc in (*self._of_groups(), *self._of_events) if cc is not None]

    def _of_groups(self) -> list[HostCc | None]:
        return [group.cc for group in self.params.flows]

    def competing(self) -> Sequence[int]:
        return self._later

    def groups(self) -> Mapping[str, Sequence[int]]:
        return self._rows_of

    def measured(self) -> dict[str, bool]:
        each = self.params.flows
        return {
            "fair": True,
            "completion": any(group.is_finite for group in each),
            "rounds": all(group.bytes is not None for group in each),
        }

    def table(self, ctx: RunContext) -> Flows:
        import numpy as np

        from datapath.fabric import flows as table
        from datapath.workloads.traffic.qps import QpNumbers

        about = [event for event in ctx.events if event.about_flows]
        events = sorted((e for e in about if e.when is None), key=lambda event: event.time)
        waiting = [event for event in about if event.when is not None]
        self._of_events = [event.cc for event in (*events, *waiting)]
        planned = self.params.planned(about)
        parts: list[Flows] = []
        of_group, rounds = [], 0
        numbers = QpNumbers()
        for index, group in enumerate(self.params.flows):
            when = self._phases(index, [] if group.name in planned else events)
            part = self._rows(ctx, index, when, numbers) if when else table.empty(0)
            times = 1
            if group.name in planned and self.params.begins_anew(group):
                times += sum(group.name in (event.start or ()) for event in about)
            _refuse_many(len(part) * times, parts)
            part = groups.with_held(part, times - 1) if times > 1 else part
            part["tag"] += np.uint32(rounds)
            if group.after is not None and len(part):
                other = self._number(group.after)
                begin = sum(len(one) for one in parts[:other])
                groups.wait(part, parts[other], begin, (group.name, group.after))
            rounds = max(rounds, int(part["tag"].max(initial=0)) + 1)
            parts.append(part)
            of_group.append(np.full(len(part), index))
            named = group.pairs() if group.distribution is None else None
            numbers.take(part, group.qps_of_pair, named)
        whole = np.concatenate(parts)
        order = np.argsort(whole["start_ns"], kind="stable")
        place = np.argsort(order)
        waits = whole["after"] > 0
        whole["after"][waits] = place[whole["after"][waits].astype(np.int64) - 1] + 1
        which = np.concatenate(of_group)[order]
        self._later = np.flatnonzero(which).tolist()
        self._rows_of = {
            group.name: np.flatnonzero(which == index).tolist()
            for index, group in enumerate(self.params.flows)
        }
        whole = table.ordered(whole)
        self._plan = self._planned(planned, whole) if planned else None
        return whole

    def plan(self) -> Plan | None:
        return self._plan

    def _planned(self, names: Collection[str], whole: Flows) -> Plan:
        """The plan of the groups that events decide about while the run goes on."""
        from datapath.workloads.traffic import orders

        numbers = self._numbers()[1]
        found = [
            orders.group_of(
                group.name,
                whole,
                self._rows_of[group.name],
                anew=self.params.begins_anew(group),
                start_ns=group.start,
                end_ns=groups.end_of(group, self.params.duration),
            )
            for group in self.params.flows
            if group.name in names
        ]
        known = [(cc, number) for cc, number in zip(self._of_events, numbers, strict=True) if cc]
        return orders.Plan(whole, found, known)

    def _numbers(self) -> tuple[list[int], list[int]]:
        """The numbers of algorithms() of the groups, and of the events; 0: it has none."""
        numbers = itertools.count(1)
        of_groups, of_events = (
            [0 if cc is None else next(numbers) for cc in sections]
            for sections in (self._of_groups(), self._of_events)
        )
        return of_groups, of_events

    def _number(self, name: str) -> int:
        return [group.name for group in self.params.flows].index(name)

    def _phases(self, index: int, events: Sequence[Event]) -> list[Phase]:
        """When a group sends, by its own keys and by the events about it."""
        group = self.params.flows[index]
        of_groups, of_events = self._numbers()
        when = groups.phases(group, self.params.duration, of_groups[index])
        stopped = None
        for event, cc in zip(events, of_events, strict=False):
            if cc and group.name in (event.flows or [group.name]):
                when = groups.with_algorithm(when, event.time, cc)
            elif group.name in (event.stop or []):
                stopped = event.time
            elif group.name in (event.start or []) and stopped is not None:
                when = groups.without(when, stopped, event.time)
                stopped = None
        return when if stopped is None else groups.without(when, stopped, groups.FOR_EVER_NS)

    def _rows(
        self, ctx: RunContext, index: int, when: Sequence[Phase], numbers: QpNumbers
    ) -> Flows:
        from datapath.workloads.traffic import sizes

        group = self.params.flows[index]
        if group.distribution is None:
            return groups.rows(group, when, numbers)
        rates = (
            [float(group.rate)] * len(ctx.network.hosts)
            if group.rate
            else [(group.load or 0) * rate for rate in self.needed_rates_bps(ctx)]
        )
        drawing = groups.Drawing(
            sizes.named(group.distribution, ctx.folder),
            rates,
            len(ctx.network.hosts),
            groups.group_seed(ctx.table_seed, index),
        )
        return groups.drawn_rows(group, when, numbers, drawing)
