# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: negotiation, selective repeat, placement, loss detection, pacing."""

from __future__ import annotations

import itertools

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.algorithms import constant_cc
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
    packets_of,
    pattern,
)

pytestmark = pytest.mark.san

DATA = 0xC0
TICK_NS = 1 << 10  # how late a timer may be


def is_data(packet: Packet) -> bool:
    return packet.opcode >= DATA and bool(packet.mask & lib.DP_IS_REQUEST)


# ---- negotiation --------------------------------------------------------------------


def test_hello_and_its_reply(ext: World) -> None:
    a, b = ext.pair()
    ext.expire(a)
    (hello,) = a.host.send_all()
    assert hello.name == "HELLO"
    assert hello.data[12:28] == bytes.fromhex(f"08 020000 00000000 {a.qpn:08x} 0400 0000")
    ext.give(b.host, hello)
    replies = b.host.send_all()
    assert "HELLO_REPLY" in [p.name for p in replies]
    for reply in replies:
        ext.give(a.host, reply)
    ext.settle()
    a.write(b"x", b.host.memory(8))
    ext.says(a, "EXT_WRITE_ONLY 100 ack")
    assert a.extended


def test_silence_means_standard_mode(make_world: MakeWorld) -> None:
    """B drops the offers as unknown opcodes; data flows meanwhile, and the offers end."""
    world = make_world(extended=True)
    world.b_host = Host(world, "b", world.b_host.addr, extended=0, seed=2)
    world.hosts = (world.a_host, world.b_host)
    a, b = world.pair()
    for _ in range(3):
        a.write(pattern(3000), b.host.memory(3000))
    seen: list[str] = []

    def watch(host: Host, packet: Packet) -> bool:
        seen.append(packet.name)
        return False

    assert world.run(Channel(lose=watch), limit_ns=100 * S)
    assert a.poll() == [ok("RDMA_WRITE")] * 3
    assert not a.extended
    assert not b.extended
    assert 2 <= seen.count("HELLO") <= 20
    assert not any(name.startswith("EXT_") for name in seen)


def test_lost_offers_are_made_again(ext: World) -> None:
    a, b = ext.pair()
    lost = itertools.count()
    channel = Channel(lose=lambda _, p: p.name.startswith("HELLO") and next(lost) < 5)
    assert ext.run(channel, until=lambda: a.extended and b.extended, limit_ns=10 * S)
    for qp, peer in ((a, b), (b, a)):
        qp.write(b"x", peer.host.memory(8))
    assert ext.run(limit_ns=10 * S)
    assert a.extended
    assert b.extended


@pytest.mark.parametrize(
    "hello",
    [
        "01 000800 00000000 {qpn} 0400 0000 00000000",
        "03 000800 00000000 00000001 0400 0000 00000000",
        "03 000010 00000000 {qpn} 0400 0000 00000000",
    ],
)
def test_offers_that_make_no_sense_are_ignored(ext: World, hello: str) -> None:
    """Version 1, another queue pair's number, a window of 16."""
    a, b = ext.pair()
    ext.advance(US)
    a.host.send_all()
    body = bytes.fromhex(hello.format(qpn=f"{a.qpn:08x}"))
    ext.give(b.host, forge.packet(a, 0xE0, 0, body))
    names = [p.name for p in b.host.send_all()]
    assert "HELLO_REPLY" not in names
    b.write(b"x", a.host.memory(8))
    assert [p.name for p in b.host.send_all() if p.name != "HELLO"] == ["WRITE_ONLY"]


def test_what_was_under_way_ends_in_standard_mode(ext: World) -> None:
    a, b = ext.pair()
    target = b.host.memory(5000)
    data = pattern(5000)
    a.write(data, target)
    assert ext.run()
    a.write(data[::-1], target)
    (first, *_) = a.host.send_all()
    assert first.name == "EXT_WRITE_FIRST"
    assert a.poll() == [ok("RDMA_WRITE")]


