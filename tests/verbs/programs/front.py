# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases of our own front: what it refuses, and how it lives with fork, exit and threads."""

from __future__ import annotations

import errno
import os
import signal
import sys

from pair import TARGET, Side, connect, pair, refused
from pyverbs import enums as e
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx
from pyverbs.device import get_device_list
from pyverbs.mr import MR, MW
from pyverbs.pd import PD, ParentDomain, ParentDomainInitAttr
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqInitAttr


def case_unsupported() -> None:
    context = TARGET.open()
    pd = PD(context)
    refused(errno.EOPNOTSUPP, SRQ, pd, SrqInitAttr())
    refused(errno.EOPNOTSUPP, MW, pd, e.IBV_MW_TYPE_1)
    refused(
        errno.EOPNOTSUPP,
        ParentDomain,
        context,
        attr=ParentDomainInitAttr(pd=pd),
    )
    cq = CQ(context, 10)
    for kind in (e.IBV_QPT_UC, e.IBV_QPT_RAW_PACKET):
        init = QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap())
        refused(errno.EOPNOTSUPP, QP, pd, init)
    refused(errno.EOPNOTSUPP, MR, pd, 4096, e.IBV_ACCESS_ON_DEMAND)
    refused(errno.EINVAL, CQ, context, 0)
    refused(errno.EOPNOTSUPP, CQEX, context, with_time_stamps())


def with_time_stamps() -> CqInitAttrEx:
    return CqInitAttrEx(cqe=16, wc_flags=e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)


def case_port_details() -> None:
    """The GID twice, both of RoCE v2, and the default P_Key."""
    context = TARGET.open()
    port = context.query_port(1)
    assert port.link_layer == e.IBV_LINK_LAYER_ETHERNET
    gids = [str(context.query_gid(1, i)) for i in range(port.gid_tbl_len)]
    assert len(gids) == 2
    assert len(set(gids)) == 1
    assert context.query_gid_ex(1, 0).gid_type == e.IBV_GID_TYPE_ROCE_V2
    assert len(context.query_gid_table(8)) == port.gid_tbl_len
    refused(errno.ENODATA, context.query_gid_ex, 1, 99)
    assert context.query_pkey(1, 0) == 0xFFFF
    assert context.query_device_ex().orig_attr.max_qp == context.query_device().max_qp


def case_inline_limit() -> None:
    a, _b = pair(max_inline_data=1024)
    assert a.qp.query(0)[1].cap.max_inline_data == 1024


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


def case_exit_without_closing() -> None:
    pair()


def case_interrupted_exit() -> None:
    """exit() out of a signal handler, wherever it comes."""
    a, _ = pair()
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    while True:
        a.cq.poll(1)
