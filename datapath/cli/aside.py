# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Stages of the selftest that run in a process of their own while others run."""

from __future__ import annotations

import codecs
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import BinaryIO, NamedTuple

from datapath.cli.tally import Failure, Tally

_LOOK_S = 0.2
Stage = Callable[[Sequence[str]], Tally]


class StageDone(NamedTuple):
    """The result of a stage, its time, and the CPU time of its programs."""

    tally: Tally
    seconds: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.tally}  ({self.seconds:.0f} s, CPU {self.cpu_s:.0f} s)"


def timed(stage: Stage, arguments: Sequence[str]) -> StageDone:
    started, before = time.monotonic(), _childrens_cpu_s()
    tally = stage(arguments)
    return StageDone(tally, time.monotonic() - started, _childrens_cpu_s() - before)


def _childrens_cpu_s() -> float:
    """Of children that have been waited for."""
    return sum(os.times()[2:4])


class _Ended(NamedTuple):
    """Sent through a pipe, where what has no room would hold up the next stage."""

    output: int  # bytes of the output file that are its own or of stages before it
    done: int  # bytes of the file of results, likewise


class Aside:
    """Stages, one after another in a child process.

    The child starts with `with`, at whose end it is ended.  Output and result of a stage go to
    files until `join` asks for them: nobody can read two stages at once.
    """

    def __init__(self, stages: Sequence[Stage], arguments: Sequence[str]) -> None:
        self._left, self._arguments = list(stages), arguments
        self._printed = self._read = 0

    def __enter__(self) -> Aside:
        self._output = tempfile.TemporaryFile(prefix="dpctl-selftest-")
        self._results = tempfile.TemporaryFile(prefix="dpctl-selftest-")
        # The child needs nothing but what is imported here, and this process has no threads.
        context = multiprocessing.get_context("fork")
        self._ends, ends = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(self._left, self._arguments, self._output, self._results, ends)
        )
        sys.stdout.flush()
        self._process.start()
        ends.close()
        return self

    def join(self) -> StageDone:
        """Print the output of the next stage until that ends; what the stage came to."""
        stage = self._left.pop(0)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while not self._ends.poll(_LOOK_S):  # true also when the child has died
            self._print(decoder, os.fstat(self._output.fileno()).st_size)
        try:
            ended: _Ended = self._ends.recv()
        except EOFError:
            self._print(decoder, os.fstat(self._output.fileno()).st_size)
            died = Failure(stage.__name__, "its process died")
            return StageDone(Tally(failed=1, failures=[died]), 0.0, 0.0)
        self._print(decoder, ended.output)
        data = os.pread(self._results.fileno(), ended.done - self._read, self._read)
        self._read = ended.done
        done: StageDone = pickle.loads(data)
        return done

    def _print(self, decoder: codecs.IncrementalDecoder, end: int) -> None:
        """What has been written since the last call, as far as `end`."""
        while data := os.pread(
            self._output.fileno(), min(1 << 16, end - self._printed), self._printed
        ):
            sys.stdout.write(decoder.decode(data))
            self._printed += len(data)
        sys.stdout.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self._ends.close()
        self._output.close()
        self._results.close()


def _run(
    stages: Sequence[Stage],
    arguments: Sequence[str],
    output: BinaryIO,
    results: BinaryIO,
    ends: Connection,
) -> None:
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    for stage in stages:
        done = timed(stage, arguments)
        sys.stdout.flush()
        pickle.dump(done, results)
        results.flush()
        ends.send(_Ended(os.fstat(output.fileno()).st_size, results.tell()))
