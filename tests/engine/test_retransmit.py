# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Standard mode under loss: go-back-N, time-outs, RNR, replays."""

from __future__ import annotations

import pytest

from tests.engine.forge import sealed
from tests.engine.ladder import MS, US, Channel, Completion, World, failed, ok, pattern

pytestmark = pytest.mark.san

FLUSHED = failed("WR_FLUSH_ERR")
TIMEOUT_14 = 4096 * 2**14  # ns


def test_a_gap_gets_one_nak_and_then_silence(world: World) -> None:
    a, b = world.pair()
    data = pattern(5000)
    into = b.recv(5000)
    a.send(data)
    world.says(
        a,
        "SEND_FIRST 100",
        "SEND_MIDDLE 101 lost",
        "SEND_MIDDLE 102",
        "SEND_MIDDLE 103",
        "SEND_LAST 104 ack",
    )
    world.says(b, "NAK_SEQ 101 msn=0")
    world.says(a, "SEND_MIDDLE 101", "SEND_MIDDLE 102", "SEND_MIDDLE 103", "SEND_LAST 104 ack")
    world.says(b, "ACK 104 msn=1")
    assert a.poll() == [ok("SEND")]
    assert bytes(into) == data
    assert b.stats()["dropped_ooo"] == 3
    assert b.stats()["naks_tx"] == a.stats()["naks_rx"] == 1
    assert a.stats()["retransmits"] == 4


