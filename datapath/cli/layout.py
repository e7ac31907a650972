# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How help is laid out: as wide as the terminal, up to a width that can be read.

typer's own layout stops at 80 columns, and ends lines within words: `--dry-` and `run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer

from datapath.cli.output import fitted

WIDEST = 140
"""Columns; longer lines are hard to follow."""

_FIRST_MOST = (30, 42)
"""Columns for the names of options, on narrow and on wide terminals."""

_WIDE = 110
_GAP = 2
_AS_IT_STANDS = "\b"
"""The first line of a paragraph that is printed as it is."""

_Formatter: Any = typer.Context.formatter_class


def lay_out_help() -> None:
    """Have typer do so, in this process."""
    # The class from which typer derives its own; which one depends on the version of typer.
    typer.Context.__mro__[1].formatter_class = _Layout  # type: ignore[attr-defined]


class _Layout(_Formatter):  # type: ignore[misc]
    """Ends lines between words alone."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        head = f"{prefix or 'Usage: '}{prog} "
        lines = fitted(args, self.width, first=head, rest=" " * len(head))
        self._write_lines(lines or [head.rstrip()])

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        for number, paragraph in enumerate(_paragraphs(text)):
            if number:
                self.write("\n")
            head, *rest = paragraph
            if head == _AS_IT_STANDS:
                self._write_lines([indent + line for line in rest])
            else:
                words = " ".join(paragraph)
                self._write_lines(fitted(words, self.width, first=indent, rest=indent))

    def write_dl(self, rows: Sequence[tuple[str, str]], **_: int) -> None:
        most = _FIRST_MOST[self.width >= _WIDE]
        indent = " " * self.current_indent
        column = min(most, max((len(first) for first, _ in rows), default=0)) + _GAP
        blank = indent + " " * column
        for first, second in rows:
            head = indent + first
            if len(first) > column - _GAP:
                self._write_lines([head])
                head = ""
            text = " ".join(second.split())
            lines = fitted(text, self.width, first=head.ljust(len(blank)), rest=blank)
            self._write_lines(lines or [head])

    def _write_lines(self, lines: Sequence[str]) -> None:
        self.write("".join(f"{line.rstrip()}\n" for line in lines))


def _paragraphs(text: str) -> Iterator[list[str]]:
    """The lines of each; those between are empty."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.strip(" "):
            lines.append(line)
        elif lines:
            yield lines
            lines = []
