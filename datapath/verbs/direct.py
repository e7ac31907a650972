# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Direct verbs (verbs/dpdv.h) for pyverbs programs: the algorithm of a QP, while it runs."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from datapath.errors import LocalError


class QP(Protocol):
    """A QP of pyverbs."""

    @property
    def qp_num(self) -> int: ...


@dataclass(frozen=True)
class QpAlgorithm:
    """The algorithm of a QP.

    name: "constant window" without an algorithm.  params: as compiled.
    object: path of the shared object, "" without.  changes: since the QP was made.
    """

    name: str
    params: Mapping[str, float]
    object: str
    changes: int


class _Cc(ctypes.Structure):
    """struct dpdv_cc."""

    _fields_ = (
        ("name", ctypes.c_char * 64),
        ("params", ctypes.c_char * 1024),
        ("object", ctypes.c_char * 1024),
        ("changes", ctypes.c_uint64),
    )


def set_cc(
    qp: QP | int,
    algorithm: str | None,
    params: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
) -> QpAlgorithm:
    """Set the congestion-control algorithm of one QP of this process, while it runs.

    qp: of pyverbs, or its number.  algorithm: a registered name or
    ./file.py:Class, compiled with params; None: a constant window of 1 MiB.
    device: the QP's, needed when the number is that of QPs on several devices.
    The algorithm begins anew; packets in flight stay in flight.  Returns what the QP
    runs now.  Raises LocalError, and nothing is changed, when there is no such
    QP of ours or the algorithm cannot be compiled or loaded.
    """
    front, pointer = _find(qp, device)
    path = None
    if algorithm is not None:
        from datapath.cc import compile_algorithm

        path = os.fsencode(compile_algorithm(algorithm, params).path)
    elif params:
        raise LocalError("a constant window has no parameters", hint="name an algorithm")
    _check(front.dpdv_set_cc(pointer, path), f"set algorithm {algorithm}")
    return cc_of(qp, device=device)


def cc_of(qp: QP | int, *, device: str | None = None) -> QpAlgorithm:
    """The algorithm of a QP of this process; arguments and errors as of `set_cc`."""
    front, pointer = _find(qp, device)
    cc = _Cc()
    _check(front.dpdv_query_cc(pointer, ctypes.byref(cc), ctypes.sizeof(cc)), "ask")
    return QpAlgorithm(
        cc.name.decode(), read_params(cc.params.decode()), os.fsdecode(cc.object), cc.changes
    )


def read_params(text: str) -> dict[str, float]:
    """Parameters as a compiled algorithm tells them, "name=value name=value"."""
    values: dict[str, float] = {}
    for pair in text.split():
        name, _, value = pair.partition("=")
        values[name] = int(value) if value.lstrip("-").isdecimal() else float(value)
    return values


def _find(qp: QP | int, device: str | None) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """The front in this process, and the `struct ibv_qp *`."""
    number = qp if isinstance(qp, int) else qp.qp_num
    front = ctypes.CDLL(None, use_errno=True)
    try:
        find = front.dpdv_find_qp
    except AttributeError:
        raise LocalError(
            "no device of ours in this process",
            hint="set DATAPATH_DEVICES and import datapath.verbs before pyverbs, "
            "or run under dpctl exec",
        ) from None
    find.restype = ctypes.c_void_p
    pointer = find(None if device is None else device.encode(), ctypes.c_uint32(number))
    if pointer:
        return front, ctypes.c_void_p(pointer)
    if ctypes.get_errno() == errno.ENOTUNIQ:
        raise LocalError(f"several devices have a QP {number}", hint="say which: device='dp0'")
    raise LocalError(
        f"{device or 'no device of ours'} has {'no' if device else 'an'} RC QP {number}",
        hint="give an RC QP of one of our devices, before it is closed: only these have algorithms",
    )


def _check(code: int, what: str) -> None:
    if code:
        raise LocalError(f"cannot {what}: {os.strerror(code)}")
