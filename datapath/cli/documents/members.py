# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The vocabulary of the documents: what a member means, and whether there are others."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

CLOSED = ConfigDict(extra="forbid")
OPEN = ConfigDict(extra="allow")
"""With further members: one for each axis of a sweep, or as the docstring says."""


def means(text: str) -> Any:
    """The annotation of a member that its name does not explain."""
    return Field(description=text)
