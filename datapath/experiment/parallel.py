# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Simulated runs: many at once, on all cores of this machine or on those of a Dask cluster.

A run is a task that holds everything it depends on, so it gives the same numbers wherever it
is made: in this process, in another one, on another machine.  Its answer travels back whole,
and only the process that owns the result folder writes to it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datapath
from datapath import forked, lanes, scratch
from datapath.errors import DatapathError, LocalError, RunFailed, ending
from datapath.experiment import cluster, measuring, travelling
from datapath.experiment.measuring import Conditions
from datapath.experiment.pools import Workers
from datapath.experiment.spec import Collect, PointSpec
from datapath.experiment.store import error_entry
from datapath.experiment.sweep import Run
from datapath.names import plain_path
from datapath.workloads.base import Metric

if TYPE_CHECKING:
    import pandas as pd

ENDLESS = "the simulation has not come back"
KILLED = "a process of the simulation died"
"""How errors of runs begin that tell nothing of what was simulated; the hunt looks for them."""

_ENDING = (0, signal.SIGKILL, signal.SIGTERM)
"""Signals by which somebody, or the kernel without memory, ends a process; 0: it is not known."""

_SCRATCH = "datapath-simulated-"
_LOADED = ("pandas", "pyarrow", "datapath.fabric.simulator", "datapath.workloads.traffic.measure")
"""What a run imports late; here, a process does it once and not in each fork."""


@dataclass(frozen=True)
class Task:
    """One simulated run.

    spec, collect: the point and the collect section as JSON has them.  folder: where relative
    file names begin.  files: for a machine that does not have the folder, content of its files by
    the names that they get there, and that the spec has.
    """

    name: str
    spec: dict[str, Any]
    collect: dict[str, Any]
    seed: int
    traffic_seed: int
    folder: str
    timeout_s: float
    files: Mapping[str, bytes] = field(default_factory=dict)
    version: str = datapath.__version__


@dataclass
class Answer:
    """Result of a task.

    logs: content of files by name.  logs_in: the folder of these files while the task ran; texts of
    error may name it.  error: {message, hint} of a failure.
    """

    seconds: float = 0.0
    metrics: list[Metric] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    series: pd.DataFrame | None = None
    about_series: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    path_counters: dict[str, dict[str, int]] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    logs_in: str = ""
    error: dict[str, str] | None = None


def is_simulated(run: Run) -> bool:
    return run.point.spec.topology.of_lane.simulated


def task(
    run: Run,
    collect: Collect,
    folder: Path,
    timeout_s: float,
    *,
    travels: bool,
    spec: PointSpec | None = None,
) -> Task:
    """The task of a run.

    travels: to a machine that does not have the experiment's folder; RunFailed for a file that is
    gone.  spec: its settings; None: those of its point.
    """
    spec = spec or run.point.spec
    plain, files = (
        travelling.packed(spec, folder) if travels else (spec.model_dump(mode="json"), {})
    )
    return Task(
        run.name,
        plain,
        collect.model_dump(mode="json"),
        run.seed,
        run.traffic_seed,
        str(folder),
        timeout_s,
        files,
    )


def measure(task: Task) -> Answer:
    """Make one run, in a fork of this process; an error becomes part of the answer."""
    begin = time.monotonic()
    for name in _LOADED:
        importlib.import_module(name)
    with scratch.folder(_SCRATCH) as temporary:
        logs = temporary / "logs"
        logs.mkdir()
        try:
            attempt = functools.partial(_attempt, task, logs, temporary)
            answer = forked.call(attempt, temporary / "answer")
        except forked.Overdue:
            answer = Answer(error=error_entry(_overdue()))
        except forked.Died as error:
            answer = Answer(error=error_entry(_died(error.signal)))
            if str(error) and logs.is_dir():
                (logs / "traceback.txt").write_text(str(error), encoding="utf-8")
        answer.logs = {
            str(path.relative_to(logs)): path.read_bytes()
            for path in sorted(logs.rglob("*"))
            if path.is_file()
        }
        answer.logs_in = str(logs)
    answer.seconds = round(time.monotonic() - begin, 6)
    return answer


