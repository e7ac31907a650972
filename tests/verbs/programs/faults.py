# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases: requests that must not succeed, and what is left afterwards."""

from __future__ import annotations

import errno
import time

from pair import (
    LOCAL,
    READABLE,
    SIGNALED,
    TARGET,
    WRITABLE,
    Side,
    connect,
    error_of,
    needs,
    pair,
    refused,
    sides,
)
from pyverbs import enums as e
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.wr import SGE

TEXT = bytes(range(1, 251))


def denied(a: Side, b: Side, ib_status: int = e.IBV_WC_REM_ACCESS_ERR) -> None:
    """a's last request was refused by b: both QPs are in error, and nothing works any more.

    InfiniBand and RoCE tell the requester why.  iWARP completes a WRITE when
    TCP has it, and breaks the connection afterwards.
    """
    if TARGET.has("acknowledged"):
        a.failed(ib_status)
    a.broken()
    b.broken()
    if TARGET.has("late sends"):
        a.send([a.sge(1)], wr_id=77)
        assert a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 77


def case_wrong_rkey() -> None:
    for post in (Side.write, Side.read):
        a, b = pair()
        b.put(TEXT)
        a.put(TEXT[::-1], 1000)
        post(a, [a.sge(10, 1000)], (b.mr.rkey ^ 0x100, b.mr.buf))
        denied(a, b)
        assert b.get(250) == TEXT
        assert a.get(250, 1000) == TEXT[::-1]


@needs("atomics")
def case_atomic_with_wrong_rkey() -> None:
    for opcode in (e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP):
        a, b = pair()
        a.atomic(opcode, (b.mr.rkey ^ 0x100, b.mr.buf), 0, 5)
        denied(a, b)
        assert b.number() == 0


@needs("access events")
def case_refused_access_is_told_to_the_responder() -> None:
    a, b = pair()
    a.write([a.sge(10)], (b.mr.rkey ^ 0x100, b.mr.buf))
    a.failed(e.IBV_WC_REM_ACCESS_ERR)
    event = b.context.get_async_event()
    assert event.event_type == e.IBV_EVENT_QP_ACCESS_ERR
    event.ack()


def case_out_of_bounds() -> None:
    for post in (Side.write, Side.read):
        for start in (65_536 - 15, 65_536, -1, 2**40):
            a, b = pair()
            post(a, [a.sge(16)], b.target(start))
            denied(a, b)
        c, d = pair()
        post(c, [c.sge(16)], (d.mr.rkey, 2**64 - 8))
        denied(c, d)


def case_write_over_the_end() -> None:
    """A long message that leaves its region: what lies behind is untouched."""
    a, b = sides()
    around = b.mr
    inner = MR(b.pd, 20_000, TARGET.everything(), address=around.buf + 10_000)
    a.make_qp()
    b.make_qp()
    connect(a, b)
    a.put(b"\xff" * 40_000)
    a.write([a.sge(20_001)], (inner.rkey, inner.buf))
    denied(a, b)
    assert around.read(10_000, 0) == bytes(10_000)
    assert around.read(35_536, 30_000) == bytes(35_536)


def case_write_without_the_right() -> None:
    """The region may only be read."""
    for access in (READABLE, LOCAL):
        a, b = pair()
        shut = MR(b.pd, 4096, access)
        shut.write(TEXT, 250)
        a.write([a.sge(16)], (shut.rkey, shut.buf))
        denied(a, b)
        assert shut.read(250, 0) == TEXT


@needs("guarded READ")
def case_read_without_the_right() -> None:
    """The region may only be written."""
    for access in (WRITABLE, LOCAL):
        a, b = pair()
        shut = MR(b.pd, 4096, access)
        shut.write(TEXT, 250)
        a.read([a.sge(16)], (shut.rkey, shut.buf))
        denied(a, b)
        assert a.get(16) == bytes(16)


@needs("atomics")
def case_atomic_without_the_right() -> None:
    a, b = pair()
    shut = MR(b.pd, 4096, READABLE | WRITABLE)
    a.atomic(e.IBV_WR_ATOMIC_FETCH_AND_ADD, (shut.rkey, shut.buf), 1)
    denied(a, b)
    assert shut.read(8, 0) == bytes(8)


@needs("atomics")
def case_atomic_on_odd_address() -> None:
    """The peer refuses it, or our own device does at once."""
    for offset in (1, 4, 7):
        a, b = pair()
        told = error_of(a.atomic, e.IBV_WR_ATOMIC_FETCH_AND_ADD, b.target(offset), 1)
        if told:
            assert told == errno.EINVAL
            assert a.state() == e.IBV_QPS_RTS
        else:
            denied(a, b, e.IBV_WC_REM_INV_REQ_ERR)
        assert b.get(16) == bytes(16)


