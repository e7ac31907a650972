# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases: what the operations carry, and where it arrives."""

from __future__ import annotations

import errno
import itertools
import os
import time

from pair import SIGNALED, TARGET, Side, connect, needs, pair, refused, sides
from pyverbs import enums as e
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.wr import SGE, RecvWR

TEXT = bytes(range(1, 251))
GUARD = bytes(16)


def case_send() -> None:
    a, b = pair()
    b.recv(1000, wr_id=7)
    a.put(TEXT)
    a.send([a.sge(250)], wr_id=3)
    received = b.done(e.IBV_WC_RECV)
    assert (received.wr_id, received.byte_len, received.qp_num) == (7, 250, b.qp.qp_num)
    assert b.get(250) == TEXT
    assert b.get(16, 250) == GUARD
    sent = a.done(e.IBV_WC_SEND)
    assert (sent.wr_id, sent.qp_num) == (3, a.qp.qp_num)
    a.empty()
    b.empty()


def case_write() -> None:
    """Data is in place when a SEND that follows it has arrived; the peer's CQ tells nothing."""
    a, b = pair()
    b.recv(10)
    a.put(TEXT)
    a.write([a.sge(250)], b.target(1000), wr_id=1)
    a.send([a.sge(1)], wr_id=2)
    assert b.done(e.IBV_WC_RECV).byte_len == 1
    assert b.get(250, 1000) == TEXT
    assert b.get(16, 984) == GUARD
    assert b.get(16, 1250) == GUARD
    assert a.done(e.IBV_WC_RDMA_WRITE).wr_id == 1
    assert a.done(e.IBV_WC_SEND).wr_id == 2
    b.empty()


def case_read() -> None:
    a, b = pair()
    b.put(TEXT, 77)
    a.read([a.sge(250, 500)], b.target(77), wr_id=8)
    completion = a.done(e.IBV_WC_RDMA_READ)
    assert completion.wr_id == 8
    assert a.get(250, 500) == TEXT
    assert a.get(16, 484) == GUARD
    assert a.get(16, 750) == GUARD
    b.empty()


def case_read_sees_what_was_written_before() -> None:
    a, b = pair()
    for i in range(1, 40):
        a.put(bytes([i]) * 3000)
        a.write([a.sge(3000)], b.target(), flags=0)
        a.read([a.sge(3000, 8000)], b.target())
        a.done(e.IBV_WC_RDMA_READ)
        assert a.get(3000, 8000) == bytes([i]) * 3000


def case_scatter_gather() -> None:
    a, b = pair()
    a.put(TEXT)
    parts = [(100, 50), (0, 3), (7, 1), (200, 41)]
    expected = b"".join(TEXT[o : o + n] for o, n in parts)
    b.recv_list([b.sge(10, 0), b.sge(1, 100), b.sge(500, 200)])
    a.send([a.sge(n, o) for o, n in parts])
    assert b.done().byte_len == len(expected)
    assert b.get(10) + b.get(1, 100) + b.get(len(expected) - 11, 200) == expected
    a.done()
    a.write([a.sge(n, o) for o, n in parts], b.target(1000))
    a.done()
    assert b.holds(expected, 1000)


@needs("empty elements")
def case_empty_element() -> None:
    """An SGE without length adds nothing, wherever it stands."""
    a, b = pair()
    a.put(TEXT)
    b.recv(100)
    a.send([a.sge(0), a.sge(5, 10), a.sge(0, 50), a.sge(2, 60), a.sge(0)])
    assert b.done().byte_len == 7
    assert b.get(7) == TEXT[10:15] + TEXT[60:62]
    a.done()


def case_all_elements_of_the_limit() -> None:
    count = 6
    a, b = pair(max_send_sge=count, max_recv_sge=count)
    data = os.urandom(count * 1000)
    a.put(data)
    b.recv_list([b.sge(1000, 2000 * i) for i in range(count)])
    a.send([a.sge(1000, 1000 * i) for i in range(count)])
    assert b.done().byte_len == count * 1000
    assert b"".join(b.get(1000, 2000 * i) for i in range(count)) == data
    a.done()


@needs("scattered READ")
def case_scattered_read() -> None:
    a, b = pair()
    b.put(TEXT)
    a.read([a.sge(3, 5), a.sge(200, 1000), a.sge(47, 3000)], b.target())
    a.done(e.IBV_WC_RDMA_READ)
    assert a.get(3, 5) + a.get(200, 1000) + a.get(47, 3000) == TEXT


