# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names and numbers in sentences; the name that was meant in place of an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_CUTOFF = 0.6
"""How alike two names have to be, 0 to 1, for one to be suggested for the other."""


def counted(count: int, noun: str) -> str:
    """`1 point`, `2 points`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def in_a_line(text: str) -> str:
    """Several lines as one: `title: first; second`."""
    line = ""
    for part in filter(None, map(str.strip, text.splitlines())):
        line += part if not line else f" {part}" if line.endswith(":") else f"; {part}"
    return line


def close_match(wanted: object, known: Iterable[object]) -> str:
    """The known name that was probably meant, or "".  Case, `-` and `_` do not matter."""
    folded = {_folded(name): str(name) for name in known}
    found = difflib.get_close_matches(_folded(wanted), list(folded), n=1, cutoff=_CUTOFF)
    return folded[found[0]] if found else ""


def did_you_mean(wanted: object, known: Sequence[object], listed: str = "") -> str:
    """A hint: `did you mean x?`; without a close match `<listed>: x, y, z`, or ""."""
    match = close_match(wanted, known)
    if match:
        return f"did you mean {match}?"
    return f"{listed}: {', '.join(map(str, known))}" if listed and known else ""


def or_rather(wanted: object, known: Sequence[object], listed: str) -> str:
    """The same hint as the end of a sentence: `; did you mean x?`, or ""."""
    hint = did_you_mean(wanted, known, listed)
    return f"; {hint}" if hint else ""


def _folded(name: object) -> str:
    return str(name).lower().replace("-", "_")
