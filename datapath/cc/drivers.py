# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One flow of an algorithm, run as Python or as compiled code.

Both classes take the same numpy records, so a test drives them side by side
and a researcher steps through an algorithm with a debugger.
"""

from __future__ import annotations

import ctypes
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from datapath.cc import records
from datapath.cc.algorithm import Algorithm
from datapath.cc.compiler import CompiledAlgorithm
from datapath.cc.loading import load
from datapath.errors import LocalError


def new_ack(**members: float) -> Record:
    """A zeroed ack record; `members` are set in it."""
    return _record(records.ack_dtype(), members)


def new_loss(**members: float) -> Record:
    """A zeroed loss record; `members` are set in it."""
    return _record(records.loss_dtype(), members)


def new_data(**members: float) -> Record:
    """A zeroed data record; `members` are set in it."""
    return _record(records.data_dtype(), members)


class Driver(typing.Protocol):
    """One flow: the record (members are attributes), and the hooks of the sender.

    The caller plays the transport: it sets the inputs in `flow`, then calls.
    """

    algorithm: Algorithm
    flow: Record

    def on_init(self) -> None: ...
    def on_ack(self, ack: Record) -> None: ...
    def on_loss(self, loss: Record) -> None: ...
    def on_timeout(self, now_ns: float) -> None: ...
    def on_cnp(self, now_ns: float) -> None: ...
    def on_rtt(self, ack: Record) -> None: ...
    def on_wake(self, now_ns: float) -> None: ...


class PythonAlgorithm:
    """Runs the functions as they stand in the file, under the interpreter."""

    def __init__(self, name_or_path: str, params: Mapping[str, Any] | None = None) -> None:
        self.algorithm = load(name_or_path)
        values = self.algorithm.resolve(params or {})
        self.flow = record_view(
            bytearray(self.algorithm.image(values)), self.algorithm.flow_dtype()
        )

    def on_init(self) -> None:
        if "on_init" in self.algorithm.hooks:
            self._call("on_init")
        else:
            self.flow.cwnd_bytes = min(10 * self.flow.mss_bytes, self.flow.max_cwnd_bytes)

    def on_ack(self, ack: Record) -> None:
        self._call("on_ack", ack)

    def on_loss(self, loss: Record) -> None:
        self._call("on_loss", loss)

    def on_timeout(self, now_ns: float) -> None:
        self._call("on_timeout", np.float64(now_ns))

    def on_cnp(self, now_ns: float) -> None:
        self._call("on_cnp", np.float64(now_ns))

    def on_rtt(self, ack: Record) -> None:
        self._call("on_rtt", ack)

    def on_wake(self, now_ns: float) -> None:
        self._call("on_wake", np.float64(now_ns))

    def _call(self, hook: str, *arguments: Any) -> None:
        if hook in self.algorithm.hooks:
            with np.errstate(all="ignore"):  # numpy's numbers as in the compiled code: x / 0 is inf
                self.algorithm.hooks[hook](self.flow, *arguments)


class _Struct(ctypes.Structure):
    """struct dp_cc_algo."""

    _fields_ = (
        ("abi", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("by_path", ctypes.c_uint64),
        ("flow_bytes", ctypes.c_uint64),
        ("initial", ctypes.c_void_p),
        ("port_bytes", ctypes.c_uint64),
        ("port_initial", ctypes.c_void_p),
        ("sender_bytes", ctypes.c_uint64),
        ("sender_initial", ctypes.c_void_p),
        ("on_init", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("on_ack", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)),
        ("on_loss", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)),
        ("on_timeout", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_double)),
        ("on_cnp", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_double)),
        ("on_rtt", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)),
        ("on_wake", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_double)),
        ("on_request", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)),
        ("on_data", ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)),
        ("on_timer", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)),
        ("on_round", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)),
        ("params", ctypes.c_char_p),
    )


class Descriptor:
    """The struct of a compiled algorithm; its members are attributes."""

    def __init__(self, compiled: CompiledAlgorithm) -> None:
        self._library = ctypes.CDLL(str(compiled.path))
        self._struct = _Struct.in_dll(self._library, "dp_cc_algo")
        found, want = self._struct.flow_bytes, compiled.algorithm.flow_bytes
        if self._struct.abi != records.CC_ABI or found != want:
            raise LocalError(
                f"{compiled.path} is not {compiled.name} as it is now",
                hint="compile it again",
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._struct, name)

    def image(self, initial: str, size: str) -> bytearray:
        """A new record, given the names of the members that tell where it is and its bytes."""
        return bytearray(ctypes.string_at(getattr(self, initial), getattr(self, size)))


class NativeAlgorithm:
    """Opens a compiled algorithm and calls it as the engine does."""

    def __init__(self, compiled: CompiledAlgorithm) -> None:
        self.algorithm = compiled.algorithm
        self._descriptor = Descriptor(compiled)
        image = self._descriptor.image("initial", "flow_bytes")
        self.flow = record_view(image, self.algorithm.flow_dtype())

    def on_init(self) -> None:
        if self._descriptor.on_init:
            self._descriptor.on_init(self.flow._address)

    def on_ack(self, ack: Record) -> None:
        self._descriptor.on_ack(self.flow._address, ack._address)

    def on_loss(self, loss: Record) -> None:
        self._descriptor.on_loss(self.flow._address, loss._address)

    def on_timeout(self, now_ns: float) -> None:
        self._descriptor.on_timeout(self.flow._address, now_ns)

    def on_cnp(self, now_ns: float) -> None:
        if self._descriptor.on_cnp:
            self._descriptor.on_cnp(self.flow._address, now_ns)

    def on_rtt(self, ack: Record) -> None:
        if self._descriptor.on_rtt:
            self._descriptor.on_rtt(self.flow._address, ack._address)

    def on_wake(self, now_ns: float) -> None:
        if self._descriptor.on_wake:
            self._descriptor.on_wake(self.flow._address, now_ns)


class Record:
    """A record in memory whose members are attributes, and nothing else is.

    (numpy's own record class hides members called `sum` or `size`.)
    """

    __slots__ = ("_place", "_void")

    def __init__(self, void: Any) -> None:
        object.__setattr__(self, "_void", void)
        object.__setattr__(self, "_place", None)

    @property
    def _address(self) -> int:
        """Where it lies; asked for once, since numpy describes the whole record to tell it."""
        if self._place is None:
            place = self._void.__array_interface__["data"][0]
            object.__setattr__(self, "_place", place)
        return int(self._place)

    def __getattr__(self, name: str) -> Any:
        self._check(name)
        value = self._void[name]
        if isinstance(value, np.ndarray) and value.dtype.names:
            return [Record(item) for item in value]
        return value

    def __setattr__(self, name: str, value: float) -> None:
        self._check(name)
        if value is None:  # of which numpy makes NaN
            raise TypeError(f"{name} is set to None")
        self._void[name] = value

    def __repr__(self) -> str:
        names = self._void.dtype.names
        return "Record(" + ", ".join(f"{name}={self._void[name]}" for name in names) + ")"

    def _check(self, name: str) -> None:
        if name not in self._void.dtype.fields:
            raise AttributeError(f"the record has no member {name}")


def address_of(record: Record) -> int:
    """Where a record lies in memory."""
    return record._address


def same_bytes(one: Record, other: Record) -> bool:
    """Whether all members of two records are equal, to the last bit."""
    return bool(one._void.tobytes() == other._void.tobytes())


def _record(dtype: np.dtype[Any], members: Mapping[str, float]) -> Record:
    record = record_view(bytearray(dtype.itemsize), dtype)
    for name, value in members.items():
        setattr(record, name, value)
    return record


def record_view(image: bytearray, dtype: np.dtype[Any]) -> Record:
    """The bytes as one record."""
    return Record(np.frombuffer(image, dtype=dtype)[0])