@needs("out of band")
def case_queue_pair_without_the_right() -> None:
    """The QP's own access flags, whatever the memory allows."""
    for post, access in ((Side.write, READABLE), (Side.read, WRITABLE), (Side.write, LOCAL)):
        a, b = pair(qp_access=access)
        b.put(TEXT)
        post(a, [a.sge(16)], b.target())
        completion = a.poll()
        assert completion.status in (e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_REM_INV_REQ_ERR)
        assert b.get(250) == TEXT


def case_memory_of_another_domain() -> None:
    """An rkey of a PD that is not the QP's."""
    a, b = pair()
    foreign = MR(PD(b.context), 4096, TARGET.everything())
    foreign.write(bytes(100), 100)
    a.put(TEXT)
    a.write([a.sge(16)], (foreign.rkey, foreign.buf))
    denied(a, b)
    assert foreign.read(100, 0) == bytes(100)


def case_memory_that_went() -> None:
    """A key is worth nothing after ibv_dereg_mr."""
    a, b = pair()
    extra = MR(b.pd, 4096, TARGET.everything())
    rkey, address = extra.rkey, extra.buf
    a.write([a.sge(16)], (rkey, address))
    a.read([a.sge(16)], (rkey, address))
    a.done()
    a.done()
    extra.close()
    a.read([a.sge(16)], (rkey, address))
    denied(a, b)


def local_failure(side: Side) -> None:
    """A request that our own device cannot carry out."""
    status = side.poll().status
    assert status != e.IBV_WC_SUCCESS
    if TARGET.has("exact status"):
        assert status == e.IBV_WC_LOC_PROT_ERR, status
    side.broken()


def case_wrong_lkey() -> None:
    a, b = pair()
    b.recv(100)
    a.send([a.sge(10, 0, lkey=a.mr.lkey ^ 0x100)])
    local_failure(a)


def case_local_memory_of_another_domain() -> None:
    a, b = pair()
    foreign = MR(PD(a.context), 4096, LOCAL)
    a.write([SGE(foreign.buf, 10, foreign.lkey)], b.target())
    local_failure(a)
    assert b.get(16) == bytes(16)


def case_local_out_of_bounds() -> None:
    a, b = pair()
    b.recv(100)
    a.send([a.sge(16, a.size - 15)])
    local_failure(a)


def case_receive_too_small() -> None:
    a, b = pair()
    b.recv(10)
    b.recv(10, wr_id=2)
    a.send([a.sge(11)])
    status = b.poll().status
    assert status in (e.IBV_WC_LOC_LEN_ERR, e.IBV_WC_LOC_QP_OP_ERR), status
    if TARGET.has("acknowledged"):
        status = a.poll().status
        assert status in (e.IBV_WC_REM_INV_REQ_ERR, e.IBV_WC_REM_OP_ERR), status
    assert b.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 2
    a.broken()
    assert b.get(20, 10) == bytes(20)


def case_receive_into_wrong_memory() -> None:
    """The receiver's own mistake: its lkey is wrong, or its region is only to be read."""
    for access, change in ((LOCAL, 0x100), (0, 0)):
        a, b = pair()
        shut = MR(b.pd, 4096, access)
        b.recv_list([SGE(shut.buf, 100, shut.lkey ^ change)])
        a.send([a.sge(11)])
        status = b.poll().status
        assert status != e.IBV_WC_SUCCESS
        if TARGET.has("acknowledged"):
            assert status in (e.IBV_WC_LOC_PROT_ERR, e.IBV_WC_LOC_QP_OP_ERR), status
        a.broken()
        assert shut.read(16, 0) == bytes(16)


@needs("acknowledged")
def case_no_receive() -> None:
    a, b = pair(rnr=2)
    a.send([a.sge(11)], wr_id=1)
    a.send([a.sge(11)], wr_id=2)
    assert a.failed(e.IBV_WC_RNR_RETRY_EXC_ERR).wr_id == 1
    assert a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 2
    assert a.state() == e.IBV_QPS_ERR
    assert b.state() == e.IBV_QPS_RTS


@needs("acknowledged")
def case_late_receive() -> None:
    a, b = pair()
    a.put(TEXT)
    a.send([a.sge(11)])
    time.sleep(0.02)
    a.empty()
    b.recv(100)
    a.done()
    b.done()
    assert b.get(11) == TEXT[:11]


@needs("acknowledged")
def case_late_receives_keep_the_order() -> None:
    """Many not-ready answers, and WRITEs behind them: nothing overtakes."""
    a, b = pair()
    for i in range(6):
        a.put(bytes([i]) * 3000)
        a.send([a.sge(3000)], wr_id=2 * i)
        a.write([a.sge(8)], b.target(60_000), wr_id=2 * i + 1)
        time.sleep(0.002)
        b.recv(3000, wr_id=i)
        assert b.done().wr_id == i
        assert [a.done().wr_id for _ in range(2)] == [2 * i, 2 * i + 1]
        assert b.get(3000) == bytes([i]) * 3000


