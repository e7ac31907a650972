# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which tensors the backend moves and reduces, and how it does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from datapath.train.work import Work, flat

_Method = TypeVar("_Method", bound=Callable[..., Work])

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


def reduction(tensor: Tensor, op: Any) -> tuple[str, str]:
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


def average(total: Tensor, op: Any, ranks: int) -> None:
    """Divide a sum where an average was wanted; of integers, towards zero as NCCL does."""
    if _kind(op) == dist.ReduceOp.AVG:
        rounding = None if total.is_floating_point() else "trunc"
        total.div_(ranks, rounding_mode=rounding)


def of_tensors(method: _Method) -> _Method:
    """For methods of the group: they refuse tensors that are elsewhere, or not dense.

    As gloo: tensors may be parameters, or of inference mode, and autograd sees no copies.
    """

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Work:
        for tensor in flat([args, list(kwargs.values())]):
            _on_cpu(tensor)
        with torch.inference_mode():
            return method(*args, **kwargs)

    return cast(_Method, checked)


def _on_cpu(tensor: Tensor) -> None:
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        what = tensor.device if tensor.device.type != "cpu" else tensor.layout
        raise TypeError(f"backend dp moves dense tensors of the CPU, and this one is {what}")


def in_memory(tensor: Tensor) -> Tensor:
    """Its values one after the other in memory: the tensor itself, or else a copy."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def share_memory(one: Tensor, other: Tensor) -> bool:
    """Of two contiguous ones."""
    at, there = one.data_ptr(), other.data_ptr()
    return at < there + other.nbytes and there < at + one.nbytes


def own_copy(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def same_size(one: int, other: int, what: str) -> None:
    if one != other:
        raise ValueError(f"backend dp: {what}: a tensor has {one} items where {other} are needed")


def one_each(tensors: Sequence[Tensor], ranks: int, what: str) -> None:
    """For each rank a tensor."""
    if len(tensors) != ranks:
        raise ValueError(f"backend dp: {what}: {len(tensors)} tensors in a list, for {ranks} ranks")


def alike(tensors: Sequence[Tensor], ranks: int, items: int, what: str) -> None:
    """For each rank a tensor of so many items."""
    one_each(tensors, ranks, what)
    for tensor in tensors:
        same_size(tensor.numel(), items, what)


def copy_back(tensor: Tensor, data: Tensor) -> None:
    """To where the caller wants it, if data is a contiguous copy."""
    if data.data_ptr() != tensor.data_ptr():
        tensor.copy_(data)


def _kind(op: Any) -> Any:
    """torch hands over a ReduceOp or its type."""
    return op.op if hasattr(op, "op") else op
