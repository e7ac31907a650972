# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A short-lived thread for what a thread cannot undo: the namespace it enters, its policy."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


def in_own_thread(function: Callable[[], _Result]) -> _Result:
    """Call `function` in a thread that ends with it; what it returns or raises.

    An interrupt (KeyboardInterrupt) is raised when `function` has ended, or before it begins.
    So a program that it starts is known to the caller.
    """
    result: list[_Result] = []
    failure: list[BaseException] = []
    wanted = over = False
    undecided, unfinished = _thread.allocate_lock(), _thread.allocate_lock()
    undecided.acquire()
    unfinished.acquire()

    def body() -> None:
        nonlocal over
        undecided.acquire()
        try:
            if wanted:
                result.append(function())
        except BaseException as error:
            failure.append(error)
        finally:
            over = True
            unfinished.release()

    def wait() -> None:
        while not over:
            unfinished.acquire()

    # Not threading.Thread: after an interrupt in its start() or join(), join() may not wait.
    try:
        _thread.start_new_thread(body, ())
        wanted = True
        undecided.release()
        wait()
    except BaseException:
        if undecided.locked():
            undecided.release()
        if wanted:
            wait()
        raise
    if failure:
        raise failure[0]
    return result[0]
