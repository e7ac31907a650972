# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a matrix of axes to points, and from points to runs in their order.

An axis is a dotted path into the file with its values, or a name whose values set several
paths at once.  Points are the product of the axes, minus `exclude`, plus `include`, with the
settings of `adjust` on top; `only` selects among them.  Everything follows from the file and its
seed: the same file gives the same points, keys, order and run seeds on every machine.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from datapath.experiment.axes import Axis, AxisValue, Setting, read_settings
from datapath.experiment.document import Document, Problem, show_path
from datapath.experiment.schema import Schema
from datapath.experiment.spec import SECTIONS
from datapath.foreign import TABLE_VALUES_MAX
from datapath.places import Path
from datapath.spelling import or_rather

if TYPE_CHECKING:
    from datapath.experiment.spec import PointSpec, Sweep

_KEY_DIGITS = 12
_VALUES_OF_A_RUN = 50 * 16
"""In runs.parquet: metrics times columns, more than most runs have."""

_RUNS_MAX = TABLE_VALUES_MAX // _VALUES_OF_A_RUN
"""What a sweep leaves has to be read again."""

_CANDIDATES_MAX = 5_000_000
"""Combinations of axis values, for each mapping of `exclude` once more."""

_VALUES_MAX = 10_000_000
"""Values in the sections of all points together."""


