# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What verbs programs do, one function each; argv names the one to run."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time

from pair import ALL, Side, pair
from pyverbs import enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR, MW
from pyverbs.pd import PD, ParentDomain, ParentDomainInitAttr
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqInitAttr
from pyverbs.wr import SendWR

TEXT = bytes(range(1, 251))


def refused(code: int, call, *args, **kwargs) -> None:
    """The call fails, with this errno."""
    try:
        call(*args, **kwargs)
    except PyverbsRDMAError as error:
        got = error.error_code
    else:
        got = 0
    assert got == code, f"{call} gave {got}, not {code}"


# ---- data ---------------------------------------------------------------------------------


def case_send() -> None:
    a, b = pair()
    b.recv(1000, wr_id=7)
    a.mr.write(TEXT, len(TEXT))
    a.send([a.sge(len(TEXT))], wr_id=3)
    received = b.done(e.IBV_WC_RECV)
    assert (received.wr_id, received.byte_len, received.qp_num) == (7, 250, b.qp.qp_num)
    assert received.src_qp == a.qp.qp_num
    assert b.mr.read(250, 0) == TEXT
    sent = a.done(e.IBV_WC_SEND)
    assert sent.wr_id == 3
    a.empty()


def case_scatter_gather() -> None:
    a, b = pair()
    a.mr.write(TEXT, len(TEXT))
    parts = [(100, 50), (0, 3), (7, 0), (200, 41)]
    expected = b"".join(TEXT[o : o + n] for o, n in parts)
    b.recv_list([b.sge(10, 0), b.sge(1, 100), b.sge(500, 200)])
    a.send([a.sge(n, o) for o, n in parts])
    assert b.done().byte_len == len(expected)
    got = b.mr.read(10, 0) + b.mr.read(1, 100) + b.mr.read(len(expected) - 11, 200)
    assert got == expected
    a.done()


def case_long_messages() -> None:
    a, b = pair()
    data = os.urandom(50_001)
    a.mr.write(data, len(data))
    for opcode in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_SEND):
        b.mr.write(bytes(b.size), b.size)
        if opcode == e.IBV_WR_SEND:
            b.recv(60_000, 5)
        a.send([a.sge(len(data))], opcode, remote=b.target(5))
        a.done()
        if opcode == e.IBV_WR_SEND:
            b.done(e.IBV_WC_RECV)
        assert b.mr.read(len(data), 5) == data
        assert b.mr.read(5, 0) == bytes(5), "written in front of the buffer"
        assert b.mr.read(9, len(data) + 5) == bytes(9), "written behind the buffer"
    b.mr.write(bytes(b.size), b.size)
    b.send([b.sge(len(data), 9)], e.IBV_WR_RDMA_READ, remote=a.target())
    b.done(e.IBV_WC_RDMA_READ)
    assert b.mr.read(len(data), 9) == data


def case_inline() -> None:
    a, b = pair(max_inline_data=256)
    assert a.qp.query(0)[1].cap.max_inline_data >= 256
    b.recv(1000)
    b.recv(1000, 1000)
    a.mr.write(TEXT, len(TEXT))
    flags = e.IBV_SEND_INLINE | e.IBV_SEND_SIGNALED
    for _ in range(2):
        # Inline data needs no key, and is taken in the call.
        a.send([a.sge(100, 0, lkey=0), a.sge(150, 100, lkey=0)], flags=flags)
        a.mr.write(bytes(250), 250)
    assert b.done().byte_len == 250
    b.done()
    assert b.mr.read(250, 0) == TEXT
    assert b.mr.read(250, 1000) == bytes(250)
    refused(errno.EINVAL, a.send, [a.sge(2000)], flags=flags)


