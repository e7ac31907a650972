# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two QPs of one device, connected to each other: the vocabulary of all cases.

Plain pyverbs, as a user's program would be, for any verbs device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import capability
from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, WC, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR

LOCAL = e.IBV_ACCESS_LOCAL_WRITE
READABLE = LOCAL | e.IBV_ACCESS_REMOTE_READ
WRITABLE = LOCAL | e.IBV_ACCESS_REMOTE_WRITE
SIGNALED = e.IBV_SEND_SIGNALED
START_PSN = 0xFFFFF0  # wraps after 16 packets
GID_INDEX = 1  # the IPv4 one of rxe, and one of ours
MEMORY_BYTES = 1 << 16
SPINS = 100  # looks for a completion, before a program sleeps between them
NAP_S = 0.0002


@dataclass
class Target:
    """The device under test, as the command line names it.

    address: one of the device's, to connect through RDMA-CM; none: out of band.
    """

    kind: str = "dp"
    device: str = "dp0"
    address: str | None = None

    def has(self, name: str) -> bool:
        assert name in capability.MEANING, name
        return name in capability.KINDS[self.kind]

    def open(self) -> Context:
        return Context(name=self.device)

    def everything(self) -> int:
        """All rights that memory of this device can have."""
        rights = READABLE | WRITABLE
        return rights | e.IBV_ACCESS_REMOTE_ATOMIC if self.has("atomics") else rights


TARGET = Target()


