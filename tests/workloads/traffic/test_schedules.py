# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Schedules: arrivals, loads and pairs are what they are called, and a seed repeats them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy  # its parts are imported where they are used

from datapath.errors import LocalError
from datapath.fabric import flows as table
from datapath.workloads.traffic import schedules, sizes

S = 10**9


def poisson(hosts: int = 4, **changes: Any) -> table.Flows:
    arguments: dict[str, Any] = {
        "hosts": hosts,
        "load": 0.6,
        "duration_ns": 4 * S,
        "seed": 3,
        "qps": 4,
        "destinations": lambda host: [other for other in range(hosts) if other != host],
    } | changes
    arguments.setdefault("rates_bps", [arguments.pop("rate_bps", 10e9)] * hosts)
    name = arguments.pop("sizes", "alistorage2019")
    return schedules.poisson(sizes.published(name), **arguments)


def test_the_load_is_that_of_each_host() -> None:
    flows = poisson(rates_bps=[10e9, 1e9, 10e9, 10e9], duration_ns=20 * S)
    offered = np.bincount(flows["src"], flows["bytes"].astype(float))
    assert 0.08 < offered[1] / offered[0] < 0.12


@pytest.mark.parametrize("name", sizes.PUBLISHED)
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_the_load_is_offered(name: str, load: float) -> None:
    flows = poisson(sizes=name, load=load, rate_bps=20e9, duration_ns=20 * S)
    for source in range(4):
        offered = flows["bytes"][flows["src"] == source].astype(float)
        # The total of n flows strays by its standard deviation, sizes and count together.
        strays = np.sqrt(len(offered) * (offered.var() + offered.mean() ** 2)) / offered.sum()
        assert offered.sum() * 8 / (20 * 20e9) == pytest.approx(load, rel=4 * strays)
        assert strays < 0.03


def test_arrivals_are_a_poisson_process() -> None:
    flows = poisson(duration_ns=1 * S)
    gap_ns = sizes.published("alistorage2019").mean_bytes * 8 / 0.6 / 10
    for source in range(4):
        gaps = np.diff(flows["start_ns"][flows["src"] == source].astype(float), prepend=0)
        # Instants are whole nanoseconds, a thousandth of a gap here.
        assert scipy.stats.kstest(gaps, "expon", args=(0, gap_ns)).pvalue > 0.01
        assert scipy.stats.kstest(gaps, "expon", args=(0, gap_ns * 1.1)).pvalue < 1e-6
        assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / np.sqrt(len(gaps))


def test_destinations_are_even_and_never_the_source() -> None:
    flows = poisson()
    assert not (flows["src"] == flows["dst"]).any()
    for source in range(4):
        counts = Counter(flows["dst"][flows["src"] == source].tolist())
        assert len(counts) == 3
        assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001


def test_only_pairs() -> None:
    flows = poisson(destinations=[[2], [3], [], []].__getitem__)
    assert {(int(f["src"]), int(f["dst"])) for f in flows} == {(0, 2), (1, 3)}


def test_qps_are_taken_in_turn() -> None:
    flows = poisson(duration_ns=S // 20)
    for source in range(4):
        for destination in range(4):
            mine = flows["qp"][(flows["src"] == source) & (flows["dst"] == destination)]
            assert mine.tolist() == [i % 4 for i in range(len(mine))]


def test_equal_seeds_make_equal_tables() -> None:
    first, again, other = poisson(), poisson(), poisson(seed=4)
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()
    assert not np.array_equal(
        first["start_ns"][first["src"] == 0], first["start_ns"][first["src"] == 1]
    ), "sources have streams of their own"


def test_more_hosts_do_not_change_what_one_sends() -> None:
    few, many = poisson(4), poisson(8)
    for column in ("start_ns", "bytes"):
        assert np.array_equal(few[column][few["src"] == 2], many[column][many["src"] == 2])


def test_too_many_flows_are_refused() -> None:
    with pytest.raises(LocalError, match="flows would be generated"):
        poisson(sizes="fb_hadoop", rate_bps=400e9, duration_ns=1000 * S)


def test_a_load_of_which_nothing_begins() -> None:
    assert len(poisson(sizes="websearch", rate_bps=1e3, duration_ns=1_000_000)) == 0


def test_stream() -> None:
    flows = schedules.stream(
        [(0, 2), (1, 3)], message_bytes=4096, depth=8, duration_ns=5 * S, qps=3
    )
    table.check(flows, 4)
    assert [(int(f["src"]), int(f["dst"]), int(f["qp"])) for f in flows] == [
        *((0, 2, qp) for qp in range(3)),
        *((1, 3, qp) for qp in range(3)),
    ]
    assert set(flows["bytes"]) == {table.UNTIL_STOP}
    assert set(flows["stop_ns"]) == {5 * S}


def test_incast() -> None:
    flows = schedules.incast(range(3), 3, size=1000, rounds=4, interval_ns=50)
    table.check(flows, 4)
    assert Counter(flows["start_ns"].tolist()) == {0: 3, 50: 3, 100: 3, 150: 3}
    assert flows["tag"].tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert set(flows["dst"]) == {3}
    assert flows["src"].tolist() == [0, 1, 2] * 4


def test_derangements_are_permutations_without_fixed_points() -> None:
    for hosts in (2, 3, 10, 100):
        for seed in range(20):
            drawn = schedules.derangement(hosts, seed)
            assert sorted(drawn) == list(range(hosts))
            assert all(host != to for host, to in enumerate(drawn))
    assert schedules.derangement(50, 1) == schedules.derangement(50, 1)
    assert schedules.derangement(50, 1) != schedules.derangement(50, 2)
    with pytest.raises(LocalError, match="at least 2 hosts"):
        schedules.derangement(1, 0)


def test_all_derangements_are_equally_likely() -> None:
    counts = Counter(tuple(schedules.derangement(4, seed)) for seed in range(3000))
    assert len(counts) == 9  # there are nine of four
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001


@pytest.mark.parametrize("bounded", [{"size": 10**6}, {"duration_ns": S}])
def test_permutation(bounded: dict[str, int]) -> None:
    flows = schedules.permutation(6, seed=1, message_bytes=1000, depth=2, **bounded)
    table.check(flows, 6)
    assert sorted(flows["src"]) == sorted(flows["dst"]) == list(range(6))
