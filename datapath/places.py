# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where something is in a file, and errors of models that are about one place of several.

A check of a whole model knows better than pydantic which of its parts is wrong.
"""

from __future__ import annotations

from pydantic_core import PydanticCustomError

Path = tuple[str | int, ...]
"""Where something is in a document: keys and list indices from the top."""

MISPLACED = "wrong_at"
"""Kind of the errors: `place` and `first` in their context are paths from the model on."""


def wrong_at(place: Path, text: str, *, first: Path = ()) -> PydanticCustomError:
    """An error for a validator to raise: what is wrong there, and with which earlier place."""
    return PydanticCustomError(MISPLACED, "{text}", {"text": text, "place": place, "first": first})
