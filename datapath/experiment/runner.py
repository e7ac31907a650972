# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes the runs of an experiment, one after the other, and leaves a result folder.

Theory of operation.  A run that fails is recorded and the sweep goes on.  A run that finished
counts from the moment its record is renamed into place; everything else is made again by
`--resume`.  SIGINT, SIGTERM and SIGHUP end the sweep between two instructions, take the networks
down and leave a folder that can be resumed; a second signal meanwhile is ignored.
"""

from __future__ import annotations

import functools
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from datapath import interrupts
from datapath.disk import DiskFull, disk_full
from datapath.errors import DatapathError, RunFailed
from datapath.experiment import (
    claims,
    deciding,
    live,
    manifest,
    parallel,
    preflight,
    remarks,
    resumed,
    simulated,
    targets,
)
from datapath.experiment.measuring import Conditions
from datapath.experiment.open_networks import OpenNetworks
from datapath.experiment.retakes import Retakes
from datapath.experiment.store import (
    ResultStore,
    RunRecord,
    error_entry,
    to_json,
    to_yaml,
)
from datapath.experiment.sweep import Run, schedule
from datapath.interrupts import Interrupted, ending_signals
from datapath.workloads.base import Outcome

if TYPE_CHECKING:
    from datapath.cc import CompiledAlgorithm
    from datapath.experiment.load import LoadedExperiment


REPETITIONS_MOST = 1000
"""More repetitions than this decide nothing that people would wait for."""


class Observer(Protocol):
    """Shows the progress of a sweep."""

    def begin(self, total: int, done: int) -> None: ...
    def started(self, run: Run) -> None: ...
    def finished(self, run: Run, record: RunRecord) -> None: ...
    def told(self, text: str) -> None: ...
    def more(self, count: int) -> None: ...
    def close(self) -> None: ...


@dataclass
class Result:
    """The result of a sweep."""

    folder: Path
    records: list[RunRecord]
    verdicts: list[claims.Verdict] = field(default_factory=list)

    @property
    def failed_runs(self) -> int:
        return sum(record.status != "ok" for record in self.records)

    @property
    def failed_claims(self) -> int:
        return sum(not verdict.passed for verdict in self.verdicts)


def execute(
    experiment: LoadedExperiment,
    store: ResultStore,
    observer: Observer,
    *,
    argv: Sequence[str],
    resume: bool = False,
    dask: str | None = None,
    jobs: int | None = None,
    most: int = 0,
) -> Result:
    """Make all runs that are not there yet, then the tables and the verdicts.

    dask, jobs: where simulated runs are made, as datapath.experiment.parallel has them.
    most: repetitions of a point, at most, to decide claims; 0: those of the sweep, or what a
    folder that is resumed was begun with, which is never made less.

    Raises Lacking before anything is built when the machine cannot, LocalError for an
    algorithm that does not compile, and Interrupted (with the folder left resumable).
    """
    preflight.check(experiment, store.path)
    algorithms = preflight.compile_algorithms(experiment)
    runs = schedule(experiment.points, experiment.spec.sweep, experiment.spec.seed)
    with store, ending_signals():
        if resume:
            store.event("resumed", argv=list(argv))
            most = _most_recorded(store, most)
        else:
            _begin(experiment, store, argv, len(runs), most)
        repetitions = max(most, experiment.spec.sweep.repetitions)
        planned = set(deciding.all_names(experiment, repetitions))
        before = [record for record in store.records() if record.name in planned]
        runs += deciding.failed_further(experiment, before)
        finished = {record.name for record in before if record.status == "ok"}
        pending = [run for run in runs if run.name not in finished]
        observer.begin(len(finished) + len(pending), len(finished))
        for remark in [*targets.remarks(experiment, algorithms), *remarks.remarks(experiment)]:
            observer.told(remark)
        sweep = _Sweep(experiment, store, algorithms, observer)
        further = functools.partial(deciding.next_round, experiment, store, observer, planned, most)
        try:
            with interrupts.restored():
                with sweep.networks:
                    first = pending or further()
                    for remark in _resumed(store, argv) if resume and first else ():
                        observer.told(remark)
                    sweep.make_rounds(first, further, dask=dask, jobs=jobs)
                    interrupts.check()
                records = [record for record in store.records() if record.name in planned]
                return _finish(experiment, store, records)
        except Interrupted as signalled:
            store.event("interrupted", signal=str(signalled))
            raise


def _most_recorded(store: ResultStore, most: int) -> int:
    """What the folder was begun with, or `most`, which it has from now on."""
    about = store.read_manifest()
    before = about.get("repetitions_most", 0)
    if not isinstance(before, int) or not 0 <= before <= REPETITIONS_MOST:
        before = 0
    if most <= before:
        return before
    store.write("manifest.json", to_json(about | {"repetitions_most": most}))
    return most


def _resumed(store: ResultStore, argv: Sequence[str]) -> list[str]:
    """Note in the manifest what makes the runs from now on; returns what differs, in words."""
    about = resumed.added(store.read_manifest(), manifest.resumption(list(argv)))
    store.write("manifest.json", to_json(about))
    return resumed.differences(about)


def _begin(
    experiment: LoadedExperiment,
    store: ResultStore,
    argv: Sequence[str],
    runs_planned: int,
    most: int,
) -> None:
    store.write("experiment.yaml", experiment.text.encode())
    store.write("resolved.yaml", to_yaml(experiment.resolved))
    about = manifest.build(experiment, list(argv), runs_planned) | {"repetitions_most": most}
    store.write("manifest.json", to_json(about))
    store.event("started", argv=list(argv), runs=runs_planned)


def _finish(experiment: LoadedExperiment, store: ResultStore, records: list[RunRecord]) -> Result:
    store.assemble(records, [axis.name for axis in experiment.axes])
    verdicts = claims.evaluate(experiment, records)
    store.write("claims.json", to_json([verdict.as_json() for verdict in verdicts]))
    result = Result(store.path, records, verdicts)
    store.event("finished", failed_runs=result.failed_runs, failed_claims=result.failed_claims)
    return result


class _Sweep:
    """How the runs of a sweep are made, in networks that are up meanwhile."""

    def __init__(
        self,
        experiment: LoadedExperiment,
        store: ResultStore,
        algorithms: Mapping[str, CompiledAlgorithm],
        observer: Observer,
    ) -> None:
        self.experiment = experiment
        self.store = store
        self.algorithms = algorithms
        self.observer = observer
        self.networks = OpenNetworks(experiment, store, observer.told)
        self.done = 0
        self.retakes = Retakes(experiment.spec.sweep.retakes)

    def make_rounds(
        self,
        runs: Sequence[Run],
        further: Callable[[], Sequence[Run]],
        *,
        dask: str | None,
        jobs: int | None,
    ) -> None:
        """Make runs, then those that `further` wants, until it wants none."""
        while runs:
            self.make(runs, dask=dask, jobs=jobs)
            runs = further()

    def make(self, runs: Sequence[Run], *, dask: str | None, jobs: int | None) -> None:
        """Make runs: the live ones one by one, then the simulated ones."""
        for run in runs:
            interrupts.check()
            if not parallel.is_simulated(run):
                self.observer.started(run)
                self.observer.finished(run, self.run(run))
                self.done += 1
        simulation = list(filter(parallel.is_simulated, runs))
        for run in simulation:
            self.networks.network(run.point.spec)  # for the manifest
            self.observer.started(run)
        made = simulated.make(self.experiment, self.store, simulation, dask=dask, jobs=jobs)
        for run, record in made:
            self.observer.finished(run, record)

    def run(self, run: Run) -> RunRecord:
        """Make one run, again if this machine's CPUs did not suffice, and save its record."""
        record, outcome = self._attempt(run)
        retakes = 0
        while record.status == "ok" and record.cpu_limit and retakes < self.retakes.most:
            self.store.event("run retaken", run=run.name, because=record.cpu_limit)
            retakes += 1
            record, outcome = self._attempt(run)
        if retakes:
            record.notes["retakes"] = str(retakes)
        if record.status == "ok":
            if self.retakes.note(retakes, bool(record.cpu_limit)):
                self.observer.told(
                    "retakes have helped no run for a while: the CPUs do not suffice for this "
                    "sweep, and a run is now made again once"
                )
            samples = outcome.samples if self.experiment.spec.collect.samples else {}
            self.store.save(record, samples, outcome.series)
        else:
            self.store.save(record, {})
        self.store.event("run finished", run=run.name, status=record.status, error=record.error)
        if record.status != "ok":
            self.networks.recover(run.point.spec)
        return record

    def _attempt(self, run: Run) -> tuple[RunRecord, Outcome]:
        """Make a run once; a failure becomes its record, not an exception."""
        record = RunRecord.begun(run)
        self.store.event("run started", run=run.name, axes=record.axes)
        logs = self.store.logs(run.name)
        begin = time.monotonic()
        outcome = Outcome()
        try:
            with disk_full(logs):
                outcome = self._measure(run, record, logs)
        except DiskFull:
            raise  # the next run would fare no better
        except (DatapathError, subprocess.TimeoutExpired, live.TimedOut) as error:
            self._failed(run, record, error)
        except Exception as error:  # a mistake in a workload must not cost the sweep
            (logs / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
            self._failed(run, record, error)
        record.seconds = round(time.monotonic() - begin, 6)
        record.notes |= outcome.notes
        return record, outcome

    def _failed(self, run: Run, record: RunRecord, error: BaseException) -> None:
        interrupts.check()
        record.status = "failed"
        record.metrics = []
        if isinstance(error, (live.TimedOut, subprocess.TimeoutExpired)):
            seconds = self.experiment.spec.sweep.timeout / 1e9
            hint = f"see logs/{run.name}, or raise sweep.timeout"
            error = RunFailed(f"not done after {seconds:g} s", hint=hint)
        network = self.networks.of(run.point.spec)
        record.error = error_entry(live.cause(network, error))

    def _measure(self, run: Run, record: RunRecord, logs: Path) -> Outcome:
        spec = run.point.spec
        conditions = Conditions(
            collect=self.experiment.spec.collect,
            folder=self.experiment.folder,
            logs=logs,
            seed=run.seed,
            traffic_seed=run.traffic_seed,
            timeout_s=self.experiment.spec.sweep.timeout / 1e9,
        )
        network = functools.partial(self.networks.entered, run, self.done)
        return live.measure(spec, network, conditions, self.algorithms, record)
