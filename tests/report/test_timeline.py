# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figures over time: what is drawn of series, and what is said of those that are not there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from datapath import report, series
from datapath.errors import LocalError
from datapath.report import canvas, figures, plotspec
from datapath.report.folder import read
from tests.report import folders
from tests.report.pages import Page

COLLECT = {"series": ["cwnd", "rtt", "inflight", "delivered", "queue", "retransmits"]}
WRITES = {"test": "1 MiB write", "path.loss": "0"}


def flow(qp: int, start_ns: int, count: int = 500) -> pd.DataFrame:
    """A flow with a window of qp KiB that delivers 1 Gbit/s from start_ns on, sampled each ms."""
    times = np.arange(count) * 1_000_000
    delivered = np.maximum(0, times - start_ns) / 8
    return series.table(
        host="host0",
        qp=qp,
        time_ns=times,
        cwnd_bytes=np.full(count, 1024.0 * qp),
        rtt_ns=np.where(delivered > 0, 50_000.0, np.nan),
        inflight_bytes=np.full(count, 512.0),
        delivered_bytes=delivered,
        retransmitted_packets=np.zeros(count),
    )


def collected(
    folder: Path,
    parts: Sequence[pd.DataFrame],
    *,
    plots: Sequence[dict[str, Any]] = (),
    repetitions: int = 3,
) -> Path:
    """A result folder in which the writes without loss of each stack collected these series."""
    folders.write(folder, repetitions=repetitions, samples=False)
    yaml = YAML(typ="safe", pure=True)
    resolved = yaml.load((folder / "resolved.yaml").read_text())
    resolved |= {"collect": COLLECT, "report": {"plots": list(plots)}}
    with (folder / "resolved.yaml").open("w") as stream:
        yaml.dump(resolved, stream)
    (folder / "series").mkdir()
    for axes in folders.all_axes():
        if WRITES.items() <= axes.items():
            for repetition in range(repetitions):
                run = f"{folders.point_key(axes)}-{repetition}"
                frame = series.join(list(parts)).assign(run=run)
                frame.to_parquet(folder / "series" / f"{run}.parquet")
    return folder


def lines(folder: Path) -> tuple[list[list[np.ndarray]], str]:
    """The steps of each line of each panel, from the top, and the caption."""
    result = read(folder)
    spec = next(spec for spec in plotspec.plan(result)[0] if spec.kind == "series")
    figure, caption = figures.draw(result, spec, plotspec.Colours(result, [spec]))
    panels = [[line.get_ydata() for line in ax.get_lines()] for ax in figure.axes]
    return [[np.asarray(values, dtype=float) for values in panel] for panel in panels], caption


def plot(**settings: Any) -> dict[str, Any]:
    return {"kind": "series", **settings}


def test_collected_series_make_a_figure_by_themselves(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 100_000_000)])
    page = Page(report.build(folder).read_text())
    titles = [e.text for e in page.all("h3") if any(p.tag == "figure" for p in e.path)]
    assert titles[-1] == "Ratio to the baseline"
    ident = next(e.attributes["id"] for e in page.all("figure") if e.text.startswith("Over time"))
    text = [e.text for e in page.all("text", ident)]
    for axis in ("Window", "(KiB)", "RTT", "(µs)", "In flight", "Delivery rate", "(Gbit/s)"):
        assert axis in text
    assert "Time since the first delivery (s)" in text
    # Nothing was sent again, and no link has a queue: panels without anything are not drawn.
    assert "Sent again" not in text
    assert "Queue" not in text
    assert set(folders.STACKS) <= set(text)
    assert page.problems == []


def test_flows_that_no_run_has_are_told(tmp_path: Path) -> None:
    """As a file of before the check may name them."""
    folder = collected(
        tmp_path / "r",
        [flow(10, 0)],
        plots=[plot(metric="cwnd", qps=[-9, "x", 0]), plot(metric="cwnd", qps=[7, 9])],
        repetitions=1,
    )
    (cwnd,), _ = lines(folder)
    assert np.unique(cwnd).tolist() == [10240.0]
    remarks = Page(report.build(folder).read_text()).text("remarks")
    for number in ("-9", "x"):
        assert f"report.plots: qps: no flow has number {number}." in remarks
    assert "no run left series of a flow that delivered anything and is number 7 or 9." in remarks


def test_lines_are_the_numbers(tmp_path: Path) -> None:
    folder = collected(
        tmp_path / "r", [flow(10, 100_000_000)], plots=[plot(metric=["cwnd", "rtt", "rate"])]
    )
    (cwnd, rtt, rate), caption = lines(folder)
    assert len(cwnd) == len(rtt) == len(rate) == len(folders.STACKS)
    for values in cwnd:
        assert set(values) == {10240.0}
    for values in rtt:
        assert np.nanmedian(values) == 50_000
    for values in rate:
        assert np.nanmax(np.abs(values - 1e9)) < 1e6
    assert "median over the flow of n = 3 runs per point" in caption
    assert "test = 1 MiB write" in caption


