# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Running the programs of a workload: logs, deadlines, and errors in the program's own words."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pydantic
from pydantic import ConfigDict, Field

from datapath.cc.spec import HostCc
from datapath.debian import install_hint, packages
from datapath.errors import CapabilityError, LocalError, RunFailed, ending
from datapath.lanes.base import Host, Process, Tool
from datapath.quantiles import nearest_rank
from datapath.workloads.base import Metric, RunContext

if TYPE_CHECKING:
    from datapath.lanes.spec import Path as PathSection
    from datapath.lanes.spec import Topology

_POLL_S = 0.01
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
_UDP_BOUND = "07"
_LOOK_S = 0.2
_RULE = " -*=\t\0"
"""What lines consist of that only divide others."""
_ERROR_WORDS = ("error", "fail", "unable", "couldn't", "cannot", "unexpected", "problem", "invalid")
_REFUSED_OPTION = ("unrecognized option", "unknown option", "invalid option", "bad option")

TOLD = " told rank "
"""In the words of a rank of libdpcoll that another rank has told why a collective ended."""

CLIENT_ALONE = (
    "More command-line arguments for the client alone, which tells the server what it has to know "
    "of them."
)
"""The description of `extra`, for programs whose server refuses what their client takes."""


class WorkloadParams(pydantic.BaseModel):
    """The parameters of every workload."""

    model_config = ConfigDict(extra="forbid")

    pin: bool = Field(
        True,
        description="Bind client and server to different CPUs, so that they never share one "
        "while another idles.",
    )
    extra: list[str] = Field(
        default_factory=list,
        description="More command-line arguments for client and server alike.",
    )

    def algorithms(self) -> Mapping[tuple[str | int, ...], HostCc]:
        """Congestion control that it gives to some of its flows, by the place of the section."""
        return {}

    def code(self) -> Mapping[tuple[str | int, ...], str]:
        """Files with code that it names, beside those of algorithms(), by the place of the name."""
        return {}

    def check_code(self, folder: Path, hosts: int) -> None:
        """LocalError for a mistake in an algorithm or its parameters that shows before a run.

        The files of code() are there.  folder: where file names begin.
        """

    def data(self) -> Mapping[tuple[str | int, ...], str]:
        """Files with data that it names, as written, by the place of the name."""
        return {}

    def mistakes(
        self, folder: Path, hosts: Sequence[str]
    ) -> Mapping[tuple[str | int, ...], Sequence[str]]:
        """What is wrong with the content of those files, by the place of the name.

        folder: where file names begin.  hosts: names, in the order of their numbers.
        """
        return {}

    def check_hosts(self, names: Sequence[str]) -> None:
        """ValueError when it makes no sense with these hosts, named in the order of their numbers.

        Names that parameters use become numbers.
        """

    def check_network(self, topology: Topology, path: PathSection) -> None:
        """ValueError when it lacks something of this network, or of this path."""


@dataclass
class Program:
    """A started program and its two logs."""

    name: str
    process: Process
    out: Path
    err: Path

    def output(self) -> str:
        return self.out.read_text(errors="replace")

    def errors(self) -> str:
        return self.err.read_text(errors="replace")

    def last_words(self) -> str:
        """The line that tells the error best: a refused option, or the last that sounds like one.

        Any other line says nothing of a signal that killed it: "" then.
        """
        text = self.errors() + "\n" + self.output()
        lines = [line.strip() for line in text.splitlines() if line.strip(_RULE)]
        refused = [line for line in lines if any(words in line for words in _REFUSED_OPTION)]
        errors = [line for line in lines if any(word in line.lower() for word in _ERROR_WORDS)]
        killed = (self.process.returncode or 0) < 0
        return (refused or errors or ([""] if killed else lines) or ["no output"])[-1]

    def ending(self) -> str:
        """How it ended, in words."""
        return ending(self.process.returncode)

    def fell_silent_ns(self) -> int:
        """When it wrote its last words, by the clock of its logs."""
        return max(log.stat().st_mtime_ns for log in (self.out, self.err))


