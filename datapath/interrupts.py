# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SIGINT, SIGTERM and SIGHUP end a command once: a second one does not disturb the cleaning up.

The first becomes an exception where the program stands, so that `with` and `finally` take down
what is up.  Those that come after it are ignored: somebody who presses ^C nine times gets the
same clean end, and the same exit code, as somebody who presses it once.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked for the end; `signum` is which."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


_guarded = False


@contextlib.contextmanager
def ending_signals(*, to_the_end: bool = False) -> Iterator[None]:
    """Make the first ending signal an Interrupted; ignore those that come after it.

    Inside another one it does nothing: the outer one sees to the signals.  to_the_end: after
    a signal, they stay ignored for the rest of the process, which is about to end.
    """
    global _guarded
    if _guarded or threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def end(signum: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        for other in caught:
            signal.signal(other, _ignore)
        raise Interrupted(signum)

    # What the caller ignores stays ignored: nohup does that with SIGHUP.
    caught = [signum for signum in _END if signal.getsignal(signum) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, end) for signum in caught}
    _guarded = True
    try:
        yield
    finally:
        _guarded = False
        for signum, handler in before.items():
            # Python puts a handler back to the default when it ends, but leaves SIG_IGN.
            last = interrupted and to_the_end
            signal.signal(signum, signal.SIG_IGN if last else handler)


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    """A handler, not SIG_IGN, which children would inherit."""