@dataclass
class RawPoint:
    """A point before validation: its sections as plain data, and who set what.

    origins: path in the point -> path in the file, for the parts that the sweep set.
    """

    axes: dict[str, str]
    data: dict[str, Any]
    origins: dict[Path, Path] = field(default_factory=dict)

    def source_of(self, path: Path) -> Path:
        """Where in the file a part of the point comes from."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return (*self.origins[path[:end]], *path[end:])
        return path


@dataclass(frozen=True)
class Point:
    """A resolved point. key: hash of its content and its axes, also its name in results."""

    key: str
    axes: Mapping[str, str]
    spec: PointSpec

    @property
    def label(self) -> str:
        return ", ".join(f"{axis}={text}" for axis, text in self.axes.items()) or "single point"


@dataclass(frozen=True)
class Run:
    """One measurement of one point. block == repetition: a block has every point once.

    traffic_seed: equal for all points of a block, which so meet the same traffic.
    """

    point: Point
    repetition: int
    seed: int
    traffic_seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.point.key}-{self.repetition}"


# --- points --------------------------------------------------------------------------------


def expand(
    document: Document,
    schema: Schema,
    axes: Sequence[Axis],
    repetitions: int,
    problems: list[Problem],
) -> list[RawPoint]:
    """All points of the file, matrix first, then `include`, in a fixed order.

    A sweep that is too large is a problem, and is found before any point is made.
    """
    sweep = document.data.get("sweep", {})
    excluded = [
        read_where(document, ("sweep", "exclude", i), axes, problems)
        for i in range(len(sweep.get("exclude", [])))
    ]
    excluded = [where for where in excluded if where]
    remark = _too_large(axes, excluded, repetitions)
    if remark:
        problems.append(document.problem(("sweep",), remark))
        return []
    chosen: list[Sequence[AxisValue]] = [
        combination
        for combination in itertools.product(*(axis.values for axis in axes))
        if not any(matches(where, _texts(axes, combination)) for where in excluded)
    ]
    known = {_words(combination) for combination in chosen}
    for index in range(len(sweep.get("include", []))):
        extra = _included(document, ("sweep", "include", index), axes, problems)
        if extra is None:
            continue
        if _words(extra) in known:
            where = ("sweep", "include", index)
            problems.append(document.problem(where, "this point is in the sweep already"))
            continue
        known.add(_words(extra))
        chosen.append(extra)
    if not chosen and not problems:
        problems.append(document.problem(("sweep",), "no point is left: exclude removes them all"))
    chosen = _kept(document, axes, chosen, problems)
    adjustments = _adjustments(document, schema, axes, problems)
    remark = _too_many(len(chosen), repetitions) or _too_heavy(document, len(chosen))
    if remark:
        problems.append(document.problem(("sweep",), remark))
        return []
    return [_build(document, axes, combination, adjustments, problems) for combination in chosen]


def _kept(
    document: Document,
    axes: Sequence[Axis],
    combinations: Sequence[Sequence[AxisValue]],
    problems: list[Problem],
) -> list[Sequence[AxisValue]]:
    """The combinations that `only` selects; it is a problem if there are none."""
    here: Path = ("sweep", "only")
    where = read_where(document, here, axes, problems)
    found = [c for c in combinations if matches(where, _texts(axes, c))]
    if combinations and not found and not problems:
        problems.append(document.problem(here, "no point of the sweep has these values together"))
    return found


def _too_many(points: int, repetitions: int) -> str:
    """A remark if a sweep has more runs than anybody can want, otherwise ""."""
    runs = points * repetitions
    if runs <= _RUNS_MAX:
        return ""
    return (
        f"{points:,} points x {repetitions} repetitions are {runs:,} runs; "
        f"the most is {_RUNS_MAX:,}"
    )


def _too_large(axes: Sequence[Axis], excluded: Sequence[Any], repetitions: int) -> str:
    """A remark if there are too many combinations of axis values to check, otherwise ""."""
    combinations = math.prod(len(axis.values) for axis in axes)
    if not excluded:
        return _too_many(combinations, repetitions)
    if combinations * (1 + len(excluded)) <= _CANDIDATES_MAX:
        return ""
    return (
        f"{combinations:,} combinations of axis values are too many to exclude some; "
        "name the points under include"
    )


def _too_heavy(document: Document, points: int) -> str:
    """A remark if the sections of all points together are too large, otherwise ""."""
    values = sum(document.count((section,)) for section in SECTIONS)
    values += document.count(("sweep", "adjust"))
    if points * values <= _VALUES_MAX:
        return ""
    return (
        f"{points:,} points with {values:,} values each; the most in all is {_VALUES_MAX:,}: "
        "put long lists into files, or make several experiments"
    )


def _words(combination: Sequence[AxisValue]) -> tuple[str, ...]:
    return tuple(value.text for value in combination)


def _texts(axes: Sequence[Axis], combination: Sequence[AxisValue]) -> dict[str, str]:
    return {axis.name: value.text for axis, value in zip(axes, combination, strict=True)}


def _included(
    document: Document, here: Path, axes: Sequence[Axis], problems: list[Problem]
) -> list[AxisValue] | None:
    """The values of an `include` entry; a path axis may have a value of its own there."""
    entry = document.data["sweep"]["include"][here[-1]]
    before = len(problems)
    names = [axis.name for axis in axes]
    for key in entry:
        if key not in names:
            text = f"no such axis{or_rather(key, names, 'axes')}"
            problems.append(document.problem((*here, key), text, of_key=True))
    combination = []
    for axis in axes:
        if axis.name not in entry:
            problems.append(document.problem(here, f"axis {axis.name!r} is missing here"))
            continue
        source = (*here, axis.name)
        text = document.written(source)
        known = next((value for value in axis.values if value.text == text), None)
        if known is None and axis.named:
            more = or_rather(text, axis.texts(), "values")
            problems.append(document.problem(source, f"{axis.name} has no value {text!r}{more}"))
            continue
        target = tuple(axis.name.split("."))
        own = AxisValue(text, (Setting(target, entry[axis.name], source),))
        combination.append(known or own)
    return combination if len(problems) == before else None


def _adjustments(
    document: Document, schema: Schema, axes: Sequence[Axis], problems: list[Problem]
) -> list[tuple[dict[str, list[str]], list[Setting]]]:
    adjustments = []
    for index in range(len(document.data.get("sweep", {}).get("adjust", []))):
        here: Path = ("sweep", "adjust", index)
        where = read_where(document, (*here, "where"), axes, problems)
        settings = list(read_settings(document, schema, (*here, "set"), problems))
        adjustments.append((where, settings))
    return adjustments


def _build(
    document: Document,
    axes: Sequence[Axis],
    combination: Sequence[AxisValue],
    adjustments: Sequence[tuple[dict[str, list[str]], list[Setting]]],
    problems: list[Problem],
) -> RawPoint:
    base = {section: document.data[section] for section in SECTIONS if section in document.data}
    point = RawPoint(_texts(axes, combination), copy.deepcopy(base))
    settings = [setting for value in combination for setting in value.settings]
    for where, more in adjustments:
        if matches(where, point.axes):
            settings += more
    for setting in settings:
        wrong = _apply(point, setting)
        if wrong:
            problems.append(document.problem(setting.source, wrong, of_key=True))
    return point


def _apply(point: RawPoint, setting: Setting) -> str:
    """Set one path in a point's data; returns the mistake, "" when there is none."""
    parent: Any = point.data
    for depth, step in enumerate(setting.target[:-1]):
        if isinstance(parent, list):
            if not str(step).isdigit() or int(step) >= len(parent):
                return f"{show_path(setting.target[:depth])} has no item {step}"
            parent = parent[int(step)]
            continue
        if parent.get(step) is None:
            parent[step] = {}
        parent = parent[step]
        if not isinstance(parent, (dict, list)):
            where = show_path(setting.target[: depth + 1])
            return f"{where} is {parent!r} here, so nothing can be set inside it"
    last = setting.target[-1]
    if isinstance(parent, list):
        if not str(last).isdigit() or int(last) >= len(parent):
            return f"{show_path(setting.target[:-1])} has no item {last}"
        parent[int(last)] = copy.deepcopy(setting.value)
    else:
        parent[last] = copy.deepcopy(setting.value)
    target = tuple(int(s) if str(s).isdigit() else s for s in setting.target)
    inside = [path for path in point.origins if path[: len(target)] == target]
    for path in inside:
        del point.origins[path]
    point.origins[target] = setting.source
    return ""


