# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Memory for windows: engines that share a store, and what an idle QP costs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from datapath.native import ffi, lib
from tests.engine.ladder import (
    ALL_ACCESS,
    INIT_TO_RTR,
    RESET_TO_INIT,
    RTR_TO_RTS,
    Channel,
    World,
    check,
    ok,
    pattern,
)

IDLE_BYTES_MAX = 1174  # 1.1 KiB
WQES = 4


@pytest.fixture
def store() -> Iterator[Any]:
    out = ffi.new("struct dp_store **")
    check(lib.dp_store_create(64, out))
    yield out[0]
    lib.dp_store_destroy(out[0])


@pytest.mark.san
def test_engines_that_share_a_store_move_data(store: Any) -> None:
    """A window of 64 packets, most operations at once, on a path that loses packets."""
    with World(extended=True, store=store, window_psns=64) as world:
        pairs = [world.extended_pair() for _ in range(4)]
        data = pattern(30_000)
        targets = [b.host.memory(len(data)) for _, b in pairs]
        for (a, b), target in zip(pairs, targets, strict=True):
            a.write(data, target)
            a.faa(b.host.memory(8), 1)
            a.read(len(data), target)
        assert world.run(Channel(loss=0.05, rate_bps=10e9))
        for (a, _), target in zip(pairs, targets, strict=True):
            assert a.poll() == [ok("RDMA_WRITE"), ok("FETCH_ADD"), ok("RDMA_READ")]
            assert bytes(target) == data


@pytest.mark.san
@pytest.mark.parametrize("window", [32, 65, 1 << 18])
def test_a_store_has_the_window_of_its_engines(store: Any, window: int) -> None:
    assert lib.dp_store_create(window, ffi.new("struct dp_store **")) < 0
    config = {"path_mtu_max": 1024, "store": store, "window_psns": 128}
    settings = ffi.new("struct dp_engine_config *", config)
    assert lib.dp_engine_create(settings, ffi.new("struct dp_engine **")) < 0


MALLINFO2 = """arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"""


class Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in MALLINFO2.split(" "))


def allocated() -> int:
    """Bytes that malloc() has handed out."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def test_an_idle_qp_costs_little(store: Any) -> None:
    """A connected one, beside its queues."""
    world = World(extended=True, store=store, window_psns=64)
    host = world.a_host
    cq = host.make_cq(1)
    config = ffi.new("struct dp_qp_config *")
    config.pd, config.send_cq, config.recv_cq = host.pd, cq, cq
    config.max_send_wr = config.max_recv_wr = WQES
    config.max_send_sge = config.max_recv_sge = 1
    init = {"state": lib.DP_QPS_INIT, "access": ALL_ACCESS}
    rtr = {"state": lib.DP_QPS_RTR, "path_mtu": 1024, "dest_qpn": 5}
    steps = [
        (RESET_TO_INIT, ffi.new("struct dp_qp_attr *", init)),
        (INIT_TO_RTR, ffi.new("struct dp_qp_attr *", rtr)),
        (RTR_TO_RTS, ffi.new("struct dp_qp_attr *", {"state": lib.DP_QPS_RTS})),
    ]
    out = ffi.new("struct dp_qp *[1000]")
    before = allocated()
    for i in range(len(out)):
        check(lib.dp_qp_create(host.engine, config, out + i))
        for mask, attr in steps:
            check(lib.dp_qp_modify(out[i], attr, mask, world.now))
    each = (allocated() - before) / len(out)
    for qp in out:
        assert lib.dp_qp_destroy(qp) == 0
    world.close()
    queues = WQES * (64 + 16) + WQES * (16 + 16)  # entries, each with one SGE
    assert queues < each < queues + IDLE_BYTES_MAX
