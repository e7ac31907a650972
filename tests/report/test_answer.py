# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `dpctl run` and `dpctl show` print: the answer first, and within the width."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from datapath import report
from datapath.errors import LocalError
from datapath.report import answer, claims, pivot, tables
from datapath.report.folder import ResultFolder, read
from tests.cli.server import dpctl
from tests.report import folders

WIDTHS = (40, 80, 140)


@pytest.fixture(scope="module")
def result(whole: Path) -> ResultFolder:
    return read(whole)


def printed(folder: Path, encoding: str = "utf-8", width: int = 80) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    report.print_answer(folder, stream, width)
    return raw.getvalue().decode(encoding)


def test_claims_come_first_with_value_interval_and_bound(whole: Path) -> None:
    text = printed(whole)
    lines = text.splitlines()
    assert lines[0] == "synthetic: 1 of 2 claims failed; 1 of 48 runs failed"
    assert "pass:  1 % loss costs AF_XDP at most a tenth of its goodput" in lines
    assert "      measured 0.951 [0.930 to 0.968], bound ≥ 0.9" in lines
    assert "FAIL:  64 B send within 2 us" in lines
    assert "failed: dp-afxdp, 1%, 64 B send, run 2: no reply" in text
    assert text.index("FAIL") < text.index("Goodput (Gbit/s)") < text.index("failed: dp")


def test_what_to_do_about_failed_runs_is_told_once(whole: Path) -> None:
    result = read(whole)
    (failed,) = result.failures
    hinted = [replace(failed, repetition=i, hint="raise sweep.timeout") for i in range(2)]
    text = "\n".join(answer.answer(replace(result, failures=hinted), 80))
    assert text.count("  hint: raise sweep.timeout") == 1
    assert text.index("run 0: no reply") < text.index("hint:") < text.index("run 1: no reply")


def test_the_table_is_that_of_the_first_figure(whole: Path, result: ResultFolder) -> None:
    frame = result.frame[(result.frame["metric"] == "goodput") & (result.frame["stack"] == "tcp")]
    medians = [f"{v / 1e9:.3g}" for v in frame.groupby("path.loss", sort=True)["value"].median()]
    line = next(x for x in printed(whole).splitlines() if x.startswith("tcp"))
    assert line.split() == ["tcp", *medians]
    assert "latency_p99" in printed(whole).split("Also measured")[1]


def test_the_first_figure_may_be_of_points_that_were_left_out(result: ResultFolder) -> None:
    plots = [
        {"kind": "bar", "metric": "goodput", "where": {"stack": "tcp"}},
        {"kind": "bar", "metric": "latency_p50"},
    ]
    resolved = {**result.resolved, "report": {**result.report, "plots": plots}}
    whole = replace(result, resolved=resolved)
    assert answer.names(whole, every=False) == ["goodput"]
    left = replace(whole, frame=result.frame[result.frame["stack"] != "tcp"])
    assert answer.names(left, every=False) == ["latency_p50"]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_terminal(whole: Path, result: ResultFolder, width: int) -> None:
    lines = printed(whole, width=width).splitlines()
    for axis in ("", *result.axes):
        lines += answer.metric(result, "latency_p99", width, columns=axis, intervals=True)
        lines += answer.metric(result, "goodput", width, columns=axis, ratio=True, intervals=True)
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("axis", ["stack", "path.loss", "test"])
def test_each_median_is_in_the_table_once(result: ResultFolder, axis: str) -> None:
    frame = result.frame[result.frame["metric"] == "retransmits"]
    summary = tables.summarise(frame, result.axes)
    chosen = pivot.layout(result, summary, (), axis)
    assert chosen.columns == axis
    found = pivot.lines(
        result, summary, "retransmits", chosen, lambda row, _: f"<{row['point']}>", 60
    )
    words = [word for line in found for word in line.split() if word.startswith("<")]
    assert sorted(words) == sorted(f"<{point}>" for point in summary["point"])


def test_columns_that_do_not_fit_go_below(result: ResultFolder) -> None:
    lines = answer.metric(result, "goodput", 44, columns="stack", intervals=True)
    heads = [line for line in lines if line.startswith("path.loss / ")]
    assert len(heads) == 3
    assert [head.split()[-1] for head in heads] == list(folders.STACKS)


