# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program of ours that runs beside the others and answers in lines, over two pipes."""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import threading
import time
from typing import IO, Protocol

from datapath.errors import RunFailed, ending

_ANSWER_S = 10.0


class Piped(Protocol):
    """A running program with pipes, as far as a dialogue needs it: a part of subprocess.Popen."""

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def stdout(self) -> IO[bytes] | None: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; subprocess.TimeoutExpired after `timeout` seconds."""
        ...

    def kill(self) -> None: ...


class Dialogue:
    """The running program, from construction to close().

    process: has pipes as standard input and output, in bytes.  name: as errors call it.  RunFailed
    when it does not answer for 10 s, or has ended.  After such a silence it is not asked again: its
    late answer would be taken for the next.  Several threads may ask().
    """

    def __init__(self, process: Piped, name: str) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError(f"{name} has no pipes")
        self.process, self.name = process, name
        self._input, self._output = process.stdin, process.stdout
        self._unread = b""
        self._silent = False
        self._turn = threading.Lock()

    def check_alive(self) -> None:
        """RunFailed when it has ended, or was silent once."""
        if self.process.poll() is not None:
            raise self._ended()
        self._check_speaks()

    def ask(self, line: str) -> str:
        """Say a line; the answer to it."""
        with self._turn:
            self._check_speaks()
            try:
                self._input.write(line.encode() + b"\n")
                self._input.flush()
            except (BrokenPipeError, ValueError):
                raise self._ended() from None
            return self.hear()

    def say_no_more(self) -> None:
        """End the program's standard input; its further output can still be read."""
        with contextlib.suppress(BrokenPipeError):  # what it did not read goes nowhere
            self._input.close()

    def hear(self) -> str:
        """The next line that the program says."""
        deadline = time.monotonic() + _ANSWER_S
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            self._silent |= left <= 0 or not select.select([self._output], [], [], left)[0]
            self._check_speaks()
            # One read of the descriptor: the buffered stream would wait for more.
            chunk = self._output.raw.read(65536)  # type: ignore[attr-defined]
            if not chunk:
                raise self._ended()
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        """End the program; safe to call twice."""
        self.say_no_more()
        self._output.close()
        try:
            self.process.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _check_speaks(self) -> None:
        if self._silent:
            raise RunFailed(f"{self.name} does not answer", hint="the machine is overloaded")

    def _ended(self) -> RunFailed:
        status = self.process.wait(_ANSWER_S)
        hint = "dmesg says if memory ran out" if status == -signal.SIGKILL else ""
        return RunFailed(f"{self.name} {ending(status)}", hint=hint)
