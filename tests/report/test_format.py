# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The report reads what the experiment layer writes, not only what these tests write."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from datapath import report
from datapath.experiment import manifest, metrics
from datapath.experiment.load import load_text
from datapath.experiment.store import ResultStore, RunRecord, to_json, to_yaml
from datapath.experiment.sweep import Run, schedule
from datapath.report import folder, plotspec, tables
from tests.report import folders
from tests.report.pages import Page


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The test data again, written by the store of the experiment layer."""
    source = folders.write(tmp_path / "source", repetitions=2, failed=[(3, 1)], samples=False)
    entries = [json.loads(file.read_text()) for file in (source / "runs").glob("*.json")]
    names = {field.name for field in fields(RunRecord)}
    records = [RunRecord(**{**entry, "seed": 1, "spec": {}}) for entry in entries]
    assert set(entries[0]) <= names
    with ResultStore.create(tmp_path / "stored", "synthetic") as store:
        store.write("experiment.yaml", to_yaml(folders.experiment(2)))
        store.write("resolved.yaml", to_yaml(folders.experiment(2)))
        store.write(
            "manifest.json", to_json(folders.manifest(24) | {"machine": manifest.machine()})
        )
        for record in records:
            store.logs(record.name)
            latency = record.axes["test"] == "64 B send"
            store.save(record, {"latency_ns": [3e3, 4e3, 9e3]} if latency else {})
        store.assemble(records, ["stack", "path.loss", "test"])
        store.write("claims.json", to_json(folders.CLAIMS))
    return store.path


def test_page_of_a_stored_result(stored: Path) -> None:
    page = Page(report.build(stored).read_text())
    assert page.problems == []
    assert page.text("remarks") == ""
    assert [e.text for e in page.all("h3", "plots")] == [
        "Goodput",
        "Latency: median and p99",
        "Distribution of latency",
    ]
    assert len(page.rows("failures")) == 1
    assert "no reply" in page.text("failures")
    assert manifest.machine()["kernel"] in page.text("machine")


def test_rows_of_single_runs_are_those_of_the_table(stored: Path) -> None:
    whole = report.load(stored)
    (stored / "runs.parquet").unlink()
    keys = ["point", "repetition", "metric"]
    pd.testing.assert_frame_equal(
        report.load(stored).sort_values(keys, ignore_index=True)[[*keys, "value", "unit", "stack"]],
        whole.sort_values(keys, ignore_index=True)[[*keys, "value", "unit", "stack"]],
        check_dtype=False,
    )


SPELLED = """\
version: 1
name: spelled
topology: {lane: sim}
path: {rate: 1gbit, delay: 10us}
workload: {kind: stream}
sweep:
  matrix:
    transport.ecn: [True, False]
    path.loss: [1e-3, 0.10, 0, {model: bernoulli, rate: 2.0e-3}]
    size:
      - {label: 010, set: {workload.size: 4KiB}}
      - {label: 1_000, set: {workload.size: 1_000B}}
      - {label: ~, set: {workload.size: 1B}}
  repetitions: 2
"""
AXES = {
    "transport.ecn": ["True", "False"],
    "path.loss": ["1e-3", "0.10", "0", "{model: bernoulli, rate: 2.0e-3}"],
    "size": ["010", "1_000", "~"],
}


@pytest.mark.parametrize(("axis", "value"), [(axis, v) for axis in AXES for v in AXES[axis]])
def test_selectors_name_values_as_they_stand_in_the_file(
    axis: str, value: str, tmp_path: Path
) -> None:
    chosen = f"{{{axis}: {value}}}"
    text = SPELLED + f"  baseline: {chosen}\nreport: {{plots: [{{kind: bar, where: {chosen}}}]}}\n"
    experiment = load_text(text, tmp_path / "spelled.yaml")
    with ResultStore.create(tmp_path / "stored", "spelled") as store:
        store.write("resolved.yaml", to_yaml(experiment.resolved))
        for run in schedule(experiment.points, experiment.spec.sweep, 1):
            goodput = {"name": "goodput", "value": 1e9 + run.repetition, "unit": "bit/s"}
            store.save(record(run, goodput), {})
    result = folder.read(store.path)
    assert {name: result.axis_values(name) for name in result.axes} == AXES
    assert result.baseline == {axis: [value]}
    others = len(experiment.points) * (len(AXES[axis]) - 1) / len(AXES[axis])
    assert len(tables.ratios(result, ["goodput"])) == others
    (plot, *_), _ = plotspec.plan(result)
    shown = tables.select(result.frame, plot.where)
    assert set(shown[axis]) == {value}
    again = load_text(to_yaml(experiment.resolved).decode(), tmp_path / "resolved.yaml")
    assert [point.key for point in again.points] == [point.key for point in experiment.points]


def record(run: Run, metric: dict[str, Any]) -> RunRecord:
    begun = RunRecord.begun(run)
    return replace(begun, started="2026-01-02T03:04:05.000+00:00", spec={}, metrics=[metric])


def test_manifest_has_what_the_report_shows() -> None:
    text = (
        "version: 1\nname: tiny\ntransport: {device: kernel}\n"
        "workload: {kind: iperf3}\nsweep: {repetitions: 1}\n"
    )
    whole = manifest.build(load_text(text, Path("tiny.yaml")), ["dpctl", "run", "tiny.yaml"], 1)
    shown = folders.manifest(1)
    assert set(shown) <= set(whole)
    assert set(shown["machine"]) <= set(whole["machine"])


def test_layers_agree_on_metrics_and_units() -> None:
    assert folders.UNITS.items() <= metrics.UNITS.items()
