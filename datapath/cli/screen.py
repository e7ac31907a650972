# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The terminal's other screen, for what is shown again and again; and whether one obeys at all."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable
from typing import TextIO

from datapath.terminal import raw


def obeys(stream: TextIO) -> bool:
    """Whether this is a terminal that can move its cursor: not that of an editor's shell, say."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


class Screen:
    """As a context manager: the other screen, without a cursor, if it is wanted and there is one.

    What is no terminal gets one text below the other.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._there = wanted and obeys(sys.stdout)

    def __enter__(self) -> Screen:
        if self._there:
            self._order("\x1b[?1049h\x1b[?25l")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._there:
            self._order("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()

    def put(self, text: str) -> None:
        """Show a text in place of the one before; as many lines as there is room for."""
        if self._there:
            height = shutil.get_terminal_size((80, 24)).lines
            self._order("\x1b[H\x1b[J")
            sys.stdout.write("\n".join(text.splitlines()[: height - 1]))
        else:
            sys.stdout.write(text)
        sys.stdout.flush()

    @staticmethod
    def _order(sequence: str) -> None:
        """To the terminal, below what makes all text printable."""
        raw(sys.stdout).write(sequence)

    def show(self, printing: Callable[[], None]) -> None:
        """Show what a function prints."""
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            printing()
        self.put(text.getvalue())
