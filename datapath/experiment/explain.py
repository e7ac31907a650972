# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Validation errors of pydantic in the words of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from datapath.experiment.document import Problem
from datapath.experiment.schema import Schema
from datapath.places import MISPLACED, Path
from datapath.spelling import close_match, or_rather
from datapath.units import alike

_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
"""Kind of error -> the limit in its context, and how it is told."""


def explain(
    details: Iterable[ErrorDetails], data: Any, schema: Schema, locate: Any
) -> list[Problem]:
    """Validation errors as problems; `locate(path, message, of_key)` gives them a place.

    A value that fits no branch of a union gives one error for each branch: they become one.
    """
    messages: dict[tuple[Path, bool], list[str]] = {}
    for detail in details:
        path, first = _data_path(detail, data), ""
        if detail["type"] == MISPLACED:
            path, first = path + detail["ctx"]["place"], _first(path, detail["ctx"], locate)
        of_key = detail["type"] == "extra_forbidden"
        said = messages.setdefault((path, of_key), [])
        message = _message(detail, path, data, schema) + first
        if message not in said:
            said.append(message)
    return [locate(path, " or ".join(said), of_key) for (path, of_key), said in messages.items()]


def _first(model: Path, context: Mapping[str, Any], locate: Any) -> str:
    """The other place that an error is about, in words."""
    if not context["first"]:
        return ""
    other = locate(model + context["first"], "", False)
    line = f" in line {other.place.line}" if other.place.line else ""
    return f"; see {other.path}{line}"


def _data_path(detail: ErrorDetails, data: Any) -> Path:
    """pydantic's location without the steps that name a branch of a union."""
    path: list[str | int] = []
    steps = detail["loc"]
    for index, step in enumerate(steps):
        inside = (isinstance(data, dict) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and step < len(data)
        )
        if inside:
            data = data[step]
            path.append(step)
        elif detail["type"] == "missing" and index == len(steps) - 1:
            path.append(step)
    return tuple(path)


def _message(detail: ErrorDetails, path: Path, data: Any, schema: Schema) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    last = path[-1] if path else ""
    if kind == "extra_forbidden":
        known = schema.keys_at(path[:-1], data)
        if close_match(last, known):
            return f"unknown key{or_rather(last, known, 'known')}"
        elsewhere = [s for s in schema.sections_with(str(last)) if s not in path]
        if elsewhere:
            return f"unknown key here; it belongs to {' or '.join(elsewhere)}"
        return f"unknown key{or_rather(last, known, 'keys here')}"
    if kind == "missing":
        return "required, but missing"
    if kind in ("literal_error", "enum"):
        known = _listed(context.get("expected", ""))
        return f"{value!r} is not possible{or_rather(value, known, 'one of')}"
    if kind == "union_tag_invalid":
        known = _listed(context.get("expected_tags", ""))
        tag = context.get("tag")
        return f"no {_name(context)} {tag!r}{or_rather(tag, known, 'one of')}"
    if kind == "union_tag_not_found":
        return f"{_name(context)} is missing; it says which kind this is"
    if value is None:
        return "is empty; give it a value, or leave the key out"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{value!r} is not a mapping (`key: value` lines)"
    if kind == "list_type":
        return f"{value!r} is not a list"
    if kind in ("int_type", "int_parsing", "int_from_float"):
        return f"{value!r} is not a whole number"
    if kind in ("float_type", "float_parsing"):
        return f"{value!r} is not a number"
    if kind in ("bool_type", "bool_parsing"):
        return f"{value!r} is neither true nor false"
    if kind == "string_type":
        return f"{value!r} is not text; put it in quotes"
    if kind == "string_pattern_mismatch":
        return f"{value!r} is not possible here; it must match {context.get('pattern')}"
    if kind == MISPLACED:
        return str(context["text"])
    if kind == "value_error":
        return str(detail["msg"]).removeprefix("Value error, ")
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        written = _written(data, path, value)
        limit = _limit(context[key], written, schema.example_at(path, data))
        return f"{written!r}: it should be {words} {limit}"
    shown = f"{value!r}: " if isinstance(value, (str, int, float)) else ""
    text = str(detail["msg"])
    return f"{shown}{text[:1].lower()}{text[1:]}".replace("input should", "it should")


def _limit(limit: float, written: Any, example: str) -> str:
    """In the unit that was written; of a bare number also with the unit, which the format knows."""
    told = alike(limit, written)
    if told != str(limit):
        return told
    told = alike(limit, example)
    return told if told == str(limit) or written == 0 else f"{limit} ({told})"


def _written(data: Any, path: Path, value: Any) -> Any:
    """What the file has in this place; `value` may be what became of it."""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return value
    return data if isinstance(data, (str, int, float)) else value


def _listed(expected: object) -> list[str]:
    """`"'a', 'b' or 'c'"` -> [a, b, c]."""
    parts = str(expected).replace(" or ", ", ").split(", ")
    return [part.strip().strip("'") for part in parts if part.strip()]


def _name(context: Mapping[str, Any]) -> str:
    return str(context.get("discriminator", "kind")).strip("'")
