# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Medians, ratios and their intervals against closed forms."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import scipy  # its parts are imported where they are used

from datapath import stats


def generator() -> np.random.Generator:
    return stats.rng(1, "test")


def test_median_leaves_out_what_is_not_a_number() -> None:
    assert stats.median([3.0, math.nan, 1.0, math.inf, 2.0]) == 2.0
    assert math.isnan(stats.median([]))
    assert math.isnan(stats.median([math.nan]))


@pytest.mark.parametrize("n", [*range(6, 16), 24, 25, 100, 1_001])
def test_an_interval_covers_the_true_median_as_often_as_it_says(n: int) -> None:
    """Each value is above the true median with probability 1/2, whatever the distribution."""
    _, lo, hi = stats.median_interval(list(range(n, 0, -1)))
    assert lo + hi == n + 1
    below = scipy.stats.binom(n, 0.5)  # how many values are
    assert below.cdf(hi - 1) - below.cdf(lo - 1) >= stats.LEVEL
    assert below.cdf(hi - 2) - below.cdf(lo) < stats.LEVEL  # no wider than needed


def test_many_values_have_the_interval_of_the_normal_theory() -> None:
    values = np.random.default_rng(5).uniform(0, 1, 20_001)
    _, lo, hi = stats.median_interval(values)
    assert hi - lo == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(len(values)), rel=0.1)


def test_one_value_has_no_interval() -> None:
    median, lo, hi = stats.median_interval([4.0])
    assert median == 4.0
    assert math.isnan(lo)
    assert math.isnan(hi)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert stats.median_interval([4.0] * 10) == (4.0, 4.0, 4.0)


def ratio_interval(seed: int, label: str) -> stats.Estimate:
    values = np.random.default_rng(1).normal(10, 1, size=20)
    return stats.median_ratio(values, values + 1, stats.rng(seed, label))


def test_interval_follows_from_seed_and_labels() -> None:
    first = ratio_interval(7, "goodput")
    assert first == ratio_interval(7, "goodput")
    assert first != ratio_interval(7, "latency")
    assert first != ratio_interval(8, "goodput")


def test_noise_of_a_block_cancels_in_the_ratio() -> None:
    noise = np.random.default_rng(2).lognormal(0, 1, 30)
    blocks = list(range(30))
    ratio = stats.paired_block_ratio(0.9 * noise, noise, blocks)
    assert ratio == pytest.approx((0.9, 0.9, 0.9))


def test_ratio_pairs_by_block_and_not_by_place() -> None:
    ratio = stats.paired_block_ratio(
        [2.0, 20.0, 200.0],
        [100.0, 10.0, 7.0, 1.0],
        [0, 1, 2],
        baseline_blocks=[2, 1, 9, 0],
    )
    assert ratio == (2.0, 2.0, 2.0)


def test_several_runs_of_a_block_count_once() -> None:
    top, bottom, blocks = stats.pair_by_block([1, 3, 8], ["a", "a", "b"], [4, 2], ["b", "a"])
    assert (top.tolist(), bottom.tolist(), blocks) == ([2.0, 8.0], [2.0, 4.0], ["a", "b"])


def test_block_without_a_value_on_one_side_is_left_out() -> None:
    ratio = stats.paired_block_ratio([1.0, math.nan, 3.0], [2.0, 2.0, math.nan], [0, 1, 2])
    assert ratio.median == 0.5
    assert math.isnan(ratio.lo)


@pytest.mark.parametrize(
    ("values", "baseline"), [([], []), ([1.0, 2.0], [1.0, 0.0]), ([math.nan], [1.0])]
)
def test_ratio_that_does_not_exist_is_not_a_number(
    values: list[float], baseline: list[float]
) -> None:
    blocks = list(range(len(values)))
    ratio = stats.paired_block_ratio(values, baseline, blocks)
    assert all(math.isnan(part) for part in ratio)


def test_values_and_blocks_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 values, but 1 blocks"):
        stats.paired_block_ratio([1.0, 2.0], [1.0, 2.0], [0])


@pytest.mark.parametrize(
    ("shares", "index"),
    [([5.0, 5.0, 5.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 3.0], 0.8), ([0.0, 0.0], 0.0)],
)
def test_jain_index(shares: list[float], index: float) -> None:
    assert stats.jain(shares) == pytest.approx(index)


def test_jain_index_leaves_out_what_is_not_a_number() -> None:
    assert stats.jain([2.0, math.nan, 2.0]) == 1.0


def test_the_sign_test_is_exact() -> None:
    assert stats.sign_p([0.1] * 6) == 2 / 2**6
    assert stats.sign_p([0.1] * 7 + [-0.1]) == 2 * 9 / 2**8
    assert stats.sign_p([0.1, -0.1]) == 1
    assert stats.sign_p([0, 0, float("nan")]) == 1


