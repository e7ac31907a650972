# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Loss, jitter, reordering, duplication, corruption: by exact draws and by statistics.

Seeds are fixed, so a test passes always or never; tolerances are four standard errors.
"""

from __future__ import annotations

import errno
import math
import re
import statistics
from typing import Any

import pytest

from datapath.link.impairments import IMPAIRMENTS, Impairment
from datapath.native import ffi, lib
from tests.link.links import Link, MakeLink, TimedStates, stream, stream_start

pytestmark = pytest.mark.san

LOSS, MARK, CORRUPT, JITTER, REORDER, DUPLICATE = range(6)
N = 20_000


def lost(link: Link, n: int = N) -> list[bool]:
    """Fates of n frames, one each microsecond."""
    for i in range(n):
        link.offer(i * 1000)
    gone = {frame for frame, why in link.dropped if why == "loss"}
    return [i in gone for i in range(n)]


def delays(link: Link, n: int = N, gap_ns: int = 10**9) -> list[int]:
    """How long each of n frames was on its way, sent so far apart that none waits."""
    found: dict[int, int] = {}
    for i in range(n):
        link.offer(i * gap_ns)
        found |= {a.frame: a.at_ns - a.frame * gap_ns for a in link.take(i * gap_ns)}
    found |= {a.frame: a.at_ns - a.frame * gap_ns for a in link.arrivals()}
    return [found[i] for i in range(n)]


def four_errors(p: float, n: int = N) -> float:
    return 4 * math.sqrt(p * (1 - p) / n)


# ---- loss ------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1 / 4096, 0.001, 0.01, 0.1, 0.5])
def test_bernoulli_loses_what_the_published_generator_says(
    make_link: MakeLink, rate: float
) -> None:
    """Frame i is lost when draw i of splitmix64 is below rate * 2^32, as in impair.bpf.c."""
    fates = lost(make_link(loss={"good": rate}, seed=7))
    draws = stream(7, LOSS)
    assert fates == [next(draws) < round(rate * 2**32) for _ in range(N)]
    assert sum(fates) / N == pytest.approx(rate, abs=four_errors(rate))


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_never_and_always(make_link: MakeLink, rate: float) -> None:
    assert set(lost(make_link(loss={"good": rate}), 1000)) == {rate == 1.0}


def test_gilbert_elliott_is_the_published_chain(make_link: MakeLink) -> None:
    """Lost by the state, then the state changes: (p, r, good, bad) of Elliott (1963)."""
    p, r, good, bad = 0.02, 0.25, 0.001, 0.6
    fates = lost(make_link(loss={"p": p, "r": r, "good": good, "bad": bad}, seed=11))
    draws = stream(11, LOSS)
    in_bad, expected = False, []
    for _ in range(N):
        expected.append(next(draws) < round((bad if in_bad else good) * 2**32))
        in_bad ^= next(draws) < round((r if in_bad else p) * 2**32)
    assert fates == expected
    share = p / (p + r)
    mean = share * bad + (1 - share) * good
    # Losses come in bursts of 1 / r frames, so the error is that of fewer samples.
    assert sum(fates) / N == pytest.approx(mean, abs=four_errors(mean, int(N * r)))


def test_bursts_are_as_long_as_the_model_says(make_link: MakeLink) -> None:
    fates = lost(make_link(loss={"p": 0.02, "r": 0.2, "good": 0, "bad": 1}, seed=5))
    runs = "".join("x" if f else " " for f in fates).split()
    assert statistics.mean(map(len, runs)) == pytest.approx(5, abs=4 * 4.5 / math.sqrt(len(runs)))


# ---- loss in bursts by time ------------------------------------------------------

US, MS = 1_000, 1_000_000
GE_TIME = 6


def states(link: Link, gap_ns: int, n: int = N) -> list[bool]:
    """Whether frames are lost, one every gap_ns; with good = 0 and bad = 1, the state."""
    first = len(link.frames)
    for i in range(n):
        link.offer(i * gap_ns)
    gone = {frame - first for frame, why in link.dropped if why == "loss"}
    return [i in gone for i in range(n)]


def by_time(good_ns: int, bad_ns: int, good: float = 0.0, bad: float = 1.0) -> dict[str, Any]:
    return {"good_ns": good_ns, "bad_ns": bad_ns, "good": good, "bad": bad}


@pytest.mark.parametrize("seed", [1, 2, 2**63])
def test_periods_follow_the_published_generator(make_link: MakeLink, seed: int) -> None:
    good_ns, bad_ns, gap_ns = 3 * MS, MS, 20 * US
    fates = states(make_link(loss=by_time(good_ns, bad_ns), seed=seed), gap_ns)
    model = TimedStates(stream_start(seed, GE_TIME), good_ns, bad_ns, 0)
    expected = [model.at(i * gap_ns) for i in range(N)]
    told = [(a, b) for a, b in zip(fates, expected, strict=True) if b is not None]
    assert len(told) > 0.99 * N
    assert all(a == b for a, b in told)


def test_periods_are_at_the_same_times_whatever_is_sent(make_link: MakeLink) -> None:
    """One packet each microsecond, or a thousandth of that: they meet the same bad periods."""
    loss = by_time(700 * US, 300 * US)
    often = states(make_link(loss=loss, seed=3), US)
    seldom = states(make_link(loss=loss, seed=3), MS, N // 1000)
    assert seldom == often[::1000]
    assert 0.05 < statistics.mean(often) < 0.8


@pytest.mark.parametrize("gap_ns", [30 * US, 300 * US, 3 * MS, 30 * MS, 3000 * MS])
def test_the_share_lost_does_not_depend_on_the_rate(make_link: MakeLink, gap_ns: int) -> None:
    """bad_ns / (good_ns + bad_ns) of the time, with 0.8 lost in it and 0.01 outside."""
    good_ns, bad_ns = 9 * MS, MS
    fates = states(make_link(loss=by_time(good_ns, bad_ns, 0.01, 0.8), seed=8), gap_ns)
    share = 0.1 * 0.8 + 0.9 * 0.01
    # As many independent samples as frames or as cycles, whichever are fewer.
    samples = min(N, N * gap_ns // (good_ns + bad_ns))
    assert statistics.mean(fates) == pytest.approx(share, abs=four_errors(0.1, samples))


@pytest.mark.parametrize("gap_ns", [10 * US, 50 * US])
def test_periods_last_as_long_as_the_model_says(make_link: MakeLink, gap_ns: int) -> None:
    """Exponential with the means given: mean and deviation of each are equal."""
    good_ns, bad_ns, n = 4 * MS, 2 * MS, 60_000
    link = make_link(loss=by_time(good_ns, bad_ns))
    text = "".join("x" if bad else "." for bad in states(link, gap_ns, n))
    for mark, mean_ns in (("x", bad_ns), (".", good_ns)):
        # The first and the last period are cut off.
        runs = [len(run) * gap_ns for run in re.findall(f"{re.escape(mark)}+", text)[1:-1]]
        error = 4 / math.sqrt(len(runs))
        assert statistics.mean(runs) == pytest.approx(mean_ns, rel=error)
        assert statistics.stdev(runs) == pytest.approx(mean_ns, rel=2 * error)


def test_after_a_long_silence_the_state_has_its_long_run_share() -> None:
    bad = 0
    for seed in range(2000):
        link = Link(loss=by_time(3 * MS, MS), seed=seed)
        link.offer(0)
        link.offer(10**15)
        bad += (1, "loss") in link.dropped
        link.close()
    assert bad / 2000 == pytest.approx(0.25, abs=four_errors(0.25, 2000))


def test_other_means_begin_anew_and_equal_ones_go_on(make_link: MakeLink) -> None:
    loss = by_time(MS, MS)
    link, whole = (make_link(loss=loss, seed=4) for _ in range(2))
    first = states(link, US, 2000)
    assert link.configure(2000 * US, loss=loss, seed=4, delay_ns=5) == 0
    for i in range(2000, 4000):
        link.offer(i * US)
    gone = {frame for frame, _ in link.dropped}
    assert first + [i in gone for i in range(2000, 4000)] == states(whole, US, 4000)
    assert link.configure(4000 * US, loss=by_time(3600 * 10**9, US), seed=4) == 0
    link.dropped.clear()
    for i in range(4000, 6000):
        link.offer(i * US)
    assert link.dropped == []


# ---- streams ---------------------------------------------------------------------


def test_streams_do_not_disturb_each_other(make_link: MakeLink) -> None:
    plain = lost(make_link(loss={"good": 0.1}, seed=9), 2000)
    everything = lost(
        make_link(
            loss={"good": 0.1},
            seed=9,
            corrupt=0.5,
            reorder=0.5,
            reorder_ns=5000,
            jitter={"kind": lib.DP_JITTER_NORMAL, "scale_ns": 100},
            marking={"kind": lib.DP_MARK_RED, "kmax_bytes": 1, "pmax": 0.5},
        ),
        2000,
    )
    assert plain == everything


def test_equal_seeds_give_equal_fates_and_others_do_not(make_link: MakeLink) -> None:
    a, b, c = (lost(make_link(loss={"good": 0.2}, seed=seed), 2000) for seed in (1, 1, 2))
    assert a == b != c


def test_reconfiguring_goes_on_with_the_stream_unless_the_seed_changes(
    make_link: MakeLink,
) -> None:
    link, whole = (make_link(loss={"good": 0.3}, seed=4) for _ in range(2))
    first = lost(link, 500)
    assert link.configure(10**6, loss={"good": 0.3}, seed=4, delay_ns=5) == 0
    for i in range(500):
        link.offer(10**6 + i)
    gone = {frame for frame, _ in link.dropped}
    assert first + [i in gone for i in range(500, 1000)] == lost(whole, 1000)
    assert link.configure(2 * 10**6, loss={"good": 0.3}, seed=5) == 0
    link.dropped.clear()
    for i in range(500):
        link.offer(2 * 10**6 + i)
    other = {frame - 1000 for frame, _ in link.dropped}
    assert [i in other for i in range(500)] == lost(make_link(loss={"good": 0.3}, seed=5), 500)


# ---- jitter -----------------------------------------------------------------------


def test_normal_jitter_has_the_mean_and_deviation_asked_for(make_link: MakeLink) -> None:
    jitter = {"kind": lib.DP_JITTER_NORMAL, "scale_ns": 10_000.0}
    found = delays(make_link(delay_ns=100_000, jitter=jitter, seed=3))
    assert statistics.mean(found) == pytest.approx(100_000, abs=4 * 10_000 / math.sqrt(N))
    assert statistics.stdev(found) == pytest.approx(10_000, rel=4 / math.sqrt(2 * N))
    z = sorted((d - 100_000) / 10_000 for d in found)
    # Kolmogorov and Smirnov: beyond 1.63 / sqrt(n) one sample in a hundred would be.
    normal = statistics.NormalDist()
    distance = max(abs((i + 0.5) / N - normal.cdf(v)) for i, v in enumerate(z))
    assert distance < 1.63 / math.sqrt(N)


def test_jitter_never_makes_a_delay_negative(make_link: MakeLink) -> None:
    jitter = {"kind": lib.DP_JITTER_NORMAL, "scale_ns": 10_000.0}
    found = delays(make_link(delay_ns=1000, jitter=jitter, seed=3), 2000)
    assert min(found) == 0
    assert 0.4 < sum(d == 0 for d in found) / 2000 < 0.52  # below -0.1 sigma: 0.46


@pytest.mark.parametrize("shape", [1.5, 2.5, 4.0])
def test_pareto_jitter_has_the_tail_asked_for(make_link: MakeLink, shape: float) -> None:
    """Type II: P(X > x) = (1 + x / s)^-shape, with s = mean * (shape - 1)."""
    mean = 10_000.0
    jitter = {"kind": lib.DP_JITTER_PARETO, "scale_ns": mean, "shape": shape}
    found = sorted(d - 500 for d in delays(make_link(delay_ns=500, jitter=jitter, seed=8)))
    s = mean * (shape - 1)
    distance = max(abs((i + 0.5) / N - (1 - (1 + x / s) ** -shape)) for i, x in enumerate(found))
    assert min(found) >= 0
    assert distance < 1.63 / math.sqrt(N)


def test_jitter_of_a_trace_is_taken_in_turn(make_link: MakeLink) -> None:
    jitter = {"kind": lib.DP_JITTER_TRACE, "sample": [0.0, 250.0, -40.0]}
    assert delays(make_link(delay_ns=100, jitter=jitter), 5) == [100, 350, 60, 100, 350]


def test_jitter_keeps_the_order_unless_asked(make_link: MakeLink) -> None:
    jitter = {"kind": lib.DP_JITTER_NORMAL, "scale_ns": 5000.0}
    for reorders in (False, True):
        link = make_link(delay_ns=50_000, jitter={**jitter, "reorders": reorders}, seed=6)
        for i in range(2000):
            link.offer(i * 500)
        arrivals = link.arrivals()
        assert len(arrivals) == 2000
        assert ([a.frame for a in arrivals] == list(range(2000))) is not reorders
        assert (link.stats.reordered > 100) is reorders


# ---- the wire ----------------------------------------------------------------------


def test_reordered_frames_come_later_by_what_was_asked(make_link: MakeLink) -> None:
    link = make_link(delay_ns=1000, reorder=0.05, reorder_ns=70_000, seed=2)
    for i in range(N):
        link.offer(i * 1000)
    arrivals = link.arrivals()
    draws = stream(2, REORDER)
    held = [next(draws) < round(0.05 * 2**32) for _ in range(N)]
    expected = [i * 1000 + 1000 + 70_000 * held[i] for i in range(N)]
    assert {a.frame: a.at_ns for a in arrivals} == dict(enumerate(expected))
    assert [a.frame for a in arrivals] == sorted(range(N), key=lambda i: (expected[i], i))
    assert link.stats.reordered == sum(held)


def test_frames_arrive_at_the_next_slot_in_order(make_link: MakeLink) -> None:
    link = make_link(delay_ns=1000, impairments={"slot": 7_000})
    for i in range(N):
        link.offer(i * 900)
    arrivals = link.arrivals()
    assert [a.frame for a in arrivals] == list(range(N))
    assert [a.at_ns for a in arrivals] == [-(-(i * 900 + 1000) // 7_000) * 7_000 for i in range(N)]


def test_jitter_and_duplicates_keep_to_slots(make_link: MakeLink) -> None:
    jitter = {"kind": lib.DP_JITTER_PARETO, "scale_ns": 1e4, "shape": 2.0, "reorders": True}
    link = make_link(
        delay_ns=1000, impairments={"slot": 4_000}, duplicate=0.2, jitter=jitter, seed=3
    )
    for i in range(2000):
        link.offer(i * 500)
    arrivals = link.arrivals()
    assert len(arrivals) == 2000 + link.stats.duplicated > 2300
    assert {a.at_ns % 4_000 for a in arrivals} == {0}


def test_reordered_frames_keep_to_slots(make_link: MakeLink) -> None:
    link = make_link(
        delay_ns=1000, impairments={"slot": 4_000}, reorder=0.3, reorder_ns=5_000, seed=3
    )
    for i in range(2000):
        link.offer(i * 500)
    draws = stream(3, REORDER)
    held = [next(draws) < round(0.3 * 2**32) for _ in range(2000)]
    expected = [-(-(i * 500 + 1000 + 5_000 * held[i]) // 4_000) * 4_000 for i in range(2000)]
    assert {a.frame: a.at_ns for a in link.arrivals()} == dict(enumerate(expected))


def test_reordered_frames_do_not_overtake_on_a_link_that_was_longer(make_link: MakeLink) -> None:
    """Nor do they come late: arrivals() looks at each deadline, and at no other time."""
    link = make_link(rate_bps=10**9, delay_ns=10**6)
    link.offer(0)
    now = 20_000
    link.configure(now, rate_bps=10**9, delay_ns=1000, reorder=0.5, reorder_ns=10_000, seed=1)
    for _ in range(10):
        link.offer(now)
    arrivals = link.arrivals()
    assert arrivals[0].frame == 0
    assert {a.at_ns for a in arrivals} == {10**6 + 12_304}
    assert link.stats.reordered > 2


def test_packets_that_are_too_long_are_lost(make_link: MakeLink) -> None:
    """Ethernet's own bytes do not count: a packet of exactly that length passes."""
    around = 14 + lib.DP_LINK_HEADROOM
    link = make_link(delay_ns=1000, impairments={"max_packet": 1500})
    for i, packet in enumerate([1500, 1501, 60, 9000, 1500]):
        link.offer(i * 1000, packet + around)
    assert [a.frame for a in link.arrivals()] == [0, 2, 4]
    assert link.stats.lost == 2