def case_immediate() -> None:
    a, b = pair()
    b.recv(100)
    b.recv(100)
    a.mr.write(TEXT, len(TEXT))
    a.send([a.sge(20)], e.IBV_WR_SEND_WITH_IMM, imm=0x01020304)
    a.send([a.sge(30)], e.IBV_WR_RDMA_WRITE_WITH_IMM, imm=0xA1B2C3D4, remote=b.target(500))
    first, second = b.done(e.IBV_WC_RECV), b.done(e.IBV_WC_RECV_RDMA_WITH_IMM)
    for completion, imm, length in ((first, 0x01020304, 20), (second, 0xA1B2C3D4, 30)):
        assert completion.wc_flags & e.IBV_WC_WITH_IMM
        assert completion.imm_data == imm
        assert completion.byte_len == length
    assert b.mr.read(30, 500) == TEXT[:30]


def case_atomics() -> None:
    a, b = pair()
    b.mr.write((40).to_bytes(8, "little"), 8)
    for opcode, compare_add, swap, before, after in (
        (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 40, 42),
        (e.IBV_WR_ATOMIC_CMP_AND_SWP, 41, 99, 42, 42),
        (e.IBV_WR_ATOMIC_CMP_AND_SWP, 42, 99, 42, 99),
    ):
        wr = SendWR(num_sge=1, sg=[a.sge(8, 64)], opcode=opcode, send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_atomic(b.mr.rkey, b.mr.buf, compare_add, swap)
        a.qp.post_send(wr, None)
        a.done()
        assert int.from_bytes(a.mr.read(8, 64), "little") == before
        assert int.from_bytes(b.mr.read(8, 0), "little") == after


def case_signalling() -> None:
    a, b = pair()
    for _ in range(3):
        b.recv(10)
    a.send([a.sge(1)], flags=0, wr_id=1)
    a.send([a.sge(1)], flags=0, wr_id=2)
    a.send([a.sge(1)], wr_id=3)
    assert a.done().wr_id == 3
    a.empty()
    c, d = pair(sq_sig_all=1)
    d.recv(10)
    c.send([c.sge(1)], flags=0, wr_id=9)
    assert c.done().wr_id == 9


def case_many_messages() -> None:
    """More than the queues and windows hold, in order."""
    a, b = pair()
    sent = received = 0
    for _ in range(32):
        b.recv(8, wr_id=received)
    while received < 2000:
        if sent < 2000 and sent < received + 30:
            a.mr.write(sent.to_bytes(8, "little"), 8, 8 * (sent % 64))
            a.send([a.sge(8, 8 * (sent % 64))], wr_id=sent)
            sent += 1
        if b.cq.poll(1)[0]:
            assert int.from_bytes(b.mr.read(8, 0), "little") <= sent
            received += 1
            b.recv(8)
        a.cq.poll(16)


def case_extended_qp() -> None:
    a, b = pair(extended=True, max_inline_data=64)
    b.mr.write(bytes(8), 8, 1024)
    for _ in range(4):
        b.recv(100)
    a.mr.write(TEXT, len(TEXT))
    qp = a.qp
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 1, e.IBV_SEND_SIGNALED
    qp.wr_send()
    qp.wr_set_sge(a.sge(50))
    qp.wr_id = 2
    qp.wr_send_imm(0x05060708)
    qp.wr_set_sge_list(2, [a.sge(5), a.sge(6, 100)])
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
    assert b.mr.read(60, 512) == TEXT[40:100]
    assert int.from_bytes(a.mr.read(8, 3000), "little") == 1000
    assert [b.done().byte_len for _ in range(3)] == [50, 11, 9]
    qp.wr_start()
    qp.wr_id = 8
    qp.wr_send()
    qp.wr_set_sge(a.sge(1))
    qp.wr_abort()
    time.sleep(0.05)
    a.empty()


def case_extended_cq() -> None:
    a, b = pair()
    context = a.context
    cq = CQEX(context, CqInitAttrEx(cqe=16, wc_flags=e.IBV_WC_STANDARD_FLAGS))
    refused(
        errno.EOPNOTSUPP,
        CQEX,
        context,
        CqInitAttrEx(cqe=16, wc_flags=e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
    )
    c = Side(context)
    cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = ALL
    c.qp = QP(c.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap), attr)
    b.make_qp()
    c.qp.to_rts(c.attributes(b))
    b.qp.to_rts(b.attributes(c))
    c.recv(100, wr_id=55)
    b.send([b.sge(33)], e.IBV_WR_SEND_WITH_IMM, imm=0x11223344)
    limit = time.monotonic() + 10
    while (found := cq.start_poll(PollCqAttr())) == errno.ENOENT:
        assert time.monotonic() < limit
    assert found == 0
    assert (cq.wr_id, cq.status, cq.read_byte_len()) == (55, e.IBV_WC_SUCCESS, 33)
    assert cq.read_opcode() == e.IBV_WC_RECV
    assert cq.read_imm_data() == 0x11223344
    assert cq.read_qp_num() == c.qp.qp_num
    assert cq.read_src_qp() == b.qp.qp_num
    assert cq.read_wc_flags() == e.IBV_WC_WITH_IMM
    assert cq.poll_next() == errno.ENOENT
    cq.end_poll()


# ---- events ---------------------------------------------------------------------------------


def case_completion_channel() -> None:
    a, b = pair(events=True)
    b.cq.req_notify()
    for _ in range(200):
        b.recv(10)
        a.send([a.sge(10)])
        b.channel.get_cq_event(b.cq)
        b.cq.ack_events(1)
        b.cq.req_notify()
        b.done(e.IBV_WC_RECV)
        a.done()


def case_solicited_events() -> None:
    a, b = pair(events=True)
    b.cq.req_notify(True)
    b.recv(10)
    b.recv(10)
    a.send([a.sge(1)])
    a.done()
    time.sleep(0.05)
    a.send([a.sge(2)], flags=e.IBV_SEND_SIGNALED | e.IBV_SEND_SOLICITED)
    b.channel.get_cq_event(b.cq)
    b.cq.ack_events(1)
    # Both are there: only the second one woke us.
    assert [b.done().byte_len for _ in range(2)] == [1, 2]


def case_events_are_lost_with_their_cq() -> None:
    """A CQ with an event that nobody took can be destroyed."""
    a, b = pair(events=True)
    b.cq.req_notify()
    b.recv(10)
    a.send([a.sge(1)])
    a.done()
    time.sleep(0.05)
    b.qp.close()
    b.cq.close()
    b.channel.close()


# ---- faults ---------------------------------------------------------------------------------


def case_wrong_rkey() -> None:
    a, b = pair()
    b.mr.write(bytes(100), 100)
    a.mr.write(TEXT, len(TEXT))
    a.send([a.sge(10)], e.IBV_WR_RDMA_WRITE, remote=(b.mr.rkey ^ 0x100, b.mr.buf))
    a.failed(e.IBV_WC_REM_ACCESS_ERR)
    assert b.mr.read(100, 0) == bytes(100)
    assert a.state() == e.IBV_QPS_ERR
    assert b.state() == e.IBV_QPS_ERR
    event = b.context.get_async_event()
    assert event.event_type == e.IBV_EVENT_QP_ACCESS_ERR
    event.ack()


def case_out_of_bounds() -> None:
    for opcode in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ):
        a, b = pair()
        a.send([a.sge(16)], opcode, remote=b.target(b.size - 15))
        a.failed(e.IBV_WC_REM_ACCESS_ERR)
        c, d = pair()
        c.send([c.sge(16)], opcode, remote=(d.mr.rkey, 2**64 - 8))
        c.failed(e.IBV_WC_REM_ACCESS_ERR)


