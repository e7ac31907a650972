# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: acknowledgements that wait for a request to leave with."""

from __future__ import annotations

import struct

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, QP, US, Channel, Host, Packet, World, ok

pytestmark = pytest.mark.san

HOLD_NS = 4 * US
REPLIES = 8  # and the next one is expected:
REPLY_HOLD_NS = 150 * US
REPLY_NS = 300 * US  # what comes later is no reply
MOST_REPLIES, UNREPLIED = 16, 4  # that are remembered; less so many for a message without a reply
TICK_NS = 1 << 10  # how late a timer may be


def requests_and_replies(world: World, a: QP, b: QP, count: int) -> None:
    for i in range(count):
        before_a = "no" if i == 0 else str(5000 + i - 1)
        b.recv(8)
        a.recv(8)
        a.send(b"question")
        world.says(a, f"EXT_SEND_ONLY {100 + i} ack carries={before_a}")
        assert len(b.poll_recv()) == 1
        b.send(b"answer")
        world.says(b, f"EXT_SEND_ONLY {5000 + i} ack carries={100 + i}")
        assert a.poll() == [ok("SEND")]
        assert len(a.poll_recv()) == 1


def test_request_and_reply_need_no_other_packet(ext: World) -> None:
    a, b = ext.extended_pair()
    requests_and_replies(ext, a, b, 40)
    assert b.poll() == [ok("SEND")] * 39  # the newest reply alone is not acknowledged yet
    assert a.stats()["acks_rx"] == a.stats()["tx_packets"] == 40
    assert ext.expire(a) <= REPLY_HOLD_NS + TICK_NS
    ext.says(a, "EXT_ACK 5039")
    assert b.poll() == [ok("SEND")]
    ext.silent()
    for qp in (a, b):
        assert qp.stats()["retransmits"] == qp.stats()["probes"] == 0


def test_a_qp_that_ends_acknowledges_first(ext: World) -> None:
    """The program has the last reply and ends; its peer still waits for the acknowledgement."""
    a, b = ext.extended_pair()
    requests_and_replies(ext, a, b, REPLIES)
    lib.dp_qp_settle(a.qp)
    ext.says(a, f"EXT_ACK {5000 + REPLIES - 1}")
    a.destroy()
    assert b.poll() == [ok("SEND")] * REPLIES


@pytest.mark.parametrize("extended", [True, False])
def test_the_last_acknowledgement_may_be_lost(make_world: MakeWorld, extended: bool) -> None:
    """The receiver ends, so it says it more than once."""
    world = make_world(extended=extended)
    a, b = world.extended_pair() if extended else world.pair()
    ack = "EXT_ACK 100" if extended else "ACK 100"
    b.recv(8)
    a.send(b"last")
    [packet] = a.host.send_all()
    world.give(b.host, packet)
    assert len(b.poll_recv()) == 1
    for fate in ("lost", "lost", ""):
        lib.dp_qp_settle(b.qp)
        world.says(b, f"{ack} {fate}")
    b.destroy()
    assert a.poll() == [ok("SEND")]
    world.silent()


@pytest.mark.parametrize("bundle", [0, 1])
def test_an_ack_is_not_lost_with_a_request_that_cannot_leave(
    make_world: MakeWorld, bundle: int
) -> None:
    """The memory of the request has gone, and it fails when the READ before it is done."""
    world = make_world(extended=True, bundle=bundle)
    a, b = world.extended_pair()
    b.recv(8)
    b.read(8, a.host.memory(8))
    b.host.send_all()  # and is lost
    for _ in range(2):
        gone = b.host.memory(8)
        assert b.post_send(lib.DP_WR_SEND, [(gone.addr, 8, gone.key ^ 1)]) == 0
    a.send(b"question")
    world.says(a, "EXT_SEND_ONLY 100 ack")
    world.silent(b)
    assert world.expire(b) <= HOLD_NS + TICK_NS
    world.says(b, "EXT_ACK 100")
    assert a.poll() == [ok("SEND")]
    assert b.stats()["acks_tx"] == 1


def test_a_qp_without_messages_ends_in_silence(ext: World) -> None:
    for qp in ext.extended_pair():
        lib.dp_qp_settle(qp.qp)
    ext.silent()


def test_the_same_over_a_path_with_delay(ext: World) -> None:
    """Each side answers as soon as it has polled: as many packets as messages, and one ACK."""
    a, b = ext.extended_pair()
    rounds = 100
    for qp in (a, b):
        for _ in range(rounds):
            qp.recv(8)
    seen: list[str] = []

    def watch(_: Host, packet: Packet) -> bool:
        seen.append(packet.name)
        return False

    begun = 1

    def play() -> None:
        nonlocal begun
        for _ in b.poll_recv():
            b.send(b"answer")
        for _ in a.poll_recv():
            if begun < rounds:
                a.send(b"question")
                begun += 1

    a.send(b"question")
    assert ext.run(Channel(latency_ns=10 * US, lose=watch), each=play)
    assert seen.count("EXT_SEND_ONLY") == 2 * rounds
    assert seen.count("EXT_ACK") == 1
    assert len(seen) == 2 * rounds + 1
    assert a.poll() == b.poll() == [ok("SEND")] * rounds
    assert 19 * US <= lib.dp_qp_flow(a.qp).srtt_ns <= 21 * US


def test_the_rtt_leaves_out_how_long_it_was_held(ext: World) -> None:
    a, b = ext.extended_pair()
    b.recv(8)
    a.recv(8)
    a.send(b"question")
    (question,) = a.host.send_all()
    ext.advance(30 * US)
    ext.give(b.host, question)
    ext.advance(3 * US)
    b.send(b"answer")
    (answer,) = b.host.send_all()
    ext.advance(10 * US)
    ext.give(a.host, answer)
    assert a.poll() == [ok("SEND")]
    assert lib.dp_qp_flow(a.qp).srtt_ns == 40 * US


@pytest.mark.parametrize("operation", ["send", "write-imm"])
def test_an_ack_that_no_reply_takes_along_leaves_alone(ext: World, operation: str) -> None:
    a, b = ext.extended_pair()
    into = b.recv(8)
    if operation == "send":
        a.send(b"x")
    else:
        a.write(b"x", into, imm=7)
    for packet in a.host.send_all():
        ext.give(b.host, packet)
    assert len(b.poll_recv()) == 1  # the message itself does not wait
    begin = ext.now
    ext.advance(HOLD_NS - 1)
    ext.silent(b)
    ext.expire(b)
    assert HOLD_NS <= ext.now - begin <= HOLD_NS + TICK_NS
    held = ext.now - begin
    (ack,) = ext.says(b, "EXT_ACK 100")
    assert ack.xah()["ack_delay_ns"] == held
    assert len(a.poll()) == 1
    ext.silent()


def test_writes_are_acknowledged_at_once(ext: World) -> None:
    """No receive is consumed, so no reply is to be expected."""
    a, b = ext.extended_pair()
    a.write(b"x", b.host.memory(8))
    ext.says(a, "EXT_WRITE_ONLY 100 ack")
    ext.says(b, "EXT_ACK 100")
    assert a.poll() == [ok("RDMA_WRITE")]


def writes_with_replies(world: World, a: QP, b: QP, after_ns: int = 0) -> None:
    """As many as it takes.  Each WRITE is acknowledged at once, and b replies after a while."""
    for _ in range(REPLIES):
        a.write(b"x", b.host.memory(8))
        world.says(a, "EXT_WRITE_ONLY")
        world.says(b, "EXT_ACK")
        world.advance(after_ns)
        b.write(b"y", a.host.memory(8))
        world.says(b, "EXT_WRITE_ONLY carries=no")
        world.says(a, "EXT_ACK")
    a.write(b"x", b.host.memory(8))
    world.says(a, "EXT_WRITE_ONLY 108 ack")


