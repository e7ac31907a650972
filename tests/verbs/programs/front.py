# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases of our own front: what it refuses, and how it lives with fork, exit and threads."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from datagrams import Endpoint
from pair import SIGNALED, TARGET, WRITABLE, Side, connect, pair, refused
from pyverbs import enums as e
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.device import DM, AllocDmAttr, Context, get_device_list
from pyverbs.mem_alloc import free, posix_memalign
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD, ParentDomain, ParentDomainContext, ParentDomainInitAttr
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqInitAttrEx
from pyverbs.wr import SGE, SendWR


def case_unsupported() -> None:
    context = TARGET.open()
    pd = PD(context)
    tagged = SrqInitAttrEx(max_wr=1, max_sge=1)
    tagged.srq_type, tagged.comp_mask = e.IBV_SRQT_TM, e.IBV_SRQ_INIT_ATTR_TYPE
    refused(errno.EOPNOTSUPP, SRQ, context, tagged)
    refused(errno.EINVAL, MW, pd, 3)
    cq = CQ(context, 10)
    for kind in (e.IBV_QPT_UC, e.IBV_QPT_RAW_PACKET):
        init = QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap())
        refused(errno.EOPNOTSUPP, QP, pd, init)
    refused(errno.EOPNOTSUPP, MR, pd, 4096, e.IBV_ACCESS_ON_DEMAND)
    refused(errno.EINVAL, CQ, context, 0)
    flow_tag = CqInitAttrEx(cqe=16, wc_flags=e.IBV_WC_EX_WITH_FLOW_TAG)
    refused(errno.EOPNOTSUPP, CQEX, context, flow_tag)
    refused(errno.EOPNOTSUPP, Context, cmd_fd=os.dup(context.cmd_fd))


def case_parent_domain() -> None:
    """It stands for its domain, and the queues of QPs come from its allocator."""
    context = TARGET.open()
    plain = PD(context)
    taken: dict[int, int] = {}

    def take(pd, context, size, alignment, kind) -> int:
        taken[address := posix_memalign(size, alignment)] = size
        return address

    def give_back(pd, context, address, kind) -> None:
        del taken[address]
        free(address)

    allocator = ParentDomainContext(plain, take, give_back)
    domain = ParentDomain(context, attr=ParentDomainInitAttr(pd=plain, pd_context=allocator))
    a, b = Side(context), Side(context)
    b.pd = domain
    for side in (a, b):
        side.make_qp()
    assert len(taken) == 1
    connect(a, b)
    memory = MR(plain, 4096, e.IBV_ACCESS_LOCAL_WRITE)
    for _ in range(100):
        b.recv_list([SGE(memory.buf, 100, memory.lkey)])
        a.send([a.sge(10)])
        assert b.done().byte_len == 10
        a.done()
    b.qp.close()
    assert taken == {}
    domain.close()
    plain.close()


def case_parent_domain_with_default_memory() -> None:
    context = TARGET.open()
    plain = PD(context)
    asked = []

    def default(*of) -> int:
        asked.append(of)
        return e._IBV_ALLOCATOR_USE_DEFAULT

    allocator = ParentDomainContext(plain, default, default)
    domain = ParentDomain(context, attr=ParentDomainInitAttr(pd=plain, pd_context=allocator))
    a, b = Side(context), Side(context)
    a.pd = domain
    a.make_qp()
    b.make_qp()
    connect(a, b)
    assert len(asked) == 1
    a.qp.close()
    assert len(asked) == 1  # nothing of the allocator's is given back
    again = ParentDomainInitAttr(pd=domain)
    refused(errno.EINVAL, ParentDomain, context, attr=again)


def case_device_says_who_it_is() -> None:
    attr = TARGET.open().query_device()
    assert attr.vendor_id == 0x026470
    assert attr.vendor_part_id == 1
    assert attr.max_ah > 0
    assert attr.max_mw > 0


def case_as_many_queue_pairs_as_the_device_says() -> None:
    """All of them live at once, and one more is refused."""
    context = TARGET.open()
    most = context.query_device().max_qp
    pd, cq = PD(context), CQ(context, 1)
    cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    init = QPInitAttr(qp_type=e.IBV_QPT_UD, scq=cq, rcq=cq, cap=cap)
    qps = [QP(pd, init) for _ in range(most)]
    assert len({qp.qp_num for qp in qps}) == most
    refused(errno.ENOMEM, QP, pd, init)


def case_port_counts_wrong_keys() -> None:
    context = TARGET.open()
    a, b = Endpoint(context), Endpoint(context)
    before = context.query_port(1).qkey_viol_cntr
    b.recv(100)
    ah = a.ah(b)
    a.datagram(ah, b, 1, qkey=1)
    a.datagram(ah, b, 1)
    b.done(e.IBV_WC_RECV)
    assert context.query_port(1).qkey_viol_cntr == before + 1