@pytest.mark.parametrize("fence", [False, True])
def test_a_long_read_goes_on_in_extended_mode(ext: World, fence: bool) -> None:
    a, b = ext.pair(mtu=256, rd_atomic=1)
    source = b.host.memory(pattern(100 * 256))
    into = a.read(100 * 256, source, fence=fence)
    names = {p.name for p in a.host.send_all()}
    assert names == {"READ_REQUEST"}
    assert ext.run(limit_ns=1 * S)
    assert a.extended
    assert any(p.name == "EXT_READ_REQUEST" for _, _, p in ext.log)
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


# ---- order ---------------------------------------------------------------------------


def test_packets_are_placed_in_whatever_order_they_come(ext: World) -> None:
    a, b = ext.extended_pair()
    data = pattern(4096)
    target = b.host.memory(4096)
    a.write(data, target)
    packets = a.host.send_all()
    assert [p.psn for p in packets] == [100, 101, 102, 103]
    ext.give(b.host, packets[2])
    assert bytes(target) == bytes(2048) + data[2048:3072] + bytes(1024)
    (ack,) = b.host.send_all()
    assert (ack.name, ack.psn, ack.sacked()) == ("EXT_ACK", 99, {102})
    ext.give(b.host, packets[0])
    ext.give(b.host, packets[1])
    assert bytes(target) == data[:3072] + bytes(1024)
    ext.give(b.host, packets[3])
    assert bytes(target) == data
    for ack in b.host.send_all():
        ext.give(a.host, ack)
    assert a.poll() == [ok("RDMA_WRITE")]


@pytest.mark.parametrize("operation", ["write", "send"])
def test_the_last_bytes_appear_last(ext: World, operation: str) -> None:
    a, b = ext.extended_pair()
    data = pattern(3000)
    into = b.recv(3000)
    if operation == "write":
        a.write(data, into)
    else:
        a.send(data)
    packets = a.host.send_all()
    for order in (2, 1):
        ext.give(b.host, packets[order])
        assert bytes(into)[-1:] == b"\0" != data[-1:]
        assert b.poll_recv() == []
    ext.give(b.host, packets[0])
    assert bytes(into) == data
    assert b.poll_recv() == ([ok("RECV", byte_len=3000)] if operation == "send" else [])


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_completions_stay_in_order(ext: World, order: tuple[int, ...]) -> None:
    a, b = ext.extended_pair()
    into = [b.recv(16, wr_id=i) for i in range(4)]
    for i in range(4):
        a.send(bytes([65 + i]) * 4)
    packets = a.host.send_all()
    for i in order:
        ext.give(b.host, packets[i])
    assert b.poll_recv() == [ok("RECV", wr_id=i, byte_len=4) for i in range(4)]
    assert [bytes(m)[:4] for m in into] == [bytes([65 + i]) * 4 for i in range(4)]
    assert ext.run()
    assert a.poll() == [ok("SEND")] * 4


def test_reads_and_atomics_run_in_order_too(ext: World) -> None:
    a, b = ext.extended_pair()
    memory = b.host.memory(bytes(64))
    a.write(b"\x05" + bytes(7), memory)
    before = a.faa(memory, 1)
    content = a.read(8, memory)
    packets = a.host.send_all()
    for packet in reversed(packets):
        ext.give(b.host, packet)
    ext.settle()
    assert a.poll() == [ok("RDMA_WRITE"), ok("FETCH_ADD"), ok("RDMA_READ")]
    assert bytes(before)[0] == 5
    assert bytes(content)[0] == 6


def test_duplicates_are_counted_and_executed_once(ext: World) -> None:
    a, b = ext.extended_pair()
    memory = b.host.memory(8)
    before = a.faa(memory, 1)
    b.recv(8)
    a.send(b"x")
    for packet in a.host.send_all():
        for _ in range(3):
            ext.give(b.host, packet)
    ext.settle()
    assert a.poll() == [ok("FETCH_ADD"), ok("SEND")]
    assert bytes(memory)[0] == 1
    assert bytes(before)[0] == 0
    assert len(b.poll_recv()) == 1
    assert b.stats()["duplicates"] >= 2


# ---- loss ----------------------------------------------------------------------------


