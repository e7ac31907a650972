# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""AQMs of a link against references written from their RFCs: the same fate for every frame."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.link import aqm_reference as reference
from tests.link.aqm_reference import Packet
from tests.link.links import Link, MakeLink, stream

pytestmark = pytest.mark.san

MBIT, MS = 10**6, 10**6
NS_PER_BYTE = 80  # 100 Mbit/s
AQM_STREAM = 7
SEED = 5
LIMIT = 2**60
SPARING_SEED = 31

CODEL = {"kind": lib.DP_AQM_CODEL, "target_ns": 5 * MS, "interval_ns": 100 * MS}
FQ_CODEL = {**CODEL, "kind": lib.DP_AQM_FQ_CODEL, "flows": 16, "quantum_bytes": 1514}
PIE = {
    "kind": lib.DP_AQM_PIE,
    "target_ns": 15 * MS,
    "interval_ns": 15 * MS,
    "alpha": 0.125,
    "beta": 1.25,
    "max_burst_ns": 150 * MS,
    "mark_max": 0.1,
}

Arrivals = list[tuple[int, Packet]]


def fates(
    aqm: dict[str, Any], arrivals: Arrivals, limit: int = LIMIT, seed: int = SEED
) -> reference.Outcome:
    """What the link model makes of the arrivals."""
    link = Link(rate_bps=8 * 10**9 // NS_PER_BYTE, limit_bytes=limit, seed=seed, aqm=aqm)
    for now, packet in arrivals:
        link.offer(now, bytes=packet.size, ecn=packet.ecn, flow_hash=packet.flow)
    sent = [(a.frame, a.at_ns - arrivals[a.frame][1].size * NS_PER_BYTE) for a in link.arrivals()]
    marked = [
        number
        for number, (_, packet) in enumerate(arrivals)
        if link.frames[number].ecn == reference.CE != packet.ecn
    ]
    assert link.stats.marked == len(marked)
    dropped = list(link.dropped)
    link.close()
    return reference.Outcome(sent, dropped, marked)


def expected(queue: reference.Queue, arrivals: Arrivals) -> reference.Outcome:
    copies = [(now, Packet(**vars(packet))) for now, packet in arrivals]
    outcome = reference.transmit(queue, copies, NS_PER_BYTE)
    outcome.marked.sort()
    return outcome


def codel(aqm: dict[str, Any], limit: int = LIMIT) -> reference.CoDel:
    return reference.CoDel(aqm["target_ns"], aqm["interval_ns"], bool(aqm.get("ecn")), limit)


def fq_codel(aqm: dict[str, Any], limit: int = LIMIT) -> reference.FqCoDel:
    return reference.FqCoDel(
        aqm["target_ns"],
        aqm["interval_ns"],
        bool(aqm.get("ecn")),
        limit,
        aqm["quantum_bytes"],
        lambda flow: int(lib.dp_ecmp(flow, SEED, aqm["flows"])),
    )


def pie(aqm: dict[str, Any], limit: int = LIMIT, seed: int = SEED) -> reference.Pie:
    return reference.Pie(
        aqm["target_ns"],
        aqm["interval_ns"],
        limit=limit,
        draws=stream(seed, AQM_STREAM),
        ecn=bool(aqm.get("ecn")),
        alpha=aqm["alpha"],
        beta=aqm["beta"],
        max_burst=aqm["max_burst_ns"],
        mark_max=aqm["mark_max"],
    )


def overload(
    share: float, ms: int, *, size: int = 1500, ecn: int = 0, flows: int = 1, start: int = 0
) -> Arrivals:
    """`share` of the line in equal gaps for so many milliseconds, flows in turn."""
    gap = round(size * NS_PER_BYTE / share)
    return [(start * MS + i * gap, Packet(i, size, ecn, i % flows)) for i in range(ms * MS // gap)]


def numbered(arrivals: Arrivals) -> Arrivals:
    """In order of time, numbered anew."""
    ordered = sorted(arrivals, key=lambda item: item[0])
    return [
        (now, Packet(i, packet.size, packet.ecn, packet.flow))
        for i, (now, packet) in enumerate(ordered)
    ]


# Congested, calm, congested again soon after, and after long: what the state remembers matters.
EPISODES = numbered(
    [
        *overload(1.2, 900),
        *overload(0.5, 300, start=1000),
        *overload(1.4, 700, start=1400),
        *overload(1.3, 600, start=8000),
    ]
)


@pytest.mark.parametrize("ecn", [False, True], ids=["drop", "mark"])
@pytest.mark.parametrize("capable", [0, 2])
def test_codel_decides_as_rfc_8289(ecn: bool, capable: int) -> None:
    arrivals = [
        (now, Packet(p.number, p.size, capable if p.number % 3 else 0)) for now, p in EPISODES
    ]
    aqm = {**CODEL, "ecn": ecn}
    found = fates(aqm, arrivals)
    assert found == expected(codel(aqm), arrivals)
    reasons = Counter(why for _, why in found.dropped)
    assert reasons["aqm"] > 20
    assert bool(found.marked) == bool(ecn and capable)


def test_codel_remembers_its_rate_for_sixteen_intervals() -> None:
    """Bursts with pauses of 5 to 40 intervals between them."""
    aqm = {**CODEL, "target_ns": MS, "interval_ns": 10 * MS}
    start, bursts = 0, []
    pauses = (50, 100, 400, 120, 130, 140, 145, 150, 155, 160, 165, 170, 90, 60, 300, 50)
    for burst in (80, 40, 25, 20, 18):
        for pause in pauses:
            bursts += overload(1.6, burst, size=700, start=start)
            start += 2 * burst + pause  # the line needs 0.6 of a burst for what is left over
    arrivals = numbered(bursts)
    queue = codel(aqm)
    assert fates(aqm, arrivals) == expected(queue, arrivals)
    assert queue.state.resumed > 10
    assert queue.state.begun - queue.state.resumed > 10


@pytest.mark.parametrize("frames", [3, 4, 12, 13])
def test_codel_leaves_a_queue_of_one_frame_alone(frames: int) -> None:
    """RFC 8289, section 5: MAXPACKET, which only the last frame but one finds behind it."""
    aqm = {**CODEL, "target_ns": 1, "interval_ns": 10}
    arrivals = [(0, Packet(i, 1500)) for i in range(frames)]
    found = fates(aqm, arrivals)
    assert found == expected(codel(aqm), arrivals)
    assert found.sent[-1][0] == frames - 1


@pytest.mark.parametrize("ecn", [False, True], ids=["drop", "mark"])
def test_fq_codel_decides_as_rfc_8290(ecn: bool) -> None:
    """Bulk flows, and a small one that comes and goes."""
    small = overload(0.05, 2500, size=200, ecn=2, start=3)
    arrivals = numbered(
        [
            *((now, Packet(0, p.size, 2 * (i % 2), i % 5)) for i, (now, p) in enumerate(EPISODES)),
            *((now, Packet(0, p.size, p.ecn, 77)) for now, p in small),
        ]
    )
    aqm = {**FQ_CODEL, "ecn": ecn}
    found = fates(aqm, arrivals)
    assert found == expected(fq_codel(aqm), arrivals)
    assert Counter(why for _, why in found.dropped)["aqm"] > 10
    assert bool(found.marked) == ecn


def test_fq_codel_keeps_a_sparse_flow_from_waiting() -> None:
    """RFC 8290, section 1.3: it never waits behind the queue that others have built."""
    bulk = overload(2.0, 400, flows=4)
    sparse = [(7 * MS + i * 10 * MS, Packet(0, 100, 0, 99)) for i in range(38)]
    arrivals = numbered(bulk + sparse)
    found = fates({**FQ_CODEL, "flows": 1024}, arrivals)
    started = dict(found.sent)
    waits = [started[p.number] - now for now, p in arrivals if p.flow == 99]
    assert len(waits) == 38
    assert max(waits) <= 1500 * NS_PER_BYTE  # the frame under way


def test_fq_codel_drops_from_the_fattest_when_the_queue_is_full() -> None:
    bulk = overload(3.0, 200, flows=1)
    other = [(i * 10 * MS, Packet(0, 1000, 0, 5)) for i in range(20)]
    arrivals = numbered(bulk + other)
    found = fates(FQ_CODEL, arrivals, limit=30_000)
    assert found == expected(fq_codel(FQ_CODEL, 30_000), arrivals)
    lost = {number for number, why in found.dropped if why == "queue"}
    assert len(lost) > 50
    assert not any(p.number in lost for _, p in arrivals if p.flow == 5)


@pytest.mark.parametrize("ecn", [False, True], ids=["drop", "mark"])
def test_pie_decides_as_rfc_8033(ecn: bool) -> None:
    arrivals = [(now, Packet(p.number, p.size, 2 * (p.number % 2))) for now, p in EPISODES]
    aqm = {**PIE, "ecn": ecn}
    found = fates(aqm, arrivals)
    assert found == expected(pie(aqm), arrivals)
    assert Counter(why for _, why in found.dropped)["aqm"] > 20
    assert bool(found.marked) == ecn


def test_pie_drops_what_is_capable_too_when_marks_do_not_help() -> None:
    """RFC 8033, section 5.1: from mark_max on."""
    arrivals = overload(2.0, 3000, size=9000, ecn=2)
    aqm = {**PIE, "ecn": True}
    found = fates(aqm, arrivals)
    assert found == expected(pie(aqm), arrivals)
    assert found.marked
    assert Counter(why for _, why in found.dropped)["aqm"] > 100


def test_pie_drops_at_last_what_chance_has_spared() -> None:
    """RFC 8033, section 5.4, with a seed whose draws spare enough frames in a row."""
    arrivals = overload(1.3, 6000, size=9000)
    aqm, seed = {**PIE, "max_burst_ns": 0}, SPARING_SEED
    queue = pie(aqm, seed=seed)
    assert fates(aqm, arrivals, seed=seed) == expected(queue, arrivals)
    assert queue.forced > 0


def test_pie_lets_a_burst_pass() -> None:
    """RFC 8033, section 4.4: nothing is dropped within MAX_BURST."""
    arrivals = overload(4.0, 150)
    assert fates(PIE, arrivals).dropped == []
    assert fates({**PIE, "max_burst_ns": 0}, arrivals).dropped != []


def mean_wait_ms(aqm: dict[str, Any], share: float) -> float:
    """In the second half of ten seconds of overload by packets that slow down for nobody."""
    arrivals = overload(share, 10_000, size=9000)
    late = [
        start - arrivals[number][0]
        for number, start in fates(aqm, arrivals).sent
        if arrivals[number][0] > 5000 * MS
    ]
    return sum(late) / len(late) / MS


def test_codel_brings_the_delay_to_its_target() -> None:
    assert mean_wait_ms({"kind": 0}, 1.02) > 100
    assert mean_wait_ms(CODEL, 1.02) < 10


def test_pie_brings_the_delay_to_its_target() -> None:
    assert mean_wait_ms({"kind": 0}, 1.1) > 500
    assert 7.5 < mean_wait_ms(PIE, 1.1) < 22.5


def test_the_limit_stands_beside_the_aqm() -> None:
    arrivals = overload(3.0, 50)
    for aqm, queue in ((CODEL, codel(CODEL, 15_000)), (PIE, pie(PIE, 15_000))):
        found = fates(aqm, arrivals, limit=15_000)
        assert found == expected(queue, arrivals)
        assert Counter(why for _, why in found.dropped)["queue"] > 100


# ---- any arrivals ---------------------------------------------------------------------

ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 500, 20_000, 120_000, 900_000, 40_000_000]),
        st.sampled_from([1, 64, 700, 1500]),
        st.integers(0, 3),
        st.integers(0, 4),
    ),
    max_size=150,
)
SHORT = {"target_ns": 50_000, "interval_ns": 400_000}


