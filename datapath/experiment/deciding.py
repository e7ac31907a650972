# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Further repetitions for claims that the runs so far do not decide.

Each round at most doubles the repetitions of the points that an undecided claim is about, up to
a limit.  Who looks at an interval several times and stops when it suits has intervals that hold
less often than they say; few rounds, each as large as the verdict asks for, keep that small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from datapath.experiment import claims, twins
from datapath.experiment.store import to_json
from datapath.experiment.sweep import Run, matches, schedule
from datapath.spelling import counted

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.runner import Observer
    from datapath.experiment.store import ResultStore, RunRecord


def next_round(
    experiment: LoadedExperiment,
    store: ResultStore,
    observer: Observer,
    planned: set[str],
    most: int,
) -> list[Run]:
    """The runs of the next round, told and noted in the manifest; what stays undecided is told.

    planned: names of all runs that count.  most: 0: the repetitions of the file are all.
    """
    if not most:
        return []
    records = [record for record in store.records() if record.name in planned]
    runs = further_runs(experiment, records, most)
    manifest = store.read_manifest()
    # Fewer than before when an interrupted round turns out to need no more runs.
    if manifest.get("runs_planned") != (count := len(records) + len(runs)):
        store.write("manifest.json", to_json(manifest | {"runs_planned": count}))
    if runs:
        observer.told(f"{counted(len(runs), 'more run')}, for claims that are not decided yet")
        observer.more(len(runs))
    elif left := sum(bool(verdict.more) for verdict in claims.evaluate(experiment, records)):
        what = f"{left} claim{'s stay' if left > 1 else ' stays'} undecided"
        observer.told(f"{what}: {most} repetitions are the most that were asked for")
    return runs


def further_runs(
    experiment: LoadedExperiment, records: Sequence[RunRecord], most: int
) -> list[Run]:
    """The runs of the next round; none when all claims are decided, or cannot be within `most`.

    records: every run that was made.  most: repetitions of a point, at most.
    """
    made = {record.name for record in records}
    repetitions = Counter(record.point for record in records)
    wanted: dict[str, int] = {}
    for verdict in claims.evaluate(experiment, records):
        keys = _points(experiment, verdict)
        if not verdict.more or not keys:
            continue
        have = min(repetitions[key] for key in keys)
        goal = min(most, have + min(verdict.more, max(have, 1)))
        for key in _with_twins(experiment, keys):
            wanted[key] = max(wanted.get(key, 0), goal)
    points = [point for point in experiment.points if point.key in wanted]
    if not points:
        return []
    spec = experiment.spec
    planned = schedule(points, spec.sweep, spec.seed, max(wanted.values()))
    return [
        run for run in planned if run.repetition < wanted[run.point.key] and run.name not in made
    ]


def failed_further(experiment: LoadedExperiment, records: Sequence[RunRecord]) -> list[Run]:
    """The failed runs of earlier rounds, which --resume makes again as those of the file.

    With them those of their live twins that have not gone well: they would fail again without.
    """
    spec, most = experiment.spec, experiment.spec.sweep.repetitions
    well = {record.name for record in records if record.status == "ok"}
    failed = [r for r in records if r.name not in well and r.repetition >= most]
    wanted = {(key, r.repetition) for r in failed for key in _with_twins(experiment, [r.point])}
    if not wanted:
        return []
    repetitions = max(repetition for _, repetition in wanted) + 1
    runs = schedule(experiment.points, spec.sweep, spec.seed, repetitions)
    return [
        run for run in runs if (run.point.key, run.repetition) in wanted and run.name not in well
    ]


def _with_twins(experiment: LoadedExperiment, keys: Iterable[str]) -> set[str]:
    """Keys of points, and of the live ones by which some of them wake (datapath.experiment.twins).

    A simulated run takes what its twin measured in the same repetition.
    """
    known = {point.key: point for point in experiment.points}
    simulated = [known[key].spec for key in keys if twins.wants_twin(known[key].spec)]
    return {*keys, *(twins.twin_of(spec, experiment.points).key for spec in simulated)}


def _points(experiment: LoadedExperiment, verdict: claims.Verdict) -> list[str]:
    """Keys of the points that a claim is about."""
    return [
        point.key
        for point in experiment.points
        if any(matches(where, point.axes) for where in verdict.points)
    ]


def all_names(experiment: LoadedExperiment, repetitions: int) -> Iterable[str]:
    """Names of every run that there may be."""
    for point in experiment.points:
        for repetition in range(repetitions):
            yield Run(point, repetition, seed=0).name
