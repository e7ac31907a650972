# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank of workload `training`: DDP on a small network, step by step.

    python -m datapath.train.worker SETTINGS.json

torch's own variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) say which rank this is.  The
report is JSON: of each step its time and loss, and what the whole training took.
"""

import hashlib
import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.nn.parallel import DistributedDataParallel

import datapath.train  # noqa: F401  (registers backend dp)
from datapath.train import models
from datapath.train.topk import TopK, topk

HOOK_ITEM_BYTES = {"fp16": 2, "bf16": 2}
"""Bytes of a gradient as a hook sends it, where it is not a float32."""


@dataclass(frozen=True)
class Settings:
    """Settings of all ranks.  netdev: of the network under test, whose bytes are counted."""

    backend: str
    model: str
    steps: int
    warm_up: int
    batch: int
    learning_rate: float
    momentum: float
    seed: int
    bucket_mib: float
    hook: str  # none, fp16, bf16, topk
    density: float
    error_feedback: bool
    density_warm_up: int
    netdev: str
    timeout_s: float
    report: str


@dataclass
class Report:
    """step_ns, losses: of this rank, of each measured step.

    digest: of all parameters at the end, equal on all ranks.  sent_bytes: by the network device,
    with headers and retransmissions.  gradient_bytes: what a dense ring would send of gradients
    alone; hook_bytes: what the hook sent of them.
    """

    parameters: int
    step_ns: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    digest: str = ""
    sent_bytes: int = 0
    gradient_bytes: int = 0
    hook_bytes: int = 0
    cpu_s: float = 0.0


def sent_bytes(netdev: str) -> int:
    return int(Path(f"/sys/class/net/{netdev}/statistics/tx_bytes").read_text())


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def digest(model: torch.nn.Module) -> str:
    """Of the bytes of all parameters."""
    out = hashlib.sha256()
    for parameter in model.parameters():
        out.update(parameter.detach().contiguous().numpy().tobytes())
    return out.hexdigest()


def wrap(model: torch.nn.Module, settings: Settings) -> tuple[DistributedDataParallel, TopK | None]:
    """DDP with the hook that the settings name, and the state of hook topk."""
    ddp = DistributedDataParallel(model, bucket_cap_mb=settings.bucket_mib)
    if settings.hook == "topk":
        state = TopK(
            density=settings.density,
            momentum=settings.momentum,
            error_feedback=settings.error_feedback,
            warm_up_steps=settings.density_warm_up,
        )
        ddp.register_comm_hook(state, topk)
        return ddp, state
    if settings.hook != "none":
        hook = {"fp16": fp16_compress_hook, "bf16": bf16}[settings.hook]
        ddp.register_comm_hook(dist.group.WORLD, hook)
    return ddp, None


def bf16(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """torch's hook by another name: without CUDA, DDP refuses the name, whatever can be reduced.

    DDP also compares the annotations, so they are types here, and no strings.
    """
    return bf16_compress_hook(group, bucket)


def batch_seed(seed: int, rank: int, ranks: int) -> int:
    """Each rank's own; torch takes 64 bits."""
    return (seed * ranks + rank) % 2**64


def train(settings: Settings) -> Report:
    """Each rank has batches of its own, and all have the same network at the end."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    task = models.make(settings.model, settings.seed)
    ddp, state = wrap(task.model, settings)
    momentum = 0.0 if state is not None else settings.momentum
    optimizer = torch.optim.SGD(ddp.parameters(), lr=settings.learning_rate, momentum=momentum)
    generator = torch.Generator().manual_seed(batch_seed(settings.seed, rank, ranks))
    count = sum(p.numel() for p in ddp.parameters())
    report = Report(parameters=count)
    sent, used = sent_bytes(settings.netdev), cpu_s()
    for step in range(settings.warm_up + settings.steps):
        if step == settings.warm_up:
            dist.barrier()
            sent, used = sent_bytes(settings.netdev), cpu_s()
            before = state.sent_bytes if state else 0
        begin = time.monotonic_ns()
        inputs, wanted = task.batch(generator, settings.batch)
        loss = task.loss(ddp(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= settings.warm_up:
            report.step_ns.append(time.monotonic_ns() - begin)
            report.losses.append(float(loss.detach()))
    report.sent_bytes = sent_bytes(settings.netdev) - sent
    report.cpu_s = cpu_s() - used
    report.gradient_bytes = settings.steps * 2 * (ranks - 1) * 4 * count // ranks
    of_dense = report.gradient_bytes * HOOK_ITEM_BYTES.get(settings.hook, 4) // 4
    report.hook_bytes = state.sent_bytes - before if state else of_dense
    report.accuracy = models.accuracy(task)
    report.digest = digest(task.model)
    return report


def main() -> None:
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group(settings.backend, timeout=timedelta(seconds=settings.timeout_s))
    report = train(settings)
    Path(settings.report).write_text(json.dumps(asdict(report)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
