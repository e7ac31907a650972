# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The policer of a link: a token bucket before the queue."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.link.links import Link, MakeLink

pytestmark = pytest.mark.san

GBIT = 10**9


def passed(link: Link) -> set[int]:
    """Numbers of the frames that no policer has dropped."""
    return set(range(len(link.frames))) - {n for n, why in link.dropped if why == "policer"}


def test_a_full_bucket_passes_its_burst_at_once(make_link: MakeLink) -> None:
    link = make_link(policer={"rate_bps": GBIT, "burst_bytes": 4000})
    for _ in range(6):
        link.offer(0, bytes=1000)
    assert passed(link) == {0, 1, 2, 3}
    assert (link.stats.policed, link.stats.lost, link.stats.overflowed) == (2, 0, 0)
    link.offer(7999, bytes=1000)
    link.offer(8000, bytes=1000)  # a thousand bytes at 1 Gbit/s
    assert passed(link) == {0, 1, 2, 3, 7}


def test_a_frame_that_is_dropped_takes_no_tokens(make_link: MakeLink) -> None:
    link = make_link(policer={"rate_bps": GBIT, "burst_bytes": 1000})
    for size in (900, 500, 100):
        link.offer(0, bytes=size)
    assert passed(link) == {0, 2}


def test_a_frame_larger_than_the_bucket_never_passes(make_link: MakeLink) -> None:
    link = make_link(policer={"rate_bps": GBIT, "burst_bytes": 1000})
    for at in (0, 10**9, 10**12):
        link.offer(at, bytes=1001)
    assert passed(link) == set()


def test_nothing_waits_for_tokens(make_link: MakeLink) -> None:
    link = make_link(delay_ns=10, policer={"rate_bps": 1000, "burst_bytes": 3000})
    for _ in range(5):
        link.offer(0, bytes=1000)
    assert [a.at_ns for a in link.arrivals()] == [10] * 3


def test_a_lost_frame_takes_no_tokens(make_link: MakeLink) -> None:
    link = make_link(loss={"good": 1.0}, policer={"rate_bps": GBIT, "burst_bytes": 1000})
    for _ in range(3):
        link.offer(0, bytes=1000)
    assert link.configure(0, policer={"rate_bps": GBIT, "burst_bytes": 1000}) == 0
    link.offer(0, bytes=1000)
    assert passed(link) == {0, 1, 2, 3}


def test_a_smaller_bucket_holds_at_once(make_link: MakeLink) -> None:
    link = make_link(policer={"rate_bps": GBIT, "burst_bytes": 9000})
    assert link.configure(0, policer={"rate_bps": GBIT, "burst_bytes": 2000}) == 0
    for _ in range(3):
        link.offer(0, bytes=1000)
    assert passed(link) == {0, 1}


def test_tokens_come_at_the_rate_of_their_time(make_link: MakeLink) -> None:
    """4 us at 1 Gbit/s are 500 bytes, also when the rate is lower from then on, or higher."""
    for rate in (1, 400 * GBIT):
        link = make_link(policer={"rate_bps": GBIT, "burst_bytes": 1000})
        link.offer(0, bytes=1000)
        assert link.configure(4000, policer={"rate_bps": rate, "burst_bytes": 1000}) == 0
        link.offer(4000, bytes=501)
        link.offer(4000, bytes=500)
        assert passed(link) == {0, 2}


@given(
    st.sampled_from([1000, 3 * 10**6, 999_999_937, 10**9, 400 * 10**9]),
    st.integers(1, 20_000),
    st.lists(
        st.tuples(st.sampled_from([0, 1, 999, 10**5, 10**9, 10**13]), st.integers(0, 9000)),
        max_size=60,
    ),
)
def test_it_passes_exactly_what_the_bucket_holds(
    rate: int, burst: int, offers: list[tuple[int, int]]
) -> None:
    """By exact fractions; so no stretch of time t ever passes more than burst + rate * t."""
    link = Link(policer={"rate_bps": rate, "burst_bytes": burst})
    tokens, now, expected = Fraction(burst), 0, set()
    history: list[tuple[int, int]] = []
    for number, (gap, size) in enumerate(offers):
        now += gap
        tokens = min(Fraction(burst), tokens + Fraction(rate * gap, 8 * 10**9))
        link.offer(now, bytes=size)
        if size <= tokens:
            tokens -= size
            expected.add(number)
            history.append((now, size))
    assert passed(link) == expected
    for i, (begin, _) in enumerate(history):
        total = 0
        for at, size in history[i:]:
            total += size
            assert total <= burst + Fraction(rate * (at - begin), 8 * 10**9)
    link.close()