def case_no_data() -> None:
    """Messages of no bytes, with an empty element and with none."""
    a, b = pair()
    for _ in range(2):
        b.recv(100)
    a.send([a.sge(0)])
    wr = a.request([a.sge(0)])
    wr.num_sge = 0
    a.qp.post_send(wr, None)
    for _ in range(2):
        assert b.done(e.IBV_WC_RECV).byte_len == 0
        a.done(e.IBV_WC_SEND)
    assert b.get(16) == GUARD


def case_write_and_read_no_data() -> None:
    a, b = pair()
    a.write([a.sge(0)], b.target())
    a.read([a.sge(0)], b.target())
    assert a.done().opcode == e.IBV_WC_RDMA_WRITE
    assert a.done().opcode == e.IBV_WC_RDMA_READ
    assert b.get(16) == GUARD
    assert b.state() == e.IBV_QPS_RTS


def case_receive_of_no_room() -> None:
    """A receive with an element of no length takes a message of no bytes."""
    a, b = pair()
    b.recv(0, wr_id=6)
    a.send([a.sge(0)])
    received = b.done(e.IBV_WC_RECV)
    assert (received.wr_id, received.byte_len) == (6, 0)


def case_around_the_path_mtu() -> None:
    """Each length at which the number of packets changes, by every operation."""
    a, b = pair()
    data = os.urandom(9000)
    a.put(data)
    b.put(data, 20000)
    for mtu in (1024, 4096):
        for length in (mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 2 * mtu + 1):
            b.recv(length)
            a.write([a.sge(length)], b.target(40001))
            a.send([a.sge(length)])
            assert b.done(e.IBV_WC_RECV).byte_len == length
            a.read([a.sge(length, 30003)], b.target(20000))
            for _ in range(3):
                a.done()
            assert b.get(length) == data[:length]
            assert b.get(length, 40001) == data[:length]
            assert b.get(16, 40001 + length) == GUARD
            assert a.get(length, 30003) == data[:length]
            b.put(bytes(length + 16), 40001)


def case_long_messages() -> None:
    a, b = pair()
    data = os.urandom(50_001)
    a.put(data)
    for opcode in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_SEND):
        b.put(bytes(b.size))
        if opcode == e.IBV_WR_SEND:
            b.recv(60_000, 5)
        a.send([a.sge(len(data))], opcode, remote=b.target(5))
        a.done()
        if opcode == e.IBV_WR_SEND:
            b.done(e.IBV_WC_RECV)
        assert b.holds(data, 5)
        assert b.get(5) == bytes(5), "written in front of the buffer"
        assert b.get(9, len(data) + 5) == bytes(9), "written behind the buffer"
    a.put(bytes(a.size))
    a.read([a.sge(len(data), 9)], b.target(5))
    a.done(e.IBV_WC_RDMA_READ)
    assert a.get(len(data), 9) == data


def case_very_long_messages() -> None:
    """4 MiB: more than any window holds."""
    size = 4 << 20
    a, b = pair(size=size + 64)
    data = os.urandom(size)
    a.put(data)
    b.recv(size + 64, 0)
    a.send([a.sge(size)])
    assert b.done(e.IBV_WC_RECV).byte_len == size
    a.done()
    assert b.get(size) == data
    a.put(bytes(size))
    a.read([a.sge(size, 33)], b.target())
    a.done()
    assert a.get(size, 33) == data
    b.put(bytes(size + 64))
    a.write([a.sge(size, 33)], b.target(64))
    a.done()
    assert b.holds(data, 64)


def case_inline() -> None:
    a, b = pair(max_inline_data=64)
    assert a.qp.query(0x1FFFFF)[1].cap.max_inline_data >= 64
    b.recv(1000)
    b.recv(1000, 1000)
    a.put(TEXT)
    flags = e.IBV_SEND_INLINE | SIGNALED
    for _ in range(2):
        # Inline data needs no key, and is taken in the call.
        a.send([a.sge(24, 0, lkey=0), a.sge(40, 24, lkey=0)], flags=flags)
        a.put(bytes(250))
    assert b.done().byte_len == 64
    b.done()
    assert b.get(64) == TEXT[:64]
    assert b.get(64, 1000) == bytes(64)
    a.done()
    a.done()


