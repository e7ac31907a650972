# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases: devices, ports, and the states and attributes of QPs."""

from __future__ import annotations

import errno

import capability
from pair import SIGNALED, START_PSN, TARGET, Side, connect, needs, pair, refused, sides
from pyverbs import enums as e
from pyverbs.addr import AHAttr
from pyverbs.cq import CQ, CQEX, CqInitAttrEx
from pyverbs.device import get_device_list
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QPAttr


def works(call, *args, **kwargs) -> bool:
    try:
        call(*args, **kwargs)
    except (PyverbsError, PyverbsRDMAError):
        return False
    return True


def case_capabilities() -> None:
    """The table of capability.py is what this device says."""
    context = TARGET.open()
    device = context.query_device()
    iwarp = next(
        d.node_type == e.IBV_NODE_RNIC
        for d in get_device_list()
        if d.name.decode() == TARGET.device
    )
    side = Side(context)
    side.make_qp()
    invalidates = e.IBV_DEVICE_MEM_WINDOW_TYPE_2B | e.IBV_DEVICE_MEM_MGT_EXTENSIONS
    found = {
        "windows": device.device_cap_flags & invalidates == invalidates,
        "out of band": not iwarp,
        "acknowledged": not iwarp,
        "immediate": not iwarp,
        "atomics": device.atomic_caps != e.IBV_ATOMIC_NONE,
        "scattered READ": device.max_sge_rd > 1,
        "posting calls": works(Side(context).make_extended_qp, e.IBV_QP_EX_WITH_SEND),
        "polling calls": works(CQEX, context, CqInitAttrEx(cqe=16)),
        "resize": works(CQ(context, 8, None, None, 0).resize, 16),
    }
    assert {name: TARGET.has(name) for name in found} == found
    assert set(capability.KINDS[TARGET.kind]) <= set(capability.MEANING)


def case_device() -> None:
    context = TARGET.open()
    device = context.query_device()
    assert device.phys_port_cnt == 1
    assert device.max_qp >= 64
    assert device.max_cq >= 64
    assert device.max_mr >= 64
    assert device.max_qp_wr >= 1024
    assert device.max_cqe >= 1024
    assert device.max_sge >= 6
    assert device.max_qp_rd_atom >= 16
    assert device.max_mr_size >= 1 << 30


def case_port() -> None:
    context = TARGET.open()
    port = context.query_port(1)
    assert port.state == e.IBV_PORT_ACTIVE
    assert port.active_mtu in range(e.IBV_MTU_256, e.IBV_MTU_4096 + 1)
    assert port.max_mtu >= port.active_mtu
    assert port.gid_tbl_len >= 1
    refused(errno.EINVAL, context.query_port, 2)


def case_listing() -> None:
    names = [device.name.decode() for device in get_device_list()]
    assert TARGET.device in names


def case_room_is_as_asked() -> None:
    """A QP has at least what was asked for, before and after it is connected."""
    a, _b = pair(max_send_wr=33, max_recv_wr=17, max_send_sge=3, max_recv_sge=2)
    cap = a.qp.query(0x1FFFFF)[1].cap
    assert cap.max_send_wr >= 33
    assert cap.max_recv_wr >= 17
    assert cap.max_send_sge >= 3
    assert cap.max_recv_sge >= 2
    assert a.cq.cqe >= 256


@needs("out of band")
def case_attributes() -> None:
    a, b = pair()
    attr, init = a.qp.query(0x1FFFFF)
    assert attr.qp_state == e.IBV_QPS_RTS
    assert init.qp_type == e.IBV_QPT_RC
    assert attr.dest_qp_num == b.qp.qp_num
    assert attr.path_mtu <= a.context.query_port(1).active_mtu
    assert attr.retry_cnt == 7
    assert attr.rnr_retry == 7
    assert attr.max_rd_atomic == attr.max_dest_rd_atomic == 16
    assert attr.port_num == 1
    assert init.sq_sig_all == 0
    if TARGET.address is None:
        assert (attr.timeout, attr.min_rnr_timer) == (14, 1)
        assert attr.path_mtu == a.context.query_port(1).active_mtu
        assert attr.rq_psn == START_PSN


