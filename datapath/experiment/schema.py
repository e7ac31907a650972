# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Questions about the format itself: which keys may stand where, and which one was meant.

Answered from the JSON Schema of the models, so that there is no second list of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from datapath.places import Path


@dataclass(frozen=True)
class UnknownStep:
    """The first step of a path that the format does not have, and the keys that it has there."""

    index: int
    known: list[str]


class Schema:
    """A JSON Schema with its references followed."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make

    @cached_property
    def root(self) -> dict[str, Any]:
        """Made when somebody asks: it takes longer than to check a file without mistakes."""
        return self._make()

    @property
    def definitions(self) -> dict[str, Any]:
        found: dict[str, Any] = self.root.get("$defs", {})
        return found

    def keys_at(self, path: Path, data: Any) -> list[str]:
        """Keys that may stand in the mapping at `path`; `data` decides between alternatives."""
        nodes = self._alternatives(self.root, data)
        for step in path:
            data = _child(data, step)
            nodes = [
                inner
                for node in nodes
                if (child := _schema_of(node, step)) is not None
                for inner in self._alternatives(child, data)
            ]
        return list(dict.fromkeys(key for node in nodes for key in node.get("properties", {})))

    def unknown_step(self, path: Path) -> UnknownStep | None:
        """None when some experiment can have the path."""
        nodes = self._alternatives(self.root, None)
        for index, step in enumerate(path):
            children = [c for node in nodes if (c := _schema_of(node, step)) is not None]
            if not children:
                known = dict.fromkeys(key for node in nodes for key in node.get("properties", {}))
                return UnknownStep(index, list(known))
            nodes = [inner for child in children for inner in self._alternatives(child, None)]
        return None

    def example_at(self, path: Path, data: Any) -> str:
        """A value that may stand at `path`, as somebody would write it; "": none is known."""
        nodes = self._alternatives(self.root, data)
        children: list[dict[str, Any]] = []
        for step in path:
            data = _child(data, step)
            children = [c for node in nodes if (c := _schema_of(node, step)) is not None]
            nodes = [inner for child in children for inner in self._alternatives(child, data)]
        return next((found for child in children if (found := self._example(child))), "")

    def _example(self, node: dict[str, Any]) -> str:
        """The first example of a schema, or of a branch of it."""
        if "$ref" in node:
            return self._example(self.definitions[node["$ref"].rpartition("/")[2]])
        branches = (node.get(kind, []) for kind in ("oneOf", "anyOf", "allOf"))
        inner = (self._example(branch) for each in branches for branch in each)
        return str(next(iter(node.get("examples", [])), "")) or next(filter(None, inner), "")

    def sections_with(self, key: str) -> list[str]:
        """Top-level sections that have this key, for keys that were put elsewhere."""
        sections = []
        for section, schema in self.root.get("properties", {}).items():
            nodes = self._alternatives(schema, None)
            if any(key in node.get("properties", {}) for node in nodes):
                sections.append(section)
        return sections

    def _alternatives(self, node: dict[str, Any], data: Any) -> list[dict[str, Any]]:
        """The plain schemas behind references and unions, narrowed by a discriminator."""
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            return self._alternatives(self.definitions[name], data)
        discriminator = node.get("discriminator")
        if discriminator and isinstance(data, dict):
            tag = data.get(discriminator["propertyName"])
            reference = discriminator["mapping"].get(tag) if isinstance(tag, str) else None
            if reference:
                return self._alternatives({"$ref": reference}, data)
        branches = node.get("oneOf") or node.get("anyOf") or node.get("allOf")
        if branches:
            return [inner for branch in branches for inner in self._alternatives(branch, data)]
        return [node]


def _schema_of(node: dict[str, Any], step: str | int) -> dict[str, Any] | None:
    """The schema of one key or item of a plain schema, None when it has no such part."""
    if isinstance(step, int) or (isinstance(step, str) and step.isdigit() and "items" in node):
        items = node.get("items")
        return items if isinstance(items, dict) else None
    properties = node.get("properties", {})
    if step in properties:
        found: dict[str, Any] = properties[step]
        return found
    more = node.get("additionalProperties")
    if more is True:
        return {}
    return more if isinstance(more, dict) else None


def _child(data: Any, step: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(step)
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return data[step]
    return None
