# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A peer that breaks the protocol: packets of the right form, with right keys and addresses.

Whoever guesses or overhears addresses, QPNs and PSNs can send them, since the ICRC is no secret.
"""

from __future__ import annotations

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import (
    MS,
    QP,
    US,
    Channel,
    Completion,
    Host,
    Packet,
    S,
    World,
    failed,
    ok,
    pattern,
)
from tests.engine.test_errors import MODES, pair

pytestmark = pytest.mark.san


# ---- messages that are held ahead of a gap -----------------------------------------------


def test_messages_held_ahead_of_a_gap_take_one_receive_each(ext: World) -> None:
    """All claim the first receive; the receive queue holds one."""
    a, b = ext.extended_pair()
    b.recv(64, wr_id=7)
    for psn in (101, 102, 103, 100):
        ext.give(b.host, forge.packet(a, 0xC4, psn, forge.xdh(rq_seq=0)))
    received = b.poll_recv()
    assert received == [ok("RECV", wr_id=7, byte_len=0)]
    assert b.state == "ERR"
    assert [p.name for p in b.host.send_all()][-1] == "NAK_INVALID"
    assert b.post_recv([]) == 0  # flushed: the queue is not corrupt
    assert b.poll_recv() == [failed("WR_FLUSH_ERR")]


def test_a_completed_receive_is_not_overwritten(ext: World) -> None:
    a, b = ext.extended_pair()
    first, second = b.recv(8, wr_id=1), b.recv(8, wr_id=2)
    held = forge.packet(a, 0xC4, 101, forge.xdh(rq_seq=0), b"attacker")
    ext.give(b.host, held)
    ext.give(b.host, forge.packet(a, 0xC4, 100, forge.xdh(rq_seq=0), b"original"))
    assert b.poll_recv()[0] == ok("RECV", wr_id=1, byte_len=8)
    assert bytes(first) == b"original"
    assert bytes(second) == bytes(8)
    assert b.state == "ERR"


def test_what_cannot_run_in_order_is_not_told_as_received(ext: World) -> None:
    """A fault that shows only when the gap closes reaches the requester as what it is."""
    a, b = ext.extended_pair(timeout=0)
    kept, gone = b.host.memory(64), b.host.memory(64)
    a.write(b"first", kept, wr_id=1)
    a.write(b"x" * 32, gone, wr_id=2)
    a.write(b"third", kept, wr_id=3)
    ext.says(a, "EXT_WRITE_ONLY 100 lost", "EXT_WRITE_ONLY 101", "EXT_WRITE_ONLY 102")
    ext.says(b, "EXT_ACK 99")  # and its bitmap tells 101 and 102
    assert gone.deregister() == 0
    assert ext.run(limit_ns=10 * S)
    assert a.poll() == [
        ok("RDMA_WRITE", wr_id=1),
        failed("REM_ACCESS_ERR", wr_id=2),
        failed("WR_FLUSH_ERR", wr_id=3),
    ]


# ---- modes and windows -------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-1, -(1 << 22), 2048, 1 << 22])
def test_an_extended_packet_beyond_the_window_changes_no_mode(
    make_world: MakeWorld, ahead: int
) -> None:
    """A standard peer would be answered in a form that it does not understand."""
    world = make_world(extended=True)
    a, b = world.pair(retry_cnt=1)
    memory = b.host.memory(64)
    b.host.send_all()
    stray = forge.packet(b, 0xC4, (b.options.b_psn + ahead) % 2**24, forge.xdh())
    world.give(a.host, stray)
    assert not a.extended
    ack = forge.packet(b, 0xD1, 5000, forge.aeth(0x1F, 1) + bytes(28))
    world.give(a.host, ack)
    response = forge.packet(b, 0xD0, 5000, forge.xdh() + forge.aeth(0x1F, 1))
    world.give(a.host, response)
    assert not a.extended
    a.write(b"plain", memory)
    assert "WRITE_ONLY" in [p.name for p in a.host.send_all()]


@pytest.mark.parametrize(("window", "b_window"), [(2048, 64), (256, 128), (64, 2048)])
def test_windows_of_different_size_with_the_peers_offers_lost(
    make_world: MakeWorld, window: int, b_window: int
) -> None:
    """B's data comes, and not yet its HELLO, which tells its window, as A begins to send.

    A's first packets are many more than the smaller window, if they are extended ones.
    """
    world = make_world(extended=True, window_psns=window, b_window_psns=b_window)
    a, b = world.pair(mtu=256)
    data = pattern(30_000)
    targets = [b.host.memory(len(data)), a.host.memory(len(data))]
    sent = posted = completed = 0

    def lose(host: Host, packet: Packet) -> bool:
        nonlocal sent
        sent += host is a.host and "WRITE" in packet.name
        return packet.name.startswith("HELLO") and host is b.host and sent < 100

    for _ in range(20):
        b.write(data[:1000], targets[1])
    channel = Channel(lose=lose, latency_ns=5 * MS, jitter_ns=4 * MS, loss=0.01)

    def finished() -> bool:
        nonlocal posted, completed
        if b.poll():
            b.write(data, targets[1])
        completed += len([c for c in a.poll() if c == ok("RDMA_WRITE")])
        while posted < min(completed + 4, 20):
            a.write(data, targets[0])
            posted += 1
        return completed == 20

    assert world.run(channel, until=finished, limit_ns=20 * S)
    assert bytes(targets[0]) == data
    assert b.stats()["rx_bytes"] >= 20 * len(data), "a WRITE completed that B has not received"


# ---- READs and atomics that were answered ------------------------------------------------


READS = {False: 0x0C, True: 0xCC}


def read_request(a: QP, psn: int, va: int, rkey: int, length: int, *, extended: bool) -> Packet:
    headers = va.to_bytes(8, "big") + rkey.to_bytes(4, "big") + length.to_bytes(4, "big")
    segment = forge.xdh(segment=a.options.mtu) if extended else b""
    return forge.packet(a, READS[extended], psn, segment + headers)


@MODES
@pytest.mark.parametrize("behind", [1, 50, 1 << 22, (1 << 23) - 1])
def test_a_duplicate_read_that_nobody_asked_for_is_dropped(
    make_world: MakeWorld, behind: int, extended: bool
) -> None:
    world, a, b = pair(make_world, extended=extended)
    secret = b.host.memory(pattern(64))
    psn = (100 - behind) % 2**24
    for rkey in (secret.key, secret.key ^ 1):
        world.give(b.host, read_request(a, psn, secret.addr, rkey, 64, extended=extended))
        assert [p.name for p in b.host.send_all() if "READ" in p.name or "NAK" in p.name] == []
    assert b.state == "RTS"


@MODES
def test_a_duplicate_read_of_other_memory_is_dropped(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    shared, other = b.host.memory(pattern(64)), b.host.memory(pattern(64, seed=2))
    a.read(64, shared)
    world.settle()
    assert a.poll() == [ok("RDMA_READ")]
    for va, rkey, length in [
        (other.addr, other.key, 64),
        (shared.addr, shared.key, 65),
        (shared.addr - 1, shared.key, 64),
        (shared.addr, shared.key ^ 1, 64),
    ]:
        world.give(b.host, read_request(a, 100, va, rkey, length, extended=extended))
        assert [p.name for p in b.host.send_all() if "READ" in p.name or "NAK" in p.name] == []
    world.give(b.host, read_request(a, 100, shared.addr, shared.key, 64, extended=extended))
    (again,) = [p for p in b.host.send_all() if "READ" in p.name]
    assert again.payload == pattern(64)
    assert b.state == "RTS"


@MODES
def test_a_stale_duplicate_of_a_read_whose_memory_is_gone(
    make_world: MakeWorld, extended: bool
) -> None:
    """The network delivers an old request once more; the connection goes on."""
    world, a, b = pair(make_world, extended=extended)
    shared = b.host.memory(pattern(64))
    a.read(64, shared)
    (request,) = a.host.send_all()
    world.give(b.host, request)
    world.settle()
    assert a.poll() == [ok("RDMA_READ")]
    assert shared.deregister() == 0
    world.give(b.host, request)
    world.settle()
    target = b.host.memory(8)
    a.write(b"go on...", target)
    assert world.run(limit_ns=S)
    assert a.poll() == [ok("RDMA_WRITE")]
    assert (a.state, b.state) == ("RTS", "RTS")


@MODES
@pytest.mark.parametrize("timeout", [0, 12])
def test_memory_that_goes_away_behind_an_accepted_read(
    make_world: MakeWorld, timeout: int, extended: bool
) -> None:
    """The requester hears REM_ACCESS of that READ, whatever its time-out."""
    world, a, b = pair(make_world, extended=extended, timeout=timeout, rd_atomic=4)
    kept, gone = b.host.memory(pattern(64)), b.host.memory(pattern(9000))
    a.read(64, kept, wr_id=1)
    a.read(9000, gone, wr_id=2)
    a.write(b"x", kept, wr_id=3)
    for packet in a.host.send_all():
        world.give(b.host, packet)
    assert gone.deregister() == 0
    assert world.run(limit_ns=100 * S)
    assert a.poll() == [
        ok("RDMA_READ", wr_id=1),
        failed("REM_ACCESS_ERR", wr_id=2),
        failed("WR_FLUSH_ERR", wr_id=3),
    ]


@MODES
def test_memory_that_goes_away_in_the_middle_of_an_answer(
    make_world: MakeWorld, extended: bool
) -> None:
    world, a, b = pair(make_world, extended=extended, timeout=0)
    gone = b.host.memory(pattern(9000))
    a.read(9000, gone)
    for packet in a.host.send_all():
        world.give(b.host, packet)
    for packet in b.host.send(3):
        world.give(a.host, packet)
    assert gone.deregister() == 0
    assert world.run(limit_ns=100 * S)
    assert a.poll() == [failed("REM_ACCESS_ERR")]


# ---- SEND with invalidate ----------------------------------------------------------------


@MODES
def test_a_peer_cannot_invalidate_ordinary_memory(make_world: MakeWorld, extended: bool) -> None:
    """IBTA vol. 1, 10.6.7.2: only keys of fast-registered memory and of type 2 windows."""
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(64)
    b.recv(64)
    a.send(b"x", inv=memory.key)
    assert world.run(limit_ns=10 * S)
    assert a.poll() == [failed("REM_ACCESS_ERR")]
    assert b.state == "ERR"
    c, _ = world.pair()
    c.write(b"still here", memory)
    assert world.run(limit_ns=10 * S)
    assert c.poll() == [ok("RDMA_WRITE")]


def test_a_standard_request_while_packets_are_held_ahead(ext: World) -> None:
    """No requester of ours mixes the modes: it changes when nothing is under way."""
    a, b = ext.extended_pair()
    b.recv(64, wr_id=1)
    b.recv(64, wr_id=2)
    ext.give(b.host, forge.packet(a, 0xC4, 101, forge.xdh(rq_seq=1), b"held"))
    ext.give(b.host, forge.packet(a, 0x04, 100, b"", b"mixed"))
    assert b.poll_recv() == []
    ext.give(b.host, forge.packet(a, 0xC4, 100, forge.xdh(rq_seq=0), b"first"))
    assert b.poll_recv() == [ok("RECV", wr_id=1, byte_len=5), ok("RECV", wr_id=2, byte_len=4)]
    assert b.state == "RTS"


def test_a_forged_offer_in_the_name_of_a_standard_peer(make_world: MakeWorld) -> None:
    """Who knows both QPNs and the address can end the connection so, and do no more."""
    world = make_world(extended=True, b_extended=0)
    a, b = world.pair(timeout=10, retry_cnt=2)
    memory = b.host.memory(8)
    offer = bytes.fromhex(f"08 020000 00000000 {b.qpn:08x} 0400 0000 00000000")
    world.advance(US)
    a.host.send_all()
    assert world.give(a.host, forge.packet(b, 0xE0, 0, offer)) == 0
    a.write(b"unheard!", memory)
    completed: list[Completion] = []

    def ended() -> bool:
        completed.extend(a.poll())
        return bool(completed)

    assert world.run(Channel(), until=ended, limit_ns=100 * S)
    assert completed == [failed("RETRY_EXC_ERR")]
    assert (a.state, b.state) == ("ERR", "RTS")
    assert bytes(memory) == bytes(8)
    assert b.host.stats()["drop_unknown_opcode"] > 0


# ---- acknowledgements ---------------------------------------------------------------


@MODES
@pytest.mark.parametrize("syndrome", [0x40, 0x5F, 0x65, 0x7F, 0x80, 0xE1])
def test_a_reserved_syndrome_says_nothing(
    make_world: MakeWorld, extended: bool, syndrome: int
) -> None:
    world, a, b = pair(make_world, extended=extended)
    b.recv(8)
    a.send(b"x" * 8)
    (request,) = a.host.send_all()
    opcode, behind = (lib.DP_OP_ACK | lib.DP_OP_EXT, 28) if extended else (lib.DP_OP_ACK, 0)
    headers = forge.aeth(syndrome, 1) + bytes(behind)
    assert world.give(a.host, forge.packet(b, opcode, request.psn, headers)) < 0
    assert a.host.stats()["drop_malformed"] == 1
    assert (a.state, a.poll()) == ("RTS", [])
    world.silent(a)
    world.give(b.host, request)
    assert world.run()
    assert a.poll() == [ok("SEND")]
    assert a.stats()["retransmits"] == 0
