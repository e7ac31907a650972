# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl compare`: a difference that is there is shown, and noise is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from datapath import stats
from datapath.cli import main
from datapath.errors import LocalError
from datapath.native import paths
from datapath.report import compare, overlay, plotspec
from datapath.report.folder import ResultFolder, read
from tests.cli.told import told
from tests.report import folders


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.write(
        tmp_path_factory.mktemp("compare") / "before", repetitions=8, samples=False
    )


def scaled(result: ResultFolder, metric: str, factor: float) -> ResultFolder:
    """The same folder with this metric's values of dp-udp times a factor, in another order."""
    other = read(result.path)
    frame = other.frame
    own = (frame["metric"] == metric) & (frame["stack"] == "dp-udp")
    frame["value"] = frame["value"].where(~own, frame["value"] * factor)
    other.frame = frame.iloc[::-1]
    return other


def verdicts(rows: list[dict[str, object]]) -> dict[str, set[object]]:
    found: dict[str, set[object]] = {}
    for row in rows:
        found.setdefault(str(row["stack"]), set()).add(row["verdict"])
    return found


@pytest.mark.parametrize(
    ("metric", "factor", "verdict"),
    [
        ("goodput", 2.0, "better"),
        ("goodput", 0.5, "worse"),
        ("latency_p50", 2.0, "worse"),
        ("latency_p50", 0.5, "better"),
        ("path_dropped", 2.0, "differs"),
    ],
)
def test_a_difference_is_shown_where_it_is(
    before: Path, metric: str, factor: float, verdict: str
) -> None:
    first = read(before)
    rows = compare.compare([first, scaled(first, metric, factor)], [metric])
    lossy = [row for row in rows if row["path.loss"] == "1%"]
    found = verdicts(lossy)
    assert found.pop("dp-udp") == {verdict}
    assert set.union(*found.values()) == {"no difference shown"}


def test_a_folder_does_not_differ_from_itself(before: Path) -> None:
    rows = compare.compare([read(before), read(before)], ["goodput", "latency_p99"])
    assert {row["verdict"] for row in rows} == {"no difference shown"}
    assert {row["ratio"] for row in rows} == {1.0}
    assert len(rows) == len(folders.all_axes())


@pytest.mark.parametrize(
    ("runs", "points", "verdict"), [(6, 23, "better"), (6, 24, "too few"), (9, 501, "better")]
)
def test_sides_that_do_not_overlap_differ_where_the_runs_suffice(
    before: Path, runs: int, points: int, verdict: str
) -> None:
    """Of 924 orders of 6 and 6 runs 2 are as far apart: 23 points of that are less than 5 %."""
    first, other = read(before), read(before)
    one = first.frame[first.frame["metric"] == "goodput"].head(1)
    point = pd.concat([one] * runs).assign(block=range(runs), value=range(100, 100 + runs))
    copies = [point.assign(**{"path.loss": str(number)}) for number in range(points)]
    first.frame = pd.concat(copies, ignore_index=True)
    other.frame = first.frame.assign(value=first.frame["value"] + 100)
    rows = compare.compare([first, other], ["goodput"])
    assert len(rows) == points
    assert {row["verdict"] for row in rows} == {verdict}


COUNTS = (480.0, 490.0, 500.0, 505.0, 510.0, 520.0, 530.0, 540.0)


def counted(result: ResultFolder, counts: Sequence[float]) -> ResultFolder:
    """The folder with these time-outs in place of its goodput, a number for each block."""
    other = read(result.path)
    frame = other.frame[other.frame["metric"] == "goodput"]
    other.frame = frame.assign(
        metric="timeouts", unit="1", value=frame["block"].map(dict(enumerate(counts)))
    )
    return other


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    ("base", "counts", "verdict"),
    [
        ([0.0] * 8, COUNTS, "worse"),
        ([0.0, *[10.0] * 7], COUNTS, "worse"),
        ([0.0, 0.0, 0.0, *[10.0] * 5], COUNTS, "worse"),
        ([0.0] * 8, [0.0] * 8, "no difference shown"),
        ([0.0] * 8, [0.0] * 7 + [1.0], "no difference shown"),
        ([0.0, *[10.0] * 7], [10.0] * 7 + [0.0], "no difference shown"),
    ],
)
def test_a_difference_from_nothing_is_shown(
    before: Path, base: list[float], counts: list[float], verdict: str, paired: bool
) -> None:
    """A side of 0 has no ratio, and yet differs from hundreds."""
    first = read(before)
    sides = [counted(first, base), counted(first, counts)]
    rows = compare.compare(sides, ["timeouts"], paired=paired)
    assert {row["verdict"] for row in rows} == {verdict}


