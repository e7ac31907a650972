# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The simulated runs of a sweep: handed out together, recorded one by one as they are done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from datapath import interrupts
from datapath.disk import disk_full
from datapath.errors import RemoteError, RunFailed
from datapath.experiment import counters, parallel, twins, wakeup
from datapath.experiment.store import RunRecord, error_entry
from datapath.experiment.sweep import Run

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.spec import PointSpec
    from datapath.experiment.store import ResultStore
    from datapath.experiment.sweep import Point


def make(
    experiment: LoadedExperiment,
    store: ResultStore,
    runs: Sequence[Run],
    *,
    dask: str | None,
    jobs: int | None,
) -> Iterator[tuple[Run, RunRecord]]:
    """Make simulated runs, several at once; each with its record as it is done.

    dask, jobs: as datapath.experiment.parallel has them.  The runs all count as started when they
    were handed out, so that the order of records does not depend on where they were made.
    """
    timeout_s = experiment.spec.sweep.timeout / 1e9
    collect, folder, travels = experiment.spec.collect, experiment.folder, dask is not None
    by_name = {run.name: run for run in runs}
    records = {run.name: RunRecord.begun(run) for run in runs}
    for record in records.values():
        record.started = next(iter(records.values())).started
    made = {record.name: record for record in store.records()}
    tasks = []
    for run in runs:
        record = records[run.name]
        try:
            spec = _as_its_twin(run, experiment.points, made)
            record.spec = spec.model_dump(mode="json")
            task = parallel.task(run, collect, folder, timeout_s, travels=travels, spec=spec)
            tasks.append(task)
        except RunFailed as error:
            _keep(store, record, parallel.Answer(error=error_entry(error)))
            yield run, record
    for task, answer in parallel.answers(tasks, dask=dask, jobs=jobs):
        interrupts.check()
        record = records[task.name]
        _keep(store, record, answer)
        yield by_name[task.name], record


def _as_its_twin(run: Run, points: Sequence[Point], made: Mapping[str, RunRecord]) -> PointSpec:
    """The settings of a simulated run, with what its live twin measured if it wants that.

    made: the runs that are done, by name.
    """
    spec = run.point.spec
    if not twins.wants_twin(spec):
        return spec
    twin = twins.twin_of(spec, points)
    record = made.get(Run(twin, run.repetition, seed=0).name)
    if record is None or record.status != "ok":
        raise RunFailed(f"its live twin, {twin.label}, has failed")
    topology = spec.topology.model_copy(update={"wakeup": wakeup.measured(record)})
    return spec.model_copy(update={"topology": topology})


def _keep(store: ResultStore, record: RunRecord, answer: parallel.Answer) -> None:
    """Complete the record of a simulated run and save it."""
    record.seconds = answer.seconds
    logs = store.logs(record.name)
    with disk_full(logs):
        try:
            parallel.write_logs(logs, answer, f"the worker of run {record.name}")
        except RemoteError as error:
            answer.error = error_entry(error)
    if answer.error is not None:
        record.status, record.error = "failed", answer.error
        store.save(record, {})
    else:
        record.notes |= answer.notes
        record.path_counters, record.series = answer.path_counters, answer.about_series
        record.metrics = counters.unique(
            [*answer.metrics, *counters.path_metrics(answer.path_counters)]
        )
        store.save(record, answer.samples, answer.series)
    store.event("run finished", run=record.name, status=record.status, error=record.error)
