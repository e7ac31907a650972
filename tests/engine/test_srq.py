# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Shared receive queues (IBTA vol. 1, section 10.2.9)."""

from __future__ import annotations

from typing import Any

import pytest

from datapath.native import ffi, lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.datagram import GRH_LEN, DatagramQP
from tests.engine.ladder import (
    QP,
    SGE,
    Channel,
    Host,
    Memory,
    Packet,
    World,
    check,
    failed,
    ok,
    pattern,
)
from tests.engine.test_errors import MODES

pytestmark = pytest.mark.san


class SRQ:
    """A shared receive queue, which ends before its host."""

    def __init__(self, host: Host, max_wr: int = 64, max_sge: int = 4, pd: Any = None) -> None:
        self.host = host
        attr = ffi.new("struct dp_srq_attr *", {"max_wr": max_wr, "max_sge": max_sge})
        out = ffi.new("struct dp_srq **")
        check(lib.dp_srq_create(pd or host.pd, attr, ffi.NULL, out))
        self.srq = out[0]

    def post(self, sges: list[tuple[int, int, int]], wr_id: int = 0) -> int:
        list_ = ffi.new("struct dp_sge[]", [dict(zip(SGE, s, strict=True)) for s in sges])
        wr = ffi.new("struct dp_recv_wr *", {"wr_id": wr_id, "num_sge": len(sges), "sge": list_})
        status = int(lib.dp_srq_post_recv(self.srq, wr))
        self.host.verify()
        return status

    def recv(self, size: int, wr_id: int = 0) -> Memory:
        memory = self.host.memory(size)
        check(self.post([memory.sge()], wr_id))
        return memory

    def modify(self, **values: int) -> int:
        names = {"max_wr": lib.DP_SRQ_MAX_WR, "limit": lib.DP_SRQ_LIMIT}
        attr = ffi.new("struct dp_srq_attr *", values)
        return int(lib.dp_srq_modify(self.srq, attr, sum(names[name] for name in values)))

    @property
    def attr(self) -> Any:
        attr = ffi.new("struct dp_srq_attr *")
        lib.dp_srq_query(self.srq, attr)
        return attr

    def close(self) -> int:
        return int(lib.dp_srq_destroy(self.srq))


def end(srq: SRQ, *qps: QP) -> None:
    for qp in qps:
        qp.destroy()
    assert srq.close() == 0


def pairs(world: World, srq: SRQ, count: int, *, extended: bool) -> list[tuple[QP, QP]]:
    """Connections to host B, whose QPs take their receives from the shared queue."""
    make = world.extended_pair if extended else world.pair
    return [make(b_srq=srq.srq) for _ in range(count)]


@MODES
def test_queue_pairs_take_receives_in_turn(make_world: MakeWorld, extended: bool) -> None:
    world = make_world(extended=extended)
    srq = SRQ(world.b_host)
    (a, b), (c, d) = pairs(world, srq, 2, extended=extended)
    memories = [srq.recv(5000, wr_id=i) for i in range(4)]
    for sender, data in ((a, b"1st"), (c, b"second" * 500), (a, b"3rd"), (c, b"4")):
        sender.send(data)
        world.run()
    assert [m.wr_id for m in b.poll_recv()] == [0, 2]
    assert [m.wr_id for m in d.poll_recv()] == [1, 3]
    assert bytes(memories[1])[:3000] == b"second" * 500
    assert bytes(memories[2])[:4] == b"3rd\0"
    assert b.post_recv([]) < 0  # it has no receive queue of its own
    end(srq, b, d)


@MODES
def test_not_ready_until_the_shared_queue_is(make_world: MakeWorld, extended: bool) -> None:
    world = make_world(extended=extended)
    srq = SRQ(world.b_host)
    ((a, b),) = pairs(world, srq, 1, extended=extended)
    a.send(b"early")
    world.run(limit_ns=1000)
    assert b.stats()["rnr_tx"] > 0
    memory = srq.recv(100)
    assert world.run()
    assert a.poll() == [ok("SEND")]
    assert bytes(memory)[:5] == b"early"
    end(srq, b)


@pytest.mark.parametrize("seed", range(5))
def test_under_loss_and_reordering(make_world: MakeWorld, seed: int) -> None:
    """What is ahead of a gap holds receives, and each message lands in one of its own."""
    world = make_world(extended=True)
    srq = SRQ(world.b_host, 256)
    connections = pairs(world, srq, 3, extended=True)
    memories = {i: srq.recv(3000, wr_id=i) for i in range(90)}
    sent: dict[int, list[bytes]] = {}
    for i, (a, b) in enumerate(connections):
        sent[b.qpn] = [pattern(n * 97 % 3000, seed=n * 3 + i) for n in range(30)]
        for data in sent[b.qpn]:
            a.send(data)
    assert world.run(Channel(loss=0.1, jitter_ns=100_000, duplicate=0.05, seed=seed))
    for _, b in connections:
        got = [bytes(memories.pop(c.wr_id))[: c.byte_len] for c in b.poll_recv()]
        assert got == sent[b.qpn]
    assert memories == {}
    end(srq, *(b for _, b in connections))


