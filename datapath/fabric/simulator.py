# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs flows over a simulated network with the real engine, in virtual time.

    simulation = Simulation(LeafSpine(leaves=4, hosts_per_leaf=8), seed=1)
    result = simulation.run(flows, compile_algorithm("dctcp"))
    result.flows.rows["finish_ns"], result.digest

Equal arguments give equal results, down to `digest`, which is made of every event: on any
machine, in any process, in the sanitized build.  An invariant that breaks ends the run with
SimulationBroken, and a deadlock with Deadlock; both tell how to replay it.
"""

from __future__ import annotations

import ctypes
import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datapath import forked
from datapath.errors import LocalError, RunFailed
from datapath.fabric import flows as traffic
from datapath.fabric.changes import (
    Algorithm,
    Change,
    OrderFlow,
    SetAlgorithm,
    SetLink,
    SetRoute,
    StallHost,
    Watcher,
)
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.failures import Deadlock, SimulationBroken, failure
from datapath.fabric.links import Link
from datapath.fabric.members import U32_MAX, check_whole
from datapath.fabric.refusals import reason
from datapath.fabric.running import through
from datapath.fabric.sim_result import Sampling, Series, SimResult, columns, fields
from datapath.fabric.steps import Steps
from datapath.fabric.topology import Graph, Topology
from datapath.fabric.wakeup import Wakeup
from datapath.native.sim import ffi, lib

NO_END = 2**64 - 2
_SLICE = 200_000
"""Turns of the event loop between two looks at Python's signals."""
_RESULT_BYTES = traffic.RESULT_DTYPE.itemsize
_STALL_NS = 100_000_000
"""Between two looks for a deadlock; more where links are long, and little happens in a time."""


