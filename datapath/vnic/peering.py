# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connections between cards, on which they prove the key and agree on tunnels.

Of two hosts, the one that the file names first calls the other.  The TCP connection stays open for
as long as the tunnel is there: when a card or its host goes away, the other side learns of it and
ends the tunnel, and the caller calls again.

Strangers may connect.  Who does so from another address than those of the hosts that call this one
is hung up on.  Of each such address a number of connections may shake hands, each for a short time;
one more takes the place of the oldest, so that silent ones keep no card from calling.  They get a
random number for their hello, and nothing else happens before the proof.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from datapath.errors import CapabilityError, DatapathError, RemoteError
from datapath.vnic.handshake import LINE_MAX, Answerer, Caller, Offer
from datapath.vnic.program import CardEnded, Program

HANDSHAKE_S = 5.0
CALLS_MAX = 8
"""Handshakes that go on with one host."""
STRANGERS_TOLD = 1024
"""So many are told of, each once."""
_RETRY_S = (0.2, 2.0)
_WATCH_S = 0.25
_KEEPALIVE = {"TCP_KEEPIDLE": 3, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 5}


class Peering:
    """All tunnels of one card.

    program: its hosts are the peers, in the order of the file; first: names of the hosts that this
    one calls.  tell: is given a line for the user when a tunnel comes or goes, and why there is
    none: once, and again when the reason changes.
    counts: refused handshakes and calls, by their reason.
    """

    def __init__(
        self,
        program: Program,
        key: bytes,
        control_port: int,
        calls: Sequence[str],
        tell: Callable[[str], None],
    ) -> None:
        self.program, self._key, self._port, self._tell = program, key, control_port, tell
        self._hosts = list(program.settings.hosts)
        self._index = {host.name: i for i, host in enumerate(self._hosts)}
        self._calls = list(calls)
        self._sessions: dict[str, asyncio.StreamWriter] = {}
        self._callers = {h.address: h.name for h in self._hosts[1:] if h.name not in calls}
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._meeting: defaultdict[str, list[asyncio.StreamWriter]] = defaultdict(list)
        self._told: dict[str, str] = {}
        self.counts: Counter[str] = Counter()

    async def listen(self) -> None:
        """From now on peers can call; run() has to follow.  CapabilityError."""
        me, port = self._hosts[0].address, self._port
        try:
            self._server = await asyncio.start_server(self._accept, me, port, limit=LINE_MAX)
        except OSError as error:
            raise CapabilityError(
                f"cannot listen on {me}, TCP port {port}: {os.strerror(error.errno or 0)}",
                hint="end the program that has the port (ss -tlnp), or give the hosts' file "
                "another control_port",
            ) from None

    async def run(self) -> None:
        """Until cancelled, or CardEnded; then all connections end."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                for name in self._calls:
                    tasks.create_task(self._keep_calling(name))
        finally:
            await self._hang_up()

    def reasons(self) -> dict[str, str]:
        """Name of each other host without a tunnel -> why, as far as it is known here."""
        known = {}
        for host in self._hosts[1:]:
            if host.name not in self._sessions:
                last = "it is being called" if host.name in self._calls else "it has not called"
                at = f"{last}, TCP port {self._port}"
                known[host.name] = self._told.get(host.name, at)
        return known

    # ---- both sides ----

    def _tell_failure(self, who: str, why: str) -> None:
        """who: a host's name, or a stranger's address."""
        if self._told.get(who) == why:
            return
        if who not in self._index and len(self._told) >= STRANGERS_TOLD:
            return
        self._tell(f"{who}: {why}")
        self._told[who] = why

    async def _watch(self) -> None:
        """Ends the session of a tunnel that broke, so that it is made anew."""
        while True:
            await asyncio.sleep(_WATCH_S)
            self.program.check_alive("the virtual card")
            for name, state in self.program.state().items():
                if state == "broken" and name in self._sessions:
                    self._tell(f"the tunnel to {name} broke")
                    self._sessions[name].close()

    def _make_offer(self, name: str) -> Offer:
        return Offer(self.program.settings.mtu, self.program.offer(self._index[name]))

    def _check_offer(self, name: str, theirs: Offer) -> None:
        settings = self.program.settings
        if theirs.mtu != settings.mtu or len(theirs.ends) != settings.pipes:
            raise RemoteError(
                f"{name} has an mtu of {theirs.mtu} and {len(theirs.ends)} pipes, this host "
                f"{settings.mtu} and {settings.pipes}",
                hint="give all hosts the same file",
            )

    async def _stay(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """A tunnel that is there: until the connection ends."""
        before, self._sessions[name] = self._sessions.get(name), writer
        if before is not None:
            before.close()  # the peer has begun anew, and its old tunnel is no more
        self._told.pop(name, None)
        self._tell(f"the tunnel to {name} is up")
        with contextlib.suppress(OSError):
            await reader.read(1)
        if self._sessions.get(name) is writer:
            del self._sessions[name]
            if self.program.runs:
                self.program.disconnect(self._index[name])
            self._tell(f"the tunnel to {name} is down")

    # ---- the caller ----

    async def _keep_calling(self, name: str) -> None:
        delay_s, longest_s = _RETRY_S
        while True:
            try:
                await self._call(name)
                delay_s = _RETRY_S[0]
            except CardEnded:
                raise
            except (OSError, EOFError) as error:
                self.counts["no_answer"] += 1
                self._tell_failure(name, self._no_answer(name, error))
            except DatapathError as error:
                self.counts["refused"] += 1
                self._tell_failure(name, _with_hint(error))
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, longest_s)

    async def _call(self, name: str) -> None:
        address, mine = self._hosts[self._index[name]].address, self._hosts[0].address
        async with _connection(address, self._port, mine) as (reader, writer):
            async with asyncio.timeout(HANDSHAKE_S):
                caller = Caller(self._key, self._hosts[0].name, name)
                writer.write(caller.hello())
                challenge = await _line(reader)
                writer.write(caller.offer(challenge, lambda: self._make_offer(name)))
                theirs = caller.accept(await _line(reader))
                self._check_offer(name, theirs)
                self.program.connect(self._index[name], theirs.ends)
            await self._stay(name, reader, writer)

    def _no_answer(self, name: str, error: OSError | EOFError) -> str:
        where = f"{self._hosts[self._index[name]].address}, TCP port {self._port}"
        if isinstance(error, EOFError):
            return f"the card at {where} hangs up; what does it say?"
        why = os.strerror(error.errno) if error.errno else f"nothing within {HANDSHAKE_S:g} s"
        return f"no card answers at {where}: {why}; it is called again until one does"

    # ---- the answerer ----

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Each caller has its own places, so that nobody else can take them."""
        address = _peer_address(writer)
        name = self._callers.get(address, "")
        if not name:
            self.counts["strangers"] += 1
            self._tell_failure(
                address, "it calls, and is the address of no host that calls this one"
            )
        elif self._server is not None:
            _keep_alive(writer)
            self._take_place(name, writer)
            task = asyncio.create_task(self._answer(name, reader, writer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        writer.close()

    def _take_place(self, name: str, writer: asyncio.StreamWriter) -> None:
        meeting = self._meeting[name]
        if len(meeting) == CALLS_MAX:
            self.counts["too_many"] += 1
            meeting.pop(0).close()
        meeting.append(writer)

    async def _answer(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # _watch() finds out as well that the card has ended, and ends run().
        with contextlib.closing(writer), contextlib.suppress(CardEnded):
            if await self._meet(name, reader, writer):
                await self._stay(name, reader, writer)

    async def _meet(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether there is a tunnel to the host now, from whose address somebody calls."""
        answerer = Answerer(self._key, self._hosts[0].name)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                writer.write(answerer.challenge(await _line(reader)))
                if answerer.peer != name:
                    raise RemoteError("its card has another name", hint="give all hosts one file")
                theirs, answer = answerer.accept(
                    await _line(reader), lambda: self._make_offer(name)
                )
                try:
                    self._check_offer(name, theirs)
                except RemoteError:
                    writer.write(answer)  # by which the caller learns of it
                    raise
                self.program.connect(self._index[name], theirs.ends)
                writer.write(answer)
                return True
        except TimeoutError:
            self.counts["silent"] += 1
            self._tell_failure(name, f"it called and said nothing for {HANDSHAKE_S:g} s")
        except (OSError, EOFError):
            if writer in self._meeting[name]:
                self.counts["silent"] += 1
                self._tell_failure(name, "it called and hung up; do the hosts have the same key?")
        except CardEnded:
            raise
        except DatapathError as error:
            self.counts["refused"] += 1
            self._tell_failure(name, _with_hint(error))
        finally:
            with contextlib.suppress(ValueError):  # another has its place
                self._meeting[name].remove(writer)
        return False

    async def _hang_up(self) -> None:
        """The peers learn from it that this card is no more."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)


def _with_hint(error: DatapathError) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)


def _peer_address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else "a caller"


async def _line(reader: asyncio.StreamReader) -> bytes:
    """EOFError when the peer goes away first; RemoteError for a line that is too long."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise RemoteError("a line is too long") from None


@contextlib.asynccontextmanager
async def _connection(address: str, port: int, source: str):  # type: ignore[no-untyped-def]
    async with asyncio.timeout(HANDSHAKE_S):
        reader, writer = await asyncio.open_connection(
            address, port, limit=LINE_MAX, local_addr=(source, 0)
        )
    _keep_alive(writer)
    try:
        yield reader, writer
    finally:
        writer.close()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """A peer that is gone without a word is noticed within seconds."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
