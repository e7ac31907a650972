# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The page of a whole result folder: everything is there, and nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from pathlib import Path

import pandas as pd
import pytest

from datapath import report, stats
from datapath.cli import main
from tests.report import folders
from tests.report.pages import Page


def test_tags_are_closed_in_order(page: Page) -> None:
    assert page.problems == []


def test_ids_are_unique(page: Page) -> None:
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))


def test_references_inside_of_plots_have_their_target(page: Page) -> None:
    ids = {e.attributes["id"] for e in page.elements if "id" in e.attributes}
    wanted = set(re.findall(r"url\(#([^)]+)\)", page.markup))
    wanted |= {e.attributes["xlink:href"][1:] for e in page.all("use")}
    assert wanted
    assert wanted <= ids


def test_page_fetches_nothing(page: Page) -> None:
    """Addresses are relative to the folder, or data, and only links that a reader clicks have one.

    The one script is part of the page, and the policy of the page names it by its hash.
    """
    assert not [e.tag for e in page.elements if e.tag in ("link", "img", "iframe")]
    (script,) = page.all("script")
    digest = hashlib.sha256("".join(script.pieces).encode()).digest()
    (policy,) = (e for e in page.all("meta") if "http-equiv" in e.attributes)
    allowed = policy.attributes["content"].split("script-src ")[1].split(";")[0]
    assert allowed == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert not [e for e in page.elements if "src" in e.attributes]
    links = [e.attributes["href"] for e in page.all("a")]
    assert links
    saved = [link for link in links if link.startswith("data:")]
    assert not [link for link in links if re.match(r"[a-z]+:|/", link) and link not in saved]
    assert "@import" not in page.markup
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page.markup))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_a_report_and_its_plots_may_go_elsewhere(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an archive that nobody writes to, say; nothing in it changes."""
    before = sorted(whole.rglob("*"))
    out = tmp_path / "new" / "folder"
    assert main(["report", str(whole), "--plots", "svg", "--out", str(out)]) == 0
    page, *plots = map(Path, capsys.readouterr().out.split())
    assert page == out / "report.html"
    assert {plot.parent for plot in plots} == {out / "plots"}
    assert all(path.stat().st_size for path in (page, *plots))
    assert sorted(whole.rglob("*")) == before
    elsewhere = Page(page.read_text())
    links = [e.attributes["href"] for e in elsewhere.all("a") if "download" not in e.attributes]
    assert [link for link in links if not link.startswith("#")] == []
    assert "Files of the result folder runs.parquet" in elsewhere.text("repeat")
    assert elsewhere.rows("failures")[0][3].startswith("logs/")


def test_links_lead_to_what_is_there(page: Page, whole: Path) -> None:
    links = [e.attributes["href"] for e in page.all("a") if "download" not in e.attributes]
    assert "runs.parquet" in links
    assert [link for link in links if not (whole / link).exists()] == []


def test_verdict_is_at_the_top(page: Page) -> None:
    assert page.text("verdict") == "1 of 2 claims failed1 of 48 runs failed"
    places = [e.attributes.get("id") for e in page.elements if e.attributes.get("id")]
    assert places.index("verdict") < places.index("plots") < places.index("claims")


def test_every_claim_is_shown_with_measured_value_interval_and_bound(page: Page) -> None:
    rows = page.rows("claims")[::-1]
    assert [row[0] for row in rows] == ["pass", "fail"]
    assert page.rows("claims", folded=False) == rows[1:]
    assert rows[0][1].startswith(str(folders.CLAIMS[0]["title"]))
    assert [row[2:] for row in rows] == [
        ["Goodput, ratio", "0.951", "0.930 to 0.968", "≥ 0.9"],
        ["Latency, median", "3.31 µs", "3.20 to 3.40 µs", "≤ 2 µs"],
    ]
    assert "measured 3.31 us, above the bound" in rows[1][1]


def test_every_plot_is_there_with_a_caption(page: Page) -> None:
    titles = [e.text for e in page.all("h3") if any(p.tag == "figure" for p in e.path)]
    assert titles == [
        "Goodput",
        "Latency: median and p99",
        "Distribution of latency",
        "Ratio to the baseline",
    ]
    assert len(page.all("svg")) == len(titles)
    captions = [e.text for e in page.all("figcaption")]
    assert len(captions) == len(titles)
    assert all(re.search(r"n = \d", caption) for caption in captions)
    assert sum("95 % interval" in caption for caption in captions) == 3


def test_axes_of_plots_have_their_units(page: Page) -> None:
    labels = [e.text for e in page.all("text", "plot1")]
    assert "Goodput (Gbit/s)" in labels
    assert "Packet loss (path.loss)" in labels
    assert "Latency (µs)" in [e.text for e in page.all("text", "plot2")]
    assert "Latency (µs)" in [e.text for e in page.all("text", "plot3")]


def test_legends_name_metrics_as_the_table_of_metrics_does(page: Page) -> None:
    labels = [e.text for e in page.all("text", "plot2")]
    assert {"median", "p99"} <= set(labels)


def test_every_plot_tells_what_it_shows_to_those_who_do_not_see_it(page: Page) -> None:
    told = [e.attributes["aria-label"] for e in page.all("svg")]
    assert told[0].startswith("Bar chart: Goodput, by path.loss and stack. Goodput: lowest ")
    assert re.search(r"lowest \S+\s\S+ \(tcp, 1%\), highest \S+\s\S+ \(tcp, 0\)", told[0])
    assert all(len(text) > 60 for text in told)


def test_every_plot_can_be_saved_with_its_data(page: Page, whole: Path) -> None:
    for plot in ("plot1", "plot2", "plot3", "plot4"):
        files = {
            e.attributes["download"]: base64.b64decode(e.attributes["href"].partition(",")[2])
            for e in page.all("a", plot)
        }
        starts = {name.rpartition(".")[2]: content[:5] for name, content in files.items()}
        assert (starts["svg"], starts["pdf"]) == (b"<?xml", b"%PDF-")
        (data,) = (pd.read_csv(io.BytesIO(c)) for n, c in files.items() if n.endswith(".csv"))
        assert set(data["stack"]) <= set(folders.STACKS)
        assert len(data) >= 4
    frame = report.load(whole)
    values = frame[(frame["metric"] == "goodput") & (frame["stack"] == "tcp")]
    (content,) = (
        base64.b64decode(e.attributes["href"].partition(",")[2])
        for e in page.all("a", "plot1")
        if e.text == "CSV"
    )
    medians = pd.read_csv(io.BytesIO(content)).query("stack == 'tcp'")["median"]
    assert sorted(medians) == pytest.approx(sorted(values.groupby("path.loss")["value"].median()))


def test_long_tables_can_be_sorted(page: Page) -> None:
    names = {e.attributes.get("class", "") for e in page.all("table", "points")}
    assert names == {"dense sortable", ""}  # the other has the notes
    assert {e.attributes.get("class", "") for e in page.all("table", "ratios")} == {"sortable"}


def test_values_of_an_axis_are_sorted_by_what_they_stand_for(tmp_path: Path) -> None:
    """Not by the number before the unit; names have no number to be sorted by."""
    folder = folders.write(tmp_path / "r", repetitions=1, samples=False)
    table = pd.read_parquet(folder / "runs.parquet")
    table["path.loss"] = table["path.loss"].map({"0": "64KiB", "1%": "1MiB"})
    table.to_parquet(folder / "runs.parquet")
    page = Page(report.build(folder).read_text())
    for section in ("points", "ratios"):
        cells = [e for e in page.all("td", section) if e.attributes.get("class") == "axis"]
        told = {(e.text, e.attributes.get("data-sort")) for e in cells}
        assert {("64KiB", "65536.0"), ("1MiB", "1048576.0"), ("dp-udp", None)} <= told


def test_a_series_has_one_colour_in_all_plots(page: Page) -> None:
    for plot in ("plot1", "plot2", "plot3"):
        markup = page.markup.split(f'<figure id="{plot}"')[1].split("</figure>")[0]
        for index, stack in enumerate(folders.STACKS):
            handle = markup.split(f">{stack}</text>")[0].rpartition("var(--series-")[2]
            assert handle[0] == str(index), (plot, stack)


def test_plots_follow_the_dark_mode_of_the_page(page: Page) -> None:
    for svg in re.findall(r"<svg.*?</svg>", page.markup, re.DOTALL):
        colours = set(re.findall(r"(?:fill|stroke):\s*(#[0-9a-f]{6})", svg))
        assert colours <= {"#000000"}, colours
    assert "prefers-color-scheme: dark" in page.markup


def test_table_has_every_point_with_median_spread_and_n(page: Page, whole: Path) -> None:
    rows = page.rows("points", folded=False)
    tests = [e.text for e in page.all("h3", "points")]
    assert tests == ["test = 1 MiB write", "test = 64 B send"]
    writes, sends = rows[:6], rows[6:]
    assert len(rows) == len(folders.all_axes())
    frame = report.load(whole)
    runs = frame[
        (frame["stack"] == "tcp") & (frame["path.loss"] == "0") & (frame["metric"] == "goodput")
    ]
    row = next(r for r in writes if r[:2] == ["tcp", "0"])
    low, high = runs["value"].min() / 1e9, runs["value"].max() / 1e9
    assert row[2] == "4"
    assert row[3] == f"{stats.median(runs['value']) / 1e9:.1f}{low:.1f}–{high:.1f}"
    lossy = next(r for r in sends if r[:2] == ["dp-afxdp", "1%"])
    assert lossy[2] == "3 of 4"


def test_heads_of_a_table_cover_its_columns(page: Page) -> None:
    """Two lines of heads: those of one line span both, and a common title those below it."""
    found = [
        e for e in page.all("table", "points") if e.attributes.get("class") == "dense sortable"
    ]
    assert len(found) == 4
    for table in found:
        inside = [e for e in page.elements if table in e.path]
        heads = [e for e in inside if e.tag == "th"]
        below = sum(int(e.attributes["colspan"]) for e in heads if "colspan" in e.attributes)
        whole = sum(e.attributes.get("rowspan") == "2" for e in heads)
        common = sum("colspan" in e.attributes for e in heads)
        assert len(heads) == whole + common + below
        rows = [e for e in inside if e.tag == "tr" and any(p.tag == "tbody" for p in e.path)]
        for row in rows:
            assert sum(e.tag == "td" and row in e.path for e in inside) == whole + below


def test_costs_are_in_a_table_of_their_own(page: Page) -> None:
    shown = page.rows("points", folded=False)
    folded = [row for row in page.rows("points") if row not in shown]
    costs = [row for row in folded if row[0] in folders.STACKS]
    assert len(costs) == len(shown)
    heads = [e.text for e in page.all("th", "points") if e.attributes.get("class") == "group"]
    assert heads == ["Retransmitted", "CPU", "Latency", "Retransmitted", "CPU"]


def test_ratios_are_those_of_the_shared_statistics(page: Page, whole: Path) -> None:
    frame = report.load(whole)
    frame = frame[(frame["metric"] == "goodput") & (frame["path.loss"] == "1%")]
    sides = {
        stack: frame[frame["stack"] == stack].set_index("block")["value"]
        for stack in frame["stack"].unique()
    }
    expected = (sides["dp-udp"] / sides["tcp"]).median()
    row = next(r for r in page.rows("ratios") if r[:3] == ["dp-udp", "1%", "1 MiB write"])
    assert row[3] == f"{expected:.2f}"
    assert row[5] == "4"


def test_failed_runs_have_reason_hint_and_log(page: Page) -> None:
    (row,) = page.rows("failures")
    assert row[0] == "stack = dp-afxdp, path.loss = 1%, test = 64 B send"
    assert row[1:3] == ["2", "no replylook at the log"]
    assert row[3].startswith("logs/")


def test_machine_and_devices_are_visible(page: Page) -> None:
    visible = page.text("machine").split("manifest.json")[0]
    for fact in ("6.1.0-test", "Test CPU", "16.0 GiB", "copy", "veth has no zero-copy"):
        assert fact in visible
    assert "2048 B" in visible
    assert "the driver takes no multi-buffer frames" in visible
    assert "extended" in visible
    assert "tso on; gro off" in visible


def test_how_to_repeat_has_command_revision_and_seed(page: Page) -> None:
    text = page.text("repeat")
    assert "git checkout 0123456789abcdef0123456789abcdef01234567" in text
    assert "./dpctl run 'experiments/synthetic file.yaml'" in text
    assert "The seed is 7" in text
    assert "run in /home/user/datapath" in text


def test_versions_are_told(page: Page) -> None:
    assert "iperf 3.12" in page.text("machine").split("manifest.json")[0]


def test_configuration_is_whole(page: Page, whole: Path) -> None:
    shown = page.all("pre", "configuration")[0].text
    assert shown == " ".join((whole / "resolved.yaml").read_text().split())


def test_the_same_folder_gives_the_same_page(whole: Path, page: Page, tmp_path: Path) -> None:
    """However the folder is named."""
    (tmp_path / "link").symlink_to(whole)
    assert report.build(tmp_path / "link").read_text() == page.markup
    assert f"./dpctl run {whole.name}/experiment.yaml" in page.text("repeat")


def test_nothing_but_the_page_is_left_behind(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=1, samples=False)
    before = {path.name for path in folder.iterdir()}
    assert report.build(folder) == folder / "report.html"
    assert {path.name for path in folder.iterdir()} - before == {"report.html"}


def test_xdp_maps_are_shown(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=1, samples=False)
    folders.change_record(folder, {"xdp_maps": {"packets": {"0": 17, "1": 4_000}, "sizes": [5, 6]}})
    page = Page(report.build(folder).read_text())
    assert page.rows("xdp-maps") == [["0", "17"], ["1", "4000"], ["0", "5"], ["1", "6"]]


def test_plots_are_those_that_the_experiment_asks_for(tmp_path: Path) -> None:
    plots = [
        {"kind": "line", "metric": "goodput", "x": "path.loss", "series": "stack", "title": "A"},
        {"kind": "bar", "metric": "retransmits", "log": True, "title": None},
        {"kind": "bar", "metric": "goodput", "x": "nonsense"},
        {"kind": "ratio", "metric": ["goodput"], "where": {"path.loss": ["1%"]}},
        {"kind": "cdf", "metric": "goodput", "x": None, "series": "stack", "log": True},
        {"kind": "bar", "metric": ["goodput", "latency_p50"]},
    ]
    folder = folders.write(tmp_path / "r", repetitions=2, report={"plots": plots})
    page = Page(report.build(folder).read_text())
    titles = [e.text for e in page.all("h3", "plots")]
    assert titles[:3] == ["A", "Retransmitted, packets", "Goodput"]
    assert titles[3].startswith("Distribution of latency")
    ratios = [e.text for e in page.all("text", "plot4")]
    assert [text for text in ratios if text.startswith("dp-")] == ["dp-afxdp", "dp-udp"]
    assert "nonsense is not an axis of the sweep" in page.text("remarks")
    units = "one axis has one unit, and its values have bit/s and ns"
    assert f"No plot “Goodput and Latency, median”: {units}." in page.text("remarks")
    assert "A log axis was asked for, but some values are zero" in page.text("plot2")


def test_points_without_a_number_are_named(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=1, samples=False, failed=[(0, 0)])
    page = Page(report.build(folder).read_text())
    assert "stack = dp-afxdp, path.loss = 0, test = 1 MiB write" in page.text("silent")


def test_load_gives_the_tidy_table(whole: Path) -> None:
    frame = report.load(whole)
    raw = pd.read_parquet(whole / "runs.parquet")
    assert len(frame) == len(raw)
    assert set(raw.columns) == set(frame.columns)
    assert frame["value"].dtype == "float64"
