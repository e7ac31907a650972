# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collectives under way: torch's work objects, and the thread that waits for their end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

_NONE = timedelta(0)  # torch's way to say that no time-out was given


class Work(dist._Work):
    """Work that torch waits for.  It ends with a value, or with an error in libdpcoll's words."""

    def __init__(self, what: str, timeout: timedelta) -> None:
        super().__init__()
        self._what, self._timeout = what, timeout
        self._future: torch.futures.Future[object] = torch.futures.Future()
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._overdue = False

    @property
    def is_stuck(self) -> bool:
        """It has not ended although somebody waited for it as long as he would."""
        return self._overdue and not self._ended.is_set()

    def finish(self, value: object = None, error: Exception | None = None) -> None:
        self._error = error
        self._ended.set()
        if error is None:
            self._future.set_result(value)
        else:
            self._future.set_exception(error)

    def wait(self, timeout: timedelta = _NONE) -> bool:
        """Raises DistBackendError when a peer is gone, or the time is over.

        After a time-out the collective goes on, and the memory of its tensors with it.
        """
        limit = timeout if timeout > _NONE else self._timeout
        if not self._ended.wait(limit.total_seconds()):
            self._overdue = True
            raise dist.DistBackendError(
                f"{self._what} has not ended after {limit.total_seconds():g} s; all peers are "
                "alive, so a rank has not started it: do all ranks call the same collectives?"
            )
        if self._error is not None:
            raise self._error
        return True

    def __str__(self) -> str:
        return self._what

    def get_future(self) -> torch.futures.Future[object]:
        return self._future

    def is_completed(self) -> bool:
        return self._ended.is_set()

    def is_success(self) -> bool:
        return self._ended.is_set() and self._error is None

    def exception(self) -> Exception | None:
        return self._error


class Waiter:
    """A thread that ends works in the order in which they were handed over.

    A job starts a collective, waits for it, and returns the work's value.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Work, Callable[[], object]] | None]
        self._jobs = queue.SimpleQueue()
        self._open: list[Work] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, work: Work, job: Callable[[], object]) -> Work:
        self._open = [one for one in self._open if not one.is_completed()]
        self._open.append(work)
        self._jobs.put((work, job))
        return work

    def close(self, abort: Callable[[str], None], timeout: timedelta) -> None:
        """After what was handed over has ended; abort(why) ends what is stuck."""
        self._jobs.put(None)
        if not any(work.is_stuck for work in self._open):
            self._thread.join(timeout.total_seconds())
        if self._thread.is_alive():
            [first, *_] = [work for work in self._open if not work.is_completed()] or self._open
            abort(f"left while a collective had not ended: {first}")
            self._thread.join()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            work, job = item
            try:
                value = job()
            except Exception as error:
                work.finish(error=dist.DistBackendError(str(error)))
            else:
                work.finish(value)