@dataclass
class Programs:
    """The programs of one run, as a context manager: whatever happens, none outlives it.

    tools: what the workload starts.  busy: they poll or compute, and
    seldom sleep.
    """

    ctx: RunContext
    tools: Sequence[Tool]
    pin: bool = False
    busy: bool = False
    _started: list[Program] = field(default_factory=list)
    _deadline: float = 0.0

    def __enter__(self) -> Programs:
        self._deadline = time.monotonic() + self.ctx.timeout_s
        return self

    def __exit__(self, *exc: object) -> None:
        self.end(self._started)

    def end(self, programs: Sequence[Program]) -> None:
        """Kill those that still run."""
        for program in programs:
            program.process.kill()
        for program in programs:
            program.process.wait()

    def start(
        self, host: Host, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> Program:
        """Start a program; its logs are `<name>.out` and `<name>.err`, its command in `<name>.cmd`.

        CapabilityError names the package when it is not installed.
        """
        require(host, argv[0], self.tools)
        out, err = self.ctx.logs / f"{name}.out", self.ctx.logs / f"{name}.err"
        settings = [f"{key}={value}" for key, value in (env or {}).items()]
        (self.ctx.logs / f"{name}.cmd").write_text(f"{host.name}: {' '.join([*settings, *argv])}\n")
        cpus = self._cpus(host, len(self._started))
        # Line by line, so that a program that hangs has a log too.
        words = ["stdbuf", "-oL", *argv]
        process = host.popen(words, env=env, stdout=out, stderr=err, cpus=cpus, busy=self.busy)
        program = Program(name, process, out, err)
        self._started.append(program)
        return program

    def _cpus(self, host: Host, index: int) -> set[int] | None:
        cpus = host.cpus
        return {cpus[index % len(cpus)]} if self.pin and len(cpus) > 1 else None

    def remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def wait_listening(self, host: Host, server: Program, port: int, *, udp: bool = False) -> None:
        """Until the server has its socket; RunFailed when it ends or the time is over."""
        self._wait_until(
            lambda: _is_taken(host, port, udp=udp), server, f"does not listen on port {port}"
        )

    def wait_free(self, host: Host, port: int) -> None:
        """Until nobody listens: a child of the server of an earlier run may still do so.

        RunFailed when the time is over.
        """
        while _is_taken(host, port, udp=False):
            if self.remaining_s() <= 0:
                raise RunFailed(f"{host.name}: another program listens on port {port}")
            time.sleep(_POLL_S)

    def wait_saying(self, program: Program, words: str) -> None:
        """Until it has said the words; RunFailed when it ends or the time is over."""
        self._wait_until(
            lambda: words in program.output() + program.errors(), program, "is not ready"
        )

    def _wait_until(self, reached: Callable[[], bool], program: Program, lacks: str) -> None:
        while not reached():
            self._look()
            if program.process.poll() is not None:
                raise self.failed(program, program.ending())
            if self.remaining_s() <= 0:
                raise self.failed(program, lacks)
            time.sleep(_POLL_S)

    def _look(self) -> None:
        """RunFailed when the host of any program is gone: the others may wait for it for ever."""
        for program in self._started:
            program.process.poll()

    def finish(self, program: Program, *, server: Program | None = None) -> str:
        """Wait for a program to end well; its standard output.

        RunFailed with its last error line, or its server's if the server failed first, and as
        soon as the host of any program is gone.
        """
        status = None
        while status is None:
            try:
                status = program.process.wait(min(_LOOK_S, self.remaining_s()))
            except subprocess.TimeoutExpired:
                self._look()
                if self.remaining_s() <= 0:
                    what = f"not done after {self.ctx.timeout_s:g} s"
                    raise self.failed(program, what) from None
        if status != 0:
            culprit = server if server is not None and server.process.poll() else program
            raise self.failed(culprit, culprit.ending())
        return program.output()

    def finish_all(
        self, programs: Sequence[Program], *, well: Collection[int] = (0,), hearsay: str = ""
    ) -> None:
        """Wait for all of a job; of several that failed, RunFailed tells the one that began it.

        That is the one that wrote its last words first: the others fail because it does not answer
        them.  One that still runs when the time is over is told only if none has failed before.
        well: statuses of a good end.  hearsay: in the last words of one that another one has told;
        it is told only if all that failed have them.
        """
        failed: list[tuple[Program, RunFailed]] = []
        for program in programs:
            try:
                self.finish(program)
            except RunFailed as error:
                if program.process.returncode is None and self.remaining_s() > 0:
                    raise  # a host is gone
                if program.process.returncode not in well:
                    failed.append((program, error))
        ended = [one for one in failed if one[0].process.returncode is not None] or failed
        own = [one for one in ended if not hearsay or hearsay not in one[0].last_words()] or ended
        if own:
            raise min(own, key=lambda one: one[0].fell_silent_ns())[1]

    def failed(self, program: Program, what: str) -> RunFailed:
        words = program.last_words()
        return RunFailed(
            f"{program.name} {what}" + (f": {words}" if words else ""),
            hint=f"its logs are {program.out} and {program.err}",
        )


def require(host: Host, program: str, tools: Sequence[Tool]) -> None:
    """CapabilityError with the package's name when a host has not got a program."""
    if host.has_program(program):
        return
    # A workload's first program stands for the others of its package.
    known = program if program in packages() or not tools else tools[0].name
    raise CapabilityError(
        f"program {program} is not installed on {host.name}",
        hint=install_hint(known),
    )


def require_device(ctx: RunContext, workload: str, devices: Sequence[str]) -> None:
    """LocalError when the transport section's device is not one that the workload can use."""
    device = ctx.transport.device
    if device not in devices:
        raise LocalError(
            f"workload {workload} does not run on transport device {device}",
            hint=f"set transport: {{device: {devices[0]}}}",
        )


def refuse_own_port(ctx: RunContext, instead: str) -> None:
    """LocalError for several ranks on a host whose device has a port of one process.

    instead: what of the workload's section makes it one rank.
    """
    if ctx.transport.device != "dp" or ctx.transport.port != "afxdp":
        return
    raise LocalError(
        "an afxdp port belongs to one process, and each host has several ranks",
        hint=f"set transport: {{port: udp}}, or workload: {{{instead}}}",
    )


def _is_taken(host: Host, port: int, *, udp: bool) -> bool:
    kind, state = ("udp", _UDP_BOUND) if udp else ("tcp", _LISTEN)
    table = host.run(["cat", f"/proc/net/{kind}", f"/proc/net/{kind}6"]).stdout
    return any(_is_bound(line, port, state) for line in table.splitlines())


def _is_bound(line: str, port: int, state: str) -> bool:
    fields = line.split()
    return len(fields) > 3 and fields[1].endswith(f":{port:04X}") and fields[3] == state


def latency_metrics(samples_ns: Sequence[float]) -> list[Metric]:
    """Percentiles (nearest rank), mean and minimum of all samples, in nanoseconds."""
    ordered = sorted(samples_ns)
    return [
        Metric("latency_p50", nearest_rank(ordered, 0.50), "ns"),
        Metric("latency_p99", nearest_rank(ordered, 0.99), "ns"),
        Metric("latency_p999", nearest_rank(ordered, 0.999), "ns"),
        Metric("latency_mean", sum(ordered) / len(ordered), "ns"),
        Metric("latency_min", ordered[0], "ns"),
    ]
