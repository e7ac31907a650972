# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The output of a program and of the warden over ssh.

Everything here happens in the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable

import asyncssh

_STATUS_UNKNOWN = 255
"""Of a program that a signal ended for which ssh has no name."""

_DRAIN_S = 2.0
"""A program's output is taken to be over when, after its end, nothing came for so long."""


class Answers(asyncssh.SSHClientSession[bytes]):
    """One answer for each line, in order."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.reason: Exception | None = None
        self._channel: asyncssh.SSHClientChannel[bytes]
        self._waiting: deque[asyncio.Future[str]] = deque()
        self._rest = b""
        self._said = b""

    async def ask(self, line: str) -> str:
        """ConnectionError when no answer will come any more."""
        if self.ended.is_set():
            raise ConnectionError
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._channel.write(line.encode() + b"\n")
        return await answer

    def last_words(self) -> str:
        lines = self._said.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._said = (self._said + data)[-1000:]
        if datatype is not None:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            answer = self._waiting.popleft() if self._waiting else None
            if answer is not None and not answer.done():
                answer.set_result(line.decode(errors="replace"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.reason = exc
        self.ended.set()
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(ConnectionError())
        self._waiting.clear()


class ProgramSession(asyncssh.SSHClientSession[bytes]):
    """The output and the end of one program.

    out, err: where its output goes, or None for nowhere; the same object twice
    keeps the order in which both were written.  on_error is called when one of
    them raises OSError, close when no more output will come.  reads: it has a standard input, which
    tell() feeds.
    """

    def __init__(
        self,
        out: Callable[[bytes], None] | None,
        err: Callable[[bytes], None] | None,
        close: Callable[[], None] = lambda: None,
        *,
        reads: bool = False,
    ) -> None:
        self.word = "0."
        """Which program it is, for the warden."""
        self.begun = False
        self.ended = threading.Event()
        self.status: int | None = None
        self.error: Exception | None = None
        """Why there is no status, or not all of the output."""
        self._sinks = {None: out, asyncssh.EXTENDED_DATA_STDERR: err}
        self._close_sinks = close
        self.on_error: Callable[[], None] = lambda: None
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._drain: asyncio.TimerHandle | None = None
        both = out is not None and out is err
        words = [] if reads else ["</dev/null"]
        words += [] if out else [">/dev/null"]
        words += ["2>&1"] if both else [] if err else ["2>/dev/null"]
        self.redirection = " ".join(words)

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def session_started(self) -> None:
        self.begun = True

    def tell(self, data: bytes) -> None:
        """Give the program input; nothing: there is no more of it."""
        if self._channel is None or self._channel.is_closing():
            return
        if data:
            self._channel.write(data)
        else:
            self._channel.write_eof()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self._drain is not None:
            self._ended_with(self.status)
        sink = self._sinks.get(datatype)
        if sink is None or self.error is not None:
            return
        try:
            sink(data)
        except OSError as error:
            self.error = error
            self.on_error()

    def exit_status_received(self, status: int) -> None:
        self._ended_with(status)

    def exit_signal_received(self, signal_name: str, *_: object) -> None:
        number = getattr(signal, f"SIG{signal_name}", None)
        self._ended_with(_STATUS_UNKNOWN if number is None else -int(number))

    def _ended_with(self, status: int | None) -> None:
        """The rest of the output is on its way, unless a daemon of its holds it open."""
        self.status = status
        if self._drain is not None:
            self._drain.cancel()
        self._drain = asyncio.get_running_loop().call_later(_DRAIN_S, self.connection_lost, None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._drain is not None:
            self._drain.cancel()
        if self.ended.is_set():
            return
        if self.status is None and self.error is None:
            self.error = exc or ConnectionError("the session ended without a status")
        with contextlib.suppress(OSError):
            self._close_sinks()
        self.ended.set()
        if self._channel is not None:
            self._channel.close()


def append_to(descriptor: int) -> Callable[[bytes], None]:
    """A sink that writes all of the data to a file."""

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    return write
