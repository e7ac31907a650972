# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The result folder, in which no half-written file ever counts.

    experiment.yaml   the file as it was, byte for byte       written before the first run
    resolved.yaml     with every default filled in            written before the first run
    manifest.json     machine, versions, seeds, points        written before the first run
    events.ndjson     what happened when, appended            during
    runs/P-R.json     one finished run: point P, repetition R during, by rename
    samples/P-R.parquet, series/P-R.parquet, logs/P-R/        during
    runs.parquet, claims.json, report.html                    at the end, from runs/

A run counts when its runs/*.json is there.  A process that writes holds a lock on the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.resolver import VersionedResolver

from datapath import foreign, strict_json
from datapath.disk import disk_errors, write_atomic
from datapath.errors import DatapathError, LocalError
from datapath.experiment.axes import COLUMNS_BEFORE, COLUMNS_BEHIND
from datapath.experiment.document import Spelled
from datapath.experiment.lock import LOCK, is_being_written, locked

if TYPE_CHECKING:
    import pandas as pd

    from datapath.experiment.sweep import Run


@dataclass
class RunRecord:
    """One finished run, as it stands in runs/*.json.

    axes: axis -> value as the user wrote it.  started: UTC, ISO 8601.
    metrics: [{name, value, unit}].  error: {message, hint} of a failed run.
    path_counters: counter -> direction -> packets.  xdp_maps: map -> entries at the end.
    emulator_late_ns: as lanes.base.Network has it.  cards: counters of virtual cards, likewise.
    device: statistics that the verbs front left, one entry per process and device.
    series: what was collected over time: rows, rows_left_out, flows_left_out, and absent,
    which gives the reason for each series that was asked for and is not there.
    """

    point: str
    repetition: int
    block: int
    axes: dict[str, str]
    seed: int
    status: str
    started: str
    seconds: float
    spec: dict[str, Any]
    metrics: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    error: dict[str, str] | None = None
    path_counters: dict[str, dict[str, int]] = field(default_factory=dict)
    emulator_late_ns: dict[str, int] = field(default_factory=dict)
    cards: list[dict[str, Any]] = field(default_factory=list)
    xdp_maps: dict[str, Any] = field(default_factory=dict)
    device: list[dict[str, Any]] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begun(cls, run: Run) -> RunRecord:
        """Of a run that begins now."""
        return cls(
            point=run.point.key,
            repetition=run.repetition,
            block=run.repetition,
            axes=dict(run.point.axes),
            seed=run.seed,
            status="ok",
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            seconds=0.0,
            spec=run.point.spec.model_dump(mode="json"),
        )

    @property
    def name(self) -> str:
        return f"{self.point}-{self.repetition}"

    @property
    def cpu_limit(self) -> str:
        """Why this machine's CPUs were too slow for the path or the programs; "": they were not."""
        return "; ".join(self.notes[key] for key in ("path", "cpu") if key in self.notes)


_BLOCK_BYTES = 65_536
"""Read at once from the end of a file."""

_PARTS = ("runs", "samples", "logs")
"""Folders that are there from the beginning."""

_NO_RUN = "its command was stopped before the first run"


def _holds_nothing(folder: Path) -> bool:
    """Whether it is empty, or as a command left it that was stopped before its first file."""
    entries = {entry.name: entry for entry in folder.iterdir()}
    if not entries:
        return True
    return (
        LOCK in entries
        and entries.keys() <= {LOCK, *_PARTS}
        and all(_is_empty(entry) for name, entry in entries.items() if name != LOCK)
    )


def _is_empty(folder: Path) -> bool:
    return not folder.is_symlink() and folder.is_dir() and not any(folder.iterdir())


def _without_a_run(folder: Path) -> bool:
    """Whether a command was stopped here before its manifest, and so before its first run."""
    written = ("manifest.json", "runs.parquet")
    return (
        foreign.is_file(folder / LOCK)
        and not any(foreign.is_file(folder / name) for name in written)
        and not any((folder / "runs").glob("*.json"))
        and not is_being_written(folder)
    )


def damage(data: Any, name: str) -> str:
    """Why this content of runs/NAME.json is not the record of a run; "": it is one."""
    if not isinstance(data, Mapping):
        return "it is not the record of a run"
    if (whose := f"{data.get('point')}-{data.get('repetition')}") != name:
        return f"it is the record of run {whose!r}"
    if not isinstance(data.get("axes"), Mapping):
        return "it has no axes"
    for key, (is_right, words) in _FACTS.items():
        if key in data and not is_right(data[key]):
            return f"its {key} is not {words}"
    metrics = data.get("metrics", [])
    if not isinstance(metrics, list) or not all(isinstance(each, Mapping) for each in metrics):
        return "its metrics are no list of metrics"
    return next(filter(None, map(_damage_of_metric, metrics)), "")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_whole(value) or isinstance(value, float)


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


_FACTS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "block": (_is_whole, "a whole number"),
    "repetition": (_is_whole, "a whole number"),
    "seconds": (_is_number, "a number"),
    "status": (lambda value: value in ("ok", "failed"), "ok or failed"),
    "started": (_is_time, "a time"),
}
"""By which runs are sorted and told apart in tables."""


def _damage_of_metric(metric: Mapping[str, Any]) -> str:
    from datapath.experiment.metrics import UNITS

    name, value, unit = metric.get("name"), metric.get("value", ""), metric.get("unit")
    if not isinstance(name, str):
        return "a metric has no name"
    if value is not None and not _is_number(value):
        return f"the value of {name} is not a number: {value!r}"
    if unit != UNITS.get(name, unit) or not isinstance(unit, str):
        return f"the unit of {name} is {unit!r}, not {UNITS.get(name, 'a text')!r}"
    return ""


def _whole_lines(file: BinaryIO) -> int:
    """Where the last whole line of a file ends."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        file.seek(begin)
        if (at := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + at + 1
        end = begin
    return 0


def to_json(data: Any) -> bytes:
    """A JSON file of a result folder."""
    return (strict_json.text(data, indent=1) + "\n").encode()


class _Representer(RoundTripRepresenter):
    """As ruamel's, and knows Spelled."""

    def spelled(self, part: Spelled) -> Any:
        tag = VersionedResolver().resolve(ScalarNode, part.text, (True, False))
        return self.represent_scalar(tag, part.text)


_Representer.add_representer(Spelled, _Representer.spelled)


def to_yaml(data: Mapping[str, Any]) -> bytes:
    """A YAML file of plain data, in which there may be Spelled."""
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.width = 100
    out = BytesIO()
    yaml.dump(dict(data), out)
    return out.getvalue()


class ResultStore:
    """A result folder that this process may write to; a context manager, for the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._events = path / "events.ndjson"
        self._lock = contextlib.ExitStack()
        self._entered = 0

    @classmethod
    def create(cls, path: Path | None, name: str) -> ResultStore:
        """A new folder: `path`, or results/<name>-<UTC stamp> with a number when taken."""
        if path is not None:
            with disk_errors(path):
                taken = path.exists() and not (path.is_dir() and _holds_nothing(path))
            if taken:
                more = f", or go on with it: --resume {path}" if cls.is_one(path) else ""
                more = f"; {_NO_RUN}: it may be deleted" if _without_a_run(path) else more
                raise LocalError(
                    f"{path} exists and is not an empty folder", hint=f"choose another --out{more}"
                )
            with disk_errors(path):
                path.mkdir(parents=True, exist_ok=True)
            return cls(path)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        for number in range(1, 1000):
            path = Path("results") / f"{name}-{stamp}{f'-{number}' if number > 1 else ''}"
            with disk_errors(path), contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
                return cls(path)
        raise LocalError(f"results/{name}-{stamp} and 1000 others exist")

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether it is a result folder, of a run that may go on."""
        return all(foreign.is_file(path / name) for name in ("experiment.yaml", "manifest.json"))

    @classmethod
    def existing(cls, path: Path) -> ResultStore:
        """A folder that an earlier run left."""
        if not cls.is_one(path):
            hint = "name a folder below results/ with experiment.yaml and manifest.json in it"
            if _without_a_run(path):
                hint = f"{_NO_RUN}: delete it, and start a new run"
            raise LocalError(f"{path} is not a result folder that can be resumed", hint=hint)
        return cls(path)

    def how_to_go_on(self) -> str:
        """After an interruption; one before the first run may have left nothing to resume."""
        if self.is_one(self.path):
            return f"go on with: dpctl run --resume {self.path}"
        return f"{self.path} may be deleted: {_NO_RUN}; start a new run"

    def __enter__(self) -> ResultStore:
        """Take the lock; its holder may enter again, and the last exit releases it."""
        self._entered += 1
        if self._entered == 1:
            try:
                self._take()
            except BaseException:
                self.__exit__()
                raise
        return self

    def _take(self) -> None:
        """Lock the folder, and remove the remains of broken-off writes."""
        with disk_errors(self.path):
            self._lock.enter_context(locked(self.path))
            for part in _PARTS:
                (self.path / part).mkdir(exist_ok=True)
            for leftover in [*self.path.glob(".*.tmp"), *self.path.glob("*/.*.tmp")]:
                leftover.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError), self._events.open("r+b") as file:
                file.truncate(_whole_lines(file))

    def __exit__(self, *exc: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._lock.close()

    # --- before ---

    def write(self, name: str, content: bytes) -> None:
        write_atomic(self.path / name, content)

    def read_manifest(self) -> dict[str, Any]:
        try:
            manifest = foreign.read_json(self.path / "manifest.json")
        except (OSError, ValueError) as error:
            raise LocalError(f"{self.path}/manifest.json cannot be read: {error}") from None
        if not isinstance(manifest, dict):
            raise LocalError(f"{self.path}/manifest.json is not a manifest")
        return manifest

    # --- during ---

    def event(self, what: str, **details: Any) -> None:
        """Append to events.ndjson."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = strict_json.text({"time": now, "event": what, **details})
        with disk_errors(self._events), self._events.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def logs(self, name: str) -> Path:
        """An empty folder for the logs of a run; removes those of a broken-off attempt."""
        path = self.path / "logs" / name
        with disk_errors(path):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        return path

    def save(
        self,
        record: RunRecord,
        samples: Mapping[str, Sequence[float]],
        series: pd.DataFrame | None = None,
    ) -> None:
        """Keep a finished run: samples and series first, the record that makes it count last."""
        if samples:
            path = self.path / "samples" / f"{record.name}.parquet"
            write_atomic(path, _samples_parquet(samples))
        if series is not None:
            path = self.path / "series" / f"{record.name}.parquet"
            with disk_errors(path.parent):
                path.parent.mkdir(exist_ok=True)
            write_atomic(path, _series_parquet(record.name, series))
        write_atomic(self.path / "runs" / f"{record.name}.json", to_json(asdict(record)))

    def records(self) -> list[RunRecord]:
        """All finished runs, by block and then in the order in which they were started."""
        records = []
        for path in sorted((self.path / "runs").glob("*.json")):
            try:
                data = foreign.read_json(path)
                if why := damage(data, path.stem):
                    raise ValueError(why)
                records.append(RunRecord(**data))
            except (OSError, ValueError, TypeError) as error:
                raise LocalError(
                    f"{path} is damaged: {error}", hint="remove it; --resume makes the run again"
                ) from None
        return sorted(records, key=lambda r: (r.block, r.started, r.point))

    # --- after ---

    def assemble(self, records: Sequence[RunRecord], axes: Sequence[str]) -> None:
        """Write runs.parquet: a row for each run and metric, one without metric if it failed."""
        import pandas as pd

        rows = [row for record in records for row in _rows(record)]
        columns = [*COLUMNS_BEFORE, *axes, *COLUMNS_BEHIND]
        frame = pd.DataFrame(rows, columns=columns)
        frame = frame.astype({"value": "float64", "seconds": "float64"})
        frame = frame.astype({"block": "int64", "repetition": "int64"})
        frame["started"] = pd.to_datetime(frame["started"], utc=True, format="ISO8601")
        for column in ("point", *axes, "status", "metric", "unit"):
            frame[column] = frame[column].astype("string")
        out = BytesIO()
        frame.to_parquet(out, index=False)
        self.write("runs.parquet", out.getvalue())


def _rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    common = {
        "point": record.point,
        "block": record.block,
        "repetition": record.repetition,
        **record.axes,
        "status": record.status,
        "started": record.started,
        "seconds": record.seconds,
    }
    if not record.metrics:
        yield {**common, "metric": None, "value": None, "unit": None}
    for metric in record.metrics:
        value = {"metric": metric["name"], "value": metric["value"], "unit": metric["unit"]}
        yield {**common, **value}


def _samples_parquet(samples: Mapping[str, Sequence[float]]) -> bytes:
    """A column for each kind of sample, NaN below the shorter ones."""
    import pandas as pd

    columns = {name: pd.Series(values, dtype="float64") for name, values in samples.items()}
    out = BytesIO()
    pd.DataFrame(columns).to_parquet(out, index=False)
    return out.getvalue()


def _series_parquet(run: str, series: pd.DataFrame) -> bytes:
    """The table of datapath.series behind the name of its run."""
    series = series.assign(run=run)[["run", *series.columns]].astype({"run": "category"})
    out = BytesIO()
    series.to_parquet(out, index=False, compression="zstd")
    return out.getvalue()


def error_entry(error: BaseException) -> dict[str, str]:
    """An error as a run's record keeps it."""
    hint = error.hint if isinstance(error, DatapathError) else ""
    message = str(error) if isinstance(error, DatapathError) else repr(error)
    return {"message": message, "hint": hint}
