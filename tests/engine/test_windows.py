# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Memory windows, requests that send nothing, and regions that change."""

from __future__ import annotations

from typing import Any

import pytest

from datapath.native import ffi, lib
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import ALL_ACCESS, QP, Host, Memory, Options, World, check, failed, ok
from tests.engine.test_errors import MODES, pair

pytestmark = pytest.mark.san

BINDABLE = ALL_ACCESS | lib.DP_ACCESS_MW_BIND
READ, WRITE = lib.DP_ACCESS_REMOTE_READ, lib.DP_ACCESS_REMOTE_WRITE
TYPE_1, TYPE_2 = lib.DP_MW_TYPE_1, lib.DP_MW_TYPE_2


class Window:
    """A window of a host, which ends with the test."""

    def __init__(self, host: Host, kind: int, pd: Any = None) -> None:
        out = ffi.new("struct dp_mr **")
        check(lib.dp_mw_create(pd or host.pd, kind, out))
        self.mr = out[0]

    @property
    def key(self) -> int:
        return int(lib.dp_mr_key(self.mr))

    def close(self) -> None:
        assert lib.dp_mr_destroy(self.mr) == 0


def post(qp: QP, opcode: int, *, signaled: bool = True, **request: Any) -> int:
    wr = ffi.new("struct dp_send_wr *", {"wr_id": qp.next_id(), "opcode": opcode, **request})
    wr.flags = lib.DP_SEND_SIGNALED if signaled else 0
    status = int(lib.dp_qp_post_send(qp.qp, wr))
    qp.host.verify()
    return status


def post_batch(qp: QP, requests: list[dict[str, Any]]) -> int:
    flags = lib.DP_SEND_SIGNALED
    wrs = ffi.new("struct dp_send_wr[]", [{"flags": flags, **request} for request in requests])
    status = int(lib.dp_qp_post_sends(qp.qp, wrs, len(requests)))
    qp.host.verify()
    return status


def binding(
    window: Window,
    region: Memory,
    offset: int = 0,
    length: int | None = None,
    *,
    access: int = READ | WRITE,
    key: int | None = None,
) -> dict[str, Any]:
    return {
        "window": window.mr,
        "region": region.mr,
        "addr": region.addr + offset,
        "len": region.size - offset if length is None else length,
        "access": access,
        "key": window.key + 1 & 0xFF | window.key & ~0xFF if key is None else key,
    }


def bind(qp: QP, *of: Any, signaled: bool = True, **options: Any) -> int:
    return post(qp, lib.DP_WR_BIND_MW, signaled=signaled, bind=binding(*of, **options))


@pytest.mark.parametrize("kind", [TYPE_1, TYPE_2])
@MODES
def test_a_window_opens_its_part_of_a_region(
    make_world: MakeWorld, extended: bool, kind: int
) -> None:
    world, a, b = pair(make_world, extended=extended)
    region = b.host.memory(bytes(range(100)), access=BINDABLE)
    window = Window(b.host, kind)
    assert bind(b, window, region, 10, 20) == 0
    assert b.poll() == [ok("BIND_MW")]
    a.write(b"in", (region.addr + 28, window.key))
    got = a.read(20, (region.addr + 10, window.key))
    world.run()
    assert a.poll() == [ok("RDMA_WRITE"), ok("RDMA_READ", byte_len=20)]
    assert bytes(got) == bytes(range(10, 28)) + b"in"
    window.close()


@pytest.mark.parametrize(("offset", "length"), [(9, 1), (30, 1), (29, 2), (9, 22)])
@MODES
def test_nothing_beside_the_part(
    make_world: MakeWorld, extended: bool, offset: int, length: int
) -> None:
    world, a, b = pair(make_world, extended=extended)
    region = b.host.memory(100, access=BINDABLE)
    window = Window(b.host, TYPE_2)
    assert bind(b, window, region, 10, 20) == 0
    a.write(b"x" * length, (region.addr + offset, window.key))
    world.run()
    assert a.poll() == [failed("REM_ACCESS_ERR")]
    assert bytes(region) == bytes(100)
    window.close()


