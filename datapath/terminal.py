# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Text from outside, made fit for a terminal.

Labels of a file, names of folders and last words of a program may hold control characters, and
a terminal obeys them: it moves the cursor, hides text, renames the window.  So no such character
leaves dpctl.  `guarded` sees to that for everything that is printed; only rich, which drives a
terminal itself, writes to the stream below it (`raw`), and is given `printable` text.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

LAYOUT = "\n\t"
"""Characters of layout, which may stand in whole lines."""

_BLANKS = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"


def printable(text: object, *, keep: str = "") -> str:
    """Text with a backslash escape for each character that is not printed: `\\x1b` for ESC.

    These are control characters, line ends, marks that turn the direction of writing, and
    halves of characters (of file names that are not UTF-8); those in `keep` stay.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or c in _BLANKS else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if character in "\n\t\r":
        return repr(character)[1:-1]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Guarded:
    """A text stream that takes printable text only; all but `write` is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click tries bytes, to see which kind of stream it has
            raise TypeError(f"a text stream takes str, not {type(text).__name__}")
        self.stream.write(_encodable(printable(text, keep=LAYOUT), self.stream))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _encodable(text: str, stream: TextIO) -> str:
    """Escapes for characters that the stream's encoding does not have."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Let nothing but printable text through to stdout and stderr.

    What the caller has closed (`>&-`) leads nowhere: else the next file that is opened would take
    its number, and get what programs write to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as stack:
        streams = [
            stream or stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            for stream in before
        ]
        sys.stdout, sys.stderr = (cast(TextIO, _Guarded(raw(stream))) for stream in streams)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def raw(stream: TextIO) -> TextIO:
    """The stream below a guarded one, for rich."""
    return stream.stream if isinstance(stream, _Guarded) else stream
