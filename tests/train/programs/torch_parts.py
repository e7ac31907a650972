# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank: what torch builds on a group, beside its collectives.

The group is made again and again in the same store, as jobs do that recover from a failure.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import datapath.train  # noqa: F401

LIMIT = timedelta(seconds=400)


def smaller_groups(rank: int) -> None:
    for _ in range(2):
        group = dist.new_group([0, 1])
        one = torch.ones(1)
        dist.all_reduce(one, group=group)
        assert one.item() == 2
        dist.destroy_process_group(group)


def sharded(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,))
    rows = distribute_tensor(torch.arange(8.0).view(4, 2), mesh, [Shard(0)])
    assert rows.to_local().shape == (2, 2)
    assert rows.full_tensor().sum().item() == 28
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    whole = [parameter.detach().clone() for parameter in model.parameters()]
    fully_shard(model, mesh=mesh)
    model(torch.ones(2, 8)).sum().backward()
    for before, parameter in zip(whole, model.parameters(), strict=True):
        assert torch.equal(parameter.full_tensor(), before)
        assert parameter.grad.full_tensor().shape == before.shape


def functions(rank: int) -> None:
    world, own = dist.group.WORLD, torch.ones(2) * rank
    assert world.group_name
    assert functional.all_reduce(own, "sum", world).tolist() == [1, 1]
    assert functional.all_gather_single(own, 0, world).tolist() == [0, 0, 1, 1]
    assert functional.reduce_scatter_single(own, "sum", 0, world).tolist() == [1]
    assert functional.all_to_all_single(own, None, None, world).tolist() == [0, 1]
    assert functional.broadcast(own, 1, world).tolist() == [1, 1]
    with dist._coalescing_manager():
        several = [torch.ones(3) * rank, torch.ones(0), torch.ones(5) * rank]
        for one in several:
            dist.all_reduce(one)
    assert [one.tolist() for one in several] == [[1] * 3, [], [1] * 5]
    work = dist.all_reduce(own, async_op=True)
    assert [part.tolist() for part in work.result()] == [[1, 1]]


def powers(rank: int) -> None:
    """PowerSGD's callbacks start collectives and wait for them."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)))
    model.register_comm_hook(PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook)
    for _ in range(4):
        model.zero_grad()
        model(torch.ones(4, 64) + rank).sum().backward()
    grads = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    assert grads.abs().sum() > 0
    both = [torch.empty_like(grads) for _ in range(2)]
    dist.all_gather(both, grads)
    assert torch.equal(*both)


rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
store = dist.TCPStore(address, port, ranks, is_master=rank == 0, timeout=LIMIT)
for part in (smaller_groups, sharded, functions, powers):
    dist.init_process_group("dp", store=store, rank=rank, world_size=ranks, timeout=LIMIT)
    part(rank)
    dist.destroy_process_group()
    print(part.__name__, flush=True)
print("done")
