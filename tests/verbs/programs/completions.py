# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases: completion queues, channels and their events."""

from __future__ import annotations

import errno
import time

from pair import SIGNALED, TARGET, Side, connect, needs, pair, refused
from pyverbs import enums as e
from pyverbs.cq import CQ, CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

TEXT = bytes(range(1, 251))
SEND_OPS = (
    e.IBV_QP_EX_WITH_SEND
    | e.IBV_QP_EX_WITH_SEND_WITH_IMM
    | e.IBV_QP_EX_WITH_RDMA_WRITE
    | e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | e.IBV_QP_EX_WITH_RDMA_READ
    | e.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
)


def case_signalling() -> None:
    a, b = pair()
    for _ in range(3):
        b.recv(10)
    a.send([a.sge(1)], flags=0, wr_id=1)
    a.send([a.sge(1)], flags=0, wr_id=2)
    a.send([a.sge(1)], wr_id=3)
    assert a.done().wr_id == 3
    a.empty()


def case_all_are_signalled() -> None:
    """sq_sig_all: no request needs the flag."""
    a, b = pair(sq_sig_all=1)
    b.recv(10)
    a.send([a.sge(1)], flags=0, wr_id=9)
    assert a.done().wr_id == 9


def case_unsignalled_requests_free_the_queue() -> None:
    """A signalled one now and then is enough to use the send queue for ever."""
    a, b = pair(max_send_wr=16)
    a.put(TEXT)
    for i in range(100):
        last = i % 8 == 7
        a.write([a.sge(8, i)], b.target(8 * i), flags=SIGNALED if last else 0, wr_id=i)
        if last:
            assert a.done().wr_id == i
    a.empty()
    assert b.holds(TEXT[96:104], 8 * 96)


def case_poll_many_at_once() -> None:
    a, b = pair()
    for i in range(10):
        b.recv(10, wr_id=i)
    for i in range(10):
        a.send([a.sge(i)], wr_id=i)
    found: list = []
    limit = time.monotonic() + 30
    while len(found) < 10:
        assert time.monotonic() < limit
        count, completions = b.cq.poll(4)
        assert count <= 4
        found += completions[:count]
    assert [(c.wr_id, c.byte_len) for c in found] == [(i, i) for i in range(10)]
    assert b.cq.poll(4)[0] == 0


def case_queue_filled_to_its_end() -> None:
    """As many completions as the CQ has entries, and none is lost."""
    a, b = pair(cqe=32, max_recv_wr=32, max_send_wr=32)
    for i in range(32):
        b.recv(4, wr_id=i)
    for i in range(32):
        a.send([a.sge(4)], wr_id=i)
        assert a.done().wr_id == i
    assert [b.done().wr_id for _ in range(32)] == list(range(32))
    b.empty()


@needs("spare entries")
def case_queue_of_one_entry() -> None:
    """perftest's event loop may leave a completion in such a CQ, and sends again."""
    a, b = pair(cqe=1)
    for i in range(2):
        b.recv(4, wr_id=i)
        a.send([a.sge(4)], wr_id=i)
    time.sleep(0.05)
    assert [a.done().wr_id for _ in range(2)] == [0, 1]


def case_queue_overrun() -> None:
    """Completions without room are lost, which is told; what was there before stays."""
    a, b = pair(cqe=8)
    room = b.cq.cqe
    assert room <= 48
    for i in range(room + 8):
        b.recv(4, wr_id=i)
    for _ in range(room + 8):
        a.send([a.sge(4)], flags=0)
    event = b.context.get_async_event()
    assert event.event_type == e.IBV_EVENT_CQ_ERR
    event.ack()
    assert [b.done().wr_id for _ in range(8)] == list(range(8))


def case_completion_channel() -> None:
    a, b = pair(events=True)
    b.cq.req_notify()
    for i in range(100):
        b.recv(10)
        a.send([a.sge(10)], wr_id=i)
        b.event()
        b.cq.req_notify()
        b.done(e.IBV_WC_RECV)
        a.done()


