# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Text as Markdown: nothing in it is taken for markup that was not meant so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence


def text(plain: object) -> str:
    """A sentence; angle brackets and stars stand for themselves, what is in backquotes is code."""
    parts = re.split(r"(`[^`]+`)", " ".join(str(plain).split()))
    return "".join(part if part.startswith("`") else _bare(part) for part in parts)


def _bare(plain: str) -> str:
    # Angle brackets by their names: the site takes a backslash before one as it is.
    escaped = re.sub(r"([\\*_`\[\]])", r"\\\1", plain.replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def code(plain: object) -> str:
    return f"`{plain}`"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Cells are Markdown; nothing when there are no rows."""
    if not rows:
        return
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def doc(docstring: str) -> Iterator[str]:
    """A docstring: paragraphs, and indented or \\b-marked lines as they are."""
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        if paragraph.startswith("\b\n"):
            yield from ("```console", paragraph.removeprefix("\b\n"), "```")
        elif all(line.startswith("    ") for line in paragraph.splitlines()):
            yield from ("```text", paragraph, "```")
        else:
            yield text(paragraph)
        yield ""
