# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The queue pair's state machine (IBTA vol. 1, section 10.3.1) and what flushes."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest

from datapath.native import ffi, lib
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import (
    ALL_ACCESS,
    INIT_TO_RTR,
    MS,
    QP,
    RESET_TO_INIT,
    RTR_TO_RTS,
    Channel,
    Options,
    S,
    World,
    failed,
    ok,
    pattern,
)
from tests.engine.test_errors import MODES, pair

pytestmark = pytest.mark.san

STATES = ["RESET", "INIT", "RTR", "RTS", "SQD", "ERR"]
VALUE = {name: getattr(lib, f"DP_QPS_{name}") for name in STATES}
ATTRIBUTES: dict[str, Any] = {
    "access": ALL_ACCESS,
    "path_mtu": 1024,
    "rq_psn": 0,
    "sq_psn": 0,
    "timeout": 14,
    "retry_cnt": 7,
    "rnr_retry": 7,
    "min_rnr_timer": 1,
    "max_rd_atomic": 4,
    "max_dest_rd_atomic": 4,
}
MASKS = {
    ("RESET", "INIT"): RESET_TO_INIT,
    ("INIT", "INIT"): lib.DP_QP_STATE,
    ("INIT", "RTR"): INIT_TO_RTR,
    ("RTR", "RTS"): RTR_TO_RTS,
    ("RTS", "RTS"): lib.DP_QP_STATE,
    ("RTS", "SQD"): lib.DP_QP_STATE,
    ("SQD", "SQD"): lib.DP_QP_STATE,
    ("SQD", "RTS"): lib.DP_QP_STATE,
}
WAY = {"RESET": [], "INIT": ["INIT"], "RTR": ["INIT", "RTR"], "RTS": ["INIT", "RTR", "RTS"]}


def modify(qp: QP, peer: QP, state: str, mask: int) -> int:
    return qp.modify(
        mask, state=VALUE[state], raddr=peer.host.addr, dest_qpn=peer.qpn, **ATTRIBUTES
    )


def in_state(world: World, state: str) -> tuple[QP, QP]:
    qp, peer = QP(world.a_host, Options()), QP(world.b_host, Options())
    way = WAY.get(state, [*WAY["RTS"], state])
    for before, after in itertools.pairwise(["RESET", *way]):
        mask = MASKS.get((before, after), lib.DP_QP_STATE)
        assert modify(qp, peer, after, mask) == 0
    assert qp.state == state
    return qp, peer


@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", STATES)
def test_transitions(world: World, before: str, after: str) -> None:
    """Those of the table, and from anywhere to RESET and ERR; no other, and no half ones."""
    qp, peer = in_state(world, before)
    legal = (before, after) in MASKS or after in ("RESET", "ERR")
    mask = MASKS.get((before, after), lib.DP_QP_STATE)
    status = modify(qp, peer, after, mask)
    assert (status == 0) == legal, status
    assert qp.state == (after if legal else before)


@pytest.mark.parametrize(
    "bit",
    [
        "PKEY_INDEX",
        "PORT",
        "ACCESS_FLAGS",
    ],
)
def test_init_needs_all_its_attributes(world: World, bit: str) -> None:
    qp, peer = in_state(world, "RESET")
    assert modify(qp, peer, "INIT", RESET_TO_INIT & ~getattr(lib, f"DP_QP_{bit}")) < 0
    assert qp.state == "RESET"


@pytest.mark.parametrize(
    "bit",
    ["AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"],
)
def test_rtr_needs_all_its_attributes(world: World, bit: str) -> None:
    qp, peer = in_state(world, "INIT")
    assert modify(qp, peer, "RTR", INIT_TO_RTR & ~getattr(lib, f"DP_QP_{bit}")) < 0
    assert qp.state == "INIT"