FLOWS = 4000


def flows_that_pass(make_link: MakeLink, share: float, seed: int) -> set[int]:
    """Of FLOWS with three packets each, which must meet the same fate."""
    link = make_link(impairments={"blackhole": share}, seed=seed)
    for i in range(3 * FLOWS):
        link.offer(i, flow_hash=i % FLOWS)
    arrived = [a.frame for a in link.arrivals()]
    assert link.stats.lost == 3 * FLOWS - len(arrived)
    passed = {frame % FLOWS for frame in arrived}
    assert len(arrived) == 3 * len(passed)
    return passed


def test_a_black_hole_takes_a_share_of_flows_whole(make_link: MakeLink) -> None:
    passed = flows_that_pass(make_link, 0.2, seed=1)
    assert len(passed) / FLOWS == pytest.approx(0.8, abs=four_errors(0.2, FLOWS))
    assert passed == flows_that_pass(make_link, 0.2, seed=1)
    assert passed != flows_that_pass(make_link, 0.2, seed=2)
    assert passed > flows_that_pass(make_link, 0.3, seed=1), "a larger share takes more flows"
    assert flows_that_pass(make_link, 1, seed=1) == set()
    assert flows_that_pass(make_link, 0, seed=1) == {*range(FLOWS)}


@pytest.mark.parametrize("row", IMPAIRMENTS.values(), ids=IMPAIRMENTS.keys())
def test_an_impairment_takes_what_its_row_allows(make_link: MakeLink, row: Impairment) -> None:
    """The link model by itself, whatever Python has checked before; a refusal changes nothing."""
    link = make_link(impairments={row.name: row.high})
    make_link(impairments={row.name: row.low})
    for wrong in (-1, row.high * 1.5, math.nan, math.inf):
        with pytest.raises(OSError, match="dp_link_create"):
            make_link(impairments={row.name: wrong})
        assert link.configure(0, impairments={row.name: wrong}) == -errno.EINVAL
    hashes = row.name == "blackhole"
    assert lib.dp_link_hashes(link.configuration({"impairments": {row.name: row.high}})) == hashes


