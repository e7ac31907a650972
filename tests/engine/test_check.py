# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dp_engine_check() sees faults that are planted."""

from __future__ import annotations

import itertools

from datapath.native import ffi, lib
from tests.clib import testffi, testlib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import pattern


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
    assert number > 10
