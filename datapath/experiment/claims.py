# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Claims of an experiment held against its results.

A claim is about the median over the blocks that the runs which `where` selects were made in.  A
block of several points counts once, with their median: points are no repetitions.  With `ratio_to`
each run is first divided by that of its reference in the same block.

A claim for which there is no data fails and says why: silence must not look like success.  Nor are
runs left out in silence that went well without the metric, since many metrics are absent when
something never happened: they are named, and a claim with such runs is not shown.

A claim that passes is shown if its whole interval lies within the bound.  Otherwise the pass may
be noise; the verdict says so, and about how many more repetitions would decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datapath import stats
from datapath.experiment import metrics
from datapath.experiment.report_section import Selector, partner, sides
from datapath.experiment.sweep import matches

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.spec import Claim
    from datapath.experiment.store import RunRecord

_REACH = 1000
"""More repetitions than this nobody makes, and the estimate of their number says little."""


@dataclass(frozen=True)
class Verdict:
    """A claim with its measured value; the entries of claims.json.

    measured and interval are in `unit` (of the metric, or "1" for a ratio); None: no data.
    bound: {"min": x, "max": y} in the same unit, with the keys that the claim has.
    n: blocks that stand behind the median, which are the runs of a claim about one point.
    shown: the claim passes, and so does its whole interval, which has runs enough behind it.
    doubt: why the runs do not decide, "" when they do.  more: about how many more repetitions
    would; 0: none is needed, None: none would in reach, or there is no data.
    points: selectors of the points that the claim is about.
    """

    title: str
    metric: str
    unit: str
    where: dict[str, str]
    ratio_to: dict[str, str] | None
    measured: float | None
    interval: tuple[float | None, float | None]
    bound: dict[str, float]
    passed: bool
    reason: str
    n: int
    shown: bool = False
    doubt: str = ""
    more: int | None = 0
    points: tuple[Selector, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "metric": self.metric,
            "unit": self.unit,
            "where": self.where,
            "ratio_to": self.ratio_to,
            "measured": self.measured,
            "interval": list(self.interval),
            "bound": self.bound,
            "pass": self.passed,
            "reason": self.reason,
            "n": self.n,
            "shown": self.shown,
            "doubt": self.doubt,
            "more_repetitions": self.more,
        }


def evaluate(experiment: LoadedExperiment, records: Sequence[RunRecord]) -> list[Verdict]:
    """A verdict for each claim, in the order of the file."""
    claims = zip(experiment.spec.report.expect, experiment.selectors, strict=True)
    return [_verdict(claim, where, ratio_to, records) for claim, (where, ratio_to) in claims]


def _verdict(
    claim: Claim, where: Selector, ratio_to: Selector, records: Sequence[RunRecord]
) -> Verdict:
    relative = claim.ratio_to is not None
    points = sides(claim, (where, ratio_to))
    bound = _bound(claim, relative=relative)
    selections = [_Selection(claim.metric, each, records, free=ratio_to) for each in points]
    reason = next((told for each in selections if (told := each.unknown())), "")
    blocks: list[float] = []
    if not reason:
        blocks, reason = _blocks(selections)
    estimate, n = stats.median_interval(blocks), len(blocks)
    lacking = _join(*(told for each in selections for told in each.lacking()))
    reason = _join(reason, lacking, *(each.failures() for each in selections))
    measured = estimate.median if math.isfinite(estimate.median) else None
    passed = measured is not None and _holds(measured, bound)
    doubt, more = _doubt(estimate, n, bound, several=len(selections[0].points) > 1)
    if lacking and measured is not None:  # what repetitions leave out too
        doubt, more = _join(lacking, doubt), None
    shown = passed and not doubt
    if measured is not None and not passed:
        reason = _join(_missed(measured, bound, estimate), reason)
    elif passed and claim.shown and not shown:
        passed, reason = False, _join("it has to be shown, and is not", reason)
    return Verdict(
        title=claim.title or _title(claim, where, ratio_to if relative else None),
        metric=claim.metric,
        unit="1" if relative else metrics.UNITS[claim.metric],
        where=_shown(where),
        ratio_to=_shown(points[1]) if relative else None,
        measured=measured,
        interval=(_finite(estimate.lo), _finite(estimate.hi)),
        bound=bound,
        passed=passed,
        reason=reason,
        n=n,
        shown=shown,
        doubt=doubt,
        more=more,
        points=points,
    )


def _doubt(
    estimate: stats.Estimate, n: int, bound: Mapping[str, float], *, several: bool
) -> tuple[str, int | None]:
    """(why these runs do not decide, about how many more repetitions would); ("", 0): they do."""
    if not math.isfinite(estimate.median):
        return "", None
    crossed = [
        end
        for key, end in bound.items()
        if (estimate.lo < end <= estimate.hi if key == "min" else estimate.lo <= end < estimate.hi)
    ]
    if not crossed:
        if n >= stats.FEWEST:
            return "", 0
        of = " of each point" if several else ""
        return f"n = {n}{of} is too few, {stats.FEWEST} are needed", stats.FEWEST - n
    wanted = max(stats.values_to_decide(estimate, n, end) for end in crossed)
    reaches = "the interval reaches the bound"
    return (reaches, max(1, int(wanted) - n)) if wanted <= _REACH else (reaches, None)


