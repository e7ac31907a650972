# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: how READs and atomics recover, and how little that costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import (
    MS,
    QP,
    US,
    Channel,
    Completion,
    Host,
    Memory,
    Packet,
    World,
    ok,
    pattern,
)

pytestmark = pytest.mark.san

MTU = 1024
CHUNK = 32  # PSNs that one request asks for
READ_REQUEST = 0xCC


def is_request(packet: Packet) -> bool:
    return bool(packet.mask & lib.DP_IS_READ) and packet.name == "EXT_READ_REQUEST"


def is_response(packet: Packet) -> bool:
    return bool(packet.mask & lib.DP_IS_READ_RESP)


def asked(packet: Packet) -> int:
    """Bytes that a READ request asks for."""
    return int.from_bytes(packet.data[44:48], "big")


class Watch:
    """Loses the n-th packets of a kind; remembers the requests and counts responses."""

    def __init__(self, kind: Callable[[Packet], bool], numbers: set[int]) -> None:
        self.kind = kind
        self.numbers = numbers
        self.count = itertools.count()
        self.requests: list[tuple[int, int]] = []  # PSN, bytes
        self.responses = 0

    def __call__(self, _: Host, packet: Packet) -> bool:
        if is_request(packet):
            self.requests.append((packet.psn, asked(packet)))
        self.responses += is_response(packet)
        return self.kind(packet) and next(self.count) in self.numbers


def knows_its_rtt(ext: World, a: QP, b: QP) -> None:
    for _ in range(3):
        a.read(8, b.host.memory(8))
        assert ext.run(Channel())
    a.poll()


def read_all(
    ext: World, a: QP, sources: list[Memory], watch: Watch, *, rate_bps: float = 10e9
) -> int:
    """Reads all of them at once; returns how long it took."""
    into = [a.read(s.size, s) for s in sources]
    done: list[Completion] = []

    def all_done() -> bool:
        done.extend(a.poll())
        return len(done) == len(sources)

    begin = ext.now
    assert ext.run(Channel(lose=watch, rate_bps=rate_bps), until=all_done)
    took = ext.now - begin
    assert done == [ok("RDMA_READ")] * len(sources)
    assert all(bytes(m) == bytes(s) for m, s in zip(into, sources, strict=True))
    assert ext.run()
    return took


def names_of(packets: list[Packet]) -> list[str]:
    return [packet.name for packet in packets]


def test_the_answer_to_a_lone_read_is_its_acknowledgement(make_world: MakeWorld) -> None:
    ext = make_world(extended=True, ecn=1)
    a, b = ext.extended_pair()
    for length, marked, answers in (
        (1, False, ["EXT_READ_RESP_ONLY"]),
        (MTU, False, ["EXT_READ_RESP_ONLY"]),
        (MTU, True, ["EXT_ACK", "EXT_READ_RESP_ONLY"]),
        (MTU + 1, False, ["EXT_ACK", "EXT_READ_RESP_FIRST", "EXT_READ_RESP_LAST"]),
    ):
        a.read(length, b.host.memory(length))
        (request,) = a.host.send_all()
        ext.give(b.host, request.marked() if marked else request)
        packets = b.host.send_all()
        assert names_of(packets) == answers
        for packet in packets:
            ext.give(a.host, packet)
        assert a.poll() == [ok("RDMA_READ")]
        ext.silent()
    assert a.stats()["retransmits"] == a.stats()["probes"] == 0


def test_a_read_behind_what_is_not_acknowledged_yet_is(ext: World) -> None:
    a, b = ext.extended_pair()
    b.recv(8)
    a.send(b"message", signaled=False)
    a.read(8, b.host.memory(8))
    for packet in a.host.send_all():
        ext.give(b.host, packet)
    assert names_of(b.host.send_all()) == ["EXT_ACK", "EXT_READ_RESP_ONLY"]


def test_the_answer_to_a_lone_read_may_be_lost(ext: World) -> None:
    a, b = ext.extended_pair()
    knows_its_rtt(ext, a, b)
    watch = Watch(is_response, {0})
    read_all(ext, a, [b.host.memory(pattern(8))], watch)
    assert watch.responses == 2
    assert a.stats()["timeouts"] == 0


@pytest.mark.parametrize("lost", range(6))
def test_a_lost_request_is_asked_again_once(ext: World, lost: int) -> None:
    """The responder holds back those behind it, so that all answers come late.

    That these have arrived shows that it is lost, unless none is behind it.
    """
    a, b = ext.extended_pair()
    knows_its_rtt(ext, a, b)
    sources = [b.host.memory(pattern(4 * MTU, seed=i)) for i in range(6)]
    watch = Watch(is_request, {lost})
    took = read_all(ext, a, sources, watch)
    assert took < 2 * MS
    first = 103 + 4 * lost
    assert watch.requests[6:] == [(first, 4 * MTU)]
    assert watch.responses == 6 * 4
    assert a.stats()["timeouts"] == 0
    assert a.stats()["probes"] == (lost == 5)


