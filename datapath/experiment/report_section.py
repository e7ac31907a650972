# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks the section `report` of a file, and `sweep.baseline`: axes, values, metrics, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from datapath import series
from datapath.experiment import metrics
from datapath.experiment.sweep import matches, read_where
from datapath.spelling import or_rather
from datapath.workloads import REGISTRY

if TYPE_CHECKING:
    from datapath.experiment.axes import Axis
    from datapath.experiment.document import Document, Problem
    from datapath.experiment.spec import Claim, Experiment, Plot
    from datapath.experiment.sweep import Point
    from datapath.places import Path

Selector = Mapping[str, Sequence[str]]
Selectors = tuple[dict[str, list[str]], dict[str, list[str]]]
"""`where` and `ratio_to` of a claim, as axis -> texts."""


def read_report(
    document: Document,
    axes: Sequence[Axis],
    spec: Experiment,
    points: Sequence[Point],
    problems: list[Problem],
) -> list[Selectors]:
    """The selectors of each claim; what is wrong in the section is added to problems.

    points: of the sweep; none when something is wrong with them.
    """
    return _ReportSection(document, axes, spec, points, problems).read()


def sides(claim: Claim, selectors: tuple[Selector, Selector]) -> tuple[Selector, ...]:
    """Selectors of the points that a claim is about: one, or two if it is about a ratio."""
    where, ratio_to = selectors
    return (where,) if claim.ratio_to is None else (where, {**where, **ratio_to})


def partner(axes: Mapping[str, str], ratio_to: Selector) -> tuple[tuple[str, str], ...]:
    """What a point of one side of a ratio shares with its partner on the other."""
    return tuple(sorted(axis for axis in axes.items() if axis[0] not in ratio_to))


def _leaves(workload: str, kind: str) -> bool:
    """Whether runs of the workload may leave such samples; `samples`: any."""
    of_it = REGISTRY[workload].samples
    return bool(of_it) if kind == "samples" else kind in of_it


def _may_have(workload: str, metric: str) -> bool:
    """Whether runs of the workload may have the metric, as far as workloads say."""
    if metric.startswith(metrics.OF_FINISHED_FLOWS):
        return _leaves(workload, "fct")
    own = [
        name for name, each in REGISTRY.items() if metric in (kind.name for kind in each.metrics)
    ]
    return not own or workload in own


