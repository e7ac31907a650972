# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rows on stdout, a table for people and JSON for programs; errors on stderr."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from datapath.terminal import printable


class Format(enum.StrEnum):
    """How data is printed: for people, as one JSON document, as one JSON value per line."""

    table = "table"
    json = "json"
    ndjson = "ndjson"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the data.")]


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], fmt: Format) -> None:
    """Print rows; a table shows the named columns, JSON everything."""
    if fmt is Format.json:
        print(json.dumps(list(rows), indent=2, default=str))
    elif fmt is Format.ndjson:
        for row in rows:
            print(json.dumps(row, default=str))
    elif rows:
        print_table(rows, columns)


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Columns padded to their widest value; never cut, since it may go to a file."""
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [
        max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)
    ]
    for line in [list(columns), *cells]:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write(padded.rstrip() + "\n")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return printable(", ".join(f"{key}={inner}" for key, inner in value.items()))
    return printable(value)


def tell_error(message: str, hint: str = "") -> None:
    """`error:` for each line of the message, then `hint:`."""
    for line in message.splitlines() or [""]:
        print(f"error: {line}", file=sys.stderr)
    for line in hint.splitlines():
        print(f"hint: {line}", file=sys.stderr)
