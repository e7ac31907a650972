# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A function in a fork of this process, which can be ended also while it is in a loop in C.

The child has everything imported and computed that this process has.  It ends with this process,
however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LATE_S = 5
_Result = TypeVar("_Result")
_forked = False
"""Whether this process is the child of a call()."""


class Overdue(Exception):
    """What the child had put into overdue_after() went on for too long."""


class Died(Exception):
    """The child ended without an answer; its traceback, if it could write one.

    signal: the number of the signal that killed it; 0: none did.
    """

    def __init__(self, text: str, signum: int = 0) -> None:
        super().__init__(text)
        self.signal = signum


def call(function: Callable[[], _Result], answer: Path) -> _Result:
    """Call `function` in a fork of this process, of this thread alone; what it returns, pickled.

    answer: a file that is not there yet.  Overdue, Died: as they say.  An interrupt ends the child.
    """
    parent = os.getpid()
    # No handler of ours may run in the child, where it would clean up what is not its own.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        child = os.fork()
        if child == 0:
            _child(function, answer, parent, before)
        with _ended(child) as wait:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            status = wait()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if killed_by == signal.SIGALRM:
        raise Overdue
    if status:
        told = not killed_by and answer.exists()
        raise Died(answer.read_text(errors="replace") if told else "", killed_by)
    try:
        result: _Result = pickle.loads(answer.read_bytes())
    except OSError as error:  # somebody else removed it
        raise Died(f"its answer cannot be read: {error}") from None
    return result


@contextlib.contextmanager
def _ended(child: int) -> Iterator[Callable[[], int]]:
    """A function that waits for the child; without it the child is killed."""
    statuses: list[int] = []

    def wait() -> int:
        try:
            statuses.append(os.waitpid(child, 0)[1])
        except ChildProcessError:  # whoever started us ignores SIGCHLD
            statuses.append(0)
        return statuses[0]

    try:
        yield wait
    finally:
        if not statuses:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            wait()


def _child(
    function: Callable[[], object], answer: Path, parent: int, mask: set[int | signal.Signals]
) -> NoReturn:
    global _forked
    code = 1
    try:
        _forked = True
        end_with(parent)
        for signum in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the parent handles
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        answer.write_bytes(pickle.dumps(function()))
        code = 0
    except BaseException:
        answer.write_text(traceback.format_exc(), errors="replace")
    finally:
        os._exit(code)


def end_with(parent: int) -> None:
    """Have this process killed when its parent ends; it ends at once if that has happened."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def overdue_after(at: float | None) -> Iterator[None]:
    """In a child of call(): it is Overdue if what is inside goes on LATE_S after a time.

    at: of time.monotonic(); None: never.  In a process that is no such child nothing happens.
    """
    if not _forked or at is None:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, max(at - time.monotonic(), 0) + LATE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
