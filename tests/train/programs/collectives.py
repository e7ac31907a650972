# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank: every collective of backend dp, compared with what it should give."""

import contextlib
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import datapath.train  # noqa: F401

dist.init_process_group("dp", timeout=timedelta(seconds=400))
rank, ranks = dist.get_rank(), dist.get_world_size()


def own(r: int, items: int = 1000, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(items) % 7 + r).to(dtype)


def equal(got: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    assert torch.equal(got, wanted), f"rank {rank}: {what}: {got} is not {wanted}"


TOTAL = sum(own(r) for r in range(ranks))

for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8):
    data = own(rank, dtype=dtype)
    dist.all_reduce(data)
    equal(data, TOTAL.to(dtype), f"all_reduce of {dtype}")
any_of = [(dist.ReduceOp.SUM, True), (dist.ReduceOp.MAX, True)]
all_of = [(dist.ReduceOp.PRODUCT, False), (dist.ReduceOp.MIN, False)]
for op, wanted in any_of + all_of:
    mixed = torch.tensor([rank == 1, True, False])
    dist.all_reduce(mixed, op)
    equal(mixed, torch.tensor([wanted, True, False]), f"{op} of flags")
data = torch.tensor([-1 if rank == 0 else 0, 10 * rank])
dist.all_reduce(data, op=dist.ReduceOp.AVG)
equal(data, torch.tensor([0, 5 * (ranks - 1)]), "average of integers")
data = own(rank)
dist.all_reduce(data, op=dist.ReduceOp.AVG)
equal(data, TOTAL / ranks, "average")
data = own(rank)
dist.all_reduce(data, op=dist.ReduceOp.MAX)
equal(data, own(ranks - 1), "maximum")
large = own(rank, 300_000)
dist.all_reduce(large)
equal(large, sum(own(r, 300_000) for r in range(ranks)), "large all_reduce")
turned = own(rank).view(10, 100).t()  # not contiguous
dist.all_reduce(turned)
equal(turned, TOTAL.view(10, 100).t(), "all_reduce of a transposed tensor")

flags = torch.tensor([True, False, True]) if rank == 1 else torch.zeros(3, dtype=torch.bool)
dist.broadcast(flags, src=1)
equal(flags, torch.tensor([True, False, True]), "broadcast")

parts = [torch.empty(1000) for _ in range(ranks)]
dist.all_gather(parts, own(rank))
for r, part in enumerate(parts):
    equal(part, own(r), "all_gather")
whole = torch.empty(1000 * ranks)
dist.all_gather_single(whole, own(rank))
equal(whole, torch.cat([own(r) for r in range(ranks)]), "all_gather_single")
things: list[object] = [None] * ranks
dist.all_gather_object(things, {"rank": rank, "text": "x" * rank})
assert things == [{"rank": r, "text": "x" * r} for r in range(ranks)]

mine = torch.empty(1000)
dist.reduce_scatter(mine, [own(rank) + r for r in range(ranks)])
equal(mine, TOTAL + rank * ranks, "reduce_scatter")
dist.reduce_scatter_single(mine, torch.cat([own(rank) + r for r in range(ranks)]))
equal(mine, TOTAL + rank * ranks, "reduce_scatter_single")

got = torch.empty(1000 * ranks)
dist.all_to_all_single(got, torch.cat([own(rank) + 100 * r for r in range(ranks)]))
equal(got, torch.cat([own(r) + 100 * rank for r in range(ranks)]), "all_to_all_single")
came = [torch.empty(10) for _ in range(ranks)]
dist.all_to_all(came, [own(rank, 10) + 100 * r for r in range(ranks)])
for r, part in enumerate(came):
    equal(part, own(r, 10) + 100 * rank, "all_to_all")

