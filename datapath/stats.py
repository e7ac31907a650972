# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Medians, paired ratios and their intervals: the statistics of every result.

Runs of one block are taken close together in time, so noise that a whole block
shares (a busy neighbour, a hot CPU) cancels in the ratio of two runs of that
block.  The ratio quoted everywhere is therefore the median of the per-block
ratios.

The interval of a median ends at two of its values, chosen by the sign test, so that it holds
the true median at least as often as LEVEL says, whatever the values' distribution (David and
Nagaraja, Order Statistics, 2003, section 7.1).  Two sides that nothing pairs are resampled: a
percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).

Everything here is numpy only and a pure function of its arguments: a seeded
generator comes in from outside, see `rng`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
"""Coverage of an interval, a share of 1."""

RESAMPLES = 10_000
"""Bootstrap resamples: the end points then move by less than one order statistic."""

FEWEST = 6
"""Values with which an interval can hold its LEVEL.

All of n values lie on one side of their true median with probability 2^(1 - n), 3 % of 6 and
6 % of 5.  Of fewer than 6, even least to greatest holds it less often than 95 %.
"""

EXACT_MOST = 25
"""Values of the smaller side up to which the rank-sum test counts every order.

The normal distribution gives two sides of 26 that do not overlap a probability of 6e-10: little
enough for a table of any size.
"""

_EXACT_WORK = 100_000_000
"""Additions, at most, with which that test counts every order: a tenth of a second or less."""

_POWER = ((1.96 + 0.84) / 1.96) ** 2
"""More values by this factor bring the interval's end beyond a bound in 80 % of the cases, and
not in 50 %: quantiles of the normal distribution at 97.5 % and 80 %."""

_CHUNK = 1 << 20  # indices drawn at once, bounds the memory of a resample


class Estimate(NamedTuple):
    """A median with the end points of its interval, in the unit of the values.

    lo and hi are NaN when fewer than two values (blocks) stand behind the median,
    and all three are NaN when there are none.
    """

    median: float
    lo: float
    hi: float


UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"))


def rng(seed: int, *labels: object) -> np.random.Generator:
    """A generator that depends on the seed and the labels only, on every machine.

    Labels (a metric's name, a point) give each statistic its own stream, so that
    adding one to a report does not move the others.
    """
    text = "\x1f".join(str(label) for label in labels)
    return np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(text.encode())])


def finite(values: ArrayLike) -> NDArray[np.float64]:
    """The values that are numbers, shape (n,): NaN and infinities are left out."""
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def median(values: ArrayLike) -> float:
    """Median of the finite values; NaN when there are none."""
    kept = finite(values)
    return float(np.median(kept)) if kept.size else float("nan")


