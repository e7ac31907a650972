# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a command prints as JSON, held against what datapath.cli.documents says of it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from datapath.cli.documents import DOCUMENTS
from datapath.cli.output import VERSION


def strict(text: str) -> Any:
    """The value of a JSON text; Python's own reader also takes NaN, which is none."""

    def no_json(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=no_json)


def told(command: str, text: str) -> Any:
    """The rows, or the one object, of an output with --format json that is as documented."""
    document = DOCUMENTS[command]
    members = strict(text)
    assert members.pop("version") == VERSION
    if not document.many:
        TypeAdapter(document.members).validate_python(members, strict=True)
        return members
    assert set(members) == {"rows"}
    adapter = TypeAdapter(document.members)
    for row in members["rows"]:
        adapter.validate_python(row, strict=True)
    return members["rows"]
