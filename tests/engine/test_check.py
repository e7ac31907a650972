# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dp_engine_check() sees faults that are planted."""

from __future__ import annotations

import itertools

import pytest

from datapath.native import ffi, lib
from tests.clib import testffi, testlib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import ALL_ACCESS, Channel, check, pattern

FAULTS = 19


def said(engine: object) -> str | None:
    why = lib.dp_engine_check(engine)
    return None if why == ffi.NULL else ffi.string(why).decode()


def test_planted_faults_are_found(make_world: MakeWorld) -> None:
    """The QP has packets in flight, and holds a packet ahead of a gap."""
    world = make_world(extended=True, window_psns=2048)
    a, b = world.extended_pair(mtu=256)
    a.write(pattern(256 * 100), b.host.memory(256 * 100))
    a.host.send_all()
    world.give(a.host, forge.packet(b, 0xCA, 5002, forge.xdh() + bytes(16)))
    for _ in range(2):
        b.write(bytes(64), a.host.memory(64))
    world.give(a.host, b.host.send_all()[-1])
    engine = a.host.engine
    assert said(engine) is None
    for number in itertools.count():
        words = testlib.X_spoil(a.qp, number, 1)
        if words == testffi.NULL:
            break
        found = said(engine)
        testlib.X_spoil(a.qp, number, -1)
        assert found is not None, f"fault {number} is not found"
        assert testffi.string(words).decode() in found, f"fault {number}: {found}"
        assert said(engine) is None, f"fault {number} stays"
    assert number == FAULTS


@pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])
def test_more_may_be_queued_than_there_are_psns(make_world: MakeWorld, extended: bool) -> None:
    """The ladder asks for the engine's invariants after each step."""
    world = make_world(extended=extended, no_payload=1, window_psns=64)
    a, b = world.extended_pair(mtu=256) if extended else world.pair(mtu=256)
    address, gigabyte = 1 << 40, 1 << 30
    mrs = []
    for host in world.hosts:  # engines that move lengths never look there
        mr = ffi.new("struct dp_mr **")
        far = ffi.cast("void *", address)
        check(lib.dp_mr_create(host.pd, far, gigabyte, address, ALL_ACCESS, mr))
        mrs.append(mr[0])
    mine, theirs = (int(lib.dp_mr_key(mr)) for mr in mrs)
    for _ in range(8):
        sges, remote = [(address, gigabyte, mine)], (address, theirs)
        check(a.post_send(lib.DP_WR_RDMA_WRITE, sges, remote=remote))
    assert world.run(Channel(loss=0.01), until=lambda: b.stats()["rx_bytes"] > 200 * 256)
    assert a.state == b.state == "RTS"
    assert [lib.dp_mr_destroy(mr) for mr in mrs] == [0, 0]
