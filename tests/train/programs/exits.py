# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rank 0 ends without leaving its group: by an exception, while a collective goes on.

Rank 1 waits for it meanwhile, and is told.
"""

from datetime import timedelta

import torch
import torch.distributed as dist

import datapath.train  # noqa: F401

dist.init_process_group("dp", timeout=timedelta(seconds=400))
data = torch.ones(1000)
dist.all_reduce(data)
if dist.get_rank() == 0:
    pending = dist.new_group([0, 1])
    left = dist.all_reduce(data, group=pending, async_op=True)
    raise SystemExit(3)
pending = dist.new_group([0, 1])
try:
    dist.all_reduce(data)
except dist.DistBackendError as error:
    print("told:", error)
