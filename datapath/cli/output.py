# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rows on stdout, a table for people and JSON for programs; errors on stderr."""

from __future__ import annotations

import contextlib
import enum
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from datapath import strict_json
from datapath.terminal import printable, raw

VERSION = 1
"""Of the JSON that commands print (documents.py): changes when a name or a meaning does."""

_WIDTH_MIN = 40
_BELOW = "    "
_ENDLESS = re.compile(r"(\S{60})\S{200,}(\S{20})")


class Format(enum.StrEnum):
    """How data is printed: for people, as one JSON document, as one JSON value per line."""

    table = "table"
    json = "json"
    ndjson = "ndjson"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the data.")]


def _metrics() -> list[str]:
    """What completion offers."""
    from datapath.experiment.metrics import METRICS

    return ["all", *METRICS]


MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME|all",
        help="A metric to print; repeatable. Default: the headline metric.",
        show_default=False,
        autocompletion=_metrics,
    ),
]


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], fmt: Format, *, cut: bool = False
) -> None:
    """Print rows; a table shows the named columns, JSON everything.

    cut: a terminal gets as much of the last column as fits.
    """
    if fmt is Format.json:
        print_record({"rows": list(rows)}, fmt)
    elif fmt is Format.ndjson:
        for row in rows:
            print_record(row, fmt)
    elif rows:
        print_table(rows, columns, cut=cut)


def print_record(record: Mapping[str, Any], fmt: Format) -> None:
    """Print one JSON object, not for people: in several lines, or (ndjson) in one."""
    told = {"version": VERSION, **record}
    print(strict_json.text(told, indent=None if fmt is Format.ndjson else 2))


def print_told(text: str, record: Mapping[str, Any], fmt: Format) -> None:
    """Print one line for people, or a JSON object that says the same."""
    if fmt is Format.table:
        tell(text)
    else:
        print_record(record, fmt)


def tell(text: str) -> None:
    """Print a paragraph; a terminal gets it in lines that fit."""
    told = printable(text)
    print("\n".join(fitted(told, terminal_width())) if sys.stdout.isatty() else told)


def print_wrapped(rows: Sequence[Mapping[str, Any]], fmt: Format) -> None:
    """As print_rows, with sentences in cells: the table is as wide as the terminal."""
    if fmt is not Format.table or not rows:
        print_rows(rows, [], fmt)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(file=raw(sys.stdout), markup=False, emoji=False, highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in rows[0]:
        table.add_column(head, no_wrap=head in ("name", "parameter"), overflow="fold")
    for row in rows:
        table.add_row(*map(_sentence, row.values()))
    with console.capture() as text:  # by itself it would exit with 1 when the pipe is closed
        console.print(table)
    raw(sys.stdout).write(text.get())


def print_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, cut: bool = False
) -> None:
    """Columns padded to their widest value.

    A terminal that is too narrow gets the last column in several lines, or below the others.
    cut: as print_rows has it; a file gets all.
    """
    cells = [list(columns), *([_text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    heads = [
        "".join(cell.ljust(width + 2) for cell, width in zip(line[:-1], widths, strict=False))
        for line in cells
    ]
    lasts = [line[-1] for line in cells]
    room = terminal_width() if sys.stdout.isatty() else 0
    if not room or sum(widths) + 2 * (len(widths) - 1) <= room:
        lines = [head + last for head, last in zip(heads, lasts, strict=True)]
    elif cut:
        whole = [head + last for head, last in zip(heads, lasts, strict=True)]
        lines = [ln if len(ln) <= room else ln[: room - 1].rstrip() + "…" for ln in whole]
    else:
        lines = list(_last_below(heads, lasts, room))
    sys.stdout.writelines(line.rstrip() + "\n" for line in lines)


def _last_below(heads: Sequence[str], lasts: Sequence[str], room: int) -> Iterator[str]:
    """Rows whose last cell has no room: in lines of its column, or, where a word does not fit,
    below the others."""
    indent = len(heads[0])
    if max((len(word) for last in lasts for word in last.split()), default=0) > room - indent:
        for head, last in zip(heads, lasts, strict=True):
            yield from (head, *fitted(last, room, first=_BELOW, rest=_BELOW))
    else:
        for head, last in zip(heads, lasts, strict=True):
            yield from fitted(last, room, first=head, rest=" " * indent) or [head]


def fitted(text: str, width: int, *, first: str = "", rest: str = "  ") -> list[str]:
    """Lines of so many columns, cut between words alone; first, rest: what they begin with."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sentence(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else printable(value, keep="\n")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return printable(", ".join(f"{key}={inner}" for key, inner in value.items()))
    if isinstance(value, (list, tuple)):
        return printable(", ".join(map(str, value)))
    return printable(value)


class Ended(KeyboardInterrupt):
    """^C came where it is the only way out: there is nothing to tell."""


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """What goes on until a signal ends it."""
    try:
        yield
    except KeyboardInterrupt:
        raise Ended from None


def terminal_width() -> int:
    """Columns of the terminal; 80 where the output goes elsewhere."""
    return max(_WIDTH_MIN, shutil.get_terminal_size((80, 24)).columns)


def tell_note(text: str) -> None:
    """One line beside the answer, which goes to stdout."""
    print(f"note: {printable(text)}", file=sys.stderr, flush=True)


def tell_error(message: str, hint: str = "") -> None:
    """`error:` for each line of the message, then `hint:`; a terminal gets lines that fit.

    Of a word that is longer than any name both ends are told.
    """
    lines = [f"error: {line}" for line in message.splitlines() or [""]]
    lines += [f"hint: {line}" for line in hint.splitlines()]
    for line in (_ENDLESS.sub(r"\1...\2", line) for line in lines):
        parts = fitted(line, terminal_width()) if sys.stderr.isatty() else [line]
        print("\n".join(parts), file=sys.stderr)