def test_the_heap_keeps_order_among_thousands(make_link: MakeLink) -> None:
    """All held back at once: they come in order of their times, ties in order of sending."""
    jitter = {"kind": lib.DP_JITTER_PARETO, "scale_ns": 1e5, "shape": 1.3, "reorders": True}
    link = make_link(jitter=jitter, seed=12)
    for i in range(5000):
        link.offer(i // 8)
    arrivals = link.arrivals()
    assert len({a.frame for a in arrivals}) == 5000
    assert [a.at_ns for a in arrivals] == sorted(a.at_ns for a in arrivals)


def test_duplicates_follow_their_original(make_link: MakeLink) -> None:
    link = make_link(delay_ns=10, duplicate=0.25, seed=1)
    originals = [link.offer(i * 100) for i in range(4000)]
    order = [a.frame for a in link.arrivals()]
    copies = {f for f in order if link.frames[f].flags & lib.DP_FRAME_COPY}
    assert len(copies) == link.copies == link.stats.duplicated
    assert [f for f in order if f not in copies] == originals
    assert link.copies / 4000 == pytest.approx(0.25, abs=four_errors(0.25, 4000))
    at = {f: i for i, f in enumerate(order)}
    for f in copies:  # a copy is numbered right after its original
        assert at[f] == at[f - 1] + 1


def test_no_duplicate_when_there_is_no_room_for_it(make_link: MakeLink) -> None:
    link = make_link(duplicate=1.0)
    link.clones = False
    link.offer(0)
    assert len(link.arrivals()) == 1
    assert link.stats.duplicated == 0


def test_corruption_is_told_and_stays(make_link: MakeLink) -> None:
    link = make_link(corrupt=0.1, seed=21)
    for i in range(N):
        link.offer(i)
    link.offer(N, flags=lib.DP_FRAME_CORRUPT)
    link.arrivals()
    flipped = [bool(f.flags & lib.DP_FRAME_CORRUPT) for f in link.frames]
    draws = stream(21, CORRUPT)
    assert flipped[:N] == [next(draws) < round(0.1 * 2**32) for _ in range(N)]
    assert flipped[N]
    assert link.stats.corrupted >= sum(flipped[:N])


def test_a_run_repeats_bit_for_bit(make_link: MakeLink) -> None:
    def run(seed: int) -> tuple[list[Any], bytes]:
        link = make_link(
            rate_bps=10**9,
            delay_ns=10_000,
            limit_bytes=20_000,
            loss={"p": 0.01, "r": 0.3, "bad": 0.9},
            corrupt=0.01,
            duplicate=0.02,
            reorder=0.03,
            reorder_ns=50_000,
            jitter={"kind": lib.DP_JITTER_PARETO, "scale_ns": 3000, "shape": 2.0},
            marking={
                "kind": lib.DP_MARK_RED,
                "kmin_bytes": 2000,
                "kmax_bytes": 15_000,
                "pmax": 0.2,
            },
            seed=seed,
        )
        for i in range(5000):
            link.offer(i * 10_000, bytes=64 + i * 37 % 3000, ecn=2)
        arrivals = [(a, link.frames[a.frame].ecn) for a in link.arrivals()]
        return arrivals, bytes(ffi.buffer(link.stats))

    assert run(77) == run(77)
    assert run(77) != run(78)
