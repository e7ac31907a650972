# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A signal handler calls exit() while the program polls, as libfabric's libpsm does on SIGTERM.

The device's lock is mostly held then, by the very thread that runs the exit handlers.  The
processes have a connection by RDMA-CM, which their end has to take down.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

from cm import Link
from pair import Side
from pyverbs import enums as e
from pyverbs.device import Context

PROCESSES = 4
LIMIT_S = 30


def poll_until_the_signal() -> None:
    context = Context(name="dp0")
    a, b = Side(context, access=e.IBV_ACCESS_LOCAL_WRITE), Side(context, access=0)
    a.make_qp()
    b.make_qp()
    link = Link("127.0.0.1")
    link.connect(a.qp, b.qp, iwarp=False)
    libc = ctypes.CDLL(None)
    libc.signal(signal.SIGALRM, ctypes.cast(libc.exit, ctypes.c_void_p))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    while True:
        a.cq.poll(16)


def main() -> None:
    for _ in range(PROCESSES):
        child = os.fork()
        if child == 0:
            poll_until_the_signal()
        limit = time.monotonic() + LIMIT_S
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > limit:
                os.kill(child, signal.SIGKILL)
                raise SystemExit("exit() in a signal handler does not end")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(done[1]) == signal.SIGALRM, done


main()
