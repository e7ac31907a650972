# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: what the bitmap tells, what is sent again first, and time-outs that were none."""

from __future__ import annotations

import itertools
import os
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import (
    MS,
    QP,
    US,
    Channel,
    Host,
    Packet,
    S,
    World,
    failed,
    lose_probably,
    ok,
    pattern,
)

pytestmark = pytest.mark.san

RUNS = int(os.environ.get("DATAPATH_HUNT", "30"))
MTU = 1024
READ = 0xCC
WORDS = 64
TURN = 8  # acknowledgements of which one tells another part of a long bitmap


def acks_of(qp: QP) -> list[Packet]:
    return [p for p in qp.host.send_all() if p.name == "EXT_ACK"]


# ---- the bitmap ------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [64, 128, 512])
@pytest.mark.parametrize("first", [0, 1, 31, 100, 0xFFFFF0])
def test_all_of_the_window_can_be_acknowledged(
    make_world: MakeWorld, window: int, first: int
) -> None:
    """Wherever in a word of the bitmap it begins."""
    world = make_world(extended=True, window_psns=window)
    a, b = world.extended_pair(a_psn=first)
    a.write(pattern(window * MTU), b.host.memory(window * MTU))
    packets = a.host.send_all()
    assert len(packets) == window
    for packet in packets[1:]:
        world.give(b.host, packet)
    world.advance(MS)
    told = acks_of(b)[-1].sacked()
    assert told == {p.psn for p in packets[1:]}
    assert packets[0].psn not in told