def arrivals_of(drawn: list[tuple[int, int, int, int]]) -> Arrivals:
    now, found = 0, []
    for i, (gap, size, ecn, flow) in enumerate(drawn):
        now += gap
        found.append((now, Packet(i, size, ecn, flow)))
    return found


@given(ARRIVALS, st.booleans(), st.sampled_from([3000, LIMIT]))
def test_codel_always_decides_as_the_reference(
    drawn: list[tuple[int, int, int, int]], ecn: bool, limit: int
) -> None:
    aqm, arrivals = {**CODEL, **SHORT, "ecn": ecn}, arrivals_of(drawn)
    found = fates(aqm, arrivals, limit)
    event(f"dropped: {bool(found.dropped)}, marked: {bool(found.marked)}")
    assert found == expected(codel(aqm, limit), arrivals)


@given(ARRIVALS, st.booleans(), st.sampled_from([3000, LIMIT]), st.sampled_from([256, 3000]))
def test_fq_codel_always_decides_as_the_reference(
    drawn: list[tuple[int, int, int, int]], ecn: bool, limit: int, quantum: int
) -> None:
    aqm, arrivals = {**FQ_CODEL, **SHORT, "ecn": ecn, "flows": 3}, arrivals_of(drawn)
    aqm["quantum_bytes"] = quantum
    assert fates(aqm, arrivals, limit) == expected(fq_codel(aqm, limit), arrivals)


