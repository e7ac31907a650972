# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A hook of DDP that sends the few largest gradients and keeps the others for later.

Deep gradient compression (Lin et al., ICLR 2018), with its names: u is the momentum, v what has not
been sent yet.

    state = TopK(density=0.01, momentum=0.9)
    model.register_comm_hook(state, topk)

The optimizer is then plain SGD without momentum, because the hook has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

_ENTRY_BYTES = 8  # an index and a value


@dataclass
class _Bucket:
    """parameters: whose gradients it has, in that order, by id()."""

    u: Tensor
    v: Tensor
    parameters: tuple[int, ...] = ()


@dataclass
class TopK:
    """The state of the hook, and its settings.

    density: share of the gradients that is sent at the end of the warm-up.
    momentum: of SGD, applied before the selection (momentum correction).
    error_feedback: keep what was not sent; without it, it is lost (to see its effect).
    dense_steps: all gradients are sent in the first steps; at least 2.
    warm_up_steps: then the density falls from 1/4 to `density`, evenly in its logarithm.
    group: None: the default group.
    """

    density: float = 0.01
    momentum: float = 0.9
    error_feedback: bool = True
    dense_steps: int = 2
    warm_up_steps: int = 0
    group: dist.ProcessGroup | None = None
    step: int = 0
    sent_bytes: int = 0
    """Of this rank, in a ring: of the gradients as they were sent."""
    dense_bytes: int = 0
    """The bytes that dense gradients would have taken."""
    _buckets: dict[int, _Bucket] = field(default_factory=dict)
    _parts: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """By id() of a parameter: its part of u and v, in whichever bucket it is."""

    def __post_init__(self) -> None:
        if not 0 < self.density <= 1 or not 0 <= self.momentum < 1:
            raise ValueError(
                f"topk: density {self.density}, momentum {self.momentum}: the density is above 0 "
                "and at most 1, the momentum at least 0 and below 1"
            )
        if self.dense_steps < 2 or self.warm_up_steps < 0:
            raise ValueError("topk: dense_steps is at least 2, warm_up_steps at least 0")

    def density_at(self, step: int) -> float:
        """The share that is sent in a step, counted from 0."""
        sparse = step - self.dense_steps
        if sparse < 0:
            return 1.0
        if sparse >= self.warm_up_steps or self.density >= 0.25:
            return self.density
        return float(0.25 * (self.density / 0.25) ** (sparse / self.warm_up_steps))

    def bucket(self, index: int, parameters: Sequence[Tensor], like: Tensor) -> _Bucket:
        """Of the gradients `like` of these parameters.

        DDP lays its buckets out anew after the first step; then u and v move with the parameters.
        """
        names = tuple(map(id, parameters))
        if index not in self._buckets or self._buckets[index].parameters != names:
            made = _Bucket(torch.zeros_like(like), torch.zeros_like(like), names)
            sizes = [parameter.numel() for parameter in parameters]
            for name, u, v in zip(names, made.u.split(sizes), made.v.split(sizes), strict=True):
                if name in self._parts:
                    before_u, before_v = self._parts[name]
                    u.copy_(before_u)
                    v.copy_(before_v)
                self._parts[name] = u, v
            self._buckets[index] = made
        return self._buckets[index]


def topk(state: TopK, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The mean of what all ranks selected, with momentum."""
    group = state.group if state.group is not None else dist.group.WORLD
    ranks = group.size()
    gradient = bucket.buffer()
    kept = state.bucket(bucket.index(), bucket.parameters(), gradient)
    density = state.density_at(state.step)
    state.step += bucket.is_last()
    count = max(1, int(density * gradient.numel()))
    dense = 2 * (ranks - 1) * gradient.nbytes // ranks
    sparse = (ranks - 1) * count * _ENTRY_BYTES
    state.dense_bytes += dense
    if sparse >= dense or gradient.dtype != torch.float32:
        state.sent_bytes += dense
        return _all(state, kept, gradient, group, ranks)
    state.sent_bytes += sparse
    return _selected(state, kept, gradient, group, ranks, count)


def _all(
    state: TopK, kept: _Bucket, gradient: Tensor, group: dist.ProcessGroup, ranks: int
) -> torch.futures.Future[Tensor]:
    """Everything that this rank has: the momentum, and what it has not sent yet."""
    kept.u.mul_(state.momentum).add_(gradient)
    kept.v.add_(kept.u)
    gradient.copy_(kept.v)
    kept.v.zero_()
    work = dist.all_reduce(gradient, group=group, async_op=True)

    def mean(done: torch.futures.Future[object]) -> Tensor:
        done.value()  # raises the error of a collective that has failed
        return gradient.div_(ranks)

    return work.get_future().then(mean)


def _selected(
    state: TopK,
    kept: _Bucket,
    gradient: Tensor,
    group: dist.ProcessGroup,
    ranks: int,
    count: int,
) -> torch.futures.Future[Tensor]:
    kept.u.mul_(state.momentum).add_(gradient)
    kept.v.add_(kept.u)
    chosen = torch.topk(kept.v.abs(), count, sorted=False).indices
    packed = torch.empty(2 * count, dtype=torch.int32, device=gradient.device)
    packed[:count] = chosen
    packed[count:] = kept.v[chosen].view(torch.int32)
    if state.error_feedback:
        kept.v[chosen] = 0.0
        kept.u[chosen] = 0.0  # momentum factor masking
    else:
        kept.v.zero_()
    gathered = torch.empty(ranks * 2 * count, dtype=torch.int32, device=gradient.device)
    work = dist.all_gather_single(gathered, packed, group=group, async_op=True)

    def unpack(done: torch.futures.Future[object]) -> Tensor:
        done.value()  # as in _all()
        gradient.zero_()
        for part in gathered.view(ranks, 2 * count):
            values = part[count:].view(torch.float32)
            gradient.index_add_(0, part[:count].to(torch.int64), values)
        return gradient.div_(ranks)

    return work.get_future().then(unpack)
