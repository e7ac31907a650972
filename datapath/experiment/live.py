# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes one live run: programs on hosts, and measurements of the machine beside them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from datapath import foreign
from datapath.errors import DatapathError, RunFailed
from datapath.experiment import collecting, counters, cputime, measuring, preflight, witness
from datapath.experiment.cputime import CpuTime
from datapath.experiment.measuring import Conditions

if TYPE_CHECKING:
    from types import FrameType

    from datapath.cc import CompiledAlgorithm
    from datapath.experiment.spec import PointSpec
    from datapath.experiment.store import RunRecord
    from datapath.lanes.base import Network
    from datapath.workloads.base import Outcome

DEVICE = "dp0"
"""Name of the verbs device on every host."""

_GRACE_S = 10.0
"""A workload that has not ended this long after its time-out is stopped from outside."""


class TimedOut(BaseException):
    """The run's alarm; not an Exception, so that no workload can take it for its own."""


def measure(
    spec: PointSpec,
    open_network: Callable[[], Network],
    conditions: Conditions,
    algorithms: Mapping[str, CompiledAlgorithm],
    record: RunRecord,
) -> Outcome:
    """Run the point's workload and complete the record.

    algorithms: by preflight.cc_key().  Raises TimedOut when the run takes longer than the
    time-out and some grace; opening the network has limits of its own.
    """
    logs, collect = conditions.logs, conditions.collect
    network = open_network()
    with _alarm(conditions.timeout_s + _GRACE_S):
        measuring.set_up(network, spec, conditions.seed)
        environments = _device_env(spec, network, conditions, algorithms)
        with network.measuring() as use:
            begin = CpuTime.now()
            with (
                _fetching(network, logs),
                collecting.sampling(collect.request, network, logs, tcp=_sends_tcp(spec)),
                _user_xdp(spec, network, conditions.folder, record),
                _pacing(spec, network, logs, algorithms, record),
                _tcp(spec, network, conditions),
            ):
                outcome = measuring.run_workload(network, spec, conditions, environments)
            cpu = begin.since(local=network.local)
        path = network.path_counters()
        record.path_counters = asdict(path)
        record.emulator_late_ns = network.emulator_late_ns()
        record.cards = [dict(card) for card in network.card_counters()]
        if limit := path.limit():
            record.notes["path"] = limit
        if starved := use.limit():
            record.notes["cpu"] = starved
        if use.demoted:
            record.notes["polling"] = f"without real-time priority: {', '.join(use.demoted)}"
    metrics = list(outcome.metrics)
    metrics += counters.path_metrics(record.path_counters, limited="path" in record.notes)
    metrics += counters.card_metrics(record.cards)
    metrics += cpu + cputime.waited(use)
    if collect.counters:
        record.device = counters.device_statistics(logs)
        metrics += counters.device_metrics(record.device)
    record.series, derived = measuring.gather_series(outcome, spec, conditions)
    record.metrics = counters.unique(metrics + derived)
    return outcome


def cause(network: Network | None, error: BaseException) -> BaseException:
    """The error to tell of a failed run: a host that is gone explains what programs say.

    It outlasts the run's time-out, since a silent host counts as gone only after a while.
    """
    try:
        if network is not None:
            network.check_alive()
    except RunFailed as gone:
        return gone
    return error


def _sends_tcp(spec: PointSpec) -> bool:
    """Whether flows of the run are of the kernel's TCP."""
    device = spec.transport.device
    named = (cc.tcp for cc in spec.algorithms.values())
    return device == "kernel" or (device == "dp" and any(name is not None for name in named))


def _device_env(
    spec: PointSpec,
    network: Network,
    conditions: Conditions,
    algorithms: Mapping[str, CompiledAlgorithm],
) -> list[Mapping[str, str]]:
    """Environment of programs that use the verbs device, one for each host."""
    if spec.transport.device != "dp":
        return [{} for _ in network.hosts]
    from datapath.verbs.launch import device_environment

    algorithm = algorithms[preflight.cc_key(spec.cc)]
    collect, logs = conditions.collect, conditions.logs
    environments: list[Mapping[str, str]] = []
    for host in network.hosts:
        environment = device_environment(
            DEVICE,
            spec.transport.port_spec(
                host.endpoint.netdev, host.endpoint.ipv4, dated=host.endpoint.dated
            ),
            cc=algorithm.path,
            options=spec.transport.device_options(),
            base=None if network.local else {},
            place=host.provide,
        )
        if collect.counters:
            environment["DATAPATH_STATS"] = f"{host.outputs(logs)}/stats-{host.name}"
        if collect.request is not None:
            environment |= collecting.environment(collect.request, host, logs)
        environments.append(environment)
    return environments


@contextlib.contextmanager
def _user_xdp(spec: PointSpec, network: Network, folder: Path, record: RunRecord) -> Iterator[None]:
    """The user's own XDP program during the run; its maps' final values go to the record."""
    if spec.xdp is None:
        yield
        return
    from datapath.xdp.user import HookedNetwork, attach

    assert isinstance(network, HookedNetwork)  # preflight refuses the others
    source = foreign.beside(folder, spec.xdp.source)
    with attach(network, source, spec.xdp.hook) as program:
        yield
        record.xdp_maps, notes = program.read()
    for name, words in notes.items():
        record.notes[f"map {name}"] = words


@contextlib.contextmanager
def _pacing(
    spec: PointSpec,
    network: Network,
    logs: Path,
    algorithms: Mapping[str, CompiledAlgorithm],
    record: RunRecord,
) -> Iterator[None]:
    """The algorithm that paces rxe during the run."""
    if not preflight.paces(spec):
        yield
        return
    from datapath.lanes.pacing import pacing

    algorithm = algorithms[preflight.cc_key(spec.cc)].path
    with pacing(network.hosts, algorithm, logs, ecn=spec.transport.ecn) as told:
        yield
    for host, words in told.items():
        record.notes[f"pacing of {host}"] = words


def _tcp(spec: PointSpec, network: Network, conditions: Conditions) -> AbstractContextManager[None]:
    """The congestion control of the kernels' TCP during the run."""
    if spec.cc.tcp is None or not spec.topology.of_lane.local:
        return contextlib.nullcontext()
    from datapath.lanes.tcp_control import tcp_control

    return tcp_control(
        network.hosts,
        spec.cc.tcp,
        conditions.folder,
        conditions.logs,
        one_kernel=not spec.topology.of_lane.own_kernels,
    )


@contextlib.contextmanager
def _fetching(network: Network, logs: Path) -> Iterator[None]:
    """Fetch the programs' files into the logs; after a failure, as many as possible.

    Then also what the devices and the path counted.
    """
    try:
        yield
    except DatapathError:
        for host in network.hosts:
            with contextlib.suppress(DatapathError):
                host.fetch(logs)
        witness.save(network, logs)
        raise
    for host in network.hosts:
        host.fetch(logs)


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise TimedOut in the body when it takes longer."""

    def expired(_signum: int, _frame: FrameType | None) -> None:
        raise TimedOut

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
