# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Requests that a responder refuses: the NAK, both ends' state, memory untouched."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import (
    ALL_ACCESS,
    QP,
    Completion,
    Memory,
    Packet,
    World,
    failed,
    ok,
    pattern,
    where,
)

pytestmark = pytest.mark.san

MODES = pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])
RW = lib.DP_ACCESS_REMOTE_WRITE | lib.DP_ACCESS_LOCAL_WRITE

Refusal = Callable[[QP, Memory], None]


def pair(make_world: MakeWorld, *, extended: bool, **options: int) -> tuple[World, QP, QP]:
    world = make_world(extended=extended)
    a, b = world.extended_pair(**options) if extended else world.pair(**options)
    return world, a, b


def expect_refusal(world: World, a: QP, b: QP, nak: str, status: str) -> None:
    """B says `nak`, once it is A's turn both are in error, and the rest is flushed."""
    requests = a.host.send_all()
    for packet in requests:
        world.give(b.host, packet)
    replies = b.host.send_all()
    assert nak in [p.name for p in replies], [str(p) for p in replies]
    for packet in replies:
        world.give(a.host, packet)
    assert a.poll() == [failed(status)]
    assert (a.state, b.state) == ("ERR", "ERR")
    assert "QP_FAILED" in a.host.events()


# ---- remote access (62) ----------------------------------------------------------

ACCESS_FAULTS: dict[str, Refusal] = {
    "wrong-key": lambda a, m: a.write(b"x" * 8, (m.addr, m.key ^ 1)),
    "key-of-nothing": lambda a, m: a.write(b"x" * 8, (m.addr, 0xFFFFFFFF)),
    "one-byte-too-far": lambda a, m: a.write(b"x" * 9, (m.addr + m.size - 8, m.key)),
    "one-byte-before": lambda a, m: a.write(b"x" * 8, (m.addr - 1, m.key)),
    "far-away": lambda a, m: a.write(b"x", (m.addr + m.size, m.key)),
    "wraps-at-2^64": lambda a, m: a.write(b"x" * 8, (2**64 - 4, m.key)),
    "long-and-wraps": lambda a, m: a.write(bytes(5000), (2**64 - 1024, m.key)),
    "last-packet-too-far": lambda a, m: a.write(bytes(m.size + 1), m),
    "read-wrong-key": lambda a, m: void(a.read(8, (m.addr, m.key ^ 0x100))),
    "read-one-byte-too-far": lambda a, m: void(a.read(m.size + 1, m)),
    "read-wraps": lambda a, m: void(a.read(64, (2**64 - 32, m.key))),
    "atomic-wrong-key": lambda a, m: void(a.faa((m.addr, m.key ^ 1), 1)),
    "atomic-out-of-bounds": lambda a, m: void(a.faa((m.addr + m.size, m.key), 1)),
    "cas-wraps": lambda a, m: void(a.cas((2**64 - 8, m.key), 0, 1)),
}


def void(_: object) -> None:
    return None


