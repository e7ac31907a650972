# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Backend `dp` of torch.distributed: each collective is a plan that libdpcoll runs.

A group has one communicator, whose collectives run one after the other.  Each direction between two
ranks that send to each other by themselves has a communicator of its own, made at first use, so
that a receive never waits behind a send; so have all-to-alls with parts of several sizes.  Tags are
not told apart, and sizes are the same at both ends, as NCCL has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from datapath.collectives.communicator import Communicator
from datapath.collectives.make import TRANSFER_BYTES
from datapath.errors import RemoteError
from datapath.train.meeting import meet
from datapath.train.plans import Plans, Running, meeting_plan, pair_plan
from datapath.train.uneven import Uneven
from datapath.train.work import Waiter, Work

_NAMES = {
    torch.int8: "int8",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.uint8: "uint8",
    torch.bool: "uint8",
}
_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "sum",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}
# A bool is a byte of 0 or 1, and a sum of them is true where one is, as NCCL has it.
_OPS_OF_BOOL = {
    dist.ReduceOp.SUM: "max",
    dist.ReduceOp.PRODUCT: "min",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}


def register() -> None:
    """Make torch.distributed know backend `dp`."""
    if "dp" not in dist.Backend.backend_list:
        dist.Backend.register_backend("dp", Group, devices=["cpu"])