def case_no_remote_right() -> None:
    a, b = pair(access=e.IBV_ACCESS_LOCAL_WRITE)
    a.send([a.sge(16)], e.IBV_WR_RDMA_WRITE, remote=b.target())
    completion = a.poll()
    assert completion.status in (e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_REM_INV_REQ_ERR)


def case_wrong_lkey() -> None:
    a, b = pair()
    b.recv(100)
    a.send([a.sge(10, 0, lkey=a.mr.lkey ^ 0x100)])
    a.failed(e.IBV_WC_LOC_PROT_ERR)
    assert a.state() == e.IBV_QPS_ERR


def case_receive_too_small() -> None:
    a, b = pair()
    b.recv(10)
    b.recv(10, wr_id=2)
    a.send([a.sge(11)])
    b.failed(e.IBV_WC_LOC_LEN_ERR)
    a.failed(e.IBV_WC_REM_INV_REQ_ERR)
    assert b.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 2


def case_no_receive() -> None:
    a, _b = pair(retries=(14, 7, 2))
    a.send([a.sge(11)])
    a.failed(e.IBV_WC_RNR_RETRY_EXC_ERR)


def case_late_receive() -> None:
    a, b = pair()
    a.send([a.sge(11)])
    time.sleep(0.02)
    a.empty()
    b.recv(100)
    a.done()
    b.done()


