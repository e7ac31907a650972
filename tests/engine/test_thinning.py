# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: a sender asks for fewer acknowledgements while they queue on their way."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clib import testffi as ffi
from tests.clib import testlib as lib
from tests.engine import forge
from tests.engine.ladder import MS, QP, US, Packet, S, World, ok

pytestmark = pytest.mark.san

DELAY = 50 * US
MOST = 7
EVERY = 16
MANY = 100  # packets in flight

# --- how many to ask for ----------------------------------------------------------------------


def return_path(capacity: float, wanted: float, rtt_ns: int, rounds: int) -> tuple[list[int], Any]:
    """The levels, RTT by RTT, where a return path carries `capacity` acknowledgements per RTT.

    A receiver sends `wanted` of them, and half as many for each level.  What the path does not
    carry queues, and the RTT grows by it; a window of packets has no more.
    """
    known = ffi.new("struct dp_thinning *")
    now, queue, levels = S, 0.0, []
    for _ in range(rounds):
        back_ns = int(queue / capacity * rtt_ns)
        for _ in range(4):
            now += (rtt_ns + back_ns) // 4
            lib.dp_thinning_sample(known, back_ns, rtt_ns, rtt_ns + back_ns, MANY, now)
        sent = wanted / 2**known.level * (1 + back_ns / rtt_ns)
        queue = min(max(queue + sent - capacity * (1 + back_ns / rtt_ns), 0), 2 * wanted)
        levels.append(known.level)
    return levels, known


@given(st.integers(20 * US, 40 * MS))
def test_an_empty_way_has_all_of_them(rtt_ns: int) -> None:
    levels, _ = return_path(capacity=100, wanted=99, rtt_ns=rtt_ns, rounds=100)
    assert set(levels) == {0}


@given(st.integers(1, 5), st.integers(3 * MS, 40 * MS))
def test_a_slow_way_has_as_many_as_it_carries(level: int, rtt_ns: int) -> None:
    """Most of the time as many, and now and then it is tried with more."""
    levels, _ = return_path(capacity=100, wanted=99 * 2**level, rtt_ns=rtt_ns, rounds=2000)
    later = levels[200:]
    assert set(later) <= {level - 1, level, level + 1}
    assert later.count(level) + later.count(level + 1) > 0.9 * len(later)


def test_a_short_queue_of_others_is_left_alone() -> None:
    known = ffi.new("struct dp_thinning *")
    for i in range(1000):
        lib.dp_thinning_sample(known, 390 * US, 200 * US, 590 * US, MANY, S + i * MS)
        assert known.level == 0


@pytest.mark.parametrize(("packets", "most"), [(6, 0), (12, 0), (13, MOST)])
def test_a_queue_of_few_packets_is_left_alone(packets: int, most: int) -> None:
    """Half of the RTT is in the queue, so half of the packets in flight wait there."""
    known = ffi.new("struct dp_thinning *")
    levels = set()
    for i in range(1000):
        back_ns = 10 * MS + i * US
        lib.dp_thinning_sample(known, back_ns, MS, 2 * back_ns, packets, S + i * 100 * MS)
        levels.add(known.level)
    assert max(levels) == most


def test_when_few_packets_are_left_it_asks_for_all_again() -> None:
    known = ffi.new("struct dp_thinning *")
    for i in range(2000):
        packets = MANY if i < 1000 else 7
        lib.dp_thinning_sample(known, 10 * MS, MS, 20 * MS, packets, S + i * 100 * MS)
        assert i != 999 or known.level > 0
    assert known.level == 0


def test_tries_that_make_a_queue_become_rare() -> None:
    levels, _ = return_path(capacity=100, wanted=120, rtt_ns=4 * MS, rounds=1500)
    tries = [i for i, (one, two) in enumerate(itertools.pairwise(levels)) if two < one]
    gaps = [b - a for a, b in itertools.pairwise(tries)]
    assert len(gaps) > 5
    assert min(gaps[-3:]) > 3 * gaps[0]


@given(st.integers(0, 10 * S), st.integers(1, S))
def test_the_receiver_never_holds_one_for_longer_than_an_rtt(back_ns: int, rtt_ns: int) -> None:
    known = ffi.new("struct dp_thinning *")
    for now in range(S, S + 100 * rtt_ns, rtt_ns):
        lib.dp_thinning_sample(known, back_ns, rtt_ns, rtt_ns, MANY, now)
        assert known.level <= MOST
        assert known.level == 0 or lib.dp_ack_delay_ns(known.level) <= rtt_ns


def test_one_late_acknowledgement_is_no_queue() -> None:
    known = ffi.new("struct dp_thinning *")
    for i in range(1000):
        late = 300 * US if i % 3 else 0
        lib.dp_thinning_sample(known, late, MS, MS, MANY, S + i * MS)
        assert known.level == 0


# --- what the receiver makes of it ------------------------------------------------------------