def _attempt(task: Task, logs: Path, temporary: Path) -> Answer:
    answer = Answer()
    try:
        _measure(task, answer, logs, temporary)
    except DatapathError as error:
        answer.error = error_entry(error)
    except Exception as error:  # a mistake in a workload must not cost the sweep
        answer.error = error_entry(error)
        (logs / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
    return answer


def _overdue() -> RunFailed:
    return RunFailed(
        f"{ENDLESS} within {forked.LATE_S} s after its time-out",
        hint="does each loop of the algorithm end?",
    )


def _died(signum: int = 0) -> RunFailed:
    """Of a process that gave no answer; signum: the signal that killed it, 0: not known."""
    if signum not in _ENDING:
        return RunFailed(
            f"the process of the simulation {ending(-signum)}",
            hint="if nobody sent it, datapath made a mistake: the same file and seed show it again",
        )
    return RunFailed(
        KILLED,
        hint="it may have run out of memory: see dmesg, and try --jobs 1",
    )


def _measure(task: Task, answer: Answer, logs: Path, temporary: Path) -> None:
    if task.version != datapath.__version__:
        raise LocalError(
            f"this machine has datapath {datapath.__version__}, the sweep {task.version}",
            hint="install the same version on the workers",
        )
    spec, folder = PointSpec.model_validate(task.spec), Path(task.folder)
    if task.files:
        travelling.unpack(task.files, temporary)
        folder = temporary
    collect = Collect.model_validate(task.collect)
    conditions = Conditions(
        collect=collect,
        folder=folder,
        logs=logs,
        seed=task.seed,
        traffic_seed=task.traffic_seed,
        timeout_s=task.timeout_s,
    )
    network = lanes.open_network(spec.topology, spec.path, folder=folder)
    measuring.set_up(network, spec, task.seed)
    with network:
        outcome = measuring.run_workload(network, spec, conditions, [{} for _ in network.hosts])
        answer.path_counters = asdict(network.path_counters())
    answer.about_series, derived = measuring.gather_series(outcome, spec, conditions)
    answer.metrics, answer.notes = [*outcome.metrics, *derived], dict(outcome.notes)
    answer.samples = outcome.samples if collect.samples else {}
    if collect.request is not None:
        answer.series = outcome.series


def write_logs(folder: Path, answer: Answer, source: str) -> None:
    """Keep a worker's logs; RemoteError (and nothing written) for a name that leads out.

    An error that names the folder in which they were names this one then.
    """
    logs = {folder / plain_path(name, source): data for name, data in answer.logs.items()}
    for path, content in logs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if answer.error is not None and answer.logs_in:
        answer.error = {
            key: text.replace(answer.logs_in, str(folder)) for key, text in answer.error.items()
        }


# --- where tasks are made --------------------------------------------------------------------


def answers(
    tasks: Sequence[Task], *, dask: str | None = None, jobs: int | None = None
) -> Iterator[tuple[Task, Answer]]:
    """Tasks with their answers, as they come.

    dask: address of a scheduler; unset: this machine.  jobs: processes, unset: one for each CPU.
    """
    if dask is not None:
        for task, made in cluster.made(measure, tasks, dask):
            yield task, made if isinstance(made, Answer) else Answer(error=error_entry(made))
        return
    with workers(jobs, most=len(tasks)) as processes:
        for at, answer in processes.made(measure, tasks):
            yield tasks[at], died() if answer is None else answer


@contextlib.contextmanager
def workers(jobs: int | None, *, most: int | None = None) -> Iterator[Workers]:
    """Processes of this machine that make runs.

    jobs: how many; None: one for each CPU.  most: the tasks that there are, if that is known.
    """
    count = jobs or len(os.sched_getaffinity(0))
    try:
        with Workers(count if most is None else min(count, most)) as processes:
            yield processes
    except BaseException:  # the processes were killed
        scratch.remove_old(_SCRATCH)
        raise


def died() -> Answer:
    """The answer to a task whose process died."""
    return Answer(error=error_entry(_died()))
