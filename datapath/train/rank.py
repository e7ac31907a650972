# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank of workload `gloo` or `nccl`: torch's collectives, one after the other.

    python -m datapath.train.rank SETTINGS.json

torch's own variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) say which rank this is.  By NCCL,
the data lies in the memory of a GPU, which ranks may share.  The first collective is compared with
what it should give.  The report has a line with the time at which the measured ones began, and one
for each with the time at which it had ended here, ns of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Settings:
    """Settings of all ranks; size: bytes of float32 of each rank."""

    backend: str
    collective: str
    size: int
    iterations: int
    warm_up: int
    timeout_s: float
    report: str


def values(rank: int, count: int) -> Tensor:
    """Of a rank; sums of few ranks are exact."""
    return ((torch.arange(count) + rank) % 5 + 1).to(torch.float32)


Prepared = tuple[Callable[[], object], Tensor]
"""A collective whose tensors are all made, and where its result is."""


def allreduce(data: Tensor) -> Prepared:
    return lambda: dist.all_reduce(data), data


def broadcast(data: Tensor) -> Prepared:
    return lambda: dist.broadcast(data, 0), data


def allgather(data: Tensor) -> Prepared:
    parts = list(data.chunk(dist.get_world_size()))
    own = parts[dist.get_rank()].clone()
    return lambda: dist.all_gather(parts, own), data


def reduce_scatter(data: Tensor) -> Prepared:
    sums = torch.empty_like(data.chunk(dist.get_world_size())[dist.get_rank()])
    return lambda: dist.reduce_scatter_tensor(sums, data), sums


def alltoall(data: Tensor) -> Prepared:
    sent = data.clone()
    return lambda: dist.all_to_all_single(data, sent), data


CALLS: dict[str, Callable[[Tensor], Prepared]] = {
    "allreduce": allreduce,
    "broadcast": broadcast,
    "allgather": allgather,
    "reduce_scatter": reduce_scatter,
    "alltoall": alltoall,
}


def expected(collective: str, rank: int, ranks: int, count: int) -> Tensor:
    """The result that `rank` has."""
    each = torch.stack([values(one, count) for one in range(ranks)])
    own = slice(rank * (count // ranks), (rank + 1) * (count // ranks))
    match collective:
        case "broadcast":
            return each[0]
        case "allreduce":
            return each.sum(0)
        case "allgather":
            parts = each.view(ranks, ranks, -1)
            return torch.cat([parts[one, one] for one in range(ranks)])
        case "alltoall":
            return each[:, own].reshape(-1)
    return each[:, own].sum(0)  # reduce_scatter


def place(backend: str) -> torch.device:
    """Where a rank has its data."""
    if backend != "nccl":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        sys.exit("error: NCCL needs a GPU of NVIDIA and a build of PyTorch for CUDA")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def finish(device: torch.device) -> None:
    """Wait until a collective has ended."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group(settings.backend, timeout=timedelta(seconds=settings.timeout_s))
    device = place(settings.backend)
    rank, ranks, count = dist.get_rank(), dist.get_world_size(), settings.size // 4
    data = values(rank, count).to(device)
    call, result = CALLS[settings.collective](data)
    call()
    if not torch.equal(result.cpu(), expected(settings.collective, rank, ranks, count)):
        sys.exit(f"error: rank {rank}: the result is not what it should be")
    data.zero_()  # sums of sums would overflow
    for _ in range(settings.warm_up):
        call()
    finish(device)
    dist.barrier()  # what others still do before is no part of this rank's times
    times = [time.monotonic_ns()]
    for _ in range(settings.iterations):
        call()
        finish(device)
        times.append(time.monotonic_ns())
    Path(settings.report).write_text("\n".join(map(str, times)) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