@pytest.mark.parametrize("access", [0, READ])
def test_a_window_has_rights_of_its_own(world: World, access: int) -> None:
    a, b = world.pair()
    region = b.host.memory(100, access=BINDABLE)
    window = Window(b.host, TYPE_1)
    assert bind(b, window, region, access=access) == 0
    a.write(b"x", (region.addr, window.key))
    world.run()
    assert a.poll() == [failed("REM_ACCESS_ERR")]
    window.close()


def test_zero_based(world: World) -> None:
    a, b = world.pair()
    region = b.host.memory(100, access=BINDABLE)
    window = Window(b.host, TYPE_2)
    assert bind(b, window, region, 40, 10, access=WRITE | lib.DP_ACCESS_ZERO_BASED) == 0
    a.write(b"zero", (6, window.key))
    world.run()
    assert bytes(region)[46:50] == b"zero"
    window.close()


def test_a_window_is_no_local_memory(world: World) -> None:
    a, b = world.pair()
    region = a.host.memory(100, access=BINDABLE)
    window = Window(a.host, TYPE_1)
    assert bind(a, window, region) == 0
    b.recv(100)
    assert a.post_send(lib.DP_WR_SEND, [(region.addr, 4, window.key)], wr_id=9) == 0
    world.run()
    assert a.poll()[-1] == failed("LOC_PROT_ERR", wr_id=9)
    window.close()


def test_type_2_is_of_the_queue_pair_that_bound_it(world: World) -> None:
    """And ends with it."""
    a, b = world.pair()
    c, d = world.pair()
    region = b.host.memory(100, access=BINDABLE)
    window = Window(b.host, TYPE_2)
    assert bind(b, window, region) == 0
    c.write(b"stranger", (region.addr, window.key))
    world.run()
    assert c.poll() == [failed("REM_ACCESS_ERR")]
    assert bytes(region) == bytes(100)
    assert region.deregister() < 0
    b.destroy()
    a.host.send_all()
    assert region.deregister() == 0
    window.close()
    d.destroy()


def test_bind_refused(world: World) -> None:
    """At once; nothing is changed and nothing completes."""
    a, b = world.pair()
    region = b.host.memory(100, access=BINDABLE)
    plain = b.host.memory(100)
    unwritable = b.host.memory(100, access=READ | lib.DP_ACCESS_MW_BIND)
    other_pd = b.host.memory(100, access=BINDABLE, pd=b.host.make_pd())
    window, one = Window(b.host, TYPE_2), Window(b.host, TYPE_1)
    foreign = Window(b.host, TYPE_1, pd=b.host.pds[-1])
    assert bind(b, window, plain) < 0
    assert bind(b, window, unwritable) < 0
    assert bind(b, window, other_pd) < 0
    assert bind(b, foreign, region) < 0
    assert bind(b, window, region, 90, 11) < 0
    assert bind(b, window, region, -1, 5) < 0
    assert bind(b, window, region, length=0) < 0
    assert bind(b, window, region, key=window.key ^ 0x100) < 0
    itself = {"window": region.mr, "region": region.mr, "key": region.key}
    assert post(b, lib.DP_WR_BIND_MW, bind=itself) < 0
    assert bind(b, window, region) == 0
    assert bind(b, window, region) < 0  # bound already
    assert post(b, lib.DP_WR_LOCAL_INV, imm=one.key) < 0  # not of type 2
    assert post(b, lib.DP_WR_LOCAL_INV, imm=region.key) < 0
    assert b.poll() == [ok("BIND_MW")]
    for each in (window, one, foreign):
        each.close()
    assert a.state == "RTS"


