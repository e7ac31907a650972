# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases: unreliable datagrams between QPs of one device."""

from __future__ import annotations

import errno
import os
import socket

from pair import SIGNALED, TARGET, Side, needs, refused
from pyverbs import enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.qp import QP, QPAttr, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SendWR

GRH_LEN = 40
QKEY = 0x1ABCDEF
GID_INDEX = 1


class Endpoint(Side):
    """A UD QP in RTS."""

    def __init__(
        self, context=None, *, qkey: int = QKEY, extended: bool = False, **options
    ) -> None:
        super().__init__(context or TARGET.open(), access=e.IBV_ACCESS_LOCAL_WRITE, **options)
        self.handles: list[AH] = []  # which have to live until what uses them is sent
        attr = QPAttr(port_num=1)
        attr.qkey = qkey
        common = {
            "qp_type": e.IBV_QPT_UD,
            "scq": self.cq,
            "rcq": self.cq,
            "cap": self.cap,
            "sq_sig_all": 0,
        }
        if extended:
            init = QPInitAttrEx(
                **common,
                pd=self.pd,
                send_ops_flags=e.IBV_QP_EX_WITH_SEND | e.IBV_QP_EX_WITH_SEND_WITH_IMM,
                comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            )
            self.qp = QPEx(self.context, init, attr)
        else:
            self.qp = QP(self.pd, QPInitAttr(**common), attr)

    def ah(self, to: Side) -> AH:
        route = GlobalRoute(dgid=to.context.query_gid(1, GID_INDEX), sgid_index=GID_INDEX)
        handle = AH(self.pd, attr=AHAttr(port_num=1, is_global=1, gr=route))
        self.handles.append(handle)
        return handle

    def datagram(
        self,
        ah: AH,
        to: Side,
        length: int,
        *,
        qkey: int = QKEY,
        opcode: int = e.IBV_WR_SEND,
        **more,
    ) -> None:
        wr = self.request([self.sge(length)], opcode, **more)
        wr.set_wr_ud(ah, to.qp.qp_num, qkey)
        self.qp.post_send(wr, None)


def endpoints(**options) -> tuple[Endpoint, Endpoint]:
    context = TARGET.open()
    return Endpoint(context, **options), Endpoint(context, **options)


@needs("datagrams")
def case_datagram() -> None:
    a, b = endpoints()
    ah = a.ah(b)
    b.recv(GRH_LEN + 100, wr_id=7)
    a.put(b"hello")
    a.datagram(ah, b, 5, wr_id=3)
    assert a.done(e.IBV_WC_SEND).wr_id == 3
    received = b.done(e.IBV_WC_RECV)
    assert (received.wr_id, received.byte_len) == (7, GRH_LEN + 5)
    assert received.src_qp == a.qp.qp_num
    assert received.wc_flags == e.IBV_WC_GRH
    assert b.get(6, GRH_LEN) == b"hello\0"
    if TARGET.kind == "dp":  # as mlx5 has it: RoCE v2, IPv4
        assert received.sl == 0xA


@needs("datagrams")
def case_datagram_with_immediate() -> None:
    a, b = endpoints()
    b.recv(GRH_LEN)
    a.datagram(a.ah(b), b, 0, opcode=e.IBV_WR_SEND_WITH_IMM, imm=socket.htonl(0x1234567))
    received = b.done(e.IBV_WC_RECV)
    assert received.wc_flags == e.IBV_WC_GRH | e.IBV_WC_WITH_IMM
    assert socket.ntohl(received.imm_data) == 0x1234567


@needs("datagrams")
def case_datagrams_of_every_length() -> None:
    a, b = endpoints()
    ah = a.ah(b)
    mtu = 128 << a.context.query_port(1).active_mtu
    a.put(os.urandom(mtu))
    for length in (0, 1, 2, 3, 4, 255, mtu - 1, mtu):
        b.recv(GRH_LEN + mtu)
        a.datagram(ah, b, length)
        assert b.done().byte_len == GRH_LEN + length
        assert b.get(length, GRH_LEN) == a.get(length)
        a.done()


@needs("datagrams")
def case_datagram_longer_than_the_path_mtu() -> None:
    """It is not sent, and that is no error (IBTA C10-93.1.1); the next one comes."""
    a, b = endpoints()
    ah = a.ah(b)
    mtu = 128 << a.context.query_port(1).active_mtu
    b.recv(2 * mtu)
    a.datagram(ah, b, mtu + 1)
    a.datagram(ah, b, 5)
    a.done()
    a.done()
    assert b.done().byte_len == GRH_LEN + 5
    b.empty()