def test_the_page_is_told_what_it_needs_to_read_and_zoom(tmp_path: Path) -> None:
    """look.py does both; here all that is named is there, and frames are in the picture."""
    folder = collected(
        tmp_path / "r", [flow(10, 100_000_000)], plots=[plot(metric=["cwnd", "rate"])]
    )
    page = Page(report.build(folder).read_text())
    (svg,) = (e for e in page.all("svg") if "data-panes" in e.attributes)
    width, height = map(float, svg.attributes["viewbox"].split()[2:])
    told = json.loads(svg.attributes["data-panes"])
    assert [(pane["title"], pane["unit"]) for pane in told] == [
        ("Window", "KiB"),
        ("Delivery rate", "Gbit/s"),
    ]
    assert len({pane["id"] for pane in told}) == len(told)
    for pane in told:
        (panel,) = (e for e in page.elements if e.attributes.get("id") == pane["id"])
        inside = {e.attributes.get("id") for e in page.elements if panel in e.path}
        assert {curve["id"] for curve in pane["curves"]} <= inside
        assert [curve["name"] for curve in pane["curves"]] == list(folders.STACKS)
        left, top, wide, high = pane["frame"]
        assert 0 <= left < left + wide <= width
        assert 0 <= top < top + high <= height
        assert pane["time"] == [0, pytest.approx(0.399, abs=0.01)]
    assert "class OverTime" in page.markup


def test_the_numbers_of_a_figure_can_be_saved(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 100_000_000)], plots=[plot(metric=["rate"])])
    result = read(folder)
    spec = next(spec for spec in plotspec.plan(result)[0] if spec.kind == "series")
    figure, _ = figures.draw(result, spec, plotspec.Colours(result, [spec]))
    table = figures.data(result, spec, figure)
    assert set(table["stack"]) == set(folders.STACKS)
    assert set(table["test"]) == {WRITES["test"]}
    assert set(table["unit"]) == {"bit/s"}
    assert table["value"].to_numpy() == pytest.approx(1e9, rel=1e-3)
    assert table.groupby("stack")["time_s"].is_monotonic_increasing.all()


def test_flows_of_one_point_have_a_line_each(tmp_path: Path) -> None:
    parts = [flow(qp, 100_000_000 * i) for i, qp in enumerate((10, 20, 30))]
    settings = plot(metric=["cwnd", "rate"], where={"stack": ["dp-udp"]})
    folder = collected(tmp_path / "r", parts, plots=[settings | {"qps": [0, 2], "repetition": 1}])
    (cwnd, rate), caption = lines(folder)
    assert [np.nanmax(values) for values in cwnd] == [10240.0, 30720.0]
    # The third begins when 0.2 of 0.5 seconds are over.
    assert np.isclose(np.mean(rate[1] < 1e8), 0.4, atol=0.02)
    assert "Each line is one flow of run 1" in caption
    assert "stack = dp-udp" in caption
    page = Page(report.build(folder).read_text())
    assert {"host0 QP 10", "host0 QP 30"} <= {e.text for e in page.all("text")}


def test_many_samples_become_few_steps_with_a_band(tmp_path: Path) -> None:
    frame = flow(10, 0, count=20_000)
    frame.loc[7000, "cwnd_bytes"] = 1.0
    settings = plot(metric="cwnd", where={"stack": ["dp-udp"]}, repetition=0)
    folder = collected(tmp_path / "r", [frame], plots=[settings])
    ((cwnd,),), caption = lines(folder)
    assert len(cwnd) <= 201
    assert set(cwnd) == {10240.0}
    assert "from the least to the greatest sample of a step" in caption


def test_queues_of_the_busiest_links_are_drawn(tmp_path: Path) -> None:
    times = np.arange(500) * 1_000_000
    links = [
        series.table(link=f"link{i}", time_ns=times, queue_bytes=np.full(500, 1000.0 * i))
        for i in range(6)
    ]
    settings = plot(metric=["queue"], where={"stack": ["dp-udp"]})
    folder = collected(tmp_path / "r", [flow(10, 0), *links], plots=[settings])
    (queues,), _ = lines(folder)
    assert sorted(np.nanmax(values) for values in queues) == [3000.0, 4000.0, 5000.0]


def test_flows_are_known_without_the_series_delivered(tmp_path: Path) -> None:
    asked: list[series.Name] = ["cwnd", "rtt", "queue"]
    settings = plot(metric=["cwnd", "rtt"], where={"stack": ["dp-udp"]}, repetition=0)
    folder = collected(tmp_path / "r", [series.keep(flow(10, 0), asked)], plots=[settings])
    ((cwnd,), (rtt,)), _ = lines(folder)
    assert np.nanmax(cwnd) == 10240.0
    assert np.nanmax(rtt) == 50_000