class _ReportSection:
    def __init__(
        self,
        document: Document,
        axes: Sequence[Axis],
        spec: Experiment,
        points: Sequence[Point],
        problems: list[Problem],
    ) -> None:
        self.document = document
        self.axes = axes
        self.spec = spec
        self.points = points
        self.problems = problems

    def read(self) -> list[Selectors]:
        self._where(("sweep", "baseline"))
        for index, plot in enumerate(self.spec.report.plots):
            self._check_plot(("report", "plots", index), plot)
        selectors = []
        for index, claim in enumerate(self.spec.report.expect):
            here: Path = ("report", "expect", index)
            where = self._where((*here, "where"))
            relative = claim.ratio_to is not None
            selectors.append((where, self._where((*here, "ratio_to")) if relative else {}))
            if relative:
                both = sides(claim, selectors[-1])
                self._check_sides((*here, "ratio_to"), both, selectors[-1][1])
            if self._check_metric((*here, "metric"), claim.metric, where):
                self._check_bounds(here, claim.metric, relative=relative)
        return selectors

    def _where(self, here: Path) -> dict[str, list[str]]:
        return read_where(self.document, here, self.axes, self.problems)

    def _check_sides(self, path: Path, both: Sequence[Selector], free: Selector) -> None:
        """No point may be divided by itself, and each one needs a partner; free: `ratio_to`."""
        if not free:
            self._add(path, "names no axis; write the values of the points to compare with")
            return
        mine, theirs = ([p for p in self.points if matches(w, p.axes)] for w in both)
        keys = {point.key for point in theirs}
        shared = next((point for point in mine if point.key in keys), None)
        if shared:
            needed = f"where needs other values of {' or '.join(free)}"
            self._add(path, f"{shared.label} would be compared with itself; {needed}")
            return
        partners = {partner(point.axes, free) for point in theirs}
        alone = next((p for p in mine if partner(p.axes, free) not in partners), None)
        if partners and alone:
            todo = "let where leave it out, or add its partner to the sweep"
            self._add(path, f"{alone.label} has no point to be compared with; {todo}")

    def _check_plot(self, here: Path, plot: Plot) -> None:
        names = [axis.name for axis in self.axes]
        for key in ("x", "series"):
            axis = getattr(plot, key)
            if axis is not None and axis not in names:
                self._add((*here, key), f"no such axis: {axis!r}{or_rather(axis, names, 'axes')}")
        where = self._where((*here, "where"))
        named = [plot.metric] if isinstance(plot.metric, str) else plot.metric
        if not named:
            self._add((*here, "metric"), "names nothing to draw")
        if plot.kind == "series":
            self._check_panels((*here, "metric"), plot, self.spec.collect.series)
            return
        if plot.kind == "cdf":
            for metric in named if "metric" in plot.model_fields_set else ():
                self._check_samples((*here, "metric"), metric, where)
            return
        at = (*here, "metric")
        known = [metric for metric in named if self._check_metric(at, metric, where)]
        units = {metrics.UNITS[metric]: metric for metric in known}
        if plot.kind in ("bar", "line") and len(units) > 1:
            told = " and ".join(f"{metric} in {unit}" for unit, metric in units.items())
            text = f"{told}: one axis has one unit; make a plot for each"
            self._add((*here, "metric"), text)

    def _check_metric(self, path: Path, metric: str, where: Selector) -> bool:
        """Whether there is such a metric; it is a mistake too if no run of its points has it."""
        if metric not in metrics.UNITS:
            more = or_rather(metric, list(metrics.UNITS), "metrics")
            self._add(path, f"no metric {metric!r}{more}")
            return False
        workloads = self._workloads(where)
        if workloads and not any(_may_have(name, metric) for name in workloads):
            able = ", ".join(name for name in REGISTRY if _may_have(name, metric))
            text = f"there is no {metric} of workload {' and '.join(workloads)}"
            self._add(path, f"{text}; these have it: {able}")
        elif metric in metrics.OF_SERIES and not self._collects():
            self._add(path, f"{metric} is made of series; add collect: {{series: [...]}}")
        return True

    def _workloads(self, where: Selector) -> list[str]:
        """Of the points that a selector takes."""
        return sorted({point.spec.kind for point in self.points if matches(where, point.axes)})

    def _collects(self) -> bool:
        """Whether series are collected, or the section that says so has a mistake."""
        collect = self.document.data.get("collect", {})
        return not isinstance(collect, dict) or bool(collect.get("series"))

    def _check_samples(self, path: Path, metric: str, where: Selector) -> None:
        """A CDF is of a kind of samples, which a metric of it may stand for, and which some
        workload of its points leaves.
        """
        kinds = [*metrics.SAMPLES, *(f"{kind}_ns" for kind in metrics.SAMPLES), "samples"]
        of_kind = metric in metrics.UNITS and metric.partition("_")[0] in metrics.SAMPLES
        if metric not in kinds and not of_kind:
            own = " and ".join(metrics.SAMPLES)
            self._add(path, f"there are no samples of {metric!r} for a CDF, only of {own}")
            return
        kind = metric.partition("_")[0]
        workloads = self._workloads(where)
        if workloads and not any(_leaves(name, kind) for name in workloads):
            able = ", ".join(name for name in REGISTRY if _leaves(name, kind))
            names = " and ".join(workloads)
            what = f"there are no samples of {kind} of workload {names} for a CDF"
            self._add(path, f"{what}; these leave some: {able}")

    def _check_panels(self, path: Path, plot: Plot, collected: Sequence[str]) -> None:
        """A figure over time needs series, and those that it names."""
        if not collected and self.document.data.get("collect", {}) == {}:
            self._add(path[:-1], "a plot of kind series needs some: collect: {series: [cwnd, rtt]}")
        if "metric" not in plot.model_fields_set:
            return
        known = [*series.NAMES, "rate"]
        for name in [plot.metric] if isinstance(plot.metric, str) else plot.metric:
            if name not in known:
                self._add(path, f"no series {name!r}{or_rather(name, known, 'series')}")
            elif collected and ("delivered" if name == "rate" else name) not in collected:
                self._add(path, f"series {name} is not collected; add it to collect.series")

    def _check_bounds(self, here: Path, metric: str, *, relative: bool) -> None:
        bounds = {}
        for key in ("min", "max"):
            part = self.document.data["report"]["expect"][here[-1]]
            if part.get(key) is None:
                continue
            try:
                bounds[key] = (
                    metrics.parse_number(part[key])
                    if relative
                    else metrics.parse_bound(metric, part[key])
                )
            except ValueError as error:
                self._add((*here, key), str(error))
        if len(bounds) == 2 and bounds["min"] > bounds["max"]:
            self._add((*here, "max"), "is below min: no result can meet both")

    def _add(self, path: Path, text: str) -> None:
        problem = self.document.problem(path, text)
        if problem not in self.problems:
            self.problems.append(problem)
