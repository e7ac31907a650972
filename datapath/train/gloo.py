# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank of workload `gloo`: torch's collectives by gloo, one after the other.

    python -m datapath.train.gloo SETTINGS.json

torch's own variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) say which rank this is.  The
first collective is compared with what it should give.  The report has a line with the time at which
the measured ones began, and one for each with the time at which it had ended here, ns of
CLOCK_MONOTONIC.
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

    collective: str
    size: int
    iterations: int
    warm_up: int
    timeout_s: float
    report: str


def values(rank: int, count: int) -> Tensor:
    """Of a rank; sums of few ranks are exact."""
    return ((torch.arange(count) + rank) % 5 + 1).to(torch.float32)


def allreduce(data: Tensor) -> None:
    dist.all_reduce(data)


def broadcast(data: Tensor) -> None:
    dist.broadcast(data, 0)


def allgather(data: Tensor) -> None:
    parts = list(data.chunk(dist.get_world_size()))
    dist.all_gather(parts, parts[dist.get_rank()].clone())


CALLS: dict[str, Callable[[Tensor], None]] = {
    "allreduce": allreduce,
    "broadcast": broadcast,
    "allgather": allgather,
}


def expected(collective: str, ranks: int, count: int) -> Tensor:
    if collective == "broadcast":
        return values(0, count)
    each = [values(rank, count) for rank in range(ranks)]
    if collective == "allreduce":
        return torch.stack(each).sum(0)
    part = count // ranks
    return torch.cat([one[r * part : (r + 1) * part] for r, one in enumerate(each)])


def main() -> None:
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo", timeout=timedelta(seconds=settings.timeout_s))
    call, count = CALLS[settings.collective], settings.size // 4
    data = values(dist.get_rank(), count)
    call(data)
    if not torch.equal(data, expected(settings.collective, dist.get_world_size(), count)):
        sys.exit(f"error: rank {dist.get_rank()}: the result is not what it should be")
    data.zero_()  # sums of sums would overflow
    for _ in range(settings.warm_up):
        call(data)
    times = [time.monotonic_ns()]
    for _ in range(settings.iterations):
        call(data)
        times.append(time.monotonic_ns())
    Path(settings.report).write_text("\n".join(map(str, times)) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
