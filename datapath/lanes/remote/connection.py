# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One ssh connection to a host, and the warden at its far end.

Theory of operation.  sshd does not end a session's program when its connection
breaks, and a program may have left its session anyway.  So every connection
starts a warden first (warden.sh), a shell that waits at the end of a pipe.
Programs carry a secret token in their environment; the warden kills what has
the token when it is told to, when the pipe closes (this process was killed,
the connection broke) or when it hears nothing for a minute (the network is
gone).  The warden also answers small questions without a process of their own,
which counts where processes are dear.

In the other direction, a host that does not answer for KEEPALIVE_S *
KEEPALIVE_COUNT seconds is gone: everything that waits for it, and everything
that is asked of it later, is a RunFailed that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import itertools
import secrets
import shlex
import socket
from collections.abc import Awaitable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from datapath import search_path
from datapath.errors import CapabilityError, DatapathError, RunFailed
from datapath.lanes.remote import loop

if TYPE_CHECKING:
    import asyncssh

    from datapath.lanes.remote.session import Answers, ProgramSession

KEEPALIVE_S = 5
KEEPALIVE_COUNT = 5
LOGIN_TIMEOUT_S = 60
WARDEN_PATIENCE_S = 60
HEARTBEAT_S = 10
_ANSWER_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 10.0
_FULL_BYTES = 1 << 20
"""With less than that, a write that failed has failed for want of space."""
_CLOSING_S = 0.1  # from the news of a closing connection until it is closed, at most
_PATH = f'"PATH=$PATH:{":".join(search_path.SYSTEM)}"'

_Result = TypeVar("_Result")


def import_asyncssh() -> Any:
    """asyncssh, imported only when a host is to be reached; CapabilityError without it."""
    try:
        import asyncssh
    except ImportError:
        raise CapabilityError(
            "the Python package asyncssh is not installed", hint="pip install asyncssh"
        ) from None
    return asyncssh


@dataclass(frozen=True)
class ClientKey:
    """A key to log in with, which need not lie in a file."""

    private: asyncssh.SSHKey

    @classmethod
    def generate(cls) -> ClientKey:
        return cls(import_asyncssh().generate_private_key("ssh-ed25519"))

    @property
    def public(self) -> str:
        """The line for an authorized_keys file."""
        return self.private.export_public_key().decode().strip()


def socket_login(sock: socket.socket, key: ClientKey, user: str = "root") -> dict[str, Any]:
    """Options for Connection: through a connected socket, to a host that cannot be another one."""
    return {
        "sock": sock,
        "username": user,
        "client_keys": [key.private],
        "known_hosts": None,
        "config": None,
        "agent_path": None,
    }