def _resampled(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """The median of each resample, shape (RESAMPLES,); a few of them are drawn at a time."""
    rows = max(1, _CHUNK // values.size)
    parts = []
    for start in range(0, RESAMPLES, rows):
        size = (min(rows, RESAMPLES - start), values.size)
        picks = rng.integers(0, values.size, size=size)
        parts.append(np.median(values[picks], axis=1))
    return np.concatenate(parts)


def median_interval(values: ArrayLike) -> Estimate:
    """Median of the finite values with its interval: from their least to their greatest for 8 and
    fewer, from the second least to the second greatest for 9 to 11, and so on.
    """
    kept = np.sort(finite(values))
    if kept.size < 2:
        return Estimate(median(kept), float("nan"), float("nan"))
    outside, _ = _outside(kept.size)
    return Estimate(median(kept), float(kept[outside]), float(kept[-1 - outside]))


def _outside(n: int) -> tuple[int, float]:
    """Of n values, those on either side of the interval of their median; how often that misses it.

    So many or fewer of them are below their true median with the probability of so many heads, or
    fewer, of n coins.  Of fewer than FEWEST values all are inside.
    """
    heads = np.arange(1, n + 1)
    chances = np.concatenate([[0.0], np.cumsum(np.log((n - heads + 1) / heads))]) - n * math.log(2)
    beyond = 2 * np.cumsum(np.exp(chances))
    outside = max(0, int(np.searchsorted(beyond, 1 - LEVEL, side="right")) - 1)
    return outside, float(beyond[outside])


def values_to_decide(estimate: Estimate, n: int, bound: float) -> float:
    """About how many values in all put the interval on one side of a bound, in 4 of 5 cases.

    n: values behind the estimate, 2 or more.  The interval is taken to shrink with the root of
    their number around a median that stays, from the width that it would have if it missed the
    median just as often as LEVEL lets it.  FEWEST at least; infinite for a median that lies on the
    bound.
    """
    reach = (
        estimate.median - estimate.lo if estimate.median > bound else estimate.hi - estimate.median
    )
    distance = abs(estimate.median - bound)
    if distance == 0:
        return math.inf
    _, missed = _outside(n)
    normal = NormalDist()
    reach *= normal.inv_cdf((1 + LEVEL) / 2) / normal.inv_cdf(1 - missed / 2)
    return max(float(FEWEST), float(np.ceil(_POWER * n * (reach / distance) ** 2)))


def jain(shares: ArrayLike) -> float:
    """Jain's fairness index of the finite shares: 1 when all are equal, 1/n when one has all.

    0 when nobody has anything (Jain, Chiu and Hawe, A Quantitative Measure of Fairness and
    Discrimination for Resource Allocation, DEC Research Report TR-301, 1984, section 3).
    """
    kept = finite(shares)
    squares = float(np.sum(kept * kept))
    return float(np.sum(kept)) ** 2 / (kept.size * squares) if squares else 0.0


def pair_by_block(
    values: ArrayLike,
    value_blocks: Sequence[object] | NDArray[Any],
    baseline: ArrayLike,
    baseline_blocks: Sequence[object] | NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[object]]:
    """Line up two sets of runs by block: (values, baseline, blocks), one entry a block.

    Several runs of one block are reduced to their median first; blocks in which
    either side has no finite value (a failed run) are left out.
    """
    left = _by_block(values, value_blocks)
    right = _by_block(baseline, baseline_blocks)
    blocks = [block for block in left if block in right]
    pairs = [(left[block], right[block]) for block in blocks]
    array = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1], blocks


def paired_block_ratio(
    values: ArrayLike,
    baseline: ArrayLike,
    blocks: Sequence[object] | NDArray[Any],
    *,
    baseline_blocks: Sequence[object] | NDArray[Any] | None = None,
) -> Estimate:
    """Median of the per-block ratios values/baseline, with its interval.

    blocks: block of each value; also of each entry of `baseline`, unless
    `baseline_blocks` says otherwise (the two sides may differ in length then).
    A zero in the baseline makes the ratio undefined: all three are NaN, since
    leaving that block out would flatter one side.
    """
    other = blocks if baseline_blocks is None else baseline_blocks
    top, bottom, _ = pair_by_block(values, blocks, baseline, other)
    if not top.size or bool(np.any(bottom == 0)):
        return UNKNOWN
    return median_interval(top / bottom)


def median_ratio(values: ArrayLike, baseline: ArrayLike, rng: np.random.Generator) -> Estimate:
    """Ratio of two medians, each side resampled on its own: nothing pairs the values.

    All three are NaN where a side is empty or the median of the baseline is 0, the ends also
    where a side has one value, or resamples of the baseline have a median of 0.
    """
    top, bottom = finite(values), finite(baseline)
    if not top.size or not bottom.size or median(bottom) == 0:
        return UNKNOWN
    ratio = median(top) / median(bottom)
    if min(top.size, bottom.size) < 2:
        return Estimate(ratio, float("nan"), float("nan"))
    over, under = _resampled(top, rng), _resampled(bottom, rng)
    if bool(np.any(under == 0)):
        return Estimate(ratio, float("nan"), float("nan"))
    lo, hi = np.quantile(over / under, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(ratio, float(lo), float(hi))


def median_difference(values: ArrayLike, baseline: ArrayLike, rng: np.random.Generator) -> Estimate:
    """Difference of two medians, each side resampled on its own: nothing pairs the values.

    All three are NaN where a side is empty, the ends also where a side has one value.
    """
    top, bottom = finite(values), finite(baseline)
    if not top.size or not bottom.size:
        return UNKNOWN
    difference = median(top) - median(bottom)
    if min(top.size, bottom.size) < 2:
        return Estimate(difference, float("nan"), float("nan"))
    over, under = _resampled(top, rng), _resampled(bottom, rng)
    lo, hi = np.quantile(over - under, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(difference, float(lo), float(hi))


def sign_p(differences: ArrayLike) -> float:
    """How likely by chance so many of these have one sign, or more (sign test).

    Two-sided and exact: each difference that is not 0 is positive or negative with the same
    probability where nothing differs.  1 when all are 0, or none is a number.
    """
    kept = finite(differences)
    above, below = int(np.sum(kept > 0)), int(np.sum(kept < 0))
    n = above + below
    tail = sum(math.comb(n, k) for k in range(min(above, below) + 1))
    return float(min(1.0, 2 * tail / 2**n))


def rank_sum_p(values: ArrayLike, baseline: ArrayLike) -> float:
    """How likely by chance the ranks of two samples are so far apart, or farther.

    The rank-sum test of Wilcoxon (1945): twice the smaller tail.  Equal values share the mean of
    their ranks.  Exact where counting every order is little work (_counts_orders), else by the
    normal distribution, corrected for ties and for continuity.  1 when a side is empty.
    """
    top, bottom = finite(values), finite(baseline)
    if not top.size or not bottom.size:
        return 1.0
    _, place, count = np.unique(
        np.concatenate([top, bottom]), return_inverse=True, return_counts=True
    )
    doubled = (2 * np.cumsum(count) - (count - 1))[place]  # ranks, whole numbers also with ties
    parts = sorted((doubled[: top.size], doubled[top.size :]), key=len)
    if _counts_orders(top.size, bottom.size):
        sums = _rank_sums(doubled, len(parts[0]))
        seen = int(parts[0].sum())
        tail = float(min(sums[: seen + 1].sum(), sums[seen:].sum()))
        return min(1.0, 2 * tail / math.comb(doubled.size, len(parts[0])))
    total = doubled.size
    ties = float(np.sum(count.astype(float) ** 3 - count)) / (total * (total - 1))
    apart = abs(float(parts[0].sum()) / 2 - len(parts[0]) * (total + 1) / 2)
    return _normal_p(apart, top.size, bottom.size, ties)


def _counts_orders(n: int, baseline_n: int) -> bool:
    """Whether rank_sum_p is exact for so many values: _rank_sums is then little work."""
    few, total = min(n, baseline_n), n + baseline_n
    largest = few * (2 * total - few + 1)  # sum of doubled ranks
    return few <= EXACT_MOST and total * few * largest <= _EXACT_WORK


def _normal_p(apart: float, n: int, baseline_n: int, ties: float = 0.0) -> float:
    """How likely by chance a sum of ranks lies so far from its mean, by the normal distribution."""
    deviation = math.sqrt(n * baseline_n / 12 * (n + baseline_n + 1 - ties))
    apart -= 0.5  # for continuity
    return math.erfc(apart / deviation / math.sqrt(2)) if deviation and apart > 0 else 1.0


def _rank_sums(ranks: NDArray[Any], n: int) -> NDArray[np.float64]:
    """How many choices of n of these ranks have each sum, from 0 to the largest."""
    counts = np.zeros((n + 1, int(np.sort(ranks)[ranks.size - n :].sum()) + 1))
    counts[0, 0] = 1
    for rank in ranks.tolist():
        counts[1:, rank:] += counts[:-1, : counts.shape[1] - rank]
    found: NDArray[np.float64] = counts[n]
    return found


def least_sign_p(n: int) -> float:
    """The least that sign_p can say of n differences."""
    return float(2.0 ** (1 - n)) if n else 1.0


def least_rank_sum_p(n: int, baseline_n: int) -> float:
    """The least that rank_sum_p can say of so many values, all of them different."""
    if not n or not baseline_n:
        return 1.0
    if _counts_orders(n, baseline_n):
        return min(1.0, 2 / math.comb(n + baseline_n, n))
    return _normal_p(n * baseline_n / 2, n, baseline_n)


def holm(chances: Sequence[float]) -> list[float]:
    """The chances of several comparisons, each adjusted for all of them; in the same order.

    At most 1 - LEVEL then holds for all comparisons together: the probability that even one of
    those below it differs by chance alone (Holm, A simple sequentially rejective multiple test
    procedure, Scandinavian Journal of Statistics 6, 1979).
    """
    adjusted, highest = [1.0] * len(chances), 0.0
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[index]))
        adjusted[index] = highest
    return adjusted


def values_to_show(comparisons: int, least_p: Callable[[int], float]) -> int:
    """Values on a side with which a difference can be shown among so many comparisons.

    least_p: the least that the test can say of n values, such as least_sign_p.
    """
    n = FEWEST
    while comparisons * least_p(n) > 1 - LEVEL:
        n += 1
    return n


def _by_block(values: ArrayLike, blocks: Sequence[object] | NDArray[Any]) -> dict[object, float]:
    array = np.asarray(values, dtype=np.float64).ravel()
    keys = list(blocks)
    if len(keys) != array.size:
        raise ValueError(f"{array.size} values, but {len(keys)} blocks")
    groups: dict[object, list[float]] = {}
    for key, value in zip(keys, array.tolist(), strict=True):
        groups.setdefault(key, []).append(value)
    medians = {key: median(group) for key, group in groups.items()}
    return {key: value for key, value in medians.items() if np.isfinite(value)}
