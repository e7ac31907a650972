# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A YAML file as plain data that remembers where each part stood.

ruamel.yaml composes the file to nodes; this module turns the nodes into dicts, lists and
scalars, and keeps for every path the place of its key and of its value, and the text of
scalars as written (`1%`, `0x11`), which become the values of a sweep's axes.

An alias (`*name`) stands for a copy of what it names, and aliases of aliases multiply.  The
values that a file comes to are counted while it is composed, before any copy is made.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from datapath.errors import LocalError
from datapath.foreign import NESTING_MAX
from datapath.places import Path
from datapath.terminal import printable

BYTES_MAX = 2**20
"""Of an experiment file."""

VALUES_MAX = 10_000
"""Keys, values, lists and mappings of an experiment file, with a copy for each alias."""

TOLD_MAX = 100
"""Most problems of a file that are told; one slip may cause many."""

_INT_BITS_MAX = 64

_UNREADABLE = (YAMLError, ValueError, LookupError, OverflowError)
"""What ruamel.yaml raises for text that it cannot read."""

_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


@dataclass(frozen=True)
class Kind:
    """What a file is meant to be, in the words of errors about one that is something else.

    begin, shorter: hints for a file that is no mapping, and for one that is too large.
    instead_of_folder: a hint for a folder in its place, `{}` in it.
    values_max: as VALUES_MAX.
    """

    what: str
    file: str
    begin: str
    shorter: str
    instead_of_folder: str
    values_max: int = VALUES_MAX


EXPERIMENT = Kind(
    what="an experiment",
    file="an experiment file",
    begin="begin with `version: 1` and `name: ...`",
    shorter="put long lists into files of their own, as docs/experiment-file.md shows",
    instead_of_folder="name an experiment file; a run that ended early goes on with --resume {}",
)


@dataclass(frozen=True, order=True)
class Place:
    """Line and column, counted from one, as editors do; 0 for what is not in a file."""

    line: int
    column: int


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in a file: where, in which part, and a hint."""

    file: str
    place: Place
    path: str
    message: str

    def __str__(self) -> str:
        part = f"{self.path}: " if self.path else ""
        place = f":{self.place.line}:{self.place.column}" if self.place.line else ""
        return printable(f"{self.file}{place}: {part}{self.message}")


class InvalidFile(LocalError):
    """A file with mistakes, all of them in `problems`, in the order of the file."""

    def __init__(self, problems: list[Problem], *, hint: str = "") -> None:
        self.problems = sorted(set(problems))
        told = [str(problem) for problem in self.problems[:TOLD_MAX]]
        more = len(self.problems) - len(told)
        told += [f"and {more} more problems"] if more else []
        super().__init__("\n".join(told), hint=hint)


def show_path(path: Path) -> str:
    """`("sweep", "matrix", "path.loss", 1)` -> `sweep.matrix["path.loss"][1]`."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        elif "." in step or not step or not step.isprintable():
            shown += f'["{step}"]'
        else:
            shown += f".{step}" if shown else step
    return shown


@dataclass(frozen=True)
class Spelled:
    """A number, a truth value or a null, in the words of the file that has it.

    Any other file may have these words: without a tag, and in YAML 1.2, they mean the same.
    """

    text: str