def lose_nth(numbers: set[int]) -> Channel:
    """Loses the n-th data packets that A sends, counted over the whole run."""
    count = itertools.count()
    return Channel(
        lose=lambda host, p: host.name == "a" and is_data(p) and next(count) in numbers,
        rate_bps=10e9,
    )


def test_a_gap_is_repaired_by_sending_only_what_is_missing(ext: World) -> None:
    a, b = ext.extended_pair()
    data = pattern(40 * 1024)
    target = b.host.memory(len(data))
    a.write(data, target)
    assert ext.run(lose_nth({5, 17}))
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == data
    stats = a.stats()
    assert (stats["retransmits"], stats["fast_retransmits"], stats["timeouts"]) == (2, 2, 0)
    assert b.stats()["out_of_order"] > 0


@pytest.mark.parametrize("late_us", [8, 12])
def test_a_packet_counts_as_lost_a_quarter_of_the_rtt_after_it_was_overtaken(
    ext: World, late_us: int
) -> None:
    """RFC 8985's reordering window: little disorder costs nothing."""
    a, b = ext.extended_pair()
    target = b.host.memory(4096)
    for _ in range(3):  # the RTT is 40 us
        a.write(b"x", target)
        assert ext.run(Channel(latency_ns=20 * US))
    a.poll()
    a.write(pattern(4096), target)
    late, *others = a.host.send_all()
    ext.advance(20 * US)
    for packet in others:
        ext.give(b.host, packet)
    acks = b.host.send_all()
    ext.advance(20 * US)
    for ack in acks:
        ext.give(a.host, ack)
    ext.silent(a)
    ext.advance(late_us * US)
    ext.says(a, *(["EXT_WRITE_FIRST 103"] if late_us > 10 else []))
    ext.give(b.host, late)
    ext.settle()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert a.stats()["fast_retransmits"] == (late_us > 10)


def test_an_answer_to_the_first_copy_is_not_taken_for_one_to_the_second(ext: World) -> None:
    """The queue has become longer than the lowest RTT, and one packet was late: had its second
    copy been answered already, all that was sent before that copy would be lost."""
    a, b = ext.extended_pair()
    data = pattern(100 * 1024)
    target = b.host.memory(len(data))
    for _ in range(3):  # the lowest RTT is 40 us
        a.write(b"x", target)
        assert ext.run(Channel(latency_ns=20 * US))
    a.poll()

    def arrive(packets: list[Packet]) -> None:
        for packet in packets:
            ext.give(b.host, packet)
        acks = b.host.send_all()
        assert acks
        ext.advance(20 * US)
        for ack in acks:
            ext.give(a.host, ack)

    a.write(data, target)
    packets = a.host.send_all()
    ext.advance(20 * US)
    arrive(packets[:10] + packets[11:50])
    ext.advance(20 * US)
    (copy,) = a.host.send_all()
    ext.advance(60 * US)
    arrive([packets[10]])
    ext.advance(20 * US)
    ext.silent(a)
    arrive([*packets[50:], copy])
    assert ext.run(Channel(latency_ns=20 * US))
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == data
    assert (a.stats()["retransmits"], a.stats()["spurious"]) == (1, 1)


MESSAGES = 3
LENGTH = 4 * 1024
PACKETS = MESSAGES * packets_of(LENGTH, 1024)


def recover(ext: World, lost: set[int]) -> None:
    a, b = ext.extended_pair()
    datas = [pattern(LENGTH, seed=i) for i in range(MESSAGES)]
    into = [b.recv(LENGTH) for _ in range(MESSAGES)]
    for data in datas:
        a.send(data)
    assert ext.run(lose_nth(lost), limit_ns=5 * S)
    assert a.poll() == [ok("SEND")] * MESSAGES
    assert [bytes(m) for m in into] == datas
    assert len(b.poll_recv()) == MESSAGES


@pytest.mark.parametrize("lost", range(PACKETS))
def test_any_single_loss(ext: World, lost: int) -> None:
    recover(ext, {lost})


@pytest.mark.parametrize("first", range(PACKETS))
def test_any_double_loss(make_world: MakeWorld, first: int) -> None:
    """The second one may be the retransmission of the first."""
    for second in range(first + 1, PACKETS + 2):
        recover(make_world(extended=True), {first, second})


