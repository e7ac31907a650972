# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Backend `dp` of torch.distributed: each collective is a plan that libdpcoll runs.

A group has one communicator, whose collectives run one after the other.  Each direction between two
ranks that send to each other by themselves has a communicator of its own, made at first use, so
that a receive never waits behind a send; so have all-to-alls with parts of several sizes.  Messages
are received in the order in which they were sent; sizes and tags are the same at both ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from datapath.errors import LocalError, RemoteError
from datapath.train.apart import Direction
from datapath.train.meeting import meet
from datapath.train.plans import Plans, Running, meeting_plan, named_algorithm
from datapath.train.tensors import (
    alike,
    average,
    copy_back,
    in_memory,
    of_tensors,
    one_each,
    own_copy,
    reduction,
    same_size,
    share_memory,
)
from datapath.train.uneven import Uneven
from datapath.train.work import Waiter, Work, backend_error

_PATIENCE_S = 1.0  # at the end of a process whose groups were not destroyed
_groups: dict[Group, None] = {}
"""Those that are open, in the order in which all ranks made them."""


def register() -> None:
    """Make torch.distributed know backend `dp`."""
    if "dp" not in dist.Backend.backend_list:
        dist.Backend.register_backend("dp", Group, devices=["cpu"])
        atexit.register(_leave_all)
        os.register_at_fork(after_in_child=_groups.clear)


def _leave_all() -> None:
    """At the end of the process: without this, peers would have to find out that it is gone."""
    until_s = time.monotonic() + _PATIENCE_S
    for group in list(_groups):
        group.leave(until_s)