def case_inline_write() -> None:
    a, b = pair(max_inline_data=64)
    a.put(TEXT)
    a.write([a.sge(64, 10, lkey=0)], b.target(300), flags=e.IBV_SEND_INLINE | SIGNALED)
    a.put(bytes(250))
    a.done(e.IBV_WC_RDMA_WRITE)
    assert b.holds(TEXT[10:74], 300)


def case_inline_too_long() -> None:
    a, _b = pair(max_inline_data=16)
    limit = a.qp.query(0x1FFFFF)[1].cap.max_inline_data
    flags = e.IBV_SEND_INLINE | SIGNALED
    refused(errno.EINVAL, a.send, [a.sge(limit + 1)], flags=flags)
    assert a.state() == e.IBV_QPS_RTS


@needs("immediate")
def case_immediate() -> None:
    a, b = pair()
    b.recv(100)
    b.recv(100)
    a.put(TEXT)
    a.send([a.sge(20)], e.IBV_WR_SEND_WITH_IMM, imm=0x01020304)
    a.send([a.sge(30)], e.IBV_WR_RDMA_WRITE_WITH_IMM, imm=0xA1B2C3D4, remote=b.target(500))
    first, second = b.done(e.IBV_WC_RECV), b.done(e.IBV_WC_RECV_RDMA_WITH_IMM)
    for completion, imm, length in ((first, 0x01020304, 20), (second, 0xA1B2C3D4, 30)):
        assert completion.wc_flags & e.IBV_WC_WITH_IMM
        assert completion.imm_data == imm
        assert completion.byte_len == length
    assert b.get(30, 500) == TEXT[:30]


@needs("immediate")
def case_long_messages_with_immediate() -> None:
    """The immediate comes with the last packet, and the receive is used only there."""
    a, b = pair()
    data = os.urandom(20_000)
    a.put(data)
    b.recv(20_000)
    b.recv(0)
    a.send([a.sge(20_000)], e.IBV_WR_SEND_WITH_IMM, imm=5)
    a.send([a.sge(20_000)], e.IBV_WR_RDMA_WRITE_WITH_IMM, imm=6, remote=b.target(30_000))
    for imm in (5, 6):
        completion = b.done()
        assert (completion.imm_data, completion.byte_len) == (imm, 20_000)
    assert b.get(20_000) == data
    assert b.get(20_000, 30_000) == data


@needs("immediate")
def case_immediate_without_data() -> None:
    a, b = pair()
    b.recv(10)
    b.recv(10)
    a.send([a.sge(0)], e.IBV_WR_SEND_WITH_IMM, imm=1)
    a.send([a.sge(0)], e.IBV_WR_RDMA_WRITE_WITH_IMM, imm=2, remote=b.target())
    assert [(c.imm_data, c.byte_len) for c in (b.done(), b.done())] == [(1, 0), (2, 0)]


@needs("atomics")
def case_atomics() -> None:
    a, b = pair()
    b.put((40).to_bytes(8, "little"), 8)
    for opcode, compare_add, swap, before, after in (
        (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 40, 42),
        (e.IBV_WR_ATOMIC_CMP_AND_SWP, 41, 99, 42, 42),
        (e.IBV_WR_ATOMIC_CMP_AND_SWP, 42, 99, 42, 99),
        (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 2**64 - 100, 0, 99, 2**64 - 1),
        (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 2**64 - 1, 0),
    ):
        a.atomic(opcode, b.target(8), compare_add, swap, result=64)
        wanted = (
            e.IBV_WC_FETCH_ADD if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD else e.IBV_WC_COMP_SWAP
        )
        a.done(wanted)
        assert a.number(64) == before
        assert b.number(8) == after
    assert b.get(8) == bytes(8)
    assert b.get(8, 16) == bytes(8)


