# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Turns C headers into the text that cffi reads: declarations and numbers.

    cdef.py --output FILE --depfile FILE --include DIR HEADER... --compiler CC...

The compiler preprocesses the headers.  What came from a system header is
left out (cffi knows stdint, size_t and bool by itself), and so are the bodies of
static inline functions, which no library exports.  Macros that are whole
numbers become `#define NAME value`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

LINE_MARKER = re.compile(r'^# \d+ "(?P<file>[^"]*)"[ \d]*$')
MACRO = re.compile(r"^#define (DP_\w+)[ \t]+\S", re.MULTILINE)
NUMBER = re.compile(r"^\(?(-?(?:0[xX][0-9a-fA-F]+|\d+))[uUlL]*\)?$")


def own_lines(preprocessed: str, include: Path) -> Iterator[str]:
    """Lines that stem from a header below include, less pragmas."""
    own = False
    for line in preprocessed.splitlines():
        marker = LINE_MARKER.match(line)
        if marker:
            own = Path(marker["file"]).is_relative_to(include)
        elif own and line.strip() and not line.startswith("#"):
            yield line


def closing(text: str, start: int, opening: str, end: str) -> int:
    """Index just behind the bracket that closes the one at or after start."""
    depth = 0
    for index in range(text.index(opening, start), len(text)):
        if text[index] == opening:
            depth += 1
        elif text[index] == end:
            depth -= 1
            if depth == 0:
                return index + 1
    raise ValueError(f"no closing {end} after: {text[start : start + 60]!r}")


def without(text: str, pattern: str, opening: str, end: str, tail: str = "") -> str:
    """Text less each piece from a match of pattern to its closing bracket."""
    while match := re.search(pattern, text):
        stop = closing(text, match.start(), opening, end)
        if tail and text[stop : stop + len(tail)] == tail:
            stop += len(tail)
        text = text[: match.start()] + text[stop:]
    return text


def declarations(preprocessed: str, include: Path) -> str:
    text = "\n".join(own_lines(preprocessed, include)) + "\n"
    text = without(text, r"\b__attribute__\s*(?=\()", "(", ")")
    text = without(text, r"\b_Static_assert\s*(?=\()", "(", ")", tail=";")
    text = without(text, r"\bstatic\s+(?:__)?inline\b", "{", "}")
    text = text.replace("__extension__", "")
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


def numbers(macros: str, values: str) -> str:
    """`#define` lines of the macros whose expansion is one whole number.

    macros: the compiler's list of definitions; values: lines `NAME = expansion`.
    """
    known = set(MACRO.findall(macros))
    lines = []
    for line in values.splitlines():
        name, _, value = line.partition(" = ")
        number = NUMBER.match(value.strip())
        if name in known and number:
            lines.append(f"#define {name} {number[1]}")
    return "\n".join(sorted(lines))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--depfile", type=Path, required=True)
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("headers", type=Path, nargs="+")
    parser.add_argument("--compiler", nargs=argparse.REMAINDER, required=True)
    args = parser.parse_args()

    source = "".join(f'#include "{header}"\n' for header in map(Path.resolve, args.headers))
    include = args.include.resolve()
    base = [*args.compiler, "-std=gnu11", "-E", "-x", "c", f"-I{include}"]

    def preprocess(text: str, *flags: str) -> str:
        command = [*base, *flags, "-"]
        return subprocess.run(
            command, input=text, text=True, check=True, stdout=subprocess.PIPE
        ).stdout

    dependencies = ["-MMD", "-MF", str(args.depfile), "-MT", str(args.output)]
    text = declarations(preprocess(source, *dependencies), include)
    macros = preprocess(source, "-dM")
    # A name in quotes is not expanded, so each line tells whose value follows.
    names = sorted(set(MACRO.findall(macros)))
    marked = source + "".join(f'"{name}" {name}\n' for name in names)
    values = "\n".join(
        line.replace('"', "", 1).replace('" ', " = ", 1)
        for line in preprocess(marked, "-P").splitlines()
        if line.startswith('"')
    )
    args.output.write_text(numbers(macros, values) + "\n\n" + text)


if __name__ == "__main__":
    main()