def test_a_lost_tail_is_probed_before_the_time_out(ext: World) -> None:
    a, b = ext.extended_pair()
    target = b.host.memory(64)
    for _ in range(5):  # so that the RTT is known
        a.write(b"x", target)
        assert ext.run()
    begin = ext.now
    a.write(b"y", target)
    assert ext.run(lose_nth({0}), until=lambda: bytes(target)[:1] == b"y")
    assert a.stats()["probes"] == 1
    assert a.stats()["timeouts"] == 0
    assert ext.now - begin < 4 * MS


@pytest.mark.parametrize(("packet", "probes"), [(64, 3), (256, 3), (257, 1)])
def test_a_lost_probe_is_repeated_until_the_time_out(ext: World, packet: int, probes: int) -> None:
    """Each time after twice as long; once only if it is more than a quarter of the window."""
    a, b = ext.extended_pair()
    target = b.host.memory(packet)
    for _ in range(100):  # so that the RTT is known
        a.write(b"x", target)
        assert ext.run(Channel(latency_ns=100 * US))
    lose_probably(ext, a, 100 * US)
    before = a.stats()["probes"]
    algo, _keep = constant_cc(1024, 1e9)
    assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0
    a.write(pattern(packet), target)
    sent = [ext.now] * len(a.host.send_all())
    while not a.stats()["timeouts"]:
        ext.expire(a)
        sent += [ext.now] * len(a.host.send_all())  # all are lost
    assert a.stats()["probes"] - before == probes
    assert sent[-1] - sent[0] == pytest.approx(4 * MS, rel=0.01), "the time-out"
    first = 2 * 200 * US + 100 * US
    waits = [after - before for before, after in itertools.pairwise(sent[:-1])]
    assert waits == pytest.approx([first << nth for nth in range(probes)], rel=0.05)


def first_probe(world: World, a: QP, *, lost: bool) -> int:
    """How long the probe of a single message waits, which is lost or only late."""
    a.write(b"x", a.peer.host.memory(1))
    (packet,) = a.host.send_all()
    begin, probes = world.now, a.stats()["probes"]
    copies: list[Packet] = []
    while not copies:
        world.expire(a)
        copies = a.host.send_all()
    waited = world.now - begin
    assert a.stats()["probes"] == probes + 1
    for arrives in copies if lost else [packet, *copies]:
        world.give(a.peer.host, arrives)
        assert world.run(Channel(latency_ns=50 * US))
    return waited


def test_probes_in_vain_come_later(ext: World) -> None:
    """Each waits for twice as long as the one before; those that are needed come sooner again, and
    another QP of the host begins with what this one has learnt."""
    a, _ = ext.extended_pair()
    other, _ = ext.extended_pair()
    for qp in (a, other):
        for _ in range(20):  # so that the RTT is known
            qp.write(b"x", qp.peer.host.memory(1))
            assert ext.run(Channel(latency_ns=50 * US))
    needed = [first_probe(ext, a, lost=True) for _ in range(3)]
    assert needed[0] > 1.5 * needed[1]
    vain = [first_probe(ext, a, lost=False) for _ in range(3)]
    assert vain[0] == pytest.approx(needed[2], rel=0.05)
    assert vain[1] > 1.5 * vain[0]
    assert vain[2] > 1.5 * vain[1]
    assert first_probe(ext, other, lost=False) > 1.5 * needed[0]