@needs("acknowledged", "out of band")
def case_peer_gone() -> None:
    a, b = pair(timeout=8, retry=2)
    a.recv(10, wr_id=4)
    b.qp.close()
    a.send([a.sge(11)], wr_id=1)
    a.send([a.sge(11)], wr_id=2, flags=0)
    assert a.failed(e.IBV_WC_RETRY_EXC_ERR).wr_id == 1
    flushed = {a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id for _ in range(2)}
    assert flushed == {2, 4}
    assert a.state() == e.IBV_QPS_ERR


def case_peer_destroyed_with_work() -> None:
    """The connection is of no use afterwards, and whoever asks is told."""
    a, b = pair(timeout=8, retry=2)
    for i in range(8):
        b.recv(10, wr_id=i)
    b.qp.close()
    if TARGET.has("acknowledged"):
        a.read([a.sge(8)], b.target())
        assert a.poll().status == e.IBV_WC_RETRY_EXC_ERR
    a.broken()


def case_flush() -> None:
    a, _b = pair()
    for i in range(3):
        a.recv(10, wr_id=i)
    a.to(e.IBV_QPS_ERR)
    assert [a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id for _ in range(3)] == [0, 1, 2]


@needs("late sends")
def case_flush_of_a_late_send() -> None:
    """With the flag or without: an error is always told."""
    a, _b = pair()
    a.to(e.IBV_QPS_ERR)
    a.send([a.sge(1)], wr_id=10)
    assert a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 10
    a.send([a.sge(1)], wr_id=11, flags=0)
    assert a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 11


@needs("late receives")
def case_flush_of_a_late_receive() -> None:
    a, _b = pair()
    a.to(e.IBV_QPS_ERR)
    a.recv(10, wr_id=9)
    assert a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 9


@needs("acknowledged")
def case_flush_of_requests_under_way() -> None:
    """SENDs that wait for a receive are flushed in order."""
    a, _b = pair()
    for i in range(5):
        a.send([a.sge(8)], wr_id=i, flags=SIGNALED if i % 2 else 0)
    a.recv(8, wr_id=20)
    time.sleep(0.01)
    a.to(e.IBV_QPS_ERR)
    found = [a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id for _ in range(6)]
    assert [i for i in found if i < 20] == list(range(5))
    assert 20 in found


def case_error_behind_good_requests() -> None:
    """What was right before the mistake is done, what comes behind is not."""
    a, b = pair()
    a.put(TEXT)
    for i in range(5):
        a.write([a.sge(10, 10 * i)], b.target(10 * i), wr_id=i)
    for i in range(5):
        assert a.done().wr_id == i
    a.read([a.sge(10)], (b.mr.rkey ^ 0x100, b.mr.buf), wr_id=5)
    a.write([a.sge(10)], b.target(5000), wr_id=6)
    if TARGET.has("acknowledged"):
        assert a.failed(e.IBV_WC_REM_ACCESS_ERR).wr_id == 5
        assert a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 6
        assert b.get(10, 5000) == bytes(10)
    a.broken()
    assert b.get(50) == TEXT[:50]


def case_destroy_with_work_outstanding() -> None:
    """A QP goes at any time; its CQ, regions and PD after it."""
    for _ in range(4):
        a, b = pair()
        for i in range(30):
            b.recv(1000, wr_id=i)
            a.recv(1000, wr_id=i)
        for i in range(10):
            a.write([a.sge(20_000)], b.target(), wr_id=i)
            a.read([a.sge(20_000, 20_000)], b.target(), wr_id=i)
        for side in (a, b):
            side.qp.close()
            side.cq.close()
            side.mr.close()
            side.pd.close()
    c, d = pair()
    d.recv(10)
    c.send([c.sge(3)])
    assert d.done().byte_len == 3


def case_queue_full() -> None:
    a, b = pair(max_send_wr=4, max_recv_wr=2)
    room = b.qp.query(0x1FFFFF)[1].cap.max_recv_wr
    assert room >= 2
    for _ in range(room):
        b.recv(1)
    refused(errno.ENOMEM, b.recv, 1)
    a.send([a.sge(1)])
    assert b.done().byte_len == 1
    a.done()
    b.recv(1)


def case_too_many_elements() -> None:
    a, b = pair(max_send_sge=2, max_recv_sge=2)
    too_many = a.context.query_device().max_sge + 1
    for call in (a.send, b.recv_list):
        refused(errno.EINVAL, call, [a.sge(1)] * too_many)
    assert a.state() == e.IBV_QPS_RTS


def case_more_than_the_device_has() -> None:
    """Queues longer than the device's limit are refused, not cut."""
    device = TARGET.open().query_device()
    side = Side(TARGET.open(), max_send_wr=device.max_qp_wr + 1)
    assert error_of(side.make_qp) in (errno.EINVAL, errno.ENOMEM)
