# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collectives under way: torch's work objects, and the threads that wait for their end."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

_NONE = timedelta(0)  # torch's way to say that no time-out was given
_ABORTED_S = 5.0  # a collective ends within about a second after an abort


def backend_error(error: Exception) -> dist.DistBackendError:
    """The error as torch's kind, with its notes (the hint is one)."""
    made = dist.DistBackendError(str(error))
    for note in getattr(error, "__notes__", ()):
        made.add_note(note)
    return made


class Work(dist._Work):
    """Work that torch waits for.  It ends with a value, or with an error in libdpcoll's words.

    before_callbacks: is called when the future has its value, before the callbacks of others.

    The future that torch gets follows the one that is set here.  torch knows an error only where a
    callback has raised it: set_exception() alone gives DDP's reducer, in C++, the exception as if
    it were the tensors.
    """

    def __init__(self, what: str, timeout: timedelta) -> None:
        super().__init__()
        self._what, self._timeout = what, timeout
        self._lock = threading.Lock()  # of the futures, which are made when somebody asks for one
        self._future: torch.futures.Future[object] | None = None
        self._follower: torch.futures.Future[object] | None = None
        self._given_up = False  # the future has its time-out error
        self._ended = threading.Event()
        self._value: object = None
        self._error: Exception | None = None
        self._overdue = False
        self.before_callbacks: Callable[[], None] = lambda: None

    @property
    def is_stuck(self) -> bool:
        """It has not ended although somebody waited for it as long as he would."""
        return self._overdue and not self._ended.is_set()

    def finish(self, value: object = None, error: Exception | None = None) -> bool:
        """Whether somebody had asked for the future: callbacks have run then."""
        with self._lock:
            self._value, self._error = value, error
            self._ended.set()
            future = None if self._given_up else self._future
        if future is not None:
            self._settle(future)
        return future is not None

    def give_up(self) -> None:
        """Time is over for who waits for the future; the collective goes on, as after wait()."""
        with self._lock:
            if self._ended.is_set() or self._future is None:
                return
            self._overdue = self._given_up = True
        self._future.set_exception(self._too_late(self._timeout))

    def wait(self, timeout: timedelta = _NONE) -> bool:
        """Raises DistBackendError when a peer is gone, or the time is over.

        After a time-out the collective goes on, and the memory of its tensors with it.
        """
        limit = timeout if timeout > _NONE else self._timeout
        if not self._ended.wait(limit.total_seconds()):
            self._overdue = True
            raise self._too_late(limit)
        if self._error is not None:
            raise self._error
        return True

    def __str__(self) -> str:
        return self._what

    def get_future(self) -> torch.futures.Future[object]:
        """It has its time-out from the first call on."""
        with self._lock:
            if self._follower is None:
                self._future = torch.futures.Future()
                if self._ended.is_set():
                    self._settle(self._future)
                else:
                    self._future.add_done_callback(self._before_others)
                    _limits.add(self, time.monotonic() + self._timeout.total_seconds())
                self._follower = self._future.then(lambda future: future.value())
            return self._follower

    def is_completed(self) -> bool:
        return self._ended.is_set()

    def is_success(self) -> bool:
        return self._ended.is_set() and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def value(self) -> object:
        """Of work that has ended; raises its error."""
        if self._error is not None:
            raise self._error
        return self._value

    def result(self) -> list[Tensor]:
        """The tensors that the work has written, in one list; waits for its end, as wait()."""
        self.wait()
        return flat(self._value)

    def _settle(self, future: torch.futures.Future[object]) -> None:
        if self._error is None:
            future.set_result(self._value)
        else:
            future.set_exception(self._error)

    def _before_others(self, _: object) -> None:
        if not self._given_up:
            self.before_callbacks()

    def _too_late(self, limit: timedelta) -> dist.DistBackendError:
        return dist.DistBackendError(
            f"{self._what} has not ended after {limit.total_seconds():g} s; all peers are "
            "alive: either it is slow, or a rank has not started it; do all ranks call the same "
            "collectives?"
        )


