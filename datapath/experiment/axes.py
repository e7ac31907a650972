# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The axes of a sweep, as the file has them: dotted paths or names, and their settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from datapath.experiment.document import Document, Problem, show_path
from datapath.experiment.schema import Schema
from datapath.experiment.spec import SECTIONS
from datapath.places import Path
from datapath.spelling import or_rather

COLUMNS_BEFORE = ("point", "block", "repetition")
COLUMNS_BEHIND = ("status", "metric", "value", "unit", "started", "seconds")
RESULT_COLUMNS = (*COLUMNS_BEFORE, *COLUMNS_BEHIND)
"""Columns of runs.parquet before and behind the axes; no axis may have such a name."""

TABLE_COLUMNS = (
    *("n", "median", "min", "max", "lo", "hi", "ratio"),
    *("folder", "base_n", "base_median", "p", "verdict"),
    *("kind", "workload", "spec", "run", "rows", "left_out", "absent"),
)
"""Columns beside the axes in what show, compare, series and run --dry-run make; as before."""


@dataclass(frozen=True)
class Setting:
    """One path set to a value; `source` is where the value stands in the file."""

    target: Path
    value: Any
    source: Path


@dataclass(frozen=True)
class AxisValue:
    """A value of an axis: its text in tables, and its settings."""

    text: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Axis:
    name: str
    values: tuple[AxisValue, ...]
    named: bool

    def texts(self) -> list[str]:
        return [value.text for value in self.values]


def read_axes(document: Document, schema: Schema, problems: list[Problem]) -> list[Axis]:
    """The axes of `sweep.matrix`, in the order of the file."""
    matrix = document.data.get("sweep", {}).get("matrix", {})
    axes = []
    for name, items in matrix.items():
        here: Path = ("sweep", "matrix", name)
        if name in (*RESULT_COLUMNS, *TABLE_COLUMNS):
            words = ", ".join((*RESULT_COLUMNS, *TABLE_COLUMNS))
            text = f"{name!r} is a column of the results, as are {words}: "
            text += "give the axis another name"
            problems.append(document.problem(here, text, of_key=True))
            continue
        if not items:
            problems.append(document.problem(here, "an axis needs at least one value"))
            continue
        named = all(isinstance(item, dict) and "label" in item for item in items)
        read = _named_axis if named else _path_axis
        values = read(document, schema, name, items, problems)
        problems += _repeated(document, here, values)
        axes.append(Axis(name, tuple(values), named))
        problems += _in_vain(document, axes[-1])
    return axes


def _named_axis(
    document: Document, schema: Schema, name: str, items: list[Any], problems: list[Problem]
) -> list[AxisValue]:
    values = []
    for index, item in enumerate(items):
        here: Path = ("sweep", "matrix", name, index)
        unknown = [key for key in item if key not in ("label", "set")]
        for key in unknown:
            text = f"unknown key{or_rather(key, ('label', 'set'), 'known')}"
            problems.append(document.problem((*here, key), text, of_key=True))
        settings = item.get("set", {})
        if not isinstance(settings, dict):
            text = "set needs a mapping of dotted paths to values"
            problems.append(document.problem((*here, "set"), text))
            continue
        label = document.written((*here, "label"))
        if not label.strip():
            problems.append(document.problem((*here, "label"), "a label needs a name"))
        values.append(
            AxisValue(label, tuple(read_settings(document, schema, (*here, "set"), problems)))
        )
    return values


def _path_axis(
    document: Document, schema: Schema, name: str, items: list[Any], problems: list[Problem]
) -> list[AxisValue]:
    here: Path = ("sweep", "matrix", name)
    target = tuple(name.split("."))
    wrong = _wrong_target(schema, target)
    if wrong:
        labelled = any(isinstance(item, dict) and "label" in item for item in items)
        if labelled or len(target) == 1:
            wrong += " (a named axis has values {label: ..., set: {path: value}})"
        problems.append(document.problem(here, wrong, of_key=True))
        return []
    return [
        AxisValue(document.written((*here, index)), (Setting(target, item, (*here, index)),))
        for index, item in enumerate(items)
    ]


def read_settings(
    document: Document, schema: Schema, here: Path, problems: list[Problem]
) -> Iterator[Setting]:
    """The entries of a `set:` mapping, each with a path that the format has."""
    part: Any = document.data
    for step in here:
        part = part.get(step, {}) if isinstance(part, dict) else part[step]
    for dotted, value in part.items():
        target = tuple(dotted.split("."))
        wrong = _wrong_target(schema, target)
        if wrong:
            problems.append(document.problem((*here, dotted), wrong, of_key=True))
        else:
            yield Setting(target, value, (*here, dotted))


def _wrong_target(schema: Schema, target: Path) -> str:
    """The mistake in a path that a sweep sets, "" when there is none."""
    if target[0] not in SECTIONS:
        more = or_rather(target[0], SECTIONS, "a sweep varies")
        return f"no section {target[0]!r} that a sweep can vary{more}"
    unknown = schema.unknown_step(target)
    if unknown is None:
        return ""
    parent = show_path(target[: unknown.index])
    step = target[unknown.index]
    return f"{parent} has no key {step!r}{or_rather(step, unknown.known, 'it has')}"


def _repeated(document: Document, here: Path, values: list[AxisValue]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value.text in seen:
            yield document.problem((*here, index), f"{value.text!r} is in this axis twice")
        seen.add(value.text)


def _in_vain(document: Document, axis: Axis) -> Iterator[Problem]:
    """Whatever `--set` put where each value of the axis puts its own."""
    for path in document.replaced:
        if axis.values and all(
            any(path[: len(setting.target)] == setting.target for setting in value.settings)
            for value in axis.values
        ):
            text = f"axis {axis.name} sets this in every point: choose some of its values with "
            text += "--only, or change it in sweep.matrix"
            yield document.problem(path, text)
