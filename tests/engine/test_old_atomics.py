# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Saved results of atomics: what keeps them, and that they are not taken for another request's."""

from __future__ import annotations

from datapath.native import lib
from tests.clib import testlib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import Packet, ok
from tests.engine.test_errors import MODES, give_all, pair

PSNS = 1 << 24


def bare(packet: Packet) -> Packet:
    """As engines without payload send it: without ICRC."""
    return packet._replace(data=packet.data[:-4])


@MODES
def test_an_atomic_is_not_replayed_after_its_psn_has_come_round(
    make_world: MakeWorld, extended: bool
) -> None:
    world = make_world(extended=extended, no_payload=1)  # without ICRC: 2^24 packets in a second
    a, b = world.extended_pair() if extended else world.pair()
    word = b.host.memory(bytes(8))
    a.faa(word, 5)
    world.settle()
    assert a.poll() == [ok("FETCH_ADD")]
    xdh = forge.xdh() if extended else b""
    nothing = forge.packet(a, 0xCA if extended else 0x0A, 101, xdh + bytes(16), ack=False)
    packet, _bytes = b.host.as_c(bare(nothing))
    assert testlib.X_give_many(b.host.engine, packet, PSNS, world.now) == 0
    b.host.send_all()
    assert b.attr.rq_psn == 101
    replay = forge.packet(
        a, 0xD4 if extended else 0x14, 100, xdh + forge.atomic_eth(word.addr, word.key)
    )
    world.give(b.host, bare(replay))
    assert [p.name for p in b.host.send_all() if "ATOMIC" in p.name] == []
    assert b.state == "RTS"


@MODES
def test_results_stay_when_there_is_room_for_more(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended, rd_atomic=3)
    word = b.host.memory(bytes(8))

    def executed() -> Packet:
        a.faa(word, 1)
        (request,) = give_all(world, a)
        world.settle()
        return request

    requests = [executed() for _ in range(4)]  # the first result is gone
    assert b.to(lib.DP_QPS_SQD) == 0
    assert b.modify(lib.DP_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic=5) == 0
    requests += [executed() for _ in range(2)]
    answers = []
    for request in requests:
        world.give(b.host, request)
        answers += [(p.psn, p.data[-12:-4]) for p in b.host.send_all() if "ATOMIC" in p.name]
    saved = [(r.psn, value.to_bytes(8, "big")) for value, r in enumerate(requests)]
    assert answers == saved[1:]
    assert bytes(word) == (6).to_bytes(8, "little")
