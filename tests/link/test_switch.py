# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What links of one switch share: buffer, thresholds, PFC, and the choice of equal paths."""

from __future__ import annotations

import errno
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.link.links import Link

pytestmark = pytest.mark.san

GBIT = 10**9


class Switch:
    """A shared buffer and its egress links; `pauses` has what PFC asked for."""

    def __init__(self, links: list[dict[str, Any]], **config: Any) -> None:
        self.pauses: list[tuple[int, int, bool, int]] = []
        self._callback = ffi.callback("dp_pfc_fn *", self._pfc)
        out = ffi.new("struct dp_buffer **")
        error = lib.dp_buffer_create(
            ffi.new("struct dp_buffer_config *", config), self._callback, ffi.NULL, out
        )
        if error:
            raise OSError(-error, "dp_buffer_create")
        self.buffer = out[0]
        self.links = [Link(**link) for link in links]
        for port, link in enumerate(self.links):
            assert lib.dp_link_share(link.link, self.buffer, port) == 0

    def _pfc(self, _user: Any, port: int, cls: int, paused: bool, now: int) -> None:
        self.pauses.append((port, cls, bool(paused), now))

    @property
    def used(self) -> int:
        return int(lib.dp_buffer_used_bytes(self.buffer))

    def close(self) -> None:
        for link in self.links:
            link.close()
        lib.dp_buffer_destroy(self.buffer)


@pytest.fixture
def make_switch() -> Iterator[Any]:
    switches: list[Switch] = []

    def make(links: int | list[dict[str, Any]], **config: Any) -> Switch:
        given = [{"rate_bps": GBIT}] * links if isinstance(links, int) else links
        switches.append(Switch(given, **config))
        return switches[-1]

    yield make
    for switch in switches:
        switch.close()


# ---- dynamic thresholds -------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.25, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("hot", [1, 2, 5])
def test_hot_queues_stop_where_choudhury_and_hahne_say(
    make_switch: Any, alpha: float, hot: int
) -> None:
    """n saturated queues settle at alpha * B / (1 + n * alpha) each."""
    total = 1_000_000
    switch = make_switch(8, total_bytes=total, alpha=alpha)
    for _ in range(3000):
        for link in switch.links[:hot]:
            link.offer(0, bytes=500)
    expected = alpha * total / (1 + hot * alpha)
    for link in switch.links[:hot]:
        assert link.advance(0) == pytest.approx(expected, abs=500 * (1 + alpha) * hot)
        assert {why for _, why in link.dropped} == {"buffer"}
    # What is left is there for a queue that was idle.
    idle = switch.links[7]
    for _ in range(10):
        idle.offer(0, bytes=500)
    assert idle.dropped == []


def test_room_comes_back_when_frames_leave(make_switch: Any) -> None:
    """Also room that other links have not yet made up for."""
    switch = make_switch(2, total_bytes=10_000)
    for _ in range(11):
        switch.links[0].offer(0, bytes=1000)  # one is transmitted, ten wait
    assert switch.used == 10_000
    switch.links[1].offer(0, bytes=1000)  # passes at once, needs no room
    switch.links[1].offer(0, bytes=1000)
    assert switch.links[1].dropped == [(1, "buffer")]
    switch.links[1].offer(16_000, bytes=1000)  # passes: two of the other link have left
    switch.links[1].offer(16_000, bytes=1000)
    assert switch.links[1].dropped == [(1, "buffer")]
    assert switch.used == 9000
    for link in switch.links:
        link.arrivals()
    assert switch.used == 0


def test_a_trimmed_frame_needs_only_the_room_of_its_headers(make_switch: Any) -> None:
    trims = {"rate_bps": GBIT, "trim": True, "classes": [(0, 0), (0, 0)]}
    switch = make_switch([trims], total_bytes=2500)
    link = switch.links[0]
    for _ in range(5):
        link.offer(0, bytes=1000, header_bytes=100, **{"class": 1})
    assert [a.frame for a in link.arrivals()] == [0, 3, 4, 1, 2]
    assert link.stats.trimmed == 2
    assert switch.used == 0