def orders_as_far_apart(values: list[float], baseline: list[float]) -> float:
    """Twice the smaller tail of the rank sums, with every order tried."""
    ranks = scipy.stats.rankdata([*values, *baseline])
    every = itertools.combinations(range(len(ranks)), len(values))
    sums = np.array([ranks[list(order)].sum() for order in every])
    seen = ranks[: len(values)].sum()
    return min(1.0, 2 * min(np.mean(sums <= seen), np.mean(sums >= seen)))


@pytest.mark.parametrize(
    ("values", "baseline"),
    [
        ([5, 6, 7, 8], [1, 2, 3, 4]),
        ([1, 2, 3], [4, 5, 6, 7, 8]),
        ([1, 4, 6, 9, 11], [2, 3, 8]),
        ([1, 1, 2, 3], [1, 3, 3, 3, 4]),
        ([0, 0, 0, 500, 500], [0, 0, 0, 0, 0]),
        ([1, 1, 1], [1, 1]),
        ([3], [1, 1]),
    ],
)
def test_the_rank_sum_test_counts_every_order(values: list[float], baseline: list[float]) -> None:
    for sides in ((values, baseline), (baseline, values)):
        assert stats.rank_sum_p(*sides) == pytest.approx(orders_as_far_apart(*sides), rel=1e-12)
        assert stats.rank_sum_p(*sides) >= stats.least_rank_sum_p(*map(len, sides))


def test_sides_that_do_not_overlap_have_the_least_probability() -> None:
    """What decides whether there are enough runs, and what judges them, is one rule."""
    exact = ((4, 4), (6, 6), (6, 9), (12, 12), (stats.EXACT_MOST, stats.EXACT_MOST), (20, 200))
    for n, m in (*exact, (6, 5_000), (stats.EXACT_MOST, 1_000), (40, 40)):
        low, high = list(range(n)), list(range(n, n + m))
        for sides in ((low, high), (high, low)):
            least = stats.least_rank_sum_p(*map(len, sides))
            assert stats.rank_sum_p(*sides) == pytest.approx(least)


def test_the_rank_sum_test_of_nothing_shows_nothing() -> None:
    assert stats.rank_sum_p([], [1]) == 1


@pytest.mark.parametrize("digits", [0, 9])
def test_the_rank_sum_test_of_many_values_is_that_of_scipy(digits: int) -> None:
    """With ties and without, on both sides of the numbers from which it is not exact."""
    rng = np.random.default_rng(4)
    most = stats.EXACT_MOST
    for n, m in ((most, most), (most + 1, most + 1), (200, 200), (most, 5_000), (5_000, most)):
        values, baseline = rng.normal(5, 2, n).round(digits), rng.normal(5.5, 2, m).round(digits)
        expected = scipy.stats.mannwhitneyu(values, baseline, method="asymptotic").pvalue
        exact = n == m == most
        assert stats.rank_sum_p(values, baseline) == pytest.approx(
            expected, rel=0.05 if exact else 1e-9
        )
    assert stats.rank_sum_p([1.0] * 40, [1.0] * 40) == 1


def test_a_difference_of_medians_has_an_interval_where_a_ratio_has_none() -> None:
    many, none = [500.0, 510.0, 520.0, 490.0, 480.0, 505.0], [0.0] * 6
    assert math.isnan(stats.median_ratio(many, none, generator()).median)
    difference = stats.median_difference(many, none, generator())
    assert difference.median == 502.5
    assert 480 <= difference.lo < 502.5 < difference.hi <= 520
    assert math.isnan(stats.median_difference([1.0], none, generator()).lo)
    assert math.isnan(stats.median_difference([], none, generator()).median)


@pytest.mark.parametrize("statistic", [stats.median_ratio, stats.median_difference])
def test_resamples_of_many_values_take_bounded_memory(
    statistic: Callable[..., stats.Estimate],
) -> None:
    """Resamples of 2,000 values drawn at once would take 160 MB, and their places as much."""
    values = np.random.default_rng(6).normal(10, 1, 2_000)
    tracemalloc.start()
    try:
        statistic(values, values + 1, generator())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 * 2**20


def test_holm_allows_for_all_comparisons() -> None:
    """The example has three comparisons: the least chance counts thrice, the next one twice."""
    assert stats.holm([0.02, 0.01, 0.5]) == [0.04, 0.03, 0.5]
    assert stats.holm([0.04, 0.03]) == [0.06, 0.06]
    assert stats.holm([]) == []


def test_more_comparisons_need_more_values() -> None:
    needed = [stats.values_to_show(count, stats.least_sign_p) for count in (1, 2, 6, 100)]
    assert needed == [6, 7, 8, 12]
