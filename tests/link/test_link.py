# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One direction of a link: when frames arrive, which wait, and in whose turn."""

from __future__ import annotations

import errno
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.link.links import NEVER, Arrival, Link, MakeLink, impairment_settings

pytestmark = pytest.mark.san

GBIT = 10**9


# ---- times -----------------------------------------------------------------------


def test_a_frame_takes_its_length_over_the_rate_and_then_the_delay(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, delay_ns=1000)
    link.offer(50, bytes=1538)
    assert link.deadline == 50 + 1538 * 8 + 1000
    assert link.arrivals() == [Arrival(0, 50 + 12304 + 1000)]
    assert link.deadline == NEVER


def test_without_a_rate_a_frame_takes_no_time(make_link: MakeLink) -> None:
    link = make_link(delay_ns=70)
    for _ in range(3):
        link.offer(10)
    assert link.arrivals() == [Arrival(0, 80), Arrival(1, 80), Arrival(2, 80)]


@pytest.mark.parametrize(
    ("rate", "size"),
    [
        (100 * GBIT, 1500),  # 120 ns
        (400 * GBIT, 64),  # 1.28 ns
        (25 * GBIT, 1538),
        (3 * GBIT, 1),
        (10**15 - 1, 64),  # much less than a nanosecond
        (7, 1000),
        (999_999_937, 9038),
    ],
)
def test_serialization_never_drifts(make_link: MakeLink, rate: int, size: int) -> None:
    """Frame n of a busy link ends at the first nanosecond not before n * bytes * 8 / rate."""
    link = make_link(rate_bps=rate)
    n = 3000
    for _ in range(n):
        link.offer(5, bytes=size)
    each = Fraction(size * 8 * 10**9, rate)
    assert [a.at_ns for a in link.arrivals()] == [5 + math.ceil(each * k) for k in range(1, n + 1)]


def test_a_chain_of_links_does_not_drift(make_link: MakeLink) -> None:
    """Arrivals are whole nanoseconds; the next link must not add a rounding for each frame."""
    first, second = (make_link(rate_bps=400 * GBIT) for _ in range(2))
    for _ in range(5000):
        first.offer(0, bytes=64)
    for arrival in first.arrivals():
        second.offer(arrival.at_ns, bytes=64)
    assert second.arrivals()[-1].at_ns <= math.ceil(5001 * 1.28) + 1


def test_an_idle_link_begins_at_once(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT)
    link.offer(0, bytes=125)
    link.offer(10_000, bytes=125)
    assert [a.at_ns for a in link.arrivals()] == [1000, 11_000]


def test_turns_are_made_up_for_at_their_own_times(make_link: MakeLink) -> None:
    """A user that comes late finds each frame with the time at which it arrived."""
    link = make_link(rate_bps=GBIT, delay_ns=1)
    for _ in range(4):
        link.offer(0, bytes=125)
    assert [a.at_ns for a in link.take(10**6)] == [1001, 2001, 3001, 4001]


def test_one_deadline_for_each_frame_of_a_plain_link(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, delay_ns=10**6)
    for _ in range(50):
        link.offer(0, bytes=125)
    deadlines = 0
    while link.deadline != NEVER:
        deadlines += 1
        assert len(list(link.take(link.deadline))) == 1
    assert deadlines == 50


def test_a_shorter_delay_makes_no_frame_overtake(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, delay_ns=10**7)
    link.offer(0, bytes=125)
    assert link.configure(2000, rate_bps=GBIT, delay_ns=10) == 0
    link.offer(3000, bytes=125)
    assert link.arrivals() == [Arrival(0, 10**7 + 1000), Arrival(1, 10**7 + 1000)]


