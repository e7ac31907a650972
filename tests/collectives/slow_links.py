# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two ranks in one process, rank 1 behind slow links: slow_links.py CASE.

Devices dp0 and dp1 are of rank 0, dp2 and dp3 of rank 1.
`farewell`: rank 0 sends to dp2, and gives up while more is under way than dp0 has in its window.
`silence`: a transfer to dp2 takes longer than a silence; meanwhile there are many to dp3.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import datapath.verbs  # noqa: F401  (our devices are there before libibverbs is)
from datapath.collectives import Plan, Trace, algorithm, check, load, make
from datapath.collectives.communicator import Communicator
from datapath.errors import RemoteError

SIZE, OFTEN = 16 * 2**10, 17  # bytes of a transfer, and how many there are, in case silence


@algorithm("uneven_links", collective="broadcast")
def uneven_links(plan: Trace) -> None:
    plan.divide(OFTEN)
    for index in range(OFTEN):
        plan.chunk(0, "data", index).copy(1, channel=int(index > 0))


def told(
    plan: Plan, devices: Sequence[str], silence_ms: int, begun: Callable[[Communicator], Any]
) -> str:
    """What rank 1 hears of a collective; begun(): is called at rank 0, which has started it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, token = listener.getsockname()[1], secrets.token_hex(8)
        over = threading.Barrier(2)

        def run(rank: int) -> str:
            data = np.zeros(plan.data_bytes, np.int8)
            comm = Communicator(
                rank,
                2,
                device=devices[rank],
                address="127.0.0.1",
                port=port,
                token=token,
                plans=[plan],
                listener=None if rank else listener,
                node=2**32 - 1,
                silence_ms=silence_ms,
            )
            work = comm.start(comm.take(plan), data.ctypes.data)
            if rank == 0:
                begun(comm)
            try:
                work.wait()
                return "done"
            except RemoteError as error:
                return str(error)
            finally:
                over.wait()
                comm.close(1)

        with ThreadPoolExecutor(2) as pool:
            return [pool.submit(run, rank) for rank in range(2)][1].result()


if sys.argv[1] == "farewell":
    chain = check(make(load("chain"), 2, 4 * 2**20, item_bytes=1, transfer_bytes=4 * SIZE))

    def give_up(comm: Communicator) -> None:
        time.sleep(0.3)  # until transfers are under way
        comm.abort("it has had enough")

    print(told(chain, ("dp0", "dp2"), 5_000, give_up))
else:
    mixed = check(make(uneven_links, 2, OFTEN * SIZE, item_bytes=1))
    print(told(mixed, ("dp0,dp1", "dp2,dp3"), 1_000, lambda comm: None))
