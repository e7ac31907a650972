# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Shaped classes: a rate of their own, whoever looks at the link and whenever."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .links import Arrival, Link, MakeLink

pytestmark = pytest.mark.san

GBIT = 10**9
CREDIT, DATA = {"class": 0}, {"class": 1}
FRAME_NS = 100 * 8  # of 100 bytes at 1 Gbit/s


def shaped(make: MakeLink, rate_bps: int = GBIT // 10, limit_bytes: int = 0) -> Link:
    return make(rate_bps=GBIT, classes=[(0, limit_bytes, rate_bps), (0, 0)])


def test_frames_leave_at_the_rate(make_link: MakeLink) -> None:
    link = shaped(make_link)
    for _ in range(4):
        link.offer(0, bytes=100, **CREDIT)
    assert link.arrivals() == [Arrival(i, FRAME_NS + i * 10 * FRAME_NS) for i in range(4)]


def test_the_bucket_holds_one_frame(make_link: MakeLink) -> None:
    """After a pause one frame leaves at once, not as many as the pause would have let through."""
    link = shaped(make_link)
    link.offer(0, bytes=100, **CREDIT)
    later = 100 * FRAME_NS
    assert link.arrivals(later) == [Arrival(0, FRAME_NS)]
    for _ in range(2):
        link.offer(later, bytes=100, **CREDIT)
    assert link.arrivals() == [Arrival(1, later + FRAME_NS), Arrival(2, later + 11 * FRAME_NS)]


def test_the_other_classes_have_the_rest(make_link: MakeLink) -> None:
    """A frame that waits for its time does not hold up others, and goes first when it comes."""
    link = shaped(make_link)
    calls = [link.offer(0, bytes=100, **CREDIT) for _ in range(3)]
    data = [link.offer(0, bytes=400, **DATA) for _ in range(8)]
    seen = link.arrivals()
    order = [frame for frame, _ in seen]
    assert order == [calls[0], *data[:3], calls[1], *data[3:6], calls[2], *data[6:]]
    assert seen[-1].at_ns == (3 * 100 + 8 * 400) * 8  # the line was never idle


def classes_of(link: Link, seen: list[Arrival]) -> Counter[int]:
    return Counter(getattr(link.frames[arrival.frame], "class") for arrival in seen)


def test_a_newcomer_takes_nothing_from_others_when_a_class_with_a_weight_opens(
    make_link: MakeLink,
) -> None:
    """The shaped class has no claim to the turns that it missed, nor has the newcomer."""
    frame_ns = 12_000
    for begin in range(500 * frame_ns, 512 * frame_ns, frame_ns):  # frame by frame
        link = make_link(rate_bps=GBIT, classes=[(1, 0, GBIT // 10), (1, 0), (1, 0)])
        for kind, count in ((0, 100), (1, 1000)):
            for _ in range(count):
                link.offer(0, bytes=1500, **{"class": kind})
        link.arrivals(begin)
        for _ in range(200):
            link.offer(begin, bytes=1500, **{"class": 2})
        got = classes_of(link, link.arrivals(begin + 200 * frame_ns))
        assert got[2] == pytest.approx(90, abs=2), (begin, got)
        assert got[1] == pytest.approx(90, abs=2), (begin, got)


def test_what_does_not_fit_is_counted_apart(make_link: MakeLink) -> None:
    link = shaped(make_link, limit_bytes=250)
    for _ in range(5):
        link.offer(0, bytes=100, **CREDIT)
    assert len(link.arrivals()) == 3
    assert [why for _, why in link.dropped] == ["shaped"] * 2
    assert (link.stats.shaped, link.stats.overflowed) == (2, 0)


def test_jitter_varies_the_gaps_around_the_rate(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, classes=[(0, 0, GBIT // 10, 0.2), (0, 0)], seed=1)
    for _ in range(200):
        link.offer(0, bytes=100, **CREDIT)
    times = [at for _, at in link.arrivals()]
    gaps = [later - at for at, later in pairwise(times)]
    assert 8 * FRAME_NS <= min(gaps) < 9 * FRAME_NS
    assert 11 * FRAME_NS < max(gaps) <= 12 * FRAME_NS
    assert sum(gaps) / len(gaps) == pytest.approx(10 * FRAME_NS, rel=0.05)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan")])
def test_jitter_has_limits(make_link: MakeLink, jitter: float) -> None:
    with pytest.raises(OSError, match="dp_link_create"):
        make_link(classes=[(0, 0, GBIT, jitter)])


def test_a_class_that_is_shaped_no_longer(make_link: MakeLink) -> None:
    link = shaped(make_link)
    for _ in range(3):
        link.offer(0, bytes=100, **CREDIT)
    now = 2 * FRAME_NS
    assert link.arrivals(now) == [Arrival(0, FRAME_NS)]
    assert link.configure(now, rate_bps=GBIT, classes=[(0, 0), (0, 0)]) == 0
    assert [frame for frame, _ in link.arrivals(5 * FRAME_NS)] == [1, 2]


def test_a_class_that_is_shaped_no_longer_sends_from_then_on(make_link: MakeLink) -> None:
    """Not in the time since its last frame, in which nothing was sent."""
    link = shaped(make_link)
    for _ in range(3):
        link.offer(0, bytes=100, **CREDIT)
    now = 5 * FRAME_NS
    assert link.arrivals(now) == [Arrival(0, FRAME_NS)]
    assert link.configure(now, rate_bps=GBIT, classes=[(0, 0), (0, 0)]) == 0
    assert link.arrivals() == [Arrival(1, now + FRAME_NS), Arrival(2, now + 2 * FRAME_NS)]


@pytest.mark.parametrize("weight", [0, 1])
def test_a_class_that_is_shaped_no_longer_has_no_claim(make_link: MakeLink, weight: int) -> None:
    """Whether or not it had a weight while its frames waited."""
    link = make_link(rate_bps=GBIT, classes=[(weight, 0, GBIT // 100), (1, 0)])
    for kind in (0, 1):
        for _ in range(400):
            link.offer(0, bytes=100, **{"class": kind})
    now = 200 * FRAME_NS
    link.arrivals(now)
    assert link.configure(now, rate_bps=GBIT, classes=[(1, 0), (1, 0)]) == 0
    got = classes_of(link, link.arrivals(now + 100 * FRAME_NS))
    assert got[0] == pytest.approx(50, abs=1), got


def test_an_aqm_does_not_stand_beside_it(make_link: MakeLink) -> None:
    with pytest.raises(OSError, match="dp_link_create"):
        make_link(
            rate_bps=GBIT,
            aqm={"kind": 1, "target_ns": 5, "interval_ns": 100},
            classes=[(0, 0, GBIT)],
        )


OFFERS = st.lists(
    st.tuples(st.integers(0, 3000), st.sampled_from([0, 1]), st.integers(64, 1500)), max_size=60
)


@given(offers=OFFERS, looks=st.lists(st.integers(0, 100_000), max_size=30))
def test_who_looks_changes_nothing(offers: list[tuple[int, int, int]], looks: list[int]) -> None:
    """A link that is asked at other times as well has the same arrivals; and the rate holds."""
    quiet, watched = shaped(Link), shaped(Link)
    seen: list[list[Arrival]] = [[], []]
    now, times = 0, sorted(looks)
    for wait, kind, size in offers:
        now += wait
        for at in [t for t in times if t < now]:
            times.remove(at)
            seen[1] += watched.arrivals(at)
        for link, arrivals in zip((quiet, watched), seen, strict=True):
            arrivals += link.arrivals(now)
            link.offer(now, bytes=size, **{"class": kind})
    for link, arrivals in zip((quiet, watched), seen, strict=True):
        arrivals += link.arrivals()
        link.close()
    assert seen[0] == seen[1]
    assert len(seen[0]) == len(offers)
    sent = [(at, offers[frame][2]) for frame, at in seen[0] if offers[frame][1] == 0]
    begins = [at - size * 8 for at, size in sent]
    for (_, size), begin, following in zip(sent, begins, begins[1:], strict=False):
        assert following >= begin + size * 80
