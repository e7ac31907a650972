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
    """What torch waits for.  It ends with a value, or with an error in libdpcoll's words."""

    def __init__(self, what: str, timeout: timedelta) -> None:
        super().__init__()
        self._what, self._timeout = what, timeout
        self._future: torch.futures.Future[object] = torch.futures.Future()
        self._ended = threading.Event()
        self._error: Exception | None = None

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
            raise dist.DistBackendError(
                f"{self._what} has not ended after {limit.total_seconds():g} s; all peers are "
                "alive, so a rank has not started it: do all ranks call the same collectives?"
            )
        if self._error is not None:
            raise self._error
        return True

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
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, work: Work, job: Callable[[], object]) -> Work:
        self._jobs.put((work, job))
        return work

    def close(self) -> None:
        """After what was handed over has ended."""
        self._jobs.put(None)
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