@needs("datagrams")
def case_datagram_answered() -> None:
    """The completion and the header in the buffer lead back to the sender."""
    a, b = endpoints()
    ah = a.ah(b)
    a.recv(GRH_LEN + 10, GRH_LEN)
    b.recv(GRH_LEN + 10)
    a.datagram(ah, b, 3)
    wc = b.done()
    back = AH(b.pd, wc=wc, port_num=1, grh=b.mr.buf)
    b.put(b"answer", 1000)
    wr = SendWR(num_sge=1, sg=[b.sge(6, 1000)], opcode=e.IBV_WR_SEND, send_flags=SIGNALED)
    wr.set_wr_ud(back, wc.src_qp, QKEY)
    b.qp.post_send(wr, None)
    a.done(e.IBV_WC_SEND)
    assert a.done(e.IBV_WC_RECV).byte_len == GRH_LEN + 6
    assert a.get(6, 2 * GRH_LEN) == b"answer"


@needs("datagrams")
def case_datagram_with_another_key() -> None:
    """It takes no receive and writes nothing."""
    a, b = endpoints()
    ah = a.ah(b)
    b.recv(GRH_LEN + 10)
    a.put(b"attacker")
    a.datagram(ah, b, 8, qkey=QKEY ^ 1)
    a.done()
    a.put(b"friend")
    a.datagram(ah, b, 6)
    assert b.done().byte_len == GRH_LEN + 6
    assert b.get(8, GRH_LEN) == b"friend\0\0"
    b.empty()


@needs("datagrams")
def case_datagram_without_receive() -> None:
    """It is lost, and the next one is not."""
    a, b = endpoints()
    ah = a.ah(b)
    a.datagram(ah, b, 1)
    a.done()
    b.empty()
    a.datagram(ah, a, 0)  # comes after the first one has
    a.done()
    b.empty()
    b.recv(GRH_LEN + 10, wr_id=9)
    a.datagram(ah, b, 2)
    received = b.done()
    assert (received.wr_id, received.byte_len) == (9, GRH_LEN + 2)
    b.empty()


@needs("datagrams")
def case_datagrams_among_many() -> None:
    """Four QPs, each to each, and to itself."""
    context = TARGET.open()
    every = [Endpoint(context) for _ in range(4)]
    for to in every:
        for _ in every:
            to.recv(GRH_LEN + 8)
    for a in every:
        for to in every:
            a.datagram(a.ah(to), to, 8, flags=0)
    for to in every:
        assert {to.done(e.IBV_WC_RECV).src_qp for _ in every} == {a.qp.qp_num for a in every}
        to.empty()


@needs("datagrams", "posting calls")
def case_datagrams_by_posting_calls() -> None:
    context = TARGET.open()
    a, b = Endpoint(context, extended=True), Endpoint(context)
    ah = a.ah(b)
    b.recv(GRH_LEN + 10)
    b.recv(GRH_LEN + 10, 1000)
    a.put(b"extended")
    a.qp.wr_start()
    a.qp.wr_id, a.qp.wr_flags = 1, SIGNALED
    a.qp.wr_send()
    a.qp.wr_set_ud_addr(ah, b.qp.qp_num, QKEY)
    a.qp.wr_set_sge(a.sge(8))
    a.qp.wr_id = 2
    a.qp.wr_send_imm(5)
    a.qp.wr_set_ud_addr(ah, b.qp.qp_num, QKEY)
    a.qp.wr_set_sge(a.sge(3))
    a.qp.wr_complete()
    assert [a.done().wr_id for _ in range(2)] == [1, 2]
    assert [b.done().byte_len for _ in range(2)] == [GRH_LEN + 8, GRH_LEN + 3]
    assert b.get(8, GRH_LEN) == b"extended"
    assert b.get(4, 1000 + GRH_LEN) == b"ext\0"


@needs("datagrams", "solicited")
def case_solicited_datagram() -> None:
    a, b = endpoints(events=True)
    ah = a.ah(b)
    for _ in range(2):
        b.recv(GRH_LEN)
    b.cq.req_notify(solicited_only=True)
    a.datagram(ah, b, 0)
    a.datagram(ah, b, 0, flags=SIGNALED | e.IBV_SEND_SOLICITED)
    b.event()
    b.done()
    b.done()


@needs("datagrams")
def case_datagram_states() -> None:
    """What is posted when the QP goes to error is flushed, and RESET leads to a new life."""
    a, b = endpoints()
    ah = a.ah(b)
    b.recv(GRH_LEN, wr_id=4)
    b.to(e.IBV_QPS_ERR)
    assert b.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 4
    b.to(e.IBV_QPS_RESET)
    attr = QPAttr(port_num=1)
    attr.qkey = QKEY
    b.qp.to_rts(attr)
    assert b.qp.query(e.IBV_QP_QKEY)[0].qkey == QKEY
    b.recv(GRH_LEN, wr_id=5)
    a.datagram(ah, b, 0)
    assert b.done().wr_id == 5


@needs("datagrams")
def case_datagram_qp_needs_its_attributes() -> None:
    context = TARGET.open()
    side = Endpoint(context)
    side.to(e.IBV_QPS_RESET)
    attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
    refused(
        errno.EINVAL, side.qp.modify, attr, e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT
    )
