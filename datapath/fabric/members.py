# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks that members which C takes for whole numbers are whole numbers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from datapath.errors import LocalError


class WholeNumbers:
    """Base of a dataclass: its members of type int are whole numbers, 0 or more, or LocalError."""

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            if one.type == "int":
                check_whole(self, one.name, getattr(self, one.name))


def check_whole(where: object, name: str, value: Any) -> None:
    """LocalError for a value that is no whole number, or negative."""
    if not hasattr(value, "__index__") or value < 0:
        whole = isinstance(value, float) and value >= 0 and value.is_integer()
        raise LocalError(
            f"{type(where).__name__}: {name} is {value!r}, and has to be a whole number, 0 or more",
            hint=f"{name}={int(value)}" if whole else "",
        )
