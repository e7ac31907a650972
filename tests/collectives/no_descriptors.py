# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rank 0 may open no more files when somebody connects; prints what it is told."""

from __future__ import annotations

import contextlib
import os
import resource
import socket

from datapath.collectives import check, load, make
from datapath.collectives.communicator import Communicator
from datapath.errors import LocalError, RemoteError

MOST = 200  # files; poll() takes no more of them either

plan = check(make(load("ring"), 2, 1024))
listener = socket.create_server(("127.0.0.1", 0))
address, port = listener.getsockname()
place = {"device": "shm", "address": address, "port": port, "listener": listener}


def opened() -> str:
    """What rank 0 is told."""
    try:
        Communicator(0, 2, token="t", plans=[plan], meet_ms=1000, **place).close()
    except (LocalError, RemoteError) as error:
        return str(error)
    return ""


opened()  # what the library opens once is open from here on
caller = socket.create_connection((address, port))
resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
taken = []
with contextlib.suppress(OSError):
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
# It opens some before others can come.
while "accepting" not in (told := opened()) and "have not come" not in told:
    os.close(taken.pop())
print(told)