class _Limits:
    """The time-outs of futures, and the thread that keeps them; it begins with the first one."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Also in a child after a fork, which has no thread and may have a lock that is held."""
        self._changed = threading.Condition()
        self._open: list[tuple[float, Work]] = []
        self._wakes_s = 0.0
        self._thread: threading.Thread | None = None

    def add(self, work: Work, at_s: float) -> None:
        """at_s: of time.monotonic()."""
        with self._changed:
            self._open = [one for one in self._open if not one[1].is_completed()]
            self._open.append((at_s, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dp limits", daemon=True)
                self._thread.start()
            elif at_s < self._wakes_s:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            for work in self._due():
                work.give_up()
            with self._changed:
                self._wakes_s = min((at_s for at_s, _ in self._open), default=math.inf)
                left_s = self._wakes_s - time.monotonic()
                self._changed.wait(min(max(0.0, left_s), threading.TIMEOUT_MAX))

    def _due(self) -> list[Work]:
        with self._changed:
            now_s = time.monotonic()
            due = [work for at_s, work in self._open if at_s <= now_s]
            self._open = [one for one in self._open if one[0] > now_s]
            return due


_limits = _Limits()
os.register_at_fork(after_in_child=_limits.clear)


def flat(value: object) -> list[Tensor]:
    """The tensors in lists and tuples."""
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in flat(part)]
    return [value] if isinstance(value, Tensor) else []


class Waiter:
    """Threads that end works in the order in which they were handed over.

    A job starts a collective, waits for it, and returns the work's value.  One thread at a time has
    the turn to do jobs.  Callbacks of a future may wait for later collectives (PowerSGD's do): so
    the thread that completes a future hands the turn to another one before it calls them.
    A slow callback keeps the next ones from nothing, so they may overtake it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Work, Callable[[], object]] | None]
        self._jobs = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._lock = threading.Lock()  # of what follows
        self._open: list[Work] = []
        self._threads: list[threading.Thread] = []
        self._next = 0  # threads that want the turn
        with self._lock:
            self._start_thread()

    def add(self, work: Work, job: Callable[[], object]) -> Work:
        work.before_callbacks = self._hand_over
        with self._lock:
            self._open = [one for one in self._open if not one.is_completed()]
            self._open.append(work)
        self._jobs.put((work, job))
        return work

    def close(self, abort: Callable[[str], None], until_s: float) -> bool:
        """After what was handed over has ended; abort(why) ends what is stuck.

        until_s: of time.monotonic(): then it ends what has not ended.  Whether the threads have
        ended: one does not whose callback never returns.
        """
        self._jobs.put(None)
        if not any(work.is_stuck for work in self._open) and self._joined(until_s):
            return True
        left = [work for work in self._open if not work.is_completed()]
        why = f"a collective had not ended: {left[0]}" if left else "a callback had not returned"
        abort(f"left while {why}")
        return self._joined(max(until_s, time.monotonic() + _ABORTED_S))

    def _joined(self, until_s: float) -> bool:
        """Whether all threads have ended in time; they may start others until they end."""
        while thread := next((one for one in self._threads if one.is_alive()), None):
            if time.monotonic() > until_s:
                return False
            thread.join(max(0.0, until_s - time.monotonic()))
        return True

    def _start_thread(self) -> None:
        """Of who has the lock."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        thread.start()
        self._threads.append(thread)
        self._next += 1

    def _hand_over(self) -> None:
        """Of the thread that has the turn."""
        try:
            with self._lock:
                if not self._next:
                    self._start_thread()
        finally:
            self._turn.release()

    def _take_turn(self) -> None:
        self._turn.acquire()
        with self._lock:
            self._next -= 1

    def _run(self) -> None:
        self._take_turn()
        while (item := self._jobs.get()) is not None:
            if self._end(*item):
                with self._lock:
                    self._next += 1
                self._take_turn()
            del item
        self._jobs.put(None)  # for the next one
        self._turn.release()

    def _end(self, work: Work, job: Callable[[], object]) -> bool:
        """Do a job; whether the turn was handed over.

        It writes tensors of the caller, who may be in inference mode: so the job is, too, and
        autograd takes no notice of it.
        """
        try:
            with torch.inference_mode():
                value = job()
        except Exception as error:
            return work.finish(error=backend_error(error))
        return work.finish(value)
