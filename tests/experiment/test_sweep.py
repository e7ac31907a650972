# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Points and runs: which there are, in which order, and that they are the same every time."""

from __future__ import annotations

from pathlib import Path

from datapath.experiment.load import load_text
from datapath.experiment.sweep import run_seed, schedule

from .conftest import GOOD, Load


def test_points_are_the_product_in_the_order_of_the_file(load: Load) -> None:
    axes = [tuple(point.axes.values()) for point in load().points]
    assert axes == [
        ("latency", "dp-afxdp", "0"),
        ("latency", "dp-afxdp", "1%"),
        ("latency", "tcp", "0"),
        ("latency", "tcp", "1%"),
        ("bandwidth", "dp-afxdp", "0"),
        ("bandwidth", "dp-afxdp", "1%"),
        ("bandwidth", "tcp", "0"),
        ("bandwidth", "tcp", "1%"),
    ]


def test_adjustments_come_on_top_of_the_axes(load: Load) -> None:
    kinds = {(point.axes["test"], point.axes["stack"]): point.spec.kind for point in load().points}
    assert kinds == {
        ("latency", "dp-afxdp"): "perftest",
        ("bandwidth", "dp-afxdp"): "perftest",
        ("latency", "tcp"): "sockperf",
        ("bandwidth", "tcp"): "iperf3",
    }


def test_a_mapping_replaces_and_a_path_inside_changes(load: Load) -> None:
    replaced = load().points[0].spec.workload.model_dump()
    assert (replaced["test"], replaced["size"]) == ("send_lat", 64)
    changed = load(
        "set: {workload: {kind: perftest, test: send_lat, size: 64}}", "set: {workload.size: 2KiB}"
    )
    assert changed.points[0].spec.workload.model_dump()["size"] == 2048
    assert changed.points[0].spec.workload.model_dump()["test"] == "write_bw"


def test_only_chooses_points_and_the_claims_about_them(load: Load) -> None:
    whole = load()
    chosen = load("repetitions: 3", "only: {stack: dp-afxdp, path.loss: [1%]}\n  repetitions: 3")
    assert [tuple(point.axes.values()) for point in chosen.points] == [
        ("latency", "dp-afxdp", "1%"),
        ("bandwidth", "dp-afxdp", "1%"),
    ]
    keys = {tuple(point.axes.values()): point.key for point in whole.points}
    assert all(keys[tuple(point.axes.values())] == point.key for point in chosen.points)
    # The first claim is a ratio to points without loss, which are not measured.
    assert chosen.spec.report.expect == whole.spec.report.expect[1:]
    assert list(chosen.selectors) == list(whole.selectors[1:])
    assert len(chosen.resolved["report"]["expect"]) == 1


def test_exclude_and_include(load: Load) -> None:
    experiment = load(
        "repetitions: 3",
        "exclude: [{stack: tcp, path.loss: 1%}, {test: latency, stack: [tcp, dp-afxdp]}]\n"
        "  include: [{test: bandwidth, stack: dp-afxdp, path.loss: 5%}]",
    )
    assert [tuple(point.axes.values()) for point in experiment.points] == [
        ("bandwidth", "dp-afxdp", "0"),
        ("bandwidth", "dp-afxdp", "1%"),
        ("bandwidth", "tcp", "0"),
        ("bandwidth", "dp-afxdp", "5%"),
    ]
    assert experiment.points[-1].spec.path.loss.model_dump()["rate"] == 0.05


def test_keys_follow_the_content_not_the_spelling(tmp_path: Path) -> None:
    def keys(text: str) -> list[str]:
        return [point.key for point in load_text(text, tmp_path / "x.yaml").points]

    base = keys(GOOD)
    assert len(set(base)) == len(base)
    assert keys(GOOD.replace("mtu: 9000", "mtu: 9kB")) == base
    assert keys(GOOD.replace("name: good", "name: other")) == base
    assert set(keys(GOOD.replace("mtu: 9000", "mtu: 9001"))).isdisjoint(base)


def test_keys_follow_the_files_that_a_point_names(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a(struct xdp_md *ctx) { return XDP_PASS; }")
    text = GOOD.replace("path: {loss: 0}", "xdp: {source: a.c}")
    before = load_text(text, tmp_path / "x.yaml").points[0].key
    (tmp_path / "a.c").write_text("int a(struct xdp_md *ctx) { return XDP_DROP; }")
    assert load_text(text, tmp_path / "x.yaml").points[0].key != before


def test_every_block_has_every_point_once_in_an_order_of_its_own(load: Load) -> None:
    experiment = load("repetitions: 3", "repetitions: 20")
    runs = schedule(experiment.points, experiment.spec.sweep, seed=1)
    keys = [point.key for point in experiment.points]
    blocks = [[run.point.key for run in runs if run.repetition == block] for block in range(20)]
    assert all(sorted(block) == sorted(keys) for block in blocks)
    assert len({tuple(block) for block in blocks}) > 10
    assert [run.repetition for run in runs] == sorted(run.repetition for run in runs)
    again = schedule(experiment.points, experiment.spec.sweep, seed=1)
    assert [run.name for run in again] == [run.name for run in runs]
    other = schedule(experiment.points, experiment.spec.sweep, seed=2)
    assert [run.name for run in other] != [run.name for run in runs]


def test_sequential_keeps_the_order_of_the_file(load: Load) -> None:
    experiment = load("repetitions: 3", "order: sequential")
    runs = schedule(experiment.points, experiment.spec.sweep, seed=1)
    keys = [point.key for point in experiment.points]
    assert [run.point.key for run in runs] == keys * 10


def test_run_seeds_are_fixed_for_ever() -> None:
    # A changed number here means that old results cannot be repeated.
    assert run_seed(1, "0123456789ab", 0) == EXPECTED_SEED
    assert run_seed(1, "0123456789ab", 1) != run_seed(1, "0123456789ab", 0)
    assert run_seed(2, "0123456789ab", 0) != run_seed(1, "0123456789ab", 0)


EXPECTED_SEED = 2857059619880957846