# Parts of several sizes, some of them empty; each rank knows what it sends and what it wants.
sizes = [[(3 * a + 5 * b) % 4 for b in range(ranks)] for a in range(ranks)]
wanted = [sizes[r][rank] for r in range(ranks)]
rows = torch.cat([own(rank, 300 * n).view(n, 300) + r for r, n in enumerate(sizes[rank])])
got = torch.empty(sum(wanted), 300)
dist.all_to_all_single(got, rows, wanted, sizes[rank])
expected = torch.cat([own(r, 300 * n).view(n, 300) + rank for r, n in enumerate(wanted)])
equal(got, expected, "all_to_all_single of several sizes")
came = [torch.empty(n, dtype=torch.int64) for n in wanted]
works = [
    dist.all_to_all(
        came, [own(rank, n, torch.int64) + r for r, n in enumerate(sizes[rank])], async_op=True
    ),
    dist.all_reduce(own(rank), async_op=True),
]
for work in reversed(works):
    work.wait()
for r, part in enumerate(came):
    equal(part, own(r, wanted[r], torch.int64) + rank, "all_to_all of several sizes")
with pytest.raises(dist.DistBackendError, match=r"rank \d sends 0 bytes to rank \d, which wants 4"):
    dist.all_to_all([torch.empty(1)] * ranks, [torch.empty(0)] * ranks)
with pytest.raises(ValueError, match=f"a tensor of 3 rows for {ranks} ranks"):
    dist.all_to_all_single(torch.empty(3), torch.empty(3), [1] * ranks, [7] * ranks)

rows = torch.cat([own(rank) + 100 * r for r in range(ranks)])
dist.all_to_all_single(rows, rows)
equal(rows, torch.cat([own(r) + 100 * rank for r in range(ranks)]), "all_to_all_single in place")
whole[1000 * rank : 1000 * (rank + 1)] = own(rank) + 5
dist.all_gather_single(whole, whole[1000 * rank : 1000 * (rank + 1)])
equal(whole, torch.cat([own(r) + 5 for r in range(ranks)]), "all_gather_single in place")
dist.reduce_scatter_single(whole[:1000], whole)
equal(whole[:1000], ranks * (own(rank) + 5), "reduce_scatter_single in place")

# The values of a view may be others than those of its memory.
for root, wanted_values in ((0, -own(5)), (1, own(7))):
    # As the imaginary part of a conjugate is.
    turned = torch._neg_view(own(5)) if rank == 0 else own(7)
    assert turned.is_contiguous()
    dist.broadcast(turned, root)
    equal(turned, wanted_values, f"broadcast from {root}, negated memory at rank 0")

for call in (
    lambda: dist.all_gather([torch.empty(3)] * (ranks - 1), torch.empty(3)),
    lambda: dist.reduce_scatter(torch.empty(3), [torch.empty(3)] * (ranks + 1)),
    lambda: dist.all_to_all([torch.empty(3)] * (ranks - 1), [torch.empty(3)] * (ranks - 1)),
):
    with pytest.raises(ValueError, match=rf"\d tensors in a list, for {ranks} ranks"):
        call()
for shape in ((ranks + 1,), (ranks + 1, ranks), ()):
    with pytest.raises(ValueError, match=f"rows for {ranks} ranks"):
        dist.all_to_all_single(torch.empty(shape), torch.empty(shape))
with pytest.raises(TypeError, match=r"dense tensors of the CPU, and this one is torch\.sparse_coo"):
    dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (4,)))
with pytest.raises(NotImplementedError, match="does not receive from any rank: name the source"):
    dist.recv(torch.empty(1))