def needs(*names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Says of a case which capabilities it needs; read from the source by the tests."""
    assert set(names) <= capability.MEANING.keys(), names
    return lambda case: case


def error_of(call: Callable, *args, **kwargs) -> int:
    """errno of a verbs call, 0 when it succeeds."""
    try:
        call(*args, **kwargs)
    except PyverbsRDMAError as error:
        return abs(error.error_code)  # some drivers mistake the sign
    return 0


def refused(code: int, call: Callable, *args, **kwargs) -> None:
    """The call fails, with this errno."""
    got = error_of(call, *args, **kwargs)
    assert got == code, f"{call} gave {got}, not {code}"


class Side:
    """One QP with its own CQ, PD and 64 KiB of memory."""

    def __init__(
        self,
        context: Context,
        *,
        access: int | None = None,
        events: bool = False,
        cqe: int = 256,
        size: int = MEMORY_BYTES,
        **cap: int,
    ) -> None:
        self.context = context
        self.pd = PD(context)
        self.size = size
        self.access = TARGET.everything() if access is None else access
        self.mr = MR(self.pd, size, self.access)
        self.mr.write(bytes(size), size)
        self.channel = CompChannel(context) if events else None
        self.cq = CQ(context, cqe, None, self.channel, 0)
        self.recv_cq = self.cq
        limits = {"max_send_wr": 64, "max_recv_wr": 64, "max_send_sge": 6, "max_recv_sge": 6}
        self.cap = QPCap(**{**limits, **cap})
        self.qp: QP | None = None
        self.link = None  # what RDMA-CM holds of the connection
        self.active = False

    def make_qp(self, *, sq_sig_all: int = 0, qp_access: int | None = None) -> None:
        """A QP in INIT; qp_access: what the peer may do, if not all that the memory allows."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = self.access if qp_access is None else qp_access
        init = QPInitAttr(
            qp_type=e.IBV_QPT_RC,
            scq=self.cq,
            rcq=self.recv_cq,
            cap=self.cap,
            sq_sig_all=sq_sig_all,
        )
        self.qp = QP(self.pd, init, attr)

    def make_extended_qp(self, operations: int) -> None:
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = self.access
        init = QPInitAttrEx(
            qp_type=e.IBV_QPT_RC,
            scq=self.cq,
            rcq=self.recv_cq,
            cap=self.cap,
            pd=self.pd,
            send_ops_flags=operations,
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        )
        self.qp = QPEx(self.context, init, attr)

    def attributes(self, peer: Side, *, timeout: int = 14, retry: int = 7, rnr: int = 7) -> QPAttr:
        attr = QPAttr(port_num=1)
        attr.dest_qp_num = peer.qp.qp_num
        attr.rq_psn, attr.sq_psn = START_PSN, START_PSN
        attr.path_mtu = self.context.query_port(1).active_mtu
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, timeout, retry, rnr
        route = GlobalRoute(dgid=peer.context.query_gid(1, GID_INDEX), sgid_index=GID_INDEX)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        return attr

    # -- requests

    def sge(self, length: int, offset: int = 0, lkey: int | None = None) -> SGE:
        return SGE(self.mr.buf + offset, length, self.mr.lkey if lkey is None else lkey)

    def recv(self, length: int, offset: int = 0, wr_id: int = 0) -> None:
        self.recv_list([self.sge(length, offset)], wr_id)

    def recv_list(self, sges: list[SGE], wr_id: int = 0) -> None:
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=len(sges), sg=sges), None)

    def request(
        self,
        sges: list[SGE],
        opcode: int = e.IBV_WR_SEND,
        *,
        flags: int = SIGNALED,
        remote: tuple[int, int] | None = None,
        imm: int | None = None,
        wr_id: int = 0,
    ) -> SendWR:
        wr = SendWR(wr_id=wr_id, num_sge=len(sges), sg=sges, opcode=opcode, send_flags=flags)
        if remote is not None:
            wr.set_wr_rdma(*remote)
        if imm is not None:
            wr.imm_data = imm
        return wr

    def send(self, sges: list[SGE], opcode: int = e.IBV_WR_SEND, **options) -> None:
        self.qp.post_send(self.request(sges, opcode, **options), None)

    def write(self, sges: list[SGE], remote: tuple[int, int], **options) -> None:
        self.send(sges, e.IBV_WR_RDMA_WRITE, remote=remote, **options)

    def read(self, sges: list[SGE], remote: tuple[int, int], **options) -> None:
        self.send(sges, e.IBV_WR_RDMA_READ, remote=remote, **options)

    def atomic(
        self,
        opcode: int,
        remote: tuple[int, int],
        compare_add: int,
        swap: int = 0,
        *,
        result: int = 0,
        wr_id: int = 0,
    ) -> None:
        """result: offset in our memory at which the old value arrives."""
        sges = [self.sge(8, result)]
        wr = SendWR(num_sge=1, sg=sges, opcode=opcode, send_flags=SIGNALED, wr_id=wr_id)
        wr.set_wr_atomic(*remote, compare_add, swap)
        self.qp.post_send(wr, None)

    def target(self, offset: int = 0) -> tuple[int, int]:
        """rkey and address of our memory, for the peer."""
        return self.mr.rkey, self.mr.buf + offset

    # -- memory

    def put(self, data: bytes, offset: int = 0) -> None:
        self.mr.write(data, len(data), offset)

    def get(self, length: int, offset: int = 0) -> bytes:
        return self.mr.read(length, offset)

    def number(self, offset: int = 0) -> int:
        return int.from_bytes(self.get(8, offset), "little")

    def holds(self, data: bytes, offset: int = 0) -> bool:
        """Data came: watched for a while, as a program does that polls its memory."""
        limit = time.monotonic() + 10
        while self.get(len(data), offset) != data:
            if time.monotonic() > limit:
                return False
            time.sleep(0.001)
        return True

    # -- completions

    def poll(self, seconds: float = 30, *, cq: CQ | None = None) -> WC:
        limit, turns = time.monotonic() + seconds, 0
        while time.monotonic() < limit:
            count, completions = (cq or self.cq).poll(1)
            if count:
                return completions[0]
            turns += 1
            if turns > SPINS:
                time.sleep(NAP_S)
        raise AssertionError(f"no completion within {seconds} s")

    def done(self, opcode: int | None = None, *, cq: CQ | None = None) -> WC:
        completion = self.poll(cq=cq)
        assert completion.status == e.IBV_WC_SUCCESS, f"status {completion.status}"
        assert opcode is None or completion.opcode == opcode, f"opcode {completion.opcode}"
        return completion

    def failed(self, status: int) -> WC:
        completion = self.poll()
        assert completion.status == status, f"status {completion.status}, not {status}"
        return completion

    def empty(self) -> None:
        assert self.cq.poll(1)[0] == 0

    def event(self) -> None:
        """Wait for the completion channel, and take one event from it."""
        self.channel.get_cq_event(self.cq)
        self.cq.ack_events(1)

    # -- states

    def state(self) -> int:
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state

    def drained(self) -> None:
        """Nothing is left of what was begun before SQD; sooner no QP need leave that state."""
        limit = time.monotonic() + 5
        while self.qp.query(e.IBV_QP_STATE)[0].sq_draining:
            assert time.monotonic() < limit, "the send queue is not drained"
            time.sleep(0.005)

    def reaches(self, state: int) -> None:
        limit = time.monotonic() + 5
        while self.state() != state:
            assert time.monotonic() < limit, f"state {self.state()}, not {state}"
            time.sleep(0.005)

    def broken(self) -> None:
        """Wait until the connection is of no use to us any more.

        iWARP tells by RDMA-CM; the QP may keep its state until the program changes it.
        """
        if TARGET.has("acknowledged"):
            self.reaches(e.IBV_QPS_ERR)
        else:
            self.link.ended(client=self.active)

    def to(self, state: int) -> None:
        self.qp.modify(QPAttr(qp_state=state), e.IBV_QP_STATE)


def connect(a: Side, b: Side, *, timeout: int = 14, retry: int = 7, rnr: int = 7) -> None:
    """Both QPs from INIT to RTS; a is the active side."""
    if TARGET.address is None:
        options = {"timeout": timeout, "retry": retry, "rnr": rnr}
        a.qp.to_rts(a.attributes(b, **options))
        b.qp.to_rts(b.attributes(a, **options))
        return
    import cm  # brings in librdmacm

    a.link = b.link = cm.Link(TARGET.address)
    a.active = True
    a.link.connect(a.qp, b.qp, iwarp=not TARGET.has("out of band"), retry=retry, rnr=rnr)


def sides(context: Context | None = None, **options) -> tuple[Side, Side]:
    """Two sides without QPs yet."""
    context = context or TARGET.open()
    return Side(context, **options), Side(context, **options)


def pair(
    *,
    sq_sig_all: int = 0,
    qp_access: int | None = None,
    timeout: int = 14,
    retry: int = 7,
    rnr: int = 7,
    **options,
) -> tuple[Side, Side]:
    """Two connected sides, the first one active."""
    a, b = sides(**options)
    for side in (a, b):
        side.make_qp(sq_sig_all=sq_sig_all, qp_access=qp_access)
    connect(a, b, timeout=timeout, retry=retry, rnr=rnr)
    return a, b
