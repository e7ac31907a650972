# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rank 1 does not do its part: it is killed, stands still, or is late.

Rank 0 waits for it, or leaves while rank 1 stands still, or gives up.

lonely.py killed|stopped|leaves|late|given-up
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import datapath.train  # noqa: F401

how = sys.argv[1]
dist.init_process_group("dp", timeout=timedelta(seconds=400))
data = torch.ones(1000)
for _ in range(3):
    dist.all_reduce(data)
print("together", flush=True)
if dist.get_rank() == 1 and how not in ("late", "given-up"):
    os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
if dist.get_rank() == 0 and how == "leaves":
    dist.destroy_process_group()
    print("left", flush=True)
    sys.exit()
if dist.get_rank() == 0:
    work = dist.all_reduce(data, async_op=True)
    try:
        work.wait(timedelta(seconds=1 if how in ("late", "given-up") else 300))
    except dist.DistBackendError as error:
        print("told:", error, flush=True)
        if how == "given-up":
            dist.destroy_process_group()
            print("left", flush=True)
            sys.exit()
        if how != "late":
            os._exit(0)  # nobody is left to shut down with
# What was late comes now: all ranks start the same collectives in the same order.
if dist.get_rank() == 1:
    time.sleep(2 if how == "late" else 10)
    try:
        dist.all_reduce(data)
    except dist.DistBackendError as error:
        print("told:", error, flush=True)
else:
    assert work.wait()
    print("ended", flush=True)
dist.destroy_process_group()
