# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program on a host reached by ssh; implements datapath.lanes.base.Process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from datapath.errors import DatapathError
from datapath.lanes.remote import loop
from datapath.lanes.remote.connection import Connection
from datapath.lanes.remote.session import ProgramSession, append_to

# sshd may have forked the program, and not yet given it the connection's token.
_KILL_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 3, 3)


class RemoteProcess:
    """As subprocess.Popen, as far as lanes agree.

    poll() and wait() raise RunFailed when the host is gone, and the OSError
    that kept its output from being written; not after kill(), which has then
    done what it can.
    """

    pid: None = None

    def __init__(
        self, connection: Connection, argv: Sequence[str], session: ProgramSession
    ) -> None:
        self.args = list(argv)
        self.connection = connection
        self.session = session
        self._killed = False

    @property
    def returncode(self) -> int | None:
        if not self.session.ended.is_set():
            return None
        if self.session.status is None and self._killed:
            return -signal.SIGKILL
        return self.session.status

    def poll(self) -> int | None:
        return self._result() if self.session.ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self.session.ended.wait(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._result()

    def _result(self) -> int:
        status, error = self.returncode, self.session.error
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            raise error
        if status is None:
            raise self.connection.gone(str(error))
        return status

    def kill(self) -> None:
        """Kill it and all it has started; returns at once."""
        first, self._killed = not self._killed, True
        if first and not self.session.ended.is_set():
            asyncio.run_coroutine_threadsafe(self.end(), loop.loop())

    async def end(self) -> None:
        """Have the warden kill it; give up waiting if that has no effect."""
        for pause_s in _KILL_PAUSES_S:
            with contextlib.suppress(DatapathError):
                await self.connection.answer(f"end {self.session.word}")
            if self.session.ended.is_set() or not self.session.begun:
                break
            await asyncio.sleep(pause_s)
        self.session.connection_lost(None)


def start(
    connection: Connection,
    argv: Sequence[str],
    env: Mapping[str, str],
    cpus: Collection[int] | None,
    session: ProgramSession,
) -> RemoteProcess:
    """Start a program; RunFailed when the host is gone."""
    process = RemoteProcess(connection, argv, session)
    start_session(process, env, cpus)
    return process


def start_session(
    process: RemoteProcess, env: Mapping[str, str], cpus: Collection[int] | None
) -> None:
    """Start the program of a process that was made; RunFailed when the host is gone."""
    connection, session = process.connection, process.session
    session.on_error = process.kill
    try:
        connection.call(connection.start(process.args, env, cpus, session))
    except BaseException:
        process.kill()  # interrupted: it may have started
        raise


def start_to(connection: Connection, argv: Sequence[str], out: int, err: int) -> RemoteProcess:
    """Start a program whose output goes to these descriptors, which are copied."""
    copies = [os.dup(descriptor) for descriptor in (out, err)]

    def close() -> None:
        for copy in copies:
            os.close(copy)

    session = ProgramSession(append_to(copies[0]), append_to(copies[1]), close)
    return start(connection, argv, {}, None, session)


def log_session(out: Path | None, err: Path | None) -> ProgramSession:
    """A session whose output is appended to files of this machine as it comes."""
    descriptors: dict[Path, int] = {}
    for path in (out, err):
        if path is not None and path not in descriptors:
            descriptors[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    sinks = {path: append_to(descriptor) for path, descriptor in descriptors.items()}

    def close() -> None:
        for descriptor in descriptors.values():
            os.close(descriptor)

    return ProgramSession(sinks[out] if out else None, sinks[err] if err else None, close)
