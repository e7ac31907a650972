# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SIGINT, SIGTERM and SIGHUP end a command once: a second one does not disturb the cleaning up.

The first becomes an exception where the program stands, so that `with` and `finally` take down
what is up.  Those that come after it are ignored: somebody who presses ^C nine times gets the
same clean end, and the same exit code, as somebody who presses it once.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import cast

_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN_S = 0.001


class Interrupted(KeyboardInterrupt):
    """A signal asked for the end; `signum` is which."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


_current: _Ending | None = None


def check() -> None:
    """Raise Interrupted if a signal asked for the end and its exception got lost on the way.

    Libraries in C and Rust make an error of their own of an exception that is raised in a
    function that they call (pydantic does in a serializer), or go on without it.  To be called
    before work goes on, and before an error is taken for what it says.
    """
    if _current is not None and _current.raised is not None:
        raise Interrupted(_current.raised)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Make an Interrupted of the error that a library made of one."""
    try:
        yield
    except Exception:
        check()
        raise


@contextlib.contextmanager
def ending_signals(*, to_the_end: bool = False) -> Iterator[None]:
    """Make the first ending signal an Interrupted; ignore those that come after it.

    Inside another one it does nothing: the outer one sees to the signals.  to_the_end: they
    stay ignored for the rest of the process, which is about to end.
    """
    global _current
    if _current is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    # A signal that the caller ignores stays ignored: nohup ignores SIGHUP.
    caught = [signum for signum in _END if signal.getsignal(signum) is not signal.SIG_IGN]
    ending = _Ending(sys.unraisablehook)
    _current = ending
    before = {signum: signal.signal(signum, ending.signalled) for signum in caught}
    sys.unraisablehook = ending.lost
    try:
        try:
            yield
        finally:
            ending.over = True
    finally:
        _current = None
        sys.unraisablehook = ending.hook
        for signum, handler in before.items():
            # Python puts a handler back to the default when it ends, but leaves SIG_IGN.
            signal.signal(signum, signal.SIG_IGN if to_the_end else handler)


class _Ending:
    """The state of one `ending_signals`.

    Python drops an exception that is raised in a destructor or in the callback of a weak
    reference, and tells sys.unraisablehook.  An Interrupted that is lost there is raised again.
    """

    def __init__(self, hook: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self.hook = hook
        self.raised: int | None = None
        """The signal that has become an exception."""
        self.over = False
        self._telling = False

    def signalled(self, signum: int, _frame: FrameType | None) -> None:
        """A handler also for what is ignored: children would inherit SIG_IGN."""
        if self.raised is None and not self.over:
            self.raised = signum
            raise Interrupted(signum)

    def lost(self, dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, Interrupted):
            self.hook(dropped)
            return
        self._telling = True
        # Not threading.Thread: the main thread may stand in it, with its locks.
        _thread.start_new_thread(self._again, (dropped.exc_value.signum,))
        self._telling = False

    def _again(self, signum: int) -> None:
        """In a thread: signal once more, when the main thread has left `lost`."""
        time.sleep(_AGAIN_S)
        while self._telling:
            time.sleep(_AGAIN_S)
        self.raised = None
        if not self.over:
            signal.pthread_kill(cast(int, threading.main_thread().ident), signum)
