# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Short messages that wait together share a packet."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import QP, Channel, Completion, Memory, Packet, World, failed, ok

pytestmark = pytest.mark.san

PSN = 100
WRITE, SEND = "WRITE_BUNDLE", "SEND_BUNDLE"
WRITES, SENDS = 0xE7, 0xE8


@pytest.fixture
def bundling(make_world: MakeWorld) -> Callable[..., tuple[World, QP, QP]]:
    def make(**options: Any) -> tuple[World, QP, QP]:
        world = make_world(extended=True, bundle=1, path_mtu_max=1024, segment_max=1024)
        a, b = world.extended_pair(a_psn=PSN, **options)
        return world, a, b

    return make


def parts(packet: Packet) -> int:
    return packet.xdh()["offset"]


def finished(world: World, qp: QP, count: int) -> list[Completion]:
    """The next `count` completions of sends, over a clean wire."""
    done: list[Completion] = []

    def all_there() -> bool:
        done.extend(qp.poll())
        return len(done) >= count

    assert world.run(Channel(), until=all_there)
    return done


def test_writes(bundling: Any) -> None:
    world, a, b = bundling()
    targets = [b.host.memory(12) for _ in range(3)]
    for i, target in enumerate(targets):
        a.write(bytes([i + 1] * (12 - i)), target)
    (packet,) = world.says(a, f"{WRITE} {PSN} ack")
    assert parts(packet) == 3
    assert len(packet.payload) == 3 * (16 + 12)
    world.says(b, f"EXT_ACK {PSN + 2} msn=3")
    assert a.poll() == [ok("RDMA_WRITE")] * 3
    assert [bytes(t) for t in targets] == [b"\1" * 12, b"\2" * 11 + b"\0", b"\3" * 10 + b"\0\0"]
    assert a.stats()["tx_packets"] == 1


def test_sends_take_a_receive_each(bundling: Any) -> None:
    world, a, b = bundling()
    receives = [b.recv(64) for _ in range(4)]
    messages = [b"first", b"", b"the third", b"4"]
    for message in messages:
        a.send(message)
    (packet,) = world.says(a, f"{SEND} {PSN} ack")
    assert parts(packet) == 4
    assert b.poll_recv() == [ok("RECV", byte_len=len(m)) for m in messages]
    for receive, message in zip(receives, messages, strict=True):
        assert bytes(receive) == message + bytes(64 - len(message))
    assert finished(world, a, 4) == [ok("SEND")] * 4


def test_one_message_is_no_bundle(bundling: Any) -> None:
    world, a, b = bundling()
    a.write(b"alone", b.host.memory(8))
    world.says(a, f"EXT_WRITE_ONLY {PSN} ack")


def test_what_leaves_alone(bundling: Any) -> None:
    """Immediates, READs, long messages, and those that solicit an event."""
    _, a, b = bundling()
    target = b.host.memory(4096)
    for _ in range(4):
        b.recv(64)
    a.write(b"12", target)
    a.write(b"34", target, imm=1)
    a.read(8, target)
    a.send(b"56")
    a.send(b"78", solicited=True)
    a.send(b"90")
    a.write(bytes(1025), target)
    names = [p.name for p in a.host.send_all()]
    assert names == [
        "EXT_WRITE_ONLY",
        "EXT_WRITE_ONLY_IMM",
        "EXT_READ_REQUEST",
        *["EXT_SEND_ONLY"] * 3,
        "EXT_WRITE_FIRST",
        "EXT_WRITE_LAST",
    ]


def test_a_bundle_is_no_longer_than_a_full_packet(bundling: Any) -> None:
    _, a, b = bundling()
    target = b.host.memory(400)
    for _ in range(5):
        a.write(bytes(400), target)
    packets = a.host.send_all()
    assert [(p.name, p.psn) for p in packets] == [
        (WRITE, PSN),
        (WRITE, PSN + 2),
        ("EXT_WRITE_ONLY", PSN + 4),
    ]
    assert max(len(p.payload) for p in packets) <= 1024