def asking(sender: QP, psn: int, thin: int, *, ack: bool = False) -> Packet:
    """A SEND of four bytes, the PSN-th of the QP, whose sender wants few acknowledgements."""
    xdh = struct.pack("!5I", 2 * S, psn - 100, 0, thin << 1, 0)
    return forge.packet(sender, 0xC4, psn, xdh, b"four", ack=ack)


def answer_to(world: World, b: QP, *packets: Packet) -> tuple[int, Packet]:
    """How long B waits until it acknowledges these packets, and the acknowledgement."""
    for packet in packets:
        world.give(b.host, packet)
    waits = world.expire(b)
    (acknowledgement,) = b.host.send_all()
    assert acknowledgement.name == "EXT_ACK"
    return waits, acknowledgement


def connected(world: World, receives: int) -> tuple[QP, QP]:
    a, b = world.extended_pair()
    for _ in range(receives):
        b.recv(8)
    return a, b


TICK = 1024  # ns, of the timer wheel


@pytest.mark.parametrize("thin", range(1, MOST + 1))
def test_it_waits_for_as_long_as_it_may(ext: World, thin: int) -> None:
    a, b = connected(ext, 1)
    waits, _ = answer_to(ext, b, asking(a, 100, thin))
    assert 0 <= waits - (DELAY << thin) <= TICK


@pytest.mark.parametrize("thin", [0, 1, 3])
def test_it_counts_as_far_as_it_may(ext: World, thin: int) -> None:
    count = EVERY << thin
    a, b = connected(ext, count)
    for psn in range(100, 100 + count):
        assert [p for p in b.host.send_all() if p.name == "EXT_ACK"] == []
        ext.give(b.host, asking(a, psn, thin))
    (acknowledgement,) = b.host.send_all()
    assert acknowledgement.psn == 100 + count - 1


@pytest.mark.parametrize("thin", [1, MOST])
def test_what_asks_for_one_has_it_within_4_us(ext: World, thin: int) -> None:
    a, b = connected(ext, 1)
    waits, _ = answer_to(ext, b, asking(a, 100, thin, ack=True))
    assert waits <= 4 * US + TICK


@pytest.mark.parametrize("thin", [1, MOST])
def test_gaps_are_told_within_half_of_it(ext: World, thin: int) -> None:
    """Opened, closed, and after a packet that came twice."""
    a, b = connected(ext, 8)
    half = (DELAY << thin) // 2
    for packets in (
        [asking(a, 102, thin)],
        [asking(a, 100, thin), asking(a, 101, thin)],
        [asking(a, 101, thin)],
    ):
        waits, acknowledgement = answer_to(ext, b, *packets)
        assert 0 <= waits - half <= TICK
        assert acknowledgement.sacked() == ({102} if acknowledgement.psn < 102 else set())


def test_a_reply_carries_none_while_a_gap_is_to_be_told(ext: World) -> None:
    """A carried acknowledgement has no bitmap."""
    a, b = connected(ext, 4)
    a.recv(8)
    ext.give(b.host, asking(a, 101, 3))
    b.send(b"reply")
    ext.says(b, "EXT_SEND_ONLY 5000 carries=no")
    _, acknowledgement = answer_to(ext, b)
    assert acknowledgement.sacked() == {101}


def test_the_newest_request_counts(ext: World) -> None:
    a, b = connected(ext, 2)
    waits, _ = answer_to(ext, b, asking(a, 100, MOST), asking(a, 101, 1))
    assert waits <= 2 * DELAY + TICK


# --- both ---------------------------------------------------------------------------------------


def stream(world: World, a: QP, b: QP, messages: int, back_ns: int) -> int:
    """WRITEs of a, ten at a time; acknowledgements of b take back_ns longer than the first ones.

    Returns the highest level that a asked for.
    """
    target, most = b.host.memory(8), 0
    for i in range(messages):
        for _ in range(10):
            a.write(b"x", target)
        requests = a.host.send_all()
        most = max(most, *(p.xdh()["thin"] for p in requests if p.name == "EXT_WRITE_ONLY"))
        world.advance(100 * US)
        for packet in requests:
            world.give(b.host, packet)
        world.expire(b)
        answers = b.host.send_all()
        world.advance(100 * US + back_ns * min(max(i - 4, 0), 40) // 40)
        for packet in answers:
            world.give(a.host, packet)
        assert a.poll() == [ok("RDMA_WRITE")] * 10
    return most


def test_a_sender_asks_for_few_while_the_way_back_has_a_queue(ext: World) -> None:
    a, b = ext.extended_pair()
    assert stream(ext, a, b, messages=40, back_ns=0) == 0
    assert stream(ext, a, b, messages=90, back_ns=1500 * US) > 0


def test_a_probe_waits_for_what_the_receiver_may_hold(ext: World) -> None:
    """No probe, and no time-out, comes of an acknowledgement that is late because it may be."""
    a, b = ext.extended_pair()
    assert stream(ext, a, b, messages=90, back_ns=1500 * US) > 0
    assert (a.stats()["probes"], a.stats()["timeouts"], a.stats()["retransmits"]) == (0, 0, 0)
