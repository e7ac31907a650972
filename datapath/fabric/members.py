# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks that members which C takes for numbers are numbers, and makes Python's own of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from numbers import Real
from operator import index
from typing import Any, ClassVar

from datapath.errors import LocalError

U8_MAX, U32_MAX, U64_MAX = 2**8 - 1, 2**32 - 1, 2**64 - 1

_OWN: Mapping[str, Callable[[Any], Any]] = {
    "int": index,
    "float": float,
    "bool": bool,
    "tuple[int, ...]": lambda values: tuple(map(index, values)),
    "tuple[float, ...]": lambda values: tuple(map(float, values)),
}
"""By the type of a member."""


class WholeNumbers:
    """Base of a dataclass whose members are numbers, those of numpy too, or LocalError.

    Members of type int are whole numbers, 0 or more, and no larger than at_most says: as C has
    them, 64 bits where it says nothing.
    """

    at_most: ClassVar[Mapping[str, int]] = {}

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.type == "int":
                check_whole(self, one.name, value, self.at_most.get(one.name, U64_MAX))
            elif one.type == "float" and not isinstance(value, Real):
                raise LocalError(
                    f"{type(self).__name__}: {one.name} is {value!r}, and has to be a number"
                )
            if make := _OWN.get(str(one.type)):
                object.__setattr__(self, one.name, make(value))


def check_whole(where: object, name: str, value: Any, at_most: int = U64_MAX) -> None:
    """LocalError for a value that is no whole number, or negative, or too large."""
    if not hasattr(value, "__index__") or value < 0:
        whole = isinstance(value, float) and value >= 0 and value.is_integer()
        raise LocalError(
            f"{type(where).__name__}: {name} is {value!r}, and has to be a whole number, 0 or more",
            hint=f"{name}={int(value)}" if whole else "",
        )
    if value > at_most:
        raise LocalError(
            f"{type(where).__name__}: {name} is {value!r}, and can be at most {at_most}"
        )
