# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The protocol of the connection manager, message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from datapath.native import lib
from tests.cm.world import MS, End, Mad, S, World

pytestmark = pytest.mark.san

Ends = tuple[World, End, End]


@pytest.fixture(params=["10.0.0.", "fd00::"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with World() as world:
        yield world, world.end(f"{request.param}1"), world.end(f"{request.param}2")


def lose(world: World, name: str, times: int = 1) -> None:
    """The next messages of that name are lost."""
    left = [times]

    def drop(mad: Mad) -> bool:
        if mad.name != name or not left[0]:
            return False
        left[0] -= 1
        return True

    world.drop = drop


def wait(world: World, end: End) -> None:
    """Until something is told to the end's program."""
    for _ in range(100):
        if not end.events:
            world.pass_ns(100 * MS)


def connected(a: End, b: End) -> tuple[Any, Any]:
    b.listen()
    active = a.connect(b)
    passive = b.take()[0].conn
    b.accept(passive)
    a.take()
    a.ready(active)
    assert b.told() == ["ESTABLISHED"]
    return active, passive


def test_the_ladder(ends: Ends) -> None:
    world, a, b = ends
    b.listen(7)
    active = a.connect(b, 7, qpn=17, private=b"hello")
    (request,) = b.take()
    assert request.type == "REQUESTED"
    assert request.private[:6] == b"hello\0"
    assert len(request.private) == 92
    assert request.param["qpn"] == 17
    assert (request.param["responder_resources"], request.param["initiator_depth"]) == (3, 2)
    b.accept(request.conn, qpn=34, private=b"welcome", responder_resources=2, initiator_depth=1)
    (reply,) = a.take()
    assert reply.type == "REPLIED"
    assert reply.private[:8] == b"welcome\0"
    assert (reply.param["responder_resources"], reply.param["initiator_depth"]) == (2, 1)
    one, other = a.info(active), b.info(request.conn)
    assert (one.remote.qpn, other.remote.qpn) == (34, 17)
    assert (one.remote.psn, other.remote.psn) == (other.local.psn, one.local.psn)
    assert one.active
    assert not other.active
    a.ready(active)
    assert b.told() == ["ESTABLISHED"]
    a.disconnect(active)
    assert (a.told(), b.told()) == (["DISCONNECTED"], ["DISCONNECTED"])
    world.pass_ns(S)
    assert (a.told(), b.told()) == (["TIMEWAIT_OVER"], ["TIMEWAIT_OVER"])
    a.release(active)
    b.release(request.conn)
    assert (a.conns(), b.conns()) == (0, 0)
    assert world.names() == Counter(REQ=1, REP=1, RTU=1, DREQ=1, DREP=1)


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("name", ["REQ", "REP", "RTU", "DREQ", "DREP"])
def test_a_lost_message_is_sent_again(ends: Ends, name: str, times: int) -> None:
    world, a, b = ends
    lose(world, name, times)
    b.listen()
    active = a.connect(b)
    wait(world, b)
    (request,) = b.take()
    b.accept(request.conn)
    wait(world, a)
    assert a.told() == ["REPLIED"]
    a.ready(active)
    world.pass_ns(10 * S)
    assert b.told() == ["ESTABLISHED"]
    a.disconnect(active)
    world.pass_ns(10 * S)
    assert (a.told(), b.told()) == (["DISCONNECTED", "TIMEWAIT_OVER"],) * 2
    a.release(active)
    b.release(request.conn)
    assert (a.conns(), b.conns()) == (0, 0)
    assert world.names()[name] > times


def test_each_repeat_waits_twice_as_long(ends: Ends) -> None:
    world, a, b = ends
    world.drop = lambda mad: True
    a.connect(b)
    times = []
    while not a.events:
        before = len(world.seen)
        world.pass_ns(MS)
        times += [world.now // MS] * (len(world.seen) - before)
    (event,) = a.take()
    assert event.type == "UNREACHABLE"
    gaps = [round((b - a) / 134.2) for a, b in pairwise(times)]
    assert gaps[:4] == [2, 4, 8, 8]
    assert [mad.name for mad in world.seen] == ["REQ"] * 16 + ["REJ"]


def test_a_slow_program_has_time(ends: Ends) -> None:
    """The peer's repeats are answered by an MRA, however long the program takes."""
    world, a, b = ends
    b.listen()
    active = a.connect(b)
    world.pass_ns(300 * S)
    assert a.told() == []
    (request,) = b.take()
    b.accept(request.conn)
    world.pass_ns(300 * S)
    assert a.told() == ["REPLIED"]
    a.ready(active)
    assert b.told() == ["ESTABLISHED"]
    assert world.names()["MRA"] > 2
    assert world.names()["REQ"] < 20


def test_a_refusal(ends: Ends) -> None:
    world, a, b = ends
    b.listen()
    lose(world, "REJ")
    active = a.connect(b)
    (request,) = b.take()
    b.reject(request.conn, private=b"no")
    b.release(request.conn)
    world.pass_ns(S)
    (event,) = a.take()
    assert (event.type, event.status, event.private[:3]) == ("REJECTED", 28, b"no\0")
    assert b.told() == []  # the repeated request was no second one
    a.release(active)
    world.pass_ns(20 * S)
    assert (a.conns(), b.conns()) == (0, 0)


def test_a_service_that_comes_late_is_found(ends: Ends) -> None:
    world, a, b = ends
    a.connect(b, 7)
    a.connect(b, 8, datagram=True)
    world.pass_ns(50 * MS)
    b.listen(7)
    b.listen(8)
    world.pass_ns(0)
    assert b.told() == ["REQUESTED", "REQUESTED"]
    assert world.names() == Counter(REQ=1, SIDR_REQ=1)


def test_a_service_that_is_not_there(ends: Ends) -> None:
    world, a, b = ends
    a.connect(b, 7)
    a.connect(b, 8, datagram=True)
    world.pass_ns(S)
    first, second = a.take()
    assert (first.type, first.status) == ("REJECTED", 8)
    assert (second.type, second.status) == ("RESOLVED", 1)
    assert b.conns() == 0


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (lib.DP_REQ_TRANSPORT, 1, 9),
        # the first byte of the sender's GID
        (56 * 8 << 8 | 8, 1, 12),
        (lib.DP_REQ_PATH_MTU, 6, 26),
    ],
)
def test_a_request_that_cannot_be(ends: Ends, field: int, value: int, reason: int) -> None:
    world, a, b = ends
    b.listen()
    world.drop = lambda mad: mad.name == "REQ"
    a.connect(b)
    b.give(world.seen[0].changed(field, value).data, a.address)
    world.settle()
    (event,) = a.take()
    assert (event.type, event.status) == ("REJECTED", reason)
    assert b.conns() == 0


def test_datagrams(ends: Ends) -> None:
    world, a, b = ends
    lose(world, "SIDR_REP")
    b.listen()
    active = a.connect(b, datagram=True, private=b"who?")
    (request,) = b.take()
    assert request.private[:5] == b"who?\0"
    b.accept(request.conn, qpn=99, qkey=0x1234567, private=b"me")
    b.release(request.conn)
    world.pass_ns(S)
    (event,) = a.take()
    assert (event.type, event.status) == ("RESOLVED", 0)
    assert (event.param["qpn"], event.param["qkey"]) == (99, 0x1234567)
    assert event.private[:3] == b"me\0"
    assert b.told() == []
    a.release(active)
    world.pass_ns(20 * S)
    assert (a.conns(), b.conns()) == (0, 0)


def test_both_disconnect(ends: Ends) -> None:
    world, a, b = ends
    active, passive = connected(a, b)
    hold = world.drop
    world.drop = lambda mad: True
    a.disconnect(active)
    b.disconnect(passive)
    world.drop = hold
    world.pass_ns(S)
    assert (a.told(), b.told()) == (["DISCONNECTED", "TIMEWAIT_OVER"],) * 2


def test_a_peer_that_has_gone_is_not_waited_for_long(ends: Ends) -> None:
    world, a, b = ends
    active, _ = connected(a, b)
    world.drop = lambda mad: True
    a.disconnect(active)
    a.release(active)
    assert lib.dp_cm_farewells(a.cm, world.now) == 1
    world.pass_ns(5 * S)
    assert lib.dp_cm_farewells(a.cm, world.now) == 0
    assert a.conns() == 0


def test_a_disconnect_without_rtu_shows_that_the_peer_was_ready(ends: Ends) -> None:
    world, a, b = ends
    lose(world, "RTU")
    b.listen()
    active = a.connect(b)
    (request,) = b.take()
    b.accept(request.conn)
    a.take()
    a.ready(active)
    a.disconnect(active)
    world.pass_ns(0)
    assert b.told() == ["ESTABLISHED", "DISCONNECTED"]


def test_a_qp_that_is_used_anew_ends_its_old_connection(ends: Ends) -> None:
    """As after a crash of the peer, which has forgotten the connection."""
    world, a, b = ends
    connected(a, b)
    a.close()
    again = world.end(a.address, seed=99)
    again.connect(b, qpn=17)
    world.pass_ns(S)
    assert [(e.type, e.status) for e in again.take()] == [("REJECTED", 10)]
    assert b.told() == ["DISCONNECTED", "TIMEWAIT_OVER"]
    again.connect(b, qpn=17)
    assert b.told() == ["REQUESTED"]


def test_messages_are_counted_by_their_kind(ends: Ends) -> None:
    world, a, b = ends
    lose(world, "REQ")
    b.listen()
    active = a.connect(b)
    wait(world, b)
    b.accept(b.take()[0].conn)
    a.ready(active)
    a.disconnect(active)
    client, server = a.stats(), b.stats()
    assert {name: count for name, count in client.items() if count} == {
        "tx_mads": 4,
        "rx_mads": 2,
        "retransmits": 1,
        "tx_req": 2,
        "rx_rep": 1,
        "tx_rtu": 1,
        "tx_dreq": 1,
        "rx_drep": 1,
    }
    assert {name: count for name, count in server.items() if count} == {
        "tx_mads": 2,
        "rx_mads": 3,
        "rx_req": 1,
        "tx_rep": 1,
        "rx_rtu": 1,
        "rx_dreq": 1,
        "tx_drep": 1,
    }


def test_a_message_without_an_answer_is_counted_once(ends: Ends) -> None:
    world, a, b = ends
    lose(world, "REQ", 1000)
    a.connect(b)
    world.pass_ns(20 * S)
    assert a.told() == ["UNREACHABLE"]
    stats = a.stats()
    assert (stats["timeouts"], stats["tx_req"], stats["retransmits"]) == (1, 16, 15)


def test_requests_beyond_the_backlog_wait(ends: Ends) -> None:
    world, a, b = ends
    b.listen(backlog=3)
    for number in range(10):
        a.connect(b, qpn=20 + number)
    requests = b.take()
    assert len(requests) == 3
    assert b.stats()["drop_backlog"] == 7
    for request in requests:
        b.accept(request.conn)
    world.pass_ns(S)
    assert b.told() == ["REQUESTED"] * 3


def test_a_service_that_ends_refuses_what_waits(ends: Ends) -> None:
    world, a, b = ends
    service = b.listen()
    a.connect(b)
    b.take()
    b.unlisten(service)
    world.pass_ns(0)
    assert [(e.type, e.status) for e in a.take()] == [("REJECTED", 28)]


@pytest.mark.parametrize("seed", range(4))
def test_many_connections_over_a_bad_network(seed: int) -> None:
    """Nothing is lost, told twice, or left behind."""
    with World(seed, loss=0.05, repeat=0.05, late_ns=300 * MS) as world:
        a, b = world.end("10.0.0.1"), world.end("10.0.0.2")
        b.listen()
        active = {}
        told: Counter[tuple[str, str]] = Counter()
        for number in range(200):
            active[number] = a.connect(b, qpn=100 + number)
        for _ in range(2000):
            world.pass_ns(20 * MS)
            for event in b.take():
                told["b", event.type] += 1
                if event.type == "REQUESTED":
                    assert b.accept(event.conn) == 0
            for event in a.take():
                told["a", event.type] += 1
                if event.type == "REPLIED":
                    a.ready(event.conn)
                    a.disconnect(event.conn)
        for side in "ab":
            assert told[side, "DISCONNECTED"] == 200
            assert told[side, "TIMEWAIT_OVER"] == 200
        assert told["a", "REPLIED"] == told["b", "REQUESTED"] == told["b", "ESTABLISHED"] == 200
        assert len(told) == 7
        for conn in active.values():
            a.release(conn)
        assert a.conns() == 0
