# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A stage of the selftest that runs in a process of its own while others run."""

from __future__ import annotations

import codecs
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import BinaryIO

from datapath.cli.tally import Failure, Tally

_LOOK_S = 0.2


class Aside:
    """stage(arguments) in a child process.  It starts with `with`, at whose end it is ended.

    Its output goes to a file until `join` prints it: nobody can read two stages at once.
    """

    def __init__(self, stage: Callable[[Sequence[str]], Tally], arguments: Sequence[str]) -> None:
        self._stage, self._arguments = stage, arguments

    def __enter__(self) -> Aside:
        self._output = tempfile.TemporaryFile(prefix="dpctl-selftest-")
        # The child needs nothing but what is imported here, and this process has no threads.
        context = multiprocessing.get_context("fork")
        self._answer, answer = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(self._stage, self._arguments, self._output, answer)
        )
        sys.stdout.flush()
        self._process.start()
        answer.close()
        return self

    def join(self) -> tuple[Tally, float]:
        """Print its output until it ends; its counts, and how many seconds it took."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        begin, ended = 0, False
        while not ended:
            ended = self._answer.poll(_LOOK_S)  # also when the child has died
            while data := os.pread(self._output.fileno(), 1 << 16, begin):
                sys.stdout.write(decoder.decode(data))
                begin += len(data)
            sys.stdout.flush()
        try:
            tally, seconds = self._answer.recv()
        except EOFError:
            died = Failure(self._stage.__name__, "its process died")
            tally, seconds = Tally(failed=1, failures=[died]), 0.0
        self._process.join()
        return tally, seconds

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self._answer.close()
        self._output.close()


def _run(
    stage: Callable[[Sequence[str]], Tally],
    arguments: Sequence[str],
    output: BinaryIO,
    answer: Connection,
) -> None:
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    started = time.monotonic()
    tally = stage(arguments)
    answer.send((tally, time.monotonic() - started))