def test_a_time_out_asks_again_for_all_that_the_request_asked_for(ext: World) -> None:
    """No RTT is known yet, so nothing is probed."""
    a, b = ext.extended_pair()
    source = b.host.memory(pattern(CHUNK * MTU))
    watch = Watch(is_request, {0})
    read_all(ext, a, [source], watch)
    assert watch.requests == [(100, CHUNK * MTU)] * 2
    assert watch.responses == CHUNK
    assert a.stats()["timeouts"] == 1


READ_QUEUE = 1024  # READs that the responder has yet to answer, at most


def test_more_reads_behind_a_gap_than_the_responder_can_keep(make_world: MakeWorld) -> None:
    """Those that it cannot keep count as not received, with all their PSNs."""
    world = make_world(extended=True, window_psns=1 << 12)
    a, b = world.extended_pair(mtu=256)
    source = b.host.memory(pattern(512))
    asks = forge.xdh(segment=256) + forge.reth(source, 512)  # two PSNs each

    def ask(first: int, reads: int) -> list[int]:
        for i in range(first, first + reads):
            world.give(b.host, forge.packet(a, READ_REQUEST, 100 + 2 * i, asks))
        return [p.psn for p in b.host.send_all() if is_response(p)]

    assert ask(1, READ_QUEUE + 200) == []
    assert ask(0, 1) == [100 + i for i in range(2 * READ_QUEUE)]
    held = READ_QUEUE + 201
    assert ask(READ_QUEUE, 1) == [100 + i for i in range(2 * READ_QUEUE, 2 * held)]
    assert b.state == "RTS"


def test_a_late_request_is_not_asked_for_again(ext: World) -> None:
    """The acknowledgement of the one behind it comes first, and its own a little later."""
    a, b = ext.extended_pair()
    knows_its_rtt(ext, a, b)
    into = [a.read(4 * MTU, b.host.memory(pattern(4 * MTU, seed=i))) for i in range(2)]
    first, second = a.host.send_all()
    ext.advance(10 * US)
    ext.give(b.host, second)
    told = b.host.send_all()
    ext.advance(8 * US)
    ext.give(b.host, first)
    for packet in [*told, *b.host.send_all()]:
        ext.advance(US)
        ext.give(a.host, packet)
        assert a.host.send_all() == []
    assert [bytes(m) for m in into] == [pattern(4 * MTU, seed=i) for i in range(2)]
    assert a.stats()["retransmits"] == 0


def one_after_the_other(ext: World, a: QP, source: Memory, count: int, channel: Channel) -> int:
    """READs of all of it; returns how long they took."""
    begin, posted, done = ext.now, 0, 0

    def all_done() -> bool:
        nonlocal posted, done
        done += len(a.poll())
        if posted == done < count:
            a.read(source.size, source)
            posted += 1
        return done == count

    assert ext.run(channel, until=all_done)
    return ext.now - begin


def test_large_reads_keep_most_of_their_goodput_under_loss(make_world: MakeWorld) -> None:
    """1 MiB at a time: most of them lose a packet, some a request."""
    ext = make_world(extended=True, segment_max=7552)
    a, b = ext.extended_pair(mtu=4096)
    source = b.host.memory(1 << 20)
    clean, lossy = (
        one_after_the_other(ext, a, source, 50, Channel(rate_bps=16e9, loss=loss, seed=1))
        for loss in (0.0, 0.01)
    )
    assert clean / lossy > 0.8


@pytest.mark.parametrize("lost", [1, 10, 20, 30])
def test_a_lost_response_is_asked_for_alone(ext: World, lost: int) -> None:
    a, b = ext.extended_pair()
    knows_its_rtt(ext, a, b)
    source = b.host.memory(pattern(2 * CHUNK * MTU))
    watch = Watch(is_response, {lost})
    read_all(ext, a, [source], watch)
    first = watch.requests[0][0]
    assert watch.requests == [
        (first, CHUNK * MTU),
        (first + CHUNK, CHUNK * MTU),
        (first + lost, MTU),
    ]
    assert watch.responses == 2 * CHUNK + 1
    assert a.stats()["fast_retransmits"] == 1
    assert a.stats()["timeouts"] == a.stats()["probes"] == 0


def test_neighbours_are_asked_for_together(ext: World) -> None:
    a, b = ext.extended_pair()
    knows_its_rtt(ext, a, b)
    source = b.host.memory(pattern(2 * CHUNK * MTU))
    watch = Watch(is_response, {4, 5, 6, 7, 20})
    read_all(ext, a, [source], watch)
    first = watch.requests[0][0]
    assert sorted(watch.requests[2:]) == [(first + 4, 4 * MTU), (first + 20, MTU)]
    assert watch.responses == 2 * CHUNK + 5


def test_what_is_asked_for_again_fits_into_the_window(ext: World) -> None:
    """All but the last answers are lost, and the window is small since."""
    a, b = ext.extended_pair()
    witness = Witness(a)
    knows_its_rtt(ext, a, b)
    source = b.host.memory(pattern(CHUNK * MTU))
    watch = Watch(is_response, set(range(CHUNK - 1)))

    def lose_and_shrink(host: Host, packet: Packet) -> bool:
        if is_response(packet):
            witness.flow.cwnd_bytes = 2 * MTU
        return watch(host, packet)

    into = a.read(source.size, source)
    assert ext.run(Channel(lose=lose_and_shrink))
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)
    assert max(size for _, size in watch.requests[1:]) <= 2 * MTU
    assert sum(size for _, size in watch.requests[1:]) == (CHUNK - 1) * MTU


