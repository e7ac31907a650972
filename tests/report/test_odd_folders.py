# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Folders that are broken off, old, damaged or hostile: always a page, with a remark."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from datapath import report
from datapath.errors import LocalError
from datapath.report import answer, compare, plots
from datapath.report.folder import NOT_VARIED, read
from tests.report import folders
from tests.report.pages import Page

NASTY = "<script>alert(1)</script>&\"'$x_{$ \x00\x1b[31m](javascript:alert(2)) ]]> --> {{ 7*7 }}"


@pytest.fixture(autouse=True)
def _one_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is odd about a folder shows in the SVG; the PDF is the same figure drawn once more."""
    monkeypatch.setattr(plots, "_pdf", lambda figure: b"%PDF-")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two blocks, no samples: quick to write and to draw."""
    return folders.write(tmp_path / "result", repetitions=2, samples=False)


ONE_PLOT = {"plots": [{"kind": "bar", "metric": "goodput", "x": "path.loss", "series": "stack"}]}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The same with one plot in place of three, for tests of what stands beside the plots."""
    return folders.write(tmp_path / "result", repetitions=2, samples=False, report=ONE_PLOT)


def built(folder: Path) -> Page:
    page = Page(report.build(folder).read_text())
    assert page.problems == []
    return page


def change_frame(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    file = folder / "runs.parquet"
    change(pd.read_parquet(file)).to_parquet(file)


def test_broken_off_sweep_is_shown_from_the_runs_that_finished(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=4, keep=20, samples=False)
    page = built(folder)
    remarks = page.text("remarks")
    assert "the sweep did not come to its end" in remarks
    assert "20 of 48 runs are here" in remarks
    assert "--resume" in remarks
    assert page.text("verdict").startswith("Not finished: 20 of 48 runs")
    assert len(page.rows("points", folded=False)) == 12
    assert len(page.all("svg")) == 3
    assert "have not been judged" not in page.text("claims")
    assert "no claims.json" in page.text("claims")


def test_runs_of_a_resumed_sweep_that_was_broken_off_are_shown(plain: Path) -> None:
    """The table was written at the end of the sweep before."""
    file = max((plain / "runs").glob("*.json"))
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"started": "2026-01-02T09:00:00Z"}))
    one = (record["point"], record["repetition"])
    change_frame(
        plain, lambda frame: frame[(frame["point"] != one[0]) | (frame["repetition"] != one[1])]
    )
    page = built(plain)
    assert "runs.parquet lacks the last runs" in page.text("remarks")
    runs = read(plain).frame[["point", "repetition"]].drop_duplicates()
    assert len(runs) == 24


@pytest.mark.parametrize("name", ["n", "ratio", "verdict"])
def test_an_axis_that_is_called_as_a_column_of_the_tables(plain: Path, name: str) -> None:
    """As no sweep may have it today."""
    change_frame(plain, lambda frame: frame.rename(columns={"stack": name}))
    assert len(built(plain).rows("points", folded=False)) == 12
    result = read(plain)
    assert f"{name}_axis" in result.axes
    rows = compare.compare([result, result], ["goodput"])
    assert {row[f"{name}_axis"] for row in rows} == set(folders.STACKS)


def test_old_folder_without_claims(plain: Path) -> None:
    (plain / "claims.json").unlink()
    page = built(plain)
    assert "There is no claims.json" in page.text("claims")
    assert page.text("verdict").startswith("All 24 runs succeeded")


def test_claims_that_were_asked_for_but_not_judged(tmp_path: Path) -> None:
    expect = [{"metric": "goodput", "min": "1gbit"}]
    folder = folders.write(
        tmp_path / "r", repetitions=1, samples=False, report=ONE_PLOT | {"expect": expect}
    )
    (folder / "claims.json").unlink()
    page = built(folder)
    assert "have not been judged" in page.text("claims")
    assert "claims were not judged" in page.text("verdict")


def test_claim_without_data(plain: Path) -> None:
    claim = {
        "title": "never ran",
        "metric": "goodput",
        "where": {},
        "measured": None,
        "interval": [None, None],
        "bound": {"min": 1e9},
        "pass": False,
        "reason": "no run matches",
    }
    folders.dump(plain / "claims.json", [claim])
    page = built(plain)
    (row,) = page.rows("claims")
    assert row[0] == "fail"
    assert row[3:] == ["–", "–", "≥ 1 Gbit/s"]
    assert page.text("verdict").startswith("The one claim failed")


def test_single_repetition_has_no_interval(tmp_path: Path) -> None:
    page = built(folders.write(tmp_path / "r", repetitions=1))
    assert "With one run no interval can be given" in page.text("plot1")
    assert {row[4] for row in page.rows("ratios")} == {"–"}


def test_all_runs_failed(tmp_path: Path) -> None:
    lost = [(point, block) for point in range(12) for block in range(2)]
    folder = folders.write(tmp_path / "r", repetitions=2, failed=lost, claims=[])
    page = built(folder)
    assert page.text("verdict").startswith("All runs failed")
    assert len(page.rows("failures")) == 24
    assert page.all("svg") == []
    assert "nothing to plot" in page.text("plots")


def test_failed_runs_fail_the_verdict_even_if_all_claims_hold(tmp_path: Path) -> None:
    folder = folders.write(
        tmp_path / "r",
        repetitions=2,
        failed=[(0, 0)],
        claims=folders.CLAIMS[:1],
        samples=False,
        report=ONE_PLOT,
    )
    page = built(folder)
    assert page.by_id("verdict").attributes["class"] == "verdict bad"
    assert page.text("verdict") == "The one claim held, but 1 of 24 runs failed"


def test_all_claims_held(tmp_path: Path) -> None:
    folder = folders.write(
        tmp_path / "r", repetitions=1, claims=folders.CLAIMS[:1], samples=False, report=ONE_PLOT
    )
    page = built(folder)
    assert page.by_id("verdict").attributes["class"] == "verdict good"


def test_metric_missing_in_some_points(folder: Path) -> None:
    def drop(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[(frame["metric"] != "goodput") | (frame["stack"] != "dp-udp")]

    change_frame(folder, drop)
    page = built(folder)
    assert "dp-udp" not in [e.text for e in page.all("text", "plot1")]
    held = [e.text for e in page.all("h3", "points")]
    assert "stack = dp-udp, test = 1 MiB write" in held
    assert len(page.rows("points", folded=False)) == len(folders.all_axes())


def test_points_that_measure_less_share_the_table(folder: Path) -> None:
    def drop(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[(frame["metric"] != "message_rate") | (frame["stack"] != "tcp")]

    change_frame(folder, drop)
    page = built(folder)
    assert len(page.all("table", "points")) == 5  # rates and latencies, costs of both, notes
    row = next(row for row in page.rows("points") if row[:2] == ["tcp", "0"])
    assert row[4] == "–"


def test_column_of_thousands_has_its_own_unit(plain: Path) -> None:
    def stretch(frame: pd.DataFrame) -> pd.DataFrame:
        tail = frame["metric"] == "latency_p999"
        return frame.assign(value=frame["value"].where(~tail, frame["value"] * 1000))

    def units(page: Page) -> dict[str, str]:
        heads = [e.text for e in page.all("th", "points")]
        names = ("median", "p99", "p99.9", "mean", "minimum")
        return {n: h.removeprefix(n) for n in names for h in heads if h in (n + "µs", n + "ms")}

    before = units(built(plain))
    assert set(before.values()) == {"µs"}
    change_frame(plain, stretch)
    assert units(built(plain)) == before | {"p99.9": "ms"}


def test_runs_without_a_metric_are_told_once(plain: Path) -> None:
    told = "1 of 8 runs with any point have no round_p99"
    claim = folders.CLAIMS[0] | {"shown": False, "reason": told, "doubt": told}
    folders.dump(plain / "claims.json", [claim])
    text = " ".join(" ".join(answer.answer(read(plain), 80)).split())
    assert text.count(told) == 1
    assert f"{told}; " in text


def test_reason_of_a_claim_is_in_words(plain: Path) -> None:
    reason = "below min, though the interval reaches the bound; 1 run failed"
    claim = folders.CLAIMS[1] | {"reason": "above max"}
    folders.dump(plain / "claims.json", [claim, claim | {"reason": reason}])
    rows = built(plain).rows("claims")
    assert rows[0][1].endswith("above the bound")
    assert rows[1][1].endswith("below the bound, though the interval reaches it; 1 run failed")


def test_point_missing_in_a_plot_is_no_zero(folder: Path) -> None:
    def drop(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[(frame["path.loss"] != "1%") | (frame["stack"] != "dp-udp")]

    change_frame(folder, drop)
    page = built(folder)
    assert [e.text for e in page.all("text", "plot1")].count("no data") == 1


def test_values_that_are_no_numbers(folder: Path) -> None:
    def spoil(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[frame["metric"] == "goodput", "value"] = math.nan
        frame.loc[frame["metric"] == "latency_p99", "value"] = math.inf
        return frame

    change_frame(folder, spoil)
    page = built(folder)
    assert "Goodput" not in [e.text for e in page.all("h3", "plots")]
    assert "nan" not in page.text("points")
    assert "inf" not in page.text("points")


@pytest.mark.parametrize(
    "name", ["runs.parquet", "manifest.json", "claims.json", "resolved.yaml", "runs/x-0.json"]
)
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe{"])
def test_damaged_file(plain: Path, name: str, content: bytes) -> None:
    (plain / name).write_bytes(content)
    page = built(plain)
    assert Path(name).name in page.text("remarks")
    assert "cannot be read" in page.text("remarks")


def of_a_metric(**change: object) -> dict[str, object]:
    return {"metrics": [{"name": "goodput", "value": 1e9, "unit": "bit/s", **change}]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, "it is not the record of a run"),
        ({"axes": None}, "it has no axes"),
        ({"repetition": 7}, "it is the record of run"),
        ({"metrics": {"goodput": 1}}, "its metrics are no list of metrics"),
        (of_a_metric(name=None), "a metric has no name"),
        (of_a_metric(value="fast"), "the value of goodput is not a number: 'fast'"),
        (of_a_metric(unit="furlong"), "the unit of goodput is 'furlong', not 'bit/s'"),
    ],
)
def test_a_damaged_record_is_left_out_and_told(
    tmp_path: Path, change: dict[str, object] | None, why: str
) -> None:
    folder = folders.write(tmp_path / "r", repetitions=2, samples=False)
    (folder / "runs.parquet").unlink()
    if change is None:
        min((folder / "runs").glob("*.json")).write_text("[1]")
    else:
        folders.change_record(folder, change)
    name = min((folder / "runs").glob("*.json")).name
    result = read(folder)
    assert any(text.startswith(f"{name} is damaged and left out: {why}") for text in result.remarks)
    assert result.runs_done == 23
    assert "furlong" not in set(result.frame["unit"])
    assert NOT_VARIED not in set(result.frame["stack"])


@pytest.mark.parametrize("name", ["runs.parquet", "manifest.json", "resolved.yaml", "runs"])
def test_missing_file(folder: Path, name: str) -> None:
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    page = built(folder)
    if name != "runs":
        assert f"{name} is missing" in page.text("remarks")
    assert len(page.all("svg")) == (2 if name == "resolved.yaml" else 3) or name == "resolved.yaml"


@pytest.mark.parametrize("content", ["[]", "null", "3", '"text"', '{"networks": [1, null]}'])
def test_json_of_another_shape(plain: Path, content: str) -> None:
    for name in ("manifest.json", "claims.json"):
        (plain / name).write_text(content)
    for file in list((plain / "runs").glob("*.json"))[:3]:
        file.write_text(content)
    built(plain)


def test_damaged_samples(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=2)
    for file in (folder / "samples").glob("*.parquet"):
        file.write_bytes(b"PAR1")
    page = built(folder)
    assert "no run left samples" in page.text("remarks")
    assert "12 files of samples cannot be read" in page.text("remarks")


def test_some_damaged_samples(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=2)
    min((folder / "samples").glob("*.parquet")).write_bytes(b"PAR1")
    page = built(folder)
    assert "1 files of samples cannot be read and are left out" in page.text("plot3")


def test_empty_folder_that_has_just_begun(tmp_path: Path) -> None:
    folders.dump(tmp_path / "manifest.json", folders.manifest(10))
    page = built(tmp_path)
    assert page.text("verdict").startswith("No result yet")
    assert "No run has finished" in page.text("remarks")


def test_not_a_result_folder(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="not a result folder") as caught:
        report.build(tmp_path)
    assert caught.value.hint
    with pytest.raises(LocalError, match="is not a folder"):
        report.build(tmp_path / "missing")


def test_sweep_without_axes(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=2, samples=False)
    key = folders.point_key(folders.all_axes()[0])

    def one(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["point"] == key].drop(columns=["stack", "path.loss", "test"])

    change_frame(folder, one)
    page = built(folder)
    assert [e.text for e in page.all("h3", "plots")] == ["Goodput"]


def test_hostile_text_is_only_text(folder: Path) -> None:
    def poison(frame: pd.DataFrame) -> pd.DataFrame:
        frame["stack"] = frame["stack"].replace({"tcp": NASTY})
        frame = frame.rename(columns={"test": NASTY})
        frame["metric"] = frame["metric"].replace({"cpu_user": NASTY})
        frame["unit"] = frame["unit"].replace({"s": NASTY})
        return frame

    change_frame(folder, poison)
    claims = [dict.fromkeys(("title", "metric", "measured", "bound", "reason"), NASTY)]
    folders.dump(folder / "claims.json", claims)
    manifest = folders.manifest(1) | {
        "argv": [NASTY],
        "machine": {"kernel": NASTY, "cpu_model": NASTY},
    }
    manifest["networks"][0]["devices"] = {NASTY: {NASTY: {"xdp": NASTY, "offloads": {NASTY: True}}}}
    folders.dump(folder / "manifest.json", manifest)
    resolved = folders.experiment(2, plots=[{"metric": "goodput", "title": NASTY}, {"kind": NASTY}])
    resolved |= {"name": NASTY, "description": NASTY}
    (folder / "resolved.yaml").write_text(json.dumps(resolved))
    change = {"notes": {NASTY: NASTY}, "xdp_maps": {NASTY: {NASTY: NASTY}}}
    folders.change_record(folder, change)
    page = built(folder)
    assert len(page.all("script")) == page.markup.count("<script") == 1  # the page's own
    assert "alert" not in page.all("script")[0].text
    assert "\x00" not in page.markup
    assert "\x1b" not in page.markup
    assert "{{ 7*7 }}" in page.text("claims")
    assert not [e for e in page.elements if any(key.startswith("on") for key in e.attributes)]
    assert page.text("xdp-maps").count("<script>") == 3
    assert "<script>" in " ".join(e.text for e in page.all("text", "plot1"))


def test_text_that_is_too_long_for_a_plot(folder: Path) -> None:
    long = "stack-" * 60

    def rename(frame: pd.DataFrame) -> pd.DataFrame:
        frame["stack"] = frame["stack"].replace({"tcp": long})
        return frame

    change_frame(folder, rename)
    texts = [e.text for e in built(folder).all("text")]
    assert max(map(len, texts)) < 60
    assert any(text.startswith("stack-stack") and text.endswith("…") for text in texts)
