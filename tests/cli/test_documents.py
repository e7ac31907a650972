# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every command that prints JSON prints what is documented, with a version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from datapath import series
from datapath.cli.app import app
from datapath.cli.documents import DOCUMENTS, schema
from tests.cli.server import Dpctl
from tests.cli.told import strict, told
from tests.report import folders

JSON = ("--format", "json")
VARIANTS = {"run --dry-run", "series RUN"}
"""What commands print with an option, or an argument that may be left out."""


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield " ".join(words), command


def test_every_command_with_a_format_is_documented() -> None:
    with_format = {
        name
        for name, command in commands(typer.main.get_command(app))
        if any("--format" in parameter.opts for parameter in command.params)
    }
    assert with_format == set(DOCUMENTS) - VARIANTS


@pytest.mark.parametrize("command", sorted(DOCUMENTS))
def test_every_document_has_a_schema(command: str) -> None:
    made = schema(command)
    assert made["properties"]["version"]["const"] == 1
    assert "version" in made["required"]
    json.dumps(made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    claim = {"title": "one", "metric": "goodput", "pass": True}
    results = tmp_path_factory.mktemp("documents") / "results"
    comparison = results / "c"
    for name in ("A-0", "B-0", "B-1"):
        (comparison / name).mkdir(parents=True)
        (comparison / name / "claims.json").write_text("[]")
    about = {"revisions": ["v1 (1234)", "v2 (5678)"], "blocks": 2}
    (comparison / "compare.json").write_text(json.dumps(about))
    once = folders.write(results / "once", repetitions=1, claims=[claim])
    (once / "runs.parquet").unlink()
    folders.change_record(once, {"metrics": [{"name": "goodput", "value": 0, "unit": "bit/s"}]})
    return folders.write(results / "r", repetitions=2, claims=[claim])


@pytest.mark.parametrize(
    "words",
    [
        ("cc", "check", "fixed"),
        ("cc", "list"),
        ("cc", "show", "homa"),
        ("clean", "--results", "--keep", "0", "--dry-run"),
        ("collective", "check", "ring"),
        ("collective", "list"),
        ("collective", "plan", "ring"),
        ("compare", "results/r", "results/r"),
        ("list",),
        ("nccl", "cases"),
        ("ps",),
        ("report", "results/r"),
        ("show", "results/r"),
        ("top", "-n", "1", "--interval", "100ms"),
    ],
    ids=" ".join,
)
def test_what_is_printed_is_as_documented(
    quick_dpctl: Dpctl, folder: Path, words: tuple[str, ...]
) -> None:
    done = quick_dpctl(*words, *JSON, cwd=folder.parent.parent)
    assert done.code == 0, done.err
    command = next(name for name in DOCUMENTS if " ".join(words).startswith(name))
    assert told(command, done.out)


@pytest.mark.parametrize("form", ["json", "ndjson"])
@pytest.mark.parametrize(
    "words",
    [("compare", "results/once", "results/once"), ("show", "results/once")],
    ids=" ".join,
)
def test_what_is_no_number_is_null(
    quick_dpctl: Dpctl, folder: Path, words: tuple[str, ...], form: str
) -> None:
    """One run has no interval, and nothing is a multiple of a goodput of 0."""
    done = quick_dpctl(*words, "--format", form, cwd=folder.parent.parent)
    assert done.code == 0, done.err
    values = [strict(line) for line in done.out.splitlines()] if form == "ndjson" else []
    assert values or strict(done.out)
    assert "null" in done.out


def test_the_series_of_a_run(quick_dpctl: Dpctl, folder: Path) -> None:
    (folder / "series").mkdir()
    flow = series.table(time_ns=np.arange(3) * 1000, host="h", qp=17, cwnd_bytes=np.arange(3.0))
    flow.assign(run="p-0").to_parquet(folder / "series" / "p-0.parquet")
    rows = told("series RUN", quick_dpctl("series", folder, "p-0", *JSON).out)
    assert [(row["time_ns"], row["cwnd_bytes"]) for row in rows] == [(0, 0), (1000, 1), (2000, 2)]
    assert {(row["run"], row["host"], row["qp"], row["link"]) for row in rows} == {
        ("p-0", "h", 17, None)
    }
    lines = quick_dpctl("series", folder, "p-0", "--format", "ndjson").out.splitlines()
    assert [strict(line) for line in lines] == [{"version": 1, **row} for row in rows]
    assert len(quick_dpctl("series", folder, "p-0").out.splitlines()) == 1 + len(rows)


def test_comparisons_are_listed(quick_dpctl: Dpctl, folder: Path) -> None:
    rows = told("list", quick_dpctl("list", *JSON, cwd=folder.parent.parent).out)
    (row,) = (row for row in rows if "comparison" in row)
    assert row == {
        "comparison": "results/c",
        "state": "partial",
        "blocks": "1/2",
        "revisions": ["v1 (1234)", "v2 (5678)"],
    }
    table = quick_dpctl("list", cwd=folder.parent.parent).out
    assert "results/c   partial  1/2     v1 (1234), v2 (5678)\n" in table
    done = quick_dpctl("show", "results/c", cwd=folder.parent.parent)
    assert (done.code, done.out) == (2, "")
    assert "hint: dpctl compare results/c" in done.err


def test_the_schema_of_a_command(quick_dpctl: Dpctl) -> None:
    made = json.loads(quick_dpctl("schema", "run", "--dry-run").out)
    assert made["title"] == "dpctl run --dry-run --format json"
    assert set(made["properties"]) == {"version", "rows"}
    done = quick_dpctl("schema", "cc", "lst")
    assert done.code == 2
    assert "did you mean cc list?" in done.err