def case_one_event_for_one_request() -> None:
    """Completions after the event raise no other until it is asked for again."""
    a, b = pair(events=True)
    for _ in range(4):
        b.recv(10)
    b.cq.req_notify()
    a.send([a.sge(1)])
    b.event()
    a.send([a.sge(1)])
    a.send([a.sge(1)])
    for _ in range(3):
        b.done()
    # A second request is armed by what comes after it.
    b.cq.req_notify()
    b.empty()
    a.send([a.sge(1)])
    b.event()
    b.done()


def case_send_completions_raise_events() -> None:
    a, b = pair(events=True)
    a.cq.req_notify()
    a.write([a.sge(8)], b.target(), wr_id=4)
    a.event()
    assert a.done(e.IBV_WC_RDMA_WRITE).wr_id == 4
    a.cq.req_notify()
    a.read([a.sge(8)], b.target(), wr_id=5)
    a.event()
    assert a.done(e.IBV_WC_RDMA_READ).wr_id == 5


@needs("solicited")
def case_solicited_events() -> None:
    a, b = pair(events=True)
    b.cq.req_notify(True)
    b.recv(10)
    b.recv(10)
    a.send([a.sge(1)])
    a.done()
    time.sleep(0.05)
    a.send([a.sge(2)], flags=SIGNALED | e.IBV_SEND_SOLICITED)
    b.event()
    # Both are there: only the second one woke us.
    assert [b.done().byte_len for _ in range(2)] == [1, 2]


@needs("solicited", "error events")
def case_errors_raise_solicited_events() -> None:
    _a, b = pair(events=True)
    b.recv(10, wr_id=3)
    b.cq.req_notify(True)
    b.to(e.IBV_QPS_ERR)
    b.event()
    assert b.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 3


def case_two_queues_on_a_channel() -> None:
    """The event names the CQ that it is of."""
    a, b = pair(events=True)
    c = Side(b.context, events=True)
    c.channel = b.channel
    c.cq = c.recv_cq = CQ(b.context, 16, None, b.channel, 0)
    c.make_qp()
    d = Side(b.context)
    d.make_qp()
    connect(d, c)
    for sender, receiver in ((a, b), (d, c), (a, b)):
        receiver.cq.req_notify()
        receiver.recv(10)
        sender.send([sender.sge(3)])
        receiver.event()  # fails when it is another's
        receiver.done(e.IBV_WC_RECV)
        sender.done()


def case_event_nobody_took() -> None:
    """A CQ with such an event can be destroyed."""
    a, b = pair(events=True)
    b.cq.req_notify()
    b.recv(10)
    a.send([a.sge(1)])
    a.done()
    time.sleep(0.05)
    b.qp.close()
    b.cq.close()
    b.channel.close()


def case_nobody_polls() -> None:
    """The peer's program only sleeps: its device answers without it."""
    a, b = pair()
    b.put(TEXT)
    for i in range(50):
        a.read([a.sge(250)], b.target())
        time.sleep(0.001 * (i % 4))
        a.done()
    # Nobody polls at all: what was posted still happens.
    b.put(bytes(250))
    a.write([a.sge(250)], b.target(), flags=0)
    assert b.holds(TEXT)


def case_memory_poller() -> None:
    """Ping-pong by WRITE, each side watching its memory's last byte, polling rarely."""
    a, b = pair()
    for i in range(1, 200):
        for here, there in ((a, b), (b, a)):
            here.put(bytes([i]) * 32)
            here.write([here.sge(32)], there.target(100))
            limit = time.monotonic() + 10
            while there.get(1, 131) != bytes([i]):
                assert time.monotonic() < limit
            here.done()


@needs("resize")
def case_resize() -> None:
    """Grown with completions inside, and shrunk to what they need, but not below."""
    a, b = pair(cqe=8, max_recv_wr=32)
    for i in range(8):
        b.recv(10, wr_id=i)
        a.send([a.sge(1)])
        a.done()
    time.sleep(0.05)
    b.cq.resize(64)
    assert b.cq.cqe >= 64
    for i in range(8, 40):
        b.recv(10, wr_id=i)
        a.send([a.sge(1)])
        a.done()
    time.sleep(0.05)
    refused(errno.EINVAL, b.cq.resize, 20)
    assert [b.done().wr_id for _ in range(40)] == list(range(40))


def case_queues_of_no_size() -> None:
    refused(errno.EINVAL, CQ, TARGET.open(), 0)


