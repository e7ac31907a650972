# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs that go on in other processes: what they are, and how to get into their hosts.

entrance.py has the protocol.  A run is believed only as far as the kernel says that the process
which holds its socket answers.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from datapath import processes
from datapath.asking import ask_all
from datapath.errors import DatapathError, LocalError, RemoteError
from datapath.lanes.entrance import REQUEST_BYTES
from datapath.lanes.namespace import Namespace, installed
from datapath.lanes.spec import MIDDLE

_NAME = re.compile(rb"@datapath-run:([0-9]{1,10}):[0-9]{1,6}")
_ANSWER_BYTES = 1 << 20
_ANSWER_S = 10.0
_NONE = "dpctl ps lists the runs that go on"


@dataclass(frozen=True)
class OpenRun:
    """A run of another process.  about: as its process tells it, not checked."""

    pid: int
    socket: str
    about: Mapping[str, Any] = field(default_factory=dict)

    def hosts(self) -> list[Mapping[str, Any]]:
        hosts = self.about.get("hosts")
        if not isinstance(hosts, list):
            return []
        return [host for host in hosts if isinstance(host, dict) and "name" in host]

    def host(self, name: str) -> Mapping[str, Any]:
        """The description of a host; LocalError when there is none of this name."""
        for host in self.hosts():
            if host["name"] == name:
                return host
        names = ", ".join(str(host["name"]) for host in self.hosts()) or "none at the moment"
        raise LocalError(f"run {self.pid} has no host {name}", hint=f"it has: {names}")

    def links(self, patience_s: float = _ANSWER_S) -> Mapping[str, Mapping[str, int]]:
        """Link or direction of the path -> counter -> number since the run began.

        queue_bytes: what waits now.
        """
        answer, _ = _ask(self, {"ask": "links"}, patience_s=patience_s)
        links = answer.get("links")
        if not isinstance(links, dict) or not all(map(_are_counts, links.values())):
            raise _strange(self)
        return links


def _are_counts(counters: object) -> bool:
    """Whether they map names to whole numbers of 64 bits, as those of a link do."""
    return isinstance(counters, dict) and all(
        type(number) is int and 0 <= number < 1 << 64 for number in counters.values()
    )


def runs() -> list[OpenRun]:
    """The runs of this machine that this user may see and that answer."""
    return survey()[0]


def survey(patience_s: float = _ANSWER_S) -> tuple[list[OpenRun], list[RemoteError]]:
    """(runs that answer, what is told of those that do not), of all that this user may see.

    They are asked at the same time: one that is silent delays the others by patience_s at most.
    """

    def told(run: OpenRun) -> OpenRun:
        about, _ = _ask(run, {"ask": "about"}, patience_s=patience_s)
        return OpenRun(run.pid, run.socket, about)

    return ask_all(told, [OpenRun(p, name) for p in processes.pids() for name in _names(p)])


def chosen(pid: int | None, host: str | None = None) -> OpenRun:
    """The run of a process, or the only one that has this host; LocalError when that is not one."""
    found = [run for run in runs() if pid is None or run.pid == pid]
    if not found:
        which = "no run goes on" if pid is None else f"process {pid} has no run"
        raise LocalError(which, hint=f"{_NONE}; other users' runs need sudo")
    having = [run for run in found if host in (None, MIDDLE, *(h["name"] for h in run.hosts()))]
    if len(having) > 1:
        pids = ", ".join(str(run.pid) for run in having)
        raise LocalError(f"more than one run goes on: {pids}", hint="say which: --run PID")
    if not having:
        assert host is not None
        found[0].host(host)
    return having[0]