def case_completion_time_stamps() -> None:
    """Nanoseconds of CLOCK_MONOTONIC, and of the clock on the wall."""
    context = TARGET.open()
    assert context.query_device_ex().hca_core_clock == 1_000_000
    flags = e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    flags |= e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    cq = CQEX(context, CqInitAttrEx(cqe=16, wc_flags=flags))
    a, b = Side(context), Side(context)
    a.recv_cq = cq
    a.make_qp()
    b.make_qp()
    connect(a, b)
    before = time.monotonic_ns(), time.time_ns()
    for i in range(2):
        a.recv(10, wr_id=i)
        b.send([b.sge(1)])
        b.done()
    stamps = []
    while len(stamps) < 2:
        if cq.start_poll(PollCqAttr()) == 0:
            stamps.append((cq.read_timestamp(), cq.read_completion_wallclock_ns()))
            cq.end_poll()
    after = time.monotonic_ns(), time.time_ns()
    slack_ns = 1_000_000  # the clock on the wall is read when it is asked for
    assert before[0] <= stamps[0][0] <= stamps[1][0] <= after[0]
    assert before[1] - slack_ns <= stamps[0][1] <= stamps[1][1] + slack_ns
    assert stamps[1][1] <= after[1] + slack_ns
    _, clock = context.query_rt_values_ex()
    assert after[0] <= clock <= time.monotonic_ns()


def case_time_stamps_of_what_completes_when_posted() -> None:
    """A bind, and requests and receives of a QP in error, after the device had nothing to do."""
    context = TARGET.open()
    flags = e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    cq = CQEX(context, CqInitAttrEx(cqe=16, wc_flags=flags))
    a, b = Side(context), Side(context)
    a.cq = a.recv_cq = cq
    a.make_qp()
    b.make_qp()
    connect(a, b)

    def stamped(post: Callable[[], None]) -> None:
        time.sleep(0.05)
        before = time.monotonic_ns()
        post()
        assert cq.start_poll(PollCqAttr()) == 0
        stamp = cq.read_timestamp()
        cq.end_poll()
        assert before <= stamp <= time.monotonic_ns()

    window, region = MW(a.pd, e.IBV_MW_TYPE_2), MR(a.pd, 4096, WRITABLE | e.IBV_ACCESS_MW_BIND)
    bind = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=SIGNALED)
    bind.set_bind_wr(window, MWBindInfo(region, region.buf, 100, WRITABLE))
    stamped(lambda: a.qp.post_send(bind))
    a.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
    stamped(lambda: a.send([a.sge(1)]))
    stamped(lambda: a.recv(10))


def case_port_details() -> None:
    """The GID twice, both of RoCE v2, and the default P_Key."""
    context = TARGET.open()
    port = context.query_port(1)
    assert port.link_layer == e.IBV_LINK_LAYER_ETHERNET
    first, second, *empty = [str(context.query_gid(1, i)) for i in range(port.gid_tbl_len)]
    assert first == second
    assert set(empty) == {"0000:0000:0000:0000:0000:0000:0000:0000"}
    entry = context.query_gid_ex(1, 0)
    assert entry.gid_type == e.IBV_GID_TYPE_ROCE_V2
    assert socket.if_indextoname(entry.ndev_ifindex) == "lo"
    assert [found.gid_index for found in context.query_gid_table(8)] == [0, 1]
    refused(errno.ENODATA, context.query_gid_ex, 1, 2)
    refused(errno.EINVAL, context.query_gid_ex, 1, port.gid_tbl_len)
    assert context.query_pkey(1, 0) == 0xFFFF
    assert context.query_device_ex().orig_attr.max_qp == context.query_device().max_qp


def case_inline_limit() -> None:
    a, _b = pair(max_inline_data=1024)
    assert a.qp.query(0)[1].cap.max_inline_data == 1024


def case_inline_where_elements_would_lie() -> None:
    """rdma_xclient of librdmacm sends 16 bytes inline, for which it never asked."""
    a, b = pair(max_send_sge=1, max_inline_data=0)
    b.recv(100)
    a.send([a.sge(16, lkey=0)], flags=e.IBV_SEND_INLINE | SIGNALED)
    assert b.done().byte_len == 16
    a.done()


def case_receive_tells_its_sender() -> None:
    a, b = pair()
    b.recv(10)
    a.send([a.sge(1)])
    assert b.done().src_qp == a.qp.qp_num


def case_first_in_the_list() -> None:
    assert get_device_list()[0].name.decode() == TARGET.device


def case_one_device_opened_twice() -> None:
    first, second = TARGET.open(), TARGET.open()
    a, b = Side(first), Side(second)
    for side in (a, b):
        side.make_qp()
    connect(a, b)
    b.recv(100)
    a.send([a.sge(10)])
    b.done()
    a.done()
    # The device stays open as long as one of the two is.
    a.qp.close()
    first.close()
    assert second.query_device().phys_port_cnt == 1
    CompChannel(second).close()


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


def case_fork_and_device_memory() -> None:
    """The child has all of it for itself, also after it has given the parent's back."""
    context = TARGET.open()
    size = context.query_device_ex().max_dm_size
    whole = DM(context, AllocDmAttr(length=size))
    child = os.fork()
    if child == 0:
        DM(context, AllocDmAttr(length=size)).close()
        anew = TARGET.open()
        own = DM(anew, AllocDmAttr(length=size))
        whole.close()
        refused(errno.ENOMEM, DM, anew, AllocDmAttr(length=4))
        own.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    refused(errno.ENOMEM, DM, context, AllocDmAttr(length=4))


def case_exit_without_closing() -> None:
    pair()


def case_interrupted_exit() -> None:
    """exit() out of a signal handler, wherever it comes."""
    a, _ = pair()
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    while True:
        a.cq.poll(1)
