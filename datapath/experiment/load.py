# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads an experiment file and says everything that is wrong with it at once, with places.

    file:line:column: path.to.key: what was meant

The file is checked whole: syntax, keys and values against the models, every point that its
sweep makes, the axes and values that selectors name, metrics and bounds of claims, and the
files that it refers to.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from datapath import foreign
from datapath.cc.spec import Cc
from datapath.errors import DatapathError, LocalError
from datapath.experiment import networks, twins
from datapath.experiment.axes import Axis, read_axes
from datapath.experiment.document import (
    BYTES_MAX,
    EXPERIMENT,
    TOLD_MAX,
    Document,
    InvalidFile,
    Kind,
    Place,
    Problem,
    parse,
    show_path,
)
from datapath.experiment.explain import explain
from datapath.experiment.report_section import Selectors, read_report, sides
from datapath.experiment.resolved import resolve
from datapath.experiment.schema import Schema
from datapath.experiment.spec import SECTIONS, Experiment, PointSpec, json_schema
from datapath.experiment.sweep import Point, RawPoint, expand, matches, point_key
from datapath.places import Path
from datapath.spelling import close_match, or_rather
from datapath.units import HAND_WRITTEN
from datapath.verbs.spec import QP_ATTRIBUTE_DEVICES, TCP_DEVICES
from datapath.workloads import REGISTRY

if TYPE_CHECKING:
    from datapath.cc.algorithm import Algorithm

_HINT = "correct the file; `dpctl schema` prints the format, docs/experiment-file.md explains it"
_Model = TypeVar("_Model", bound=BaseModel)
_INCOMPLETE = ("missing", "union_tag_not_found")


@dataclass(frozen=True)
class LoadedExperiment:
    """A valid file: its models, its points, and its source.

    source: the file; paths in it are relative to its folder.
    text: its content, byte for byte; overrides: `--set` arguments, in order.
    resolved: the whole experiment as plain data, as datapath.experiment.resolved makes it.
    selectors: `where` and `ratio_to` of claim i, as axis -> texts.
    """

    source: FilePath
    text: str
    overrides: tuple[str, ...]
    spec: Experiment
    resolved: dict[str, Any]
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    selectors: tuple[Selectors, ...]

    @property
    def folder(self) -> FilePath:
        return self.source.parent


def load(source: FilePath, overrides: Sequence[str] = ()) -> LoadedExperiment:
    """Read and check an experiment file; InvalidFile (with all problems) or LocalError."""
    return load_text(read_experiment(source), source, overrides)


