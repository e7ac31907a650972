# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packets of a connection that the same queue pairs had before, with PSNs of the one they have."""

from __future__ import annotations

import itertools

import pytest

from datapath.native import lib
from tests.engine.ladder import MS, QP, US, Channel, Packet, S, World, check, ok, pattern

pytestmark = pytest.mark.san

SIZE = 3000  # of three packets
OLD, NEW = pattern(SIZE, seed=1), pattern(SIZE, seed=2)


def connect(a: QP, b: QP) -> None:
    """Both from RESET to RTS, A first, with the PSNs of Options."""
    a.host.send_all()
    b.host.send_all()
    for qp, peer, rq, sq in ((a, b, 5000, 100), (b, a, 100, 5000)):
        check(qp.to(lib.DP_QPS_RESET))
        check(qp.to_init())
        check(qp.to_rtr(peer, rq))
        check(qp.to_rts(sq))
        qp.world.advance(10 * US)


def reconnected(world: World, a: QP, b: QP) -> None:
    world.advance(1 * MS)
    connect(a, b)
    assert world.run(until=lambda: a.extended and b.extended, limit_ns=1 * S)
    world.settle()


def said(world: World, who: QP) -> list[Packet]:
    """What it says now; the other hears it."""
    packets = who.host.send_all()
    for packet in packets:
        world.give(who.peer.host, packet)
    return packets


def last(world: World, a: QP, b: QP) -> None:
    assert world.run(limit_ns=1 * S)
    assert (a.state, b.state) == ("RTS", "RTS")


@pytest.mark.parametrize("ahead", [0, 1])
def test_requests(ext: World, ahead: int) -> None:
    """In order, and behind a gap: the new message is not taken for one that came before."""
    a, b = ext.extended_pair()
    b.recv(SIZE)
    a.send(OLD)
    old = a.host.send_all()
    reconnected(ext, a, b)
    into = b.recv(SIZE)
    for packet in old[ahead:]:
        ext.give(b.host, packet)
    assert bytes(into) == bytes(SIZE)
    a.send(NEW)
    last(ext, a, b)
    assert bytes(into) == NEW
    assert b.poll_recv() == [ok("RECV", byte_len=SIZE)]
    assert b.stats()["duplicates"] >= len(old) - ahead


def test_requests_before_the_hello(ext: World) -> None:
    """B is connected again, and does not know yet when A's connection began."""
    a, b = ext.extended_pair()
    target = b.host.memory(SIZE)
    a.write(OLD, target)
    old = a.host.send_all()
    ext.advance(1 * MS)
    connect(a, b)
    for packet in old:
        ext.give(b.host, packet)
    assert bytes(target) == bytes(SIZE)
    assert ext.run(until=lambda: a.extended and b.extended, limit_ns=1 * S)
    a.write(NEW, target)
    last(ext, a, b)
    assert bytes(target) == NEW


def test_acknowledgements(ext: World) -> None:
    a, b = ext.extended_pair()
    target = b.host.memory(SIZE)
    a.write(OLD, target)
    said(ext, a)
    old = said(ext, b)
    assert [p.name for p in old] == ["EXT_ACK"]
    reconnected(ext, a, b)
    a.poll()
    a.write(NEW, target)
    a.host.send_all()
    ext.give(a.host, old[0])
    assert a.poll() == []
    last(ext, a, b)
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == NEW


def test_carried_acknowledgements(ext: World) -> None:
    a, b = ext.extended_pair()
    target, back = b.host.memory(SIZE), a.host.memory(8)
    b.recv(SIZE)
    a.send(OLD)
    said(ext, a)
    b.write(b"reply", back)
    (old,) = said(ext, b)
    assert old.xdh()["ack"]
    reconnected(ext, a, b)
    a.poll()
    a.write(NEW, target)
    a.host.send_all()
    ext.give(a.host, old)
    assert a.poll() == []
    last(ext, a, b)
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == NEW


def test_read_responses(ext: World) -> None:
    a, b = ext.extended_pair()
    source = b.host.memory(OLD)
    a.read(SIZE, source)
    said(ext, a)
    old = [p for p in said(ext, b) if p.name.startswith("EXT_READ_RESP")]
    assert len(old) == 3
    reconnected(ext, a, b)
    a.poll()
    source.fill(NEW)
    into = a.read(SIZE, source)
    a.host.send_all()
    for packet in old:
        ext.give(a.host, packet)
    assert a.poll() == []
    last(ext, a, b)
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == NEW


def test_replies_to_a_hello(ext: World) -> None:
    """A knows nothing of the peer's new connection by a reply to a HELLO of the old one."""
    a, b = ext.pair()
    ext.advance(1 * US)
    said(ext, a)
    replies = [p for p in said(ext, b) if p.name == "HELLO_REPLY"]
    ext.settle()
    assert replies
    assert a.extended
    ext.advance(1 * MS)
    connect(a, b)
    for _ in range(6):  # then a reply is enough
        ext.expire(a)
        a.host.send_all()
    ext.give(a.host, replies[0])
    assert not a.extended


@pytest.mark.parametrize("lost", range(4))
def test_each_end_hears_when_the_other_began(ext: World, lost: int) -> None:
    """A reply does not tell it.  The first HELLO is lost when the other end is not there yet."""
    a, b = ext.extended_pair()
    ext.advance(1 * MS)
    connect(a, b)
    ext.log.clear()
    count = itertools.count()
    channel = Channel(lose=lambda h, p: h is a.host and p.name == "HELLO" and next(count) < lost)
    assert ext.run(channel, until=lambda: a.extended and b.extended, limit_ns=1 * S)
    assert {host for _, host, p in ext.log if p.name == "HELLO"} == {"a", "b"}


def test_a_peer_that_only_replies(ext: World) -> None:
    """In the end that is enough."""
    a, b = ext.pair()
    channel = Channel(lose=lambda h, p: h is a.host and p.name == "HELLO")
    assert ext.run(channel, until=lambda: a.extended and b.extended, limit_ns=1 * S)
    target = b.host.memory(SIZE)
    a.write(NEW, target)
    last(ext, a, b)
    assert bytes(target) == NEW


def test_a_hello_that_overtakes_a_request(ext: World) -> None:
    """The ends still look for source ports: the HELLO takes a faster way."""
    for host in ext.hosts:
        host.goes_astray = lambda packet: True
    a, b = ext.pair()
    target = b.host.memory(SIZE)
    while not (a.extended and b.extended):
        ext.advance(10 * US)
        said(ext, a)
        said(ext, b)
    a.write(NEW, target)
    sent = a.host.send_all()
    late = [packet for packet in sent if packet.name.startswith("EXT_WRITE")]
    names: list[str] = []
    for packet in sent[: -len(late)]:
        ext.give(b.host, packet)
    while "HELLO" not in names:
        ext.advance(10 * US)
        said(ext, b)
        names = [packet.name for packet in said(ext, a)]
    for packet in late:
        ext.give(b.host, packet)
    assert bytes(target) == NEW


def test_after_a_long_silence_times_tell_nothing(ext: World) -> None:
    """The first request comes when the clocks' low 32 bits have gone half round, and further."""
    for turns in range(1, 9):
        a, b = ext.extended_pair()
        ext.advance(turns * (1 << 30))
        target = b.host.memory(SIZE)
        a.write(NEW, target)
        last(ext, a, b)
        assert bytes(target) == NEW
        assert (a.poll(), a.stats()["retransmits"]) == ([ok("RDMA_WRITE")], 0)