def case_peer_gone() -> None:
    a, b = pair(retries=(8, 2, 7))
    a.recv(10, wr_id=4)
    b.qp.close()
    a.send([a.sge(11)], wr_id=1)
    a.send([a.sge(11)], wr_id=2, flags=0)
    assert a.failed(e.IBV_WC_RETRY_EXC_ERR).wr_id == 1
    flushed = {a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id for _ in range(2)}
    assert flushed == {2, 4}
    assert a.state() == e.IBV_QPS_ERR


def case_flush() -> None:
    a, _b = pair()
    for i in range(3):
        a.recv(10, wr_id=i)
    attr = QPAttr(qp_state=e.IBV_QPS_ERR)
    a.qp.modify(attr, e.IBV_QP_STATE)
    assert [a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id for _ in range(3)] == [0, 1, 2]
    a.recv(10, wr_id=9)
    assert a.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 9
    a.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    assert a.state() == e.IBV_QPS_RESET


def case_queue_full() -> None:
    _a, b = pair(max_send_wr=4, max_recv_wr=2)
    b.recv(1)
    b.recv(1)
    refused(errno.ENOMEM, b.recv, 1)


def case_memory_that_is_not_there() -> None:
    context = Context(name="dp0")
    pd = PD(context)
    refused(errno.EFAULT, MR, pd, 4096, ALL, address=4096)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    read_only = libc.mmap(None, ctypes.c_size_t(4096), 1, 0x22, -1, 0)
    refused(errno.EFAULT, MR, pd, 4096, ALL, address=read_only)
    MR(pd, 4096, e.IBV_ACCESS_REMOTE_READ, address=read_only)
    refused(errno.EINVAL, MR, pd, 4096, e.IBV_ACCESS_REMOTE_WRITE)


# ---- attributes -----------------------------------------------------------------------------


def case_attributes() -> None:
    a, b = pair()
    attr, init = a.qp.query(0x1FFFFF)
    assert attr.qp_state == e.IBV_QPS_RTS
    assert attr.dest_qp_num == b.qp.qp_num
    assert attr.timeout == 14
    assert attr.path_mtu == a.context.query_port(1).active_mtu
    assert init.cap.max_send_wr >= 64
    device = a.context.query_device()
    assert device.max_qp_wr >= 1024
    assert device.phys_port_cnt == 1
    port = a.context.query_port(1)
    assert port.state == e.IBV_PORT_ACTIVE
    assert port.link_layer == e.IBV_LINK_LAYER_ETHERNET
    gids = [str(a.context.query_gid(1, i)) for i in range(port.gid_tbl_len)]
    assert len(set(gids)) == 1
    assert a.context.query_gid_ex(1, 0).gid_type == e.IBV_GID_TYPE_ROCE_V2
    assert len(a.context.query_gid_table(8)) == port.gid_tbl_len
    refused(errno.ENODATA, a.context.query_gid_ex, 1, 99)
    assert a.context.query_pkey(1, 0) == 0xFFFF
    assert a.context.query_device_ex().orig_attr.max_qp == device.max_qp
    refused(errno.EINVAL, a.context.query_port, 2)


