# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Training by PyTorch over libdpcoll.  Importing this registers backend `dp`:

    import datapath.train
    torch.distributed.init_process_group("dp")

group.py       the process group: torch's collectives as plans (uneven.py: unequal parts)
apart.py       communicators apart from the group's: messages between two ranks
tensors.py     which tensors it moves and reduces
plans.py       which plan a collective of so many bytes has
meeting.py     how the ranks of a group find each other
work.py        what a collective under way is for torch, and who waits for its end
topk.py        a hook of DDP that sends few gradients
models.py      small networks and their data
worker.py      one rank of workload `training`
rank.py        one rank of workload `gloo` or `nccl`

PyTorch is an optional extra, and no other folder imports it.
"""

from __future__ import annotations

import datapath.verbs  # noqa: F401  (our devices are there before libibverbs is)
from datapath.train.group import register

register()