def part_of(r: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(own(r, 12).view(3, 4).t())  # not contiguous


def plain_tensors() -> None:
    """Autograd takes no notice: parameters go in, and plain tensors come out."""
    whole = sum(part_of(r).detach() for r in range(ranks))
    for op, total in ((dist.ReduceOp.SUM, whole), (dist.ReduceOp.AVG, whole / ranks)):
        weights = part_of(rank)
        dist.all_reduce(weights, op=op)
        equal(weights.detach(), total, f"all_reduce of a parameter by {op}")
    weights = part_of(rank)
    dist.broadcast(weights, 1)
    equal(weights.detach(), part_of(1).detach(), "broadcast of a parameter")
    parts = [torch.empty(4, 3) for _ in range(ranks)]
    dist.all_gather(parts, part_of(rank))
    mine = torch.empty(4, 3)
    dist.scatter(mine, [part_of(r) for r in range(ranks)] if rank == 0 else None, 0)
    dist.all_to_all(parts, [part_of(rank)] * ranks)
    whole = torch.empty(12 * ranks)
    dist.all_gather_single(whole, part_of(rank).reshape(-1))
    sums = torch.empty(4, 3)
    dist.reduce_scatter(sums, [part_of(rank)] * ranks)
    for r, part in enumerate(parts):
        equal(part, part_of(r).detach(), "all_to_all of parameters")
    equal(mine, part_of(rank).detach(), "scatter of parameters")
    assert not any(one.requires_grad for one in (*parts, mine, whole, sums))


plain_tensors()
with torch.inference_mode():
    plain_tensors()
    made = torch.zeros(ranks, 4)
    turned = own(rank, 12).view(3, 4).t()
dist.all_gather_single(made, torch.ones(4) * rank)
equal(made, torch.arange(ranks)[:, None].expand(ranks, 4).float(), "tensor of inference mode")
dist.all_reduce(turned)
equal(turned, sum(own(r, 12) for r in range(ranks)).view(3, 4).t(), "the same, not contiguous")

for root in range(ranks):
    for items in (100, 50_000):
        data = own(rank, items)
        dist.reduce(data, root)
        total = sum(own(r, items) for r in range(ranks))
        equal(data, total if rank == root else own(rank, items), f"reduce of {items}")
        parts = [torch.empty(items) for _ in range(ranks)] if rank == root else None
        dist.gather(own(rank, items), parts, root)
        for r, part in enumerate(parts or []):
            equal(part, own(r, items), f"gather of {items}")
        mine = torch.empty(items)
        given = [own(root, items) + r for r in range(ranks)] if rank == root else None
        dist.scatter(mine, given, root)
        equal(mine, own(root, items) + rank, f"scatter of {items}")
data = own(rank)
dist.reduce(data, 1, op=dist.ReduceOp.AVG)
equal(data, TOTAL / ranks if rank == 1 else own(rank), "average at one rank")
collected: list[object] | None = [None] * ranks if rank == 0 else None
dist.gather_object({"rank": rank}, collected, 0)
assert rank or collected == [{"rank": r} for r in range(ranks)]
mine = torch.empty(1000)

# Each rank sends before it receives, more than the slots of a connection hold.
after, before = (rank + 1) % ranks, (rank - 1) % ranks
sent, received = own(rank, 1_000_000), torch.empty(1_000_000)
works = [dist.isend(sent, after), dist.irecv(received, before)]
for work in works:
    work.wait()
equal(received, own(before, 1_000_000), "isend and irecv")
if rank == 0:
    dist.send(own(0), 1)
elif rank == 1:
    dist.recv(mine, 0)
    equal(mine, own(0), "send and recv")

works = [dist.all_reduce(own(rank), async_op=True) for _ in range(20)]
for work in reversed(works):
    assert work.wait(timedelta(seconds=60))
    assert work.is_completed()
pair = dist.new_group([0, 1], timeout=timedelta(days=60))  # more than milliseconds in C can be
if rank < 2:
    data = own(rank)
    dist.all_reduce(data, group=pair)
    equal(data, own(0) + own(1), "all_reduce of a smaller group")
dist.barrier()

with pytest.raises(TypeError, match=r"does not reduce torch\.int16"):
    dist.all_reduce(torch.zeros(3, dtype=torch.int16))
# Tags are the same at both ends; the sender may be done before it is told.
if rank == 0:
    with contextlib.suppress(dist.DistBackendError):
        with pytest.raises(ValueError, match="tag -1 is not from 0"):
            dist.send(own(0), 1, tag=-1)
        dist.send(own(0), 1, tag=1)
elif rank == 1:
    with pytest.raises(dist.DistBackendError, match=r"do all ranks start .* types, roots and tags"):
        dist.recv(mine, 0, tag=2)
world = dist.group.WORLD
assert world is not None
dist.destroy_process_group()
for call in (
    lambda: world.allreduce([own(rank)]),
    lambda: world.send([own(rank)], 0, 0),
    lambda: world.all_to_all_single(own(rank, ranks), own(rank, ranks), [1] * ranks, [1] * ranks),
):
    with pytest.raises(dist.DistBackendError, match="has destroyed this process group"):
        call()
print("done", rank, os.getpid())
