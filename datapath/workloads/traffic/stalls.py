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

_Turn = tuple[int, int, signal.Signals]
"""Time (ns), number of a host, signal."""


def turns(events: Sequence[Event], names: Sequence[str]) -> list[_Turn]:
    """Stops and continuations of hosts, by time; overlapping stalls of a host are one."""
    found: list[_Turn] = []
    until: dict[int, int] = {}
    for at, host, lasts in stalls(events, names):
        if at > until.get(host, -1):
            found.append((at, host, signal.SIGSTOP))
        until[host] = max(until.get(host, 0), at + lasts)
        found = [one for one in found if one[1] != host or one[2] != signal.SIGCONT or one[0] < at]
        found.append((until[host], host, signal.SIGCONT))
    return sorted(found)


@contextlib.contextmanager
def beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do work in a thread while the body runs; its event is set when it has to end."""
    over = threading.Event()
    worker = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


@contextlib.contextmanager
def stalled(
    events: Sequence[Event],
    names: Sequence[str],
    programs: Mapping[int, Sequence[Program]],
    zero_ns: int,
) -> Iterator[None]:
    """Stop and continue the programs of hosts while the body runs; behind it all go on.

    programs: by number of the host.  zero_ns: CLOCK_MONOTONIC, from which times count.
    """
    todo = turns(events, names)
    if not todo:
        yield
        return

    def work(over: threading.Event) -> None:
        for at, host, number in todo:
            if over.wait(max(0.0, (zero_ns + at - time.monotonic_ns()) / 1e9)):
                return
            _signal(programs[host], number)

    try:
        with beside("stalls", work):
            yield
    finally:
        for host in {host for _, host, _ in todo}:
            _signal(programs[host], signal.SIGCONT)


def _signal(programs: Sequence[Program], number: signal.Signals) -> None:
    """To those that still run and were not waited for."""
    for program in programs:
        pid = getattr(program.process, "pid", None)
        if pid is None:
            raise LocalError("hosts of this lane cannot be stalled", hint="use lane netns or sim")
        if program.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