@pytest.mark.parametrize("bit", ["TIMEOUT", "RETRY_CNT", "RNR_RETRY", "SQ_PSN", "MAX_QP_RD_ATOMIC"])
def test_rts_needs_all_its_attributes(world: World, bit: str) -> None:
    qp, peer = in_state(world, "RTR")
    assert modify(qp, peer, "RTS", RTR_TO_RTS & ~getattr(lib, f"DP_QP_{bit}")) < 0
    assert qp.state == "RTR"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path_mtu", 128),
        ("path_mtu", 1500),
        ("path_mtu", 8192),
        ("max_dest_rd_atomic", 17),
        ("min_rnr_timer", 32),
    ],
)
def test_values_out_of_range_for_rtr(world: World, field: str, value: int) -> None:
    qp, peer = in_state(world, "INIT")
    fields = ATTRIBUTES | {field: value}
    status = qp.modify(
        INIT_TO_RTR, state=VALUE["RTR"], raddr=peer.host.addr, dest_qpn=peer.qpn, **fields
    )
    assert status < 0
    assert qp.state == "INIT"


@pytest.mark.parametrize(
    ("field", "value"),
    [("timeout", 32), ("retry_cnt", 8), ("rnr_retry", 8), ("max_rd_atomic", 17)],
)
def test_values_out_of_range_for_rts(world: World, field: str, value: int) -> None:
    qp, _ = in_state(world, "RTR")
    assert qp.modify(RTR_TO_RTS, state=VALUE["RTS"], **(ATTRIBUTES | {field: value})) < 0
    assert qp.state == "RTR"


def test_unknown_attributes_are_refused(world: World) -> None:
    qp, peer = in_state(world, "INIT")
    assert modify(qp, peer, "RTR", INIT_TO_RTR | 1 << 30) < 0
    assert modify(qp, peer, "RTR", INIT_TO_RTR | lib.DP_QP_SQ_PSN) < 0
    assert qp.state == "INIT"


def test_path_mtu_is_limited_by_the_port(make_world: MakeWorld) -> None:
    world = make_world(path_mtu_max=1024)
    qp, peer = in_state(world, "INIT")
    fields = ATTRIBUTES | {"path_mtu": 2048}
    status = qp.modify(
        INIT_TO_RTR, state=VALUE["RTR"], raddr=peer.host.addr, dest_qpn=peer.qpn, **fields
    )
    assert status < 0


def test_query_tells_what_modify_set(world: World) -> None:
    a, b = world.pair(a_psn=7, b_psn=9, timeout=12, retry_cnt=3, rnr_retry=4, min_rnr_timer=5)
    attr = a.attr
    told = (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer, attr.path_mtu)
    assert told == (12, 3, 4, 5, 1024)
    assert (attr.dest_qpn, attr.rq_psn, attr.sq_psn) == (b.qpn, 9, 7)
    assert bytes(attr.raddr.b) == b.host.addr


# ---- what may be posted when -----------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_posting(world: World, state: str) -> None:
    qp, _ = in_state(world, state)
    sge = qp.host.memory(8).sge()
    sends = qp.post_send(lib.DP_WR_SEND, [sge], wr_id=1)
    receives = qp.post_recv([sge], wr_id=2)
    assert (sends == 0) == (state in ("RTS", "SQD", "ERR"))
    assert (receives == 0) == (state != "RESET")
    flushed = state == "ERR"
    assert qp.poll() == ([failed("WR_FLUSH_ERR", wr_id=1)] if flushed else [])
    assert qp.poll_recv() == ([failed("WR_FLUSH_ERR", wr_id=2)] if flushed else [])


def test_error_flushes_both_queues_in_order(world: World) -> None:
    a, b = world.pair()
    for i in range(4):
        a.write(b"x", b.host.memory(8), wr_id=i, signaled=i % 2 == 0)
        a.recv(8, wr_id=10 + i)
    a.host.send_all()
    assert a.to(lib.DP_QPS_ERR) == 0
    assert a.poll() == [failed("WR_FLUSH_ERR", wr_id=i) for i in range(4)]
    assert a.poll_recv() == [failed("WR_FLUSH_ERR", wr_id=10 + i) for i in range(4)]
    world.advance(10**10)
    world.silent(a)
    assert a.host.deadline == lib.DP_NEVER


def test_reset_forgets_without_completions(world: World) -> None:
    a, b = world.pair()
    a.write(b"x", b.host.memory(8))
    a.recv(8)
    a.host.send_all()
    assert a.to(lib.DP_QPS_RESET) == 0
    assert a.poll() == a.poll_recv() == []
    world.advance(10**10)
    world.silent(a)