@needs("posting calls", "immediate", "atomics")
def case_extended_qp() -> None:
    context = TARGET.open()
    a, b = Side(context, max_inline_data=64), Side(context)
    a.make_extended_qp(SEND_OPS)
    b.make_qp()
    connect(a, b)
    for _ in range(4):
        b.recv(100)
    a.put(TEXT)
    qp = a.qp
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 1, SIGNALED
    qp.wr_send()
    qp.wr_set_sge(a.sge(50))
    qp.wr_id = 2
    qp.wr_send_imm(0x05060708)
    qp.wr_set_sge(a.sge(11))
    qp.wr_id = 3
    qp.wr_rdma_write(*b.target(512))
    qp.wr_set_sge(a.sge(60, 40))
    qp.wr_id = 4
    qp.wr_rdma_write_imm(*b.target(600), 77)
    qp.wr_set_sge(a.sge(9))
    qp.wr_id = 5
    qp.wr_atomic_fetch_add(*b.target(1024), 1000)
    qp.wr_set_sge(a.sge(8, 2048))
    qp.wr_id = 6
    qp.wr_rdma_read(*b.target(1024))
    qp.wr_set_sge(a.sge(8, 3000))
    qp.wr_complete()
    assert [a.done().wr_id for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert b.get(60, 512) == TEXT[40:100]
    assert a.number(3000) == 1000
    lengths = [b.done().byte_len for _ in range(3)]
    assert lengths == [50, 11, 9], lengths


@needs("posting calls", "posting lists")
def case_extended_qp_with_lists() -> None:
    context = TARGET.open()
    a, b = Side(context), Side(context)
    a.make_extended_qp(SEND_OPS)
    b.make_qp()
    connect(a, b)
    a.put(TEXT)
    b.recv(100)
    a.qp.wr_start()
    a.qp.wr_id, a.qp.wr_flags = 2, SIGNALED
    a.qp.wr_send()
    a.qp.wr_set_sge_list(3, [a.sge(5), a.sge(6, 100), a.sge(1, 50)])
    a.qp.wr_complete()
    assert a.done().wr_id == 2
    assert b.done().byte_len == 12
    assert b.get(12) == TEXT[:5] + TEXT[100:106] + TEXT[50:51]


@needs("posting calls")
def case_extended_posting_taken_back() -> None:
    context = TARGET.open()
    a, b = Side(context), Side(context)
    a.make_extended_qp(SEND_OPS)
    b.make_qp()
    connect(a, b)
    b.recv(100)
    qp = a.qp
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 8, SIGNALED
    qp.wr_send()
    qp.wr_set_sge(a.sge(1))
    qp.wr_abort()
    time.sleep(0.05)
    a.empty()
    b.empty()
    a.send([a.sge(2)], wr_id=9)
    assert a.done().wr_id == 9
    assert b.done().byte_len == 2


@needs("polling calls", "immediate")
def case_extended_cq() -> None:
    context = TARGET.open()
    cq = CQEX(context, CqInitAttrEx(cqe=16, wc_flags=e.IBV_WC_STANDARD_FLAGS))
    b, c = Side(context), Side(context)
    cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = c.access
    c.qp = QP(c.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap), attr)
    b.make_qp()
    connect(b, c)
    c.recv(100, wr_id=55)
    b.send([b.sge(33)], e.IBV_WR_SEND_WITH_IMM, imm=0x11223344)
    limit = time.monotonic() + 10
    while (found := cq.start_poll(PollCqAttr())) == errno.ENOENT:
        assert time.monotonic() < limit
    assert found == 0
    found = {
        "wr_id": cq.wr_id,
        "status": cq.status,
        "opcode": cq.read_opcode(),
        "byte_len": cq.read_byte_len(),
        "imm_data": cq.read_imm_data(),
        "qp_num": cq.read_qp_num(),
        "with_imm": cq.read_wc_flags() & e.IBV_WC_WITH_IMM,
    }
    assert found == {
        "wr_id": 55,
        "status": e.IBV_WC_SUCCESS,
        "opcode": e.IBV_WC_RECV,
        "byte_len": 33,
        "imm_data": 0x11223344,
        "qp_num": c.qp.qp_num,
        "with_imm": e.IBV_WC_WITH_IMM,
    }, found
    assert cq.poll_next() == errno.ENOENT
    cq.end_poll()
