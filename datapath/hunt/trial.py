# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A case tried: simulated runs, the same that `dpctl run` makes of the case's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datapath.experiment import parallel
from datapath.experiment.load import load_text
from datapath.experiment.sweep import schedule
from datapath.hunt import limits
from datapath.hunt.case import Setup, duration_ns, text
from datapath.hunt.limits import Limit
from datapath.hunt.space import Case
from datapath.stats import median

_DEAD = "retry counter exceeded"
_NOTHING = "not one message was delivered"
_TOO_LONG = "not done in time"


@dataclass(frozen=True)
class Trial:
    """A case that was run.

    repetitions: how often, each time with other random numbers.  metrics: medians over the runs
    that went well, by name.  error: of the first run that failed.  scores: symptom -> score,
    above 1 is bad.
    """

    case: Case
    repetitions: int
    limits: list[Limit]
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)

    def bad(self) -> dict[str, float]:
        """Symptoms with their scores, of those that the case shows."""
        return {symptom: score for symptom, score in self.scores.items() if score > 1}

    def missed(self, symptom: str) -> list[Limit]:
        """Limits of a symptom that are missed, the worst first."""
        of_it = [
            limit
            for limit in self.limits
            if limit.symptom == symptom and limit.metric in self.metrics
        ]
        missed = [limit for limit in of_it if limit.score(self.metrics[limit.metric]) > 1]
        return sorted(missed, key=lambda limit: -limit.score(self.metrics[limit.metric]))


def attempt(setup: Setup, case: Case, repetitions: int) -> Trial:
    """Run a case."""
    answers = [parallel.measure(task) for task in _tasks(setup, case, repetitions)]
    return _judged(setup, case, repetitions, answers)


def died(setup: Setup, case: Case, repetitions: int) -> Trial:
    """Of a case whose process died each time."""
    return _judged(setup, case, repetitions, [parallel.died()] * repetitions)


def _judged(
    setup: Setup, case: Case, repetitions: int, answers: Sequence[parallel.Answer]
) -> Trial:
    at = setup.scale(case)
    asked = limits.limits(at, duration_ns(at))
    values: dict[str, list[float]] = {}
    for answer in answers:
        of_run: dict[str, float] = {}
        for metric in answer.metrics:
            of_run.setdefault(metric.name, metric.value)
        for name, value in of_run.items():
            values.setdefault(name, []).append(value)
    metrics = {name: median(of_runs) for name, of_runs in values.items()}
    errors = [answer.error["message"] for answer in answers if answer.error is not None]
    scores = limits.scores(metrics, asked)
    for error in errors:
        for symptom, score in _scores_of_failure(error).items():
            scores[symptom] = scores.get(symptom, 0.0) + score / repetitions
    return Trial(case, repetitions, asked, metrics, next(iter(errors), ""), scores)


def _tasks(setup: Setup, case: Case, repetitions: int) -> list[parallel.Task]:
    source = Path("hunt.yaml")  # names nothing: what a case refers to has an absolute path
    experiment = load_text(text(case, setup, repetitions), source)
    runs = schedule(experiment.points, experiment.spec.sweep, experiment.spec.seed)
    timeout_s = experiment.spec.sweep.timeout / 1e9
    collect = experiment.spec.collect
    return [parallel.task(run, collect, source.parent, timeout_s, travels=False) for run in runs]


def _scores_of_failure(error: str) -> dict[str, float]:
    """Of a run that gave no result.

    One that took too long, or whose process was killed, says nothing of the algorithm.
    """
    if _TOO_LONG in error or parallel.KILLED in error:
        return {}
    if parallel.ENDLESS in error:
        return {limits.ENDLESS: limits.SCORE_OF_FAILURE[limits.ENDLESS]}
    if _NOTHING in error:
        return {limits.LOW_GOODPUT: limits.SCORE_MAX}
    symptom = limits.DIED if _DEAD in error else limits.BROKEN
    return {symptom: limits.SCORE_OF_FAILURE[symptom]}