class Connection:
    """A host that one is logged in to.

    name: what errors call it.  login: options of asyncssh.connect().  sudo: do
    everything as root, if the user is another and sudo asks for no password.
    The constructor logs in; it raises what asyncssh raises when the host
    cannot be reached or refuses (OSError, asyncssh.Error), DatapathError when
    its shell is not one, or has not the tools that belong to every Linux.
    """

    def __init__(self, name: str, login: Mapping[str, Any], *, sudo: bool = False) -> None:
        self.name = name
        self.folder = ""
        """Temporary folder on the host; goes with the connection."""
        self.address = ""
        """IPv4 address at which ssh reached the host and which is its own, or ""."""
        self.user = ""
        self.root = False
        """Whether programs run as root."""
        self.cpus: list[int] = []
        self._become: tuple[str, ...] = ()
        self._token = secrets.token_hex(16)
        self._numbers = itertools.count(1)
        self._lost = ""
        self._closed = False
        self._ssh: asyncssh.SSHClientConnection | None = None
        self._warden: Answers | None = None
        self._sftp: asyncssh.SFTPClient | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()
        import_asyncssh()
        import asyncssh

        try:
            loop.call(self._open(login, sudo))
        except asyncssh.ChannelOpenError as error:
            closing = self._is_closing()
            self.close()
            if closing:
                raise
            raise self._refuses_sessions(CapabilityError, error) from None
        except BaseException:
            self.close()
            raise

    # --- from any thread ---

    def call(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine that uses this connection; RunFailed when the host goes away."""
        import asyncssh

        if self._lost:
            coroutine.close()
            raise self.gone()
        try:
            return loop.call(coroutine)
        except (asyncssh.DisconnectError, asyncssh.SFTPConnectionLost, ConnectionError) as error:
            self.lose(str(error))
            raise self.gone() from None
        except asyncssh.SFTPError as error:
            raise self._without_file(error.reason) from None
        except asyncssh.ChannelOpenError as error:
            if self._is_closing():
                self.lose(str(error))
                raise self.gone() from None
            raise self._refuses_sessions(RunFailed, error) from None

    def _refuses_sessions(self, kind: type[DatapathError], error: Exception) -> DatapathError:
        return kind(
            f"{self.name} starts no more sessions: {error}",
            hint="raise MaxSessions in its /etc/ssh/sshd_config",
        )

    def _without_file(self, reason: str) -> RunFailed:
        """For a failure of sftp, which has no word for a full file system."""
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            left_bytes, files = loop.call(self._space())
            if left_bytes < _FULL_BYTES or not files:
                return RunFailed(
                    f"no space is left for files of {self.name}: {self.folder} there has "
                    f"{left_bytes >> 10} KiB" + ("" if files else ", and room for no file"),
                    hint="make space there, or set TMPDIR there to a folder that has some",
                )
        return RunFailed(f"files of {self.name}: {reason}", hint=f"look at {self.folder} there")

    def _is_closing(self) -> bool:
        """The connection is closed, or is so in a moment: channels are told first."""
        if self._lost or self._ssh is None:
            return True
        try:
            loop.call(asyncio.wait_for(self._ssh.wait_closed(), _CLOSING_S))
        except TimeoutError:
            return False
        return True

    def ask(self, line: str, timeout_s: float = _ANSWER_TIMEOUT_S) -> str:
        """The warden's answer to a line; see warden.sh."""
        return self.call(self.answer(line, timeout_s))

    def make(self, command: Sequence[str], undo: Sequence[str], mark: str = "-") -> str | None:
        """Run a command, of words without blanks; None, or what it says if it fails.

        undo: takes away what it made.  It runs when the connection ends, however that happens, but
        not if the command failed: what is there then is another connection's.
        mark: a file or folder of what it made, for made().
        """
        answer = self.ask(f"make {mark} / {' '.join(undo)} / {' '.join(command)}")
        return None if answer == "ok" else answer

    def made(self, mark: str) -> bool:
        """Whether make() of a connection, this one or another, made it; else it is there to stay.

        False also for what is not there.
        """
        return self.ask(f"made {mark}") == "yes"

    def undone(self, undo: Sequence[str]) -> None:
        """What make() made is there no more."""
        self.ask(f"undone {' '.join(undo)}")

    def close(self) -> None:
        """End all programs, remove the folder, log out; harmless when that has happened."""
        if not self._closed:
            self._closed = True
            loop.call(self._close())

    def gone(self, reason: str = "") -> RunFailed:
        """The error for a host that is not there any more."""
        return RunFailed(
            f"host {self.name} is gone: {self._lost or reason or 'its connection was closed'}",
            hint="its programs cannot be reached; start the run again once the host is back",
        )

    @property
    def lost(self) -> bool:
        return bool(self._lost)

    # --- in the loop's thread ---

    async def answer(self, line: str, timeout_s: float = _ANSWER_TIMEOUT_S) -> str:
        assert self._warden is not None
        if self._lost:
            raise self.gone()
        try:
            return await asyncio.wait_for(self._warden.ask(line), timeout_s)
        except TimeoutError:
            self.lose(f"its warden did not answer for {timeout_s:g} s")
        except ConnectionError:
            pass
        raise self.gone()

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cpus: Collection[int] | None,
        session: ProgramSession,
    ) -> None:
        """Start a program whose output goes to `session`; sets its `word` for the warden."""
        assert self._ssh is not None
        session.word = f"{next(self._numbers)}."
        binding = ["taskset", "-c", ",".join(map(str, sorted(cpus)))] if cpus else []
        settings = [f"DATAPATH_PROGRAM={self._token}.{session.word}"]
        settings += [f"{key}={value}" for key, value in env.items()]
        path = [] if "PATH" in env else [_PATH]
        words = [
            *("cd", shlex.quote(self.folder), "&&", "exec", *self._become, "env"),
            *map(shlex.quote, settings),
            *path,
            *map(shlex.quote, [*binding, *argv]),
            session.redirection,
        ]
        await self._ssh.create_session(lambda: session, " ".join(words), encoding=None)

    async def sftp(self) -> asyncssh.SFTPClient:
        """The one session for files, started when the first is needed."""
        import asyncssh

        assert self._ssh is not None
        async with self._turn:
            if self._sftp is None:
                try:
                    self._sftp = await self._in_time(
                        self._ssh.start_sftp_client(),
                        "its sftp",
                        "see Subsystem sftp in its sshd_config, and try by hand: sftp",
                    )
                except asyncssh.ChannelOpenError as error:
                    if error.code != asyncssh.OPEN_REQUEST_SESSION_FAILED:
                        raise
                    raise CapabilityError(
                        f"{self.name} has no sftp",
                        hint="its sshd_config needs: Subsystem sftp internal-sftp",
                    ) from None
            return self._sftp

    async def _space(self) -> tuple[int, bool]:
        """Bytes that are left for the folder, and whether it may have one more file."""
        found = await (await self.sftp()).statvfs(self.folder)
        # File systems that do not count files say that they have none of any kind.
        return found.bavail * found.frsize, not found.files or found.favail > 0

    def lose(self, reason: str) -> None:
        """The host is gone from now on; the calls that wait for it fail."""
        if not self._lost:
            self._lost = reason or "the connection was closed"
        if self._ssh is not None:
            loop.loop().call_soon_threadsafe(self._ssh.abort)

    async def _open(self, login: Mapping[str, Any], sudo: bool) -> None:
        import asyncssh

        defaults = {
            "login_timeout": LOGIN_TIMEOUT_S,
            "keepalive_interval": KEEPALIVE_S,
            "keepalive_count_max": KEEPALIVE_COUNT,
            # The network is to be measured, not the CPU.
            "compression_algs": ["none"],
        }
        self._ssh = await asyncssh.connect(**{**defaults, **login})
        if sudo:
            await self._look_around()
        await self._start_warden()
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._beat())]

    async def _in_time(self, waits: Awaitable[_Result], what: str, hint: str) -> _Result:
        """For what a program there has to answer first: its sshd answers keepalives meanwhile."""
        try:
            return await asyncio.wait_for(waits, LOGIN_TIMEOUT_S)
        except TimeoutError:
            raise DatapathError(
                f"{self.name}: {what} did not answer for {LOGIN_TIMEOUT_S:g} s", hint=hint
            ) from None

    async def _look_around(self) -> None:
        """The user there, and the address."""
        assert self._ssh is not None
        done = await self._in_time(
            self._ssh.run('id -u; echo "$SSH_CONNECTION"; sudo -n true && echo may'),
            "its login shell or sudo",
            "log in by hand, and see what ~/.bashrc or sudo there waits for",
        )
        uid, _, rest = str(done.stdout).partition("\n")
        if uid != "0" and rest.endswith("\nmay\n"):
            self._become = ("sudo", "-n")
        peer = self._ssh.get_extra_info("peername")
        _, _, address, _ = [*rest.split("\n")[0].split(), *[""] * 4][:4]
        # Behind address translation, the host's own address is no use to others.
        if peer and peer[0] == address and not address.startswith("127.") and ":" not in address:
            self.address = address

    async def _start_warden(self) -> None:
        from datapath.lanes.remote.session import Answers

        assert self._ssh is not None
        script = importlib.resources.files(__package__).joinpath("warden.sh").read_text()
        shell = ["bash", "--norc", "--noprofile", "-c", script, "warden", str(WARDEN_PATIENCE_S)]
        if self._become:  # sudo would drop TMPDIR, and has a PATH of its own
            kept = '"TMPDIR=${TMPDIR:-/tmp}" "PATH=$PATH"'
            keep = f'exec {" ".join(self._become)} env {kept} "$@"'
            shell = ["sh", "-c", keep, "sh", *shell]
        command = shlex.join(shell)
        warden = Answers()
        await self._ssh.create_session(lambda: warden, f"exec {command}", encoding=None)
        self._warden = warden
        try:
            hello = await asyncio.wait_for(warden.ask(self._token), LOGIN_TIMEOUT_S)
            word, uid, cpus, self.folder = hello.split(" ", 3)
            if word != "ready":
                raise ValueError
        except (ConnectionError, ValueError, TimeoutError):
            said = warden.last_words() or "it said nothing"
            if said.startswith("mktemp: "):
                raise DatapathError(
                    f"no temporary folder on {self.name}: {said}",
                    hint="make space there, or set TMPDIR there to a folder for programs",
                ) from None
            raise DatapathError(
                f"cannot run a shell on {self.name}: {said}",
                hint="it needs bash, grep, coreutils and util-linux, "
                "and a login shell that prints nothing of its own",
            ) from None
        self.root = uid == "0"
        self.cpus = parse_cpus(cpus)
        self.user = self._ssh.get_extra_info("username")

    async def _watch(self) -> None:
        """Until the connection or the warden ends, then tell why."""
        assert self._ssh is not None
        assert self._warden is not None
        warden = asyncio.create_task(self._warden.ended.wait())
        closed = asyncio.create_task(self._ssh.wait_closed())
        await asyncio.wait([warden, closed], return_when=asyncio.FIRST_COMPLETED)
        if self._closed:
            return
        await asyncio.sleep(0)
        self.lose(str(self._warden.reason or "") or "its sshd or its warden ended")

    async def _beat(self) -> None:
        with contextlib.suppress(RunFailed):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                await self.answer("alive")

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._warden is not None and not self._lost:
            with contextlib.suppress(DatapathError):
                await self.answer("bye", _CLOSE_TIMEOUT_S)
        self._lost = self._lost or "its connection was closed"
        if self._ssh is not None:
            self._ssh.close()
            try:
                await asyncio.wait_for(self._ssh.wait_closed(), _CLOSE_TIMEOUT_S)
            except TimeoutError:
                self._ssh.abort()


def parse_cpus(text: str) -> list[int]:
    """Numbers of a kernel's CPU list: "0-2,5" is [0, 1, 2, 5]."""
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus
