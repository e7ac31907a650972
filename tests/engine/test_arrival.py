# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""When packets arrived: it parts the network's time from the hosts', and does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from datapath.native import lib
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, QP, US, Channel, Packet, S, World, ok, pattern
from tests.engine.test_extended_read import is_response

pytestmark = pytest.mark.san

THERE, BACK = 30 * US, 10 * US  # what the network takes
UNREAD_B, UNREAD_A = 500 * US, 700 * US  # how long packets lie unread in the hosts
HELD = 20 * US  # by B, before it acknowledges


def pass_late(world: World, to: QP, packet: Packet, under_way_ns: int, unread_ns: int) -> None:
    """The packet takes its way, then lies in the host, then is read."""
    world.advance(under_way_ns)
    arrived = world.now
    world.now += unread_ns  # nobody looks at the engine meanwhile
    world.give(to.host, packet, arrived_ns=arrived)


def flow(qp: QP) -> Any:
    return lib.dp_qp_flow(qp.qp)


def assert_parted(
    qp: QP, seen: Witness, rtt_ns: int, host_ns: int, mean_ns: int | None = None
) -> None:
    (ack,) = seen.acks
    assert (ack["rtt_ns"], ack["host_ns"]) == (rtt_ns, host_ns)
    mean_ns = host_ns if mean_ns is None else mean_ns
    assert (flow(qp).srtt_ns, flow(qp).min_rtt_ns, flow(qp).host_ns) == (rtt_ns, rtt_ns, mean_ns)


def test_an_acknowledgement(ext: World) -> None:
    a, b = ext.extended_pair()
    seen = Witness(a)
    a.write(b"x", b.host.memory(8))
    (packet,) = a.host.send_all()
    pass_late(ext, b, packet, THERE, UNREAD_B)
    ext.advance(HELD)
    (ack,) = b.host.send_all()
    assert ack.xah()["ack_delay_ns"] == UNREAD_B + HELD
    pass_late(ext, a, ack, BACK, UNREAD_A)
    assert a.poll() == [ok("RDMA_WRITE")]
    assert_parted(a, seen, THERE + BACK, UNREAD_B + HELD + UNREAD_A)


def test_an_acknowledgement_that_a_request_carries(ext: World) -> None:
    a, b = ext.extended_pair()
    seen = Witness(a)
    b.recv(8)
    a.recv(8)
    a.send(b"question")
    (question,) = a.host.send_all()
    pass_late(ext, b, question, THERE, UNREAD_B)
    b.send(b"answer")
    (answer,) = b.host.send_all()
    pass_late(ext, a, answer, BACK, UNREAD_A)
    assert a.poll() == [ok("SEND")]
    assert_parted(a, seen, THERE + BACK, UNREAD_B + UNREAD_A)


def test_a_queue_on_the_way_back_is_told_by_itself(ext: World) -> None:
    a, b = ext.extended_pair()
    seen = Witness(a)
    target = b.host.memory(8)
    waits = [(THERE, BACK), (THERE, BACK + 7 * US), (THERE + 5 * US, BACK), (THERE, BACK + 3 * US)]
    for there_ns, back_ns in waits:
        a.write(b"x", target)
        (packet,) = a.host.send_all()
        pass_late(ext, b, packet, there_ns, UNREAD_B)
        ext.advance(HELD)
        (ack,) = b.host.send_all()
        assert ack.xah()["arrived_ns"] == (ext.now - HELD - UNREAD_B) % 2**32
        pass_late(ext, a, ack, back_ns, UNREAD_A)
    assert [ack["rtt_ns"] - THERE - BACK for ack in seen.acks] == [0, 7 * US, 5 * US, 3 * US]
    assert [ack["back_ns"] for ack in seen.acks] == [0, 7 * US, 0, 3 * US]


def test_a_request_that_carries_an_acknowledgement_tells_the_same(ext: World) -> None:
    a, b = ext.extended_pair()
    seen = Witness(a)
    for back_ns in (BACK, BACK + 7 * US):
        b.recv(8)
        a.recv(8)
        a.send(b"question")
        (question,) = a.host.send_all()
        pass_late(ext, b, question, THERE, UNREAD_B)
        b.send(b"answer")
        (answer,) = b.host.send_all()
        pass_late(ext, a, answer, back_ns, UNREAD_A)
        ext.advance(HELD)
        for ack in a.host.send_all():
            ext.give(b.host, ack)
    assert [ack["back_ns"] for ack in seen.acks] == [0, 7 * US]


def test_the_answer_of_a_read(ext: World) -> None:
    a, b = ext.extended_pair()
    seen = Witness(a)
    a.read(8, b.host.memory(8))
    (request,) = a.host.send_all()
    pass_late(ext, b, request, THERE, UNREAD_B)
    ext.advance(HELD)
    (response,) = (p for p in b.host.send_all() if is_response(p))
    assert response.xdh()["held_ns"] == UNREAD_B + HELD
    pass_late(ext, a, response, BACK, UNREAD_A)
    assert a.poll() == [ok("RDMA_READ")]
    # No time-out waits for what the peer held: the request may have been behind a gap.
    assert_parted(a, seen, THERE + BACK, UNREAD_B + HELD + UNREAD_A, mean_ns=UNREAD_A)


LONG_WAYS = [2 * S, 3 * S, 5 * S, 14 * S]  # the clocks of the packets wrap after 4.3 s


@pytest.mark.parametrize("way_ns", LONG_WAYS)
def test_a_way_of_any_length(ext: World, way_ns: int) -> None:
    a, b = ext.extended_pair()
    seen = Witness(a)
    a.write(b"x", b.host.memory(8))
    a.read(8, b.host.memory(8))
    for _ in range(2):  # of the READ as well
        packets = a.host.send_all()
        ext.now += way_ns
        for packet in packets:
            ext.give(b.host, packet)
        answers = b.host.send_all()
        ext.now += BACK
        for answer in answers:
            ext.give(a.host, answer)
    assert len(a.poll()) == 2
    assert {ack["rtt_ns"] for ack in seen.acks} == {way_ns + BACK}
    assert flow(a).min_rtt_ns == way_ns + BACK


@pytest.mark.parametrize("way_ns", LONG_WAYS)
@pytest.mark.parametrize("copy", ["first", "last"])
def test_a_long_way_of_a_packet_that_was_sent_again(ext: World, way_ns: int, copy: str) -> None:
    """It tells when its last copy was answered.  An earlier copy is no sample, rather than a wrong
    one: by 32 bits of a clock it could have left at several times."""
    a, b = ext.extended_pair()
    seen = Witness(a)
    for again in (False, True):
        a.write(b"x", b.host.memory(8))
        (first,) = a.host.send_all()
        last = first
        if again:
            ext.expire(a)
            (last,) = a.host.send_all()
        ext.now += way_ns
        ext.give(b.host, last if copy == "last" else first)
        (ack,) = b.host.send_all()
        ext.now += BACK
        ext.give(a.host, ack)
    assert a.stats()["retransmits"] == 1
    assert [ack["rtt_ns"] for ack in seen.acks] == [
        way_ns + BACK,
        (way_ns + BACK) * (copy == "last"),
    ]


def test_a_read_that_the_peer_held_for_longer_than_a_packet_tells(ext: World) -> None:
    """No sample, rather than a false one."""
    a, b = ext.extended_pair()
    seen = Witness(a)
    a.read(8, b.host.memory(8))
    (request,) = a.host.send_all()
    pass_late(ext, b, request, THERE, 0)
    ext.now += 5 * S
    (response,) = (p for p in b.host.send_all() if is_response(p))
    assert response.xdh()["held_ns"] == 2**32 - 1
    ext.give(a.host, response)
    assert a.poll() == [ok("RDMA_READ")]
    assert [ack["rtt_ns"] for ack in seen.acks] == [0]


def test_a_read_that_waited_for_a_gap_to_close(ext: World) -> None:
    """Its time with the responder begins with its own arrival."""
    a, b = ext.extended_pair()
    target = b.host.memory(8)
    a.write(b"x", target)
    a.read(8, target)
    lost, request = a.host.send_all()
    pass_late(ext, b, request, THERE, UNREAD_B)
    b.host.send_all()
    ext.advance(HELD)
    ext.give(b.host, lost)
    (response,) = (p for p in b.host.send_all() if is_response(p))
    assert response.xdh()["held_ns"] == UNREAD_B + HELD


def test_standard_mode_knows_of_this_host_only(world: World) -> None:
    a, b = world.pair()
    seen = Witness(a)
    a.write(b"x", b.host.memory(8))
    (packet,) = a.host.send_all()
    pass_late(world, b, packet, THERE, UNREAD_B)
    (ack,) = b.host.send_all()
    pass_late(world, a, ack, BACK, UNREAD_A)
    assert_parted(a, seen, THERE + UNREAD_B + BACK, UNREAD_A)


WRONG: dict[str, Callable[[World, int], int]] = {
    "not known": lambda world, sent: 0,
    "in the future": lambda world, sent: world.now + 1,
    "long ago": lambda world, sent: world.now - 1 * S - 1,
    "before what it answers had left": lambda world, sent: sent + HELD - 1,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("mode", ["standard", "extended"])
def test_an_arrival_that_cannot_be(make_world: MakeWorld, mode: str, wrong: str) -> None:
    """Such a packet arrives as it is read."""
    world = make_world(extended=mode == "extended")
    a, b = world.extended_pair() if mode == "extended" else world.pair()
    seen = Witness(a)
    a.write(b"x", b.host.memory(8))
    sent, held = world.now, HELD if mode == "extended" else 0
    (packet,) = a.host.send_all()
    world.advance(THERE)
    world.give(b.host, packet)
    world.advance(held)
    (ack,) = b.host.send_all()
    world.advance(BACK)
    world.now += UNREAD_A
    arrived = sent - 1 if not held and wrong.startswith("before") else WRONG[wrong](world, sent)
    world.give(a.host, ack, arrived_ns=arrived)
    assert_parted(a, seen, THERE + BACK + UNREAD_A, held)


@pytest.mark.parametrize("wrong", ["not known", "in the future", "long ago"])
def test_a_wrong_arrival_at_the_responder(ext: World, wrong: str) -> None:
    a, b = ext.extended_pair()
    a.write(b"x", b.host.memory(8))
    sent = ext.now
    (packet,) = a.host.send_all()
    ext.advance(THERE)
    ext.give(b.host, packet, arrived_ns=WRONG[wrong](ext, sent))
    ext.advance(HELD)
    (ack,) = b.host.send_all()
    assert ack.xah()["ack_delay_ns"] == HELD


def test_a_peer_that_claims_to_have_held_it_for_longer(ext: World) -> None:
    """The rest would be less than nothing: no sample."""
    a, b = ext.extended_pair()
    seen = Witness(a)
    a.write(b"x", b.host.memory(8))
    (packet,) = a.host.send_all()
    ext.advance(THERE)
    ext.give(b.host, packet, arrived_ns=ext.now - 2 * THERE)  # before it was sent
    (ack,) = b.host.send_all()
    ext.advance(BACK)
    ext.give(a.host, ack, arrived_ns=ext.now)
    assert a.poll() == [ok("RDMA_WRITE")]
    (event,) = seen.acks
    assert event["rtt_ns"] == event["host_ns"] == flow(a).srtt_ns == 0


def test_the_time_out_waits_for_the_hosts(make_world: MakeWorld) -> None:
    """RFC 6298 with all that an answer took: three times the first sample."""
    world = make_world(extended=True, min_rto_ns=1)
    a, b = world.extended_pair()
    target = b.host.memory(8)
    a.write(b"x", target)
    (packet,) = a.host.send_all()
    pass_late(world, b, packet, THERE, UNREAD_B)
    (ack,) = b.host.send_all()
    pass_late(world, a, ack, BACK, UNREAD_A)
    took = THERE + UNREAD_B + BACK + UNREAD_A
    a.write(b"x", target)
    a.host.send_all()
    world.advance(2 * took - 1 * US)
    assert a.stats()["probes"] == 0  # nor does the probe think that nothing comes back
    world.advance(took + 1 * US - 1)
    a.host.send_all()
    assert (a.stats()["timeouts"], a.stats()["probes"]) == (0, 0)  # it waits for twice as long
    world.advance(2 * US)  # timers are that coarse
    assert a.stats()["timeouts"] == 1


SEGMENT = 1024
WINDOW = 8  # segments


def packets_on_their_way(a: QP) -> int:
    """As many as the window lets out."""
    a.write(pattern(64 * SEGMENT), a.peer.host.memory(64 * SEGMENT))
    return len(a.host.send_all())


@pytest.mark.parametrize(
    ("unread_b", "held", "unread_a", "grows"),
    [
        (0, 5 * US, 0, 0),
        (0, 50 * US, 0, 0),  # the peer may hold it
        (0, 5 * US, 10 * US, 2),
        (60 * US, 11 * US, 0, 3),  # 20 us more than that
        (60 * US, 11 * US, 10 * US, 5),
        (0, 5 * US, UNREAD_A, WINDOW),
        (10 * MS, 5 * US, 0, WINDOW),
    ],
)
def test_what_lies_unread_in_a_host_is_not_in_the_window(
    ext: World, unread_b: int, held: int, unread_a: int, grows: int
) -> None:
    """The window grows by the share that it has in the RTT, and no more than twofold."""
    a, b = ext.extended_pair()
    Witness(a, cwnd_bytes=WINDOW * SEGMENT)
    b.recv(8)
    a.send(b"x")  # the peer may wait for a reply
    (packet,) = a.host.send_all()
    pass_late(ext, b, packet, THERE, unread_b)
    ext.advance(held)
    (ack,) = b.host.send_all()
    pass_late(ext, a, ack, BACK, unread_a)
    assert packets_on_their_way(a) == WINDOW + grows


def test_a_packet_that_asks_for_its_acknowledgement_is_late_by_all_that_it_waited(
    ext: World,
) -> None:
    """At the end of a message the peer may hold it, but not where the window closes."""
    a, b = ext.extended_pair()
    seen = Witness(a, cwnd_bytes=SEGMENT)
    a.write(pattern(2 * SEGMENT), b.host.memory(2 * SEGMENT))
    (packet,) = a.host.send_all()
    pass_late(ext, b, packet, THERE, 0)
    ext.advance(HELD)
    (ack,) = b.host.send_all()
    seen.flow.cwnd_bytes = WINDOW * SEGMENT
    pass_late(ext, a, ack, BACK, 0)
    assert packets_on_their_way(a) == WINDOW + 3  # of 40 us, 20 less a tick of the peer's timers


@pytest.mark.parametrize("replies", [False, True])
def test_the_end_of_a_message_may_wait_for_a_reply(ext: World, replies: bool) -> None:
    """Of a peer that has replied before."""
    a, b = ext.extended_pair()
    seen = Witness(a, cwnd_bytes=SEGMENT)
    if replies:
        a.recv(8)
        b.recv(8)
        a.send(b"question")
        (question,) = a.host.send_all()
        pass_late(ext, b, question, THERE, 0)
        b.send(b"answer")
        (answer,) = b.host.send_all()
        pass_late(ext, a, answer, BACK, 0)
    a.write(b"x", b.host.memory(8))
    packet = next(p for p in a.host.send_all() if "WRITE" in p.name)
    pass_late(ext, b, packet, THERE, 0)
    ext.advance(HELD)
    (ack,) = b.host.send_all()
    seen.flow.cwnd_bytes = WINDOW * SEGMENT
    pass_late(ext, a, ack, BACK, 0)
    assert packets_on_their_way(a) == WINDOW + (0 if replies else 3)


def test_a_window_that_has_grown_closes_later(ext: World) -> None:
    """Each quarter of it asks, and the last packet that it has room for."""
    a, b = ext.extended_pair()
    Witness(a, cwnd_bytes=WINDOW * SEGMENT)
    b.recv(8)
    a.send(b"x")
    (packet,) = a.host.send_all()
    pass_late(ext, b, packet, THERE, 0)
    ext.advance(HELD)
    (ack,) = b.host.send_all()
    pass_late(ext, a, ack, BACK, 10 * US)
    a.write(pattern(64 * SEGMENT), b.host.memory(64 * SEGMENT))
    asks = ["ack" in p.words() for p in a.host.send_all()]
    assert asks == [False, False, True] * 3 + [True]  # not where eight would close


def test_a_read_that_waited_at_the_peer_makes_no_window_larger(ext: World) -> None:
    a, b = ext.extended_pair()
    Witness(a, cwnd_bytes=WINDOW * SEGMENT)
    read_late(ext, a, b, 2 * MS)
    assert packets_on_their_way(a) == WINDOW


def test_a_frame_that_an_emulated_link_let_go_late(ext: World) -> None:
    """It counts as lying in the host for that time."""
    a, b = ext.extended_pair()
    seen = Witness(a)
    a.write(b"x", b.host.memory(8))
    (packet,) = a.host.send_all()
    ext.advance(THERE + UNREAD_B)
    ext.give(b.host, packet, arrived_ns=ext.now, late_ns=UNREAD_B)
    (ack,) = b.host.send_all()
    ext.advance(BACK + UNREAD_A)
    ext.give(a.host, ack, arrived_ns=ext.now, late_ns=UNREAD_A)
    assert_parted(a, seen, THERE + BACK, UNREAD_B + UNREAD_A)


def test_a_late_frame_whose_arrival_is_not_known(ext: World) -> None:
    a, b = ext.extended_pair()
    seen = Witness(a)
    a.write(b"x", b.host.memory(8))
    (packet,) = a.host.send_all()
    ext.advance(THERE)
    ext.give(b.host, packet, late_ns=10 * US)
    (ack,) = b.host.send_all()
    ext.advance(BACK)
    ext.give(a.host, ack, late_ns=10 * US)
    assert_parted(a, seen, THERE + BACK, 0)


def test_events_stay_in_the_order_in_which_packets_are_read(make_world: MakeWorld) -> None:
    """Whatever times of arrival claim, the same packets leave at the same times."""

    def play(claimed: int) -> list[tuple[int, str, str, int]]:
        world = make_world(extended=True)
        a, b = world.extended_pair()
        real = world.give

        def give(host: Any, packet: Packet, **_: int) -> int:
            return real(host, packet, arrived_ns=world.now + claimed if claimed else 0)

        world.give = give  # type: ignore[method-assign]
        world.log.clear()
        into = b.host.memory(200_000)
        a.write(pattern(200_000), into)
        a.read(100_000, into)
        channel = Channel(latency_ns=50 * US, jitter_ns=20 * US, loss=0.05, rate_bps=1e10, seed=3)
        assert world.run(channel)
        assert len(a.poll()) == 2
        return [(at, host, packet.name, packet.psn) for at, host, packet in world.log]

    usual = play(0)
    assert any("READ_RESP" in name for _, _, name, _ in usual)
    assert play(1) == play(-(1 * S) - 1) == usual


def test_other_paths_have_no_sample(make_world: MakeWorld) -> None:
    world = make_world(extended=True, paths=4)
    a, b = world.extended_pair()
    seen = Witness(a)
    a.write(pattern(8 * 1024), b.host.memory(8 * 1024))
    packets = a.host.send_all()
    world.advance(THERE + UNREAD_B)
    for packet in packets:
        world.give(b.host, packet, arrived_ns=world.now - UNREAD_B)
    world.settle()
    with_sample = [ack for ack in seen.acks if ack["rtt_ns"]]
    assert with_sample
    assert all(not ack["host_ns"] for ack in seen.acks if not ack["rtt_ns"])
    assert any(ack["host_ns"] for ack in with_sample)


def read_late(world: World, a: QP, b: QP, unread_ns: int) -> None:
    """A READ of a whose request lies unread at B for so long; all timers of A run meanwhile."""
    a.read(8, b.host.memory(8))
    (request,) = (p for p in a.host.send_all() if p.name == "EXT_READ_REQUEST")
    world.advance(THERE)
    arrived = world.now
    for _ in range(unread_ns // (100 * US)):
        world.advance(100 * US)
        a.host.send_all()  # probes, and what a time-out repeats, are lost
    world.give(b.host, request, arrived_ns=arrived)
    for packet in b.host.send_all():
        pass_late(world, a, packet, BACK, 0)
    assert a.poll() == [ok("RDMA_READ")]


def test_a_host_that_stands_still_at_times_costs_reads_no_time_out(ext: World) -> None:
    """A time-out is 4 ms at least, and twice as long as READs were held of late does not pass."""
    a, b = ext.extended_pair()
    read_late(ext, a, b, 10 * MS)  # before anything is known of the path, it is 20 ms
    for unread_ns in (0, 9 * MS, 0, 13 * MS, 2 * MS, 15 * MS):
        read_late(ext, a, b, unread_ns)
    assert a.stats()["timeouts"] == 0


def test_a_write_does_not_wait_for_as_long_as_reads_are_held(ext: World) -> None:
    a, b = ext.extended_pair()
    read_late(ext, a, b, 15 * MS)
    a.read(8, b.host.memory(8))
    a.write(b"x", b.host.memory(8))
    a.host.send_all()  # both are lost
    for _ in range(50):
        ext.advance(100 * US)
        a.host.send_all()
    assert a.stats()["timeouts"] == 1


def test_what_was_held_long_ago_is_forgotten(ext: World) -> None:
    a, b = ext.extended_pair()
    read_late(ext, a, b, 15 * MS)
    ext.advance(2 * S)
    read_late(ext, a, b, 0)
    read_late(ext, a, b, 9 * MS)
    assert a.stats()["timeouts"] == 1


def test_a_read_behind_a_gap_does_not_make_the_next_one_wait_without_limit(ext: World) -> None:
    """A READ waits for a gap to close, which may take a time-out: the two must not add up."""
    a, b = ext.extended_pair()
    for _ in range(20):
        read_late(ext, a, b, 200 * MS)
    before = a.stats()["timeouts"]
    a.read(8, b.host.memory(8))
    a.host.send_all()  # lost
    for _ in range(400):
        ext.advance(100 * US)
        a.host.send_all()
    assert a.stats()["timeouts"] > before
