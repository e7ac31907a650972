# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A training script as torchrun starts it: the backend is the one line that differs.

script.py BACKEND FOLDER [topk]
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import datapath.train  # noqa: F401
from datapath.train import models
from datapath.train.topk import TopK, topk

backend, folder, *hook = sys.argv[1:]
dist.init_process_group(backend)
rank = dist.get_rank()
task = models.make("convnet", seed=3)
model = DistributedDataParallel(task.model, bucket_cap_mb=0.2)
state = TopK(density=0.01, momentum=0.9)
if hook:
    model.register_comm_hook(state, topk)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.0 if hook else 0.9)
generator = torch.Generator().manual_seed(rank)
losses = []
for _ in range(8):
    inputs, wanted = task.batch(generator, 8)
    loss = task.loss(model(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
result = {"losses": losses, "digest": hashlib.sha256(weights).hexdigest()}
result |= {"sent": state.sent_bytes, "dense": state.dense_bytes}
(Path(folder) / f"{backend}-{rank}.json").write_text(json.dumps(result))
dist.destroy_process_group()
