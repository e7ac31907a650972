# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A hunt: generation after generation until the time or the number of cases is spent."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from datapath import interrupts
from datapath.errors import LocalError
from datapath.experiment.parallel import workers
from datapath.hunt.findings import Finding, Findings
from datapath.hunt.minimise import minimise
from datapath.hunt.search import Search
from datapath.hunt.space import Case, Dimension
from datapath.hunt.trial import Trial, attempt, died

CONFIRMING = 3
"""Runs of a case that was bad once: their medians have to be bad as well."""

_KNOWN = 0.3
"""Weight of a score whose cause is known."""


class Spent(Exception):
    """The time or the number of cases is over."""


class Observer(Protocol):
    """Shows the progress of a sweep."""

    def tried(self, cases: int, findings: int) -> None: ...
    def found(self, finding: Finding) -> None: ...


class Sources:
    """The files of an algorithm, as they were when its hunt began."""

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self.stamps = {path: _stamp(path) for path in files}

    def check(self, folder: Path) -> None:
        """LocalError when one is another now: its cases are not those of the same algorithm."""
        for path, stamp in self.stamps.items():
            if _stamp(path) != stamp:
                raise LocalError(
                    f"{path} was changed, so the hunt ends here",
                    hint=f"what it found before is in {folder}; to edit meanwhile, hunt a copy",
                )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size


@dataclass(frozen=True)
class Budget:
    """When a hunt ends.  cases: runs, those that make findings smaller included.

    With cases alone, a hunt depends on nothing but its seed.
    """

    cases: int | None = None
    seconds: float | None = None


def hunt(
    space: Sequence[Dimension],
    findings: Findings,
    budget: Budget,
    observer: Observer,
    *,
    jobs: int | None = None,
    sources: Sources | None = None,
) -> int:
    """Hunt until the budget is spent; how many cases were tried.

    jobs: processes, 1: this one; None: one for each CPU.  sources: of the algorithm; LocalError
    when one changes.  What was found lies in the findings' folder from the first moment, also
    when this is interrupted.
    """
    search = Search(space, findings.setup.seed)
    with _trials(findings, budget, observer, jobs) as trials:
        trials.sources = sources or Sources()
        findings.about(state="running", cases=0)
        try:
            while generation := search.propose():
                _try(generation, search, findings, trials)
                _minimise(findings, trials, observer)
        except Spent:
            pass
        finally:
            findings.about(state="ended", cases=trials.made)
    return trials.made


def _try(generation: Sequence[Case], search: Search, findings: Findings, trials: _Trials) -> None:
    """Run a generation; a bad case that no finding explains becomes a finding at once."""
    for trial in trials.each(generation):
        worth = [0.0]
        for symptom, score in trial.scores.items():
            known = findings.known(trial, symptom)
            worth.append(score * (_KNOWN if known else 1))
            if score <= 1:
                continue
            if known is None:
                findings.begin(trial, symptom)
            else:
                findings.count(known, trial)
        search.learn(trial.case, max(worth))


def _minimise(findings: Findings, trials: _Trials, observer: Observer) -> None:
    """Confirm new findings and reduce them to their causes, the worst first."""
    new = [finding for finding in findings.all if not finding.minimal]
    for finding in sorted(new, key=lambda item: -item.score):
        known = findings.known(finding.trial, finding.symptom, but=finding)
        if known is not None and known.minimal:
            findings.merge(finding, known)
            continue
        (confirmed,) = trials.confirm([finding.trial.case])
        if finding.symptom not in confirmed.bad():
            findings.drop(finding)  # it was chance
            continue
        findings.shrink(finding, confirmed)
        for smaller in minimise(confirmed, finding.symptom, trials.confirm):
            findings.shrink(finding, smaller)
        if findings.settle(finding):
            observer.found(finding)


class _Trials:
    """Runs cases within a budget, each only once."""

    def __init__(
        self,
        findings: Findings,
        budget: Budget,
        observer: Observer,
        run: Callable[[Sequence[Case], int], Iterator[Trial]],
    ) -> None:
        self.findings, self.observer, self.run = findings, observer, run
        self.sources = Sources()
        self.most = budget.cases
        self.until = None if budget.seconds is None else time.monotonic() + budget.seconds
        self.made = 0
        self.known: dict[tuple[object, ...], Trial] = {}

    def confirm(self, cases: Sequence[Case]) -> list[Trial]:
        """Trials of several runs each, in order; Spent when the budget does not last for all."""
        return list(self.each(cases, CONFIRMING))

    def each(self, cases: Sequence[Case], repetitions: int = 1) -> Iterator[Trial]:
        """Trials as soon as they are there; Spent after the last one there is budget for."""
        keys = [(repetitions, *sorted(case.items())) for case in cases]
        new = {key: case for key, case in zip(keys, cases, strict=True) if key not in self.known}
        room = len(new) if self.most is None else max(self.most - self.made, 0)
        if self._late():
            raise Spent
        running = self.run(list(itertools.islice(new.values(), room)), repetitions)
        for key in keys:
            interrupts.check()
            if key not in self.known:
                if self._late():
                    raise Spent
                trial = next(running, None)
                if trial is None:
                    raise Spent
                self.sources.check(self.findings.folder)
                self.known[key] = trial
                self.made += 1
                self.observer.tried(self.made, len(self.findings.all))
            yield self.known[key]

    def _late(self) -> bool:
        return self.until is not None and time.monotonic() > self.until


@contextlib.contextmanager
def _trials(
    findings: Findings, budget: Budget, observer: Observer, jobs: int | None
) -> Iterator[_Trials]:
    """In this process, or in several of their own, which end with this one."""
    setup = findings.setup
    with workers(jobs) as processes:

        def run(cases: Sequence[Case], repetitions: int) -> Iterator[Trial]:
            one = functools.partial(attempt, setup, repetitions=repetitions)
            trials = processes.in_order(one, cases)
            for case, trial in zip(cases, trials, strict=True):
                yield trial or died(setup, case, repetitions)

        yield _Trials(findings, budget, observer, run)
