# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generator dp-traffic on the hosts of a live network: one process on each of them.

They find each other on the management network, and connect QPs out of band, so that an impaired
path spoils the traffic that is measured and not the set-up before it.  Over siw they connect by
RDMA-CM, over the network under test.  They know each other by a token of the run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datapath.errors import DatapathError, RunFailed
from datapath.fabric import flows as table
from datapath.lanes.base import Host
from datapath.lanes.event_spec import path_changes
from datapath.lanes.spec import Path as PathSection
from datapath.native import paths
from datapath.workloads.base import RunContext
from datapath.workloads.programs import Program, Programs

DEVICE_NAMES = {"dp": "dp0", "rxe": "rxe0", "siw": "siw0"}
_CM_ONLY = ("siw",)
_TOKEN_BYTES = 16
_LOOK_S = 0.002


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
    """The results of a run.  zero_ns: the schedule's zero, CLOCK_REALTIME; None: not known."""

    flows: table.FlowResults
    zero_ns: int | None = None


def run(ctx: RunContext, flows: table.Flows, options: Options) -> Measured:
    """Run a table whose hosts are those of the network; RunFailed with the program's own words.

    The table and the reports of the hosts stay among the run's logs.
    """
    hosts = list(ctx.network.hosts)
    schedule = (ctx.logs / "traffic.table").resolve()
    table.write(schedule, flows, len(hosts), seed=ctx.table_seed)
    polls = options.spin_ns is None
    begun = ctx.logs.resolve() / "traffic.begun" if ctx.network.local else None
    zero_ns = None
    with (
        token_file(ctx.logs, "traffic") as token,
        Programs(ctx, (), options.pin, polls) as programs,
    ):
        started = [
            programs.start(
                host,
                f"traffic-{host.name}",
                [
                    host.provide(paths.traffic_generator()),
                    *("--table", host.provide(schedule)),
                    *("--report", f"{host.outputs(ctx.logs)}/{_report(host)}"),
                    *("--host", str(index), "--token", host.provide(token)),
                    *(("--begun", str(begun)) if begun and not index else ()),
                    *_where(ctx, hosts),
                    *options.words(host),
                ],
                ctx.device_env[index],
            )
            for index, host in enumerate(hosts)
        ]
        if begun is not None:
            zero_ns = _zero(begun, started[0], programs)
            _change_path(ctx, zero_ns)
        _finish(programs, started)
    results = table.FlowResults.merge((_read(ctx, host) for host in hosts), flows)
    return Measured(results, None if zero_ns is None else zero_ns + _realtime_less_monotonic())


def _zero(begun: Path, program: Program, programs: Programs) -> int | None:
    """The schedule's zero, CLOCK_MONOTONIC, when it is known; None: the program ended before."""
    while program.process.poll() is None and programs.remaining_s():
        if begun.exists() and (text := begun.read_text()).endswith("\n"):
            return int(text)
        time.sleep(_LOOK_S)
    return None


def _change_path(ctx: RunContext, zero_ns: int | None) -> None:
    """Hand the path the changes that it will make at their times."""
    if zero_ns is None or not any(event.about_links for event in ctx.events):
        return
    assert isinstance(ctx.path, PathSection)
    for at_ns, path in path_changes(ctx.events, ctx.path):
        ctx.network.change_path(zero_ns + at_ns, path)


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


def _where(ctx: RunContext, hosts: Sequence[Host]) -> list[str]:
    """Addresses, and the transport of messages."""
    device = str(getattr(ctx.transport, "device", "dp"))
    words = ["--management", ",".join(host.endpoint.mgmt_ipv4 for host in hosts)]
    words += ["--address", ",".join(host.endpoint.ipv4 for host in hosts)]
    if device == "kernel":
        return [*words, "--tcp"]
    words += ["--device", DEVICE_NAMES[device]]
    return [*words, "--cm"] if device in _CM_ONLY else words


def _report(host: Host) -> str:
    return f"traffic-{host.name}.report"


def _finish(programs: Programs, started: Sequence[Program]) -> None:
    """Wait for all; of several that failed, the one that knows most about it is told.

    When one host fails the others only see that it went away.  Status 1 means that there is a
    report, which tells of the flows that failed.
    """
    failed: list[tuple[Program, RunFailed]] = []
    for program in started:
        try:
            programs.finish(program)
        except RunFailed as error:
            if program.process.returncode != 1:
                failed.append((program, error))
            if program.process.returncode is None:
                break  # out of time, and so are the others
    if failed:
        own = [error for program, error in failed if "went away" not in program.last_words()]
        raise (own or [error for _, error in failed])[0]


def _read(ctx: RunContext, host: Host) -> table.FlowResults:
    host.fetch(ctx.logs)
    path = ctx.logs / _report(host)
    try:
        return table.FlowResults.read(path)
    except (OSError, DatapathError) as error:
        raise RunFailed(
            f"no report of {host.name}: {error}", hint=f"see traffic-{host.name}.err"
        ) from None
