# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The sim lane: the engine and the link model in virtual time, on one core and without root.

Hosts have names and addresses, but run no programs: a workload hands its traffic table to
simulate().  What becomes of the sections is in shape.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NoReturn

from datapath.cc.spec import Cc, HostCc
from datapath.errors import LocalError, RunFailed
from datapath.fabric.failures import Deadlock, TimeStandsStill
from datapath.lanes.base import CpuUse, Endpoint, PathCounters, Process, paired
from datapath.lanes.link_events import Watched
from datapath.lanes.shape import (
    DATA_CLASS,
    DRAWN_NODES_MAX,
    described,
    link_rates_bps,
    refuse_infinite,
    refuse_lossless,
    refuse_path,
    refuse_shared_aqm,
    shape,
    traffic_classes,
)
from datapath.lanes.sim_options import engine_options
from datapath.lanes.spec import ONE_PATH, Path, Topology
from datapath.lanes.wakeup_spec import HostWakeup
from datapath.xdp.impair import DIRECTIONS

if TYPE_CHECKING:
    import subprocess

    import pandas as pd

    from datapath.fabric.changes import SetAlgorithm
    from datapath.fabric.engine_options import EngineOptions
    from datapath.fabric.flows import FlowResults, Flows
    from datapath.fabric.sim_result import Sampling, SimResult
    from datapath.fabric.simulator import Simulation
    from datapath.fabric.steps import Steps
    from datapath.fabric.topology import Graph
    from datapath.fabric.wakeup import Wakeup
    from datapath.lanes.event_spec import Event
    from datapath.lanes.happening import Watch
    from datapath.series import Request
    from datapath.verbs.spec import Transport

_TRACE_EVENTS = 64
_COUNTED = (
    *("overflowed", "policed", "aqm_dropped", "shaped"),
    *("marked", "corrupted", "trimmed", "duplicated", "reordered"),
)
_LINK_SERIES = ("queue_bytes", "marked_packets")
"""Columns of links, as the emulator writes them."""
_NO_PROGRAMS = "hosts of lane sim run no programs"


@dataclass(frozen=True)
class SimHost:
    """A name and an address; there is nothing that a program could run on."""

    name: str
    endpoint: Endpoint

    @property
    def cpus(self) -> Sequence[int]:
        return ()

    @property
    def shared_files(self) -> bool:
        return False

    def has_program(self, name: str) -> bool:
        return False

    def provide(self, path: FilePath) -> str:
        return str(path)

    def outputs(self, folder: FilePath) -> str:
        return str(folder)

    def fetch(self, folder: FilePath) -> None:
        """Nothing is written elsewhere."""

    def popen(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: FilePath | None = None,
        stderr: FilePath | None = None,
        cpus: Collection[int] | None = None,
        busy: bool = False,
    ) -> Process:
        self._refuse()

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LocalError(
            _NO_PROGRAMS, hint="use a workload that it can simulate: stream, flows, incast ..."
        )


@dataclass
class Simulated:
    """The answer of a simulation: the flows' results, and the table of datapath.series."""

    flows: FlowResults
    frame: pd.DataFrame | None
    result: SimResult

    @property
    def qps(self) -> Mapping[str, int]:
        """Counters summed over all QPs."""
        return self.result.qps

    @property
    def end_ns(self) -> int:
        """Of the simulated time."""
        return self.result.totals["now_ns"]

    @property
    def link_bytes(self) -> Any:
        """That each link carried, with all that belongs to its packets on the wire."""
        return self.result.links["delivered_bytes"]


def _is_narrow(graph: Graph) -> bool:
    """Whether some link carries shorter packets than its ends believe."""
    links = (link for cable in graph.cables for link in (cable.forward, cable.backward))
    return any("max_packet" in dict(link.impairments) for link in links)


def _run_failed(error: Deadlock) -> RunFailed:
    hint = error.hint
    if isinstance(error, TimeStandsStill):
        hint = f"set topology.host_rate, the rate of the hosts' links; or {hint}"
    return RunFailed(str(error), hint=hint)