def test_a_queue_pair_can_be_connected_again_after_reset(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(64)
    a.write(b"before", target)
    world.settle()
    for qp in (a, b):
        assert qp.to(lib.DP_QPS_RESET) == 0
    for qp, peer, psn in ((a, b, 900), (b, a, 300)):
        assert qp.to_init() == 0
        assert qp.to_rtr(peer, psn) == 0
    assert a.to_rts(300) == b.to_rts(900) == 0
    a.poll()
    a.write(b"after.", target)
    world.says(a, "WRITE_ONLY 300")
    world.says(b, "ACK 300 msn=1")
    assert a.poll() == [ok("RDMA_WRITE")]


@pytest.mark.parametrize("extended", [False, True])
def test_nothing_of_a_connection_outlives_a_reset(make_world: MakeWorld, extended: bool) -> None:
    """Over a long path, with data both ways; to() compares the QP with what it was at first."""
    world = make_world(extended=extended, telemetry=1, ecn=1, cnp_ns=1)
    a, b = world.pair(timeout=20)
    far = Channel(latency_ns=150 * MS, mark=0.5, loss=0.1)
    for qp, peer in ((a, b), (b, a)):
        word = peer.host.memory(8)
        for size in (8, 3000):
            qp.write(bytes(size), peer.host.memory(size))
            qp.read(size, peer.host.memory(size))
        qp.recv(8)
        peer.send(b"message!")
        qp.faa(word, 1)
    world.run(far, limit_ns=2 * S)
    assert a.extended == extended
    for qp in (a, b):
        qp.write(bytes(3000), word)
        assert qp.to(lib.DP_QPS_SQD) == 0
        assert qp.to(lib.DP_QPS_RESET) == 0


def test_rtr_answers_but_does_not_ask(world: World) -> None:
    a, b = QP(world.a_host, Options()), QP(world.b_host, Options())
    for qp, peer in ((a, b), (b, a)):
        assert qp.to_init() == 0
        assert qp.to_rtr(peer, 100) == 0
    assert a.to_rts(100) == 0
    into = b.recv(64)
    a.send(b"hello")
    world.says(a, "SEND_ONLY 100")
    world.says(b, "ACK 100")
    assert bytes(into)[:5] == b"hello"
    assert b.host.events() == ["COMM_EST"]


# ---- the send queue drains (IBTA vol. 1, 10.3.1.5) ---------------------------------------

NOTIFY = lib.DP_QP_STATE | lib.DP_QP_EN_SQD_ASYNC_NOTIFY


@MODES
def test_sqd_finishes_what_was_begun_and_starts_nothing(
    make_world: MakeWorld, extended: bool
) -> None:
    """The first packet of a message leaves; the rest of it is sent and sent again in SQD."""
    world, a, b = pair(make_world, extended=extended)
    first, second = b.host.memory(5000), b.host.memory(100)
    a.write(pattern(5000), first, wr_id=1)
    a.write(pattern(100), second, wr_id=2)
    a.host.send(1)  # and that is lost
    assert a.modify(NOTIFY, state=lib.DP_QPS_SQD, sqd_notify=1) == 0
    assert a.attr.sq_draining
    a.write(pattern(100), second, wr_id=3)
    assert world.run(limit_ns=10 * S)
    assert a.poll() == [ok("RDMA_WRITE", wr_id=1)]
    assert bytes(first) == pattern(5000)
    assert bytes(second) == bytes(100)
    assert not a.attr.sq_draining
    assert a.host.events().count("SQ_DRAINED") == 1
    assert a.stats()["retransmits"] >= 1
    assert a.to(lib.DP_QPS_RTS) == 0
    assert world.run(limit_ns=10 * S)
    assert a.poll() == [ok("RDMA_WRITE", wr_id=2), ok("RDMA_WRITE", wr_id=3)]
    assert "SQ_DRAINED" not in a.host.events()


def test_a_read_that_is_queued_may_be_sent(world: World) -> None:
    """Where the limit is zero, none may be posted; so it may not become zero behind one."""
    a, b = world.pair()
    source = b.host.memory(b"12345678")
    assert a.to(lib.DP_QPS_SQD) == 0
    into = a.read(8, source)
    assert a.modify(lib.DP_QP_MAX_QP_RD_ATOMIC, max_rd_atomic=0) == -errno.EINVAL
    assert a.modify(lib.DP_QP_MAX_QP_RD_ATOMIC, max_rd_atomic=1) == 0
    assert a.to(lib.DP_QPS_RTS) == 0
    assert world.run()
    assert bytes(into) == b"12345678"
    assert a.to(lib.DP_QPS_SQD) == 0
    assert a.modify(lib.DP_QP_MAX_QP_RD_ATOMIC, max_rd_atomic=0) == 0


@MODES
def test_sqd_waits_for_answers(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    into = a.read(100_000, b.host.memory(pattern(100_000)), wr_id=1)
    a.host.send(1)
    assert a.to(lib.DP_QPS_SQD) == 0
    assert a.attr.sq_draining
    assert world.run(Channel(loss=0.05, seed=3), limit_ns=100 * S)
    assert a.poll() == [ok("RDMA_READ", wr_id=1)]
    assert bytes(into) == pattern(100_000)
    assert not a.attr.sq_draining
    assert a.host.events().count("SQ_DRAINED") == 0  # nobody asked for it


@MODES
def test_sqd_of_an_idle_queue_pair_is_drained_at_once(
    make_world: MakeWorld, extended: bool
) -> None:
    _, a, b = pair(make_world, extended=extended)
    a.write(b"waits", b.host.memory(8))
    assert a.modify(NOTIFY, state=lib.DP_QPS_SQD, sqd_notify=1) == 0
    assert not a.attr.sq_draining
    assert a.host.events() == ["SQ_DRAINED"]
    assert [p.name for p in a.host.send_all()] == []


@MODES
def test_sqd_ends_with_the_peer(make_world: MakeWorld, extended: bool) -> None:
    """A drain that cannot be finished fails as in RTS."""
    world, a, b = pair(make_world, extended=extended, retry_cnt=1, timeout=10)
    a.write(pattern(5000), b.host.memory(5000), wr_id=1)
    a.host.send_all()
    assert a.modify(NOTIFY, state=lib.DP_QPS_SQD, sqd_notify=1) == 0
    a.write(b"x", b.host.memory(8), wr_id=2)
    assert world.run(Channel(loss=1.0), limit_ns=100 * S)
    assert a.poll() == [failed("RETRY_EXC_ERR", wr_id=1), failed("WR_FLUSH_ERR", wr_id=2)]
    assert a.host.events() == ["QP_FAILED"]


# ---- objects in use --------------------------------------------------------------------


def test_objects_in_use_are_not_destroyed(world: World) -> None:
    a, _ = world.pair()
    assert lib.dp_cq_destroy(a.send_cq) == -16
    assert lib.dp_pd_destroy(a.host.pd) == -16


def test_queue_pair_numbers_are_not_soon_used_again(world: World) -> None:
    numbers = set()
    for _ in range(50):
        qp = QP(world.a_host, Options(max_send_wr=1, max_recv_wr=1))
        numbers.add(qp.qpn)
        qp.destroy()
    assert len(numbers) == 50


def test_qpn_prefix(make_world: MakeWorld) -> None:
    world = make_world(qpn_prefix=0xAB)
    a, _ = world.pair()
    assert a.qpn >> 16 == 0xAB


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_send_wr", 1 << 20),
        ("max_recv_wr", 1 << 20),
        ("max_send_sge", 33),
        ("max_recv_sge", 33),
        ("max_inline", 1025),
    ],
)
def test_queue_pairs_that_are_too_large(world: World, field: str, value: int) -> None:
    host = world.a_host
    config = ffi.new("struct dp_qp_config *")
    config.pd, config.send_cq, config.recv_cq = host.pd, host.make_cq(), host.make_cq()
    setattr(config, field, value)
    assert lib.dp_qp_create(host.engine, config, ffi.new("struct dp_qp **")) < 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path_mtu_max", 100),
        ("path_mtu_max", 10_000),
        ("window_psns", 100),
        ("window_psns", 1 << 18),
    ],
)
def test_engines_that_make_no_sense(field: str, value: int) -> None:
    fields = {"path_mtu_max": 4096} | {field: value}
    config = ffi.new("struct dp_engine_config *", fields)
    assert lib.dp_engine_create(config, ffi.new("struct dp_engine **")) == -22


def test_bundles_without_payload_make_no_sense() -> None:
    fields = {"path_mtu_max": 4096, "bundle": 1, "no_payload": 1}
    config = ffi.new("struct dp_engine_config *", fields)
    assert lib.dp_engine_create(config, ffi.new("struct dp_engine **")) == -22
