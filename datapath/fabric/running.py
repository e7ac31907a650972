# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A simulation goes on from change to change, some of which wait for something to happen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from datapath.fabric.changes import Change, Watcher


class Running(Protocol):
    """A simulation, as far as it is needed here."""

    def until(self, until_ns: int) -> bool: ...
    def change(self, change: Change) -> None: ...
    def results(self) -> Any: ...
    def queue_peak(self, name: str) -> int: ...


def through(
    run: Running,
    end_ns: int,
    changes: Sequence[Change],
    watcher: Watcher | None,
    told: Callable[[Sequence[Change]], None],
) -> None:
    """Go on to the end, with all changes; told: gets them, as they are known.

    A change that gets its time at a look is made at that time at the soonest.
    """
    known = [*changes, *(watcher.changes() if watcher else ())]
    todo = sorted(known, key=lambda change: change.at_ns)
    told(known)
    now_ns = 0
    while True:
        next_ns = min([end_ns, *(change.at_ns for change in todo[:1])])
        if watcher is not None and (look_ns := watcher.look_ns):
            next_ns = min(next_ns, (now_ns // look_ns + 1) * look_ns)
        if not run.until(next_ns):
            return
        now_ns = next_ns
        due = [change for change in todo if change.at_ns <= now_ns]
        del todo[: len(due)]
        for change in due:
            run.change(change)
        if (
            watcher is not None
            and watcher.look_ns
            and watcher.look(now_ns, run.results(), run.queue_peak)
        ):
            known = [*changes, *watcher.changes()]
            left = (c for c in known if c.at_ns > now_ns or (c.at_ns == now_ns and c not in due))
            todo = sorted(left, key=lambda change: change.at_ns)
            told(known)
        if now_ns >= end_ns and not (todo and todo[0].at_ns <= end_ns):
            return
