# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Standard mode without trouble: every RC operation, packet by packet."""

from __future__ import annotations

import socket
import struct

import pytest

from datapath.native import lib
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import (
    ALL_ACCESS,
    QP,
    Channel,
    Completion,
    Memory,
    World,
    failed,
    ok,
    pattern,
)

pytestmark = pytest.mark.san

IMM = socket.htonl(0x01020304)


def u64(memory: Memory) -> int:
    return int.from_bytes(bytes(memory), "little")


def counter(qp: QP, value: int) -> Memory:
    return qp.host.memory(value.to_bytes(8, "little"))


# ---- SEND -------------------------------------------------------------------


def test_send_of_one_packet(world: World) -> None:
    a, b = world.pair()
    into = b.recv(100)
    a.send(b"hello", wr_id=7)
    world.says(a, "SEND_ONLY 100 ack len=5")
    assert b.poll_recv() == [ok("RECV", byte_len=5)]
    assert bytes(into)[:5] == b"hello"
    assert bytes(into)[5:] == bytes(95)
    assert a.poll() == []
    world.says(b, "ACK 100 msn=1")
    assert a.poll() == [ok("SEND", wr_id=7)]
    world.silent()


def test_send_of_several_packets(world: World) -> None:
    a, b = world.pair()
    data = pattern(2500)
    into = b.recv(4096)
    a.send(data)
    world.says(
        a, "SEND_FIRST 100 len=1024", "SEND_MIDDLE 101 len=1024", "SEND_LAST 102 len=452 ack"
    )
    world.says(b, "ACK 102 msn=1")
    assert b.poll_recv() == [ok("RECV", byte_len=2500)]
    assert bytes(into)[:2500] == data
    assert a.poll() == [ok("SEND")]


@pytest.mark.parametrize(
    ("length", "last"),
    [(100, "SEND_ONLY_IMM 100 ack"), (1500, "SEND_LAST_IMM 101 ack")],
)
def test_send_with_immediate(world: World, length: int, last: str) -> None:
    a, b = world.pair()
    into = b.recv(2000)
    data = pattern(length)
    a.send(data, imm=IMM)
    world.says(a, *(["SEND_FIRST 100"] if length > 1024 else []), last)
    world.settle()
    assert b.poll_recv() == [Completion("RECV", byte_len=length, imm=IMM)]
    assert bytes(into)[:length] == data


@pytest.mark.parametrize(
    ("length", "last"),
    [(100, "SEND_ONLY_INV 100 ack"), (1500, "SEND_LAST_INV 101 ack")],
)
def test_send_with_invalidate(world: World, length: int, last: str) -> None:
    a, b = world.pair()
    shared = b.host.memory(64, access=ALL_ACCESS | lib.DP_ACCESS_INVALIDATE)
    b.recv(2000)
    a.send(pattern(length), inv=shared.key)
    world.says(a, *(["SEND_FIRST 100"] if length > 1024 else []), last)
    world.settle()
    assert b.poll_recv() == [ok("RECV", byte_len=length, inv=shared.key)]
    a.write(b"x", shared)
    world.settle()
    assert a.poll()[-1] == failed("REM_ACCESS_ERR")
    assert bytes(shared) == bytes(64)


def test_immediate_is_on_the_wire_as_given(world: World) -> None:
    a, b = world.pair()
    b.recv(0)
    a.send(b"", imm=IMM)
    (packet,) = world.says(a, "SEND_ONLY_IMM 100 len=0")
    assert packet.data[12:16] == bytes([1, 2, 3, 4])


def test_solicited_event_bit(world: World) -> None:
    a, b = world.pair()
    b.recv(4096)
    b.recv(4096)
    a.send(pattern(1500), solicited=True)
    a.send(b"x", solicited=False)
    first, last, other = world.says(a, "SEND_FIRST 100", "SEND_LAST 101 se", "SEND_ONLY 102")
    assert "se" not in first.words()
    assert "se" not in other.words()
    assert last.data[1] & 0x80


# ---- WRITE ------------------------------------------------------------------