@pytest.mark.parametrize("interval", ["1ms", None])
def test_a_short_flow_does_not_shorten_the_steps(tmp_path: Path, interval: str | None) -> None:
    """It is sampled once, and at its end; the steps are those that were asked for, if known."""
    short = flow(30, 0, count=2).assign(time_ns=[50_000_000, 50_005_000])
    settings = plot(metric="cwnd", where={"stack": ["dp-udp"]}, repetition=0)
    folder = collected(tmp_path / "r", [flow(10, 0, count=100), short], plots=[settings])
    if interval:
        yaml = YAML(typ="safe", pure=True)
        resolved = yaml.load((folder / "resolved.yaml").read_text())
        resolved["collect"] = {**COLLECT, "interval": interval}
        with (folder / "resolved.yaml").open("w") as stream:
            yaml.dump(resolved, stream)
    ((cwnd, _),), caption = lines(folder)
    assert ("A step is 1 ms" in caption.replace("\N{NO-BREAK SPACE}", " ")) == bool(interval)
    assert len(cwnd) == (100 if interval else 201)


def test_a_quantity_without_a_value_gets_no_panel(tmp_path: Path) -> None:
    """Of flows that one sample each tells of no rate is known."""
    parts = [flow(qp, 0, count=2).tail(1).assign(time_ns=qp * 1000) for qp in (10, 20, 30)]
    settings = plot(metric=["cwnd", "rate"], where={"stack": ["dp-udp"]})
    folder = collected(tmp_path / "r", parts, plots=[settings])
    panels, caption = lines(folder)
    assert len(panels) == 1
    assert "There is no line for Delivery rate: in no step" in caption
    folder = collected(tmp_path / "s", parts, plots=[settings | {"metric": ["rate"]}])
    result = read(folder)
    specs, _ = plotspec.plan(result)
    with pytest.raises(canvas.NothingToDraw, match="no line for Delivery rate"):
        figures.draw(result, specs[0], plotspec.Colours(result, specs))


def test_what_is_absent_is_told_with_its_reason(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 0)])
    about = {"absent": {"queue": "no link tells"}, "rows_left_out": 1200}
    for file in (folder / "runs").glob(f"{folders.point_key({'stack': 'tcp', **order()})}-*.json"):
        record = json.loads(file.read_text())
        folders.dump(file, record | {"series": about})
    _, caption = lines(folder)
    assert "No queue: no link tells." in caption
    assert "3,600 samples found no room in their files." in caption


def order() -> dict[str, str]:
    """The axes behind `stack`, in the order of the experiment."""
    return {"path.loss": "0", "test": "1 MiB write"}


def test_a_damaged_file_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 0)])
    first, *_ = sorted((folder / "series").iterdir())
    first.write_bytes(b"PAR1 no")
    _, caption = lines(folder)
    assert "1 files of series cannot be read and are left out." in caption
    with pytest.raises(LocalError, match="cannot be read"):
        report.series(folder, first.stem)


def test_runs_in_which_nothing_was_delivered_make_no_figure(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 10**12)])
    page = Page(report.build(folder).read_text())
    assert "No plot “Over time”: no run left series of a flow" in page.text("remarks")
    assert page.problems == []


def test_a_plot_of_series_without_any_is_remarked(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 0)], plots=[plot(metric=["cwnd", "colour"])])
    remarks = plotspec.plan(read(folder))[1]
    assert remarks == ["report.plots: colour is not a series."]
    for file in (folder / "series").iterdir():
        file.unlink()
    specs, _ = plotspec.plan(read(folder))
    with pytest.raises(canvas.NothingToDraw):
        figures.draw(read(folder), specs[0], plotspec.Colours(read(folder), specs))


def test_figures_are_exported(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 0)], plots=[plot(log=True)])
    files = report.export_plots(folder, "pdf")
    assert files[0].name == "1-series-cwnd.pdf"
    assert all(file.stat().st_size > 1000 for file in files)


def test_the_table_of_a_run_is_given(tmp_path: Path) -> None:
    folder = collected(tmp_path / "r", [flow(10, 0)])
    run = min((folder / "series").iterdir()).stem
    frame = report.series(folder, run)
    assert len(frame) == 500
    with pytest.raises(LocalError, match="has no series of run 'x-0'") as caught:
        report.series(folder, "x-0")
    assert "dpctl series" in caught.value.hint


def test_marks_are_those_of_the_receiver(tmp_path: Path) -> None:
    receiver = flow(20, 10**12).assign(host="host1", marked_packets=np.arange(500.0))
    settings = plot(metric=["marks"], where={"stack": ["dp-udp"]}, repetition=0)
    folder = collected(tmp_path / "r", [flow(10, 0), receiver], plots=[settings])
    ((marks,),), _ = lines(folder)
    assert np.nanmax(marks) == pytest.approx(499, abs=3)
    assert np.nanmin(np.diff(marks)) >= 0