def case_bad_transitions() -> None:
    context = Context(name="dp0")
    side = Side(context)
    side.make_qp()
    refused(errno.EINVAL, side.qp.modify, QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
    refused(errno.EINVAL, side.qp.modify, QPAttr(qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE)
    attr = side.attributes(side)
    attr.ah_attr = AHAttr(port_num=1, is_global=0)
    refused(errno.EINVAL, side.qp.to_rtr, attr)
    assert side.state() == e.IBV_QPS_INIT


def case_unsupported() -> None:
    context = Context(name="dp0")
    pd = PD(context)
    refused(errno.EOPNOTSUPP, SRQ, pd, SrqInitAttr())
    refused(errno.EOPNOTSUPP, MW, pd, e.IBV_MW_TYPE_1)
    route = GlobalRoute(dgid=context.query_gid(1, 0))
    refused(errno.EOPNOTSUPP, AH, pd, attr=AHAttr(port_num=1, is_global=1, gr=route))
    refused(
        errno.EOPNOTSUPP,
        ParentDomain,
        context,
        attr=ParentDomainInitAttr(pd=pd),
    )
    cq = CQ(context, 10)
    for kind in (e.IBV_QPT_UD, e.IBV_QPT_UC, e.IBV_QPT_RAW_PACKET):
        init = QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap())
        refused(errno.EOPNOTSUPP, QP, pd, init)
    refused(errno.EOPNOTSUPP, MR, pd, 4096, e.IBV_ACCESS_ON_DEMAND)
    refused(errno.EINVAL, CQ, context, 0)


def case_one_device_opened_twice() -> None:
    first, second = Context(name="dp0"), Context(name="dp0")
    a, b = Side(first), Side(second)
    for side in (a, b):
        side.make_qp()
    a.qp.to_rts(a.attributes(b))
    b.qp.to_rts(b.attributes(a))
    b.recv(100)
    a.send([a.sge(10)])
    b.done()
    a.done()
    # The device stays open as long as one of the two is.
    a.qp.close()
    first.close()
    assert second.query_device().phys_port_cnt == 1
    CompChannel(second).close()


# ---- processes ------------------------------------------------------------------------------


def case_fork() -> None:
    """A child that touches nothing, and one that touches all, leave the parent alone."""
    a, b = pair()
    for touch in (False, True):
        child = os.fork()
        if child == 0:
            code = 0
            if touch:
                try:
                    a.send([a.sge(1)])
                    code = 1
                except PyverbsRDMAError as error:
                    code = 0 if error.error_code == errno.EIO else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        b.recv(10)
        a.send([a.sge(10)])
        a.done()
        b.done()
    # Exit handlers in a child write nothing and close nothing.
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    b.recv(10)
    a.send([a.sge(10)])
    a.done()


def case_thread_alone() -> None:
    """The peer's program only sleeps: its device answers without it."""
    a, b = pair()
    b.mr.write(TEXT, len(TEXT))
    for i in range(50):
        a.send([a.sge(250)], e.IBV_WR_RDMA_READ, remote=b.target())
        time.sleep(0.001 * (i % 4))
        a.done()
    # Nobody polls at all: what was posted still happens.
    b.mr.write(bytes(250), 250)
    a.send([a.sge(250)], e.IBV_WR_RDMA_WRITE, remote=b.target(), flags=0)
    limit = time.monotonic() + 5
    while b.mr.read(250, 0) != TEXT:
        assert time.monotonic() < limit
        time.sleep(0.001)


def case_memory_poller() -> None:
    """Ping-pong by WRITE, each side watching its memory's last byte, polling rarely."""
    a, b = pair()
    for i in range(1, 200):
        for here, there in ((a, b), (b, a)):
            here.mr.write(bytes([i]) * 32, 32)
            here.send([here.sge(32)], e.IBV_WR_RDMA_WRITE, remote=there.target(100))
            limit = time.monotonic() + 5
            while there.mr.read(1, 131) != bytes([i]):
                assert time.monotonic() < limit
            here.done()


def case_exit_without_closing() -> None:
    pair()


def case_interrupted_exit() -> None:
    """exit() out of a signal handler, wherever it comes."""
    a, _ = pair()
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    while True:
        a.cq.poll(1)


def case_listing() -> None:
    names = [device.name.decode() for device in get_device_list()]
    assert names[0] == "dp0"


if __name__ == "__main__":
    globals()["case_" + sys.argv[1]]()
    print("case ended", flush=True)