def test_ratios_are_those_of_the_shared_statistics(result: ResultFolder) -> None:
    rows = tables.ratios(result, ["goodput"])
    row = rows[(rows["stack"] == "dp-udp") & (rows["path.loss"] == "1%")].iloc[0]
    lines = answer.metric(result, "goodput", 80, ratio=True, where={"path.loss": ["1%"]})
    assert ["dp-udp", f"{row['ratio']:.2f}"] in [line.split() for line in lines]


def test_a_long_table_is_shortened_in_the_answer(
    whole: Path, result: ResultFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "_TABLE_LINES", 2)
    told = f"... 3 more lines: dpctl show {whole} --metric goodput"
    assert told in printed(whole).splitlines()
    assert len(answer.metric(result, "goodput", 80)) == 5


def test_terminal_without_unicode(whole: Path) -> None:
    text = printed(whole, "ascii")
    assert "bound >= 0.9" in text
    assert " us" in text
    assert "?" not in text


def test_names_that_do_not_exist_are_told(result: ResultFolder) -> None:
    with pytest.raises(LocalError, match="no run has a metric godput; did you mean goodput"):
        answer.check_metrics([result], ["godput"])
    with pytest.raises(LocalError, match="no axis stak; did you mean stack"):
        answer.check_where(result, {"stak": []})
    with pytest.raises(LocalError, match=r"path\.loss has no value 2%; it has: 0, 1%"):
        answer.check_where(result, {"path.loss": ["2%"]})


def test_a_folder_without_numbers_has_an_answer(tmp_path: Path) -> None:
    lost = [(point, 0) for point in range(12)]
    folder = folders.write(tmp_path / "r", repetitions=1, failed=lost, claims=[])
    text = printed(folder)
    assert text.startswith("synthetic: All runs failed")
    assert "and 7 more runs failed" in text


def test_three_verdicts_and_their_doubt(whole: Path) -> None:
    weak = folders.CLAIMS[0] | {
        "shown": False,
        "doubt": "the interval reaches the bound",
        "more_repetitions": 12,
    }
    never = weak | {"more_repetitions": None, "title": "never"}
    few = weak | {"doubt": "n = 5 is too few, 6 are needed", "more_repetitions": 1}
    sure = folders.CLAIMS[0] | {"shown": True, "doubt": "", "more_repetitions": 0}
    result = read(whole)
    result.claims = [weak, never, few, sure]
    lines = [line.strip() for line in answer.answer(result, 140)]
    title = folders.CLAIMS[0]["title"]
    assert f"pass, not shown:  {title}" in lines
    assert f"shown:  {title}" in lines
    assert "the interval reaches the bound; about 12 more repetitions would decide" in lines
    assert "the interval reaches the bound; no number of repetitions in reach would decide" in lines
    assert "n = 5 is too few, 6 are needed; 1 more repetition would decide" in lines


ONE = """\
version: 1
name: one
topology: {lane: sim}
path: {delay: 10us, rate: 1gbit, queue: 64KiB}
transport: {port: udp}
workload: {kind: stream, size: 4KiB, depth: 4, duration: 1ms}
sweep: {repetitions: 1}
report: {expect: [{metric: goodput, min: BOUND}]}
"""


@pytest.mark.parametrize("bound", ["1kbit", "1tbit"])
def test_one_is_told_in_the_singular(tmp_path: Path, bound: str) -> None:
    """One point, one run, one claim: on the terminal and in the page."""
    file, out = tmp_path / "one.yaml", tmp_path / "out"
    file.write_text(ONE.replace("BOUND", bound))
    done = dpctl("run", file, "--out", out, "--jobs", 1)
    page = re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", (out / "report.html").read_text())
    several = re.compile(r"\b1 \w*(?:runs|points|claims|blocks|repetitions)\b|\ball 1\b", re.I)
    assert several.findall(done.stdout + done.stderr + page) == []
    assert "the one run succeeded" in done.stdout
    assert "1 point, 1 run" in " ".join(page.split())


@pytest.mark.parametrize(
    ("lost", "total", "told"),
    [
        (0, 1, "the one run succeeded"),
        (1, 1, "the one run failed"),
        (0, 3, "all 3 runs succeeded"),
        (1, 3, "1 of 3 runs failed"),
    ],
)
def test_how_runs_went(lost: int, total: int, told: str) -> None:
    assert claims._told(lost, total) == told
