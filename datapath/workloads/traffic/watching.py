# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Live events that wait for a condition: a thread looks, and makes them."""

from __future__ import annotations

import bisect
import contextlib
import operator
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datapath.fabric.changes import OrderFlow
from datapath.fabric.flows import ORDER_DTYPE
from datapath.lanes.happening import Seen, Watch
from datapath.workloads.base import RunContext
from datapath.workloads.programs import Program
from datapath.workloads.traffic.stalls import Stalls, beside

_LOOK_S = 0.001
_at_ns = operator.attrgetter("at_ns")


class OrderFifos:
    """Orders to the programs of a run, as a context manager.

    place: of a row of the whole table: (its FIFO, the row in its program's table, algorithm of the
    whole run -> that of its program).
    """

    def __init__(
        self, paths: Sequence[Path], place: Callable[[int], tuple[Path, int, Mapping[int, int]]]
    ) -> None:
        self._paths, self._place = paths, place
        self._fds: dict[Path, int] = {}
        self._waiting: dict[Path, bytearray] = {path: bytearray() for path in paths}

    def __enter__(self) -> OrderFifos:
        for path in self._paths:
            os.mkfifo(path, 0o600)
            # For reading, too: a program that has ended is no error here.
            self._fds[path] = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self

    def __exit__(self, *exc: object) -> None:
        for path, fd in self._fds.items():
            os.close(fd)
            path.unlink()

    @property
    def full(self) -> bool:
        """Whether orders wait for room in a FIFO."""
        return any(self._waiting.values())

    def give(self, orders: Sequence[OrderFlow]) -> None:
        """Write orders, and those that found no room before; the first ones go at once."""
        for order in orders:
            path, row, numbers = self._place(order.flow)
            waiting = self._waiting[path]
            record = np.array((row, order.what, numbers.get(order.cc, 0), 0), ORDER_DTYPE)
            waiting += record.tobytes()
            if len(waiting) % select.PIPE_BUF == 0:
                self._write(path)
        for path in self._paths:
            self._write(path)

    def _write(self, path: Path) -> None:
        left = self._waiting[path]
        with contextlib.suppress(BlockingIOError):
            while left:
                # So many bytes are written whole or not at all.
                del left[: os.write(self._fds[path], left[: select.PIPE_BUF])]


@contextlib.contextmanager
def watched(
    ctx: RunContext,
    watch: Watch,
    programs: Mapping[int, Sequence[Program]],
    zero_ns: int,
    results: Callable[[], Any],
    fifos: OrderFifos,
) -> Iterator[None]:
    """Make the stalls, and the events that have no time yet, while the body runs.

    programs: by number of the host.  zero_ns: CLOCK_MONOTONIC, from which times count.  results:
    the rows of all flows so far.  fifos: take orders whose time has come.  An error of the thread
    is raised behind the body.
    """
    names = [host.name for host in ctx.network.hosts]
    with Stalls(names, programs, zero_ns) as stalls, contextlib.ExitStack() as thread:
        stalls.set(watch.events)

        def work(over: threading.Event) -> None:
            given = 0
            while (_goes_on(watch, given) or fifos.full) and not over.wait(_LOOK_S):
                _look(ctx, watch, zero_ns, results(), stalls)
                now_ns = time.monotonic_ns() - zero_ns
                due = bisect.bisect_right(watch.orders, now_ns, given, key=_at_ns)
                fifos.give(watch.orders[given:due])
                given = due

        if _goes_on(watch, 0):
            thread.enter_context(beside("events", work))
        yield


def _goes_on(watch: Watch, given: int) -> bool:
    """Whether there is something to look for, or an order to give."""
    return bool(watch.look_ns) or given < len(watch.orders)


def _look(
    ctx: RunContext,
    watch: Watch,
    zero_ns: int,
    results: Any,
    stalls: Stalls,
) -> None:
    now_ns = time.monotonic_ns() - zero_ns
    if now_ns < 0:
        return
    happened = watch.look(Seen(now_ns, results, lambda name: ctx.network.queue_peaks()[name]))
    if any(event.about_links for event in happened):
        ctx.network.change_path(zero_ns, watch.events, now_ns)
    if any(event.stall is not None for event in happened):
        stalls.set(watch.events)
