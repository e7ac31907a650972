# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All-to-alls with parts of several sizes, of a group.

A rank knows what it sends and what it wants.  The plan needs the sizes of all, so ranks tell each
other first.  That, and the all-to-all behind it, happen on a thread and a communicator of their
own: so who starts one does not wait for the others, and it keeps its order among its like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from datapath.collectives import check, load
from datapath.collectives.make import make_uneven
from datapath.train.apart import Apart
from datapath.train.plans import meeting_plan
from datapath.train.work import Work


class Uneven:
    """Of one rank."""

    def __init__(self, store: dist.Store, rank: int, ranks: int, timeout: timedelta) -> None:
        self._rank, self._ranks = rank, ranks
        self._apart = Apart(store, "dp uneven", rank, ranks, meeting_plan(ranks), timeout)

    def move(
        self,
        source: Tensor,
        sent: Sequence[int],
        wanted: Sequence[int],
        limit: timedelta,
        end: Callable[[Tensor], object],
    ) -> Work:
        """Start one.

        source: contiguous; item counts of its parts are `sent`, and those of what is to come
        `wanted`.  end: makes the work's value of what came.
        """
        work = Work(f"rank {self._rank}: alltoall of {source.nbytes} bytes", limit)
        size = source.element_size()
        told = np.array([sent, wanted], np.int64) * size

        def job() -> object:
            parts = self._parts(told)
            came = torch.empty(int(parts[:, self._rank].sum()) // size, dtype=source.dtype)
            if parts.any():
                self._exchange(parts, source, came)
            return end(came)

        return self._apart.waiter.add(work, job)

    def close(self, until_s: float) -> None:
        self._apart.close(until_s)

    def _parts(
        self, told: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    ) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Bytes from each rank to each; all ranks refuse what does not fit."""
        _, plans = self._apart.opened()
        every = np.zeros((self._ranks, 2, self._ranks), np.int64)
        every[self._rank] = told
        plans.start("allgather", every.nbytes, every.ctypes.data).wait()
        sent, wanted = every[:, 0], every[:, 1].T
        if (sent != wanted).any():
            source, to = np.argwhere(sent != wanted)[0].tolist()
            raise ValueError(
                f"all_to_all: rank {source} sends {sent[source, to]} bytes to rank {to}, which "
                f"wants {wanted[source, to]}"
            )
        return sent

    def _exchange(
        self, parts: np.ndarray[tuple[int, int], np.dtype[np.int64]], source: Tensor, came: Tensor
    ) -> None:
        comm, _ = self._apart.opened()
        plan = check(make_uneven(load("pairwise"), parts, item_bytes=1))
        data = _as_large_as(came, plan.data_bytes, filled=False)
        given = _as_large_as(source, plan.input_bytes, filled=True)
        taken = comm.take(plan)
        try:
            comm.start(taken, data.data_ptr(), given.data_ptr()).wait()
        finally:
            comm.forget(taken)
        if data is not came:
            came.copy_(data[: came.nbytes].view(came.dtype))


def _as_large_as(tensor: Tensor, size: int, *, filled: bool) -> Tensor:
    """The tensor, or bytes of which it is the first, since all ranks have buffers of one size."""
    if tensor.nbytes == size:
        return tensor
    made = torch.empty(size, dtype=torch.uint8)
    if filled:
        made[: tensor.nbytes] = tensor.reshape(-1).view(torch.uint8)
    return made