class _Selection:
    """The values of one metric in the runs that a selector takes.

    free: `ratio_to`, in whose axes a point and its partner differ.
    """

    def __init__(
        self, metric: str, where: Selector, records: Sequence[RunRecord], *, free: Selector
    ) -> None:
        self.metric = metric
        self.where = where
        self.runs = [record for record in records if matches(where, record.axes)]
        self.points = {record.point for record in self.runs}
        self.failed = sum(record.status != "ok" for record in self.runs)
        self.measured: list[tuple[RunRecord, dict[str, float]]] = [
            (record, _values(record)) for record in self.runs if record.status == "ok"
        ]
        self.values: dict[tuple[int, object], list[float]] = {}
        for record, values in self.measured:
            if metric in values:
                key = record.block, partner(record.axes, free)
                self.values.setdefault(key, []).append(values[metric])

    def unknown(self) -> str:
        """Why there is no median, "" when there is one.

        Where a point has the metric in some runs, it was worst in those without: if these are
        half of the runs or more, nobody knows the median.
        """
        what = _words(self.where)
        if not self.runs:
            return f"no run matches {what}"
        if self.failed == len(self.runs):
            return f"all {self.failed} runs with {what} failed"
        if not self.values:
            return f"the runs with {what} have no metric {self.metric}"
        have = Counter(record.point for record, values in self.measured if self.metric in values)
        lack = self._without()
        return "the median is not known" if any(lack[p] >= have[p] for p in have) else ""

    def lacking(self) -> list[str]:
        """What the runs that went well have not told."""
        if not self.values:
            return []
        what, total = _words(self.where), len(self.measured)
        told = []
        if without := self._without().total():
            told.append(f"{without} of {total} runs with {what} have no {self.metric}")
        if self.metric.startswith(metrics.OF_FINISHED_FLOWS):
            cut = sum(values.get("unfinished_share", 0) > 0 for _, values in self.measured)
            if cut:
                text = f"{self.metric} leaves out flows that did not finish"
                told.append(f"{text}, in {cut} of {total} runs with {what}")
        return told

    def _without(self) -> Counter[str]:
        """Point -> runs that went well without the metric."""
        return Counter(
            record.point for record, values in self.measured if self.metric not in values
        )

    def failures(self) -> str:
        if not self.failed or not self.values:
            return ""
        return f"{self.failed} of {len(self.runs)} runs with {_words(self.where)} failed"


def _values(record: RunRecord) -> dict[str, float]:
    """The metrics of a run that are numbers."""
    values = {e["name"]: float(e["value"]) for e in record.metrics if e["value"] is not None}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _blocks(selections: Sequence[_Selection]) -> tuple[list[float], str]:
    """(one value for each block in which every point went well, why there is none)."""
    selected, *reference = selections
    whole_runs = (run for each in selections for run in each.runs if run.status == "ok")
    tried = Counter(run.block for run in whole_runs)
    whole = sum(len(each.points) for each in selections)
    blocks: dict[int, list[float]] = {}
    for (block, point), values in selected.values.items():
        if tried[block] < whole or (reference and (block, point) not in reference[0].values):
            continue
        if reference:
            below = stats.median(reference[0].values[block, point])
            if below == 0:
                return [], "the reference is zero, so no ratio exists"
            values = [value / below for value in values]
        blocks.setdefault(block, []).extend(values)
    what = "both sides of the ratio" if reference else "a run of each point"
    return [stats.median(of) for of in blocks.values()], "" if blocks else f"no block has {what}"


def _bound(claim: Claim, *, relative: bool) -> dict[str, float]:
    given = {"min": claim.min, "max": claim.max}
    return {
        key: metrics.parse_number(value) if relative else metrics.parse_bound(claim.metric, value)
        for key, value in given.items()
        if value is not None
    }


def _holds(measured: float, bound: Mapping[str, float]) -> bool:
    return bound.get("min", -math.inf) <= measured <= bound.get("max", math.inf)


def _missed(measured: float, bound: Mapping[str, float], estimate: stats.Estimate) -> str:
    side = "below min" if measured < bound.get("min", -math.inf) else "above max"
    inside = _finite(estimate.lo) is not None and (
        _holds(estimate.lo, bound) or _holds(estimate.hi, bound)
    )
    return f"{side}, though the interval reaches the bound" if inside else side


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _join(*reasons: str) -> str:
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def _shown(where: Selector) -> dict[str, str]:
    return {axis: " or ".join(texts) for axis, texts in where.items()}


def _words(where: Selector) -> str:
    return ", ".join(f"{axis}={text}" for axis, text in _shown(where).items()) or "any point"


def _title(claim: Claim, where: Selector, ratio_to: Selector | None) -> str:
    bounds = [f"at least {claim.min}"] if claim.min is not None else []
    bounds += [f"at most {claim.max}"] if claim.max is not None else []
    relation = f" relative to {_words(ratio_to)}" if ratio_to is not None else ""
    return f"{claim.metric} of {_words(where)}{relation}: {' and '.join(bounds)}"