class SimNetwork:
    """A simulated network, as a context manager; implements datapath.lanes.base.Network."""

    def __init__(self, topology: Topology, path: Path, folder: FilePath | None = None) -> None:
        self.topology = topology
        self.folder = FilePath() if folder is None else folder
        self.path = path
        self._counters = PathCounters()
        self.hosts = [
            SimHost(name, Endpoint("sim0", _ipv4(i), _ipv6(i), topology.mtu))
            for i, name in enumerate(topology.host_names)
        ]
        refuse_path(path, topology.preset)
        refuse_infinite(topology, path)
        refuse_lossless(topology, path)
        refuse_shared_aqm(topology, path)
        shape(topology, path)

    def __enter__(self) -> SimNetwork:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing outlives simulate()."""

    @property
    def local(self) -> bool:
        return False

    @property
    def pairs(self) -> list[tuple[SimHost, SimHost]]:
        """(client, server) across the path."""
        return paired(self.hosts, self.topology.preset)

    def prepare(self, device: str) -> None:
        if device != "dp":
            raise LocalError(f"lane sim has no device {device}", hint="use transport: {device: dp}")

    def check_alive(self) -> None:
        """Hosts do not end here."""

    def recover(self) -> bool:
        """There is nothing that a failed run could leave."""
        return True

    def set_path(self, path: Path, seed: int, *, held: bool = False) -> None:
        refuse_path(path, self.topology.preset)
        refuse_infinite(self.topology, path)
        refuse_lossless(self.topology, path)
        refuse_shared_aqm(self.topology, path)
        self.path = path
        self._counters = PathCounters()

    def change_path(self, zero_ns: int, events: Sequence[Event], since_ns: int = 0) -> None:
        """Nothing happens in real time."""
        raise LocalError("lane sim changes its path in virtual time", hint="use simulate(watch=)")

    def path_counters(self) -> PathCounters:
        """Counters of the last simulation, for the links that the path section is about."""
        return self._counters

    def link_counters(self) -> dict[str, dict[str, int]]:
        """No link of its path can be asked."""
        return {}

    def queue_peaks(self) -> dict[str, int]:
        """No queue of its path can be asked."""
        return {}

    def set_cards(self, topology: Topology) -> None:
        """Its hosts have no cards."""

    def card_counters(self) -> Sequence[Mapping[str, Any]]:
        """Its hosts have no cards."""
        return []

    def sampled_cards(
        self, logs: FilePath, interval_ns: int, max_bytes: int, most: int
    ) -> AbstractContextManager[None]:
        """Its hosts have no cards."""
        return nullcontext()

    def emulator_late_ns(self) -> dict[str, int]:
        """No program emulates its path."""
        return {}

    def measuring(self) -> AbstractContextManager[CpuUse]:
        """In virtual time nothing waits for a CPU."""
        return nullcontext(CpuUse())

    def sampled_path(
        self, prefix: FilePath, interval_ns: int, max_bytes: int
    ) -> AbstractContextManager[None]:
        """simulate() gives the queues itself."""
        return nullcontext()

    def describe(self) -> dict[str, object]:
        graph = shape(self.topology, self.path).graph()
        return {
            "lane": "sim",
            "preset": self.topology.preset,
            "backend": "sim",
            "backend_reason": "lane sim: the engine and the link model in virtual time",
            "hosts": graph.hosts,
            "switches": graph.switches,
            "links": 2 * len(graph.cables),
            "graph": described(self.topology) if len(graph.names) <= DRAWN_NODES_MAX else {},
        }

    # --- questions of workloads ---

    @property
    def link_rates_bps(self) -> list[float]:
        """As shape.link_rates_bps()."""
        return link_rates_bps(self.topology, self.path)

    @property
    def graph(self) -> Graph:
        """The network before any event."""
        return shape(self.topology, self.path).graph()

    def simulate(
        self,
        flows: Flows,
        *,
        transport: Transport,
        cc: Cc,
        algorithms: Sequence[Cc] = (),
        watch: Watch | None = None,
        steps: Steps | None = None,
        seed: int,
        until_ns: int | None = None,
        series: Request | None = None,
        logs: FilePath | None = None,
        spin_ns: int | None = 0,
        timeout_s: float | None = None,
    ) -> Simulated:
        """Run a traffic table.

        transport, cc: the sections of the experiment.  algorithms: those that rows name in their
        column `cc`, from 1; other rows have that of cc.  watch: the events; those of links, the
        path and hosts are made.  steps: work of hosts that begins flows and waits for them.  logs:
        folder for the case and the trace of a simulation that breaks.  spin_ns: how long programs
        poll after a completion before they sleep; None: they never sleep.  timeout_s: seconds of
        this machine's time after which it gives up; None: never.  RunFailed when it deadlocks.
        """
        from datapath.fabric.simulator import Simulation

        simulation = Simulation(
            shape(self.topology, self.path),
            seed=seed,
            transport=self._engine_options(transport),
            wakeup=self._wakeup(spin_ns),
        )
        sampling = self._sampling(simulation, flows, series)
        compiled = self._compiled([cc, *algorithms])
        first, changes = self._algorithms(compiled, flows)
        try:
            result = simulation.run(
                flows,
                first,
                changes=changes,
                watcher=self._watched(watch, compiled),
                until_ns=until_ns,
                sampling=sampling,
                steps=steps,
                trace_events=_TRACE_EVENTS if len(flows) <= 10_000 else 0,
                keep=logs,
                timeout_s=timeout_s,
            )
        except Deadlock as error:
            raise _run_failed(error) from error
        self._counters = self._count(result)
        return Simulated(result.flows, _frame(result) if sampling else None, result)

    def _engine_options(self, transport: Transport) -> EngineOptions:
        trims = self.path.link("forward").trim or self.path.link("backward").trim
        return engine_options(
            transport,
            self.topology.mtu,
            int(self.link_rates_bps[0]),
            data_class=DATA_CLASS if trims or self.topology.lossless else 0,
            classes=traffic_classes(self.path),
            preset=not _is_narrow(self.graph),
        )

    def _watched(self, watch: Watch | None, compiled: Sequence[Any]) -> Watched | None:
        return None if watch is None else Watched(self.topology, self.path, watch, compiled)

    def _wakeup(self, spin_ns: int | None) -> Wakeup | None:
        given = self.topology.wakeup
        if given is None or spin_ns is None:
            return None
        if not isinstance(given, HostWakeup):
            raise RunFailed("topology.wakeup is live, and no live run was made")
        return given.setting(spin_ns, emulated=self.topology.preset in ONE_PATH)

    def _compiled(self, sections: Sequence[Cc]) -> list[Any]:
        """The algorithms of sections of the experiment."""
        from datapath.cc import compile_algorithm

        ours = [cc.simulated if isinstance(cc, HostCc) else cc for cc in sections]
        return [compile_algorithm(cc.located(self.folder), cc.params) for cc in ours]

    def _algorithms(
        self, compiled: Sequence[Any], flows: Flows
    ) -> tuple[list[Any], list[SetAlgorithm]]:
        """The algorithm with which each row's QP begins, and changes of it by later rows."""
        from datapath.fabric.changes import SetAlgorithm

        first: dict[tuple[int, int, int], int] = {}
        now: dict[tuple[int, int, int], int] = {}
        rows, changes = [], []
        for row, flow in enumerate(flows):
            qp = (int(flow["src"]), int(flow["dst"]), int(flow["qp"]))
            cc = int(flow["cc"])
            rows.append(compiled[first.setdefault(qp, cc)])
            if cc and cc != now.setdefault(qp, first[qp]):
                now[qp] = cc
                changes.append(SetAlgorithm(int(flow["start_ns"]), compiled[cc], (row,)))
        return rows, changes

    def _sampling(
        self, simulation: Simulation, flows: Flows, series: Request | None
    ) -> Sampling | None:
        """The first QPs, and the queues of up to as many links between switches or to hosts."""
        from datapath.fabric.sim_result import Sampling

        if series is None:
            return None
        first: dict[tuple[int, int, int], int] = {}
        for row, flow in enumerate(flows):
            key = (int(flow["src"]), int(flow["dst"]), int(flow["qp"]))
            if len(first) < series.qps or key in first:
                first.setdefault(key, row)
        graph = simulation.graph
        hosts = set(graph.names[: graph.hosts])
        queues = [
            index
            for index, name in enumerate(graph.link_names())
            if name.partition(">")[0] not in hosts
        ]
        return Sampling(series.interval_ns, list(first.values()), queues[: series.qps])

    def _count(self, result: SimResult) -> PathCounters:
        """forward: links 0, 2, 4 ... (host 0 to host 1 of p2p), backward: the others."""
        links = every = result.links
        if self.topology.preset in ONE_PATH:
            links = links[:2]
        ways = {"forward": links[0::2], "backward": links[1::2]}

        def total(name: str) -> dict[str, int]:
            return {way: int(rows[name].sum()) for way, rows in ways.items()}

        return PathCounters(
            passed=total("delivered"),
            dropped=total("lost"),
            queue_max_bytes={w: int(rows["queue_max_bytes"].max()) for w, rows in ways.items()},
            **{name: total(name) for name in _COUNTED},
            **({"paused_ns": _paused_ns(every)} if self.topology.lossless else {}),
        )


def _paused_ns(links: Any) -> dict[str, int]:
    """The sum over all links, those of hosts too, which switches pause."""
    return {way: int(links[i::2]["paused_ns"].sum()) for i, way in enumerate(DIRECTIONS)}


def _frame(result: SimResult) -> pd.DataFrame:
    """The table of datapath.series: QPs by their first flow's row, links by their names."""
    from datapath import series

    sampled = result.series
    return series.join(
        [
            series.stack(
                sampled.time_ns,
                sampled.qps,
                host=[f"host{int(host)}" for host in sampled.sources],
                qp=sampled.flows,
            ),
            series.stack(
                sampled.time_ns,
                {name: sampled.links[name] for name in _LINK_SERIES},
                link=sampled.link_names,
            ),
        ]
    )


def _ipv4(index: int) -> str:
    return f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}"


def _ipv6(index: int) -> str:
    return f"::ffff:{_ipv4(index)}"