@given(
    st.sampled_from([0.0, 0.5, 4.0]),
    st.integers(0, 1),
    st.lists(
        st.tuples(
            st.integers(0, 3),  # link
            st.integers(0, 20_000),  # time that passes before
            st.integers(0, 3000),
            st.integers(0, 1),  # class
            st.sampled_from([0, 1, 2, 3, 0xFFFF]),  # ingress
            st.booleans(),  # whether its deadlines are kept until then
        ),
        max_size=80,
    ),
)
def test_the_buffer_always_adds_up(
    alpha: float, pfc: int, offers: list[tuple[int, int, int, int, int, bool]]
) -> None:
    switch = Switch(
        [{"rate_bps": GBIT, "classes": [(0, 0), (0, 0)]}] * 4,
        total_bytes=20_000 + 4 * 3000 * pfc,
        alpha=alpha,
        n_ports=4,
        pfc_classes=pfc,
        xoff_bytes=4000,
        xon_bytes=2000,
        headroom_bytes=3000,
    )
    now = 0
    for number, gap, size, cls, ingress, kept in offers:
        now += gap
        link = switch.links[number]
        if kept:
            link.arrivals(now)
        link.offer(now, bytes=size, ingress=ingress, **{"class": cls})
        assert switch.used == sum(lib.dp_link_queue_bytes(o.link) for o in switch.links)
        assert switch.used <= 20_000 + 4 * 3000 * pfc
    for link in switch.links:
        link.arrivals()
        assert link.stats.offered == link.stats.delivered + link.stats.overflowed
    assert switch.used == 0
    # Whoever was paused was let go on, in turn.
    for port in range(4):
        mine = [paused for p, _, paused, _ in switch.pauses if p == port]
        assert mine == [True, False] * (len(mine) // 2)
    switch.close()


# ---- PFC ------------------------------------------------------------------------------

LOSSLESS = {
    "total_bytes": 200_000,
    "n_ports": 3,
    "pfc_classes": 1,
    "xoff_bytes": 20_000,
    "xon_bytes": 10_000,
    "headroom_bytes": 30_000,
}


def test_xoff_and_xon(make_switch: Any) -> None:
    switch = make_switch(1, **LOSSLESS)
    for i in range(30):
        switch.links[0].offer(i, bytes=1000, ingress=2)
    # Frame 0 is transmitted, 1 to 20 wait, 21 is the first above XOFF.
    assert switch.pauses == [(2, 0, True, 21)]
    assert lib.dp_buffer_ingress_bytes(switch.buffer, 2, 0) == 29_000
    switch.links[0].arrivals()
    # The frame that leaves 10000 waiting begins after 20 frames of 8 us.
    assert switch.pauses[1:] == [(2, 0, False, 19 * 8000)]


def test_headroom_is_the_limit_of_a_peer_that_does_not_stop(make_switch: Any) -> None:
    switch = make_switch(1, **LOSSLESS)
    for _ in range(60):
        switch.links[0].offer(0, bytes=1000, ingress=0)
    assert switch.links[0].stats.overflowed == 60 - 1 - 20 - 30


def drive_incast(senders: int, delay_ns: int, frames: int, headroom: int) -> tuple[Switch, int]:
    """`senders` links of 1 Gbit/s into one port of the same rate; pauses take the link's delay.

    Returns the switch and the number of frames that left it.
    """
    switch = Switch(
        [{"rate_bps": GBIT}],
        total_bytes=senders * (headroom + 40_000),
        n_ports=senders,
        pfc_classes=1,
        xoff_bytes=20_000,
        xon_bytes=10_000,
        headroom_bytes=headroom,
    )
    uplinks = [Link(rate_bps=GBIT, delay_ns=delay_ns) for _ in range(senders)]
    for number, uplink in enumerate(uplinks):
        for _ in range(frames):
            uplink.offer(0, bytes=1000, ingress=number)
    events: list[tuple[int, int, bool]] = []
    out, left, told = switch.links[0], 0, 0
    while True:
        now = min(
            [u.deadline for u in uplinks] + [out.deadline] + [at for at, *_ in events],
        )
        if now == 2**64 - 1:
            break
        for event in [e for e in events if e[0] == now]:
            events.remove(event)
            (uplinks[event[1]].pause if event[2] else uplinks[event[1]].resume)(now)
        left += len(list(out.take(now)))
        for uplink in uplinks:
            for arrival in uplink.take(now):
                out.adopt(uplink.frames[arrival.frame])
                lib.dp_link_offer(out.link, uplink.frames[arrival.frame], now)
        for port, _, paused, at in switch.pauses[told:]:
            events.append((max(at, now) + delay_ns, port, paused))
        told = len(switch.pauses)
    for uplink in uplinks:
        uplink.close()
    return switch, left


@pytest.mark.parametrize("delay_ns", [0, 10_000, 50_000])
def test_pfc_loses_nothing_when_the_headroom_covers_the_delay(delay_ns: int) -> None:
    """What a peer sends until it hears of it: two delays at its rate, and two frames."""
    headroom = 2 * delay_ns // 8 + 2000
    switch, left = drive_incast(4, delay_ns, 300, headroom)
    assert switch.links[0].stats.overflowed == 0
    assert left == 1200
    assert any(paused for *_, paused, _ in switch.pauses)
    assert switch.used == 0
    switch.close()


def test_pfc_loses_when_the_headroom_is_too_small() -> None:
    switch, left = drive_incast(4, 50_000, 300, 2000)
    assert switch.links[0].stats.overflowed == 1200 - left > 0
    switch.close()


def test_a_frame_that_the_headroom_cannot_hold_pauses_too(make_switch: Any) -> None:
    switch = make_switch(1, **{**LOSSLESS, "headroom_bytes": 100})
    for i in range(30):
        switch.links[0].offer(i, bytes=1000, ingress=2)
    # Frame 0 is transmitted, 1 to 20 wait, and the others are dropped.
    assert switch.pauses == [(2, 0, True, 21)]
    assert switch.links[0].stats.overflowed == 9
    switch.links[0].arrivals()
    assert [paused for _, _, paused, _ in switch.pauses] == [True, False]


def test_a_port_of_which_nothing_waits_is_not_paused(make_switch: Any) -> None:
    """Nothing would leave and let it go on."""
    switch = make_switch(1, **{**LOSSLESS, "headroom_bytes": 100})
    switch.links[0].offer(0, bytes=1000, ingress=0)
    switch.links[0].offer(0, bytes=20_001, ingress=2)
    assert switch.links[0].stats.overflowed == 1
    assert switch.pauses == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": -1},
        {"alpha": math.nan},
        {"pfc_classes": 0x100},
        {"xon_bytes": 20_001},
        {"headroom_bytes": 10**6},
        {"n_ports": 10**6},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OSError, match="dp_buffer_create") as error:
        Switch([], **{**LOSSLESS, **wrong})
    assert error.value.errno == errno.EINVAL


