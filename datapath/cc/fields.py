# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Members of an algorithm: `param(...)` and `state(...)` of a class body, and what they become."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

from datapath.errors import LocalError

KINDS = {"float": "f8", "int": "i8", "bool": "i8"}
"""Annotation of a parameter or state member, and how the record stores it."""


@dataclass(frozen=True)
class Param:
    default: float
    unit: str
    doc: str
    min: float | None
    max: float | None
    above_rtt: bool


@dataclass(frozen=True)
class State:
    default: float
    length: int
    of: str


def param(
    default: float,
    *,
    unit: str = "",
    doc: str = "",
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
    above_rtt: bool = False,
) -> Any:
    """Declare a parameter: set once per run, read only in the hooks.

    Args:
        default: its value unless the experiment says otherwise.
        unit: as shown to users: "ns", "bytes", "bit/s", "packets", "".
        doc: one line of meaning.
        min: least legal value, itself included.
        max: greatest legal value, itself included.
        above_rtt: an RTT in ns that flows aim at, queues included: on a longer path they starve,
            and `dpctl run` says so.
    """
    return Param(default, unit, doc, min, max, above_rtt)


def state(default: float = 0.0, *, length: int = 0, of: str = "flow") -> Any:
    """Declare a member of a record that the hooks keep between calls.

    Args:
        default: its value in a new flow.
        length: 0: one number; above 0: an array of so many, read and set by index, and
            annotated list[float] or list[int].
        of: "flow", or at the receiver "port" or "sender".
    """
    return State(default, length, of)


@dataclass(frozen=True)
class Field:
    """A parameter or a member of the state, as it stands in the flow record.

    kind: "float", "int" or "bool"; bool is stored as an integer, 0 or 1.
    line: where the file declares it.
    length: elements of an array; 0: a single number.
    of: the record in which it stands; a parameter stands in that of the port, too.
    above_rtt: as for `param`.
    """

    name: str
    kind: str
    default: float
    line: int
    unit: str = ""
    doc: str = ""
    min: float | None = None
    max: float | None = None
    length: int = 0
    of: str = "flow"
    above_rtt: bool = False

    def image(self, value: float) -> bytes:
        """`value` as it stands in the record: eight bytes, for an array so many times that."""
        word = struct.pack("=d" if self.kind == "float" else "=q", value)
        return word * (self.length or 1)

    def range_text(self) -> str:
        """The legal range for people, "" when there is none."""
        if self.min is None and self.max is None:
            return ""
        low = "" if self.min is None else f"{self.min:g}"
        high = "" if self.max is None else f"{self.max:g}"
        return f"{low}..{high}"

    def checked(self, value: object, where: str) -> float:
        """Return `value` in the field's type; LocalError when it does not fit."""
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise LocalError(f"{where} must be true or false, not {value!r}")
            return int(value)
        unit = f" ({self.unit})" if self.unit else ""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise LocalError(f"{where} must be a number{unit}, not {value!r}")
        try:
            finite = math.isfinite(value)
        except OverflowError:
            finite = False
        if not finite:
            raise LocalError(f"{where} must be a finite number{unit}, not {value!r}")
        if self.kind == "int":
            if value != int(value) or not -(2**63) <= value < 2**63:
                raise LocalError(f"{where} must be a whole number of 64 bits{unit}, not {value!r}")
            value = int(value)
        low, high = self.min, self.max
        if (low is not None and value < low) or (high is not None and value > high):
            raise LocalError(f"{where} is {value!r}, outside {self.range_text()}{unit}")
        return value if self.kind == "int" else float(value)

    def given(self, value: float) -> float | bool:
        """What checked() has returned, as it takes it."""
        return bool(value) if self.kind == "bool" else value