class Simulation:
    """A network and its transport; each run() begins with everything fresh.

    wakeup: how late programs run after they have slept; None: in time.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        seed: int = 1,
        transport: EngineOptions | None = None,
        wakeup: Wakeup | None = None,
    ) -> None:
        self.topology = topology
        self.graph: Graph = topology.graph()
        self.seed = seed
        self.transport = EngineOptions() if transport is None else transport
        self.wakeup = wakeup

    def run(
        self,
        flows: traffic.Flows,
        algorithms: Algorithm | Sequence[Algorithm] = None,
        *,
        until_ns: int | None = None,
        sampling: Sampling | None = None,
        changes: Sequence[Change] = (),
        watcher: Watcher | None = None,
        steps: Steps | None = None,
        trace_events: int = 0,
        keep: Path | None = None,
        timeout_s: float | None = None,
    ) -> SimResult:
        """Run until every flow has ended, or until_ns.

        Args:
            flows: traffic table, shape (flows,).
            algorithms: of all QPs, or one for each flow (flows of one QP share the last one's).
            watcher: further changes, some of which wait for something to happen.
            steps: work of hosts that begins flows and waits for them.
            trace_events: how many of each QP's last events to keep for a failure, a power of two.
            timeout_s: give up after so many seconds of the machine's time.
            keep: folder for a failure's case and trace; unset: the message has only the seed.

        Raises:
            LocalError: the table, the topology or an option makes no sense.
            SimulationBroken, Deadlock: as they say.
            RunFailed: timeout_s is over, or simulated time is (docs/simulator.md).
        """
        check_whole(self, "seed", self.seed)
        check_whole(self, "until_ns", until_ns or 0)
        check_whole(self, "trace_events", trace_events, U32_MAX)
        traffic.check(flows, self.graph.hosts)
        if not len(flows):
            raise LocalError("the traffic table has no flows", hint="a simulation needs one")
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        with _Run(self, trace_events, give_up, steps is not None) as run:
            known: list[Sequence[Change]] = []
            end = NO_END if until_ns is None else until_ns
            try:
                with forked.overdue_after(give_up):
                    run.load(flows, algorithms)
                    if steps is not None:
                        run.add(steps)
                    if sampling is not None:
                        run.sample(sampling)
                    through(run, end, changes, watcher, known.append)
            except (SimulationBroken, Deadlock) as error:
                if keep is None or steps is not None:
                    error.hint = f"run it again with keep=FOLDER (seed {self.seed}) to replay it"
                    raise
                from datapath.fabric import replay

                case = replay.write(keep, self, flows, algorithms, known[-1], until_ns)
                if trace_events:
                    replay.write_trace(keep / "trace.tsv", run, flows, trace_events)
                error.hint = f"replay it: python -m datapath.fabric.replay {case}"
                raise
            return run.result(sampling)


class _Run:
    """One simulation in C, as a context manager."""

    def __init__(
        self, simulation: Simulation, trace_events: int, give_up: float | None, workers: bool
    ) -> None:
        self.graph = simulation.graph
        self.give_up = give_up
        self.sim: Any = ffi.NULL
        self.cpu_s = 0.0
        self.steps = 0
        self.link_numbers: dict[str, int] = {}
        self.kept: list[Any] = []
        self.flows: traffic.Flows = traffic.empty(0)
        self.loaded: dict[str, tuple[Any, Any]] = {}
        config = _config(simulation.seed, simulation.transport, self.graph, trace_events)
        config.workers = workers
        if simulation.wakeup is not None:
            self._wake_late(config, simulation.wakeup)
        out = ffi.new("struct dp_sim **")
        network, kept = _network(self.graph)
        self.kept += kept
        error = lib.dp_sim_create(network, config, out)
        if error == -errno.ENOMEM:
            raise RunFailed("no memory for this simulation", hint="simulate a smaller network")
        if error:
            raise reason(self.graph, simulation.transport, _accepts)
        self.sim = out[0]

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *exc: object) -> None:
        lib.dp_sim_destroy(self.sim)
        self.sim = ffi.NULL

    def _wake_late(self, config: Any, wakeup: Wakeup) -> None:
        packet, timer = wakeup.packet.fill(ffi), wakeup.timer.fill(ffi)
        late = config.wakeup
        late.packet, late.n_packet = packet, len(packet)
        late.timer, late.n_timer = timer, len(timer)
        late.spin_ns, late.awake_ns = wakeup.spin_ns, wakeup.awake_ns
        if wakeup.emulator is not None:
            emulator = wakeup.emulator.fill(ffi)
            late.emulator, late.n_emulator = emulator, len(emulator)
            self.kept.append(emulator)
        self.kept += [packet, timer]

    # --- traffic and its algorithms ---

    def load(self, flows: traffic.Flows, algorithms: Algorithm | Sequence[Algorithm]) -> None:
        self.flows = np.ascontiguousarray(flows)
        table = ffi.cast("struct dp_flow *", self.flows.ctypes.data)
        error = lib.dp_sim_flows(self.sim, table, len(flows))
        if error:
            raise LocalError(f"the simulator refuses this traffic table (errno {-error})")
        if algorithms is None:
            return
        each = algorithms if isinstance(algorithms, Sequence) else [algorithms] * len(flows)
        if len(each) != len(flows):
            raise LocalError(f"{len(each)} algorithms for {len(flows)} flows")
        for row, algorithm in enumerate(each):
            self._set_algorithm(row, algorithm)

    def add(self, steps: Steps) -> None:
        """Steps, after load()."""
        arrays = [np.ascontiguousarray(part) for part in (steps.rows, steps.after, steps.first)]
        self.kept.append(arrays)
        rows, after, first = arrays
        error = lib.dp_sim_steps(
            self.sim,
            ffi.cast("struct dp_sim_step *", rows.ctypes.data),
            len(rows),
            ffi.cast("uint32_t *", after.ctypes.data),
            ffi.cast("uint64_t *", first.ctypes.data),
        )
        if error:
            raise LocalError(f"the simulator refuses these steps (errno {-error})")
        self.steps = len(rows)

    def _set_algorithm(self, row: int, algorithm: Algorithm) -> None:
        error = lib.dp_sim_set_cc(self.sim, row, self._loaded(algorithm))
        if error:
            raise LocalError(f"flow {row} cannot have this algorithm (errno {-error})")

    def _loaded(self, algorithm: Algorithm) -> Any:
        if algorithm is None:
            return ffi.NULL
        path = str(algorithm.path)
        if path not in self.loaded:
            library = ctypes.CDLL(path)
            at = ctypes.addressof(ctypes.c_char.in_dll(library, "dp_cc_algo"))
            self.loaded[path] = (ffi.cast("struct dp_cc_algo *", at), library)
        return self.loaded[path][0]

    def sample(self, sampling: Sampling) -> None:
        error = lib.dp_sim_sample(
            self.sim,
            sampling.interval_ns,
            ffi.new("uint64_t[]", list(sampling.flows)),
            len(sampling.flows),
            ffi.new("uint32_t[]", list(sampling.links)),
            len(sampling.links),
        )
        if error:
            raise LocalError(
                "sampling needs an interval, rows of the traffic table and numbers of links"
            )

    def change(self, change: Change) -> None:
        if isinstance(change, SetAlgorithm):
            rows = range(len(self.flows)) if change.flows is None else change.flows
            for row in rows:
                self._set_algorithm(row, change.algorithm)
            return
        if isinstance(change, SetLink):
            config = ffi.new("struct dp_link_config *")
            self.kept += change.settings.fill(ffi, config[0])
            error = lib.dp_sim_set_link(self.sim, change.link, config)
        elif isinstance(change, OrderFlow):
            error = lib.dp_sim_order(self.sim, change.flow, change.what)
        elif isinstance(change, StallHost):
            error = lib.dp_sim_stall(self.sim, change.host, change.at_ns + change.lasts_ns)
        elif isinstance(change, SetRoute):
            error = lib.dp_sim_set_route(self.sim, change.link, change.used)
        else:
            error = lib.dp_sim_pause(self.sim, change.link, change.classes, change.paused)
        if error:
            raise LocalError(f"{change} cannot be done (errno {-error})")

    # --- time ---

    def until(self, until_ns: int) -> bool:
        """Go on to a time; False: every flow has ended before."""
        begin = time.process_time()
        while (end := lib.dp_sim_run(self.sim, until_ns, _SLICE)) == lib.DP_SIM_MORE:
            if self.give_up is not None and time.monotonic() > self.give_up:
                now = self.totals()["now_ns"]
                raise RunFailed(
                    f"not done in time: the simulation has come to {now / 1e9:g} s",
                    hint="raise sweep.timeout, or simulate less",
                )
        self.cpu_s += time.process_time() - begin
        if end < 0:
            reason = ffi.string(lib.dp_sim_failure(self.sim)).decode()
            now = self.totals()["now_ns"]
            raise failure(-end, f"after {now} ns: {reason}")
        return bool(end == lib.DP_SIM_UNTIL)

    # --- results ---

    def results(self) -> traffic.Flows:
        """A row for each flow, as the simulation has it at the moment."""
        data = ffi.buffer(lib.dp_sim_results(self.sim), len(self.flows) * _RESULT_BYTES)
        return np.frombuffer(data, traffic.RESULT_DTYPE)

    def queue_peak(self, name: str) -> int:
        """The most bytes that have waited in a link."""
        if name not in self.link_numbers:
            self.link_numbers[name] = self.graph.link_names().index(name)
        stats = ffi.new("struct dp_link_stats *")
        lib.dp_sim_link_stats(self.sim, self.link_numbers[name], stats)
        return int(stats.queue_max_bytes)

    def totals(self) -> dict[str, int]:
        totals = ffi.new("struct dp_sim_totals *")
        lib.dp_sim_totals(self.sim, totals)
        return fields(totals)

    def result(self, sampling: Sampling | None) -> SimResult:
        qps = ffi.new("struct dp_qp_stats *")
        lib.dp_sim_qp_totals(self.sim, qps)
        counters = fields(qps)
        return SimResult(
            flows=traffic.FlowResults(
                self._rows(),
                self._latencies(),
                data_packets=counters["tx_packets"],
                retransmitted_packets=counters["retransmits"],
            ),
            totals=self.totals(),
            links=self._links(),
            qps=counters,
            series=self._series(sampling),
            cpu_s=self.cpu_s,
            step_ns=self._step_times(),
        )

    def _step_times(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        if not self.steps:
            return np.zeros(0, np.uint64)
        data = ffi.buffer(lib.dp_sim_step_times(self.sim), 8 * self.steps)
        return np.frombuffer(data, np.uint64).copy()

    def _rows(self) -> traffic.Flows:
        return self.results().copy()

    def _latencies(self) -> traffic.Latencies:
        limits = ffi.new("uint64_t[3]")
        counts = lib.dp_sim_latencies(self.sim, limits)
        data = ffi.buffer(counts, 8 * traffic.LATENCY_BUCKETS)
        return traffic.Latencies(np.frombuffer(data, np.uint64).copy(), *map(int, limits))

    def _links(self) -> np.ndarray[Any, np.dtype[np.void]]:
        stats = ffi.new("struct dp_link_stats *")
        names = self.graph.link_names()
        counters = [name for name, _ in ffi.typeof(stats).item.fields]
        width = max(map(len, names))
        dtype = np.dtype([("name", f"U{width}"), *((counter, np.uint64) for counter in counters)])
        rows = np.zeros(len(names), dtype)
        for index, name in enumerate(names):
            lib.dp_sim_link_stats(self.sim, index, stats)
            rows[index] = (name, *(getattr(stats, counter) for counter in counters))
        return rows

    def _series(self, sampling: Sampling | None) -> Series:
        if sampling is None:
            return Series(np.zeros(0, np.uint64))
        at = ffi.new("const uint64_t **")
        qp = ffi.new("const struct dp_sim_qp_sample **")
        link = ffi.new("const struct dp_sim_link_sample **")
        count = int(lib.dp_sim_series(self.sim, at, qp, link))
        names = self.graph.link_names()
        return Series(
            np.frombuffer(ffi.buffer(at[0], 8 * count), np.uint64).copy(),
            list(sampling.flows),
            [int(self.flows["src"][row]) for row in sampling.flows],
            [names[index] for index in sampling.links],
            columns(qp[0], count, len(sampling.flows)),
            columns(link[0], count, len(sampling.links)),
        )

    def trace(self, row: int, most: int) -> Iterator[dict[str, int]]:
        """The last events of a flow's QP, oldest first."""
        out = ffi.new("struct dp_sim_trace[]", max(most, 1))
        for index in range(lib.dp_sim_trace(self.sim, row, out, most)):
            yield fields(out[index])


def _network(graph: Graph) -> tuple[Any, list[Any]]:
    """struct dp_sim_graph *, with equal link settings stored once; what has to live as long."""
    made = ffi.new("struct dp_sim_graph *")
    kept: list[Any] = []
    settings: dict[Link, int] = {}
    ends = []
    for cable in graph.cables:
        forward = settings.setdefault(cable.forward, len(settings))
        backward = settings.setdefault(cable.backward, len(settings))
        ends += [(cable.a, cable.b, forward), (cable.b, cable.a, backward)]
    links = ffi.new("struct dp_sim_link[]", ends)
    configs = ffi.new("struct dp_link_config[]", len(settings))
    for link, index in settings.items():
        kept += link.fill(ffi, configs[index])
    made.hosts, made.switches = graph.hosts, graph.switches
    made.links, made.link = len(ends), links
    made.configs, made.config = len(settings), configs
    shared = [buffer for buffer in graph.buffers if buffer is not None]
    if shared:
        buffers = ffi.new("struct dp_buffer_config[]", len(shared))
        for index, buffer in enumerate(shared):
            buffer.fill(buffers[index])
        numbers = iter(range(len(shared)))
        of_switch = [2**32 - 1 if buffer is None else next(numbers) for buffer in graph.buffers]
        indices = ffi.new("uint32_t[]", of_switch)
        made.buffers, made.buffer, made.switch_buffer = len(shared), buffers, indices
        kept += [buffers, indices]
    return made, [*kept, links, configs, made]


def _accepts(graph: Graph, options: EngineOptions) -> bool:
    """Whether C makes a simulation of these."""
    network, _kept = _network(graph)
    out = ffi.new("struct dp_sim **")
    error = lib.dp_sim_create(network, _config(1, options, graph, 0), out)
    if not error:
        lib.dp_sim_destroy(out[0])
    return not error


def _config(seed: int, options: EngineOptions, graph: Graph, trace_events: int) -> Any:
    """struct dp_sim_config *."""
    config = ffi.new("struct dp_sim_config *")
    config.seed, config.trace_events = seed, trace_events
    engine = config.engine
    engine.path_mtu_max = options.path_mtu
    engine.extended, engine.ecn = options.extended, options.ecn
    engine.window_psns, engine.min_rto_ns = options.window_psns, options.min_rto_ns
    engine.cnp_ns = options.cnp_ns
    engine.segment_max, engine.paths = options.segment_max, options.paths
    engine.telemetry = options.telemetry
    engine.line_rate_bps = options.line_rate_bps or graph.host_link(0).rate_bps
    config.path_mtu = options.path_mtu
    config.preset_extended = options.extended and options.preset
    config.timeout, config.retry_cnt = options.timeout, options.retry_cnt
    config.rnr_retry, config.min_rnr_timer = options.rnr_retry, options.min_rnr_timer
    config.data_class, config.control_class = options.data_class, options.control_class
    config.by_dscp = bool(options.class_of_dscp)
    config.class_of_dscp, engine.rank_of_dscp = options.class_of_dscp, options.rank_of_dscp
    if options.credit_class is not None:
        config.credit_class = options.credit_class
        config.symmetric = config.by_dscp or options.credit_class != options.control_class
    delays = [link.delay_ns for c in graph.cables for link in (c.forward, c.backward)]
    config.stall_ns = _STALL_NS + 4 * max(delays, default=0)
    return config


def algorithm_per_host(
    flows: traffic.Flows, algorithms: Mapping[int, Algorithm], default: Algorithm = None
) -> list[Algorithm]:
    """For run(): the algorithm of each flow by its source host."""
    return [algorithms.get(int(source), default) for source in flows["src"]]