def test_a_new_rate_holds_for_what_waits(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT)
    for _ in range(3):
        link.offer(0, bytes=125)
    assert link.configure(1500, rate_bps=GBIT // 10) == 0
    assert [a.at_ns for a in link.arrivals()] == [1000, 2000, 12_000]


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_classes": 9},
        {"classes": [(5000, 0)]},
        {"loss": {"good": 1.5}},
        {"loss": {"p": math.nan}},
        {"corrupt": -0.1},
        {"corrupt": 1e-10},  # it would never happen
        {"loss": {"good": 1e-300}},
        {"marking": {"kind": 7}},
        {"marking": {"kind": 2, "kmin_bytes": 2, "kmax_bytes": 1}},
        {"marking": {"kind": 2, "kmin_bytes": 1, "kmax_bytes": 2, "pmax": 2}},
        {"jitter": {"kind": 9}},
        {"jitter": {"kind": 1, "scale_ns": -1}},
        {"jitter": {"kind": 2, "scale_ns": 1, "shape": 1}},
        {"jitter": {"kind": 3}},
        {"jitter": {"kind": 3, "sample": [0.0, math.nan]}},
        {"jitter": {"kind": 3, "sample": [math.inf]}},
        {"trace": {"ms": [0]}},
        {"trace": {"ms": [5, 4]}},
        {"loss": {"good_ns": 1000}},
        {"loss": {"good_ns": 1000, "bad_ns": 3601 * 10**9}},
        {"loss": {"good_ns": 1000, "bad_ns": 1000, "p": 0.1}},
        {"policer": {"rate_bps": GBIT}},
        {"policer": {"rate_bps": GBIT, "burst_bytes": 2**30 + 1}},
        {"aqm": {"kind": 4, "interval_ns": 1}},
        {"aqm": {"kind": 1}},
        {"aqm": {"kind": 1, "interval_ns": 2**40}},
        {"aqm": {"kind": 2, "interval_ns": 1, "quantum_bytes": 256}},
        {"aqm": {"kind": 2, "interval_ns": 1, "quantum_bytes": 255, "flows": 1}},
        {"aqm": {"kind": 2, "interval_ns": 1, "quantum_bytes": 256, "flows": 65537}},
        {"aqm": {"kind": 3, "interval_ns": 1, "target_ns": 1000, "alpha": math.nan}},
        {"aqm": {"kind": 3, "interval_ns": 1, "target_ns": 1000, "alpha": 1, "mark_max": 2}},
        {"aqm": {"kind": 1, "interval_ns": 1}, "trim": True},
        {"aqm": {"kind": 1, "interval_ns": 1}, "classes": [(0, 0), (0, 0)]},
        {"aqm": {"kind": 1, "interval_ns": 1}, "marking": {"kind": 1}},
    ],
)
def test_nonsense_is_refused(make_link: MakeLink, wrong: dict[str, Any]) -> None:
    with pytest.raises(OSError, match="dp_link_create") as error:
        make_link(**wrong)
    assert error.value.errno == errno.EINVAL
    link = make_link(rate_bps=GBIT)
    link.offer(0, bytes=125)
    assert link.configure(0, **wrong) == -errno.EINVAL
    assert link.arrivals() == [Arrival(0, 1000)]  # as before


# ---- the queue ----------------------------------------------------------------------


def test_drop_tail_counts_what_waits(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, limit_bytes=3000)
    for _ in range(5):
        link.offer(0, bytes=1000)  # one is transmitted, three wait
    assert link.dropped == [(4, "queue")]
    assert link.stats.queue_max_bytes == 3000
    link.offer(8000, bytes=1000)  # one has gone from the queue
    assert [a.frame for a in link.arrivals()] == [0, 1, 2, 3, 5]


def test_a_frame_larger_than_the_queue_passes_an_idle_link(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, limit_bytes=100)
    link.offer(0, bytes=1000)
    link.offer(0, bytes=1000)
    assert link.dropped == [(1, "queue")]


def test_a_class_has_a_limit_of_its_own(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, limit_bytes=10_000, classes=[(0, 0), (0, 1000)])
    for c in (1, 1, 1, 0):
        link.offer(0, bytes=1000, **{"class": c})
    assert link.dropped == [(2, "queue")]
    assert [a.frame for a in link.arrivals()] == [0, 3, 1]


def test_queue_bytes_are_those_of_the_moment(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, delay_ns=10**6)
    for _ in range(4):
        link.offer(0, bytes=125)
    assert [link.advance(t) for t in (0, 999, 1000, 2000, 3000)] == [375, 375, 250, 125, 0]


def test_step_marks_capable_frames_above_the_threshold(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, marking={"kind": lib.DP_MARK_STEP, "kmin_bytes": 2000})
    for ecn in (2, 2, 2, 2, 1, 0, 3, 2):
        link.offer(0, bytes=1000, ecn=ecn)
    link.arrivals()
    # Frame 0 is transmitted; behind it wait 0, 1000, 2000, 3000 ... bytes.
    assert [f.ecn for f in link.frames] == [2, 2, 2, 2, 3, 0, 3, 3]
    assert link.stats.marked == 2