def test_write_of_one_packet(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(100)
    a.write(b"hello", (target.addr + 10, target.key))
    world.says(a, "WRITE_ONLY 100 ack len=5")
    assert bytes(target) == bytes(10) + b"hello" + bytes(85)
    world.says(b, "ACK 100 msn=1")
    assert a.poll() == [ok("RDMA_WRITE")]
    assert b.poll_recv() == []


def test_write_of_several_packets_carries_one_reth(world: World) -> None:
    a, b = world.pair()
    data = pattern(3 * 1024)
    target = b.host.memory(len(data))
    a.write(data, target)
    first, *_ = world.says(a, "WRITE_FIRST 100", "WRITE_MIDDLE 101", "WRITE_LAST 102 ack len=1024")
    assert struct.unpack("!QII", first.data[12:28]) == (target.addr, target.key, len(data))
    assert bytes(target) == data
    world.says(b, "ACK 102")
    assert a.poll() == [ok("RDMA_WRITE")]


@pytest.mark.parametrize("length", [5, 2000])
def test_write_with_immediate_consumes_a_receive(world: World, length: int) -> None:
    a, b = world.pair()
    target = b.host.memory(length)
    unused = b.recv(10, wr_id=5)
    data = pattern(length)
    a.write(data, target, imm=IMM)
    last = "WRITE_ONLY_IMM 100 ack" if length == 5 else "WRITE_LAST_IMM 101 ack"
    world.says(a, *(["WRITE_FIRST 100"] if length > 1024 else []), last)
    expected = Completion("RECV_RDMA_WITH_IMM", wr_id=5, byte_len=length, imm=IMM)
    assert b.poll_recv() == [expected]
    assert bytes(target) == data
    assert bytes(unused) == bytes(10)


# ---- READ -------------------------------------------------------------------


def test_read_of_one_packet(world: World) -> None:
    a, b = world.pair()
    source = b.host.memory(pattern(700))
    into = a.read(700, source)
    (request,) = world.says(a, "READ_REQUEST 100")
    assert struct.unpack("!QII", request.data[12:28]) == (source.addr, source.key, 700)
    world.says(b, "READ_RESP_ONLY 100 len=700 msn=1")
    assert a.poll() == [ok("RDMA_READ", byte_len=700)]
    assert bytes(into) == bytes(source)
    world.silent()


def test_read_of_several_packets(world: World) -> None:
    a, b = world.pair()
    source = b.host.memory(pattern(4000))
    into = a.read(4000, source)
    a.write(b"after", source)
    world.says(a, "READ_REQUEST 100", "WRITE_ONLY 104 ack")
    responses = world.says(
        b,
        "READ_RESP_FIRST 100 len=1024 msn=2",
        "READ_RESP_MIDDLE 101 len=1024",
        "READ_RESP_MIDDLE 102 len=1024",
        "READ_RESP_LAST 103 len=928 msn=2",
        "ACK 104 msn=2",
    )
    assert [len(p.data) for p in responses[:2]] == [12 + 4 + 1024 + 4, 12 + 1024 + 4]
    assert a.poll() == [ok("RDMA_READ"), ok("RDMA_WRITE")]
    assert bytes(into)[5:] == bytes(source)[5:]


def test_outstanding_reads_are_limited(world: World) -> None:
    a, b = world.pair(rd_atomic=2)
    source = b.host.memory(pattern(100))
    for _ in range(3):
        a.read(100, source)
    world.says(a, "READ_REQUEST 100", "READ_REQUEST 101")
    world.says(b, "READ_RESP_ONLY 100", "READ_RESP_ONLY 101")
    world.says(a, "READ_REQUEST 102")
    world.settle()
    assert a.poll() == [ok("RDMA_READ")] * 3


def test_a_long_read_is_asked_for_a_window_at_a_time(world: World) -> None:
    """Each time by a request that stands for itself, and counts as one until it is answered."""
    a, b = world.pair(mtu=256, rd_atomic=1)
    size = 300 * 256 - 10
    source = b.host.memory(pattern(size))
    into = a.read(size, source)
    a.write(b"after", b.host.memory(8))
    offset = 0
    for psn, psns in ((100, 128), (228, 128), (356, 44)):
        request, *behind = a.host.send_all()
        length = min(psns * 256, size - offset)
        asked = struct.unpack("!QII", request.data[12:28])
        assert (request.name, request.psn) == ("READ_REQUEST", psn)
        assert asked == (source.addr + offset, source.key, length)
        assert [p.name for p in behind] == (["WRITE_ONLY"] if psns == 44 else [])
        for packet in (request, *behind):
            world.give(b.host, packet)
        answers = b.host.send_all()
        assert [p.psn for p in answers[:psns]] == list(range(psn, psn + psns))
        for answer in answers[:-1]:
            world.give(a.host, answer)
            world.silent(a)
        world.give(a.host, answers[-1])
        offset += length
    assert a.poll() == [ok("RDMA_READ"), ok("RDMA_WRITE")]
    assert bytes(into) == bytes(source)


# ---- atomics ----------------------------------------------------------------


def test_fetch_and_add(world: World) -> None:
    a, b = world.pair()
    target = counter(b, 2**64 - 1)
    before = a.faa(target, 3)
    (request,) = world.says(a, "FETCH_ADD 100")
    assert struct.unpack("!QIQ", request.data[12:32]) == (target.addr, target.key, 3)
    assert u64(target) == 2
    (answer,) = world.says(b, "ATOMIC_ACK 100 msn=1")
    assert answer.data[16:24] == b"\xff" * 8
    assert a.poll() == [ok("FETCH_ADD")]
    assert u64(before) == 2**64 - 1


@pytest.mark.parametrize(("compare", "after"), [(5, 9), (6, 5)])
def test_compare_and_swap(world: World, compare: int, after: int) -> None:
    a, b = world.pair()
    target = counter(b, 5)
    before = a.cas(target, compare, 9)
    (request,) = world.says(a, "COMPARE_SWAP 100")
    fields = struct.unpack("!QIQQ", request.data[12:40])
    assert fields == (target.addr, target.key, 9, compare)
    world.says(b, "ATOMIC_ACK 100")
    assert a.poll() == [ok("COMP_SWAP")]
    assert (u64(before), u64(target)) == (5, after)


# ---- lengths -------------------------------------------------------------------


def test_zero_bytes_in_every_operation(world: World) -> None:
    a, b = world.pair()
    b.recv(0)
    b.recv(0)
    b.recv(16)
    a.send(b"")
    a.write(b"", (0, 0))
    a.write(b"", (0, 0), imm=IMM)
    a.read(0, (0, 0))
    a.send(b"", imm=IMM)
    world.says(
        a,
        "SEND_ONLY 100 len=0",
        "WRITE_ONLY 101 len=0",
        "WRITE_ONLY_IMM 102 len=0",
        "READ_REQUEST 103",
        "SEND_ONLY_IMM 104 len=0",
    )
    world.settle()
    done = ["SEND", "RDMA_WRITE", "RDMA_WRITE", "RDMA_READ", "SEND"]
    assert a.poll() == [ok(op) for op in done]
    assert b.poll_recv() == [
        ok("RECV", byte_len=0),
        ok("RECV_RDMA_WITH_IMM", byte_len=0, imm=IMM),
        ok("RECV", byte_len=0, imm=IMM),
    ]


@pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
def test_lengths_around_multiples_of_the_mtu(make_world: MakeWorld, mtu: int, v6: bool) -> None:
    world = make_world(v6=v6)
    a, b = world.pair(mtu=mtu)
    lengths = [n * mtu + d for n in (1, 2, 5) for d in (-3, -2, -1, 0, 1, 2, 3)]
    for length in lengths:
        data = pattern(length, seed=length)
        target, source = b.host.memory(length), b.host.memory(data)
        into_b = b.recv(length)
        a.write(data, target)
        a.send(data)
        into_a = a.read(length, source)
        assert world.run(Channel(latency_ns=1000))
        assert a.poll() == [ok("RDMA_WRITE"), ok("SEND"), ok("RDMA_READ")]
        assert b.poll_recv() == [ok("RECV", byte_len=length)]
        for memory in (target, into_b, into_a):
            assert bytes(memory) == data


def test_psn_wraps_around(world: World) -> None:
    a, b = world.pair(a_psn=0xFFFFFE, b_psn=0xFFFFFF)
    target = b.host.memory(pattern(4096))
    data = pattern(4000, seed=2)
    a.write(data, target)
    world.says(a, "WRITE_FIRST 16777214", "WRITE_MIDDLE 16777215", "WRITE_MIDDLE 0", "WRITE_LAST 1")
    world.says(b, "ACK 1")
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target)[:4000] == data
    source = a.host.memory(pattern(3000))
    into = b.read(3000, source)
    world.says(b, "READ_REQUEST 16777215")
    world.says(a, "READ_RESP_FIRST 16777215", "READ_RESP_MIDDLE 0", "READ_RESP_LAST 1")
    assert b.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