@MODES
@pytest.mark.parametrize("fault", ACCESS_FAULTS)
def test_remote_access_errors(make_world: MakeWorld, fault: str, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    size = 4096
    content = pattern(size)
    memory = b.host.memory(content)
    b.recv(16, wr_id=77)
    ACCESS_FAULTS[fault](a, memory)
    expect_refusal(world, a, b, "NAK_ACCESS", "REM_ACCESS_ERR")
    assert bytes(memory) == content
    assert memory.guards_intact()
    assert b.poll_recv() == [failed("WR_FLUSH_ERR", wr_id=77)]
    assert "QP_ACCESS" in b.host.events()


@MODES
@pytest.mark.parametrize(
    ("operation", "granted"),
    [
        ("write", lib.DP_ACCESS_REMOTE_READ | lib.DP_ACCESS_REMOTE_ATOMIC),
        ("read", RW | lib.DP_ACCESS_REMOTE_ATOMIC),
        ("atomic", RW | lib.DP_ACCESS_REMOTE_READ),
    ],
)
def test_access_that_the_memory_does_not_grant(
    make_world: MakeWorld, operation: str, granted: int, extended: bool
) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(pattern(64), access=granted | lib.DP_ACCESS_LOCAL_WRITE)
    do(a, operation, memory)
    expect_refusal(world, a, b, "NAK_ACCESS", "REM_ACCESS_ERR")
    assert bytes(memory) == pattern(64)


def do(a: QP, operation: str, memory: Memory) -> None:
    if operation == "write":
        a.write(b"x" * 8, memory)
    elif operation == "read":
        a.read(8, memory)
    else:
        a.faa(memory, 1)


@MODES
@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("write", lib.DP_ACCESS_REMOTE_WRITE),
        ("read", lib.DP_ACCESS_REMOTE_READ),
        ("atomic", lib.DP_ACCESS_REMOTE_ATOMIC),
    ],
)
def test_access_that_the_queue_pair_does_not_grant(
    make_world: MakeWorld, operation: str, right: int, extended: bool
) -> None:
    """IBTA vol. 1, table 58: an invalid request, not an access violation."""
    world, a, b = pair(make_world, extended=extended, b_access=ALL_ACCESS & ~right)
    memory = b.host.memory(pattern(64))
    do(a, operation, memory)
    expect_refusal(world, a, b, "NAK_INVALID", "REM_INV_REQ_ERR")
    assert bytes(memory) == pattern(64)


@MODES
@pytest.mark.parametrize("operation", ["write", "read", "atomic"])
def test_memory_of_another_protection_domain(
    make_world: MakeWorld, operation: str, extended: bool
) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(pattern(64), pd=b.host.make_pd())
    do(a, operation, memory)
    expect_refusal(world, a, b, "NAK_ACCESS", "REM_ACCESS_ERR")
    assert bytes(memory) == pattern(64)