@needs("atomics")
def case_atomics_at_once() -> None:
    """A counter that two QPs raise, many requests outstanding."""
    context = TARGET.open()
    a, b = pair(context=context)
    c, d = sides(context)
    d.pd, d.mr = b.pd, b.mr
    c.make_qp()
    d.make_qp()
    connect(c, d)
    for i in range(32):
        for side in (a, c):
            side.atomic(e.IBV_WR_ATOMIC_FETCH_AND_ADD, b.target(), 1, result=8 * i)
    for side in (a, c):
        for _ in range(32):
            side.done()
    assert b.number() == 64
    seen = [side.number(8 * i) for side in (a, c) for i in range(32)]
    assert sorted(seen) == list(range(64))
    assert all(seen[half : half + 32] == sorted(seen[half : half + 32]) for half in (0, 32))


@needs("refused invalidate")
def case_a_peer_cannot_invalidate_ordinary_memory() -> None:
    a, b = pair()
    extra = MR(b.pd, 4096, TARGET.everything())
    b.recv(100)
    a.write([a.sge(1)], (extra.rkey, extra.buf))
    a.done()
    a.send([a.sge(8)], e.IBV_WR_SEND_WITH_INV, imm=extra.rkey)
    assert a.poll().status != e.IBV_WC_SUCCESS
    assert b.poll().status != e.IBV_WC_SUCCESS
    b.broken()


def case_list_of_requests() -> None:
    """One call posts a chain; all are done, in order."""
    a, b = pair()
    a.put(TEXT)
    receives = []
    for i in range(8):
        receives.append(RecvWR(wr_id=i, num_sge=1, sg=[b.sge(10, 100 * i)]))
        if i:
            receives[i - 1].next_wr = receives[i]
    b.qp.post_recv(receives[0], None)
    chain = [a.request([a.sge(10, 10 * i)], wr_id=i) for i in range(8)]
    for before, after in itertools.pairwise(chain):
        before.next_wr = after
    a.qp.post_send(chain[0], None)
    assert [a.done().wr_id for _ in range(8)] == list(range(8))
    assert [b.done().wr_id for _ in range(8)] == list(range(8))
    for i in range(8):
        assert b.get(10, 100 * i) == TEXT[10 * i : 10 * i + 10]


def case_many_messages() -> None:
    """More than the queues and windows hold, in order."""
    total = 1000
    a, b = pair()
    sent = received = confirmed = 0
    for i in range(32):
        b.recv(8, 8 * i, wr_id=i)
    limit = time.monotonic() + 60
    while received < total or confirmed < total:
        assert time.monotonic() < limit
        if sent < total and sent < received + 30 and sent < confirmed + 60:
            a.put(sent.to_bytes(8, "little"), 8 * (sent % 64))
            a.send([a.sge(8, 8 * (sent % 64))], wr_id=sent)
            sent += 1
        count, completions = b.cq.poll(4)
        for completion in completions[:count]:
            assert completion.status == e.IBV_WC_SUCCESS
            slot = completion.wr_id
            assert slot == received % 32
            assert b.number(8 * slot) == received
            received += 1
            b.recv(8, 8 * slot, wr_id=slot)
        count, completions = a.cq.poll(16)
        for completion in completions[:count]:
            assert completion.status == e.IBV_WC_SUCCESS
            assert completion.wr_id == confirmed
            confirmed += 1


def case_many_outstanding() -> None:
    """A full send queue of WRITEs and READs, in any mixture."""
    a, b = pair()
    data = os.urandom(32 * 1000)
    a.put(data)
    b.put(data[::-1], 32_000)
    for i in range(32):
        a.write([a.sge(1000, 1000 * i)], b.target(1000 * i), wr_id=2 * i)
        a.read([a.sge(500, 32_000 + 1000 * i)], b.target(32_000 + 1000 * i), wr_id=2 * i + 1)
    finished = [a.done().wr_id for _ in range(64)]
    if TARGET.has("completion order"):
        assert finished == list(range(64))
    assert [i for i in finished if i % 2] == list(range(1, 64, 2))
    assert [i for i in finished if i % 2 == 0] == list(range(0, 64, 2))
    assert b.get(32_000) == data
    back = data[::-1]
    for i in range(32):
        assert a.get(500, 32_000 + 1000 * i) == back[1000 * i : 1000 * i + 500]


