# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Nameless namespaces that die with this process, and how to run things in them."""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from datapath.debian import install_hint
from datapath.errors import CapabilityError, DatapathError
from datapath.lanes import scheduling
from datapath.lanes.scheduling import Policy
from datapath.own_thread import in_own_thread

_CLONE_FS = 0x00000200
_CLONE_NEWNS = 0x00020000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000

_HOLDER = Path(__file__).with_name("holder.py")
_HOLDER_TIMEOUT_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)
_Result = TypeVar("_Result")


def _check(result: int, step: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{step}: {os.strerror(ctypes.get_errno())}")


@dataclass(frozen=True)
class Namespace:
    """Descriptors of the namespaces of one host; valid until its Holder closes."""

    name: str
    net_fd: int
    mnt_fd: int
    pid_fd: int

    def in_network(self, function: Callable[[], _Result]) -> _Result:
        """Call `function` in the network namespace: its sockets and ioctls act there.

        Files, /proc included, are this process's own.
        """

        def inside() -> _Result:
            _check(_libc.setns(self.net_fd, _CLONE_NEWNET), "enter network namespace")
            return function()

        return in_own_thread(inside)

    def in_all(self, function: Callable[[], _Result]) -> _Result:
        """Call `function` in network and mount namespace; what it forks is in the PID namespace.

        The working directory is `/`.
        """

        def inside() -> _Result:
            # A thread that shares its root and working directory cannot change mount namespace.
            _check(_libc.unshare(_CLONE_FS), "unshare file system attributes")
            _check(_libc.setns(self.net_fd, _CLONE_NEWNET), "enter network namespace")
            _check(_libc.setns(self.mnt_fd, _CLONE_NEWNS), "enter mount namespace")
            _check(_libc.setns(self.pid_fd, _CLONE_NEWPID), "enter PID namespace")
            return function()

        return in_own_thread(inside)

    def check_output(
        self, argv: Sequence[str], *, stdin: str = "", pass_fds: Sequence[int] = ()
    ) -> str:
        """Run a set-up command (ip, ethtool) in the network namespace; its standard output.

        DatapathError with the command's own words when it fails.
        """

        def command() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                argv, input=stdin, text=True, capture_output=True, pass_fds=pass_fds, timeout=30
            )

        try:
            done = self.in_network(command)
        except FileNotFoundError:
            raise CapabilityError(
                f"program {argv[0]} is not installed",
                hint=install_hint(argv[0]),
            ) from None
        if done.returncode != 0:
            words = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
            raise DatapathError(f"{' '.join(argv)} in namespace {self.name}: {words}")
        return done.stdout


class Holder:
    """Starts holder.py, owns the descriptors it sends, and ends it.

    Namespaces are made by open() and are gone after close(), or when this
    process ends for whatever reason.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._fds: list[int] = []

    def open(self) -> list[Namespace]:
        """The namespaces, in the order of the names; CapabilityError when not permitted."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_HOLDER_TIMEOUT_S)
        self._control = ours
        argv = [sys.executable, "-I", "-S", str(_HOLDER), str(theirs.fileno()), str(os.getpid())]
        self._process = subprocess.Popen(
            argv + self._names,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        try:
            (pid_fd,) = self._receive("pid", 1)
            spaces = []
            for name in self._names:
                net_fd, mnt_fd = self._receive(name, 2)
                spaces.append(Namespace(name, net_fd, mnt_fd, pid_fd))
            return spaces
        except BaseException:
            self.close()
            raise

    def _receive(self, name: str, count: int) -> list[int]:
        assert self._control is not None
        fds = array.array("i")
        try:
            message, ancillary, flags, _ = self._control.recvmsg(
                4096, socket.CMSG_SPACE(count * fds.itemsize)
            )
        except TimeoutError:
            raise DatapathError("the namespace holder does not answer") from None
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        self._fds.extend(fds)
        _, _, text = message.decode().partition("\0")
        if text == "ok" and flags & socket.MSG_CTRUNC:
            raise CapabilityError(
                f"cannot make the namespaces of {name}: {os.strerror(errno.EMFILE)}",
                hint="raise the limit on open files: ulimit -n 4096",
            )
        if text != "ok" or len(fds) != count:
            raise CapabilityError(
                f"cannot make the namespaces of {name}: {text or 'the holder ended'}",
                hint="the netns lane needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN); "
                "in a container, start it with --privileged",
            )
        return list(fds)

    def close(self) -> None:
        """Kill everything inside; safe to call twice."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def wait(self) -> None:
        """After close(), and after every program started inside has been waited for."""
        if self._process is not None:
            # The init of a PID namespace ends after all others in it have been waited for.  If
            # one has not, the holder goes when that happens; there is nothing else to free.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_HOLDER_TIMEOUT_S)
            self._process = None


@contextlib.contextmanager
def installed(argv: Sequence[str]) -> Iterator[None]:
    """Around the start of a program: CapabilityError, by its name, when it is not installed."""
    try:
        yield
    except FileNotFoundError as error:
        if error.filename not in (argv[0], None):
            raise
        raise CapabilityError(
            f"program {argv[0]} is not installed", hint=install_hint(argv[0])
        ) from None


def spawn(
    namespace: Namespace,
    argv: Sequence[str],
    *,
    cpus: Collection[int] | None = None,
    policy: Policy = "ordinary",
    known: list[subprocess.Popen[bytes]] | None = None,
    **popen_arguments: Any,
) -> subprocess.Popen[bytes]:
    """subprocess.Popen in the namespaces; the working directory stays the caller's.

    policy: the program's scheduling policy, which this process must be allowed to give.
    known: the program is added to it, also if an interrupt keeps this from returning.
    """
    cwd = popen_arguments.pop("cwd", None) or Path.cwd()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        if cpus is not None:
            os.sched_setaffinity(0, cpus)  # of this thread alone; the program inherits it
        scheduling.enter(policy)  # likewise
        process = subprocess.Popen(list(argv), cwd=cwd, start_new_session=True, **popen_arguments)
        started.append(process)
        if known is not None:
            known.append(process)
        scheduling.limit(process.pid, policy)
        return process

    try:
        return namespace.in_all(start)
    except BaseException:
        for process in started:  # interrupted: nobody would end it
            process.kill()
            process.wait()
        raise