@needs("out of band")
def case_states_on_the_way() -> None:
    a, b = sides()
    a.make_qp()
    b.make_qp()
    assert a.state() == e.IBV_QPS_INIT
    attr = a.attributes(b)
    a.qp.to_rtr(attr)
    assert a.state() == e.IBV_QPS_RTR
    refused(errno.EINVAL, a.qp.modify, QPAttr(qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE)
    attr.qp_state = e.IBV_QPS_RTS
    a.qp.modify(
        attr,
        e.IBV_QP_STATE
        | e.IBV_QP_TIMEOUT
        | e.IBV_QP_RETRY_CNT
        | e.IBV_QP_RNR_RETRY
        | e.IBV_QP_SQ_PSN
        | e.IBV_QP_MAX_QP_RD_ATOMIC,
    )
    assert a.state() == e.IBV_QPS_RTS


@needs("out of band")
def case_bad_transitions() -> None:
    side = Side(TARGET.open())
    side.make_qp()
    refused(errno.EINVAL, side.qp.modify, QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
    refused(errno.EINVAL, side.qp.modify, QPAttr(qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE)
    refused(errno.EINVAL, side.qp.modify, QPAttr(qp_state=e.IBV_QPS_SQD), e.IBV_QP_STATE)
    assert side.state() == e.IBV_QPS_INIT


@needs("out of band")
def case_route_without_address() -> None:
    """RoCE has no LIDs: a path must be global."""
    side = Side(TARGET.open())
    side.make_qp()
    attr = side.attributes(side)
    attr.ah_attr = AHAttr(port_num=1, is_global=0)
    refused(errno.EINVAL, side.qp.to_rtr, attr)
    assert side.state() == e.IBV_QPS_INIT


@needs("out of band")
def case_post_before_it_may_be() -> None:
    """Receives from INIT on, sends from RTS on."""
    a, b = sides()
    a.make_qp()
    b.make_qp()
    refused(errno.EINVAL, a.send, [a.sge(1)])
    b.recv(100, wr_id=5)
    a.qp.to_rts(a.attributes(b))
    b.qp.to_rtr(b.attributes(a))
    a.send([a.sge(9)])
    assert b.done(e.IBV_WC_RECV).wr_id == 5
    a.done()


@needs("reset", "out of band")
def case_reset_and_connected_anew() -> None:
    a, b = pair()
    for side in (a, b):
        side.recv(10, wr_id=1)
        side.to(e.IBV_QPS_ERR)
        side.failed(e.IBV_WC_WR_FLUSH_ERR)
        side.to(e.IBV_QPS_RESET)
        assert side.state() == e.IBV_QPS_RESET
        side.empty()
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.qp_access_flags = side.access
        side.qp.modify(
            attr, e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS
        )
    a.link = b.link = None
    connect(a, b)
    b.recv(100, wr_id=2)
    a.put(b"again")
    a.send([a.sge(5)])
    assert b.done().wr_id == 2
    assert b.get(5) == b"again"
    a.done()


@needs("drain")
def case_drain() -> None:
    """In SQD what was begun is finished, what is posted then waits for RTS."""
    a, b = pair()
    a.write([a.sge(8)], b.target())
    a.done()
    a.to(e.IBV_QPS_SQD)
    assert a.state() in (e.IBV_QPS_SQD, e.IBV_QPS_RTS)
    b.recv(10)
    a.send([a.sge(7)], flags=SIGNALED)
    a.drained()
    attr = QPAttr(qp_state=e.IBV_QPS_RTS)
    a.qp.modify(attr, e.IBV_QP_STATE)
    a.done()
    assert b.done().byte_len == 7


@needs("drain", "drain event")
def case_drain_event() -> None:
    """Who asks for it hears once that the send queue is drained."""
    a, b = pair()
    for _ in range(8):
        a.write([a.sge(4096)], b.target())
    attr = QPAttr(qp_state=e.IBV_QPS_SQD)
    attr.en_sqd_async_notify = 1
    a.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_EN_SQD_ASYNC_NOTIFY)
    event = a.context.get_async_event()
    assert event.event_type == e.IBV_EVENT_SQ_DRAINED
    event.ack()
    assert not a.qp.query(e.IBV_QP_STATE)[0].sq_draining
    a.qp.modify(QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
    for _ in range(8):
        a.done()


def case_error_from_the_program() -> None:
    """Either end may end the connection; the other one notices, at the latest when it sends."""
    a, b = pair(timeout=8, retry=2)
    b.recv(10, wr_id=1)
    b.to(e.IBV_QPS_ERR)
    assert b.failed(e.IBV_WC_WR_FLUSH_ERR).wr_id == 1
    if TARGET.has("acknowledged"):
        a.read([a.sge(4)], b.target())
        assert a.poll().status != e.IBV_WC_SUCCESS
    a.broken()


def case_connections_one_after_another() -> None:
    """Thirty times made, used and closed, with the same objects beneath."""
    context = TARGET.open()
    a, b = sides(context)
    for i in range(30):
        a.make_qp()
        b.make_qp()
        connect(a, b)
        b.recv(10, wr_id=i)
        a.send([a.sge(i % 8)], wr_id=i)
        assert b.done().wr_id == i
        assert a.done().wr_id == i
        a.qp.close()
        b.qp.close()
        a.link = b.link = None
    a.empty()
