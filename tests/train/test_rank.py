# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank of workload gloo or nccl: what its collectives do while they are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def alone() -> Iterator[None]:
    """A default group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "collective", ["allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall"]
)
def test_a_measured_collective_makes_no_tensors(alone: None, collective: str) -> None:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from datapath.train.rank import CALLS, expected, values

    class Calls(TorchDispatchMode):
        made: list[str]

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.made.append(str(func))
            return func(*args, **(kwargs or {}))

    call, result = CALLS[collective](values(0, 64))
    seen = Calls()
    seen.made = []
    with seen:
        call()
    assert torch.equal(result, expected(collective, 0, 1, 64))
    assert any(name.startswith("c10d") for name in seen.made)
    assert not any("clone" in name or "empty" in name for name in seen.made), seen.made