def test_the_answer_to_the_second_request_may_be_lost_too(ext: World) -> None:
    a, b = ext.extended_pair()
    knows_its_rtt(ext, a, b)
    source = b.host.memory(pattern(CHUNK * MTU))
    # 32 answers; the next one is that of the second request
    watch = Watch(is_response, {10, CHUNK})
    took = read_all(ext, a, [source], watch)
    assert took < 4 * MS
    assert a.stats()["timeouts"] == 0
    assert watch.responses <= CHUNK + 4


@pytest.mark.parametrize("rate_bps", [1e9, 10e9, 100e9])
def test_a_deep_queue_without_loss_asks_for_each_byte_once(ext: World, rate_bps: float) -> None:
    """Queueing, at up to many times the RTT of an empty path, is no loss."""
    a, b = ext.extended_pair(mtu=4096)
    size = 512 * 1024
    source = b.host.memory(pattern(size))
    watch = Watch(is_response, set())
    read_all(ext, a, [source] * 32, watch, rate_bps=rate_bps)
    assert sum(length for _, length in watch.requests) == 32 * size
    assert watch.responses == 32 * size // 4096
    # a request asks for a quarter of a chunk at least but at the ends of a message and of
    # the window of 2048 PSNs
    assert len(watch.requests) <= 32 * size // 4096 // (CHUNK // 4) + 32 + 2
    for qp in (a, b):
        assert qp.stats()["retransmits"] == qp.stats()["timeouts"] == 0
        assert qp.stats()["probes"] == qp.stats()["duplicates"] == 0


def test_recovery_under_loss_costs_about_what_was_lost(ext: World) -> None:
    a, b = ext.extended_pair(mtu=4096)
    size = 256 * 1024
    source = b.host.memory(pattern(size))
    into = [a.read(size, source) for _ in range(32)]
    watch = Watch(is_response, set())
    channel = Channel(loss=0.02, rate_bps=10e9, seed=3, lose=watch)
    assert ext.run(channel)
    assert a.poll() == [ok("RDMA_READ")] * len(into)
    assert all(bytes(m) == bytes(source) for m in into)
    lost = sum(is_response(p) for p in ext.lost)
    assert lost > 20
    needed = len(into) * size // 4096
    # a lost request costs the answers of a chunk
    lost_requests = sum(is_request(p) for p in ext.lost)
    assert watch.responses <= needed + 3 * (lost + CHUNK * lost_requests)
    assert a.stats()["retransmits"] <= 2 * (lost + lost_requests)


def test_what_is_still_queued_is_not_queued_again(ext: World) -> None:
    a, b = ext.extended_pair()
    source = b.host.memory(pattern(4 * MTU))
    into = a.read(4 * MTU, source)
    (request,) = a.host.send_all()
    for _ in range(20):
        ext.give(b.host, request)
    responses = [p for p in b.host.send_all() if is_response(p)]
    assert len(responses) == 4
    assert b.stats()["duplicates"] == 19
    ext.give(b.host, request)  # now all are sent: they may be lost
    assert len([p for p in b.host.send_all() if is_response(p)]) == 4
    for response in responses:
        ext.give(a.host, response)
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


def test_the_rtt_leaves_out_how_long_the_answer_was_queued(ext: World) -> None:
    a, b = ext.extended_pair()
    a.read(8, b.host.memory(8))
    (request,) = a.host.send_all()
    ext.advance(30 * US)
    ext.give(b.host, request)
    ext.advance(500 * US)
    (response,) = (p for p in b.host.send_all() if is_response(p))
    assert response.xdh()["held_ns"] == 500 * US
    assert response.xdh()["ts_ns"] == request.xdh()["ts_ns"]
    ext.advance(10 * US)
    ext.give(a.host, response)
    assert lib.dp_qp_flow(a.qp).srtt_ns == 40 * US


@pytest.mark.parametrize("kind", ["EXT_FETCH_ADD", "EXT_ATOMIC_ACK"])
def test_atomics_alone_know_their_rtt(ext: World, kind: str) -> None:
    """Their answers have no time stamp, but acknowledgements have: a loss costs a probe."""
    a, b = ext.extended_pair()
    counter = b.host.memory(8)
    a.faa(counter, 1)
    assert ext.run(Channel())
    assert a.poll() == [ok("FETCH_ADD")]
    lost = Watch(lambda packet: packet.name == kind, {0})
    a.faa(counter, 1)
    begin = ext.now
    assert ext.run(Channel(lose=lost), until=lambda: len(a.poll()) == 1)
    assert ext.now - begin < MS
    assert ext.run()
    assert bytes(counter) == (2).to_bytes(8, "little")
    assert a.stats()["timeouts"] == 0