class Group(dist.ProcessGroup):
    """A process group; torch makes it with (store, rank, size, timeout)."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        named_algorithm()  # a wrong setting is told before ranks meet
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._name = self._about = ""
        self._left = False
        with contextlib.ExitStack() as opened:
            self._comm = meet(store, "dp", rank, size, [meeting_plan(size)], timeout)
            opened.callback(self._comm.close)
            opened.callback(self._comm.abort, "it could not make the group")
            self._plans = Plans(self._comm)
            self._plans.measure(timeout)
            opened.pop_all()
        self._waiter = Waiter(f"dp rank {rank}")
        self._uneven = Uneven(store, rank, size, timeout)
        self._directions: dict[tuple[int, int], Direction] = {}
        _groups[self] = None

    # ---- what torch asks of a group ---------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802
        return "dp"

    def getRank(self) -> int:  # noqa: N802
        return self._rank

    def getSize(self) -> int:  # noqa: N802
        return self._size

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._about

    def setGroupDesc(self, about: str) -> None:  # noqa: N802
        self._about = about

    def get_group_store(self) -> dist.Store:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Of the collectives that are started from now on."""
        self._timeout = timeout

    def shutdown(self) -> None:
        """Waits for what is under way, and for the others to shut down.

        What has timed out, or does so now, is ended on all ranks.
        """
        self.leave(time.monotonic() + self._timeout.total_seconds())

    def leave(self, until_s: float) -> None:
        """As shutdown(), but waits no longer than to until_s of time.monotonic()."""
        _groups.pop(self, None)
        self._left = True
        ended = self._waiter.close(self._comm.abort, until_s)
        for ends in sorted(self._directions):  # in the same order on all ranks
            self._directions[ends].close(until_s)
        self._directions.clear()
        self._uneven.close(until_s)
        if ended:
            self._comm.close(max(0.0, until_s - time.monotonic()))

    # ---- collectives ------------------------------------------------------------------

    @of_tensors
    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        [tensor] = tensors
        opts = opts or dist.AllreduceOptions()
        name, op = reduction(tensor, opts.reduceOp)
        data = in_memory(tensor)

        def end() -> list[Tensor]:
            average(data, opts.reduceOp, self._size)
            copy_back(tensor, data)
            return [tensor]

        return self._run("allreduce", data, end, opts, items=name, op=op)

    @of_tensors
    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        [tensor] = tensors
        opts = opts or dist.BroadcastOptions()
        data = in_memory(tensor)

        def end() -> list[Tensor]:
            copy_back(tensor, data)
            return [tensor]

        return self._run("broadcast", data, end, opts, root=opts.rootRank)

    @of_tensors
    def reduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        [tensor] = tensors
        opts = opts or dist.ReduceOptions()
        name, op = reduction(tensor, opts.reduceOp)
        is_root = opts.rootRank == self._rank
        # Partial sums go through the memory of the other ranks, whose tensors stay as they are.
        data = in_memory(tensor) if is_root else own_copy(tensor)

        def end() -> list[Tensor]:
            if is_root:
                average(data, opts.reduceOp, self._size)
                copy_back(tensor, data)
            return [tensor]

        return self._run("reduce", data, end, opts, items=name, op=op, root=opts.rootRank)

    @of_tensors
    def gather(
        self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        [source] = inputs
        opts = opts or dist.GatherOptions()
        parts = outputs[0] if opts.rootRank == self._rank else []
        if opts.rootRank == self._rank:
            alike(parts, self._size, source.numel(), "gather")
        data = torch.empty((self._size, source.numel()), dtype=source.dtype)
        data[self._rank].copy_(source.reshape(-1))

        def end() -> list[list[Tensor]]:
            for part, row in zip(parts, data, strict=False):
                part.copy_(row.view(part.shape))
            return [parts]

        return self._run("gather", data, end, opts, root=opts.rootRank)

    @of_tensors
    def scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[list[Tensor]], opts: Any = None
    ) -> Work:
        [output] = outputs
        opts = opts or dist.ScatterOptions()
        data = torch.empty((self._size, output.numel()), dtype=output.dtype)
        if opts.rootRank == self._rank:
            alike(inputs[0], self._size, output.numel(), "scatter")
            for part, row in zip(inputs[0], data, strict=True):
                row.copy_(part.reshape(-1))

        def end() -> list[Tensor]:
            output.copy_(data[self._rank].view(output.shape))
            return [output]

        return self._run("scatter", data, end, opts, root=opts.rootRank)

    @of_tensors
    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        same_size(output.numel(), source.numel() * self._size, "all_gather")
        data = in_memory(output)
        data.view(self._size, -1)[self._rank].copy_(source.reshape(-1))

        def end() -> Tensor:
            copy_back(output, data)
            return output

        return self._run("allgather", data, end, opts)

    @of_tensors
    def allgather(
        self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        [parts], [source] = outputs, inputs
        alike(parts, self._size, source.numel(), "all_gather")
        data = torch.empty((self._size, source.numel()), dtype=source.dtype)
        data[self._rank].copy_(source.reshape(-1))

        def end() -> list[list[Tensor]]:
            for part, row in zip(parts, data, strict=True):
                part.copy_(row.view(part.shape))
            return [parts]

        return self._run("allgather", data, end, opts)

    @of_tensors
    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        same_size(source.numel(), output.numel() * self._size, "reduce_scatter")
        opts = opts or dist.ReduceScatterOptions()
        name, op = reduction(source, opts.reduceOp)
        data = own_copy(source)

        def end() -> Tensor:
            own = data.view(self._size, -1)[self._rank]
            average(own, opts.reduceOp, self._size)
            output.copy_(own.view(output.shape))
            return output

        return self._run("reduce_scatter", data, end, opts, items=name, op=op)

    @of_tensors
    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[list[Tensor]], opts: Any = None
    ) -> Work:
        [output], [parts] = outputs, inputs
        alike(parts, self._size, output.numel(), "reduce_scatter")
        source = torch.cat([part.reshape(-1) for part in parts])
        return self.reduce_scatter_single(output, source, opts)

    @of_tensors
    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
    ) -> Work:
        wanted = self._items(output, output_splits)
        sent = self._items(source, input_splits)
        if output_splits or input_splits:

            def take(came: Tensor) -> Tensor:
                output.copy_(came.view(output.shape))
                return output

            return self._uneven_move(source, sent, wanted, take, opts)
        same_size(output.numel(), source.numel(), "all_to_all")
        data, given = in_memory(output), in_memory(source)
        if share_memory(data, given):
            given = own_copy(given)

        def end() -> Tensor:
            copy_back(output, data)
            return output

        return self._run("alltoall", data, end, opts, source=given)

    @of_tensors
    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        for tensors in (outputs, inputs):
            one_each(tensors, self._size, "all_to_all")
        sent = torch.cat([tensor.reshape(-1) for tensor in inputs])
        wanted = [tensor.numel() for tensor in outputs]

        def end(came: Tensor) -> Sequence[Tensor]:
            for tensor, part in zip(outputs, came.split(wanted), strict=True):
                tensor.copy_(part.view(tensor.shape))
            return outputs

        return self._uneven_move(sent, [tensor.numel() for tensor in inputs], wanted, end, opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        opts = opts or dist.AllreduceCoalescedOptions()
        return self._together([self.allreduce([tensor], opts) for tensor in tensors], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], sources: Sequence[Tensor], opts: Any = None
    ) -> Work:
        pairs = zip(outputs, sources, strict=True)
        return self._together([self.all_gather_single(*pair, opts) for pair in pairs], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], sources: Sequence[Tensor], opts: Any = None
    ) -> Work:
        pairs = zip(outputs, sources, strict=True)
        return self._together([self.reduce_scatter_single(*pair, opts) for pair in pairs], opts)

    def barrier(self, opts: Any = None) -> Work:
        data = torch.zeros(1, dtype=torch.int32)
        return self._run("allreduce", data, lambda: None, opts, items="int32")

    # The names by which torch's C++ side and older callers know some of them.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single

    # ---- between two ranks ------------------------------------------------------------

    @of_tensors
    def send(self, tensors: Sequence[Tensor], to: int, tag: int = 0) -> Work:
        [tensor] = tensors
        data = in_memory(tensor)
        return self._direction(self._rank, to).move(data, lambda: None, f"send to rank {to}", tag)

    @of_tensors
    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        [tensor] = tensors
        data = in_memory(tensor)
        what, direction = f"receive from rank {source}", self._direction(source, self._rank)
        return direction.move(data, lambda: copy_back(tensor, data), what, tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        raise NotImplementedError(
            "backend dp does not receive from any rank: name the source of recv() or irecv()"
        )

    # ---- inside -----------------------------------------------------------------------

    def _run(
        self,
        collective: str,
        data: Tensor,
        end: Callable[[], object],
        opts: Any,
        *,
        source: Tensor | None = None,
        items: str = "int8",
        op: str = "sum",
        root: int = 0,
    ) -> Work:
        """Start a collective on contiguous data; end() makes the work's value of it."""
        self._refuse_left()
        work = Work(f"rank {self._rank}: {collective} of {data.nbytes} bytes", self._limit(opts))
        if not data.nbytes:
            work.finish(end())
            return work
        item = data.element_size() if items != "int8" else 1
        try:
            running = self._plans.start(
                collective,
                data.nbytes,
                data.data_ptr(),
                0 if source is None else source.data_ptr(),
                item_bytes=item,
                items=items,
                op=op,
                root=root,
            )
        except RemoteError as error:
            raise backend_error(error) from None
        return self._waiter.add(work, lambda: _finish(running, end, data, source))

    def _together(self, works: Sequence[Work], opts: Any) -> Work:
        """Work that ends behind those that were just started."""
        work = Work(f"rank {self._rank}: {len(works)} collectives in one", self._limit(opts))
        return self._waiter.add(work, lambda: [part.value() for part in works])

    def _limit(self, opts: Any) -> timedelta:
        timeout = getattr(opts, "timeout", None)
        return timeout if timeout is not None and timeout > timedelta(0) else self._timeout

    def _items(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        """Items of each rank's part; splits: rows of it, unset: equal ones."""
        rows = tensor.shape[0] if tensor.dim() else 0
        counts = list(splits) or [rows // self._size] * self._size
        whole = tensor.dim() and sum(counts) == rows and min(counts) >= 0
        if len(counts) != self._size or not whole:
            shape = f"{rows} rows" if tensor.dim() else "no rows"
            raise ValueError(
                f"backend dp: all_to_all: a tensor of {shape} for {self._size} ranks cannot "
                f"be split into {counts}"
            )
        return [count * (tensor.numel() // rows if rows else 0) for count in counts]

    def _uneven_move(
        self,
        source: Tensor,
        sent: Sequence[int],
        wanted: Sequence[int],
        end: Callable[[Tensor], object],
        opts: Any,
    ) -> Work:
        self._refuse_left()
        return self._uneven.move(in_memory(source), sent, wanted, self._limit(opts), end)

    def _refuse_left(self) -> None:
        if self._left:
            raise backend_error(
                LocalError(
                    f"backend dp: rank {self._rank} has destroyed this process group",
                    hint="make another one by init_process_group() or new_group()",
                )
            )

    def _direction(self, source: int, to: int) -> Direction:
        self._refuse_left()
        if (source, to) not in self._directions:
            ends = (source, to)
            self._directions[ends] = Direction(self._store, *ends, self._rank, self._timeout)
        return self._directions[source, to]


def _finish(
    running: Running, end: Callable[[], object], data: Tensor, source: Tensor | None
) -> object:
    """data, source: kept alive until the collective has ended."""
    running.wait()
    return end()
