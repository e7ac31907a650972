# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Communicators apart from the group's, and what moves over one: messages between two ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch import Tensor

from datapath.collectives import Plan
from datapath.collectives.communicator import Communicator
from datapath.collectives.make import TRANSFER_BYTES
from datapath.train.meeting import meet
from datapath.train.plans import Plans, pair_plan
from datapath.train.work import Waiter, Work


class Apart:
    """A communicator that the ranks make at its first use, and its waiter.

    key: of the meeting in torch's store; the arguments are those of meet().
    """

    def __init__(
        self, store: dist.Store, key: str, rank: int, ranks: int, plan: Plan, timeout: timedelta
    ) -> None:
        self._left = threading.Event()
        self._at = (store, key, rank, ranks, [plan], timeout, self._left)
        self._made: tuple[Communicator, Plans] | None = None
        self.waiter = Waiter(f"{key}, rank {rank}")

    def opened(self) -> tuple[Communicator, Plans]:
        """For the waiter's jobs, which run one after the other."""
        if self._made is None:
            comm = meet(*self._at)
            self._made = comm, Plans(comm)
            if self._left.is_set():
                comm.abort("left while ranks met")
        return self._made

    def close(self, until_s: float) -> None:
        """until_s: of time.monotonic(): no longer than to there for what is under way."""
        ended = self.waiter.close(self._abort, until_s)
        if self._made is not None and ended:
            self._made[0].close(max(0.0, until_s - time.monotonic()))

    def _abort(self, why: str) -> None:
        """What is under way: ranks that meet, or a collective."""
        self._left.set()
        if self._made is not None:
            self._made[0].abort(why)


class Direction:
    """Messages from one rank of a group to another, in order; rank is the one that is here."""

    def __init__(
        self, store: dist.Store, source: int, to: int, rank: int, timeout: timedelta
    ) -> None:
        self._rank, self._timeout = rank, timeout
        key, own = f"dp {source} to {to}", int(rank == to)
        self._apart = Apart(store, key, own, 2, pair_plan(TRANSFER_BYTES), timeout)

    def move(self, data: Tensor, end: Callable[[], object], what: str, tag: int = 0) -> Work:
        if not 0 <= tag < 2**32:
            raise ValueError(f"backend dp: tag {tag} is not from 0 to {2**32 - 1}")
        work = Work(f"rank {self._rank}: {what}, {data.nbytes} bytes", self._timeout)

        def job() -> object:
            if data.nbytes:
                _, plans = self._apart.opened()
                plans.start_pair(data.nbytes, data.data_ptr(), tag).wait()
            return end()

        return self._apart.waiter.add(work, job)

    def close(self, until_s: float) -> None:
        self._apart.close(until_s)