class Group(dist.ProcessGroup):
    """A process group; torch makes it with (store, rank, size, timeout)."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._comm = meet(store, "dp", rank, size, [meeting_plan(size)], timeout)
        self._plans = Plans(self._comm)
        self._plans.measure(timeout)
        self._waiter = Waiter(f"dp rank {rank}")
        self._uneven = Uneven(store, rank, size, timeout)
        self._directions: dict[tuple[int, int], _Direction] = {}

    # ---- what torch asks of a group ---------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802
        return "dp"

    def getRank(self) -> int:  # noqa: N802
        return self._rank

    def getSize(self) -> int:  # noqa: N802
        return self._size

    def shutdown(self) -> None:
        """Waits for what is under way, and for the others to shut down.

        What has timed out, or does so now, is ended on all ranks.
        """
        self._waiter.close(self._comm.abort, self._timeout)
        for ends in sorted(self._directions):  # in the same order on all ranks
            self._directions[ends].close()
        self._directions.clear()
        self._uneven.close()
        self._comm.close()

    # ---- collectives ------------------------------------------------------------------

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        [tensor] = tensors
        opts = opts or dist.AllreduceOptions()
        name, op = _reduction(tensor, opts.reduceOp)
        data = tensor.contiguous()

        def end() -> list[Tensor]:
            self._average(data, opts)
            _copy_back(tensor, data)
            return [tensor]

        return self._run("allreduce", data, end, opts, items=name, op=op)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        [tensor] = tensors
        opts = opts or dist.BroadcastOptions()
        data = tensor.contiguous()

        def end() -> list[Tensor]:
            _copy_back(tensor, data)
            return [tensor]

        return self._run("broadcast", data, end, opts, root=opts.rootRank)

    def reduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        [tensor] = tensors
        opts = opts or dist.ReduceOptions()
        name, op = _reduction(tensor, opts.reduceOp)
        is_root = opts.rootRank == self._rank
        # Partial sums go through the memory of the other ranks, whose tensors stay as they are.
        data = tensor.contiguous() if is_root else _own_copy(tensor)

        def end() -> list[Tensor]:
            if is_root:
                self._average(data, opts)
                _copy_back(tensor, data)
            return [tensor]

        return self._run("reduce", data, end, opts, items=name, op=op, root=opts.rootRank)

    def gather(
        self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        [source] = inputs
        opts = opts or dist.GatherOptions()
        parts = outputs[0] if opts.rootRank == self._rank else []
        for part in parts:
            _same_size(part.numel(), source.numel(), "gather")
        data = torch.empty((self._size, source.numel()), dtype=source.dtype)
        data[self._rank].copy_(source.reshape(-1))

        def end() -> list[list[Tensor]]:
            for part, row in zip(parts, data, strict=False):
                part.copy_(row.view(part.shape))
            return [parts]

        return self._run("gather", data, end, opts, root=opts.rootRank)

    def scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[list[Tensor]], opts: Any = None
    ) -> Work:
        [output] = outputs
        opts = opts or dist.ScatterOptions()
        data = torch.empty((self._size, output.numel()), dtype=output.dtype)
        if opts.rootRank == self._rank:
            for part, row in zip(inputs[0], data, strict=True):
                _same_size(part.numel(), output.numel(), "scatter")
                row.copy_(part.reshape(-1))

        def end() -> list[Tensor]:
            output.copy_(data[self._rank].view(output.shape))
            return [output]

        return self._run("scatter", data, end, opts, root=opts.rootRank)

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        _same_size(output.numel(), source.numel() * self._size, "all_gather")
        data = output.contiguous()
        data.view(self._size, -1)[self._rank].copy_(source.reshape(-1))

        def end() -> Tensor:
            _copy_back(output, data)
            return output

        return self._run("allgather", data, end, opts)

    def allgather(
        self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        [parts], [source] = outputs, inputs
        for part in parts:
            _same_size(part.numel(), source.numel(), "all_gather")
        data = torch.empty((self._size, source.numel()), dtype=source.dtype)
        data[self._rank].copy_(source.reshape(-1))

        def end() -> list[list[Tensor]]:
            for part, row in zip(parts, data, strict=True):
                part.copy_(row.view(part.shape))
            return [parts]

        return self._run("allgather", data, end, opts)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        _same_size(source.numel(), output.numel() * self._size, "reduce_scatter")
        opts = opts or dist.ReduceScatterOptions()
        name, op = _reduction(source, opts.reduceOp)
        data = _own_copy(source)

        def end() -> Tensor:
            own = data.view(self._size, -1)[self._rank]
            self._average(own, opts)
            output.copy_(own.view(output.shape))
            return output

        return self._run("reduce_scatter", data, end, opts, items=name, op=op)

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[list[Tensor]], opts: Any = None
    ) -> Work:
        [output], [parts] = outputs, inputs
        source = torch.cat([part.reshape(-1) for part in parts])
        return self.reduce_scatter_single(output, source, opts)

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
    ) -> Work:
        if output_splits or input_splits:
            wanted = self._items(output, output_splits)
            sent = self._items(source, input_splits)

            def take(came: Tensor) -> Tensor:
                output.copy_(came.view(output.shape))
                return output

            return self._uneven_move(source, sent, wanted, take, opts)
        _same_size(output.numel(), source.numel(), "all_to_all")
        data, sent = output.contiguous(), source.contiguous()

        def end() -> Tensor:
            _copy_back(output, data)
            return output

        return self._run("alltoall", data, end, opts, source=sent)

    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        sent = torch.cat([tensor.reshape(-1) for tensor in inputs])
        wanted = [tensor.numel() for tensor in outputs]

        def end(came: Tensor) -> Sequence[Tensor]:
            for tensor, part in zip(outputs, came.split(wanted), strict=True):
                tensor.copy_(part.view(tensor.shape))
            return outputs

        return self._uneven_move(sent, [tensor.numel() for tensor in inputs], wanted, end, opts)

    def barrier(self, opts: Any = None) -> Work:
        data = torch.zeros(1, dtype=torch.int32)
        return self._run("allreduce", data, lambda: None, opts, items="int32")

    # The names by which torch's C++ side and older callers know some of them.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single

    # ---- between two ranks ------------------------------------------------------------

    def send(self, tensors: Sequence[Tensor], to: int, tag: int = 0) -> Work:
        [tensor] = tensors
        data = tensor.contiguous()
        return self._direction(self._rank, to).move(data, lambda: None, f"send to rank {to}")

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        [tensor] = tensors
        data = tensor.contiguous()
        what = f"receive from rank {source}"
        return self._direction(source, self._rank).move(
            data, lambda: _copy_back(tensor, data), what
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
        _on_cpu(data)
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
            raise dist.DistBackendError(str(error)) from None
        return self._waiter.add(work, lambda: _finish(running, end, data, source))

    def _average(self, total: Tensor, opts: Any) -> None:
        """Divide a sum where an average was wanted; of integers, towards zero as NCCL does."""
        if _kind(opts.reduceOp) == dist.ReduceOp.AVG:
            rounding = None if total.is_floating_point() else "trunc"
            total.div_(self._size, rounding_mode=rounding)

    def _limit(self, opts: Any) -> timedelta:
        timeout = getattr(opts, "timeout", None)
        return timeout if timeout is not None and timeout > timedelta(0) else self._timeout

    def _items(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        """Items of each rank's part; splits: rows of it, unset: equal ones."""
        rows = tensor.shape[0] if tensor.dim() else 0
        counts = list(splits) or [rows // self._size] * self._size
        if len(counts) != self._size or sum(counts) != rows or min(counts) < 0:
            raise ValueError(
                f"backend dp: all_to_all: a tensor of {rows} rows for {self._size} ranks cannot "
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
        _on_cpu(source)
        return self._uneven.move(source.contiguous(), sent, wanted, self._limit(opts), end)

    def _direction(self, source: int, to: int) -> _Direction:
        if (source, to) not in self._directions:
            self._directions[source, to] = _Direction(self, source, to)
        return self._directions[source, to]


class _Direction:
    """Messages from one rank to another, in order."""

    def __init__(self, group: Group, source: int, to: int) -> None:
        self._group, self._source, self._to = group, source, to
        self._comm: Communicator | None = None
        self._plans: Plans | None = None
        self._waiter = Waiter(f"dp rank {source} to {to}")

    def move(self, data: Tensor, end: Callable[[], object], what: str) -> Work:
        _on_cpu(data)
        work = Work(f"rank {self._group._rank}: {what}, {data.nbytes} bytes", self._group._timeout)

        def job() -> object:
            if data.nbytes:
                self._opened().start_pair(data.nbytes, data.data_ptr()).wait()
            return end()

        return self._waiter.add(work, job)

    def close(self) -> None:
        self._waiter.close(self._abort, self._group._timeout)
        if self._comm is not None:
            self._comm.close()

    def _abort(self, why: str) -> None:
        if self._comm is not None:
            self._comm.abort(why)

    def _opened(self) -> Plans:
        if self._plans is None:
            group = self._group
            key, own = f"dp {self._source} to {self._to}", int(group._rank == self._to)
            plan = pair_plan(TRANSFER_BYTES)
            self._comm = meet(group._store, key, own, 2, [plan], group._timeout)
            self._plans = Plans(self._comm)
        return self._plans


def _finish(
    running: Running, end: Callable[[], object], data: Tensor, source: Tensor | None
) -> object:
    """data, source: kept alive until the collective has ended."""
    running.wait()
    return end()


def _kind(op: Any) -> Any:
    """torch hands over a ReduceOp or its type."""
    return op.op if hasattr(op, "op") else op


def _reduction(tensor: Tensor, op: Any) -> tuple[str, str]:
    """Names of type and operation for libdpcoll."""
    kind = _kind(op)
    ops = _OPS_OF_BOOL if tensor.dtype == torch.bool else _OPS
    if tensor.dtype not in _NAMES or kind not in ops:
        types = ", ".join(str(dtype).removeprefix("torch.") for dtype in _NAMES)
        raise TypeError(
            f"backend dp does not reduce {tensor.dtype} by {kind}; it has {types}, and sum, "
            "average (not of bool), product, min and max"
        )
    return _NAMES[tensor.dtype], ops[kind]


def _on_cpu(tensor: Tensor) -> None:
    if tensor.device.type != "cpu" or tensor.is_sparse:
        raise TypeError(f"backend dp moves dense tensors of the CPU, not of {tensor.device}")


def _own_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _same_size(one: int, other: int, what: str) -> None:
    if one != other:
        raise ValueError(f"backend dp: {what}: a tensor has {one} items where {other} are needed")


def _copy_back(tensor: Tensor, data: Tensor) -> None:
    """To where the caller wants it, if data is a contiguous copy."""
    if data.data_ptr() != tensor.data_ptr():
        tensor.copy_(data)
