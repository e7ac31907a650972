# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs of live hosts that stand still for a while, by SIGSTOP and SIGCONT."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from datapath.errors import LocalError
from datapath.lanes.event_spec import Event, stalls
from datapath.workloads.programs import Program


@contextlib.contextmanager
def beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do work in a thread while the body runs; its event is set when it has to end.

    An error of the thread is raised behind the body.
    """
    over = threading.Event()
    failed: list[Exception] = []

    def attempt() -> None:
        try:
            work(over)
        except Exception as error:
            failed.append(error)

    worker = threading.Thread(target=attempt, name=name, daemon=True)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()
    if failed:
        raise failed[0]


class Stalls:
    """Stops and continues the programs of hosts while the body runs; behind it all go on.

    A host stands still as long as one of its stalls lasts.  names: of the hosts.  programs: by
    number of the host.  zero_ns: CLOCK_MONOTONIC, from which times count.
    """

    def __init__(
        self, names: Sequence[str], programs: Mapping[int, Sequence[Program]], zero_ns: int
    ) -> None:
        self._names, self._programs, self._zero_ns = names, programs, zero_ns
        self._stalls: Sequence[tuple[int, int, int]] = ()
        self._standing: set[int] = set()
        self._changed = threading.Condition()
        self._over = False
        self._worker = threading.Thread(target=self._work, name="stalls", daemon=True)

    def __enter__(self) -> Stalls:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._worker.ident is not None:
            self._worker.join()
        for host in self._standing:
            _signal(self._programs[host], signal.SIGCONT)

    def set(self, events: Sequence[Event]) -> None:
        """The stalls are those of these events from now on; LocalError where none can be."""
        found = stalls(events, self._names)
        if not found:
            return
        for host in {host for _, host, _ in found}:
            _check(self._programs[host])
        with self._changed:
            self._stalls = found
            self._changed.notify()
        if self._worker.ident is None:
            self._worker.start()

    def _work(self) -> None:
        with self._changed:
            while not self._over:
                now_ns = time.monotonic_ns() - self._zero_ns
                standing = standing_at(self._stalls, now_ns)
                for host in standing - self._standing:
                    _signal(self._programs[host], signal.SIGSTOP)
                for host in self._standing - standing:
                    _signal(self._programs[host], signal.SIGCONT)
                self._standing = standing
                turn = next_turn(self._stalls, now_ns)
                self._changed.wait(None if turn is None else (turn - now_ns) / 1e9)


def standing_at(found: Sequence[tuple[int, int, int]], now_ns: int) -> set[int]:
    """The hosts that stand still at a time, by stalls as of event_spec.stalls()."""
    return {host for at, host, lasts in found if at <= now_ns < at + lasts}


def next_turn(found: Sequence[tuple[int, int, int]], now_ns: int) -> int | None:
    """When a stall begins or ends next; None: never again."""
    turns = [turn for at, _, lasts in found for turn in (at, at + lasts)]
    return min((turn for turn in turns if turn > now_ns), default=None)


def _check(programs: Sequence[Program]) -> None:
    """LocalError for programs that are not of this machine."""
    if any(program.process.pid is None for program in programs):
        raise LocalError("hosts of this lane cannot be stalled", hint="use lane netns or sim")


def _signal(programs: Sequence[Program], number: signal.Signals) -> None:
    """To those that still run and were not waited for."""
    for program in programs:
        pid = program.process.pid
        if pid is not None and program.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