def test_red_marks_more_the_longer_the_queue(make_link: MakeLink) -> None:
    """Probability pmax * (q - kmin) / (kmax - kmin), and 1 from kmax on."""
    marking = {"kind": lib.DP_MARK_RED, "kmin_bytes": 10_000, "kmax_bytes": 20_000, "pmax": 0.4}
    link = make_link(marking=marking, seed=3)
    link.pause(0)
    rates: list[float] = []
    while len(rates) < 25:  # 1000 bytes more wait each time
        marks = 0
        for _ in range(2000):
            probe = link.frame(bytes=0, ecn=2)
            lib.dp_link_offer(link.link, probe, 0)
            marks += probe.ecn == 3
        rates.append(marks / 2000)
        link.offer(0, bytes=1000)
    assert rates[:11] == [0.0] * 11
    assert rates[20:] == [1.0] * 5
    for kilobytes in range(11, 20):
        expected = 0.4 * (kilobytes - 10) / 10
        assert rates[kilobytes] == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 2000))


# ---- classes ------------------------------------------------------------------------


def test_strict_classes_go_by_their_numbers(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, classes=[(0, 0)] * 3)
    for c in (2, 2, 1, 0, 1, 7):  # what is beyond the last class joins it
        link.offer(0, **{"class": c})
    assert [a.frame for a in link.arrivals()] == [0, 3, 2, 4, 1, 5]


