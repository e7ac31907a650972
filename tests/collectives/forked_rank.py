# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rank 1 forks a child and is killed; prints what rank 0 is told: forked_rank.py.

The child lives on until this program ends.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket

import numpy as np

from datapath.collectives import check, load, make
from datapath.collectives.communicator import Communicator
from datapath.errors import RemoteError

plan = check(make(load("ring"), 2, 1024))
token = secrets.token_hex(8)
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
(forked, say_forked), (over, say_over) = os.pipe(), os.pipe()


def opened(rank: int) -> Communicator:
    return Communicator(
        rank,
        2,
        device="shm",
        address="127.0.0.1",
        port=port,
        token=token,
        plans=[plan],
        listener=None if rank else listener,
        silence_ms=600_000,
    )


victim = os.fork()
if victim == 0:
    os.close(say_over)
    comm = opened(1)
    if os.fork() == 0:
        os.write(say_forked, b"x")
    os.read(over, 1)  # until the program ends
    os._exit(0)
os.close(over)
comm = opened(0)
data = np.zeros(256, np.float32)
work = comm.start(comm.take(plan), data.ctypes.data, items="float32")
os.read(forked, 1)
os.kill(victim, signal.SIGKILL)
os.waitpid(victim, 0)
try:
    work.wait()
except RemoteError as error:
    print(error)
comm.close(0)