def case_both_directions() -> None:
    a, b = pair()
    for side in (a, b):
        for i in range(20):
            side.recv(2000, 2000 * i, wr_id=i)
    a.put(TEXT * 8, 60_000)
    b.put(TEXT[::-1] * 8, 60_000)
    # The active side opens the conversation, as MPA of iWARP wants it.
    a.send([a.sge(2000, 60_000)], wr_id=100)
    b.done(e.IBV_WC_RECV)
    a.done(e.IBV_WC_SEND)
    for i in range(19):
        a.send([a.sge(2000, 60_000)], wr_id=101 + i)
        b.send([b.sge(2000, 60_000)], wr_id=100 + i)
    for side, receives, wanted in ((a, 19, TEXT[::-1] * 8), (b, 19, TEXT * 8)):
        opcodes = [side.done().opcode for _ in range(19 + receives)]
        assert opcodes.count(e.IBV_WC_RECV) == receives
        assert all(side.get(2000, 2000 * i) == wanted for i in range(19))


def case_fence() -> None:
    """A fenced SEND of what a READ brought carries the new bytes."""
    a, b = pair()
    b.recv(8000, 20_000)
    b.put(os.urandom(8000))
    a.read([a.sge(8000)], b.target())
    a.send([a.sge(8000)], flags=SIGNALED | e.IBV_SEND_FENCE)
    b.done(e.IBV_WC_RECV)
    assert b.get(8000, 20_000) == b.get(8000)


def case_many_qps() -> None:
    """Sixteen connections that share a CQ, a PD and their memory."""
    context = TARGET.open()
    first, second = sides(context)
    ends = []
    for _ in range(16):
        a, b = Side.__new__(Side), Side.__new__(Side)
        a.__dict__.update(first.__dict__)
        b.__dict__.update(second.__dict__)
        a.make_qp()
        b.make_qp()
        connect(a, b)
        ends.append((a, b))
    assert len({a.qp.qp_num for a, _ in ends} | {b.qp.qp_num for _, b in ends}) == 32
    for i, (a, b) in enumerate(ends):
        b.recv(100, 100 * i, wr_id=i)
        a.put(bytes([i + 1]) * 10, 100 * i)
    for i, (a, _) in enumerate(ends):
        a.send([a.sge(10, 100 * i)], wr_id=i)
    numbers = {b.qp.qp_num: i for i, (_, b) in enumerate(ends)}
    for _ in ends:
        completion = second.done(e.IBV_WC_RECV)
        assert numbers[completion.qp_num] == completion.wr_id
        first.done(e.IBV_WC_SEND)
    for i in range(16):
        assert second.get(10, 100 * i) == bytes([i + 1]) * 10


def case_two_cqs() -> None:
    """Sends and receives complete where the QP says."""
    a, b = sides()
    a.recv_cq, b.recv_cq = CQ(a.context, 16, None, None, 0), CQ(b.context, 16, None, None, 0)
    a.make_qp()
    b.make_qp()
    connect(a, b)
    b.recv(10)
    a.recv(10)
    a.send([a.sge(4)])
    assert b.done(e.IBV_WC_RECV, cq=b.recv_cq).byte_len == 4
    a.done(e.IBV_WC_SEND, cq=a.cq)
    b.send([b.sge(5)])
    assert a.done(e.IBV_WC_RECV, cq=a.recv_cq).byte_len == 5
    b.done(e.IBV_WC_SEND, cq=b.cq)


def case_two_contexts() -> None:
    """The peers may have opened the device on their own."""
    a, b = Side(TARGET.open()), Side(TARGET.open())
    a.make_qp()
    b.make_qp()
    connect(a, b)
    b.recv(100)
    a.put(TEXT)
    a.send([a.sge(100)])
    b.done()
    a.done()
    assert b.get(100) == TEXT[:100]
    a.qp.close()
    a.mr.close()
    a.cq.close()
    a.pd.close()
    a.context.close()
    assert b.context.query_device().phys_port_cnt == 1


def case_two_memory_regions() -> None:
    """A message out of two regions, into two others."""
    a, b = pair()
    more_a, more_b = MR(a.pd, 4096, a.access), MR(b.pd, 4096, b.access)
    a.put(TEXT)
    more_a.write(TEXT[::-1], 250)
    b.recv_list([SGE(more_b.buf + 7, 60, more_b.lkey), b.sge(500, 100)])
    a.send([a.sge(40), SGE(more_a.buf, 50, more_a.lkey)])
    assert b.done().byte_len == 90
    expected = TEXT[:40] + TEXT[::-1][:50]
    assert more_b.read(60, 7) + b.get(30, 100) == expected
    a.done()