def test_most_messages_of_a_bundle(bundling: Any) -> None:
    _, a, b = bundling()
    for _ in range(100):
        b.recv(8)
        a.send(b"")
    assert [parts(p) for p in a.host.send_all()] == [lib.DP_BUNDLE_MAX, 100 - lib.DP_BUNDLE_MAX]


def test_a_fence_ends_a_bundle(bundling: Any) -> None:
    _, a, b = bundling()
    memory = b.host.memory(8)
    a.read(8, memory)
    a.write(b"1", memory)
    a.write(b"2", memory)
    a.write(b"3", memory, fence=True)
    packets = a.host.send_all()
    assert [(p.name, p.psn) for p in packets] == [("EXT_READ_REQUEST", PSN), (WRITE, PSN + 1)]
    assert parts(packets[1]) == 2


def test_copies_leave_alone(bundling: Any) -> None:
    world, a, b = bundling()
    targets = [b.host.memory(8) for _ in range(3)]
    for i, target in enumerate(targets):
        a.write(bytes([i + 1] * 8), target)
    world.says(a, f"{WRITE} {PSN} ack lost")
    copies: list[str] = []

    def seen(host: Any, packet: Packet) -> bool:
        if host is a.host:
            copies.append(packet.name)
        return False

    done: list[Completion] = []

    def all_there() -> bool:
        done.extend(a.poll())
        return len(done) == 3

    assert world.run(Channel(lose=seen), until=all_there)
    assert done == [ok("RDMA_WRITE")] * 3
    assert set(copies) == {"EXT_WRITE_ONLY"}
    assert [bytes(t) for t in targets] == [bytes([i + 1] * 8) for i in range(3)]


def test_a_bundle_behind_a_gap(bundling: Any) -> None:
    world, a, b = bundling()
    for _ in range(3):
        b.recv(8)
    a.send(bytes(8), solicited=True)
    a.send(b"two")
    a.send(b"three")
    world.says(a, f"EXT_SEND_ONLY {PSN} se lost", f"{SEND} {PSN + 1} ack")
    assert b.poll_recv() == []
    (ack,) = b.host.send_all()
    assert ack.sacked() == {PSN + 1, PSN + 2}
    world.give(a.host, ack)
    world.settle()
    assert [c.byte_len for c in b.poll_recv()] == [8, 3, 5]


def test_a_receiver_that_runs_out_of_receives(bundling: Any) -> None:
    world, a, b = bundling()
    b.recv(8)
    for message in (b"1", b"22", b"333"):
        a.send(message)
    world.says(a, f"{SEND} {PSN} ack")
    (rnr,) = b.host.send_all()
    assert (rnr.name, rnr.psn) == ("RNR", PSN + 1)
    world.give(a.host, rnr)
    b.recv(8)
    b.recv(8)
    assert finished(world, a, 3) == [ok("SEND")] * 3
    assert [c.byte_len for c in b.poll_recv()] == [1, 2, 3]


def test_a_key_that_is_refused_ends_the_qp_there(bundling: Any) -> None:
    world, a, b = bundling()
    good = b.host.memory(8)
    a.write(b"before", good)
    a.write(b"wrong", (good.addr, good.key + 1))
    a.write(b"behind", good)
    world.says(a, f"{WRITE} {PSN} ack")
    world.says(b, f"NAK_ACCESS {PSN + 1}")
    assert a.poll() == [ok("RDMA_WRITE"), failed("REM_ACCESS_ERR"), failed("WR_FLUSH_ERR")]
    assert bytes(good) == b"before\0\0"


def test_local_memory_that_cannot_be_read_ends_the_bundle_before_it(bundling: Any) -> None:
    world, a, b = bundling()
    target = b.host.memory(8)
    a.write(b"1", target)
    a.write(b"2", target)
    assert a.post_send(lib.DP_WR_RDMA_WRITE, [(0, 8, 77)], remote=(target.addr, target.key)) == 0
    (packet,) = world.says(a, f"{WRITE} {PSN} ack")
    assert parts(packet) == 2
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE")] * 2 + [failed("LOC_PROT_ERR")]


