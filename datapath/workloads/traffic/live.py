# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generator dp-traffic on the hosts of a live network: one process on each of them.

Flows with an algorithm of the kernel's TCP, beside a device of ours, have a process of their own
on each host, which begins at the same time.

They find each other on the management network, and connect QPs out of band, so that an impaired
path spoils the traffic that is measured and not the set-up before it.  Over siw they connect by
RDMA-CM, over the network under test.  They know each other by a token of the run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from datapath.errors import DatapathError, LocalError, RunFailed
from datapath.fabric import flows as table
from datapath.lanes.base import Host
from datapath.lanes.happening import Watch
from datapath.native import paths
from datapath.workloads.base import RunContext
from datapath.workloads.programs import Program, Programs
from datapath.workloads.traffic.watching import OrderFifos, watched

DEVICE_NAMES = {"dp": "dp0", "rxe": "rxe0", "siw": "siw0"}
_CM_ONLY = ("siw",)
_TOKEN_BYTES = 16
_LOOK_S = 0.002
_PORT, _TCP_PORT = 18600, 18610
"""Of the management network, and of TCP beside a device of ours; TCP's flows have the next one."""
_LEAD_NS = 50_000_000
"""From when all are ready until the schedule begins."""


@dataclass(frozen=True)
class Options:
    """How the generator runs, beside the table.

    spin_ns: how long it polls without success before it sleeps; None: it never sleeps.
    deadline_ns: after the schedule's zero; flows that have not ended by then stay unfinished.
    algorithms: those that rows of the table name, from 1: objects for devices of ours, names for
    TCP.  qp_attributes: as datapath.verbs.spec.QP_ATTRIBUTES names them; the program has defaults.
    """

    spin_ns: int | None = 20_000
    deadline_ns: int | None = None
    verify: bool = False
    tcp_cc: str | None = None
    algorithms: Sequence[str | Path] = ()
    gid_index: int | None = None
    qp_attributes: Mapping[str, int] = field(default_factory=dict)
    pin: bool = True
    extra: Sequence[str] = ()

    def words(self, host: Host) -> list[str]:
        """As arguments of the program on a host."""
        words = ["--spin", "always" if self.spin_ns is None else str(self.spin_ns // 1000)]
        words += ["--verify"] if self.verify else []
        if self.deadline_ns is not None:
            words += ["--deadline", f"{self.deadline_ns / 1e9:.9f}"]
        if self.tcp_cc is not None:
            words += ["--tcp-cc", self.tcp_cc]
        if self.gid_index is not None:
            words += ["--gid-index", str(self.gid_index)]
        for cc in self.algorithms:
            words += ["--cc", host.provide(cc) if isinstance(cc, Path) else cc]
        for name, value in self.qp_attributes.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return [*words, *self.extra]


@dataclass(frozen=True)
class Measured:
    """The results of a run.

    zero_ns: the schedule's zero, CLOCK_REALTIME; None: not known.  end_ns: of the run, after it.
    """

    flows: table.FlowResults
    zero_ns: int | None = None
    end_ns: int = 0


@dataclass(frozen=True)
class _Part:
    """The rows of a table that one process of each host runs.

    rows: their numbers in the whole table.  numbers: of its algorithms, by those of the whole run.
    tcp: over TCP, beside a device of ours.
    """

    name: str
    flows: table.Flows
    rows: Any
    options: Options
    port: int
    numbers: Mapping[int, int]
    tcp: bool = False

    def report(self, host: Host) -> str:
        return f"{self.name}-{host.name}.report"

    def progress(self, host: Host) -> str:
        return f"{self.name}-{host.name}.progress"

    def orders(self, host: Host) -> str:
        return f"{self.name}-{host.name}.orders"


def run(ctx: RunContext, flows: table.Flows, options: Options, watch: Watch) -> Measured:
    """Run a table whose hosts are those of the network; RunFailed with the program's own words.

    The tables and the reports of the hosts stay among the run's logs.
    """
    hosts = list(ctx.network.hosts)
    parts = _parts(ctx, flows, options)
    programs_of = [(part, host) for part in parts for host in hosts]
    progress = [ctx.logs / part.progress(host) for part, host in programs_of]
    fifos = [ctx.logs.resolve() / part.orders(host) for part, host in programs_of]
    for told in (_zero_file(ctx), *(_ready(ctx, part) for part in parts), *progress, *fifos):
        told.unlink(missing_ok=True)
    zero_ns = None
    with (
        token_file(ctx.logs, "traffic") as token,
        OrderFifos(fifos if watch.look_ns else [], _place(ctx, parts, flows)) as orders,
        Programs(ctx, (), options.pin, options.spin_ns is None) as programs,
    ):
        started = [
            program
            for part in parts
            for program in _started(ctx, part, programs, token, bool(watch.look_ns))
        ]
        if ctx.network.local:
            zero_ns = _begin(ctx, parts, started, programs, watch)
        count = len(hosts)
        of_host = {number: started[number::count] for number in range(count)}
        so_far = functools.partial(_so_far, ctx, parts, len(flows))
        with (
            contextlib.nullcontext()
            if zero_ns is None
            else watched(ctx, watch, of_host, zero_ns, so_far, orders)
        ):
            # Status 1: there is a report, which tells of the flows that failed.
            programs.finish_all(started, well=(0, 1), hearsay="went away")
        end_ns = time.monotonic_ns() - (zero_ns or 0)
    for path in progress:
        path.unlink(missing_ok=True)
    reports = [_numbered(_read(ctx, part, host), part.rows) for part in parts for host in hosts]
    results = table.FlowResults.merge(reports, flows)
    if zero_ns is None:
        return Measured(results)
    return Measured(results, zero_ns + _realtime_less_monotonic(), end_ns)


# --- what runs over what ---


def _parts(ctx: RunContext, flows: table.Flows, options: Options) -> list[_Part]:
    """The table as it is, or parted into what a device of ours sends and what TCP sends."""
    over_tcp = _over_tcp(ctx, flows, options)
    _refuse_waits(flows, over_tcp)
    if not over_tcp.any():
        numbers = {number: number for number in range(1, len(options.algorithms) + 1)}
        return [_Part("traffic", flows, np.arange(len(flows)), options, _PORT, numbers)]
    parts = []
    for name, port, chosen in (("traffic", _PORT, ~over_tcp), ("traffic-tcp", _TCP_PORT, over_tcp)):
        rows = np.flatnonzero(chosen)
        if len(rows):
            tcp = port == _TCP_PORT
            mine, numbers = _with_own_algorithms(flows[rows], options.algorithms, tcp)
            waits = mine["after"] > 0
            mine["after"][waits] = np.searchsorted(rows, mine["after"][waits] - 1) + 1
            own = replace(options, algorithms=[options.algorithms[n - 1] for n in numbers])
            parts.append(_Part(name, mine, rows, own, port, numbers, tcp=tcp))
    return parts


def _over_tcp(ctx: RunContext, flows: table.Flows, options: Options) -> Any:
    """Which rows have an algorithm of the kernel's TCP beside a device of ours."""
    kernel = _device(ctx) == "kernel"
    of_tcp = [False, *(isinstance(cc, str) and not kernel for cc in options.algorithms)]
    return np.array(of_tcp)[flows["cc"]]


def _refuse_waits(flows: table.Flows, over_tcp: Any) -> None:
    """LocalError for a row that waits for a flow whose end its own program does not know."""
    waits = np.flatnonzero(flows["after"])
    before = flows["after"][waits].astype(np.int64) - 1
    strange = (flows["src"][waits] != flows["src"][before]) | (over_tcp[waits] != over_tcp[before])
    if strange.any():
        row, other = waits[strange][0], before[strange][0]
        raise LocalError(
            f"a flow from host {flows['src'][row]} waits for one from host {flows['src'][other]}",
            hint="on live hosts a flow waits for those of its own source and transport; lane sim "
            "has no such limit",
        )


def _with_own_algorithms(
    flows: table.Flows, algorithms: Sequence[str | Path], tcp: bool
) -> tuple[table.Flows, dict[int, int]]:
    """The rows, whose algorithms are numbered anew, and the new numbers by the old ones."""
    used = [n for n, cc in enumerate(algorithms, 1) if isinstance(cc, str) == tcp]
    numbers = {old: new for new, old in enumerate(used, 1)}
    mine = flows.copy()
    mine["cc"] = [numbers.get(int(old), 0) for old in flows["cc"]]
    return mine, numbers


# --- programs ---


def _started(
    ctx: RunContext, part: _Part, programs: Programs, secret: Path, told: bool
) -> list[Program]:
    """The part's process on each host.  told: it shall write how far its flows have come."""
    hosts = list(ctx.network.hosts)
    schedule = (ctx.logs / f"{part.name}.table").resolve()
    table.write(schedule, part.flows, len(hosts), seed=ctx.table_seed)
    begin = ("--ready", str(_ready(ctx, part)), "--zero", str(_zero_file(ctx)))
    return [
        programs.start(
            host,
            f"{part.name}-{host.name}",
            [
                host.provide(paths.traffic_generator()),
                *("--table", host.provide(schedule)),
                *("--report", f"{host.outputs(ctx.logs)}/{part.report(host)}"),
                *("--host", str(index), "--token", host.provide(secret)),
                *(
                    (
                        *("--progress", f"{host.outputs(ctx.logs)}/{part.progress(host)}"),
                        *("--orders", f"{host.outputs(ctx.logs)}/{part.orders(host)}"),
                    )
                    if told
                    else ()
                ),
                *(begin if ctx.network.local and not index else ()),
                *_where(ctx, hosts, part),
                *part.options.words(host),
            ],
            {} if part.tcp else ctx.device_env[index],
        )
        for index, host in enumerate(hosts)
    ]


def _ready(ctx: RunContext, part: _Part) -> Path:
    return ctx.logs.resolve() / f"{part.name}.ready"


def _zero_file(ctx: RunContext) -> Path:
    return ctx.logs.resolve() / "traffic.zero"


def _place(
    ctx: RunContext, parts: Sequence[_Part], flows: table.Flows
) -> Callable[[int], tuple[Path, int, Mapping[int, int]]]:
    """For OrderFifos: where a row of the whole table is."""
    logs = ctx.logs.resolve()
    fifos = [[logs / part.orders(host) for host in ctx.network.hosts] for part in parts]
    of_part, place_there = np.empty(len(flows), np.int64), np.empty(len(flows), np.int64)
    for number, part in enumerate(parts):
        of_part[part.rows], place_there[part.rows] = number, np.arange(len(part.rows))
    sources = flows["src"]

    def place(row: int) -> tuple[Path, int, Mapping[int, int]]:
        number = of_part[row]
        return fifos[number][sources[row]], int(place_there[row]), parts[number].numbers

    return place


def _so_far(ctx: RunContext, parts: Sequence[_Part], rows: int) -> Any:
    """The results of all flows at the moment, in the order of the whole table."""
    found = np.zeros(rows, table.RESULT_DTYPE)
    for part in parts:
        for index, host in enumerate(ctx.network.hosts):
            mine = part.rows[part.flows["src"] == index]
            path = ctx.logs / part.progress(host)
            found[mine] = np.fromfile(path, table.RESULT_DTYPE, len(mine))
    return found


def _begin(
    ctx: RunContext,
    parts: Sequence[_Part],
    started: Sequence[Program],
    programs: Programs,
    watch: Watch,
) -> int | None:
    """Name the schedule's zero, CLOCK_MONOTONIC, when all are ready; None: a program has ended.

    The network knows before what it has to change.
    """
    while not all(_ready(ctx, part).exists() for part in parts):
        if any(one.process.poll() is not None for one in started) or not programs.remaining_s():
            return None
        time.sleep(_LOOK_S)
    zero_ns = time.monotonic_ns() + _LEAD_NS
    if any(event.about_links for event in watch.events):
        ctx.network.change_path(zero_ns, watch.events)
    _zero_file(ctx).write_text(f"{zero_ns}\n")
    return zero_ns


def _realtime_less_monotonic() -> int:
    return time.time_ns() - time.monotonic_ns()


@contextlib.contextmanager
def token_file(folder: Path, name: str) -> Iterator[Path]:
    """A file with a secret of this run, for this user alone and as long as the run lasts.

    Programs that do not know it are strangers, who may share the networks with the hosts.
    """
    path = folder.resolve() / f"{name}.token"
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(_TOKEN_BYTES) + "\n")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _device(ctx: RunContext) -> str:
    return ctx.transport.device


def _where(ctx: RunContext, hosts: Sequence[Host], part: _Part) -> list[str]:
    """Addresses, and the transport of messages."""
    device = _device(ctx)
    words = ["--management", ",".join(host.endpoint.mgmt_ipv4 for host in hosts)]
    words += ["--address", ",".join(host.endpoint.ipv4 for host in hosts)]
    words += ["--port", str(part.port)]
    if device == "kernel" or part.tcp:
        return [*words, "--tcp"]
    words += ["--device", DEVICE_NAMES[device]]
    return [*words, "--cm"] if device in _CM_ONLY else words


def _read(ctx: RunContext, part: _Part, host: Host) -> table.FlowResults:
    host.fetch(ctx.logs)
    path = ctx.logs / part.report(host)
    try:
        return table.FlowResults.read(path)
    except (OSError, DatapathError) as error:
        raise RunFailed(
            f"no report of {host.name}: {error}", hint=f"see {part.name}-{host.name}.err"
        ) from None


def _numbered(results: table.FlowResults, rows: Any) -> table.FlowResults:
    """The results, whose rows name those of the whole table."""
    results.rows["flow"] = rows[results.rows["flow"]]
    return results
