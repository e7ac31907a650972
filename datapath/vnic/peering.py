# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connections between cards, on which they prove the key and agree on tunnels.

Of two hosts, the one that the file names first calls the other.  The TCP connection stays open for
as long as the tunnel is there: when a card or its host goes away, the other side learns of it and
ends the tunnel, and the caller calls again.

Strangers may connect.  They get a random number for their hello, within a time and a number of
connections, and nothing else happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence

from datapath.errors import DatapathError, RemoteError
from datapath.vnic.handshake import LINE_MAX, Answerer, Caller, Offer
from datapath.vnic.program import CardEnded, Program

HANDSHAKE_S = 5.0
STRANGERS_MAX = 64
TOLD_MAX = 1024
"""Hosts and strangers of which is remembered what was told."""
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
        self._program, self._key, self._port, self._tell = program, key, control_port, tell
        self._hosts = list(program.settings.hosts)
        self._index = {host.name: i for i, host in enumerate(self._hosts)}
        self._calls = list(calls)
        self._sessions: dict[str, asyncio.StreamWriter] = {}
        self._strangers = 0
        self._told: dict[str, str] = {}
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Until cancelled, or CardEnded."""
        me = self._hosts[0].address
        server = await asyncio.start_server(self._answer, me, self._port, limit=LINE_MAX)
        async with server, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            for name in self._calls:
                tasks.create_task(self._keep_calling(name))

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
        self._tell(f"{who}: {why}")
        if who not in self._index and len(self._told) >= TOLD_MAX:
            self._told = {name: old for name, old in self._told.items() if name in self._index}
        self._told[who] = why

    async def _watch(self) -> None:
        """Ends the session of a tunnel that broke, so that it is made anew."""
        while True:
            await asyncio.sleep(_WATCH_S)
            if not self._program.runs:
                raise CardEnded("the virtual card has ended")
            for name, state in self._program.state().items():
                if state == "broken" and name in self._sessions:
                    self._tell(f"the tunnel to {name} broke")
                    self._sessions[name].close()

    def _make_offer(self, name: str) -> Offer:
        return Offer(self._program.settings.mtu, self._program.offer(self._index[name]))

    def _check_offer(self, name: str, theirs: Offer) -> None:
        settings = self._program.settings
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
            if self._program.runs:
                self._program.disconnect(self._index[name])
            self._tell(f"the tunnel to {name} is down")

    # ---- the caller ----

    async def _keep_calling(self, name: str) -> None:
        delay_s, longest_s = _RETRY_S
        while True:
            try:
                await self._call(name)
                delay_s = _RETRY_S[0]
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
                self._program.connect(self._index[name], theirs.ends)
            await self._stay(name, reader, writer)

    def _no_answer(self, name: str, error: OSError | EOFError) -> str:
        where = f"{self._hosts[self._index[name]].address}, TCP port {self._port}"
        if isinstance(error, EOFError):
            return f"the card at {where} hangs up; what does it say?"
        why = os.strerror(error.errno) if error.errno else f"nothing within {HANDSHAKE_S:g} s"
        return f"no card answers at {where}: {why}; it is called again until one does"

    # ---- the answerer ----

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.closing(writer):
                if self._strangers >= STRANGERS_MAX:
                    self.counts["too_many"] += 1
                    return
                name = await self._meet(reader, writer)
                if name:
                    await self._stay(name, reader, writer)
        except asyncio.CancelledError:
            pass  # at the end of the service; asyncio would tell it as an error

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """The name of the peer with which there is a tunnel now; "": it is none."""
        self._strangers += 1
        who, answerer = _peer_address(writer), Answerer(self._key, self._hosts[0].name)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                writer.write(answerer.challenge(await _line(reader)))
                self._check_caller(answerer.peer, writer)
                who = name = answerer.peer
                theirs, answer = answerer.accept(
                    await _line(reader), lambda: self._make_offer(name)
                )
                try:
                    self._check_offer(name, theirs)
                except RemoteError:
                    writer.write(answer)  # by which the caller learns of it
                    raise
                self._program.connect(self._index[name], theirs.ends)
                writer.write(answer)
                return name
        except (OSError, EOFError):
            self.counts["silent"] += 1
            if who in self._index:
                self._tell_failure(who, "it called and hung up; do the hosts have the same key?")
        except DatapathError as error:
            self.counts["refused"] += 1
            self._tell_failure(who, _with_hint(error))
        finally:
            self._strangers -= 1
        return ""

    def _check_caller(self, name: str, writer: asyncio.StreamWriter) -> None:
        """RemoteError unless the host of this name is meant to call, from this address."""
        index = self._index.get(name, 0)
        if index == 0 or name in self._calls:
            raise RemoteError(f"{name!r} is no host that calls this one")
        if _peer_address(writer) != self._hosts[index].address:
            raise RemoteError(f"{name} calls from another address than its own")


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
