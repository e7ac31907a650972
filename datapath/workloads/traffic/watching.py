# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Live events that wait for a condition: a thread looks, and makes them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from datapath.errors import DatapathError
from datapath.lanes.happening import Seen, Watch
from datapath.workloads.base import RunContext
from datapath.workloads.programs import Program
from datapath.workloads.traffic.stalls import Stalls, beside

_LOOK_S = 0.001


@contextlib.contextmanager
def watched(
    ctx: RunContext,
    watch: Watch,
    programs: Mapping[int, Sequence[Program]],
    zero_ns: int,
    results: Callable[[], Any],
) -> Iterator[None]:
    """Make the stalls, and the events that have no time yet, while the body runs.

    programs: by number of the host.  zero_ns: CLOCK_MONOTONIC, from which times count.  results:
    the rows of all flows so far.  A DatapathError of the thread is raised behind the body.
    """
    failed: list[DatapathError] = []
    names = [host.name for host in ctx.network.hosts]
    with Stalls(names, programs, zero_ns) as stalls, contextlib.ExitStack() as thread:
        stalls.set(watch.events)

        def work(over: threading.Event) -> None:
            try:
                while watch.waiting and not over.wait(_LOOK_S):
                    _look(ctx, watch, zero_ns, results(), stalls)
            except DatapathError as error:
                failed.append(error)

        if watch.waiting:
            thread.enter_context(beside("events", work))
        yield
    if failed:
        raise failed[0]


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