@pytest.mark.parametrize("lost", [set(), {30}], ids=["nothing", "one"])
def test_a_host_that_stands_still_costs_a_packet_for_each_time_out(
    ext: World, lost: set[int]
) -> None:
    """The answers to what was sent before come late, and are told from those to the copies."""
    a, b = ext.extended_pair()
    data = pattern(80 * 1024)
    target = b.host.memory(len(data))
    for _ in range(3):  # so that the RTT is known
        a.write(b"x", target)
        assert ext.run(Channel(latency_ns=20 * US))
    a.poll()
    a.write(data, target)
    packets = a.host.send_all()
    assert len(packets) == 80
    for _ in range(5):
        ext.advance(3 * MS)
        packets += a.host.send_all()
    stats = a.stats()
    assert stats["timeouts"] == 2
    copies = stats["timeouts"] + stats["probes"]
    assert len(packets) == 80 + copies

    for first in range(0, len(packets), 20):
        for number, packet in enumerate(packets[first : first + 20], start=first):
            if number not in lost:
                ext.give(b.host, packet)
        ext.advance(20 * US)
        for ack in b.host.send_all():
            ext.give(a.host, ack)
        ext.advance(20 * US)
    assert ext.run(Channel(latency_ns=20 * US))
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == data
    assert a.stats()["retransmits"] == copies + len(lost)


def test_a_window_below_what_is_in_flight_does_not_hold_back_a_time_out(ext: World) -> None:
    """All is lost, and the algorithm has made the window small: a probe and a copy for each
    time-out leave nevertheless."""
    a, b = ext.extended_pair()
    target = b.host.memory(8 * 1024)
    for _ in range(3):  # so that the RTT is known
        a.write(b"x", target)
        assert ext.run(Channel(latency_ns=20 * US))
    a.poll()
    before = a.stats()
    a.write(pattern(8 * 1024), target)
    assert len(a.host.send_all()) == 8
    algo, keep = constant_cc(1024, 1e9)
    assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0
    copies = 0
    for _ in range(5):
        ext.advance(3 * MS)
        copies += len(a.host.send_all())
    stats = {name: value - before[name] for name, value in a.stats().items()}
    assert (stats["probes"], stats["timeouts"]) == (1, 2)
    assert copies == 3

    assert ext.run(Channel(latency_ns=20 * US))
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == pattern(8 * 1024)
    del keep


def test_lost_acknowledgements_do_no_harm(ext: World) -> None:
    a, b = ext.extended_pair()
    data = pattern(200 * 1024)
    target = b.host.memory(len(data))
    a.write(data, target)
    count = itertools.count()
    channel = Channel(lose=lambda host, p: host.name == "b" and next(count) % 2 == 0)
    assert ext.run(channel)
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == data


@pytest.mark.parametrize("lost", range(8))
def test_any_lost_read_response(ext: World, lost: int) -> None:
    a, b = ext.extended_pair()
    source = b.host.memory(pattern(6 * 1024))
    into = a.read(6 * 1024, source)
    count = itertools.count()
    channel = Channel(
        lose=lambda host, p: (
            host.name == "b" and bool(p.mask & lib.DP_IS_READ_RESP) and next(count) == lost
        )
    )
    assert ext.run(channel)
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


def test_a_dead_peer_ends_in_retry_exceeded(ext: World) -> None:
    a, b = ext.extended_pair()
    for i in range(3):
        a.write(pattern(5000), b.host.memory(5000), wr_id=i)
    a.recv(8, wr_id=9)
    begin = ext.now
    assert ext.run(Channel(lose=lambda *_: True), limit_ns=1000 * S)
    assert a.poll() == [
        failed("RETRY_EXC_ERR", wr_id=0),
        failed("WR_FLUSH_ERR", wr_id=1),
        failed("WR_FLUSH_ERR", wr_id=2),
    ]
    assert a.poll_recv() == [failed("WR_FLUSH_ERR", wr_id=9)]
    assert a.state == "ERR"
    assert ext.now - begin > 10 * MS


def test_receiver_not_ready(ext: World) -> None:
    a, b = ext.extended_pair(min_rnr_timer=1)
    a.send(b"knock")
    a.write(b"x", b.host.memory(8))
    ext.settle()
    assert a.poll() == []
    assert b.stats()["rnr_tx"] >= 1
    into = b.recv(8)
    assert ext.run()
    assert a.poll() == [ok("SEND"), ok("RDMA_WRITE")]
    assert bytes(into)[:5] == b"knock"


def test_rnr_retries_end(ext: World) -> None:
    a, _ = ext.extended_pair(min_rnr_timer=1, rnr_retry=2)
    a.send(b"knock")
    assert ext.run()
    assert a.poll() == [failed("RNR_RETRY_EXC_ERR")]


