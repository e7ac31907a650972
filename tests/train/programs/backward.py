# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""DDP, whose rank 1 is killed or stands still within backward(); rank 0 says what it is told.

backward.py none|topk killed|stands STEPS_BEFORE
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import datapath.train  # noqa: F401
from datapath.train.topk import TopK, topk

hook, how, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
dist.init_process_group("dp", timeout=timedelta(seconds=400))
model = DistributedDataParallel(torch.nn.Linear(100, 100))
if hook == "topk":
    model.register_comm_hook(TopK(density=0.01), topk)
inputs = torch.ones(2, 100)
for _ in range(steps):
    model(inputs).sum().backward()
print("together", flush=True)


def leave(gradient: torch.Tensor) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


if dist.get_rank() == 1:
    model.module.weight.register_hook(leave)
if how == "stands":
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
try:
    model(inputs).sum().backward()
    print("no error", flush=True)
except RuntimeError as error:
    print("told:", error, flush=True)
os._exit(0)  # nobody is left to shut down with