def run_on(
    run: OpenRun,
    host: str,
    argv: Sequence[str],
    *,
    stdout: IO[bytes] | int | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run a program on a host of the run to its end; its exit status, 128 + N after signal N.

    On a namespace it has this process's standard streams, terminal and working folder; ^C goes
    to the program.  On a host reached by ssh it has no input, and ^C ends it.
    """
    if host != MIDDLE and run.host(host).get("kind") == "ssh":
        return _start(run, host, argv, stdout)
    _, fds = _ask(run, {"ask": "enter", "host": host}, take=3)
    if len(fds) != 3:
        raise _strange(run)
    try:
        status = _run_in(Namespace(host, *fds), argv, stdout, {**os.environ, **(env or {})})
    finally:
        for fd in fds:
            os.close(fd)
    if status is None:
        raise RemoteError(f"run {run.pid} has ended, and its hosts with it")
    return 128 - status if status < 0 else status


def run_beside(
    pid: int,
    argv: Sequence[str],
    *,
    stdout: IO[bytes] | int | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """As run_on, in the network of a process that is no run's; all else is this process's own."""
    whole = {**os.environ, **(env or {})}
    with installed(argv):
        process = processes.in_network_of(
            pid, lambda: subprocess.Popen(list(argv), stdout=stdout, env=whole)
        )
    status = _waited(process)
    return 128 - status if status < 0 else status


def _run_in(
    space: Namespace,
    argv: Sequence[str],
    stdout: IO[bytes] | int | None,
    env: Mapping[str, str],
) -> int | None:
    """The program's status as subprocess has it; None when the namespaces ended it."""
    folder = Path.cwd()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(argv), stdout=stdout, env=env, cwd=folder)

    try:
        with installed(argv):
            process = space.in_all(start)
    except OSError as error:
        if error.errno != errno.ENOMEM:  # what fork() says in a PID namespace without an init
            raise
        return None
    status = _waited(process)
    return None if status == -signal.SIGKILL and _is_over(space) else status


def _is_over(space: Namespace) -> bool:
    """Whether the init of the PID namespace has ended: it is the last that can start programs."""
    try:
        space.in_all(lambda: subprocess.run(["true"], check=True))
    except OSError as error:
        return error.errno == errno.ENOMEM
    return False


def _waited(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program to which the terminal's ^C belongs; it ends when this process is ended."""
    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda *_: None) if ours else None
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
            _take_terminal()


def _take_terminal() -> None:
    """Be in the terminal's foreground again: a shell in a PID namespace cannot name our group."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # standard input is no terminal
        os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, before)


def _start(run: OpenRun, host: str, argv: Sequence[str], stdout: IO[bytes] | int | None) -> int:
    out = 1 if stdout is None else stdout if isinstance(stdout, int) else stdout.fileno()
    request = {"ask": "start", "host": host, "argv": list(argv)}
    answer, _ = _ask(run, request, send=[out, 2], patience_s=None)
    status = answer.get("status")
    if not isinstance(status, int):
        raise _strange(run)
    return 128 - status if status < 0 else status


# ---- asking --------------------------------------------------------------------------


def _names(pid: int) -> Iterator[str]:
    try:
        inner, names = processes.sockets(pid)
    except DatapathError:
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match and int(match[1]) == inner:
            yield name.decode()


def _ask(
    run: OpenRun,
    request: Mapping[str, Any],
    *,
    send: Sequence[int] = (),
    take: int = 0,
    patience_s: float | None = _ANSWER_S,
) -> tuple[Mapping[str, Any], list[int]]:
    """One request, one answer; LocalError with the run's words if it refuses.

    take: descriptors that may come with the answer; of more, the kernel closes the others.
    """
    text = json.dumps(request).encode()
    if len(text) > REQUEST_BYTES:
        raise LocalError("the command is too long", hint="put it in a script")
    fds: list[int] = []
    try:
        with processes.socket_beside(run.pid, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(patience_s)
            sock.connect("\0" + run.socket[1:])
            if processes.peer(sock) != (run.pid, processes.user(run.pid)):
                raise RemoteError(f"another process answers in the place of run {run.pid}")
            socket.send_fds(sock, [text], list(send))
            data, fds, _, _ = socket.recv_fds(sock, _ANSWER_BYTES, take)
        answer = json.loads(data)
        if not isinstance(answer, dict):
            raise ValueError
    except (TimeoutError, ConnectionError):
        raise RemoteError(
            f"run {run.pid} does not answer", hint="is it stopped, or has it ended?"
        ) from None
    except (ValueError, RecursionError):
        raise _strange(run) from None
    if "error" in answer:
        raise LocalError(f"run {run.pid}: {answer['error']}", hint=_NONE)
    return answer, fds


def _strange(run: OpenRun) -> RemoteError:
    return RemoteError(
        f"process {run.pid} does not answer as a run does",
        hint="is it of another version of dpctl?",
    )
