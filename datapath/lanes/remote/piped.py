# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program on a host reached by ssh that one talks with; implements datapath.dialogue.Piped.

Its pipes are pipes of this machine, whose far ends the loop of the connections serves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from datapath.lanes.remote import loop
from datapath.lanes.remote.connection import Connection
from datapath.lanes.remote.process import RemoteProcess, start_session
from datapath.lanes.remote.session import ProgramSession, append_to

_CHUNK_BYTES = 65536


class PipedProcess(RemoteProcess):
    """As RemoteProcess, with standard input and output in bytes.

    The host ends the program's input when the connection ends.
    """

    def __init__(self, connection: Connection, argv: Sequence[str]) -> None:
        from_us, to_it = os.pipe()
        to_us, from_it = os.pipe()
        self.stdin = os.fdopen(to_it, "wb")
        self.stdout = os.fdopen(to_us, "rb")
        self._input: int | None = from_us
        session = ProgramSession(append_to(from_it), None, lambda: self._over(from_it), reads=True)
        super().__init__(connection, argv, session)

    def feed(self) -> None:
        """From now on the program gets what is written; in the loop's thread."""
        if self._input is not None:
            loop.loop().add_reader(self._input, self._forward, self._input)

    def _forward(self, descriptor: int) -> None:
        data = os.read(descriptor, _CHUNK_BYTES)
        self.session.tell(data)
        if not data:
            self._end_input()

    def _over(self, output: int) -> None:
        """In the loop's thread, once the program says no more."""
        os.close(output)
        self._end_input()

    def _end_input(self) -> None:
        if self._input is not None:
            loop.loop().remove_reader(self._input)
            os.close(self._input)
            self._input = None


def start_piped(connection: Connection, argv: Sequence[str]) -> PipedProcess:
    """Start a program, without a standard error; RunFailed when the host is gone."""
    process = PipedProcess(connection, argv)
    start_session(process, {}, None)
    loop.loop().call_soon_threadsafe(process.feed)
    return process