@MODES
def test_memory_that_was_deregistered(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(pattern(64))
    assert memory.deregister() == 0
    a.write(b"x" * 8, (memory.addr, memory.key))
    expect_refusal(world, a, b, "NAK_ACCESS", "REM_ACCESS_ERR")
    assert bytes(memory) == pattern(64)


def test_a_new_registration_has_a_new_key(world: World) -> None:
    keys = set()
    for _ in range(64):
        memory = world.a_host.memory(16)
        keys.add(memory.key)
        assert memory.deregister() == 0
    assert len(keys) == 64


@MODES
def test_memory_is_addressed_from_its_iova_on(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(64, iova=2**64 - 65)
    a.write(b"x" * 8, (2**64 - 9, memory.key))
    assert world.run(limit_ns=10**9)
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(memory) == bytes(56) + b"x" * 8


# ---- invalid requests (61) --------------------------------------------------------


@MODES
def test_misaligned_atomic(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(pattern(64))
    base = -memory.addr % 8
    a.faa((memory.addr + base + 4, memory.key), 1)
    expect_refusal(world, a, b, "NAK_INVALID", "REM_INV_REQ_ERR")
    assert bytes(memory) == pattern(64)


@MODES
@pytest.mark.parametrize(("room", "length"), [(0, 1), (99, 100), (1024, 1025), (3000, 5000)])
def test_receive_that_is_too_small(
    make_world: MakeWorld, room: int, length: int, extended: bool
) -> None:
    world, a, b = pair(make_world, extended=extended)
    into = b.recv(room, wr_id=9)
    a.send(pattern(length))
    expect_refusal(world, a, b, "NAK_INVALID", "REM_INV_REQ_ERR")
    assert b.poll_recv() == [Completion(None, "LOC_LEN_ERR", wr_id=9)]  # type: ignore[arg-type]
    assert into.guards_intact()


BAD_REQUESTS: dict[str, tuple[int, int, bool]] = {
    # opcode, payload bytes, needs an RETH of 2048 bytes
    "send-first-not-full": (0x00, 1000, False),
    "send-first-empty": (0x00, 0, False),
    "send-only-too-long": (0x04, 1028, False),
    "send-middle-without-first": (0x01, 1024, False),
    "send-last-without-first": (0x02, 100, False),
    "write-first-not-full": (0x06, 1000, True),
    "write-middle-without-first": (0x07, 1024, False),
    "write-last-without-first": (0x08, 100, False),
    "write-only-shorter-than-its-reth": (0x0A, 1000, True),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_packets_that_break_the_rules(world: World, case: str) -> None:
    opcode, length, with_reth = BAD_REQUESTS[case]
    a, b = world.pair()
    b.recv(4096)
    memory = b.host.memory(pattern(4096))
    headers = forge.reth(memory, 2048) if with_reth else b""
    world.give(b.host, forge.packet(a, opcode, 100, headers, bytes(length)))
    world.says(b, "NAK_INVALID 100")
    assert b.state == "ERR"
    assert bytes(memory) == pattern(4096)


@pytest.mark.parametrize(
    ("second", "length"),
    [(0x00, 1024), (0x04, 100), (0x07, 1024), (0x08, 100), (0x0C, 0), (0x01, 1000), (0x02, 0)],
    ids=["first", "only", "write-middle", "write-last", "read", "short-middle", "empty-last"],
)
def test_packets_that_do_not_follow_a_send_first(world: World, second: int, length: int) -> None:
    a, b = world.pair()
    b.recv(4096)
    memory = b.host.memory(64)
    world.give(b.host, forge.packet(a, 0x00, 100, b"", bytes(1024), ack=False))
    headers = forge.reth(memory, 64) if second == 0x0C else b""
    world.give(b.host, forge.packet(a, second, 101, headers, bytes(length)))
    world.says(b, "NAK_INVALID 101")
    assert b.state == "ERR"


def test_write_longer_than_its_reth(world: World) -> None:
    a, b = world.pair()
    memory = b.host.memory(pattern(8192))
    world.give(b.host, forge.packet(a, 0x06, 100, forge.reth(memory, 2048), bytes(1024)))
    world.give(b.host, forge.packet(a, 0x07, 101, b"", bytes(1024)))
    world.give(b.host, forge.packet(a, 0x08, 102, b"", bytes(1024)))
    names = [p.name for p in b.host.send_all()]
    assert names[-1] == "NAK_INVALID"
    assert b.state == "ERR"
    assert bytes(memory)[2048:] == pattern(8192)[2048:]


def test_read_longer_than_a_message_may_be(world: World) -> None:
    a, b = world.pair()
    memory = b.host.memory(64)
    world.give(b.host, forge.packet(a, 0x0C, 100, forge.reth(memory, 2**31 + 1)))
    (nak,) = b.host.send_all()
    assert nak.name in ("NAK_INVALID", "NAK_ACCESS")
    assert b.state == "ERR"


def test_more_reads_than_the_responder_allows(world: World) -> None:
    """B has said how many it takes; a requester that sends more broke the contract."""
    a, b = world.pair(b_rd_atomic=1)
    memory = b.host.memory(pattern(4096))
    for psn in (100, 101, 102):
        world.give(b.host, forge.packet(a, 0x0C, psn, forge.reth(memory, 8)))
    replies = [p.name for p in b.host.send_all()]
    assert "NAK_INVALID" in replies or replies == ["READ_RESP_ONLY"] * 3


# ---- a fatal NAK that is lost --------------------------------------------------------


@MODES
def test_a_lost_fatal_nak_is_told_again(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(64)
    a.write(b"x", (memory.addr, memory.key ^ 1))
    for packet in a.host.send_all():
        world.give(b.host, packet)
    assert [p.name for p in b.host.send_all()] == ["NAK_ACCESS"]
    assert world.run(limit_ns=100 * 10**9)
    assert a.poll() == [failed("REM_ACCESS_ERR")]


# ---- READs that are not answered yet ------------------------------------------------------


def give_all(world: World, sender: QP) -> list[Packet]:
    packets = sender.host.send_all()
    for packet in packets:
        world.give(world.other(sender.host), packet)
    return packets


@MODES
def test_what_was_asked_for_before_a_fault_is_answered(
    make_world: MakeWorld, extended: bool
) -> None:
    """Responses and NAKs leave in the order of PSNs (IBTA vol. 1, 9.7)."""
    world, a, b = pair(make_world, extended=extended)
    source, word = b.host.memory(pattern(3000)), b.host.memory(8)
    into = a.read(3000, source)
    a.faa(word, 1)
    a.read(100, (source.addr, source.key ^ 1))
    a.read(100, source)
    give_all(world, a)
    assert b.state == "ERR"
    words = [p.name.removeprefix("EXT_") for p in give_all(world, b)]
    read = ["READ_RESP_FIRST", "READ_RESP_MIDDLE", "READ_RESP_LAST"]
    assert words == [*read, "ATOMIC_ACK", "NAK_ACCESS"]
    outcome = [ok("RDMA_READ"), ok("FETCH_ADD"), failed("REM_ACCESS_ERR"), failed("WR_FLUSH_ERR")]
    assert a.poll() == outcome
    assert bytes(into) == bytes(source)


@MODES
def test_of_two_faults_the_first_one_is_told(make_world: MakeWorld, extended: bool) -> None:
    """The memory of a READ goes while its answer waits in front of the NAK of another one."""
    world, a, b = pair(make_world, extended=extended)
    source = b.host.memory(100)
    a.read(100, source)
    a.read(100, (source.addr, source.key ^ 1))
    give_all(world, a)
    assert source.deregister() == 0
    assert [(p.name, p.psn) for p in give_all(world, b)] == [("NAK_ACCESS", 100)]
    assert a.poll() == [failed("REM_ACCESS_ERR"), failed("WR_FLUSH_ERR")]
    assert b.host.events() == ["QP_ACCESS"]


@MODES
def test_a_repeated_read_whose_memory_goes_does_not_end_the_qp(
    make_world: MakeWorld, extended: bool
) -> None:
    """The requester has its answer, so the memory may go while the copy of a READ waits."""
    world, a, b = pair(make_world, extended=extended)
    source = b.host.memory(pattern(3000))
    a.read(3000, source)
    requests = give_all(world, a)
    give_all(world, b)
    assert a.poll() == [ok("RDMA_READ")]
    for packet in requests:
        world.give(b.host, packet)
    assert source.deregister() == 0
    assert [p.name for p in give_all(world, b) if p.name != "EXT_ACK"] == ["NAK_ACCESS"]
    assert (a.state, b.state, b.host.events()) == ("RTS", "RTS", [])
    a.write(b"x", b.host.memory(8))
    assert world.run()
    assert a.poll() == [ok("RDMA_WRITE")]


# ---- local faults -------------------------------------------------------------------


@MODES
def test_a_local_key_that_is_wrong(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    target, mine = b.host.memory(64), a.host.memory(64)
    sge = (mine.addr, 64, mine.key ^ 1)
    assert a.post_send(lib.DP_WR_RDMA_WRITE, [sge], remote=(target.addr, target.key), wr_id=3) == 0
    a.write(b"x", target, wr_id=4)
    world.settle()
    assert a.poll() == [failed("LOC_PROT_ERR", wr_id=3), failed("WR_FLUSH_ERR", wr_id=4)]
    assert a.state == "ERR"
    assert bytes(target) == bytes(64)


@MODES
def test_what_came_before_a_local_fault_completes(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    target, mine = b.host.memory(64), a.host.memory(64)
    a.write(b"first", target, wr_id=1)
    sge = (mine.addr + 1, 64, mine.key)
    assert a.post_send(lib.DP_WR_RDMA_WRITE, [sge], remote=(target.addr, target.key), wr_id=2) == 0
    assert world.run(limit_ns=10**9)
    assert a.poll() == [ok("RDMA_WRITE", wr_id=1), failed("LOC_PROT_ERR", wr_id=2)]
    assert bytes(target)[:5] == b"first"


@MODES
def test_a_receive_whose_memory_is_gone(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    into = b.recv(64, wr_id=5)
    assert into.deregister() == 0
    a.send(b"x" * 64)
    expect_refusal(world, a, b, "NAK_OPERATION", "REM_OP_ERR")
    assert b.poll_recv() == [failed("LOC_PROT_ERR", wr_id=5)]
    assert bytes(into) == bytes(64)


@MODES
def test_a_read_into_memory_that_may_not_be_written(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    source = b.host.memory(pattern(64))
    into = a.host.memory(64, access=lib.DP_ACCESS_REMOTE_READ)
    remote = (source.addr, source.key)
    assert a.post_send(lib.DP_WR_RDMA_READ, [into.sge()], remote=remote) == 0
    assert world.run(limit_ns=10**9)
    assert a.poll() == [failed("LOC_PROT_ERR")]
    assert bytes(into) == bytes(64)


def test_requests_that_are_refused_when_posted(world: World) -> None:
    a, b = world.pair(max_sge=2, max_inline=16, max_send_wr=4, max_recv_wr=4)
    memory = a.host.memory(64)
    one = memory.sge()
    assert a.post_send(99, [one]) < 0
    assert a.post_send(lib.DP_WR_LOCAL_INV + 1, [one]) < 0
    assert a.post_send(lib.DP_WR_SEND, [one] * 3) < 0
    assert a.post_send(lib.DP_WR_SEND, [(memory.addr, lib.DP_MSG_MAX, memory.key)] * 2) < 0
    assert a.post_send(lib.DP_WR_ATOMIC_FETCH_AND_ADD, [(memory.addr, 4, memory.key)]) < 0
    assert a.post_recv([one] * 3) < 0
    world.silent()
    assert [a.post_recv([one]) for _ in range(5)] == [0] * 4 + [-12]
    assert [a.post_send(lib.DP_WR_SEND, [one]) for _ in range(5)] == [0] * 4 + [-12]
    assert a.poll() == []
    assert b.poll() == []


# ---- faults of this end -------------------------------------------------------------


@MODES
def test_memory_that_goes_before_a_packet_is_sent_again(
    make_world: MakeWorld, extended: bool
) -> None:
    """The request fails in its turn: the one before it, whose answer is lost, is alive."""
    world, a, b = pair(make_world, extended=extended)
    source, target = b.host.memory(pattern(8)), b.host.memory(8)
    into = a.read(8, source)
    gone = a.host.memory(8)
    assert not a.post_send(lib.DP_WR_RDMA_WRITE, [gone.sge()], remote=where(target))
    a.write(b"x", target)
    read, _, last = a.host.send_all()
    assert gone.deregister() == 0
    world.give(b.host, read)
    b.host.send_all()  # the answer
    world.give(b.host, last)
    assert world.run()
    assert a.poll() == [ok("RDMA_READ"), failed("LOC_PROT_ERR"), failed("WR_FLUSH_ERR")]
    assert bytes(into) == pattern(8)


def test_a_fault_does_not_keep_what_is_before_it_from_being_sent_again(ext: World) -> None:
    """The fault was found lost first, and the oldest packet was sent last."""
    a, b = ext.extended_pair()
    target, gone = b.host.memory(2000), a.host.memory(8)
    a.write(pattern(2000), target)
    assert not a.post_send(lib.DP_WR_RDMA_WRITE, [gone.sge()], remote=where(target))
    a.write(b"x", target)
    first, *_, last = a.host.send_all()
    assert gone.deregister() == 0
    ext.give(b.host, last)
    give_all(ext, b)
    sent = []
    for _ in range(3):  # all lost
        ext.expire(a)
        sent.append([packet.psn - first.psn for packet in a.host.send_all()])
    assert sent == [[0, 1], [0], [1]]
    assert ext.run()
    assert a.poll() == [ok("RDMA_WRITE"), failed("LOC_PROT_ERR"), failed("WR_FLUSH_ERR")]


@MODES
def test_memory_that_goes_before_an_answer_comes(make_world: MakeWorld, extended: bool) -> None:
    """The answer in front of it is lost."""
    world, a, b = pair(make_world, extended=extended)
    source = b.host.memory(pattern(8))
    first, second = a.read(8, source), a.read(8, source)
    give_all(world, a)
    _, answer = (p for p in b.host.send_all() if "READ_RESP" in p.name)
    assert second.deregister() == 0
    world.give(a.host, answer)
    assert world.run()
    assert a.poll() == [ok("RDMA_READ"), failed("LOC_PROT_ERR")]
    assert bytes(first) == pattern(8)