def test_a_small_window_holds_messages_back(make_world: MakeWorld) -> None:
    a, b = make_world(extended=True, bundle=1, window_psns=64).extended_pair(a_psn=PSN)
    target = b.host.memory(8)
    for _ in range(100):
        a.write(b"12345678", target)
    assert sum(parts(p) for p in a.host.send_all()) == 64


def test_trimmed(bundling: Any) -> None:
    world, a, b = bundling()
    target = b.host.memory(8)
    for _ in range(3):
        a.write(b"12345678", target)
    (packet,) = a.host.send_all()
    cut = packet._replace(data=packet.data[:32], tos=lib.DP_DSCP_TRIMMED << 2)
    world.advance(100_000)
    world.give(b.host, cut)
    (ack,) = b.host.send_all()
    assert ack.listed("trimmed") == [PSN, PSN + 1, PSN + 2]
    world.give(a.host, ack)
    assert [(p.name, p.psn) for p in a.host.send_all()] == [
        ("EXT_WRITE_ONLY", PSN + i) for i in range(3)
    ]


def test_an_acknowledgement_that_goes_with_it_counts_once(bundling: Any) -> None:
    world, a, b = bundling()
    there, here = b.host.memory(8), a.host.memory(8)
    sent: list[Packet] = []
    for _ in range(10):  # the programs reply to each other
        for qp, target in ((a, there), (b, here)):
            qp.write(b"ping", target)
            qp.write(b"pong", target)
            sent += qp.host.send_all()
            world.give(qp.peer.host, sent[-1])
    assert sent[-1].name == WRITE
    assert sent[-1].xdh()["ack"]
    assert finished(world, a, 20) == finished(world, b, 20) == [ok("RDMA_WRITE")] * 20
    assert a.stats()["retransmits"] == b.stats()["retransmits"] == 0


def entry(memory: Memory, payload: bytes, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack("!QII", memory.addr, memory.key, size) + payload + bytes(-len(payload) % 4)


MALFORMED: dict[str, Callable[[Memory], tuple[int, bytes]]] = {
    "none": lambda m: (0, b""),
    "no messages, but bytes": lambda m: (0, entry(m, b"evil")),
    "fewer than announced": lambda m: (2, entry(m, b"evil")),
    "more than announced": lambda m: (1, entry(m, b"evil") * 2),
    "too many": lambda m: (65, entry(m, b"") * 65),
    "huge number": lambda m: (2**32 - 1, entry(m, b"evil")),
    "cut in a head": lambda m: (2, entry(m, b"evil") + bytes(12)),
    "longer than the packet": lambda m: (1, entry(m, b"evil", 8)),
    "length that wraps": lambda m: (1, entry(m, b"evil", 2**32 - 1)),
}


@pytest.mark.parametrize("how", MALFORMED)
def test_a_malformed_bundle_does_nothing(bundling: Any, how: str) -> None:
    world, a, b = bundling()
    memory = b.host.memory(8)
    announced, body = MALFORMED[how](memory)
    before = b.host.stats()["drop_malformed"]
    world.give(b.host, forge.packet(a, WRITES, PSN, forge.xdh(0, announced), body))
    assert b.host.stats()["drop_malformed"] == before + 1
    assert bytes(memory) == bytes(8)
    assert b.host.send_all() == []
    assert b.state == "RTS"


def test_a_malformed_bundle_of_sends(bundling: Any) -> None:
    world, a, b = bundling()
    b.recv(8)
    body = struct.pack("!I", 5) + b"evil"
    world.give(b.host, forge.packet(a, SENDS, PSN, forge.xdh(0, 1), body))
    assert b.host.stats()["drop_malformed"] == 1
    assert b.poll_recv() == []


def test_without_the_option(make_world: MakeWorld) -> None:
    world = make_world(extended=True)
    a, b = world.extended_pair(a_psn=PSN)
    for _ in range(3):
        a.write(b"123", b.host.memory(8))
    assert [p.name for p in a.host.send_all()] == ["EXT_WRITE_ONLY"] * 3