def test_a_long_bitmap_is_told_in_parts(make_world: MakeWorld) -> None:
    """Those that end with the newest packet as it comes, and all again in turn later."""
    count = 5000
    world = make_world(extended=True, window_psns=8192)
    a, b = world.extended_pair()
    a.write(pattern(count * MTU), b.host.memory(count * MTU))
    packets = a.host.send_all()
    lost = {0, 700, 2500, 4900}
    told: set[int] = set()
    for i, packet in enumerate(packets):
        if i not in lost:
            world.give(b.host, packet)
        for ack in acks_of(b):
            assert ack.xah()["words"] <= WORDS
            told |= ack.sacked()
    wanted = {p.psn for i, p in enumerate(packets) if i not in lost}
    assert told == wanted
    again: set[int] = set()
    parts = -(-count // (32 * WORDS))
    for _ in range(TURN * (parts + 1)):
        world.give(b.host, packets[-1])
        for ack in acks_of(b):
            again |= ack.sacked()
    assert again == wanted, "a lost acknowledgement is not made up for"


def test_what_comes_far_behind_the_newest_is_told_at_once(make_world: MakeWorld) -> None:
    count = 5000
    world = make_world(extended=True, window_psns=8192)
    a, b = world.extended_pair()
    a.write(pattern(count * MTU), b.host.memory(count * MTU))
    packets = a.host.send_all()
    for i, packet in enumerate(packets):
        if i not in (0, 700):
            world.give(b.host, packet)
    acks_of(b)
    world.give(b.host, packets[700])
    answers = acks_of(b)
    if packets[700].psn not in set().union(*(ack.sacked() for ack in answers)):
        world.give(b.host, packets[700])  # it was the turn of another part
        answers = acks_of(b)
    assert packets[700].psn in set().union(*(ack.sacked() for ack in answers))


# ---- what is sent again first ------------------------------------------------------------------


def test_the_oldest_packet_is_sent_again_before_all_others(make_world: MakeWorld) -> None:
    """A copy that was lost as well does not wait behind what the window cannot use."""
    world = make_world(extended=True, window_psns=64)
    a, b = world.extended_pair()
    a.write(b"x", b.host.memory(8))
    assert world.run(Channel(latency_ns=20 * US))
    a.write(pattern(64 * MTU), b.host.memory(64 * MTU))
    packets = a.host.send_all()
    world.advance(40 * US)
    world.give(b.host, packets[-1])
    for ack in acks_of(b):
        world.give(a.host, ack)
    world.advance(100 * US)
    a.host.tick()
    again = a.host.send_all()
    assert again[0].psn == packets[0].psn


# ---- READs ---------------------------------------------------------------------------------------


def part(a: QP, source: Any, index: int, count: int) -> Packet:
    """The request for PSNs [100 + index, + count) of a READ that begins at PSN 100."""
    reth = struct.pack("!QII", source.addr + index * MTU, source.key, count * MTU)
    return forge.packet(a, READ, 100 + index, forge.xdh(segment=MTU, offset=index * MTU) + reth)


@pytest.mark.parametrize(
    "order",
    [
        [(2, 4), (1, 2), (0, 1)],  # held; a part of it once more; what was missing
        [(3, 3), (1, 3), (0, 1)],
        [(2, 4), (0, 3)],  # the missing one reaches into what is held, and ends within it
        [(4, 2), (2, 1), (1, 4), (0, 6)],
        [(5, 1), (3, 3), (1, 3), (0, 2)],
    ],
)
def test_parts_of_a_read_that_overlap_are_all_answered(
    make_world: MakeWorld, order: list[tuple[int, int]]
) -> None:
    """A time-out asks for other parts than those that are held already."""
    world = make_world(extended=True)
    a, b = world.extended_pair()
    source = b.host.memory(pattern(6 * MTU))
    answered: set[int] = set()
    for index, count in order:
        world.give(b.host, part(a, source, index, count))
        answered |= {p.psn for p in b.host.send_all() if "READ_RESP" in p.name}
    assert answered == set(range(100, 106))


# ---- time-outs -----------------------------------


def counting_cc(cwnd: int) -> tuple[Any, Any]:
    """A constant window that becomes one packet at a time-out."""

    def collapse(flow: Any, now: float) -> None:
        del now
        ffi.cast("struct dp_cc_flow *", flow).cwnd_bytes = MTU

    record = ffi.new("struct dp_cc_flow *")
    record.cwnd_bytes = cwnd
    algo, name = ffi.new("struct dp_cc_algo *"), ffi.new("char[]", b"collapse")
    calls = [
        ffi.callback("void(void *)", lambda flow: None),
        ffi.callback("void(void *, const struct dp_cc_ack *)", lambda flow, ack: None),
        ffi.callback("void(void *, const struct dp_cc_loss *)", lambda flow, loss: None),
        ffi.callback("void(void *, double)", collapse),
    ]
    algo.abi, algo.name, algo.initial = lib.DP_CC_ABI, name, record
    algo.flow_bytes = ffi.sizeof("struct dp_cc_flow")
    algo.on_init, algo.on_ack, algo.on_loss, algo.on_timeout = calls
    return algo, (algo, record, name, calls)


def window_of(qp: QP) -> float:
    return float(lib.dp_qp_flow(qp.qp).cwnd_bytes)


def timed_out(ext: World) -> tuple[QP, QP, list[Packet], Any]:
    """Eight packets were sent, nothing came back in time, and the window is one packet."""
    a, b = ext.extended_pair()
    a.write(b"x", b.host.memory(8))
    assert ext.run(Channel(latency_ns=20 * US))
    algo, keep = counting_cc(64 * MTU)
    assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    packets = a.host.send_all()
    assert len(packets) == 8
    while a.stats()["timeouts"] == 0:
        ext.expire(a)
        copies = a.host.send_all()
    assert window_of(a) == MTU
    return a, b, packets + copies, keep


def test_a_time_out_that_was_none_changes_nothing_for_the_algorithm(ext: World) -> None:
    """RFC 3522: the acknowledgement echoes the time of a packet from before it."""
    a, b, packets, keep = timed_out(ext)
    for packet in packets[:8]:
        ext.give(b.host, packet)
    for ack in acks_of(b):
        ext.give(a.host, ack)
    assert window_of(a) == 64 * MTU
    del keep


def test_a_time_out_that_was_right_stands(ext: World) -> None:
    a, b, packets, keep = timed_out(ext)
    ext.give(b.host, packets[8])  # only the copy arrives
    for ack in acks_of(b):
        ext.give(a.host, ack)
    assert window_of(a) == MTU
    del keep


@pytest.mark.parametrize("ahead_ns", [0, 1, 5 * MS])
def test_an_echo_that_is_ahead_is_of_now(ext: World, ahead_ns: int) -> None:
    """A peer whose clock is fast adds more to it than it has held it."""
    a, b, packets, keep = timed_out(ext)
    ext.give(b.host, packets[8])
    for ack in acks_of(b):
        echo = struct.pack("!I", (ext.now + ahead_ns) % 2**32)
        ext.give(a.host, forge.sealed(ack, ack.data[:16] + echo + ack.data[20:-4]))
    assert window_of(a) == MTU
    del keep


def after_an_outage(outage_ns: int, *, lost: bool) -> float:
    """The window of a QP whose packet was lost with all copies, or came late and before them."""
    with World(extended=True) as ext:
        a, b = ext.extended_pair(timeout=20)
        a.write(b"x", b.host.memory(8))
        assert ext.run(Channel(latency_ns=20 * US))
        algo, keep = counting_cc(64 * MTU)
        assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0
        a.write(b"x", b.host.memory(8))
        (late,) = a.host.send_all()
        end = ext.now + outage_ns
        while ext.now < end:
            ext.advance(min(max(a.host.deadline - ext.now, 1), end - ext.now))
            a.host.send_all()
        assert a.stats()["timeouts"] > 0
        assert window_of(a) == MTU
        if not lost:
            ext.give(b.host, late)
        assert ext.run(Channel(latency_ns=20 * US))
        assert a.poll()[-1] == ok("RDMA_WRITE")
        window = window_of(a)
        a.destroy()
        del keep
    return window


@settings(max_examples=RUNS, deadline=None, print_blob=True)
@given(outage_ns=st.integers(1, 100).map(lambda n: n * 100 * MS))
@example(outage_ns=3 * S)
def test_what_an_outage_was_is_seen_however_long_it_was(outage_ns: int) -> None:
    """An echo has 32 bits of nanoseconds, which are 4.3 s: it tells a delay of less."""
    assert after_an_outage(outage_ns, lost=True) == MTU
    if outage_ns < 4 * S:
        assert after_an_outage(outage_ns, lost=False) == 64 * MTU


def test_the_first_time_out_knows_the_way_from_the_offer(make_world: MakeWorld) -> None:
    """An RTT of 100 ms, and nothing lost: no time-out before the first answer."""
    world = make_world(extended=True)
    a, b = world.pair(timeout=20)
    assert world.run(Channel(latency_ns=50 * MS), limit_ns=10 * S)
    a.write(pattern(64 * MTU), b.host.memory(64 * MTU))
    assert world.run(Channel(latency_ns=50 * MS), limit_ns=10 * S)
    assert a.poll() == [ok("RDMA_WRITE")]
    assert a.extended
    assert (a.stats()["timeouts"], a.stats()["retransmits"]) == (0, 0)


@pytest.mark.parametrize(("timeout", "retry"), [(14, 7), (14, 0), (1, 1), (18, 3)])
def test_a_silent_peer_ends_the_qp_after_what_was_granted(
    make_world: MakeWorld, timeout: int, retry: int
) -> None:
    """And the time of a stall, and after 4 attempts for each; at most twice as late, where the path
    is short.
    """
    world = make_world(extended=True)
    a, b = world.extended_pair(timeout=timeout, retry_cnt=retry)
    a.write(b"x", b.host.memory(8))
    assert world.run(Channel(latency_ns=20 * US))
    a.poll()
    begun = world.now
    a.write(b"x", b.host.memory(8))
    while a.state == "RTS":
        world.expire(a)
        a.host.send_all()
    granted = (4096 << timeout) * (retry + 1)
    granted += min(3 * granted, 1500 * MS)
    tries = 4 * (retry + 1)
    least = max(granted, tries * 4 * MS)
    assert a.poll() == [failed("RETRY_EXC_ERR")]
    assert a.stats()["timeouts"] >= tries
    assert granted <= world.now - begun <= 2 * least


@pytest.mark.parametrize("kind", ["read", "atomic"])
def test_a_peer_that_acknowledges_and_never_answers_ends_the_qp(
    make_world: MakeWorld, kind: str
) -> None:
    """It keeps one request to answer again, and the answer to the one before is lost.

    It replies to HELLOs, so it has 16 times what the attributes grant.
    """
    world = make_world(extended=True)
    a, b = world.extended_pair(b_rd_atomic=1)
    word = b.host.memory(8)
    a.faa(word, 1)
    assert world.run(Channel())
    a.poll()
    answers = itertools.count()
    requests = []

    def lose(_: Host, packet: Packet) -> bool:
        if packet.mask & (lib.DP_IS_READ | lib.DP_IS_ATOMIC):
            requests.append(packet.psn)
        is_answer = packet.mask & lib.DP_IS_READ_RESP or packet.name == "EXT_ATOMIC_ACK"
        return bool(is_answer) and next(answers) == 0

    for _ in range(2):
        a.read(8, word) if kind == "read" else a.faa(word, 1)
    begun, granted = world.now, 8 * (4096 << 14)
    assert world.run(Channel(lose=lose), until=lambda: a.state == "ERR", limit_ns=20 * granted)
    assert a.poll() == [failed("RETRY_EXC_ERR"), failed("WR_FLUSH_ERR")]
    assert 16 * granted <= world.now - begun <= 17 * granted
    assert len(requests) < 1000


def gaps_to_a_dead_peer(world: World, cwnd_bytes: float) -> list[int]:
    """The times between 20 copies of one packet, with that window before the first time-out."""
    a, b = world.extended_pair(timeout=20)
    a.write(b"x", b.host.memory(8))
    assert world.run(Channel(latency_ns=20 * US))
    lose_probably(world, a, 20 * US)
    algo, keep = counting_cc(cwnd_bytes)
    assert lib.dp_qp_set_cc(a.qp, algo, world.now) == 0
    a.write(pattern(MTU), b.host.memory(MTU))
    times: list[int] = []
    while len(times) < 20:
        world.expire(a)
        times += [world.now] * any(len(p.payload) for p in a.host.send_all())
    a.destroy()
    del keep
    return [after - before for before, after in itertools.pairwise(times)]


def test_time_outs_of_a_thin_flow_grow_as_far_as_those_of_others(ext: World) -> None:
    """RFC 6298 (5.5), with six that are not doubled."""
    gaps = gaps_to_a_dead_peer(ext, 64 * MTU)
    assert 6 <= sum(gap < 8 * MS for gap in gaps) < 14
    assert 750 * MS <= gaps[-1] <= 1100 * MS


@pytest.mark.parametrize("stall_ns", [600 * MS, 2000 * MS])
def test_a_host_that_stands_still_is_not_taken_for_dead(
    make_world: MakeWorld, stall_ns: int
) -> None:
    """With the time-out and retries that most programs ask for, 67 ms and 7."""
    world = make_world(extended=True)
    a, b = world.extended_pair(timeout=14, retry_cnt=7)
    begun = world.now
    a.write(pattern(8 * MTU), b.host.memory(8 * MTU))
    still = Channel(latency_ns=20 * US, lose=lambda host, _: world.now < begun + stall_ns)
    assert world.run(still, limit_ns=10 * S)
    assert a.poll() == [ok("RDMA_WRITE")]


@pytest.mark.parametrize("share", [0.5, 20])
def test_a_peer_that_replies_to_offers_is_not_taken_for_dead(
    make_world: MakeWorld, share: float
) -> None:
    """A queue that others keep full takes small packets only; a path with a smaller MTU as well."""
    world = make_world(extended=True)
    a, b = world.extended_pair(timeout=14, retry_cnt=1)
    granted = (4096 << 14) * 2
    full_until = world.now + int(16 * share * granted)
    full = Channel(
        latency_ns=20 * US, lose=lambda _, p: len(p.payload) > 0 and world.now < full_until
    )
    begun = world.now
    a.write(pattern(MTU), b.host.memory(MTU))
    assert world.run(full, limit_ns=100 * S)
    lasted = share < 1
    assert a.poll() == [ok("RDMA_WRITE") if lasted else failed("RETRY_EXC_ERR")]
    assert world.now - begun <= 17 * granted


def test_few_packets_go_while_the_offer_is_open(make_world: MakeWorld) -> None:
    """Standard mode has one fixed time-out: a slow path must not have more than fits into it."""
    world = make_world(extended=True)
    a, b = world.pair()
    a.write(pattern(200 * MTU), b.host.memory(200 * MTU))
    data = [p for p in a.host.send_all() if p.name.startswith("WRITE")]
    assert len(data) == 32