@given(ARRIVALS, st.booleans(), st.sampled_from([3000, LIMIT]), st.sampled_from([0, 300_000]))
def test_pie_always_decides_as_the_reference(
    drawn: list[tuple[int, int, int, int]], ecn: bool, limit: int, burst: int
) -> None:
    aqm = {**PIE, "target_ns": 50_000, "interval_ns": 100_000, "max_burst_ns": burst, "ecn": ecn}
    aqm |= {"alpha": 1000.0, "beta": 5000.0}
    arrivals = arrivals_of(drawn)
    assert fates(aqm, arrivals, limit) == expected(pie(aqm, limit), arrivals)


# ---- beside other things --------------------------------------------------------------


def test_one_deadline_for_each_frame_with_an_aqm(make_link: MakeLink) -> None:
    """While there are frames on the wire; before the first there may be one more."""
    link = make_link(rate_bps=10**9, delay_ns=10**6, aqm=CODEL)
    for _ in range(50):
        link.offer(0, bytes=125)
    deadlines = 0
    while (now := link.deadline) != 2**64 - 1:
        deadlines += 1
        list(link.take(now))
    assert deadlines == 50


@pytest.mark.parametrize("aqm", [CODEL, FQ_CODEL, PIE], ids=["codel", "fq-codel", "pie"])
@pytest.mark.parametrize("delay_ns", [0, 1, 1000])
def test_no_deadline_is_late(make_link: MakeLink, aqm: dict[str, Any], delay_ns: int) -> None:
    """Of frames that overtake those held back: their turn comes with nothing on the wire."""
    link = make_link(rate_bps=400 * 10**9, delay_ns=delay_ns, aqm=aqm, reorder=0.5, reorder_ns=MS)
    for i in range(40):
        link.offer(0, bytes=64 + i, flow_hash=i % 3)
    assert len(link.arrivals()) == 40
    assert link.stats.reordered > 5


