# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which tensors the backend moves and reduces, and how it does."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

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


def on_cpu(tensor: Tensor) -> None:
    if tensor.device.type != "cpu" or tensor.is_sparse:
        raise TypeError(f"backend dp moves dense tensors of the CPU, not of {tensor.device}")


def own_copy(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def same_size(one: int, other: int, what: str) -> None:
    if one != other:
        raise ValueError(f"backend dp: {what}: a tensor has {one} items where {other} are needed")


def copy_back(tensor: Tensor, data: Tensor) -> None:
    """To where the caller wants it, if data is a contiguous copy."""
    if data.data_ptr() != tensor.data_ptr():
        tensor.copy_(data)


def _kind(op: Any) -> Any:
    """torch hands over a ReduceOp or its type."""
    return op.op if hasattr(op, "op") else op