# ---- window, pacing, marks -------------------------------------------------------------


@pytest.mark.parametrize("window", [64, 256, 2048])
def test_the_window_is_what_both_can_track(make_world: MakeWorld, window: int) -> None:
    ext = make_world(extended=True, window_psns=window)
    a, b = ext.extended_pair(mtu=256)
    length = 3000 * 256
    a.write(pattern(length), b.host.memory(length))
    assert len(a.host.send_all()) == window


def test_the_smaller_window_of_both_is_used(make_world: MakeWorld) -> None:
    world = make_world(extended=True, window_psns=1024)
    old = world.b_host
    world.b_host = Host(world, "b", old.addr, extended=1, seed=2, window_psns=64)
    world.hosts = (world.a_host, world.b_host)
    a, b = world.extended_pair(mtu=256)
    a.write(pattern(500 * 256), b.host.memory(500 * 256))
    assert len(a.host.send_all()) == 64
    old.close()


@pytest.mark.parametrize("rate_bps", [1e8, 1e9, 25e9])
def test_pacing_obeys_its_rate(ext: World, rate_bps: float) -> None:
    a, b = ext.extended_pair()
    algo, keep = constant_cc(1e9, rate_bps)
    assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0
    length = 400 * 1024
    begin = ext.now
    a.write(pattern(length), b.host.memory(length))
    sent: list[int] = []

    def watch(host: Host, packet: Packet) -> bool:
        if host is a.host and is_data(packet):
            sent.append(ext.now)
        return False

    assert ext.run(Channel(latency_ns=1000, lose=watch))
    assert a.poll() == [ok("RDMA_WRITE")]
    ideal = (length - 1024) * 8e9 / rate_bps
    assert 0.95 * ideal - 20 * US <= sent[-1] - begin <= 1.05 * ideal + 20 * US
    del keep


def test_what_was_told_late_of_its_turn_makes_up_for_it(ext: World) -> None:
    """1024 bytes per us: late by 100 us are 100 packets, idle for 100 us those of 10 us."""
    a, b = ext.extended_pair()
    a.write(pattern(1024), b.host.memory(1024))
    assert ext.run(Channel(latency_ns=500 * US))
    algo, keep = constant_cc(1e9, 1024 * 8e6)
    assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0

    def sent_after(wait_us: int) -> int:
        ext.now += wait_us * US
        a.host.tick()
        return sum(map(is_data, a.host.send_all()))

    ext.now += 100 * US
    a.write(pattern(1000 * 1024), b.host.memory(1000 * 1024))
    assert sent_after(0) == pytest.approx(10, abs=2)
    assert sent_after(100) == pytest.approx(100, abs=2)
    most_us = lib.dp_qp_flow(a.qp).srtt_ns / 2 / US  # that is made up for
    assert sent_after(1000) == pytest.approx(most_us + 10, abs=2)
    assert sent_after(20) == pytest.approx(20, abs=2)
    del keep


def test_lateness_and_bursts_are_counted_against_the_plan(ext: World) -> None:
    """1024 bytes per us: a packet that is due is sent 100 us late, and all that is due with it."""
    a, b = ext.extended_pair()
    a.write(pattern(1024), b.host.memory(1024))
    assert ext.run(Channel(latency_ns=500 * US))
    assert a.stats()["pacing_waits"] == 0
    assert a.stats()["pacing_burst_max"] == 0
    algo, keep = constant_cc(1e9, 1024 * 8e6)
    assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0

    def send() -> int:
        a.host.tick()
        return sum(map(is_data, a.host.send_all()))

    ext.now += 100 * US
    a.write(pattern(1000 * 1024), b.host.memory(1000 * 1024))
    credit = send()
    assert (a.stats()["pacing_waits"], a.stats()["pacing_burst_max"]) == (0, credit)
    for waits in range(1, 21):
        ext.now = a.host.deadline
        send()
        assert a.stats()["pacing_waits"] == waits
    assert a.stats()["pacing_late_ns"] <= 20 * 2 * TICK_NS
    assert a.stats()["pacing_late_max_ns"] <= 2 * TICK_NS
    before = a.stats()["pacing_late_ns"]
    ext.now += 100 * US
    burst = send()
    assert burst > credit
    assert a.stats()["pacing_burst_max"] == burst
    assert a.stats()["pacing_waits"] == 21
    assert a.stats()["pacing_late_max_ns"] == pytest.approx(100 * US, abs=2 * US)
    assert a.stats()["pacing_late_ns"] == before + a.stats()["pacing_late_max_ns"]
    del keep


