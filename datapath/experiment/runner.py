# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes the runs of an experiment, one after the other, and leaves a result folder.

Theory of operation.  Points whose topologies differ at most in settings that virtual cards take at
any time share one network, which is built when the first of them comes up and kept to the end; per
run these settings and the path are set.  A run that fails is recorded and the sweep goes on, but
its network is taken down, since programs of the failed run may still be in it.  A run that finished
counts from the moment its record is renamed into place; everything else is made again by
`--resume`.  SIGINT, SIGTERM and SIGHUP end the sweep between two instructions, take the networks
down and leave a folder that can be resumed; a second signal meanwhile is ignored.
"""

from __future__ import annotations

import functools
import subprocess
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from datapath import interrupts, lanes
from datapath.disk import DiskFull, disk_full
from datapath.errors import DatapathError, RemoteError, RunFailed
from datapath.experiment import (
    claims,
    counters,
    deciding,
    live,
    manifest,
    parallel,
    preflight,
    remarks,
    targets,
    twins,
    wakeup,
)
from datapath.experiment.measuring import Conditions
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
from datapath.lanes.entrance import Entrance
from datapath.workloads.base import Outcome

if TYPE_CHECKING:
    from datapath.cc import CompiledAlgorithm
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.spec import PointSpec
    from datapath.lanes.base import Network


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
    preflight.check(experiment)
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
        try:
            with interrupts.restored():
                with sweep:
                    further = functools.partial(
                        deciding.next_round, experiment, store, observer, planned, most
                    )
                    while pending := pending or further():
                        sweep.make(pending, dask=dask, jobs=jobs)
                        pending = []
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
    """The networks that are up, and how one run is made in one of them."""

    def __init__(
        self,
        experiment: LoadedExperiment,
        store: ResultStore,
        algorithms: Mapping[str, CompiledAlgorithm],
        observer: Observer,
    ) -> None:
        self.observer = observer
        self.told: set[str] = set()
        self.experiment = experiment
        self.store = store
        self.algorithms = algorithms
        self.networks: dict[str, Network] = {}
        self.described: set[str] = set()
        self.opened = 0
        self.done = 0
        self.entrance: Entrance | None = None
        self.retakes = Retakes(experiment.spec.sweep.retakes)

    def __enter__(self) -> _Sweep:
        return self

    def __exit__(self, *exc: object) -> None:
        for key in list(self.networks):
            self._close(key)
        if self.entrance is not None:
            self.entrance.close()

    # --- networks ---

    def _network(self, spec: PointSpec) -> Network:
        key = _network_key(spec)
        if key not in self.networks:
            self.opened += 1
            logs = self.store.path / "logs" / f"network-{self.opened}"
            network = lanes.open_network(spec.topology, spec.path, logs, self.experiment.folder)
            self.networks[key] = network.__enter__()
        (network := self.networks[key]).set_cards(spec.topology)
        if (whole := spec.topology.model_dump_json() + key) not in self.described:
            self.described.add(whole)
            self._describe(spec, network)
        return network

    def _describe(self, spec: PointSpec, network: Network) -> None:
        """Add a network to the manifest, once for each topology."""
        data = self.store.read_manifest()
        entry = {"topology": spec.topology.model_dump(mode="json"), **network.describe()}
        if entry not in data["networks"]:
            data["networks"].append(entry)
            self.store.write("manifest.json", to_json(data))
        self.store.event("network up", topology=entry["topology"])
        cpu = cast(Mapping[str, Any], entry.get("cpu", {}))
        for trouble in cpu.get("trouble", []):
            if trouble not in self.told:
                self.told.add(trouble)
                self.observer.told(trouble)

    def _close(self, key: str) -> None:
        network = self.networks.pop(key)
        try:
            if self.entrance is not None:
                self.entrance.leave(network)
        finally:
            network.__exit__(None, None, None)
        self.store.event("network down")

    def _recover(self, key: str) -> None:
        """Remove the remains of a failed run before the next one."""
        network = self.networks.get(key)
        if network is not None and not network.recover():
            self._close(key)

    def _entered(self, run: Run) -> Network:
        """The network of a live run, which other processes may visit from now on."""
        network = self._network(run.point.spec)
        if self.entrance is None:
            about = {"experiment": self.experiment.spec.name, "folder": str(self.store.path)}
            self.entrance = Entrance(about)
        spec, told = run.point.spec, {"run": run.name, "point": run.point.label, "done": self.done}
        self.entrance.now(network, **told, lane=spec.topology.lane, afxdp=spec.transport.uses_afxdp)
        return network

    # --- all runs ---

    def make(self, runs: Sequence[Run], *, dask: str | None, jobs: int | None) -> None:
        """Make runs: the live ones one by one, then the simulated ones."""
        for run in runs:
            interrupts.check()
            if not parallel.is_simulated(run):
                self.observer.started(run)
                self.observer.finished(run, self.run(run))
                self.done += 1
        simulated = list(filter(parallel.is_simulated, runs))
        for run, record in self.simulate(simulated, self.observer, dask=dask, jobs=jobs):
            self.observer.finished(run, record)

    # --- simulated runs ---

    def simulate(
        self, runs: Sequence[Run], observer: Observer, *, dask: str | None, jobs: int | None
    ) -> Iterator[tuple[Run, RunRecord]]:
        """Make simulated runs, several at once; each with its record as it is done.

        They all count as started when they were handed out, so that the order of records does
        not depend on where they were made.
        """
        spec = self.experiment.spec
        timeout_s = spec.sweep.timeout / 1e9
        by_name = {run.name: run for run in runs}
        for run in runs:
            self._network(run.point.spec)  # for the manifest
            observer.started(run)
        folder, travels = self.experiment.folder, dask is not None
        records = {run.name: _record(run) for run in runs}
        for record in records.values():
            record.started = next(iter(records.values())).started
        made = {record.name: record for record in self.store.records()}
        tasks = []
        for run in runs:
            record = records[run.name]
            try:
                point = self._as_its_twin(run, made)
                record.spec = point.model_dump(mode="json")
                tasks.append(
                    parallel.task(run, spec.collect, folder, timeout_s, travels=travels, spec=point)
                )
            except RunFailed as error:
                self._keep(record, parallel.Answer(error=error_entry(error)))
                yield run, record
        for task, answer in parallel.answers(tasks, dask=dask, jobs=jobs):
            interrupts.check()
            record = records[task.name]
            self._keep(record, answer)
            yield by_name[task.name], record

    def _as_its_twin(self, run: Run, made: Mapping[str, RunRecord]) -> PointSpec:
        """The settings of a simulated run, with what its live twin measured if it wants that.

        made: the runs that are done, by name.
        """
        spec = run.point.spec
        if not twins.wants_twin(spec):
            return spec
        twin = twins.twin_of(spec, self.experiment.points)
        record = made.get(Run(twin, run.repetition, seed=0).name)
        if record is None or record.status != "ok":
            raise RunFailed(f"its live twin, {twin.label}, has failed")
        topology = spec.topology.model_copy(update={"wakeup": wakeup.measured(record)})
        return spec.model_copy(update={"topology": topology})

    def _keep(self, record: RunRecord, answer: parallel.Answer) -> None:
        """Complete the record of a simulated run and save it."""
        record.seconds = answer.seconds
        logs = self.store.logs(record.name)
        with disk_full(logs):
            try:
                parallel.write_logs(logs, answer, f"the worker of run {record.name}")
            except RemoteError as error:
                answer.error = error_entry(error)
        if answer.error is not None:
            record.status, record.error = "failed", answer.error
            self.store.save(record, {})
        else:
            record.notes |= answer.notes
            record.path_counters, record.series = answer.path_counters, answer.about_series
            record.metrics = counters.unique(
                [*answer.metrics, *counters.path_metrics(answer.path_counters)]
            )
            self.store.save(record, answer.samples, answer.series)
        self.store.event("run finished", run=record.name, status=record.status, error=record.error)

    # --- one run ---

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
            self._recover(_network_key(run.point.spec))
        return record

    def _attempt(self, run: Run) -> tuple[RunRecord, Outcome]:
        """Make a run once; a failure becomes its record, not an exception."""
        record = _record(run)
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
        network = self.networks.get(_network_key(run.point.spec))
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
        network = functools.partial(self._entered, run)
        return live.measure(spec, network, conditions, self.algorithms, record)


def _record(run: Run) -> RunRecord:
    """Of a run that begins now."""
    return RunRecord(
        point=run.point.key,
        repetition=run.repetition,
        block=run.repetition,
        axes=dict(run.point.axes),
        seed=run.seed,
        status="ok",
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seconds=0.0,
        spec=run.point.spec.model_dump(mode="json"),
    )


def _network_key(spec: PointSpec) -> str:
    """Points with the same key can share a network."""
    return f"{spec.topology.network.model_dump_json()} {spec.path.carrier}"