def test_a_program_that_spins_on_memory_and_replies_takes_acks_along(ext: World) -> None:
    """As ib_write_lat does: one packet for a message, as if the WRITE completed a receive."""
    a, b = ext.extended_pair()
    writes_with_replies(ext, a, b)
    ext.silent(b)
    b.write(b"y", a.host.memory(8))
    ext.says(b, "EXT_WRITE_ONLY 5008 carries=108")
    assert a.poll() == [ok("RDMA_WRITE")] * (REPLIES + 1)


def expect_no_hold(world: World, a: QP, b: QP, psn: int) -> None:
    a.write(b"x", b.host.memory(8))
    world.says(a, f"EXT_WRITE_ONLY {psn} ack")
    world.says(b, f"EXT_ACK {psn}")


def expect_hold(world: World, b: QP, psn: int) -> None:
    """The last packet that b got is acknowledged after the hold."""
    begin = world.now
    world.expire(b)
    assert REPLY_HOLD_NS <= world.now - begin <= REPLY_HOLD_NS + TICK_NS
    world.says(b, f"EXT_ACK {psn}")


def test_one_reply_that_does_not_come_ends_that(ext: World) -> None:
    a, b = ext.extended_pair()
    writes_with_replies(ext, a, b)
    expect_hold(ext, b, 108)
    expect_no_hold(ext, a, b, 109)


def test_a_program_that_has_replied_for_long_may_leave_out_a_few(ext: World) -> None:
    """As one does that others keep from its CPU: a reply is late, and the next ones are not."""
    a, b = ext.extended_pair()
    requests_and_replies(ext, a, b, 2 * MOST_REPLIES)
    ext.expire(a)
    ext.says(a, "EXT_ACK")
    first = 100 + 2 * MOST_REPLIES
    end = first + 1 + (MOST_REPLIES - REPLIES) // UNREPLIED
    for psn in range(first, end):
        a.write(b"x", b.host.memory(8))
        ext.says(a, f"EXT_WRITE_ONLY {psn} ack")
        expect_hold(ext, b, psn)
    expect_no_hold(ext, a, b, end)