# ---- ECMP -----------------------------------------------------------------------------


def flow_hash(a: int, b: int, sport: int) -> int:
    src, dst = (
        ffi.new("struct dp_addr *", {"b": bytes(10) + b"\xff\xff" + n.to_bytes(4, "big")})
        for n in (a, b)
    )
    return int(lib.dp_flow_hash(src, dst, sport, 4791))


def chi_square(counts: list[int]) -> float:
    mean = sum(counts) / len(counts)
    return sum((c - mean) ** 2 for c in counts) / mean


@pytest.mark.parametrize("n", [2, 3, 8, 16])
def test_source_ports_spread_evenly(n: int) -> None:
    """Consecutive source ports of one pair of hosts."""
    paths = Counter(
        lib.dp_ecmp(flow_hash(0x0A000001, 0x0A000002, sport), 42, n)
        for sport in range(49152, 65536)
    )
    assert sorted(paths) == list(range(n))
    # Mean n - 1, deviation sqrt(2 (n - 1)).
    assert chi_square([paths[i] for i in range(n)]) < n - 1 + 4 * math.sqrt(2 * (n - 1))


def test_stages_do_not_polarise() -> None:
    """Of the flows that switch 1 sends over path 0, switch 2 uses all paths alike."""
    hashes = [flow_hash(0x0A000000 + i // 64, 0x0A000100 + i % 64, 50_000) for i in range(4096)]
    first = [h for h in hashes if lib.dp_ecmp(h, 1, 4) == 0]
    second = Counter(lib.dp_ecmp(h, 2, 4) for h in first)
    assert chi_square([second[i] for i in range(4)]) < 3 + 4 * math.sqrt(6)


def test_one_flow_keeps_its_path() -> None:
    h = flow_hash(1, 2, 3)
    assert h == flow_hash(1, 2, 3) != flow_hash(2, 1, 3)
    assert len({lib.dp_ecmp(h, 9, 64) for _ in range(10)}) == 1
    assert lib.dp_ecmp(h, 9, 1) == 0