@dataclass
class Document:
    """Plain data with the places its parts came from.

    data: dicts, lists, str, int, float, bool, None.
    text: scalars as written, by path.
    replaced: parts that came from elsewhere (`--set ...`), by path, with that origin's name.
    """

    file: str
    data: dict[str, Any]
    text: dict[Path, str] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    replaced: dict[Path, str] = field(default_factory=dict)

    def replace(self, path: Path, part: Document, label: str) -> None:
        """Take the key `value` of another document for `path`; `label` is its file's name."""
        for known in (self.text, self.keys, self.values):
            for inside in [p for p in known if p[: len(path)] == path]:
                del known[inside]
        for ours, theirs in (
            (self.text, part.text),
            (self.keys, part.keys),
            (self.values, part.values),
        ):
            entries = {(*path, *p[1:]): v for p, v in theirs.items() if p[:1] == ("value",)}
            ours.update(entries)  # type: ignore[arg-type]
        self.replaced[path] = label

    def place(self, path: Path, *, of_key: bool = False) -> Place:
        """Place of the part, or of the nearest part around it that is in the file."""
        for end in range(len(path), -1, -1):
            known = path[:end]
            if known in self.keys and (of_key or end < len(path)):
                return self.keys[known]
            if known in self.values:
                return self.values[known]
        return Place(1, 1)

    def problem(self, path: Path, message: str, *, of_key: bool = False) -> Problem:
        for end in range(len(path), 0, -1):
            if path[:end] in self.replaced:
                return Problem(self.replaced[path[:end]], Place(0, 0), show_path(path), message)
        return Problem(self.file, self.place(path, of_key=of_key), show_path(path), message)

    def count(self, path: Path) -> int:
        """Values at and below a path, with those that `--set` put there."""
        return sum(known[: len(path)] == path for known in self.values)

    def written(self, path: Path) -> str:
        """A part in one line, as the user wrote it (lists and mappings in flow style)."""
        if path in self.text:
            return self.text[path]
        part: Any = self.data
        for step in path:
            part = part[step]
        if isinstance(part, dict):
            return "{" + ", ".join(f"{k}: {self.written((*path, k))}" for k in part) + "}"
        if isinstance(part, list):
            return "[" + ", ".join(self.written((*path, i)) for i in range(len(part))) + "]"
        return str(part)

    def spelled(self, path: Path) -> Any:
        """A part as plain data, with Spelled for what is no text, where that is possible."""
        part: Any = self.data
        for step in path:
            part = part[step]
        if isinstance(part, dict):
            return {key: self.spelled((*path, key)) for key in part}
        if isinstance(part, list):
            return [self.spelled((*path, index)) for index in range(len(part))]
        text = self.written(path)
        return Spelled(text) if not isinstance(part, str) and _says(text, part) else part


def _says(text: str, value: Any) -> bool:
    """Whether a file of YAML 1.2 says this value, which is no text, by these words alone."""
    try:
        plain = YAML(typ="safe", pure=True).load(text)
    except _UNREADABLE:
        return False
    return type(plain) is type(value) and bool(plain == value)


def parse(text: str, file: str, kind: Kind = EXPERIMENT) -> Document:
    """Read YAML text; `file` is the name in messages.

    Raises InvalidFile for syntax errors, duplicate keys (all of them), other documents than
    one mapping, and files that are larger than any that is meant.
    """
    if len(text) > BYTES_MAX:
        problem = Problem(file, Place(0, 0), "", f"larger than {BYTES_MAX:,} characters")
        raise InvalidFile([problem], hint=kind.shorter)
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = functools.partial(_Composer, kind.values_max)  # type: ignore[assignment]
    try:
        root = yaml.compose(io.StringIO(text))
    except _TooMuch as error:
        raise InvalidFile([_syntax_problem(error, file)], hint=kind.shorter) from None
    except MarkedYAMLError as error:
        raise InvalidFile([_syntax_problem(error, file)]) from None
    except _UNREADABLE as error:
        raise InvalidFile([Problem(file, Place(1, 1), "", f"not YAML: {error}")]) from None
    if not isinstance(root, MappingNode):
        text = f"not {kind.what}: the file is not a mapping"
        raise InvalidFile([Problem(file, Place(1, 1), "", text)], hint=kind.begin)
    reader = _Reader(yaml, Document(file, {}))
    data = reader.read(root, ())
    if reader.problems:
        raise InvalidFile(reader.problems)
    reader.document.data = data
    return reader.document


class _TooMuch(MarkedYAMLError):
    """The file has more values, or deeper nesting, than any sensible experiment."""


