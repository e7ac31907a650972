# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads a result folder, whole or broken off, into one value.

The layout is told in docs/results.md.  A folder may be half written (the run was
interrupted), older than a file that is expected now, or damaged: whatever can be
read is, and every gap becomes a remark that the report shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath import foreign, units
from datapath.errors import LocalError
from datapath.experiment import resumed
from datapath.experiment.axes import RESULT_COLUMNS, TABLE_COLUMNS
from datapath.experiment.document import BYTES_MAX, Spelled, parse
from datapath.experiment.resolved import spell
from datapath.experiment.store import damage

if TYPE_CHECKING:
    import pandas as pd

NOT_VARIED = "–"
"""Value of an axis in a point that was included without it."""


@dataclass
class Failure:
    """A run without a valid result. `logs` is relative to the result folder."""

    point: str
    repetition: int
    axes: dict[str, str]
    reason: str
    hint: str
    logs: str


@dataclass
class ResultFolder:
    """Everything the report needs, read once.

    frame: tidy rows with the columns of RESULT_COLUMNS and one per axis; axis values
    are strings.  claims is None when no claims.json is there.
    records: the runs/*.json files that could be read, sorted by name.
    remarks: gaps that a reader must know of, plain text.
    """

    path: Path
    frame: pd.DataFrame
    axes: list[str]
    resolved: dict[str, Any]
    resolved_text: str
    manifest: dict[str, Any]
    claims: list[dict[str, Any]] | None
    records: list[dict[str, Any]]
    failures: list[Failure]
    remarks: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.resolved.get("name") or self.path.resolve().name)

    @property
    def description(self) -> str:
        return str(self.resolved.get("description") or "").strip()

    @property
    def seed(self) -> int:
        seed = self.resolved.get("seed", 0)
        return seed if isinstance(seed, int) else 0

    @property
    def sweep(self) -> dict[str, Any]:
        return mapping(self.resolved.get("sweep"))

    @property
    def report(self) -> dict[str, Any]:
        return mapping(self.resolved.get("report"))

    @property
    def runs_done(self) -> int:
        """Runs that came to an end, well or not."""
        return len(self.frame.drop_duplicates(["point", "repetition"]))

    @property
    def runs_planned(self) -> int:
        """Runs that the sweep is made of; 0 when the manifest does not say."""
        return _int(self.manifest.get("runs_planned"))

    @property
    def interval_ns(self) -> int:
        """Time from one sample of series to the next, as collect has it; 0: not known."""
        told = mapping(self.resolved.get("collect")).get("interval")
        try:
            return units.parse_duration_ns(axis_text(told))
        except ValueError:
            return 0

    @property
    def baseline(self) -> dict[str, list[str]]:
        """Axis -> values of the points that others are compared with; empty if none."""
        wanted = mapping(self.sweep.get("baseline"))
        return {
            str(axis): [axis_text(v) for v in sequence(value)] or [axis_text(value)]
            for axis, value in wanted.items()
            if str(axis) in self.axes
        }

    def axis_values(self, axis: str) -> list[str]:
        """Values of an axis in the order of the experiment file, then as they came."""
        seen = [str(v) for v in self.frame[axis].unique()]
        matrix = mapping(self.sweep.get("matrix"))
        listed = [axis_text(v) for v in sequence(matrix.get(axis))]
        return [v for v in listed if v in seen] + [v for v in seen if v not in listed]


def mapping(value: object) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return dict(value) if isinstance(value, Mapping) else {}