def read_experiment(source: FilePath, kind: Kind = EXPERIMENT) -> str:
    """The text of an experiment file, or of another kind; LocalError when it cannot be read."""
    try:
        return foreign.read_bytes(source, BYTES_MAX).decode()
    except FileNotFoundError:
        raise LocalError(
            f"{source}: no such file", hint=_suggest_file(source) or f"name {kind.file}"
        ) from None
    except IsADirectoryError:
        hint = kind.instead_of_folder.format(source)
        raise LocalError(f"{source} is a folder", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LocalError(f"{source}: cannot be read: {_why(error)}") from None


def load_text(
    text: str, source: FilePath, overrides: Sequence[str] = (), *, file: FilePath | None = None
) -> LoadedExperiment:
    """As `load`, for text that is already here; paths in it are relative to `source`.

    file: that the text was read from, if it was another one; messages name it.
    """
    document = parse(text, str(file or source))
    for override in overrides:
        _override(document, override)
    return _Loader(document, text, source, tuple(overrides)).load()


def load_model(
    source: FilePath, model: type[_Model], kind: Kind, hint: str
) -> tuple[_Model, Document]:
    """A file of another kind, read and checked as experiments are, and its places.

    hint: for one with mistakes in it.
    """
    document = parse(read_experiment(source, kind), str(source), kind)
    try:
        return model.model_validate(document.data, context=dict(HAND_WRITTEN)), document
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = explain(
        details,
        document.data,
        Schema(model.model_json_schema),
        lambda path, message, of_key: document.problem(path, message, of_key=of_key),
    )
    raise InvalidFile(problems, hint=hint)


def _why(error: OSError | ValueError) -> str:
    """Why a file cannot be read, in few words."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def _suggest_file(source: FilePath) -> str:
    folder = source.parent
    known = [p.name for p in folder.glob("*.y*ml")] if folder.is_dir() else []
    match = close_match(source.name, known)
    return f"did you mean {folder / match}?" if match else ""


def _override(document: Document, override: str) -> None:
    """Apply `--set path=value` to a document; the value is YAML."""
    label = f"--set {override}"
    nowhere = Place(0, 0)
    dotted, equals, value = override.partition("=")
    if not equals or not dotted:
        problem = Problem(label, nowhere, "", "write --set path.to.key=value")
        raise InvalidFile([problem], hint="for example --set path.loss=1%")
    part = parse(f"value: {value}", label)
    target: Any = document.data
    steps = tuple(dotted.split("."))
    for depth, step in enumerate(steps[:-1]):
        inner = target.setdefault(step, {})
        if not isinstance(inner, dict):
            where = show_path(steps[: depth + 1])
            text = f"{where} is {inner!r}, so nothing can be set inside it"
            raise InvalidFile([Problem(label, nowhere, where, text)])
        target = inner
    target[steps[-1]] = part.data["value"]
    document.replace(steps, part, label)


class _Loader:
    """One reading of one file; collects problems until the end."""

    def __init__(
        self, document: Document, text: str, source: FilePath, overrides: tuple[str, ...]
    ) -> None:
        self.document = document
        self.text = text
        self.source = source
        self.overrides = overrides
        self.schema = _schema()
        self.problems: list[Problem] = []
        self.axes: list[Axis] = []
        self.selectors: list[Selectors] = []
        self.kept: list[int] = []  # claims that `only` leaves
        self.read: set[tuple[str, tuple[str, ...]]] = set()
        self.tried: set[tuple[str, int]] = set()
        self.digests: dict[FilePath, str] = {}

    def load(self) -> LoadedExperiment:
        spec, incomplete = self._sections()
        points: list[Point] = []
        if spec is not None:
            self.axes = read_axes(self.document, self.schema, self.problems)
            points = self._points(spec.sweep.repetitions)
            self.selectors = read_report(self.document, self.axes, spec, points, self.problems)
            self._leave_out_claims(spec, points)
        if not points:
            self.problems += incomplete
        if self.problems or spec is None:
            raise InvalidFile(self.problems, hint=_HINT)
        return LoadedExperiment(
            source=self.source,
            text=self.text,
            overrides=self.overrides,
            spec=spec,
            resolved=resolve(self.document, spec, self.kept),
            axes=tuple(self.axes),
            points=tuple(points),
            selectors=tuple(self.selectors),
        )

    def _sections(self) -> tuple[Experiment | None, list[Problem]]:
        """Validate the file as it stands: (models, what its sections still lack).

        A section may leave out what every point gets from the sweep, so such gaps are told
        only when no point is complete.  None when the sweep itself cannot be read.
        """
        data = dict(self.document.data)
        try:
            return Experiment.model_validate(data, context=self._context()), []
        except ValidationError as error:
            details = error.errors(include_url=False)
        gaps = [d for d in details if d["type"] in _INCOMPLETE and d["loc"][0] in SECTIONS]
        incomplete = explain(gaps, self.document.data, self.schema, self._locate)
        rest = [d for d in details if d not in gaps]
        self.problems += explain(rest, self.document.data, self.schema, self._locate)
        for section in {str(d["loc"][0]) for d in details if d["loc"]}:
            data.pop(section, None)
        data = {k: v for k, v in data.items() if k in Experiment.model_fields}
        sweep = self.document.data.get("sweep", {})
        wrong = {d["loc"][1] for d in rest if d["loc"][:1] == ("sweep",) and d["loc"][1:]}
        if not isinstance(sweep, dict) or "matrix" in wrong:
            return None, incomplete
        if wrong:  # the rest is checked without them, also where the document itself is read
            data["sweep"] = {key: value for key, value in sweep.items() if key not in wrong}
            self.document.data["sweep"] = data["sweep"]
        stand_in = {"version": 1, "name": "unnamed"} | data
        return Experiment.model_validate(stand_in, context=self._context()), incomplete

    def _context(self) -> dict[str, Any]:
        """How the file is validated: units are required, and file names begin beside it."""
        return {**HAND_WRITTEN, "folder": str(self.source.parent)}

    def _locate(self, path: Path, message: str, of_key: bool) -> Problem:
        return self.document.problem(path, message, of_key=of_key)

    # --- points ---

    def _points(self, repetitions: int) -> list[Point]:
        raw_points = expand(self.document, self.schema, self.axes, repetitions, self.problems)
        if self.problems:
            self._check_quietly(raw_points)
            return []
        points = []
        for raw in raw_points:
            if len(self.problems) > TOLD_MAX:
                break
            spec = self._validate(raw)
            if spec is not None:
                self._check_workload(raw, spec)
                files = self._files(raw, spec)
                self._check_data(raw, spec, files)
                for place, cc in spec.algorithms.items():
                    self._check_cc(raw, cc, place)
                self._check_tcp(raw, spec)
                for place, error in networks.mistakes(spec):
                    self._add(raw.source_of(place), _with_hint(error))
                self._check_code(raw, spec)
                points.append(Point(point_key(spec, raw.axes, files), raw.axes, spec))
        self._check_twins(raw_points, points)
        return points if not self.problems else []

    def _check_twins(self, raw_points: Sequence[RawPoint], points: Sequence[Point]) -> None:
        """Simulated points that wake as a live one need one."""
        for point in () if self.problems else points:
            if not twins.wants_twin(point.spec):
                continue
            try:
                twins.twin_of(point.spec, points)
            except ValueError as error:
                raw = next(raw for raw in raw_points if raw.axes == point.axes)
                self._add(raw.source_of(("topology", "wakeup")), str(error))

    def _check_quietly(self, raw_points: Iterable[RawPoint]) -> None:
        """Add the mistakes in points too if the sweep itself has mistakes."""
        for raw in raw_points:
            if len(self.problems) > TOLD_MAX:
                return
            spec = self._validate(raw, gaps=False)
            for place, cc in spec.algorithms.items() if spec is not None else ():
                self._check_cc(raw, cc, place)

    def _validate(self, raw: RawPoint, *, gaps: bool = True) -> PointSpec | None:
        def locate(path: Path, message: str, of_key: bool) -> Problem:
            source = raw.source_of(path)
            if source == path and not path[1:] and path[0] not in self.document.data:
                message += "; give it in the file or in every value of an axis"
            return self.document.problem(source, message, of_key=of_key)

        try:
            return PointSpec.model_validate(raw.data, context=self._context())
        except ValidationError as error:
            details = [
                d for d in error.errors(include_url=False) if gaps or d["type"] not in _INCOMPLETE
            ]
            found = explain(details, raw.data, self.schema, locate)
            self.problems += [problem for problem in found if problem not in self.problems]
            return None

    def _check_workload(self, raw: RawPoint, spec: PointSpec) -> None:
        """A workload drives a verbs device or kernel sockets, and sets what it can of QPs."""
        devices, device = REGISTRY[spec.kind].devices, spec.transport.device
        if device not in devices:
            where = ", ".join(f"{axis}={value}" for axis, value in raw.axes.items())
            text = f"{spec.kind} cannot use transport.device {device}, only {', '.join(devices)}"
            text += f" (in the point {where})" if where else ""
            self._add(raw.source_of(("workload", "kind")), text)
            return
        for key in spec.transport.qp_attributes():
            text = ""
            if device not in QP_ATTRIBUTE_DEVICES:
                text = f"device {device} has no {key}, only {', '.join(QP_ATTRIBUTE_DEVICES)} have"
            elif key not in REGISTRY[spec.kind].qp_attributes:
                able = [n for n, other in REGISTRY.items() if key in other.qp_attributes]
                text = f"workload {spec.kind} cannot set {key}; these can: {', '.join(able)}"
            if text:
                self._add(raw.source_of(("transport", key)), text, of_key=True)

    def _files(self, raw: RawPoint, spec: PointSpec) -> dict[str, str]:
        """Digests of the files that a point names; a missing one is a problem."""
        code: dict[Path, str | None] = {**spec.code, ("cc", "tcp"): spec.cc.tcp_file}
        if spec.xdp is not None:
            code["xdp", "source"] = spec.xdp.source
        files = {at: self._beside(name) for at, name in code.items() if name}
        files |= {at: self.source.parent / name for at, name in spec.data.items()}
        digests = {}
        for path, file in files.items():
            try:
                if file not in self.digests:
                    self.digests[file] = hashlib.sha256(foreign.read_bytes(file)).hexdigest()
                digests[show_path(path)] = self.digests[file]
            except (OSError, ValueError) as error:
                text = f"{file}: {_why(error)}; paths are relative to the experiment file"
                self._add(raw.source_of(path), text)
        return digests

    def _beside(self, name: str) -> FilePath:
        return foreign.beside(self.source.parent, name)

    def _check_data(self, raw: RawPoint, spec: PointSpec, digests: Mapping[str, str]) -> None:
        """The content of the workload's files, once for points that have the same."""
        hosts = spec.topology.host_names
        key = (spec.workload.model_dump_json(), tuple(hosts))
        if any(show_path(path) not in digests for path in spec.data) or key in self.read:
            return  # one is missing, which is told already
        self.read.add(key)
        found = spec.of_workload.mistakes(self.source.parent, hosts)
        for place, wrong in found.items():
            for text in wrong:
                self._add(raw.source_of(("workload", *place)), text)

    def _check_cc(self, raw: RawPoint, cc: Cc, place: Path) -> None:
        """The algorithm has to exist and to take the parameters.  Only a run compiles it."""
        if cc.file is not None and not foreign.is_file(self._beside(cc.file)):
            return  # told already
        try:
            algorithm = _algorithm(cc.located(self.source.parent))
        except LocalError as error:
            self._add(raw.source_of((*place, "algo")), _with_hint(error))
            return
        known = {field.name: field for field in algorithm.params}
        for name, value in cc.params.items():
            section: Any = raw.data
            for step in place:
                section = section[step]
            beside = (name,) if name in section else ("params", name)
            path = raw.source_of((*place, *beside))
            if name not in known:
                more = or_rather(name, list(known), "it has")
                text = f"{algorithm.name} has no parameter {name!r}{more}"
                self._add(path, text, of_key=True)
                continue
            try:
                known[name].checked(value, name)
            except LocalError as error:
                self._add(path, _with_hint(error))

    def _check_code(self, raw: RawPoint, spec: PointSpec) -> None:
        """The algorithm of the workload itself: its parameters, and code of the user's own."""
        workload, hosts = spec.of_workload, len(spec.topology.host_names)
        code, tried = workload.code(), (workload.model_dump_json(), hosts)
        there = all(foreign.is_file(self._beside(name)) for name in code.values())
        if not there or tried in self.tried:
            return  # what is not there is told already
        self.tried.add(tried)
        try:
            workload.check_code(self.source.parent, hosts)
        except LocalError as error:
            place = next(iter(code), ("algorithm",))
            self._add(raw.source_of(("workload", *place)), _with_hint(error))

    def _check_tcp(self, raw: RawPoint, spec: PointSpec) -> None:
        """The kernel's TCP carries the kernel's sockets and siw, and no other device."""
        device = spec.transport.device
        if spec.cc.tcp is not None and device not in TCP_DEVICES:
            text = f"device {device} does not run over TCP, only {', '.join(TCP_DEVICES)} do"
            self._add(raw.source_of(("cc", "tcp")), text, of_key=True)

    def _add(self, path: Path, text: str, *, of_key: bool = False) -> None:
        problem = self.document.problem(path, text, of_key=of_key)
        if problem not in self.problems:
            self.problems.append(problem)

    def _leave_out_claims(self, spec: Experiment, points: Sequence[Point]) -> None:
        """With `only`, claims about points that it leaves out are none of this experiment."""
        claims = spec.report.expect
        self.kept = [
            index
            for index, (claim, selectors) in enumerate(zip(claims, self.selectors, strict=True))
            if not spec.sweep.only
            or all(
                any(matches(where, point.axes) for point in points)
                for where in sides(claim, selectors)
            )
        ]
        spec.report.expect = [claims[index] for index in self.kept]
        self.selectors = [self.selectors[index] for index in self.kept]


@functools.cache
def _schema() -> Schema:
    return Schema(json_schema)


@functools.cache
def _algorithm(name: str) -> Algorithm:
    from datapath import cc

    return cc.load(name)


def _with_hint(error: DatapathError) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)