def test_a_nak_acknowledges_what_came_before_it(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(8)
    for _ in range(3):
        a.write(b"x", target)
    world.says(a, "WRITE_ONLY 100", "WRITE_ONLY 101 lost", "WRITE_ONLY 102")
    *_, nak = b.host.send_all()
    assert (nak.name, nak.psn) == ("NAK_SEQ", 101)
    world.give(a.host, nak)
    assert a.poll() == [ok("RDMA_WRITE")]
    world.says(a, "WRITE_ONLY 101", "WRITE_ONLY 102")
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE")] * 2


def test_a_lost_retransmission_waits_for_the_timer(world: World) -> None:
    a, b = world.pair()
    a.write(pattern(3000), b.host.memory(3000))
    world.says(a, "WRITE_FIRST 100 lost", "WRITE_MIDDLE 101", "WRITE_LAST 102")
    world.says(b, "NAK_SEQ 100")
    world.says(a, "WRITE_FIRST 100 lost", "WRITE_MIDDLE 101", "WRITE_LAST 102")
    world.silent()
    passed = world.expire(a)
    assert passed >= TIMEOUT_14
    world.says(a, "WRITE_FIRST 100", "WRITE_MIDDLE 101", "WRITE_LAST 102")
    world.says(b, "ACK 102")
    assert a.poll() == [ok("RDMA_WRITE")]
    assert a.stats()["timeouts"] == 1


def test_a_second_gap_gets_a_second_nak(world: World) -> None:
    a, b = world.pair()
    a.write(pattern(4000), b.host.memory(4000))
    world.says(a, "WRITE_FIRST 100 lost", "WRITE_MIDDLE 101", "WRITE_MIDDLE 102", "WRITE_LAST 103")
    world.says(b, "NAK_SEQ 100")
    world.says(a, "WRITE_FIRST 100", "WRITE_MIDDLE 101", "WRITE_MIDDLE 102 lost", "WRITE_LAST 103")
    world.says(b, "NAK_SEQ 102")
    world.says(a, "WRITE_MIDDLE 102", "WRITE_LAST 103")
    world.says(b, "ACK 103")


def test_a_lost_acknowledgement_is_asked_for_again(world: World) -> None:
    a, b = world.pair()
    into = b.recv(10)
    a.send(b"once")
    world.says(a, "SEND_ONLY 100")
    world.says(b, "ACK 100 lost")
    world.expire(a)
    world.says(a, "SEND_ONLY 100")
    world.says(b, "ACK 100 msn=1")
    assert a.poll() == [ok("SEND")]
    assert b.poll_recv() == [ok("RECV", byte_len=4)]
    assert bytes(into)[:4] == b"once"
    assert b.stats()["duplicates"] == 1


def test_duplicates_are_acknowledged_again_with_the_newest_psn(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(b"........")
    a.write(b"1", target)
    first = world.says(a, "WRITE_ONLY 100")
    world.settle()
    a.write(b"2", target)
    world.says(a, "WRITE_ONLY 101")
    world.settle()
    world.give(b.host, first[0])
    world.says(b, "ACK 101 msn=2")
    assert bytes(target) == b"2......."
    assert a.poll() == [ok("RDMA_WRITE")] * 2


def test_timeout_follows_the_exponent(world: World) -> None:
    for n in (8, 12):
        a, b = world.pair(timeout=n)
        a.write(b"x", b.host.memory(8))
        world.says(a, "WRITE_ONLY 100 lost")
        passed = world.expire(a)
        assert 4096 * 2**n <= passed <= 4 * 4096 * 2**n  # IBTA: at most four times as long
        world.says(a, "WRITE_ONLY 100")
        world.settle()


def test_time_outs_in_a_row_grow_as_far_as_the_standard_lets_them(world: World) -> None:
    """A host that stands still for a second is not taken for dead."""
    a, b = world.pair(timeout=14, retry_cnt=7)
    waits = []
    for psn in (100, 101):
        a.write(b"x", b.host.memory(8))
        for _ in range(7):
            world.says(a, f"WRITE_ONLY {psn} lost")
            waits.append(world.expire(a))
        world.settle()
    assert a.poll() == [ok("RDMA_WRITE")] * 2
    assert all(TIMEOUT_14 <= wait <= 4 * TIMEOUT_14 for wait in waits)
    assert sum(waits[:7]) > 10**9
    assert max(waits[0], waits[7]) < 1.1 * TIMEOUT_14  # after an answer they are short again


def test_timeout_zero_waits_for_ever(world: World) -> None:
    a, b = world.pair(timeout=0)
    a.write(b"x", b.host.memory(8))
    world.says(a, "WRITE_ONLY 100 lost")
    world.advance(3600 * 10**9)
    world.silent()
    assert a.state == "RTS"


@pytest.mark.parametrize("retry_cnt", [0, 1, 3, 7])
def test_retries_are_counted_and_then_the_rest_is_flushed(world: World, retry_cnt: int) -> None:
    a, b = world.pair(retry_cnt=retry_cnt)
    target = b.host.memory(8)
    for i in range(3):
        a.write(b"x", target, wr_id=i, signaled=i != 1)
    a.recv(8, wr_id=50)
    a.recv(8, wr_id=51)
    for _ in range(retry_cnt + 1):
        world.says(a, *(f"WRITE_ONLY {psn} lost" for psn in (100, 101, 102)))
        world.expire(a)
    world.silent()
    assert a.state == "ERR"
    expected = [failed("RETRY_EXC_ERR", wr_id=0)]
    expected += [Completion(None, "WR_FLUSH_ERR", wr_id=i) for i in (1, 2)]  # type: ignore[arg-type]
    assert a.poll() == expected
    assert a.poll_recv() == [failed("WR_FLUSH_ERR", wr_id=50), failed("WR_FLUSH_ERR", wr_id=51)]
    assert "QP_FAILED" in a.host.events()
    a.write(b"late", target, wr_id=9)
    assert a.poll() == [failed("WR_FLUSH_ERR", wr_id=9)]


def test_progress_gives_the_retries_back(world: World) -> None:
    a, b = world.pair(retry_cnt=1)
    target = b.host.memory(8)
    a.write(b"x", target)
    a.write(b"y", target)
    world.says(a, "WRITE_ONLY 100 lost", "WRITE_ONLY 101 lost")
    world.expire(a)
    world.says(a, "WRITE_ONLY 100", "WRITE_ONLY 101 lost")
    world.says(b, "ACK 100")
    world.expire(a)
    world.says(a, "WRITE_ONLY 101")
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE")] * 2


def test_a_dead_peer_ends_in_retry_exceeded(world: World) -> None:
    a, b = world.pair(retry_cnt=7)
    a.write(pattern(10_000), b.host.memory(10_000))
    a.read(100, b.host.memory(100))
    dead = Channel(lose=lambda host, packet: True)
    assert world.run(dead, limit_ns=100 * 10**9)
    assert a.poll() == [failed("RETRY_EXC_ERR"), FLUSHED]
    assert a.stats()["timeouts"] == 8


# ---- READ and atomics ---------------------------------------------------------------


def test_a_lost_read_request(world: World) -> None:
    a, b = world.pair()
    source = b.host.memory(pattern(3000))
    into = a.read(3000, source)
    world.says(a, "READ_REQUEST 100 lost")
    world.expire(a)
    world.says(a, "READ_REQUEST 100")
    world.settle()
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


def test_a_gap_in_read_responses_is_asked_for_again_from_there(world: World) -> None:
    a, b = world.pair()
    source = b.host.memory(pattern(5000))
    into = a.read(5000, source)
    world.says(a, "READ_REQUEST 100")
    world.says(
        b,
        "READ_RESP_FIRST 100",
        "READ_RESP_MIDDLE 101 lost",
        "READ_RESP_MIDDLE 102",
        "READ_RESP_MIDDLE 103",
        "READ_RESP_LAST 104",
    )
    if not (again := a.host.send_all()):
        world.expire(a)
        again = a.host.send_all()
    (request,) = again
    assert (request.name, request.psn) == ("READ_REQUEST", 101)
    va, length = source.addr + 1024, 5000 - 1024
    assert int.from_bytes(request.data[12:20], "big") == va
    assert int.from_bytes(request.data[24:28], "big") == length
    world.give(b.host, request)
    answers = b.host.send_all()
    assert [p.psn for p in answers] == [101, 102, 103, 104]
    assert answers[0].name in ("READ_RESP_FIRST", "READ_RESP_MIDDLE")
    for answer in answers:
        world.give(a.host, answer)
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


def test_a_gap_in_a_long_read_is_asked_for_again_to_the_end_of_the_request(world: World) -> None:
    """And not further: the peer answers no request that it knows in part only."""
    a, b = world.pair(mtu=256)
    source = b.host.memory(pattern(200 * 256))
    into = a.read(200 * 256, source)
    world.says(a, "READ_REQUEST 100")
    for i, answer in enumerate(b.host.send_all()):
        if i != 50:
            world.give(a.host, answer)
    if not (again := a.host.send_all()):
        world.expire(a)
        again = a.host.send_all()
    (request,) = again
    assert (request.name, request.psn) == ("READ_REQUEST", 150)
    assert int.from_bytes(request.data[24:28], "big") == (128 - 50) * 256
    world.give(b.host, request)
    world.settle()
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


@pytest.mark.parametrize("as_middle", [False, True])
def test_a_partial_replay_may_begin_with_first_or_middle(world: World, as_middle: bool) -> None:
    """rxe answers a partial replay with MIDDLE/LAST, others with FIRST."""
    a, b = world.pair()
    source = b.host.memory(pattern(4000))
    into = a.read(4000, source)
    world.says(a, "READ_REQUEST 100")
    packets = b.host.send_all()
    world.give(a.host, packets[0])
    world.expire(a)
    (request,) = a.host.send_all()
    assert request.psn == 101
    world.give(b.host, request)
    first, *rest = b.host.send_all()
    other = packets[1] if as_middle else first
    assert other.psn == first.psn == 101
    for answer in (other, *rest):
        world.give(a.host, answer)
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(into) == bytes(source)


def test_a_replayed_read_sees_memory_as_it_is_now_and_does_not_count(world: World) -> None:
    a, b = world.pair()
    source = b.host.memory(b"old.")
    into = a.read(4, source)
    world.says(a, "READ_REQUEST 100")
    world.says(b, "READ_RESP_ONLY 100 msn=1 lost")
    source.fill(b"new.")
    world.expire(a)
    world.says(a, "READ_REQUEST 100")
    world.says(b, "READ_RESP_ONLY 100 msn=1")
    assert bytes(into) == b"new."


def test_a_replayed_atomic_returns_the_saved_value(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory((10).to_bytes(8, "little"))
    before = a.faa(target, 5)
    world.says(a, "FETCH_ADD 100")
    world.says(b, "ATOMIC_ACK 100 lost")
    world.expire(a)
    world.says(a, "FETCH_ADD 100")
    world.says(b, "ATOMIC_ACK 100 msn=1")
    assert a.poll() == [ok("FETCH_ADD")]
    assert int.from_bytes(bytes(before), "little") == 10
    assert int.from_bytes(bytes(target), "little") == 15


def test_as_many_atomics_are_remembered_as_may_be_outstanding(world: World) -> None:
    a, b = world.pair(rd_atomic=4)
    target = b.host.memory(8)
    results = [a.faa(target, 1) for _ in range(4)]
    lines = [f"FETCH_ADD {psn}" for psn in range(100, 104)]
    world.says(a, *lines)
    world.says(b, *(f"ATOMIC_ACK {psn} lost" for psn in range(100, 104)))
    world.expire(a)
    world.says(a, *lines)
    world.says(b, *(f"ATOMIC_ACK {psn}" for psn in range(100, 104)))
    assert [int.from_bytes(bytes(m), "little") for m in results] == [0, 1, 2, 3]
    assert int.from_bytes(bytes(target), "little") == 4


def test_an_ack_beyond_a_read_means_that_its_answer_is_lost(world: World) -> None:
    a, b = world.pair()
    source = b.host.memory(pattern(100))
    into = a.read(100, source)
    a.write(b"x", b.host.memory(8))
    world.says(a, "READ_REQUEST 100", "WRITE_ONLY 101")
    world.says(b, "READ_RESP_ONLY 100 lost", "ACK 101")
    assert a.poll() == []
    if not (again := a.host.send_all()):
        world.expire(a)
        again = a.host.send_all()
    assert (again[0].name, again[0].psn) == ("READ_REQUEST", 100)
    for packet in again:
        world.give(b.host, packet)
    world.settle()
    assert a.poll() == [ok("RDMA_READ"), ok("RDMA_WRITE")]
    assert bytes(into) == bytes(source)


def test_an_ack_never_overtakes_read_responses(world: World) -> None:
    a, b = world.pair()
    a.read(3000, b.host.memory(pattern(3000)))
    a.write(b"x", b.host.memory(8))
    world.says(a, "READ_REQUEST 100", "WRITE_ONLY 103")
    world.says(b, "READ_RESP_FIRST 100", "READ_RESP_MIDDLE 101", "READ_RESP_LAST 102", "ACK 103")


def test_an_ack_overtakes_none_while_the_ends_agree_on_extended_mode(ext: World) -> None:
    """B knows that A will be extended, and A has sent both in standard mode."""
    a, b = ext.pair()
    ext.advance(US)
    a.read(3000, b.host.memory(pattern(3000)))
    a.write(b"x", b.host.memory(8))
    ext.says(a, "HELLO 0", "READ_REQUEST 100", "WRITE_ONLY 103")
    names = [p.name for p in b.host.send_all()]
    read = ["READ_RESP_FIRST", "READ_RESP_MIDDLE", "READ_RESP_LAST"]
    assert [n for n in names if not n.startswith("HELLO")] == [*read, "EXT_ACK"]
    assert "HELLO_REPLY" in names


# ---- RNR ------------------------------------------------------------------------------


def test_an_ack_has_the_psn_of_a_send_or_write(world: World) -> None:
    """rxe takes an ACK with the PSN of a READ or atomic for its answer, and completes it."""
    a, b = world.pair()
    target = b.host.memory(8)
    a.write(b"x", target)
    into = a.read(8, target)
    a.faa(target, 1)
    world.says(a, "WRITE_ONLY 100 ack", "READ_REQUEST 101", "FETCH_ADD 102")
    world.says(b, "READ_RESP_ONLY 101 lost", "ATOMIC_ACK 102 lost", "ACK 100 msn=3")
    assert [c.opcode for c in a.poll()] == ["RDMA_WRITE"]
    a.write(b"y", target)
    world.says(a, "WRITE_ONLY 103 ack lost")
    world.expire(a)
    world.says(a, "READ_REQUEST 101", "FETCH_ADD 102", "WRITE_ONLY 103 ack lost")
    world.says(b, "READ_RESP_ONLY 101", "ATOMIC_ACK 102")
    assert bytes(into)[0] == ord("x") + 1  # as it is when it is read again
    world.expire(a)
    world.says(a, "WRITE_ONLY 103 ack")
    world.says(b, "ACK 103 msn=4")
    assert [c.opcode for c in a.poll()] == ["RDMA_READ", "FETCH_ADD", "RDMA_WRITE"]


def test_answers_that_wait_are_given_behind_those_that_are_asked_for_again(world: World) -> None:
    """Each once and in the order of PSNs, whatever was lost of the requests that came again."""
    a, b = world.pair()
    word = b.host.memory((5).to_bytes(8, "little"))
    got = a.read(10, b.host.memory(10))
    a.write(b"x", b.host.memory(8))
    first, second = a.faa(word, 1), a.faa(word, 1)
    sent = ("READ_REQUEST 100", "WRITE_ONLY 101 ack", "FETCH_ADD 102", "FETCH_ADD 103")
    world.says(a, *sent)  # B has run them all, and has not yet come to answer
    world.expire(a)
    world.says(a, *sent[:2], "FETCH_ADD 102 lost", "FETCH_ADD 103")
    answers = ("READ_RESP_ONLY 100 len=10", "ATOMIC_ACK 102", "ATOMIC_ACK 103", "ACK 101 msn=4")
    assert len(world.says(b, *answers)) == 4
    assert [c.opcode for c in a.poll()] == ["RDMA_READ", "RDMA_WRITE", "FETCH_ADD", "FETCH_ADD"]
    assert [int.from_bytes(bytes(x), "little") for x in (first, second, word)] == [5, 6, 7]
    assert len(bytes(got)) == 10


def test_an_answer_under_way_begins_anew_behind_an_earlier_one(world: World) -> None:
    """A requester that goes back has dropped what it got of the later READ."""
    a, b = world.pair()
    small, large = bytes(range(8)), bytes(range(250)) * 10
    first = a.read(8, b.host.memory(small))
    second = a.read(len(large), b.host.memory(large))
    world.says(a, "READ_REQUEST 100", "READ_REQUEST 101")
    assert len(b.host.send(2)) == 2  # the answers of PSN 100 and 101 are lost
    world.expire(a)
    world.says(a, "READ_REQUEST 100", "READ_REQUEST 101 lost")
    parts = ("READ_RESP_FIRST 101", "READ_RESP_MIDDLE 102", "READ_RESP_LAST 103 len=452")
    world.says(b, "READ_RESP_ONLY 100 len=8", *parts)
    assert [c.opcode for c in a.poll()] == ["RDMA_READ", "RDMA_READ"]
    assert bytes(first) == small
    assert bytes(second) == large


def test_rnr_waits_as_long_as_the_peer_asks(world: World) -> None:
    a, b = world.pair(min_rnr_timer=14)  # 1.28 ms
    a.send(b"knock")
    world.says(a, "SEND_ONLY 100")
    world.says(b, "RNR 100 syndrome=2e msn=0")
    world.silent(a)
    assert b.state == a.state == "RTS"
    into = b.recv(8)
    world.advance(1279 * US)
    world.silent(a)
    world.advance(10 * US)
    world.says(a, "SEND_ONLY 100")
    world.says(b, "ACK 100 msn=1")
    assert bytes(into)[:5] == b"knock"
    assert (a.stats()["rnr_rx"], b.stats()["rnr_tx"]) == (1, 1)


def test_a_loss_right_after_an_rnr_wait_is_repaired(world: World) -> None:
    """The wait is over by the clock, but the engine is asked to send before it is ticked."""
    a, b = world.pair(min_rnr_timer=14)
    a.send(b"knock")
    world.says(a, "SEND_ONLY 100")
    world.says(b, "RNR 100")
    b.recv(8)
    world.silent(a)
    world.now += 1281 * US
    a.write(b"x", b.host.memory(8))
    world.says(a, "SEND_ONLY 100 lost", "WRITE_ONLY 101 lost")
    a.host.tick()
    assert world.expire(a) <= 2 * TIMEOUT_14
    world.says(a, "SEND_ONLY 100", "WRITE_ONLY 101")
    world.says(b, "ACK 101")
    assert a.poll() == [ok("SEND"), ok("RDMA_WRITE")]


def test_packets_behind_an_rnr_are_dropped_and_come_again(world: World) -> None:
    a, b = world.pair(min_rnr_timer=1)
    into_memory = b.host.memory(8)
    a.send(pattern(2000))
    a.write(b"x", into_memory)
    world.says(a, "SEND_FIRST 100", "SEND_LAST 101", "WRITE_ONLY 102")
    world.says(b, "RNR 100")
    assert bytes(into_memory) == bytes(8)
    b.recv(2000)
    world.expire(a)
    world.says(a, "SEND_FIRST 100", "SEND_LAST 101", "WRITE_ONLY 102")
    world.settle()
    assert a.poll() == [ok("SEND"), ok("RDMA_WRITE")]
    assert bytes(into_memory)[:1] == b"x"


def test_write_with_immediate_needs_a_receive_too(world: World) -> None:
    a, b = world.pair(min_rnr_timer=1)
    target = b.host.memory(2000)
    data = pattern(2000)
    a.write(data, target, imm=1)
    world.says(a, "WRITE_FIRST 100", "WRITE_LAST_IMM 101")
    world.says(b, "RNR 101 msn=0")
    b.recv(0)
    world.expire(a)
    world.says(a, "WRITE_LAST_IMM 101")
    world.says(b, "ACK 101 msn=1")
    assert bytes(target) == data
    assert b.poll_recv() == [ok("RECV_RDMA_WITH_IMM", byte_len=2000)]


@pytest.mark.parametrize("rnr_retry", [0, 1, 3, 6])
def test_rnr_retries_are_counted(world: World, rnr_retry: int) -> None:
    a, b = world.pair(min_rnr_timer=1, rnr_retry=rnr_retry)
    a.send(b"knock", wr_id=1)
    a.send(b"again", wr_id=2)
    for _ in range(rnr_retry):
        world.says(a, "SEND_ONLY 100", "SEND_ONLY 101")
        world.says(b, "RNR 100")
        world.expire(a)
    world.says(a, "SEND_ONLY 100", "SEND_ONLY 101")
    world.says(b, "RNR 100")
    assert a.poll() == [failed("RNR_RETRY_EXC_ERR", wr_id=1), failed("WR_FLUSH_ERR", wr_id=2)]
    assert a.state == "ERR"
    assert b.state == "RTS"


def test_rnr_retry_seven_is_for_ever(world: World) -> None:
    a, b = world.pair(min_rnr_timer=1, rnr_retry=7)
    a.send(b"knock")
    for _ in range(50):
        world.says(a, "SEND_ONLY 100")
        world.says(b, "RNR 100")
        world.expire(a)
    b.recv(8)
    world.settle()
    assert a.poll() == [ok("SEND")]


@pytest.mark.parametrize(("code", "ns"), [(0, 655_360 * US), (1, 10 * US), (31, 491_520 * US)])
def test_rnr_codes(world: World, code: int, ns: int) -> None:
    a, _ = world.pair(min_rnr_timer=code)
    a.send(b"knock")
    world.says(a, "SEND_ONLY 100")
    world.says(world.b_host, f"RNR 100 syndrome={0x20 | code:02x}")
    waited = 0
    while not (again := a.host.send_all()):
        waited += world.expire(a)
    assert [p.psn for p in again] == [100]
    assert ns <= waited <= ns + 2 * MS


# ---- corruption, disorder -------------------------------------------------------------


def test_corrupted_packets_are_dropped_and_come_again(world: World) -> None:
    a, b = world.pair()
    data = pattern(3000)
    into = b.recv(3000)
    a.send(data)
    world.says(a, "SEND_FIRST 100", "SEND_MIDDLE 101 corrupt", "SEND_LAST 102")
    assert b.host.stats()["drop_icrc"] == 1
    world.says(b, "NAK_SEQ 101")
    world.says(a, "SEND_MIDDLE 101", "SEND_LAST 102")
    world.says(b, "ACK 102 corrupt")
    assert a.host.stats()["drop_icrc"] == 1
    world.expire(a)
    world.settle()
    assert a.poll() == [ok("SEND")]
    assert bytes(into) == data


def test_a_swapped_pair_of_packets_recovers(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(2000)
    data = pattern(2000)
    a.write(data, target)
    first, last = a.host.send_all()
    world.give(b.host, last)
    world.give(b.host, first)
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == data


def test_stale_and_future_acknowledgements_change_nothing(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(8)
    a.write(b"1", target)
    world.says(a, "WRITE_ONLY 100")
    (old,) = world.says(b, "ACK 100")
    a.write(b"2", target)
    world.says(a, "WRITE_ONLY 101 lost")
    world.give(a.host, old)
    assert a.poll() == [ok("RDMA_WRITE")]
    forged = old.data[:9] + (5000).to_bytes(3, "big") + old.data[12:16]
    world.give(a.host, sealed(old, forged))
    assert a.poll() == []
    world.expire(a)
    world.says(a, "WRITE_ONLY 101")
    world.settle()
    assert a.poll() == [ok("RDMA_WRITE")]
