# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two QPs of one device, connected to each other: the vocabulary of cases.py.

Plain pyverbs under /usr/bin/python3, as a user's program would be.
"""

from __future__ import annotations

import time

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, WC, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR

ALL = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
SEND_OPS = (
    e.IBV_QP_EX_WITH_SEND
    | e.IBV_QP_EX_WITH_SEND_WITH_IMM
    | e.IBV_QP_EX_WITH_SEND_WITH_INV
    | e.IBV_QP_EX_WITH_RDMA_WRITE
    | e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | e.IBV_QP_EX_WITH_RDMA_READ
    | e.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
)


class Side:
    """One QP with its own CQ, PD and 64 KiB of memory."""

    def __init__(self, context: Context, *, access: int = ALL, events: bool = False, **cap: int):
        self.context = context
        self.pd = PD(context)
        self.size = 1 << 16
        self.mr = MR(self.pd, self.size, access)
        self.channel = CompChannel(context) if events else None
        self.cq = CQ(context, 256, None, self.channel, 0)
        limits = {"max_send_wr": 64, "max_recv_wr": 64, "max_send_sge": 8, "max_recv_sge": 8}
        self.cap = QPCap(**{**limits, **cap})
        self.qp: QP | None = None
        self.access = access

    def make_qp(self, *, extended: bool = False, sq_sig_all: int = 0) -> None:
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = self.access
        if extended:
            init = QPInitAttrEx(
                qp_type=e.IBV_QPT_RC,
                scq=self.cq,
                rcq=self.cq,
                cap=self.cap,
                pd=self.pd,
                send_ops_flags=SEND_OPS,
                comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            )
            self.qp = QPEx(self.context, init, attr)
        else:
            init = QPInitAttr(
                qp_type=e.IBV_QPT_RC,
                scq=self.cq,
                rcq=self.cq,
                cap=self.cap,
                sq_sig_all=sq_sig_all,
            )
            self.qp = QP(self.pd, init, attr)

    def attributes(self, peer: Side, *, timeout: int = 14, retry: int = 7, rnr: int = 7) -> QPAttr:
        attr = QPAttr(port_num=1)
        attr.dest_qp_num = peer.qp.qp_num
        attr.rq_psn, attr.sq_psn = 0xFFFFF0, 0xFFFFF0
        attr.path_mtu = self.context.query_port(1).active_mtu
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, timeout, retry, rnr
        route = GlobalRoute(dgid=peer.context.query_gid(1, 0), sgid_index=0)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        return attr

    # -- requests

    def sge(self, length: int, offset: int = 0, lkey: int | None = None) -> SGE:
        return SGE(self.mr.buf + offset, length, self.mr.lkey if lkey is None else lkey)

    def recv(self, length: int, offset: int = 0, wr_id: int = 0) -> None:
        self.recv_list([self.sge(length, offset)], wr_id)

    def recv_list(self, sges: list[SGE], wr_id: int = 0) -> None:
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=len(sges), sg=sges), None)

    def send(
        self,
        sges: list[SGE],
        opcode: int = e.IBV_WR_SEND,
        *,
        flags: int = e.IBV_SEND_SIGNALED,
        remote: tuple[int, int] | None = None,
        imm: int | None = None,
        wr_id: int = 0,
    ) -> None:
        wr = SendWR(wr_id=wr_id, num_sge=len(sges), sg=sges, opcode=opcode, send_flags=flags)
        if remote is not None:
            wr.set_wr_rdma(*remote)
        if imm is not None:
            wr.imm_data = imm
        self.qp.post_send(wr, None)

    def target(self, offset: int = 0) -> tuple[int, int]:
        """rkey and address of our memory, for the peer."""
        return self.mr.rkey, self.mr.buf + offset

    # -- completions

    def poll(self, seconds: float = 10) -> WC:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            count, completions = self.cq.poll(1)
            if count:
                return completions[0]
        raise AssertionError(f"no completion within {seconds} s")

    def done(self, opcode: int | None = None) -> WC:
        completion = self.poll()
        assert completion.status == e.IBV_WC_SUCCESS, f"status {completion.status}"
        assert opcode is None or completion.opcode == opcode, f"opcode {completion.opcode}"
        return completion

    def failed(self, status: int) -> WC:
        completion = self.poll()
        assert completion.status == status, f"status {completion.status}, not {status}"
        return completion

    def empty(self) -> None:
        assert self.cq.poll(1)[0] == 0

    def state(self) -> int:
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state


def pair(
    *, extended: bool = False, sq_sig_all: int = 0, access: int = ALL, retries: tuple = (), **cap
) -> tuple[Side, Side]:
    """Two connected sides; retries: timeout, retry_cnt, rnr_retry."""
    events = cap.pop("events", False)
    context = Context(name="dp0")
    a, b = (Side(context, access=access, events=events, **cap) for _ in range(2))
    for side in (a, b):
        side.make_qp(extended=extended, sq_sig_all=sq_sig_all)
    options = dict(zip(("timeout", "retry", "rnr"), retries, strict=False))
    a.qp.to_rts(a.attributes(b, **options))
    b.qp.to_rts(b.attributes(a, **options))
    return a, b