@pytest.mark.parametrize(("after_ns", "expected"), [(REPLY_NS // 2, True), (REPLY_NS + US, False)])
def test_what_comes_late_is_no_reply(ext: World, after_ns: int, expected: bool) -> None:
    a, b = ext.extended_pair()
    writes_with_replies(ext, a, b, after_ns)
    if expected:
        ext.silent(b)
    else:
        ext.says(b, "EXT_ACK 108")


@pytest.mark.parametrize("operation", ["write", "write-imm", "read", "atomic"])
def test_any_request_takes_an_ack_along(ext: World, operation: str) -> None:
    a, b = ext.extended_pair()
    memory = a.host.memory(8)
    b.recv(8)
    a.recv(8)
    a.send(b"question")
    ext.says(a, "EXT_SEND_ONLY 100")
    if operation == "read":
        b.read(8, memory)
    elif operation == "atomic":
        b.faa(memory, 1)
    else:
        b.write(b"x", memory, **({"imm": 1} if operation == "write-imm" else {}))
    (packet,) = b.host.send_all()
    assert "carries=100" in packet.words()
    ext.give(a.host, packet)
    assert a.poll() == [ok("SEND")]


def test_only_the_first_packet_of_a_long_reply_carries_it(ext: World) -> None:
    a, b = ext.extended_pair()
    b.recv(8)
    a.recv(3000)
    a.send(b"question")
    ext.says(a, "EXT_SEND_ONLY 100")
    b.send(bytes(3000))
    ext.says(
        b,
        "EXT_SEND_FIRST 5000 carries=100",
        "EXT_SEND_MIDDLE 5001 carries=no",
        "EXT_SEND_LAST 5002 carries=no ack",
    )
    assert a.poll() == [ok("SEND")]


def test_a_stream_without_replies_is_acknowledged_now_and_then(ext: World) -> None:
    a, b = ext.extended_pair()
    for _ in range(64):
        b.recv(8)
        a.send(b"x")
    assert ext.run()
    assert a.poll() == [ok("SEND")] * 64
    assert b.stats()["acks_tx"] <= 64 // 16 + 1


def test_what_is_behind_a_gap_is_told_by_a_packet_of_its_own(ext: World) -> None:
    """A carried acknowledgement has no bitmap."""
    a, b = ext.extended_pair()
    for _ in range(3):
        b.recv(8)
        a.send(b"x")
    a.recv(8)
    ext.says(a, "EXT_SEND_ONLY 100", "EXT_SEND_ONLY 101 lost", "EXT_SEND_ONLY 102")
    b.send(b"reply")
    packets = ext.says(b, "EXT_ACK 100", "EXT_SEND_ONLY 5000 carries=no")
    assert packets[0].sacked() == {102}
    assert a.poll() == [ok("SEND")]


def test_marks_are_told_although_replies_carry_the_ack(make_world: MakeWorld) -> None:
    """An algorithm that reads marks must hear of them in request and reply as well."""
    ext = make_world(extended=True, ecn=1)
    a, b = ext.extended_pair()
    marked = 0
    for _ in range(20):
        b.recv(8)
        a.recv(8)
        a.send(b"question")
        for packet in a.host.send_all():
            ext.give(b.host, packet.marked() if packet.name == "EXT_SEND_ONLY" else packet)
        b.send(b"answer")
        packets = b.host.send_all()
        ext.advance(HOLD_NS + 2 * TICK_NS)
        for packet in packets + b.host.send_all():
            if packet.mask & lib.DP_HAS_XAH:
                marked = max(marked, packet.xah()["marked"])
            ext.give(a.host, packet)
    assert marked == 20
    assert len(a.poll()) == 20


def test_twice_is_once(ext: World) -> None:
    a, b = ext.extended_pair()
    b.recv(8)
    a.recv(8)
    a.send(b"question")
    ext.says(a, "EXT_SEND_ONLY 100")
    b.send(b"answer")
    ext.says(b, "EXT_SEND_ONLY 5000 carries=100 twice")
    assert a.poll() == [ok("SEND")]
    assert len(a.poll_recv()) == 1


def test_a_lost_reply_comes_again_and_both_sides_end(ext: World) -> None:
    a, b = ext.extended_pair()
    b.recv(8)
    into = a.recv(8)
    a.send(b"question")
    ext.says(a, "EXT_SEND_ONLY 100")
    b.send(b"answer")
    ext.says(b, "EXT_SEND_ONLY 5000 carries=100 lost")
    begin = ext.now
    assert ext.run(Channel(latency_ns=US))
    assert a.poll() == b.poll() == [ok("SEND")]
    assert len(a.poll_recv()) == len(b.poll_recv()) == 1
    assert bytes(into)[:6] == b"answer"
    assert ext.now - begin < 100 * MS


def carried(sender: QP, psn: int, ack_psn: int, flags: int) -> Packet:
    """An extended SEND at `psn` that carries an acknowledgement of our making."""
    now = sender.world.now & 0xFFFFFFFF
    xdh = struct.pack("!5I", now, 0, 0, ack_psn << 8 | flags, now)
    return forge.packet(sender, 0xC4, psn, xdh, b"four")


@pytest.mark.parametrize(
    ("ack_psn", "flags", "acknowledged"),
    [(99, 1, 0), (100, 1, 1), (102, 1, 3), (103, 1, 0), (0x800064, 1, 0), (102, 0, 0), (102, 2, 0)],
    ids=["old", "first", "all", "never-sent", "half-way-round", "no-flag", "other-flag"],
)
def test_only_what_was_sent_can_be_acknowledged(
    ext: World, ack_psn: int, flags: int, acknowledged: int
) -> None:
    a, b = ext.extended_pair()
    a.recv(8)
    for _ in range(3):
        a.send(b"x")
    a.host.send_all()
    assert ext.give(a.host, carried(b, 5000, ack_psn, flags)) == 0
    assert a.poll() == [ok("SEND")] * acknowledged
    assert len(a.poll_recv()) == 1