def test_an_aqm_stays_while_frames_wait(make_link: MakeLink) -> None:
    link = make_link(rate_bps=MBIT, aqm=CODEL)
    for _ in range(3):
        link.offer(0, bytes=1000)
    for other in ({}, {"aqm": PIE}, {"aqm": FQ_CODEL}):
        assert link.configure(1, rate_bps=MBIT, **other) == -errno.EBUSY
    assert link.configure(1, rate_bps=MBIT, aqm={**CODEL, "target_ns": 7}) == 0
    assert len(link.arrivals()) == 3
    assert link.configure(10**9, rate_bps=MBIT, aqm=FQ_CODEL) == 0
    assert link.configure(10**9, rate_bps=MBIT, aqm={**FQ_CODEL, "flows": 7}) == 0
    assert link.configure(10**9, rate_bps=MBIT) == 0
    link.offer(10**9, bytes=1000)
    assert len(link.arrivals()) == 1


def test_an_aqm_does_not_share_a_buffer(make_link: MakeLink) -> None:
    link, plain = make_link(aqm=CODEL), make_link()
    out = ffi.new("struct dp_buffer **")
    config = ffi.new("struct dp_buffer_config *", {"total_bytes": 1000})
    assert not lib.dp_buffer_create(config, ffi.NULL, ffi.NULL, out)
    assert lib.dp_link_share(link.link, out[0], 0) == -errno.EINVAL
    assert lib.dp_link_share(plain.link, out[0], 0) == 0
    assert plain.configure(0, aqm=CODEL) == -errno.EINVAL
    plain.close()
    lib.dp_buffer_destroy(out[0])


def test_what_waits_is_given_back_at_the_end(make_link: MakeLink) -> None:
    for aqm in (CODEL, FQ_CODEL, PIE):
        link = make_link(rate_bps=MBIT, aqm=aqm)
        for i in range(6):
            link.offer(0, bytes=1000, flow_hash=i)
        link.close()
        assert sorted(link.dropped) == [(i, "shutdown") for i in range(6)]