def test_what_waits_for_its_window_is_not_late(ext: World) -> None:
    a, b = ext.extended_pair()
    a.write(pattern(1024), b.host.memory(1024))
    assert ext.run(Channel(latency_ns=500 * US))
    algo, keep = constant_cc(4 * 1024, 1024 * 8e6)
    assert lib.dp_qp_set_cc(a.qp, algo, ext.now) == 0
    ext.now += 100 * US
    a.write(pattern(100 * 1024), b.host.memory(100 * 1024))
    assert ext.run(Channel(latency_ns=500 * US))
    assert a.stats()["pacing_late_max_ns"] <= 2 * TICK_NS
    assert a.stats()["pacing_burst_max"] <= 4
    del keep


@pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])
def test_the_congestion_window_limits_what_is_in_flight(
    make_world: MakeWorld, extended: bool
) -> None:
    world = make_world(extended=extended)
    a, b = world.extended_pair() if extended else world.pair()
    algo, keep = constant_cc(10 * 1024, 0)
    assert lib.dp_qp_set_cc(a.qp, algo, world.now) == 0
    a.write(pattern(100 * 1024), b.host.memory(100 * 1024))
    assert len(a.host.send_all()) == 10
    del keep


@pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])
def test_a_window_below_one_packet_still_moves(make_world: MakeWorld, extended: bool) -> None:
    world = make_world(extended=extended)
    a, b = world.extended_pair() if extended else world.pair()
    algo, keep = constant_cc(100, 0)
    assert lib.dp_qp_set_cc(a.qp, algo, world.now) == 0
    a.write(pattern(20 * 1024), b.host.memory(20 * 1024))
    assert world.run(limit_ns=100 * S)
    assert a.poll() == [ok("RDMA_WRITE")]
    del keep


def test_congestion_marks_are_echoed(make_world: MakeWorld) -> None:
    ext = make_world(extended=True, ecn=1)
    a, b = ext.extended_pair()
    a.write(pattern(4096), b.host.memory(4096))
    packets = a.host.send_all()
    assert all(p.tos & 3 == lib.DP_ECN_ECT0 for p in packets)
    for i, packet in enumerate(packets):
        ext.give(b.host, packet.marked() if i % 2 else packet)
    *_, ack = b.host.send_all()
    assert ack.xah()["marked"] == 2
    assert b.stats()["ecn_marked"] == 2


def test_timestamps_are_echoed(ext: World) -> None:
    a, b = ext.extended_pair()
    a.write(b"x", b.host.memory(8))
    sent_at = ext.now
    (packet,) = a.host.send_all()
    assert int.from_bytes(packet.data[12:16], "big") == sent_at % 2**32
    ext.advance(30 * US)
    ext.give(b.host, packet)
    ext.advance(20 * US)
    (ack,) = b.host.send_all()
    assert ack.xah()["ts_echo_ns"] == sent_at % 2**32
    assert ack.xah()["ack_delay_ns"] == 20 * US
    ext.advance(10 * US)
    ext.give(a.host, ack)
    assert lib.dp_qp_flow(a.qp).srtt_ns == 40 * US


def test_every_write_packet_says_where_it_belongs(ext: World) -> None:
    a, b = ext.extended_pair()
    target = b.host.memory(3000)
    a.write(pattern(3000), target)
    for i, packet in enumerate(a.host.send_all()):
        reth = packet.data[32:48]
        assert int.from_bytes(reth[:8], "big") == target.addr + 1024 * i
        assert int.from_bytes(reth[12:], "big") == 3000
        assert int.from_bytes(packet.data[20:24], "big") == 1024 * i
