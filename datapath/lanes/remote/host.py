# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A host reached by ssh; implements datapath.lanes.base.Host."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.debian import install_hint
from datapath.errors import CapabilityError, RunFailed
from datapath.lanes.base import Endpoint
from datapath.lanes.remote import facts
from datapath.lanes.remote.connection import ClientKey, Connection, socket_login
from datapath.lanes.remote.files import RemoteFiles

if TYPE_CHECKING:
    from datapath.lanes.remote.process import RemoteProcess

_END_TIMEOUT_S = 10.0


class SshHost:
    """Programs run here over one connection, many at a time.

    shared_files: the host sees this machine's files (a guest over its root
    file system), so they need not be brought there.  What programs write is
    fetched in any case.  The host takes the connection over: close() ends both.
    """

    def __init__(
        self, name: str, endpoint: Endpoint, connection: Connection, *, shared_files: bool = False
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self.connection = connection
        self.shared_files = shared_files
        self._files = RemoteFiles(connection)
        self._has: dict[str, bool] = {}
        self._programs: list[RemoteProcess] = []

    @classmethod
    def over_socket(
        cls,
        name: str,
        endpoint: Endpoint,
        sock: socket.socket,
        key: ClientKey,
        *,
        user: str = "root",
        shared_files: bool = False,
    ) -> SshHost:
        """Log in through a connected socket, which is taken over; the host's key is not checked.

        RunFailed when that does not work.
        """
        import asyncssh

        try:
            connection = Connection(name, socket_login(sock, key, user))
        except (OSError, asyncssh.Error, TimeoutError) as error:
            sock.close()
            raise RunFailed(
                f"cannot log in to {name}: {error}", hint="see the log of its sshd"
            ) from None
        return cls(name, endpoint, connection, shared_files=shared_files)

    @property
    def cpus(self) -> list[int]:
        return self.connection.cpus

    def has_program(self, name: str) -> bool:
        if name not in self._has:
            self._has[name] = self.connection.ask(f"has {name}") == "yes"
        return self._has[name]

    def provide(self, path: Path) -> str:
        return str(path) if self.shared_files else self._files.provide(path)

    def outputs(self, folder: Path) -> str:
        return self._files.outputs(folder)

    def fetch(self, folder: Path) -> None:
        self._files.fetch(folder)

    def popen(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        cpus: Collection[int] | None = None,
        busy: bool = False,
    ) -> RemoteProcess:
        """As lanes.base.Host says; CapabilityError when the program is not installed.

        Its working directory is the connection's folder.  It dies with the
        connection, and so does all that it has started.
        """
        from datapath.lanes.remote import process

        self._require(argv[0])
        started = process.start(
            self.connection, argv, env or {}, cpus, process.log_session(stdout, stderr)
        )
        self._programs = [p for p in self._programs if p.returncode is None]
        self._programs.append(started)
        return started

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """As lanes.base.Host says; subprocess.TimeoutExpired after killing what overruns."""
        from datapath.lanes.remote import process
        from datapath.lanes.remote.session import ProgramSession

        self._require(argv[0])
        out, err = bytearray(), bytearray()
        session = ProgramSession(out.extend, err.extend)
        started = process.start(self.connection, argv, env or {}, None, session)
        try:
            status = started.wait(timeout_s)
        except BaseException:
            started.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(_END_TIMEOUT_S)
            raise
        return subprocess.CompletedProcess(
            list(argv), status, out.decode(errors="replace"), err.decode(errors="replace")
        )

    def check_alive(self) -> None:
        """RunFailed when it is gone; a silent one is waited for until it counts as gone."""
        self.connection.ask("alive")

    def facts(self) -> dict[str, Any]:
        """Facts that results may depend on: see datapath.lanes.remote.facts."""
        return facts.gather(self)

    def kill_programs(self) -> None:
        """Kill all programs of popen(), from any thread, and do not wait."""
        for program in tuple(self._programs):
            program.kill()

    def end_programs(self) -> None:
        """Kill and wait for all programs of popen() and run(), and those that they started.

        RunFailed when the host is gone.
        """
        self.connection.ask("end ")
        self.kill_programs()
        for program in self._programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(_END_TIMEOUT_S)
        self._programs.clear()

    def close(self) -> None:
        """End everything here and log out; harmless when the host is gone."""
        self.connection.close()

    def _require(self, program: str) -> None:
        if not self.has_program(program):
            raise CapabilityError(
                f"program {program} is not installed on {self.name}",
                hint=install_hint(program, where="there"),
            )