# --- where ---------------------------------------------------------------------------------


def read_where(
    document: Document, here: Path, axes: Sequence[Axis], problems: list[Problem]
) -> dict[str, list[str]]:
    """A selector as axis -> texts that are meant; unknown axes and values are problems."""
    part: Any = document.data
    for step in here:
        part = part.get(step, {}) if isinstance(part, dict) else part[step]
    known = {axis.name: axis for axis in axes}
    included = _included_texts(document, known)
    where: dict[str, list[str]] = {}
    for name, value in part.items():
        source = (*here, name)
        if name not in known:
            more = or_rather(name, list(known), "axes")
            problems.append(document.problem(source, f"no such axis{more}", of_key=True))
            continue
        items = [(*source, i) for i in range(len(value))] if isinstance(value, list) else [source]
        if not items:
            problems.append(document.problem(source, "names no value, so no point has it"))
        texts = [*known[name].texts(), *included.get(name, [])]
        for item in items:
            text = document.written(item)
            if text not in texts:
                more = or_rather(text, texts, "values")
                problems.append(document.problem(item, f"{name} has no value {text!r}{more}"))
        where[name] = [document.written(item) for item in items]
    return where


def _included_texts(document: Document, axes: Mapping[str, Axis]) -> dict[str, list[str]]:
    """Values of path axes that only `include` brings in."""
    texts: dict[str, list[str]] = {}
    for index, entry in enumerate(document.data.get("sweep", {}).get("include", [])):
        for name in entry:
            if name in axes and not axes[name].named:
                texts.setdefault(name, []).append(
                    document.written(("sweep", "include", index, name))
                )
    return texts


def matches(where: Mapping[str, Sequence[str]], axes: Mapping[str, str]) -> bool:
    """Whether a point's axes have values that a selector names; an empty one takes all."""
    return all(axes.get(name) in texts for name, texts in where.items())


# --- runs ----------------------------------------------------------------------------------


def point_key(spec: PointSpec, axes: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Hash of a point: resolved content, axis values, digests of the files that it names."""
    content = {"spec": spec.model_dump(mode="json"), "axes": dict(axes), "files": dict(files)}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_KEY_DIGITS]


def schedule(points: Sequence[Point], sweep: Sweep, seed: int, repetitions: int = 0) -> list[Run]:
    """All runs in the order in which they are to be made, block after block.

    repetitions: instead of those of the sweep; 0: those.
    """
    import numpy as np

    runs = []
    for block in range(repetitions or sweep.repetitions):
        order = list(range(len(points)))
        if sweep.order == "blocked-random":
            rng = np.random.default_rng(np.random.SeedSequence([seed, block]))
            order = rng.permutation(len(points)).tolist()
        traffic = run_seed(seed, "0", block)
        runs += [
            Run(points[index], block, run_seed(seed, points[index].key, block), traffic)
            for index in order
        ]
    return runs


def run_seed(seed: int, key: str, repetition: int) -> int:
    """Seed of one run, 63 bits, from the experiment's seed, the point and the repetition."""
    import numpy as np

    sequence = np.random.SeedSequence([seed, int(key, 16), repetition])
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1