@pytest.mark.parametrize("by", ["local", "remote", "rebound", "closed"])
@MODES
def test_a_window_is_closed(make_world: MakeWorld, extended: bool, by: str) -> None:
    world, a, b = pair(make_world, extended=extended)
    region = b.host.memory(100, access=BINDABLE)
    window = Window(b.host, TYPE_1 if by == "rebound" else TYPE_2)
    assert bind(b, window, region) == 0
    key = window.key
    if by == "local":
        assert post(b, lib.DP_WR_LOCAL_INV, imm=key) == 0
        assert b.poll() == [ok("BIND_MW"), ok("LOCAL_INV")]
    elif by == "remote":
        b.recv(10)
        a.send(b"bye", inv=key)
        world.run()
        assert b.poll_recv() == [ok("RECV", inv=key)]
        assert a.poll() == [ok("SEND")]
    elif by == "rebound":
        assert bind(b, window, region, length=0) == 0
        assert window.key != key
    else:
        window.close()
    a.write(b"late", (region.addr, key))
    world.run()
    assert a.poll() == [failed("REM_ACCESS_ERR")]
    assert bytes(region) == bytes(100)
    assert region.deregister() == 0
    if by != "closed":
        window.close()


def test_a_peer_takes_away_only_windows_of_its_queue_pair(world: World) -> None:
    a, b = world.pair()
    c, d = world.pair()
    region = b.host.memory(100, access=BINDABLE)
    window = Window(b.host, TYPE_2)
    assert bind(b, window, region) == 0
    d.recv(10)
    c.send(b"bye", inv=window.key)
    world.run()
    assert c.poll() == [failed("REM_ACCESS_ERR")]
    a.write(b"open", (region.addr, window.key))
    world.run()
    assert a.poll() == [ok("RDMA_WRITE")]
    window.close()


# ---- the order of completions ----------------------------------------------------------


