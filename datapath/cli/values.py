# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How help, man pages and the reference name the values of options and arguments.

typer shows Python's types: `--jobs <int range>`, `FILE <path>`, `DIR... <list[str]>`.  A reader
wants `--jobs N`, `FILE` and `DIR...`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperOption

_NAMES = {int: "N", float: "X", Path: "PATH"}


def name_values() -> None:
    """Have typer do so, in this process."""

    def of_option(option: Any, ctx: Any) -> str:
        if option.metavar is not None:
            return str(option.metavar)
        about = option.type_descriptor
        if about.is_choice:
            return str(option.display_type(ctx)).strip("<>")
        return _NAMES.get(about.annotation, str(option.name).strip("_").upper())

    def of_argument(argument: Any, ctx: Any) -> None:
        """None: it is known by its own name."""

    TyperOption.display_type_rich = of_option  # type: ignore[assignment,method-assign]
    TyperArgument.display_type_rich = of_argument  # type: ignore[assignment,method-assign]
