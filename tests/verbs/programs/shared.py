# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases: shared receive queues."""

from __future__ import annotations

import errno

from pair import TARGET, Side, connect, needs, refused
from pyverbs import enums as e
from pyverbs.qp import QP, QPAttr, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import RecvWR


class SharedSide(Side):
    """Its QPs take receives from one queue."""

    def __init__(self, context, max_wr: int = 16, **options) -> None:
        super().__init__(context, **options)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=max_wr, max_sge=2)))

    def make_qp(self, **_) -> None:
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = self.access
        init = QPInitAttr(
            qp_type=e.IBV_QPT_RC,
            scq=self.cq,
            rcq=self.recv_cq,
            cap=self.cap,
            srq=self.srq,
            sq_sig_all=0,
        )
        self.qp = QP(self.pd, init, attr)

    def share(self, length: int, offset: int = 0, wr_id: int = 0) -> None:
        self.srq.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[self.sge(length, offset)]), None)


def connected_to(b: SharedSide) -> Side:
    """A peer of a new QP of b."""
    a = Side(b.context)
    a.make_qp()
    b.make_qp()
    connect(a, b)
    return a


@needs("shared receives", "out of band")
def case_shared_receives() -> None:
    """Two QPs of one queue; the completion names the QP."""
    b = SharedSide(TARGET.open())
    peers = []
    for _ in range(2):
        a = connected_to(b)
        peers.append((a, b.qp))
    for i in range(4):
        b.share(100, 100 * i, wr_id=i)
    for i in range(4):
        a, qp = peers[i % 2]
        a.put(bytes([i + 1]) * 10)
        a.send([a.sge(10)])
        received = b.done(e.IBV_WC_RECV)
        assert (received.wr_id, received.qp_num, received.byte_len) == (i, qp.qp_num, 10)
        assert b.get(11, 100 * i) == bytes([i + 1]) * 10 + b"\0"
        a.done()


@needs("shared receives", "out of band")
def case_shared_queue_tells_its_size() -> None:
    b = SharedSide(TARGET.open(), max_wr=5)
    attr = b.srq.query()
    assert attr.max_wr >= 5
    assert attr.max_sge >= 2
    for _ in range(attr.max_wr):
        b.share(1)
    refused(errno.ENOMEM, b.share, 1)


@needs("shared receives", "out of band")
def case_shared_queue_runs_low() -> None:
    """The event comes once, as the queue falls below its limit."""
    b = SharedSide(TARGET.open())
    a = connected_to(b)
    for _ in range(4):
        b.share(10)
    b.srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
    assert b.srq.query().srq_limit == 3
    for _ in range(2):
        a.send([a.sge(1)])
        b.done()
    event = b.context.get_async_event()
    assert event.event_type == e.IBV_EVENT_SRQ_LIMIT_REACHED
    event.ack()
    assert b.srq.query().srq_limit == 0


@needs("shared receives", "out of band", "acknowledged")
def case_shared_queue_is_empty() -> None:
    """The sender waits until a receive is there."""
    b = SharedSide(TARGET.open())
    a = connected_to(b)
    a.send([a.sge(5)])
    a.empty()
    b.share(10)
    a.done()
    assert b.done().byte_len == 5


@needs("shared receives", "out of band")
def case_last_receive_is_told() -> None:
    """A QP in error takes no more: then the program may give its buffers to others."""
    b = SharedSide(TARGET.open())
    connected_to(b)
    b.share(10)
    b.to(e.IBV_QPS_ERR)
    event = b.context.get_async_event()
    assert event.event_type == e.IBV_EVENT_QP_LAST_WQE_REACHED
    event.ack()
    b.empty()


@needs("shared receives", "out of band")
def case_shared_queue_in_use() -> None:
    b = SharedSide(TARGET.open())
    a = connected_to(b)
    refused(errno.EINVAL, b.recv, 10)
    a.qp.close()
    b.qp.close()
    b.srq.close()
