# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whose turn it is: weights, guaranteed and largest rates, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clib import testffi, testlib

pytestmark = [pytest.mark.san, pytest.mark.compute]

SECOND = 10**9
GBIT = 10**9
BURST_NS = 2_000_000
"""As share.c has it: what a rate may be behind or ahead."""


class Sharer(NamedTuple):
    """weight, guaranteed and largest bit/s (0: none), bytes of a frame, when it has frames."""

    weight: int = 1
    least: int = 0
    most: int = 0
    frame: int = 1500
    begin: int = 0
    end: int = 10 * SECOND


def share(
    *sharers: Sharer, rate: int = GBIT, every_ns: int = 0, seconds: float = 0.2
) -> tuple[list[float], list[int]]:
    """bit/s that each got, and when its first frame left."""
    rows: Any = testffi.new(f"struct X_sharer[{len(sharers)}]")
    for row, one in zip(rows, sharers, strict=True):
        row.weight, row.frame_bytes = one.weight, one.frame
        row.least_bps, row.most_bps = one.least, one.most
        row.from_ns, row.until_ns = one.begin, one.end
    testlib.X_share(rows, len(sharers), rate, every_ns, int(seconds * SECOND))
    return [row.bytes * 8 / seconds for row in rows], [row.first_ns for row in rows]


def about(value: float) -> Any:
    return pytest.approx(value, rel=0.03)


def test_weights_share_a_line() -> None:
    got, _ = share(Sharer(1), Sharer(2), Sharer(5))
    assert got == [about(GBIT / 8), about(GBIT / 4), about(GBIT * 5 / 8)]


def test_weights_count_bytes_and_not_frames() -> None:
    got, _ = share(Sharer(1, frame=9000), Sharer(1, frame=100))
    assert got == [about(GBIT / 2), about(GBIT / 2)]


def test_weights_hold_without_a_rate() -> None:
    """Something else limits: each frame takes 10 us."""
    got, _ = share(Sharer(1), Sharer(3), rate=0, every_ns=10_000)
    assert got[1] / got[0] == about(3)


def test_what_one_leaves_the_others_have() -> None:
    got, _ = share(Sharer(1), Sharer(9, end=0))
    assert got == [about(GBIT), 0]
    got, _ = share(Sharer(1), Sharer(1), Sharer(6, most=100_000_000))
    assert got == [about(450_000_000), about(450_000_000), about(100_000_000)]


def test_a_guarantee_is_kept_against_any_weight() -> None:
    got, _ = share(Sharer(1, least=300_000_000), Sharer(4096))
    assert got == [about(300_000_000), about(700_000_000)]


def test_rates_at_which_a_frame_takes_longer_than_a_burst() -> None:
    low = 8_000_000
    got, _ = share(
        Sharer(1, least=3_200_000), Sharer(16), Sharer(16, most=800_000), rate=low, seconds=4
    )
    assert got == [about(0.4 * low), about(0.5 * low), about(0.1 * low)]


def test_a_guarantee_below_the_share_changes_nothing() -> None:
    got, _ = share(Sharer(1, least=300_000_000), Sharer(1))
    assert got == [about(GBIT / 2), about(GBIT / 2)]


def test_what_a_guarantee_leaves_is_shared_by_weight() -> None:
    got, _ = share(Sharer(1, least=400_000_000), Sharer(1), Sharer(2))
    assert got == [about(400_000_000), about(200_000_000), about(400_000_000)]


def test_a_guarantee_holds_at_once_for_one_who_had_everything() -> None:
    """What it sent beyond its guarantee, while it was alone, is not held against it."""
    late = Sharer(4096, begin=SECOND // 10)
    got, _ = share(Sharer(1, least=300_000_000), late)
    assert got == [about((GBIT + 300_000_000) / 2), about(350_000_000)]


def test_a_newcomer_is_served_at_once() -> None:
    begin = SECOND // 10
    _, first = share(Sharer(1), Sharer(5), Sharer(2, begin=begin))
    assert begin <= first[2] < begin + 100_000  # within some frames


def test_who_was_away_has_no_claim() -> None:
    back = Sharer(1, begin=SECOND // 10)
    got, _ = share(back, Sharer(1))
    assert got[0] == about(GBIT / 4)


def test_a_newcomer_takes_nothing_from_others_when_one_is_held_to_its_largest_rate() -> None:
    """Whose turn, which comes late, is no measure of how far the others are."""
    held = 100_000_000
    for begin in range(SECOND // 10, SECOND // 10 + 240_000, 12_000):  # frame by frame
        got, _ = share(Sharer(1, most=held), Sharer(1), Sharer(1, begin=begin))
        assert got[2] == about((GBIT - held) / 4), begin


@pytest.mark.parametrize("away", [400, 600, 1000, 1200, 1700])
def test_a_share_that_was_away_for_long_has_its_share(away: int) -> None:
    """While another sent so many GB that its tag has wrapped."""
    step_ns, gigabyte = 1000, 10**9
    back = Sharer(1, frame=gigabyte, begin=away * step_ns)
    got, _ = share(
        back, Sharer(1, frame=gigabyte), rate=0, every_ns=step_ns, seconds=(away + 200) * 1e-6
    )
    assert got[0] / sum(got) == pytest.approx(100 / (away + 200), abs=2 / away)


sharers = st.builds(
    Sharer,
    weight=st.integers(1, 64),
    least=st.sampled_from([0, 0, 50_000_000, 200_000_000]),
    most=st.sampled_from([0, 0, 10_000_000, 250_000_000]),
    frame=st.sampled_from([64, 1500, 9000]),
    begin=st.sampled_from([0, 0, 20_000_000]),
    end=st.sampled_from([10 * SECOND, 10 * SECOND, 60_000_000]),
).filter(lambda one: not one.most or one.least <= one.most)


@given(st.lists(sharers, min_size=1, max_size=5))
def test_rates_and_the_use_of_the_line(all_of_them: Sequence[Sharer]) -> None:
    seconds = 0.1
    got, _ = share(*all_of_them, seconds=seconds)
    slack = sum(one.frame for one in all_of_them) * 8 / seconds
    burst = BURST_NS / SECOND / seconds
    assert sum(got) <= GBIT * (1 + burst) + slack
    promised = sum(one.least for one in all_of_them)
    always = [(one, rate) for one, rate in zip(all_of_them, got, strict=True) if _always(one)]
    for one, rate in zip(all_of_them, got, strict=True):
        if one.most:
            assert rate <= one.most * (1 + burst) + one.frame * 8 / seconds
    for one, rate in always:
        if promised <= GBIT:
            assert rate >= one.least * (1 - 2 * burst) - slack
    if any(not one.most for one, _ in always):  # somebody takes all that is left
        assert sum(got) >= GBIT * 0.98 - slack


def _always(one: Sharer) -> bool:
    return one.begin == 0 and one.end > SECOND
