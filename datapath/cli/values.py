# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How help, man pages, the reference and errors name the values of options and arguments.

typer shows what Python makes of them: `--jobs <int range>  [x>=1]`, `{FILE}...`, `Input should be
greater than or equal to 1`.  A reader wants `--jobs N  [1 or more]`, `FILE...` and `it should be at
least 1`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperOption

_NAMES = {int: "N", float: "X", Path: "PATH"}
_WORDS = (
    (r"Value error, ", ""),
    (r"Input should be greater than or equal to ", "it should be at least "),
    (r"Input should be less than or equal to ", "it should be at most "),
    (r"Input should be a valid integer.*", "it should be a whole number"),
    (r"Input should be a valid number.*", "it should be a number"),
)
"""What pydantic says, as a pattern, and what a reader should be told."""


def in_words(message: str) -> str:
    """An error of the command line."""
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message


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

    def usage(argument: Any) -> str:
        name = str(argument.display_name_raw)
        if argument.nargs != 1 and "..." not in name:
            name += "..."
        return name if argument.required else f"[{name}]"

    def limits(parameter: Any) -> str | None:
        if parameter.max is not None:
            least = "up" if parameter.min is None else parameter.min
            return f"{least} to {parameter.max}"
        return f"{parameter.min} or more" if parameter.min else None

    TyperOption.display_type_rich = of_option  # type: ignore[assignment,method-assign]
    TyperArgument.display_type_rich = of_argument  # type: ignore[assignment,method-assign]
    TyperArgument._usage_display_name = usage  # type: ignore[assignment,method-assign]
    TyperOption._get_number_range_help_str = limits  # type: ignore[assignment,method-assign]
