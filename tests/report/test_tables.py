# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Results as plain data, and the plots that `dpctl report` exports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from datapath import report, stats
from datapath.errors import LocalError
from datapath.report import display, distribution, plotspec, tables
from datapath.report.folder import read
from tests.report import folders


def test_the_summary_is_in_base_units(whole: Path) -> None:
    document = tables.summary(read(whole))
    assert [claim["pass"] for claim in document["claims"]] == [True, False]
    goodput = [p for p in document["points"] if p["metric"] == "goodput"]
    assert len(goodput) == 6
    assert all(p["unit"] == "bit/s" and p["median"] > 1e9 and p["n"] == 4 for p in goodput)
    assert {r["n"] for r in document["ratios"]} == {3, 4}
    assert [f["repetition"] for f in document["failures"]] == [2]


def test_the_summary_of_a_metric_and_some_points(whole: Path) -> None:
    document = tables.summary(read(whole), ["latency_p50"], {"path.loss": ["1%"]})
    assert [p["stack"] for p in document["points"]] == list(folders.STACKS)
    rows = [*document["points"], *document["ratios"]]
    assert {(r["metric"], r["path.loss"]) for r in rows} == {("latency_p50", "1%")}


def test_medians_are_those_of_the_summary_and_of_each_point(whole: Path) -> None:
    result = read(whole)
    short, long = (make(result.frame, result.axes) for make in (tables.medians, tables.summarise))
    pd.testing.assert_frame_equal(short, long[list(short.columns)])
    good = tables.measured(result.frame)
    for row in short.to_dict("records"):
        values = good[(good["point"] == row["point"]) & (good["metric"] == row["metric"])]["value"]
        assert (row["n"], row["median"]) == (len(values), stats.median(values))
        assert (row["min"], row["max"]) == (values.min(), values.max())


def test_each_record_has_its_kind(whole: Path) -> None:
    kinds = {record["kind"] for record in tables.records(read(whole))}
    assert kinds == {"claim", "point", "ratio", "failure"}


def test_first_of_several_baselines_that_has_the_metric_is_taken(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=2, samples=False)
    text = (folder / "resolved.yaml").read_text().replace("{stack: tcp}", "{stack: [tcp, dp-udp]}")
    (folder / "resolved.yaml").write_text(text)
    result = read(folder)
    assert result.baseline == {"stack": ["tcp", "dp-udp"]}
    assert set(tables.ratios(result)["stack"]) == {"dp-afxdp"}
    frame = result.frame
    result.frame = frame[(frame["stack"] != "tcp") | (frame["metric"] != "latency_p50")]
    rows = tables.ratios(result, ["latency_p50"])
    assert set(rows["stack"]) == {"dp-afxdp"}
    assert rows["ratio"].between(0.2, 0.5).all()


@pytest.mark.parametrize(
    ("fmt", "magic"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")]
)
def test_plots_for_a_paper(tmp_path: Path, fmt: str, magic: bytes) -> None:
    folder = folders.write(tmp_path / "r", repetitions=2)
    files = report.export_plots(folder, fmt)
    assert [file.name for file in files] == [
        f"1-bar-goodput.{fmt}",
        f"2-bar-latency_p50.{fmt}",
        f"3-cdf-latency.{fmt}",
        f"4-ratio-goodput.{fmt}",
    ]
    assert all(file.read_bytes().startswith(magic) for file in files)
    first = [file.read_bytes() for file in files]
    assert [file.read_bytes() for file in report.export_plots(folder, fmt)] == first


def test_quantiles_of_a_distribution_are_samples_as_those_of_metrics(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=1)
    file = min((folder / "samples").iterdir())
    pd.DataFrame({"latency_ns": [100_000.0, 1_000.0]}).to_parquet(file)
    spec = plotspec.PlotSpec("cdf", ("latency",), None, "stack")
    found = distribution.table(read(folder), spec).set_index("point")
    label = file.stem.rpartition("-")[0]
    quantiles = [found.at[label, name] for name in ("p0", "p50", "p75", "p100")]
    assert quantiles == [1_000, 1_000, 100_000, 100_000]


def test_unknown_plot_format(whole: Path) -> None:
    with pytest.raises(LocalError, match="unknown plot format"):
        report.export_plots(whole, "gif")


def test_import_is_light() -> None:
    """`dpctl --help` must not pay for pandas and matplotlib."""
    code = (
        "import sys, datapath.report; "
        "print([m for m in ('pandas', 'matplotlib', 'jinja2', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("value", "unit", "metric", "text"),
    [
        (9.1e9, "bit/s", "goodput", "9.10 Gbit/s"),
        (21.46e9, "bit/s", "goodput", "21.5 Gbit/s"),
        (1_600.0, "ns", "latency_p50", "1.60 µs"),
        (43.04e6, "ns", "latency_p50", "43.0 ms"),
        (43e6, "ns", "latency_p50", "43 ms"),
        (0.0123, "1", "retransmitted_share", "1.23 %"),
        (1234.0, "packets", "path_dropped", "1,234 packets"),
        (0.5, "s", "cpu_user", "500 ms"),
        (0.0, "bit/s", "goodput", "0 Gbit/s"),
        (float("nan"), "bit/s", "goodput", "–"),
        (999.6, "ns", "latency_p50", "1,000 ns"),
    ],
)
def test_quantities_have_three_digits_and_a_fitting_unit(
    value: float, unit: str, metric: str, text: str
) -> None:
    assert display.quantity(value, unit, metric).replace("\N{NO-BREAK SPACE}", " ") == text
