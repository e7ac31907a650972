#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A requester that is stopped between two requests, and goes on with the second.

    standstill.py -d dp0                  # server
    standstill.py -d dp0 -n 10 HOST       # client

What the peer answered meanwhile waits unread in the client's port.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from rc import add_connection_arguments, connect

STOP_S = 0.6  # at most; the time-outs of both modes are shorter
HOT_S = 0.02


def poll_for_a_while(end) -> None:
    """So that the program, and not the device's thread, moves the packets."""
    until = time.monotonic() + HOT_S
    while time.monotonic() < until:
        end.post_write(8)
        end.wait_send()


@contextmanager
def waker() -> Iterator[None]:
    """Lets this process go on whenever it has stopped itself."""
    loop = f"while kill -CONT {os.getpid()}; do sleep {STOP_S}; done"
    with subprocess.Popen(["sh", "-c", loop], stderr=subprocess.DEVNULL) as process:
        yield
        process.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    parser.set_defaults(size=8, op="write")
    args = parser.parse_args()
    with waker(), connect(args, buffer_bytes=4096, depth=8) as end:
        for _ in range(args.iterations if args.server else 0):
            poll_for_a_while(end)
            end.post_write(8)
            os.kill(os.getpid(), signal.SIGSTOP)
            end.post_write(8)
            for _ in range(2):
                end.wait_send()


if __name__ == "__main__":
    main()