def test_at_most_128_psns_are_unacknowledged(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(300 * 1024)
    a.write(pattern(300 * 1024), target)
    packets = a.host.send_all()
    assert [p.psn for p in packets] == list(range(100, 228))
    assert packets[-1].data[8] & 0x80, "the last one asks for an acknowledgement"


# ---- SGE lists, inline, signalling --------------------------------------------------


def test_gather_and_scatter(world: World) -> None:
    a, b = world.pair(mtu=256)
    data = pattern(1000)
    pieces = [a.host.memory(data[i:j]) for i, j in ((0, 1), (1, 300), (300, 300), (300, 1000))]
    into = [b.host.memory(n) for n in (500, 0, 3, 600)]
    assert b.post_recv([m.sge() for m in into]) == 0
    assert a.post_send(lib.DP_WR_SEND, [m.sge() for m in pieces]) == 0
    world.settle()
    assert b.poll_recv() == [ok("RECV", byte_len=1000)]
    assert b"".join(bytes(m) for m in into) == data + bytes(103)


def test_read_scatters(world: World) -> None:
    a, b = world.pair(mtu=256)
    source = b.host.memory(pattern(1000))
    into = [a.host.memory(n) for n in (1, 299, 700)]
    sges = [m.sge() for m in into]
    assert a.post_send(lib.DP_WR_RDMA_READ, sges, remote=(source.addr, source.key)) == 0
    world.settle()
    assert a.poll() == [ok("RDMA_READ", byte_len=1000)]
    assert b"".join(bytes(m) for m in into) == bytes(source)


def test_inline_data_is_copied_when_posted(world: World) -> None:
    a, b = world.pair(max_inline=128)
    into = b.recv(128)
    memory = a.host.memory(b"first")
    # A key is not looked at: inline data need not be registered.
    sge = (memory.address, 5, 0xDEAD)
    assert a.post_send(lib.DP_WR_SEND, [sge], inline=True) == 0
    memory.fill(b"later")
    world.settle()
    assert bytes(into)[:5] == b"first"


def test_inline_limits(world: World) -> None:
    a, b = world.pair(max_inline=128)
    memory = a.host.memory(129)
    sge = (memory.address, 129, 0)
    assert a.post_send(lib.DP_WR_SEND, [sge], inline=True) < 0
    remote = (memory.addr, memory.key)
    for opcode in (lib.DP_WR_RDMA_READ, lib.DP_WR_ATOMIC_FETCH_AND_ADD):
        status = a.post_send(opcode, [(memory.addr, 8, memory.key)], inline=True, remote=remote)
        assert status < 0
    world.silent()
    assert b.poll_recv() == []


def test_unsignaled_requests_complete_silently(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(8)
    for i in range(5):
        a.write(bytes([i]), target, signaled=i == 4, wr_id=i)
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE", wr_id=4)]


def test_sq_sig_all(world: World) -> None:
    a, b = world.pair(sq_sig_all=True)
    target = b.host.memory(8)
    a.write(b"x", target, signaled=False)
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE")]


def test_fence_waits_for_reads_and_atomics(world: World) -> None:
    a, b = world.pair()
    memory = b.host.memory(pattern(64))
    a.read(64, memory)
    a.faa(memory, 1)
    a.write(b"x", memory, fence=True)
    world.says(a, "READ_REQUEST 100", "FETCH_ADD 101")
    world.silent(a)
    answers = b.host.send_all()
    world.give(a.host, answers[0])
    world.silent(a)
    world.give(a.host, answers[1])
    world.says(a, "WRITE_ONLY 102")
    world.settle()
    assert a.poll() == [ok("RDMA_READ"), ok("FETCH_ADD"), ok("RDMA_WRITE")]


def test_without_fence_a_write_does_not_wait_for_a_read(world: World) -> None:
    a, b = world.pair()
    memory = b.host.memory(pattern(64))
    a.read(64, memory)
    a.write(b"x", memory)
    world.says(a, "READ_REQUEST 100", "WRITE_ONLY 101")


# ---- both ways, many queue pairs ------------------------------------------------------


def test_both_ways_at_once(world: World) -> None:
    a, b = world.pair()
    data = pattern(20_000)
    to_b, to_a = b.host.memory(len(data)), a.host.memory(len(data))
    a.write(data, to_b)
    b.write(data, to_a)
    assert world.run()
    assert bytes(to_b) == bytes(to_a) == data
    assert a.poll() == b.poll() == [ok("RDMA_WRITE")]


def test_queue_pairs_share_an_engine_fairly(world: World) -> None:
    """Neither of two large transfers waits for the other to end."""
    pairs = [world.pair(a_psn=100), world.pair(a_psn=70_000)]
    for a, b in pairs:
        a.write(pattern(100 * 1024), b.host.memory(100 * 1024))
    order = [p.dest_qpn for p in world.a_host.send(64)]
    assert {order.count(b.qpn) for _, b in pairs} == {32}
    assert world.run()
    for a, _ in pairs:
        assert a.poll() == [ok("RDMA_WRITE")]


def test_receives_are_consumed_in_order(world: World) -> None:
    a, b = world.pair()
    into = [b.recv(16, wr_id=i) for i in range(4)]
    for i in range(4):
        a.send(bytes([i]))
    world.settle()
    assert b.poll_recv() == [ok("RECV", wr_id=i, byte_len=1) for i in range(4)]
    assert [bytes(m)[0] for m in into] == [0, 1, 2, 3]


def test_acknowledgements_are_cumulative(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(8)
    for _ in range(3):
        a.write(b"x", target)
    world.says(a, "WRITE_ONLY 100", "WRITE_ONLY 101", "WRITE_ONLY 102")
    # Whether B says one ACK or three, the last is what counts.
    *_, last = b.host.send_all()
    assert (last.name, last.psn, last.aeth[1]) == ("ACK", 102, 3)
    world.give(a.host, last)
    assert a.poll() == [ok("RDMA_WRITE")] * 3


def test_credits_are_not_limited(world: World) -> None:
    """As rxe: every acknowledgement says 0x1f, which means no flow control."""
    a, b = world.pair()
    a.write(b"x", b.host.memory(8))
    world.says(a, "WRITE_ONLY 100")
    world.says(b, "ACK 100 syndrome=1f")


def test_ecn_and_tos_of_packets(make_world: MakeWorld) -> None:
    world = make_world(ecn=1, tos=0x68)
    a, b = world.pair()
    a.write(b"x", b.host.memory(8))
    (packet,) = world.says(a, "WRITE_ONLY 100 marked")
    assert packet.tos == 0x68 | lib.DP_ECN_ECT0
    world.settle()
    assert b.stats()["ecn_marked"] == 1


def test_only_what_completes_a_receive_is_solicited(world: World) -> None:
    """The bit stands in the last packet of a SEND or WRITE with immediate, and nowhere else."""
    a, b = world.pair()
    for _ in range(3):
        b.recv(4096)
    word = counter(b, 0)
    target = b.host.memory(2000)
    a.send(pattern(2000), solicited=True)
    a.write(pattern(2000), target, solicited=True)
    a.write(pattern(2000), target, imm=IMM, solicited=True)
    a.read(2000, target, solicited=True)
    a.faa(word, 1, solicited=True)
    a.send(b"x", inv=target.key, solicited=True)
    solicited = [p.name for p in a.host.send_all() if "se" in p.words()]
    assert solicited == ["SEND_LAST", "WRITE_LAST_IMM", "SEND_ONLY_INV"]


def test_udp_source_port(make_world: MakeWorld) -> None:
    """0xC000 and 14 bits of hash, the same for all packets of a QP; or what the port says."""
    world = make_world()
    a, b = world.pair()
    a.write(pattern(3000), b.host.memory(3000))
    ports = {p.sport for p in a.host.send_all()}
    assert len(ports) == 1
    assert min(ports) >= 0xC000
    fixed = make_world(udp_sport=5555)
    a, b = fixed.pair()
    a.write(b"x", b.host.memory(8))
    assert [p.sport for p in a.host.send_all()] == [5555]


def test_counters_of_a_clean_transfer(world: World) -> None:
    a, b = world.pair()
    a.write(pattern(5000), b.host.memory(5000))
    assert world.run()
    sent, received = a.stats(), b.stats()
    assert (sent["tx_packets"], received["rx_packets"]) == (5, 5)
    assert received["rx_bytes"] == 5000
    assert sent["retransmits"] == sent["timeouts"] == received["duplicates"] == 0
    assert received["acks_tx"] == sent["acks_rx"] >= 1