@MODES
def test_local_requests_complete_in_their_turn(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    region = a.host.memory(100, access=BINDABLE)
    target = b.host.memory(10)
    window = Window(a.host, TYPE_2)
    a.write(b"1", target)
    assert bind(a, window, region) == 0
    assert post(a, lib.DP_WR_LOCAL_INV, imm=window.key, signaled=False) == 0
    assert bind(a, window, region) == 0
    a.write(b"2", target)
    assert a.poll() == []
    world.run()
    names = [c.opcode for c in a.poll()]
    assert names == ["RDMA_WRITE", "BIND_MW", "BIND_MW", "RDMA_WRITE"]
    window.close()


def test_local_requests_behind_one_that_fails_are_flushed(world: World) -> None:
    a, b = world.pair()
    region = a.host.memory(100, access=BINDABLE)
    window = Window(a.host, TYPE_2)
    a.write(b"1", (0, 0xBAD), wr_id=1)
    assert bind(a, window, region, signaled=False) == 0
    world.run()
    assert a.poll() == [failed("REM_ACCESS_ERR", wr_id=1), failed("WR_FLUSH_ERR")]
    assert bind(a, window, region) == 0  # in error: flushed, not done
    assert a.poll() == [failed("WR_FLUSH_ERR")]
    window.close()
    assert b.state == "ERR"


def test_local_requests_take_places_of_the_send_queue(world: World) -> None:
    """Also when the places are used again and again."""
    a, b = world.pair(max_send_wr=4)
    region = a.host.memory(100, access=BINDABLE)
    target = b.host.memory(10)
    window = Window(a.host, TYPE_2)
    for _ in range(10):
        a.write(b"1", target)
        assert bind(a, window, region) == 0
        assert post(a, lib.DP_WR_LOCAL_INV, imm=window.key) == 0
        a.write(b"2", target)
        assert bind(a, window, region) < 0  # full
        world.run()
        assert [c.opcode for c in a.poll()] == ["RDMA_WRITE", "BIND_MW", "LOCAL_INV", "RDMA_WRITE"]
    a.write(b"3", target)
    assert bind(a, window, region) == 0
    a.to(lib.DP_QPS_RESET)
    assert a.poll() == []
    window.close()


# ---- batches -----------------------------------------------------------------------------


def write_of(source: Memory, target: Memory) -> dict[str, Any]:
    return {
        "opcode": lib.DP_WR_RDMA_WRITE,
        "num_sge": 1,
        "sge": ffi.new("struct dp_sge *", source.sge()),
        "remote_addr": target.addr,
        "rkey": target.key,
    }


def test_a_batch_with_a_bad_bind_posts_and_changes_nothing(world: World) -> None:
    """Each of these windows and keys is as it was, and so is the memory that a peer may reach."""
    a, b = world.pair()
    region, target = b.host.memory(100, access=BINDABLE), a.host.memory(4)
    fresh, bound = Window(b.host, TYPE_2), Window(b.host, TYPE_2)
    assert bind(b, bound, region, 10, 20) == 0
    assert b.poll() == [ok("BIND_MW")]
    keys = fresh.key, bound.key
    write = write_of(b.host.memory(b"sent"), target)
    last = {"opcode": lib.DP_WR_LOCAL_INV, "imm": 0xBAD}
    batch = [
        write,
        {"opcode": lib.DP_WR_BIND_MW, "bind": binding(fresh, region)},
        {"opcode": lib.DP_WR_LOCAL_INV, "imm": bound.key},
        {"opcode": lib.DP_WR_BIND_MW, "bind": binding(bound, region, 50, 20)},
        last,
    ]
    assert post_batch(b, batch) < 0
    assert post_batch(b, [write, last]) < 0
    assert (fresh.key, bound.key) == keys
    a.write(b"open", (region.addr + 10, bound.key))
    world.run()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert (b.poll(), bytes(target)) == ([], bytes(4))
    assert post_batch(b, batch[:-1]) == 0
    world.run()
    names = ["RDMA_WRITE", "BIND_MW", "LOCAL_INV", "BIND_MW"]
    assert [c.opcode for c in b.poll()] == names
    assert bytes(target) == b"sent"
    for window in (fresh, bound):
        assert region.deregister() < 0
        window.close()
    assert region.deregister() == 0


def test_a_batch_in_a_state_that_takes_no_requests(world: World) -> None:
    a, b = world.pair()
    window = Window(a.host, TYPE_2)
    region = a.host.memory(100, access=BINDABLE)
    batch = [{"opcode": lib.DP_WR_BIND_MW, "bind": binding(window, region)}] * 2
    assert post_batch(a, batch) < 0  # the second one finds the window bound
    check(a.to(lib.DP_QPS_ERR))
    assert post_batch(a, batch) == 0
    assert a.poll() == [failed("WR_FLUSH_ERR")] * 2
    check(a.to(lib.DP_QPS_RESET))
    assert post_batch(a, batch) < 0
    assert region.deregister() == 0
    window.close()
    assert b.state == "RTS"


# ---- regions that change -------------------------------------------------------------------


def change(memory: Memory, *, pd: Any = None, access: int | None = None, **range_: Any) -> int:
    rights = ffi.NULL if access is None else ffi.new("uint32_t *", access)
    where = ffi.new("struct dp_range *", range_) if range_ else ffi.NULL
    return int(lib.dp_mr_change(memory.mr, pd or ffi.NULL, where, rights))


def test_a_region_changes_its_rights_its_place_and_its_domain(world: World) -> None:
    a, b = world.pair()
    region, elsewhere = b.host.memory(64), b.host.memory(64)
    a.write(b"here", region)
    world.run()
    place = {"addr": elsewhere._start, "len": 64, "iova": 0x1000}
    assert change(region, **place) == 0
    a.write(b"there", (0x1000, region.key))
    world.run()
    assert a.poll() == [ok("RDMA_WRITE"), ok("RDMA_WRITE")]
    assert (bytes(region)[:5], bytes(elsewhere)[:5]) == (b"here\0", b"there")
    assert change(region, access=lib.DP_ACCESS_LOCAL_WRITE) == 0
    a.write(b"refused", (0x1000, region.key))
    world.run()
    assert a.poll() == [failed("REM_ACCESS_ERR")]
    assert bytes(elsewhere)[:5] == b"there"


def test_a_region_of_another_domain_is_out_of_reach(world: World) -> None:
    a, b = world.pair()
    region = b.host.memory(64)
    assert change(region, pd=b.host.make_pd()) == 0
    a.write(b"stranger", region)
    world.run()
    assert a.poll() == [failed("REM_ACCESS_ERR")]
    assert bytes(region) == bytes(64)


def test_a_change_refused_changes_nothing(world: World) -> None:
    a, b = world.pair()
    region = b.host.memory(64, access=BINDABLE)
    window = Window(b.host, TYPE_1)
    assert change(region, access=WRITE) < 0  # without local write
    assert change(region, addr=region._start, len=2, iova=2**64 - 1) < 0
    assert bind(b, window, region) == 0
    assert change(region, access=ALL_ACCESS) < 0  # a window is bound to it
    a.write(b"still", region)
    world.run()
    assert a.poll() == [ok("RDMA_WRITE")]
    window.close()
    assert change(region, access=ALL_ACCESS) == 0


# ---- completions ----------------------------------------------------------------------------


def test_a_completion_tells_its_time(world: World) -> None:
    a, b = world.pair()
    wc = ffi.new("struct dp_wc *")
    for _ in range(2):
        a.write(b"1", b.host.memory(1))
        world.run(until=lambda: lib.dp_cq_poll(a.send_cq, 1, wc) == 1)
        assert wc.completed_ns == world.now
        world.run()
        world.advance(12345)


def test_what_completes_when_posted_has_the_time_that_was_told(world: World) -> None:
    a, b = world.pair()
    wr = ffi.new("struct dp_send_wr *", {"opcode": lib.DP_WR_LOCAL_INV})
    send = ffi.new("struct dp_send_wr *", {"opcode": lib.DP_WR_SEND})
    assert lib.dp_qp_completes_posts(b.qp, wr, 1)
    assert not lib.dp_qp_completes_posts(b.qp, send, 1)
    assert not lib.dp_qp_completes_posts(b.qp, ffi.NULL, 0)
    check(b.to(lib.DP_QPS_ERR))
    assert lib.dp_qp_completes_posts(b.qp, send, 1)
    assert lib.dp_qp_completes_posts(b.qp, ffi.NULL, 0)
    wc = ffi.new("struct dp_wc *")
    lib.dp_engine_clock(b.host.engine, world.now + 777)
    b.recv(4)
    assert lib.dp_cq_poll(b.recv_cq, 1, wc) == 1
    assert wc.completed_ns == world.now + 777
    assert a.state == "RTS"


def test_type_2_outlives_a_reset_of_its_queue_pair(world: World) -> None:
    a, b = world.pair()
    region = b.host.memory(100, access=BINDABLE)
    window = Window(b.host, TYPE_2)
    assert bind(b, window, region) == 0
    for qp in (a, b):
        check(qp.to(lib.DP_QPS_RESET))
    assert region.deregister() < 0
    for qp, peer, psn in ((a, b, 900), (b, a, 300)):
        check(qp.to_init())
        check(qp.to_rtr(peer, psn))
    check(a.to_rts(300))
    a.write(b"again", (region.addr, window.key))
    assert world.run()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(region)[:5] == b"again"
    window.close()


def test_reset_takes_completions_back(world: World) -> None:
    """Those of the queue pair alone: what it was is over."""
    shared = Options(cq=world.a_host.make_cq())
    a, b = QP(world.a_host, shared), QP(world.a_host, shared)
    for qp in (a, b):
        qp.to_init()
        qp.recv(10, wr_id=qp.qpn)
    a.to(lib.DP_QPS_ERR)
    b.to(lib.DP_QPS_ERR)
    a.to(lib.DP_QPS_RESET)
    assert b.poll_recv() == [failed("WR_FLUSH_ERR", wr_id=b.qpn)]