def test_datagrams(world: World) -> None:
    srq = SRQ(world.b_host)
    a, b = DatagramQP(world.a_host), DatagramQP(world.b_host, srq=srq.srq)
    memory = srq.recv(100, wr_id=8)
    a.send_to(b, b"hello")
    a.send_to(b, b"lost")
    world.says(a, "UD_SEND_ONLY 100", "UD_SEND_ONLY 101")
    assert b.poll_recv() == [ok("RECV", wr_id=8, byte_len=GRH_LEN + 5)]
    assert bytes(memory)[GRH_LEN:][:5] == b"hello"
    assert b.host.stats()["drop_no_receive"] == 1
    end(srq, b)


def test_a_datagram_that_is_dropped_takes_no_receive(world: World) -> None:
    """The other queue pair gets the shared receive, and the limit is not reached."""
    srq = SRQ(world.b_host)
    memory = srq.recv(GRH_LEN + 10, wr_id=5)
    check(srq.modify(limit=1))
    a, long, short = (
        DatagramQP(world.a_host),
        *(DatagramQP(world.b_host, srq=srq.srq) for _ in range(2)),
    )
    a.send_to(long, bytes(11))
    a.send_to(long, b"wrong", qkey=0x4321)
    world.run()
    assert srq.attr.limit == 1
    a.send_to(short, b"fits")
    world.run()
    assert (long.poll_recv(), len(short.poll_recv())) == ([], 1)
    assert bytes(memory)[GRH_LEN:][:4] == b"fits"
    assert srq.attr.limit == 0
    assert world.b_host.stats()["drop_too_long"] == 1
    end(srq, a, long, short)


def test_keys_are_those_of_the_queues_domain(world: World) -> None:
    other = world.b_host.make_pd()
    srq = SRQ(world.b_host, pd=other)
    ((a, b),) = pairs(world, srq, 1, extended=False)
    memory = world.b_host.memory(100, pd=other)
    assert srq.post([memory.sge()]) == 0
    srq.recv(100)  # of the QP's own domain
    a.send(b"right")
    world.run()
    assert bytes(memory)[:5] == b"right"
    a.send(b"wrong")
    world.run()
    assert a.poll() == [ok("SEND"), failed("REM_OP_ERR")]
    assert [c.status for c in b.poll_recv()] == ["SUCCESS", "LOC_PROT_ERR"]
    end(srq, b)


# ---- size and limit ------------------------------------------------------------------------


def test_size_is_kept(world: World) -> None:
    srq = SRQ(world.b_host, 4)
    for i in range(4):
        assert srq.post([], wr_id=i) == 0
    assert srq.post([]) < 0
    assert srq.post([(0, 1, 1)] * 5) < 0  # more SGEs than it has
    assert srq.modify(max_wr=3) < 0  # it holds four
    assert srq.modify(max_wr=8) == 0
    assert (srq.attr.max_wr, srq.attr.max_sge) == (8, 4)
    assert srq.post([], wr_id=4) == 0
    ((a, b),) = pairs(world, srq, 1, extended=False)
    for _ in range(5):
        a.send(b"")
    world.run()
    assert [c.wr_id for c in b.poll_recv()] == [0, 1, 2, 3, 4]
    assert srq.close() < 0  # a QP uses it
    end(srq, b)


def test_the_limit_is_told_once(world: World) -> None:
    srq = SRQ(world.b_host, 8)
    ((a, b),) = pairs(world, srq, 1, extended=False)
    for _ in range(4):
        srq.recv(10)
    assert srq.modify(limit=9) < 0
    assert srq.modify(limit=3) == 0
    assert srq.attr.limit == 3
    told = []
    for _ in range(4):
        a.send(b"x")
        world.run()
        told.append("SRQ_LIMIT" in b.host.events())
    assert told == [False, True, False, False]
    assert srq.attr.limit == 0
    assert srq.modify(limit=1) == 0  # it has none already
    assert b.host.events() == ["SRQ_LIMIT"]
    end(srq, b)


# ---- receives that were borrowed --------------------------------------------------------------


def behind_a_gap(world: World, srq: SRQ) -> tuple[QP, QP]:
    """A QP that holds three receives: the second and third message have come."""
    ((a, b),) = pairs(world, srq, 1, extended=True)
    for i in range(4):
        srq.recv(100, wr_id=i)
    for _ in range(3):
        a.send(b"x")
    world.says(a, "EXT_SEND_ONLY 100 lost", "EXT_SEND_ONLY 101", "EXT_SEND_ONLY 102")
    return a, b