def sequence(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []


def axis_text(value: object) -> str:
    """An axis value as runs.parquet spells it: a named value by its label, others as in YAML."""
    if isinstance(value, Mapping):
        if "label" in value:
            return axis_text(value["label"])
        return "{" + ", ".join(f"{key}: {axis_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(axis_text, value)) + "]"
    if isinstance(value, Spelled):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def read(result_folder: Path) -> ResultFolder:
    """Read a result folder; LocalError when the path is not one."""
    path = Path(result_folder)
    _check(path)
    remarks: list[str] = []
    resolved, resolved_text = _resolved(path, remarks)
    manifest = _json(path / "manifest.json", remarks)
    records = _records(path, remarks)
    frame = _frame(path, records, remarks)
    axes = [c for c in frame.columns if c not in RESULT_COLUMNS]
    result = ResultFolder(
        path=path,
        frame=frame,
        axes=axes,
        resolved=resolved,
        resolved_text=resolved_text,
        manifest=mapping(manifest),
        claims=_claims(path, remarks),
        records=records,
        failures=_failures(path, frame, axes, records),
        remarks=remarks,
    )
    _remark_on_progress(result)
    remarks += resumed.differences(result.manifest)
    return result


def _check(path: Path) -> None:
    from datapath.experiment.revisions import is_comparison

    if not path.is_dir():
        raise LocalError(
            f"{path} is not a folder", hint="name a result folder; `dpctl list` shows them"
        )
    marks = ("runs.parquet", "resolved.yaml", "manifest.json", "runs")
    if not any((path / mark).exists() for mark in marks):
        if is_comparison(path):
            raise LocalError(
                f"{path} is not a result folder: it is that of a comparison",
                hint=f"dpctl compare {path}; of a single block: {path}/A-0",
            )
        raise LocalError(
            f"{path} is not a result folder: it has none of {', '.join(marks)}",
            hint="name a folder that `dpctl run` wrote, such as results/quickstart-<date>",
        )


def _resolved(path: Path, remarks: list[str]) -> tuple[dict[str, Any], str]:
    """resolved.yaml, else the experiment file as it was written, as (data, text)."""
    for name in ("resolved.yaml", "experiment.yaml"):
        file = path / name
        if not file.is_file():
            remarks.append(f"{name} is missing.")
            continue
        try:
            text = foreign.read_bytes(file, BYTES_MAX).decode("utf-8", "replace")
            document = parse(text, name)
        except (OSError, LocalError) as error:
            remarks.append(f"{name} cannot be read: {first_line(error)}")
            continue
        if document.data:
            spell(document, document.data)
            return document.data, text
        remarks.append(f"{name} cannot be read: it is not an experiment.")
    return {}, ""


def _json(file: Path, remarks: list[str], *, needed: bool = True) -> Any:
    if not file.is_file():
        if needed:
            remarks.append(f"{file.name} is missing.")
        return None
    try:
        return _encodable(foreign.read_json(file))
    except (OSError, ValueError) as error:
        remarks.append(f"{file.name} cannot be read: {first_line(error)}")
        return None


def _encodable(data: Any) -> Any:
    """The data with escapes for halves of characters, which JSON may hold but no table may."""
    if isinstance(data, dict):
        return {_encodable(key): _encodable(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_encodable(value) for value in data]
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    return data


def _records(path: Path, remarks: list[str]) -> list[dict[str, Any]]:
    records = []
    for file in sorted((path / "runs").glob("*.json")):
        before = len(remarks)
        record = _json(file, remarks)
        if why := damage(record, file.stem):
            if len(remarks) == before:
                remarks.append(f"{file.name} is damaged and left out: {why}.")
        else:
            records.append(record)
    return records


def _claims(path: Path, remarks: list[str]) -> list[dict[str, Any]] | None:
    claims = _json(path / "claims.json", remarks, needed=False)
    if claims is None:
        return None
    if isinstance(claims, Mapping):
        claims = claims.get("claims", [])
    return [mapping(claim) for claim in sequence(claims)]


def _frame(path: Path, records: list[dict[str, Any]], remarks: list[str]) -> pd.DataFrame:
    """runs.parquet, or the same table from the records of the finished runs."""
    import pandas as pd

    file = path / "runs.parquet"
    frame = pd.DataFrame()
    if file.is_file():
        try:
            frame = foreign.read_table(file)
        except (OSError, ValueError) as error:
            remarks.append(f"runs.parquet cannot be read: {first_line(error)}")
    if _began_later(records, frame):
        remarks.append(
            "runs.parquet lacks the last runs: the sweep was resumed and did not come to its end. "
            "What follows is from all runs that finished (runs/*.json); claims are those of before."
        )
        frame = pd.DataFrame()
    if frame.empty and records:
        if not file.is_file():
            remarks.append(
                "runs.parquet is missing: the sweep did not come to its end. "
                "What follows is from the runs that finished (runs/*.json)."
            )
        frame = pd.DataFrame([row for record in records for row in _rows(record)])
    elif frame.empty:
        remarks.append("No run has finished: there is nothing to show yet.")
    return _normalise(frame)


def _began_later(records: list[dict[str, Any]], frame: pd.DataFrame) -> bool:
    """Whether a run began after all those of the table."""
    import pandas as pd

    def newest(started: pd.Series) -> Any:
        return pd.to_datetime(started, utc=True, format="ISO8601", errors="coerce").max()

    if frame.empty or "started" not in frame:
        return False
    runs = pd.Series([str(record.get("started")) for record in records], dtype="object")
    return bool(newest(runs) > newest(frame["started"]))


def _rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tidy rows of one finished run; one row without a metric for a failed one."""
    common = {
        **{str(k): axis_text(v) for k, v in mapping(record.get("axes")).items()},
        **{key: record.get(key) for key in RESULT_COLUMNS if key in record},
    }
    metrics = [mapping(m) for m in sequence(record.get("metrics"))] or [{}]
    return [
        {
            **common,
            "metric": metric.get("name", metric.get("metric")),
            "value": metric.get("value"),
            "unit": metric.get("unit"),
        }
        for metric in metrics
    ]


def _normalise(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns that must be there are, with the types that the rest relies on."""
    import pandas as pd

    # Axes that no sweep may have today.
    frame = frame.rename(columns={name: f"{name}_axis" for name in TABLE_COLUMNS})
    frame = frame.loc[:, ~frame.columns.duplicated()].copy()
    defaults = {"point": "", "status": "ok", "unit": ""}
    for column in RESULT_COLUMNS:
        if column not in frame:
            frame[column] = defaults.get(column)
    for column in ("block", "repetition"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce").fillna(0).astype("int64")
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce").astype("float64")
    frame["seconds"] = pd.to_numeric(frame["seconds"], errors="coerce").astype("float64")
    frame["point"] = frame["point"].astype(str)
    frame["status"] = frame["status"].fillna("ok").astype(str)
    frame["unit"] = frame["unit"].fillna("").astype(str)
    for axis in [c for c in frame.columns if c not in RESULT_COLUMNS]:
        text = frame[axis].astype(object)
        frame[axis] = text.where(text.notna(), NOT_VARIED).map(axis_text)
    return frame


def _failures(
    path: Path, frame: pd.DataFrame, axes: list[str], records: list[dict[str, Any]]
) -> list[Failure]:
    """One entry for each failed run, with its reason where a record tells it."""
    told = {(str(r.get("point")), _int(r.get("repetition"))): r for r in records}
    failed = frame[frame["status"] != "ok"].drop_duplicates(["point", "repetition"])
    failures = []
    for row in failed.to_dict("records"):
        point, repetition = str(row["point"]), int(row["repetition"])
        record = told.get((point, repetition), {})
        error = record.get("error", record.get("reason"))
        details = mapping(error)
        logs = f"logs/{point}-{repetition}"
        failures.append(
            Failure(
                point=point,
                repetition=repetition,
                axes={axis: str(row[axis]) for axis in axes},
                reason=str(details.get("message") or error or "no reason was recorded"),
                hint=str(details.get("hint") or record.get("hint") or ""),
                logs=logs if (path / logs).is_dir() else "",
            )
        )
    return failures


def _remark_on_progress(result: ResultFolder) -> None:
    """Say so when fewer points are here than the file has, or fewer runs than were planned."""
    if mapping(result.sweep.get("only")):
        result.remarks.append(
            "Part of the experiment: sweep.only chose the points; claims about others are left out."
        )
    done, planned = result.runs_done, result.runs_planned
    if 0 < done < planned:
        result.remarks.append(
            f"Partial result: {done} of {planned} runs are here; "
            "`dpctl run --resume` completes the folder."
        )


def _int(value: object) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return 0


def first_line(error: object) -> str:
    """The first line of an error's text, which is what fits in a remark."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