def test_medians_stand_where_there_is_no_ratio(before: Path) -> None:
    first = read(before)
    sides = [counted(first, [0.0] * 8), counted(first, COUNTS)]
    text = "\n".join(compare.text(sides, compare.compare(sides, ["timeouts"]), 80))
    assert text.count(" 0 to 508 -") == 6
    assert "B: 6 worse of 6 points." in text
    legend = "Where a ratio would divide by 0, the medians stand in its place, that of A first"
    assert legend in " ".join(text.split())
    sides = [counted(first, COUNTS), counted(first, [0.0] * 8)]
    text = "\n".join(compare.text(sides, compare.compare(sides, ["timeouts"]), 80))
    assert "divide by 0" not in text
    assert "B: 6 better of 6 points." in text


def test_noise_is_mostly_not_shown() -> None:
    """Two samples of one distribution: 1 lies outside a 95 % interval now and then."""
    rng = np.random.default_rng(3)
    misses = 0
    for _ in range(100):
        estimate = stats.median_ratio(rng.normal(1, 0.1, 10), rng.normal(1, 0.1, 10), rng)
        misses += not estimate.lo <= 1 <= estimate.hi
    assert misses <= 10


def test_equal_sides_show_nothing_in_most_tables() -> None:
    """Without a correction one of six points would differ in a quarter of the tables."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(200):
        blocks = [rng.normal(0, 0.1, 8) for _ in range(6)]
        wrong += min(stats.holm([stats.sign_p(each) for each in blocks])) <= 0.05
    assert wrong <= 20


def test_few_runs_of_many_points_show_nothing(before: Path) -> None:
    """Six blocks on one side of 1 come about by chance once in 32 points: too often for six."""
    first = read(before)
    first.frame = first.frame[first.frame["block"] < 6]
    other = scaled(first, "goodput", 2)
    other.frame = other.frame[other.frame["block"] < 6]
    rows = compare.compare([first, other], ["goodput"], paired=True)
    assert {row["verdict"] for row in rows} == {"too few"}
    text = "\n".join(compare.text([first, other], rows, 80, names=["v1", "v2"]))
    assert "B: too few runs; 8 on each side can show one of 6 points." in text


def test_few_runs_show_nothing(tmp_path: Path) -> None:
    first = read(folders.write(tmp_path / "r", repetitions=stats.FEWEST - 1, samples=False))
    rows = compare.compare([first, scaled(first, "goodput", 10)], ["goodput"])
    assert {row["verdict"] for row in rows} == {"too few"}


def test_text_fits_and_says_when_nothing_is_shown(before: Path) -> None:
    first = read(before)
    rows = compare.compare([first, first, scaled(first, "goodput", 2)], ["goodput"])
    lines = compare.text([first, first, first], rows, 80)
    assert "B: no difference shown (of 6 points)." in lines
    assert "C: 2 better of 6 points." in lines
    tables = lines[lines.index("Goodput, B / A, higher is better") :]
    assert [line for line in tables if len(line) > 80] == []


def test_points_of_one_folder_only_are_left_out_and_told(before: Path) -> None:
    first, other = read(before), read(before)
    other.frame = other.frame[other.frame["stack"] != "tcp"]
    rows = compare.compare([first, other], ["goodput"])
    assert {row["stack"] for row in rows} == {"dp-afxdp", "dp-udp"}
    assert compare.remarks([first, other]) == [
        "their points differ; only those that both have are compared"
    ]


def test_another_spelling_of_a_value_is_no_other_point(before: Path) -> None:
    """resolved.yaml of a folder may spell the values of a sweep in another way than its runs."""
    first, other = read(before), read(before)
    other.resolved["sweep"]["matrix"]["path.loss"] = ["0.0", 0.01]
    assert compare.remarks([first, other]) == []


def test_points_without_a_like_are_not_taken_together(before: Path, tmp_path: Path) -> None:
    """One folder varies the loss; what the other had of it, nobody knows."""
    first, other = read(before), read(before)
    other.frame = other.frame[other.frame["path.loss"] == "1%"].drop(columns="path.loss")
    other.axes.remove("path.loss")
    for sides in ([first, other], [other, first]):
        assert compare.compare(sides, ["goodput"]) == []
        assert compare.gaps(sides, ["goodput"], []) == [
            "A and B have no point in common with goodput: only one of them varies path.loss"
        ]
        with pytest.raises(LocalError, match="no figure: only one of A and B varies"):
            overlay.draw(sides, ["A", "B"], "goodput", tmp_path / "both.svg")
    first.frame = first.frame[first.frame["path.loss"] == "1%"]
    assert len(compare.compare([first, other], ["goodput"])) == 3


def test_the_command(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(before), str(before), "--format", "json"]) == 0
    document = told("compare", capsys.readouterr().out)
    assert document["folders"] == [str(before)] * 2
    assert pd.DataFrame(document["comparisons"])["metric"].unique().tolist() == ["goodput"]
    assert main(["compare", str(before)]) == 2
    assert "two folders or more" in capsys.readouterr().err


def test_blocks_that_were_made_in_turn_are_paired(before: Path) -> None:
    """Noise that both sides of a block share hides a difference of 3 % without pairs of blocks."""
    noise = dict(enumerate(np.random.default_rng(7).uniform(0.5, 2.0, 8)))

    def noisy(factor: float) -> ResultFolder:
        folder = read(before)
        own = folder.frame["metric"] == "goodput"
        value = 1e9 * factor * folder.frame["block"].map(noise)
        folder.frame["value"] = folder.frame["value"].where(~own, value)
        return folder

    sides = [noisy(1.0), noisy(1.03)]
    assert {row["verdict"] for row in compare.compare(sides, ["goodput"])} == {
        "no difference shown"
    }
    paired = compare.compare(sides, ["goodput"], paired=True)
    assert {row["verdict"] for row in paired} == {"better"}
    assert {round(row["ratio"], 6) for row in paired} == {1.03}
    equal = compare.compare([sides[0], noisy(1.0)], ["goodput"], paired=True)
    assert {row["verdict"] for row in equal} == {"no difference shown"}
    text = "\n".join(compare.text(sides, paired, 80, names=["v1 (1234)", "v2 (5678)"]))
    assert "A  v1 (1234)" in text
    assert "Medians of the blocks' ratios" in " ".join(text.split())


def test_folders_of_one_repetition_become_blocks(before: Path) -> None:
    one = read(before)
    one.frame = one.frame[one.frame["repetition"] == 0]
    whole = compare.as_blocks([one, one, one])
    assert len(whole.frame) == 3 * len(one.frame)
    assert sorted(whole.frame["block"].unique()) == [0, 1, 2]


@pytest.mark.parametrize("end", ["svg", "pdf", "png"])
def test_a_figure_has_a_series_for_each_folder(
    before: Path, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"both.{end}"
    after = folders.write(tmp_path / "after", repetitions=3, samples=False)
    assert main(["compare", str(before), str(after), "--plot", str(file)]) == 0
    assert capsys.readouterr().err == f"figure: {file}\n"
    content = file.read_bytes()
    assert content.startswith({"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[end])


def test_a_figure_has_the_points_that_all_folders_have(before: Path) -> None:
    first, other = read(before), read(before)
    other.frame = other.frame[other.frame["path.loss"] != "1%"]
    both = overlay.overlaid([first, other], ["A", "B"])
    assert both.axes == [*first.axes, "side"]
    assert "1%" not in set(both.frame["path.loss"])
    assert len(both.frame) == 2 * len(other.frame)
    spec = plotspec.by_series(both, "goodput", "side")
    assert spec.series == "side"
    assert both.axis_values("side") == ["A", "B"]


def test_an_axis_may_be_called_as_the_sides_are(before: Path, tmp_path: Path) -> None:
    sides = [read(before), read(before)]
    for folder in sides:
        folder.frame = folder.frame.rename(columns={"stack": "side"})
        folder.axes = ["side", *folder.axes[1:]]
    both = overlay.overlaid(sides, ["A", "B"])
    assert both.axes[-1] == "side_"
    assert both.axis_values("side_") == ["A", "B"]
    assert both.axis_values("side") == sides[0].axis_values("side")
    assert overlay.draw(sides, ["A", "B"], "goodput", tmp_path / "both.svg") == []


def test_a_folder_without_the_metric_is_told(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = read(before), read(before)
    other.frame = other.frame[other.frame["metric"] != "goodput"]
    names = ["A", "B", "C"]
    said = overlay.draw([first, other, first], names, "goodput", tmp_path / "both.svg")
    assert said == ["B has no goodput, and is not in the figure"]
    with pytest.raises(LocalError, match="no figure: only B has goodput"):
        overlay.draw([other, first], names[:2], "goodput", tmp_path / "two.svg")
    with pytest.raises(LocalError, match="no figure: no folder has godput"):
        overlay.draw([other, first], names[:2], "godput", tmp_path / "two.svg")
    assert not (tmp_path / "two.svg").exists()
    rows = compare.compare([first, other, first], ["goodput"])
    assert compare.gaps([first, other, first], ["goodput"], rows) == ["B has no goodput"]
    assert compare.gaps([other, other], ["goodput"], []) == ["A and B have no goodput"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/both.svg", "none/both.svg: No such file or directory"),
        ("folder.svg", "folder.svg is a folder"),
        ("both.gif", "unknown plot format 'gif'"),
    ],
)
def test_where_no_figure_can_be_is_told_first(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    (tmp_path / "folder.svg").mkdir()
    plot = ["--plot", str(tmp_path / name)]
    assert main(["compare", str(before), str(before), *plot]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


def test_revisions_are_not_run_for_a_metric_that_there_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(paths.ROOT / "experiments" / "quickstart.yaml")
    assert main(["compare", ".", ".", file, "--metric", "godput"]) == 2
    told = capsys.readouterr().err
    assert "error: there is no metric godput\nhint: did you mean goodput?\n" in told
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_nothing_is_refused(before: Path, tmp_path: Path) -> None:
    first, other = read(before), read(before)
    other.frame = other.frame[other.frame["path.loss"] == "1%"]
    first.frame = first.frame[first.frame["path.loss"] != "1%"]
    with pytest.raises(LocalError, match="no figure"):
        overlay.draw([first, other], ["A", "B"], "goodput", tmp_path / "both.svg")
    assert not list(tmp_path.iterdir())