class _Composer(Composer):
    """Composes nodes, and counts them with all copies by aliases."""

    def __init__(self, values_max: int, loader: Any) -> None:
        super().__init__(loader)
        self.values, self.values_max = 0, values_max
        self.has_aliases = False
        self.nesting = 0
        self.sizes: dict[int, int] = {}  # values of a node, by its id

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.parser.peek_event().start_mark
        is_alias = self.parser.check_event(AliasEvent)
        before = self.values
        self.values += 1
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise _TooMuch(problem=f"nested more than {NESTING_MAX} deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.nesting -= 1
        if is_alias:
            self.has_aliases = True
            self.values += self.sizes.get(id(node), 1) - 1
        else:
            self.sizes[id(node)] = self.values - before
        if self.values > self.values_max:
            of_aliases = ", with a copy for each alias (*)" if self.has_aliases else ""
            text = f"more than {self.values_max:,} values{of_aliases}"
            raise _TooMuch(problem=text, problem_mark=mark)
        return node


def _syntax_problem(error: MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
    what = " ".join(str(part) for part in (error.context, error.problem) if part)
    # The scanner's own words for the commonest slips do not say what to change.
    advice = {
        "found character '\\t'": "; indent with spaces",
        "mapping values are not allowed": "; quote the text, or check the indentation",
        "could not find expected ':'": "; a key needs a colon and a space after it",
        "found unexpected end of stream": "; a quote or bracket is not closed",
    }
    more = next((text for sign, text in advice.items() if sign in what), "")
    kind = "" if isinstance(error, _TooMuch) else "YAML syntax: "
    return Problem(file, place, "", f"{kind}{what}{more}")


class _Reader:
    """Nodes to data; collects every duplicate and unusable key instead of the first."""

    def __init__(self, yaml: YAML, document: Document) -> None:
        self.constructor = yaml.constructor
        self.document = document
        self.problems: list[Problem] = []
        self.open: set[int] = set()  # collections being read, by id
        self.merging: set[int] = set()  # mappings being merged, by id

    def read(self, node: Node, path: Path) -> Any:
        self.document.values[path] = _place(node)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self.open:
            self._wrong(node, path, "an alias (*) points back into what it is part of")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
        finally:
            self.open.remove(id(node))

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        self.document.text[path] = node.value
        if node.tag == _TIMESTAMP:
            return node.value
        try:
            value = self.constructor.construct_object(node, deep=True)
        except _UNREADABLE as error:
            why = getattr(error, "problem", error)
            if isinstance(error, LookupError):  # which says nothing to a reader
                why = f"{node.value!r} is no {str(node.tag).rpartition(':')[2]}"
            self._wrong(node, path, f"cannot be read: {why}")
            return None
        if isinstance(value, bytes):
            self._wrong(node, path, "is binary; write text or a number")
            return None
        if isinstance(value, str) and self._has_half(node, path):
            return None
        if isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
            self._wrong(node, path, f"a whole number has at most {_INT_BITS_MAX} bits")
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self._wrong(node, path, f"{node.value} is not a finite number")
            return None
        return value

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                pairs = self._merged(value, path)
                merged.update((k.value, (k, v)) for k, v in pairs if self._is_key(k, path))
                continue
            if not self._is_key(key, path):
                continue
            if key.value in result:
                first = self.document.keys[*path, key.value]
                self._wrong(key, (*path, key.value), f"given twice; first in line {first.line}")
                continue
            self.document.keys[*path, key.value] = _place(key)
            result[key.value] = self.read(value, (*path, key.value))
        for name, (key, value) in merged.items():
            if name not in result:
                self.document.keys[*path, name] = _place(key)
                result[name] = self.read(value, (*path, name))
        return result

    def _merged(self, node: Node, path: Path) -> Iterator[tuple[Node, Node]]:
        """Pairs of a merge key (`<<: *defaults`); earlier mappings of a list win."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        for source in reversed(sources):
            if not isinstance(source, MappingNode):
                self._wrong(node, path, "<< needs a mapping, or a list of mappings")
                continue
            if id(source) in self.merging:
                self._wrong(node, path, "<< points back into what it is part of")
                continue
            self.merging.add(id(source))
            for key, value in source.value:
                if key.tag == _MERGE:
                    yield from self._merged(value, path)
            self.merging.remove(id(source))
            yield from ((k, v) for k, v in source.value if k.tag != _MERGE)

    def _is_key(self, node: Node, path: Path) -> bool:
        if not isinstance(node, ScalarNode):
            self._wrong(node, path, "a key must be a word, not a list or mapping")
            return False
        return not self._has_half(node, path)

    def _has_half(self, node: ScalarNode, path: Path) -> bool:
        """Refuse text that no file or table can hold: escapes can make halves of characters."""
        found = any("\ud800" <= c <= "\udfff" for c in node.value)
        if found:
            self._wrong(node, path, "text holds half a character (\\ud800 to \\udfff)")
        return found

    def _wrong(self, node: Node, path: Path, message: str) -> None:
        self.problems.append(Problem(self.document.file, _place(node), show_path(path), message))


def _place(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
