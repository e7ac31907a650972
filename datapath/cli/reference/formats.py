# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""JSON Schema as tables: experiment files, and what commands print."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from datapath.cli.documents import DOCUMENTS, schema
from datapath.cli.reference import markdown
from datapath.experiment.spec import json_schema

Schema = Mapping[str, Any]
_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def experiment() -> Iterator[str]:
    whole = json_schema()
    yield from ("# Format of experiment files", "")
    yield "`dpctl schema` prints it as JSON Schema; [experiment-file](../docs/experiment-file.md)"
    yield "is the guide."
    yield ""
    yield from _members(whole, "")
    for name, part in whole["$defs"].items():
        if "properties" in part:
            yield from (f"## {name}", "")
            yield from markdown.doc(part.get("description", ""))
            yield from _members(part, "")


def output() -> Iterator[str]:
    yield from ("# Format of JSON output", "")
    yield "Every object has `version`, and lists are in `rows`: see [output](../docs/output.md)."
    yield "`dpctl schema COMMAND` prints the same as JSON Schema."
    yield ""
    for command, document in DOCUMENTS.items():
        whole = schema(command)
        yield from (f"## {command}", "")
        if document.many:
            yield from ("A list of `rows`, each of these members:", "")
        inner = whole["properties"]["rows"]["items"] if document.many else whole
        for part in (_found(each, whole) for each in inner.get("anyOf", [inner])):
            yield from markdown.doc(part.get("description", ""))
            yield from _members(part, f"{command} ")
            if part.get("additionalProperties") is True:
                yield from ("There may be further members.", "")
        if not document.many:
            for name, part in whole.get("$defs", {}).items():
                yield from (f"### {command} {name}", "")
                yield from markdown.doc(part.get("description", ""))
                yield from _members(part, f"{command} ")


def _found(part: Schema, whole: Schema) -> Schema:
    """The definition that a part refers to, or the part."""
    name = str(part.get("$ref", "")).rpartition("/")[2]
    return whole["$defs"][name] if name else part


def _members(part: Schema, prefix: str) -> Iterator[str]:
    """prefix: what the headings of definitions begin with."""
    needed = part.get("required", [])
    rows = [
        [markdown.code(name), _type(member, prefix), _default(name, member, needed), _text(member)]
        for name, member in part.get("properties", {}).items()
    ]
    yield from markdown.table(["key", "value", "default", "meaning"], rows)


def _text(member: Schema) -> str:
    return markdown.text(member.get("description", ""))


def _default(name: str, member: Schema, needed: list[str]) -> str:
    if name in needed:
        return "needed"
    default = member.get("default")
    if default is None or (isinstance(default, (list, dict)) and len(json.dumps(default)) > 60):
        return ""
    return markdown.code(default if isinstance(default, str) else json.dumps(default))


def _type(member: Schema, prefix: str) -> str:
    if "$ref" in member:
        name = member["$ref"].rpartition("/")[2]
        anchor = f"{prefix}{name}".lower().replace(" ", "-")
        return f"[{name}](#{anchor})"
    if "const" in member:
        return markdown.code(member["const"])
    if "enum" in member:
        return ", ".join(map(markdown.code, member["enum"]))
    for several in ("anyOf", "oneOf"):
        if several in member:
            kinds = dict.fromkeys(_type(each, prefix) for each in member[several])
            return " or ".join(kinds)
    if member.get("type") == "array":
        return f"list of {_type(member.get('items', {}), prefix)}"
    limits = [f"{word} {member[key]:g}" for key, word in _LIMITS.items() if key in member]
    return ", ".join([str(member.get("type", "any")), *limits])