def test_what_was_borrowed_goes_back_at_reset(ext: World) -> None:
    srq = SRQ(ext.b_host, 4)
    _, b = behind_a_gap(ext, srq)
    assert srq.post([]) < 0  # their places are not free
    b.to(lib.DP_QPS_RESET)
    b.host.verify()
    ((c, d),) = pairs(ext, srq, 1, extended=True)
    for _ in range(4):
        c.send(b"y")
    ext.run()
    assert [x.wr_id for x in d.poll_recv()] == [0, 1, 2, 3]
    end(srq, b, d)


def test_what_was_borrowed_is_flushed_in_error(ext: World) -> None:
    srq = SRQ(ext.b_host, 4)
    _, b = behind_a_gap(ext, srq)
    b.host.events()
    b.to(lib.DP_QPS_ERR)
    assert [(c.status, c.wr_id) for c in b.poll_recv()] == [("WR_FLUSH_ERR", i) for i in range(3)]
    assert b.host.events() == ["LAST_WQE"]
    assert srq.post([]) == 0
    end(srq, b)


def test_a_peer_that_claims_too_much_borrows_nothing(ext: World) -> None:
    """Hundreds of messages are to lie before one that is few PSNs ahead."""
    srq = SRQ(ext.b_host, 1024)
    (a, b), (c, d) = pairs(ext, srq, 2, extended=True)
    for i in range(200):
        srq.recv(8, wr_id=i)
    for psn, rq_seq in ((101, 2), (101, 500), (102, 100_000), (103, 2**32 - 1)):
        ext.give(b.host, forge.packet(a, 0xC4, psn, forge.xdh(rq_seq=rq_seq), b"12345678"))
    c.send(b"others")
    ext.run(until=lambda: bool(c.poll()))
    assert d.poll_recv() == [ok("RECV", byte_len=6, wr_id=0)]
    end(srq, b, d)


def test_the_first_packet_of_a_message_claims_no_other_receive(ext: World) -> None:
    srq = SRQ(ext.b_host, 1024)
    ((a, b),) = pairs(ext, srq, 1, extended=True)
    for i in range(200):
        srq.recv(5000, wr_id=i)
    data = bytes(1024)
    ext.give(b.host, forge.packet(a, 0xC0, 100, forge.xdh(rq_seq=100), data))
    assert b.state == "ERR"
    assert b.poll_recv() == []
    end(srq, b)


def behind_one_that_is_lost(world: World, srq: SRQ, count: int) -> tuple[QP, QP, Packet]:
    """The first of `count` messages is lost, and the others have come."""
    a, b = world.extended_pair(b_srq=srq.srq, max_send_wr=1024)
    for i in range(count):
        a.send(b"x", signaled=i + 1 == count)
    lost, *others = a.host.send_all()
    for packet in others:
        world.give(b.host, packet)
    return a, b, lost


def test_many_messages_behind_a_gap(ext: World) -> None:
    srq = SRQ(ext.b_host, 1024)
    for i in range(800):
        srq.recv(8, wr_id=i)
    a, b, lost = behind_one_that_is_lost(ext, srq, 600)
    assert b.stats()["out_of_order"] == 599
    ext.give(b.host, lost)
    assert [c.wr_id for c in b.poll_recv()] == list(range(600))
    ext.settle()
    assert a.poll() == [ok("SEND")]
    end(srq, b)


def test_a_share_is_left_for_others(ext: World) -> None:
    """What a QP borrows beyond its share does not take the last of the queue."""
    srq = SRQ(ext.b_host, 1024)
    c, d = ext.extended_pair(b_srq=srq.srq)
    for i in range(300):
        srq.recv(8, wr_id=i)
    a, b, lost = behind_one_that_is_lost(ext, srq, 300)
    assert b.stats()["out_of_order"] == 300 - 128 - 1
    for _ in range(128):
        c.send(b"y")
    for packet in c.host.send_all():
        if packet.dest_qpn == d.qpn:
            ext.give(d.host, packet)
    assert [x.wr_id for x in d.poll_recv()] == list(range(300 - 128, 300))
    for _ in range(128):
        srq.recv(8)
    ext.give(b.host, lost)
    assert ext.run()
    assert a.poll() == [ok("SEND")]
    end(srq, b, d)


def test_what_was_borrowed_beyond_a_share_goes_back_at_reset(ext: World) -> None:
    srq = SRQ(ext.b_host, 1024)
    for i in range(800):
        srq.recv(8, wr_id=i)
    _, b, _ = behind_one_that_is_lost(ext, srq, 600)
    b.to(lib.DP_QPS_RESET)
    b.host.verify()
    ((c, d),) = pairs(ext, srq, 1, extended=True)
    c.send(b"y")
    ext.run()
    assert [x.wr_id for x in d.poll_recv()] == [0]
    end(srq, b, d)
