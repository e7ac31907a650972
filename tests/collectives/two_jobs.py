# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank of two communicators at once: two_jobs.py RANK RANKS PORT PORT FD FD, of rank 0.

The last rank joins late.  Many small collectives are under way on both, some of no whole slice.
"""

import socket
import sys
import time

import numpy as np

import datapath.verbs  # noqa: F401  (our devices are there before libibverbs is)
from datapath.collectives import check, load, make
from datapath.collectives.communicator import Communicator

OFTEN = 200
rank, ranks, *of_rank_0 = map(int, sys.argv[1:])
sizes = (1, 3, 4 * ranks + 1, 1000)
plans = [check(make(load("ring"), ranks, size, item_bytes=1)) for size in sizes]
if rank == ranks - 1:
    time.sleep(1.5)
made = [
    Communicator(
        rank,
        ranks,
        device="dp0",
        address="127.0.0.1",
        port=port,
        token="two jobs",
        listener=socket.socket(fileno=fd) if rank == 0 else None,
        plans=plans,
        node=2**32 - 1,
        silence_ms=20_000,
        rdma_cm=rdma_cm,
    )
    for port, fd, rdma_cm in zip(of_rank_0[:2], of_rank_0[2:], (False, True), strict=True)
]
taken = [[comm.take(plan) for plan in plans] for comm in made]
begun = []
for k in range(OFTEN):
    for which, comm in enumerate(made):
        data = np.full(sizes[k % len(sizes)], rank + k % 7 + which, np.int8)
        handle = comm.start(taken[which][k % len(sizes)], data.ctypes.data, items="int8")
        begun.append((handle, data, sum(r + k % 7 + which for r in range(ranks))))
for handle, data, wanted in reversed(begun):
    assert handle.wait()
    assert (data == wanted).all(), (rank, data, wanted)
for comm in made:
    comm.close()
print("done")
