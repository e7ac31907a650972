# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The result folder: atomic, locked, honest about a full disk."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from datapath.disk import DiskFull, write_atomic
from datapath.errors import LocalError
from datapath.experiment.store import ResultStore, RunRecord, to_json


def make(repetition: int, status: str = "ok") -> RunRecord:
    metrics = [{"name": "goodput", "value": 1e9 + repetition, "unit": "bit/s"}]
    return RunRecord(
        point="0123456789ab",
        repetition=repetition,
        block=repetition,
        axes={"path.loss": "1%"},
        seed=1,
        status=status,
        started="2025-01-01T00:00:00.000+00:00",
        seconds=0.5,
        spec={},
        metrics=metrics if status == "ok" else [],
    )


@contextmanager
def small_files() -> Iterator[None]:
    """Files of this process cannot grow beyond 4 KiB; pytest's own output is one of them."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_runs_come_back_and_become_a_tidy_table(tmp_path: Path) -> None:
    with ResultStore.create(tmp_path / "r", "x") as store:
        store.save(make(1, "failed"), {})
        store.save(make(0), {"latency_ns": [1.0, 2.0], "other": [3.0]})
        records = store.records()
        store.assemble(records, ["path.loss"])
    assert [record.repetition for record in records] == [0, 1]
    frame = pd.read_parquet(tmp_path / "r" / "runs.parquet")
    assert list(frame.columns) == [
        *("point", "block", "repetition", "path.loss"),
        *("status", "metric", "value", "unit", "started", "seconds"),
    ]
    assert frame["path.loss"].tolist() == ["1%", "1%"]
    assert frame["value"].dtype == "float64"
    assert frame.loc[frame["status"] == "failed", "metric"].isna().all()
    samples = pd.read_parquet(tmp_path / "r" / "samples" / "0123456789ab-0.parquet")
    assert samples["latency_ns"].tolist() == [1.0, 2.0]
    assert samples["other"].dropna().tolist() == [3.0]


def test_what_was_half_written_is_removed_and_never_counts(tmp_path: Path) -> None:
    with ResultStore.create(tmp_path / "r", "x") as store:
        text = json.dumps(asdict(make(0)))
        (store.path / "runs" / ".0123456789ab-0.json.77.tmp").write_text(text[:50])
    with ResultStore(tmp_path / "r") as store:
        assert store.records() == []
    assert list((tmp_path / "r" / "runs").iterdir()) == []


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        ResultStore.create(tmp_path / "r", "x") as store,
        pytest.raises(LocalError, match="being written by another dpctl"),
        ResultStore(store.path),
    ):
        pass


def test_a_used_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match="not an empty folder") as error:
        ResultStore.create(tmp_path, "x")
    assert error.value.hint == "choose another --out", "there is nothing to go on with"
    for name in ("experiment.yaml", "manifest.json"):
        (tmp_path / name).touch()
    with pytest.raises(LocalError, match="not an empty folder") as error:
        ResultStore.create(tmp_path, "x")
    assert error.value.hint.endswith(f"--resume {tmp_path}")


def test_a_folder_of_a_stop_before_the_first_file_is_taken(tmp_path: Path) -> None:
    """It has the lock and empty folders."""
    with ResultStore.create(tmp_path, "x"):
        with pytest.raises(LocalError, match="another dpctl"), ResultStore.create(tmp_path, "x"):
            pass
        with pytest.raises(LocalError, match="can be resumed") as error:
            ResultStore.existing(tmp_path)
        assert "delete" not in error.value.hint, "its command goes on"
    with pytest.raises(LocalError, match="can be resumed") as error:
        ResultStore.existing(tmp_path)
    assert "stopped before the first run: delete it" in error.value.hint
    with ResultStore.create(tmp_path, "x") as store:
        assert "may be deleted" in store.how_to_go_on()
        for name in ("experiment.yaml", "manifest.json"):
            store.write(name, b"{}")
        assert store.how_to_go_on() == f"go on with: dpctl run --resume {tmp_path}"


def test_a_folder_of_a_stop_before_the_manifest_may_be_deleted(tmp_path: Path) -> None:
    with ResultStore.create(tmp_path, "x") as store:
        store.write("experiment.yaml", b"version: 1")
    with pytest.raises(LocalError, match="not an empty folder") as error:
        ResultStore.create(tmp_path, "x")
    assert "stopped before the first run: it may be deleted" in error.value.hint


@pytest.mark.parametrize(
    "kept", ["runs/a-0.json", "logs/mine", "samples/x", "mine", "runs.parquet"]
)
def test_a_folder_with_anything_in_it_is_not_taken(tmp_path: Path, kept: str) -> None:
    with ResultStore.create(tmp_path, "x"):
        (tmp_path / kept).write_text("x")
    with pytest.raises(LocalError, match="not an empty folder"):
        ResultStore.create(tmp_path, "x")
    if kept.startswith("runs"):
        with pytest.raises(LocalError) as error:
            ResultStore.existing(tmp_path)
        assert "delete" not in error.value.hint, "runs are there"


def test_folders_of_one_second_get_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = {ResultStore.create(None, "x").path for _ in range(5)}
    assert len(made) == 5


def test_a_file_that_cannot_grow_is_told_and_left_as_it_was(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"old")
    with (
        small_files(),
        pytest.raises(DiskFull, match="would become larger than a file may be") as caught,
    ):
        write_atomic(tmp_path / "a", bytes(10_000))
    assert "ulimit -f" in caught.value.hint
    assert "--resume" in caught.value.hint
    assert caught.value.exit_code == 3
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]


def test_json_has_no_nan() -> None:
    assert json.loads(to_json({"a": [float("nan"), 1.5], "b": float("inf")})) == {
        "a": [None, 1.5],
        "b": None,
    }


@pytest.mark.parametrize("content", ["{", "[1]", '{"point": "a", "repetition": 0}'])
def test_a_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    with ResultStore.create(tmp_path / "r", "x") as store:
        (store.path / "runs" / "a-0.json").write_text(content)
        with pytest.raises(LocalError, match=r"a-0\.json is damaged"):
            store.records()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"block": "0"}, "its block is not a whole number"),
        ({"block": True}, "its block is not a whole number"),
        ({"repetition": "0"}, "its repetition is not a whole number"),
        ({"started": 5}, "its started is not a time"),
        ({"started": "yesterday"}, "its started is not a time"),
        ({"status": ["ok"]}, "its status is not ok or failed"),
        ({"seconds": "1"}, "its seconds is not a number"),
        ({"metrics": [{"name": "goodput", "unit": "bit/s"}]}, "the value of goodput is not a"),
    ],
)
def test_a_record_with_facts_of_another_kind_is_damaged(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    with ResultStore.create(tmp_path / "r", "x") as store:
        for repetition in (0, 1):
            store.save(make(repetition), {})
        file = store.path / "runs" / f"{make(0).name}.json"
        file.write_bytes(to_json(asdict(make(0)) | change))
        with pytest.raises(LocalError, match=rf"-0\.json is damaged: {said}"):
            store.records()


@pytest.mark.parametrize("half", ["", '{"time": "2025-', "x" * 200_000])
@pytest.mark.parametrize("before", ["", '{"event": "a"}\n{"event": "b"}\n'])
def test_half_an_event_is_removed(tmp_path: Path, before: str, half: str) -> None:
    with ResultStore.create(tmp_path / "r", "x") as store:
        (store.path / "events.ndjson").write_text(before + half)
    with store:
        store.event("resumed")
    lines = (store.path / "events.ndjson").read_text().splitlines()
    assert lines[:-1] == before.splitlines()
    assert json.loads(lines[-1])["event"] == "resumed"


def test_a_record_with_an_unknown_number_is_sound(tmp_path: Path) -> None:
    with ResultStore.create(tmp_path / "r", "x") as store:
        record = make(0)
        record.metrics[0]["value"] = float("nan")
        store.save(record, {})
        assert store.records()[0].metrics[0]["value"] is None


def test_who_writes_a_file_at_the_same_time_does_no_harm(tmp_path: Path) -> None:
    contents = [bytes([number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(len(contents)) as pool:
        for _ in range(10):
            list(pool.map(lambda content: write_atomic(tmp_path / "a", content), contents))
            assert (tmp_path / "a").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