@pytest.mark.parametrize("weights", [(1, 1), (1, 3), (70, 20, 10), (4096, 1), (5, 7, 11, 13)])
@pytest.mark.parametrize("sizes", [(1500,), (64, 1500), (9000, 200, 1500)])
def test_weighted_classes_share_by_bytes(
    make_link: MakeLink, weights: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    """No class is ever further from its share than one frame of each class and one round."""
    link = make_link(rate_bps=GBIT, classes=[(w, 0) for w in weights])
    total = 2_000_000
    for c, weight in enumerate(weights):
        size = sizes[c % len(sizes)]
        for _ in range(total * weight // sum(weights) // size + 200):
            link.offer(0, bytes=size, **{"class": c})
    served: Counter[int] = Counter()
    for arrival in link.arrivals():
        frame = link.frames[arrival.frame]
        served[getattr(frame, "class")] += frame.bytes
        if sum(served.values()) >= total:
            break
    for c, weight in enumerate(weights):
        assert served[c] == pytest.approx(total * weight / sum(weights), rel=0.002, abs=18_001)


def test_strict_comes_before_weighted(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, classes=[(1, 0), (0, 0), (1, 0)])
    for c in (0, 0, 2, 1):
        link.offer(0, **{"class": c})
    assert [a.frame for a in link.arrivals()][:2] == [0, 3]


def test_a_class_that_was_silent_gets_no_more_than_its_share(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, classes=[(1, 0), (1, 0)])
    for _ in range(100):
        link.offer(0, bytes=1000, **{"class": 0})
    list(link.take(8000 * 50))
    for _ in range(50):
        link.offer(8000 * 50, bytes=1000, **{"class": 1})
    order = [getattr(link.frames[a.frame], "class") for a in link.arrivals()]
    assert Counter(order[:40])[1] in (19, 20, 21)


@pytest.mark.parametrize("away", [400, 600, 1000, 1200, 1700])
def test_a_class_that_was_silent_for_long_gets_its_share(make_link: MakeLink, away: int) -> None:
    """While another class sent so many GB that its tag has wrapped."""
    link = make_link(rate_bps=100 * GBIT, classes=[(1, 0), (1, 0)])
    gigabyte = 10**9
    for _ in range(away):
        link.offer(0, bytes=gigabyte, **{"class": 0})
    before = len(link.arrivals())
    now = away * 80_000_000
    for _ in range(50):
        link.offer(now, bytes=gigabyte, **{"class": 0})
        link.offer(now, bytes=gigabyte, **{"class": 1})
    order = [getattr(link.frames[a.frame], "class") for a in link.arrivals()]
    assert before == away
    assert Counter(order[:40])[1] in (19, 20, 21)


# ---- pause --------------------------------------------------------------------------


def test_pause_lets_the_frame_under_way_finish(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, delay_ns=5)
    for _ in range(3):
        link.offer(0, bytes=125)
    link.pause(500)
    assert link.arrivals() == [Arrival(0, 1005)]
    assert link.deadline == NEVER
    link.resume(10_000)
    assert link.arrivals() == [Arrival(1, 11_005), Arrival(2, 12_005)]
    assert link.stats.paused_ns == 9500


def test_pause_of_one_class_leaves_the_others(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, classes=[(0, 0), (0, 0)])
    link.pause(0, mask=1)
    link.offer(0, bytes=125, **{"class": 0})
    link.offer(0, bytes=125, **{"class": 1})
    assert link.arrivals() == [Arrival(1, 1000)]
    link.resume(1500, mask=1)
    assert link.arrivals() == [Arrival(0, 2500)]


def test_pausing_twice_is_pausing_once(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT)
    link.pause(100)
    link.pause(200)
    link.resume(300)
    link.resume(400)
    assert link.stats.paused_ns == 200


def test_a_pause_counts_while_it_goes_on(make_link: MakeLink) -> None:
    """A link that never resumes, as in a deadlock, stands still for the whole time."""
    link = make_link(rate_bps=GBIT, classes=[(0, 0), (0, 0), (0, 0)])
    link.pause(100, mask=0b11)
    link.resume(300, mask=0b01)
    assert link.stats_at(300).paused_ns == 400
    assert link.stats_at(1000).paused_ns == 1100
    link.resume(1000, mask=0b10)
    assert link.stats_at(5000).paused_ns == 1100


# ---- trimming -----------------------------------------------------------------------


def test_trimmed_frames_overtake_in_class_0(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, limit_bytes=2000, trim=True, classes=[(0, 0), (0, 0)])
    for _ in range(5):
        link.offer(0, bytes=1000, header_bytes=100, **{"class": 1})
    assert [a.frame for a in link.arrivals()] == [0, 3, 4, 1, 2]
    trimmed = [f.bytes == 100 and bool(f.flags & lib.DP_FRAME_TRIMMED) for f in link.frames]
    assert trimmed == [False, False, False, True, True]
    assert (link.stats.trimmed, link.stats.overflowed) == (2, 0)


def test_headers_have_a_limit_too(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, limit_bytes=1000, trim=True, classes=[(0, 250), (0, 0)])
    for _ in range(6):
        link.offer(0, bytes=1000, header_bytes=100, **{"class": 1})
    assert link.dropped == [(4, "queue"), (5, "queue")]
    assert [a.frame for a in link.arrivals()] == [0, 2, 3, 1]


def test_what_has_no_headers_is_dropped_whole(make_link: MakeLink) -> None:
    link = make_link(rate_bps=GBIT, limit_bytes=1000, trim=True)
    for _ in range(3):
        link.offer(0, bytes=1000)
    assert link.dropped == [(2, "queue")]
    assert link.frames[2].bytes == 1000


# ---- telemetry ----------------------------------------------------------------------


def test_telemetry_is_of_the_moment_of_transmission(make_link: MakeLink) -> None:
    """Queue behind the frame, bytes sent before it, the time, the rate (HPCC, section 3.1)."""
    link = make_link(rate_bps=GBIT, delay_ns=7, telemetry=True)
    hops = [ffi.new("struct dp_telemetry[8]") for _ in range(3)]
    for records, size in zip(hops, (125, 250, 375), strict=True):
        link.offer(0, bytes=size, hop=records)
    link.offer(1500, bytes=1000)  # not there yet when frame 1 began
    link.arrivals()
    told = [(h[0].queue_bytes, h[0].tx_bytes, h[0].ts_ns, h[0].rate_mbps) for h in hops]
    assert told == [(0, 0, 0, 1000), (375, 125, 1000, 1000), (1000, 375, 3000, 1000)]
    assert [f.n_hops for f in link.frames] == [1, 1, 1, 0]


def test_telemetry_stops_when_the_room_is_full(make_link: MakeLink) -> None:
    link = make_link(telemetry=True)
    records = ffi.new("struct dp_telemetry[8]")
    link.offer(0, hop=records, n_hops=8)
    assert link.frames[0].n_hops == 8


# ---- bandwidth traces ---------------------------------------------------------------


def test_a_trace_gives_opportunities_at_its_milliseconds(make_link: MakeLink) -> None:
    """One full frame at each; the trace begins with the first frame and repeats."""
    link = make_link(trace={"ms": [1, 1, 4, 10]})
    for _ in range(9):
        link.offer(500)
    ms = [(a.at_ns - 500) / 10**6 for a in link.arrivals()]
    assert ms == [1, 1, 4, 10, 11, 11, 14, 20, 21]


def test_small_frames_share_an_opportunity_and_large_ones_take_several(
    make_link: MakeLink,
) -> None:
    link = make_link(trace={"ms": [1, 2, 3, 4, 5, 6]})
    for size in (700, 700, 700, 2 * 1538):
        link.offer(0, bytes=size)
    # 138 bytes are left of the first opportunity, so 562 go into the second; the large
    # frame needs what is left of that, the third and part of the fourth.
    assert [a.at_ns // 10**6 for a in link.arrivals()] == [1, 1, 2, 4]


def test_what_nobody_uses_of_a_trace_is_lost(make_link: MakeLink) -> None:
    link = make_link(trace={"ms": [2, 5, 10]})
    link.offer(0)
    assert [a.at_ns // 10**6 for a in link.arrivals()] == [2]
    for at, ms in ((10, 10), (11, 12), (26, 30), (1_000_003, 1_000_005)):
        link.offer(at * 10**6)
        assert [a.at_ns / 10**6 for a in link.arrivals()] == [ms]


def test_a_change_of_something_else_leaves_a_trace_where_it_is(make_link: MakeLink) -> None:
    link = make_link(trace={"ms": [2, 10]})
    link.offer(0)
    assert [a.at_ns // 10**6 for a in link.arrivals()] == [2]
    assert link.configure(3 * 10**6, trace={"ms": [2, 10]}, delay_ns=0) == 0
    link.offer(4 * 10**6)
    assert [a.at_ns // 10**6 for a in link.arrivals()] == [10]
    assert link.configure(11 * 10**6, trace={"ms": [3, 10]}) == 0  # another one begins
    link.offer(20 * 10**6)
    assert [a.at_ns // 10**6 for a in link.arrivals()] == [23]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 300))
def test_a_saturated_trace_gives_its_mean_rate(gaps: list[int], n: int) -> None:
    ms = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    if ms[-1] == 0:
        ms[-1] = 1
    link = Link(trace={"ms": ms})
    try:
        for _ in range(n):
            link.offer(0)
        cycles = n // len(ms) + 1
        expected = [(c * ms[-1] + m) * 10**6 for c in range(cycles) for m in ms][:n]
        assert [a.at_ns for a in link.arrivals()] == expected
    finally:
        link.close()


# ---- conservation -------------------------------------------------------------------

AQMS = st.fixed_dictionaries(
    {
        "kind": st.integers(0, 3),
        "ecn": st.booleans(),
        "target_ns": st.just(10_000),
        "interval_ns": st.sampled_from([1, 40_000]),
        "flows": st.sampled_from([1, 3]),
        "quantum_bytes": st.sampled_from([256, 1514]),
        "alpha": st.just(1e4),
        "beta": st.just(1e5),
        "max_burst_ns": st.just(40_000),
        "mark_max": st.just(0.2),
    }
)


def _compatible(config: dict[str, Any]) -> dict[str, Any]:
    """An AQM stands alone."""
    if config["aqm"]["kind"]:
        config |= {"trim": False, "marking": {"kind": 0}, "classes": [(0, 0)]}
    return config


CONFIGS = st.fixed_dictionaries(
    {
        "rate_bps": st.sampled_from([0, 10**6, GBIT, 400 * GBIT]),
        "delay_ns": st.sampled_from([0, 1, 1000, 10**6]),
        "limit_bytes": st.sampled_from([0, 100, 3000, 20_000]),
        "loss": st.fixed_dictionaries(
            {k: st.sampled_from([0.0, 0.1, 0.5, 1.0]) for k in ("p", "r", "good", "bad")}
        ),
        "policer": st.fixed_dictionaries(
            {"rate_bps": st.sampled_from([0, 10**9]), "burst_bytes": st.just(9000)}
        ),
        "aqm": AQMS,
        "duplicate": st.sampled_from([0.0, 0.3, 1.0]),
        "corrupt": st.sampled_from([0.0, 0.3]),
        "reorder": st.sampled_from([0.0, 0.3, 1.0]),
        "reorder_ns": st.sampled_from([0, 500, 50_000]),
        "impairments": impairment_settings(),
        "jitter": st.fixed_dictionaries(
            {
                "kind": st.integers(0, 2),
                "reorders": st.booleans(),
                "scale_ns": st.sampled_from([0.0, 300.0, 1e5]),
                "shape": st.just(1.5),
            }
        ),
        "trim": st.booleans(),
        "telemetry": st.booleans(),
        "marking": st.fixed_dictionaries(
            {
                "kind": st.integers(0, 2),
                "kmin_bytes": st.just(1000),
                "kmax_bytes": st.just(4000),
                "pmax": st.just(0.5),
            }
        ),
        "classes": st.lists(
            st.tuples(st.sampled_from([0, 1, 7]), st.sampled_from([0, 2000])),
            min_size=1,
            max_size=8,
        ),
        "seed": st.integers(0, 2**64 - 1),
    }
).map(_compatible)
OFFERS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "offer", "offer", "take", "pause", "resume"]),
        st.integers(0, 30_000),  # time that passes before
        st.integers(0, 9000),
        st.integers(0, 8),
    ),
    max_size=60,
)


@given(CONFIGS, OFFERS, st.booleans())
def test_every_frame_comes_out_once(
    config: dict[str, Any], offers: list[tuple[str, int, int, int]], finish: bool
) -> None:
    """offered + duplicated = delivered + dropped + still inside, each frame once."""
    link = Link(**config)
    now = 0
    arrived: list[Arrival] = []
    kept = config["jitter"]["reorders"] is False and config["reorder"] == 0
    kept &= config["aqm"]["kind"] != lib.DP_AQM_FQ_CODEL
    for what, gap, size, number in offers:
        now += gap
        if what == "offer":
            fields = {"class": number, "ecn": number % 4, "header_bytes": min(size, 60)}
            fields["flow_hash"] = number
            link.offer(now, bytes=size, **fields)
        elif what == "take":
            arrived += link.take(now)
        else:
            getattr(link, what)(now, mask=1 << number)
    if finish:
        link.resume(now, mask=0xFF)
        arrived += link.take(now)
        arrived += link.arrivals()
        assert link.advance(2**63) == 0
    stats = link.stats
    assert arrived == sorted(arrived, key=lambda a: a.at_ns)
    if kept and len(config["classes"]) == 1 and not config["trim"] and not link.copies:
        assert [a.frame for a in arrived] == sorted(a.frame for a in arrived)
    assert stats.delivered == len(arrived)
    assert stats.offered + stats.duplicated == len(link.frames)
    reasons = Counter(why for _, why in link.dropped)
    assert (stats.lost, stats.overflowed) == (reasons["loss"], reasons["queue"])
    assert (stats.policed, stats.aqm_dropped) == (reasons["policer"], reasons["aqm"])
    inside = len(link.frames) - stats.delivered - len(link.dropped)
    assert not (finish and inside)
    link.close()
    everyone = [a.frame for a in arrived] + [frame for frame, _ in link.dropped]
    assert sorted(everyone) == list(range(len(link.frames)))
    assert Counter(why for _, why in link.dropped)["shutdown"] == inside


@given(CONFIGS, OFFERS)
def test_how_often_the_user_looks_changes_nothing(
    config: dict[str, Any], offers: list[tuple[str, int, int, int]]
) -> None:
    """Deadlines kept or everything made up for at the end: the same arrivals and counters."""

    def run(eager: bool) -> tuple[list[Arrival], list[tuple[int, str]], bytes]:
        # Copies are numbered when they are made, which is what differs.
        link = Link(**{**config, "duplicate": 0.0})
        now, arrived = 0, []
        for what, gap, size, number in offers:
            if eager:
                arrived += link.arrivals(now + gap)
            now += gap
            if what == "offer":
                fields = {"class": number, "flow_hash": number, "header_bytes": 60}
                link.offer(now, bytes=size, ecn=number % 3, **fields)
            elif what != "take":
                getattr(link, what)(now, mask=1 << number)
        link.resume(now, mask=0xFF)
        arrived += link.arrivals() if eager else link.take(NEVER - 1)
        result = arrived, link.dropped, bytes(ffi.buffer(link.stats))
        link.close()
        return result

    eager, lazy = run(True), run(False)
    assert eager[1:] == lazy[1:]
    assert sorted(eager[0]) == sorted(lazy[0])
