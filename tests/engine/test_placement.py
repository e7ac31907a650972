# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""FLUSH and ATOMIC WRITE (IBTA annex A19): answered by a READ response of no bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import ALL_ACCESS, QP, Memory, World, ok
from tests.engine.test_errors import MODES, expect_refusal, pair

pytestmark = pytest.mark.san

FLUSHED = ALL_ACCESS | lib.DP_ACCESS_FLUSH_GLOBAL
GLOBAL, PERSISTENT, BOTH = 1, 2, 3
RANGE, MR = 0, 1


def name(packet: str, *, extended: bool) -> str:
    return f"EXT_{packet}" if extended else packet


@MODES
def test_one_round_trip_each(make_world: MakeWorld, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(bytes(64), access=FLUSHED)
    a.atomic_write(b"8 bytes!", (memory.addr + 8, memory.key))
    a.flush(memory, 64)
    sent = a.host.send_all()
    assert [p.name for p in sent] == [
        name(packet, extended=extended) for packet in ("ATOMIC_WRITE", "FLUSH")
    ]
    for packet in sent:
        world.give(b.host, packet)
    assert bytes(memory) == bytes(8) + b"8 bytes!" + bytes(48)
    answers = [p for p in b.host.send_all() if "READ_RESP" in p.name]
    assert [p.name for p in answers] == [name("READ_RESP_ONLY", extended=extended)] * 2
    assert [p.payload for p in answers] == [b"", b""]
    assert a.poll() == []
    for packet in answers:
        world.give(a.host, packet)
    assert a.poll() == [ok("ATOMIC_WRITE"), ok("FLUSH")]
    world.settle()
    assert b.poll_recv() == []


@MODES
def test_they_keep_their_place_in_the_order(make_world: MakeWorld, extended: bool) -> None:
    """Behind a gap they wait, and what comes after them sees their effect."""
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(bytes(64), access=FLUSHED)
    a.write(b"\x01" * 16, memory)
    a.atomic_write(b"\x02" * 8, memory)
    a.flush(memory, 16)
    seen = a.read(16, memory)
    first, *behind = a.host.send_all()
    for packet in behind:
        world.give(b.host, packet)
    assert bytes(memory) == bytes(64)
    world.give(b.host, first)
    world.settle()
    if a.poll() == []:  # go-back-N
        world.expire(a)
        world.settle()
    assert bytes(seen) == b"\x02" * 8 + b"\x01" * 8
    assert bytes(memory) == b"\x02" * 8 + b"\x01" * 8 + bytes(48)


@MODES
def test_a_lost_answer_is_given_again_and_nothing_is_done_twice(
    make_world: MakeWorld, extended: bool
) -> None:
    world, a, b = pair(make_world, extended=extended)
    memory = b.host.memory(bytes(8), access=FLUSHED)
    a.atomic_write(b"the peer", memory)
    a.flush(memory, 8)
    for packet in a.host.send_all():
        world.give(b.host, packet)
    b.host.send_all()  # lost
    memory.fill(b"the host")
    for _ in range(4):
        if a.stats()["retransmits"] < 2:
            world.expire(a)
        world.settle()
    assert a.poll() == [ok("ATOMIC_WRITE"), ok("FLUSH")]
    assert bytes(memory) == b"the host"


def test_no_more_of_them_than_reads_may_be_outstanding(world: World) -> None:
    a, b = world.pair(rd_atomic=2)
    memory = b.host.memory(bytes(8), access=FLUSHED)
    for _ in range(3):
        a.flush(memory, 8)
    world.says(a, "FLUSH 100", "FLUSH 101")
    world.says(b, "READ_RESP_ONLY 100 len=0", "READ_RESP_ONLY 101 len=0")
    world.says(a, "FLUSH 102")


def test_inline(world: World) -> None:
    a, b = world.pair(max_inline=8)
    memory = b.host.memory(bytes(8))
    a.atomic_write(b"in a row", memory, inline=True)
    world.settle()
    assert bytes(memory) == b"in a row"


@pytest.mark.parametrize(("length", "offset"), [(0, 0), (7, 0), (9, 0), (16, 0), (8, 1), (8, 4)])
def test_what_is_no_aligned_word_is_not_posted(world: World, length: int, offset: int) -> None:
    a, b = world.pair()
    memory = b.host.memory(bytes(64))
    source = [a.host.memory(bytes(length)).sge()] if length else []
    status = a.post_send(lib.DP_WR_ATOMIC_WRITE, source, remote=(memory.addr + offset, memory.key))
    assert status == -22
    world.silent(a)


FAULTS: dict[str, tuple[int, Callable[[QP, Memory], None]]] = {
    "flush-without-the-right": (ALL_ACCESS, lambda a, m: a.flush(m, 8)),
    "flush-all-without-the-right": (ALL_ACCESS, lambda a, m: a.flush(m, 0, selectivity=MR)),
    "flush-too-far": (FLUSHED, lambda a, m: a.flush(m, m.size + 1)),
    "flush-wraps": (FLUSHED, lambda a, m: a.flush((2**64 - 4, m.key), 8)),
    "flush-wrong-key": (FLUSHED, lambda a, m: a.flush((m.addr, m.key ^ 1), 8)),
    "flush-all-wrong-key": (
        FLUSHED,
        lambda a, m: a.flush((m.addr, m.key ^ 1), 0, selectivity=MR),
    ),
    "flush-persistent": (FLUSHED, lambda a, m: a.flush(m, 8, placement=PERSISTENT)),
    "flush-both": (FLUSHED, lambda a, m: a.flush(m, 8, placement=BOTH)),
    "write-wrong-key": (FLUSHED, lambda a, m: a.atomic_write(b"x" * 8, (m.addr, m.key ^ 1))),
    "write-too-far": (
        FLUSHED,
        lambda a, m: a.atomic_write(b"x" * 8, (m.addr + m.size, m.key)),
    ),
    "write-read-only": (
        lib.DP_ACCESS_REMOTE_READ | lib.DP_ACCESS_FLUSH_GLOBAL,
        lambda a, m: a.atomic_write(b"x" * 8, m),
    ),
}


@MODES
@pytest.mark.parametrize("fault", FAULTS)
def test_without_the_right(make_world: MakeWorld, fault: str, extended: bool) -> None:
    world, a, b = pair(make_world, extended=extended)
    access, act = FAULTS[fault]
    memory = b.host.memory(bytes(64), access=access)
    act(a, memory)
    expect_refusal(world, a, b, "NAK_ACCESS", "REM_ACCESS_ERR")
    assert bytes(memory) == bytes(64)


@pytest.mark.parametrize(
    ("opcode", "headers", "payload"),
    [
        (0x1D, None, b""),
        (0x1D, None, b"1234"),
        (0x1D, None, b"123456789012"),
        (0x1C, (0, RANGE), b""),
        (0x1C, (GLOBAL, 2), b""),
        (0x1C, (GLOBAL, 3), b""),
    ],
)
def test_malformed(
    world: World, opcode: int, headers: tuple[int, int] | None, payload: bytes
) -> None:
    a, b = world.pair()
    memory = b.host.memory(bytes(64), access=FLUSHED)
    start = b"" if headers is None else forge.feth(*headers)
    world.give(b.host, forge.packet(a, opcode, 100, start + forge.reth(memory, 8), payload))
    world.says(b, "NAK_INVALID 100")
    assert b.state == "ERR"
    assert bytes(memory) == bytes(64)


@given(
    opcode=st.sampled_from([0x1C, 0x1D]),
    feth=st.tuples(st.integers(0, 15), st.integers(0, 3)),
    offset=st.sampled_from([0, 4, 8, 56, 57, 64, -8]),
    length=st.sampled_from([0, 4, 8, 9, 64, 2**32 - 1]),
    payload=st.binary(max_size=16),
    right_key=st.booleans(),
    writable=st.booleans(),
)
def test_no_byte_without_the_right(
    opcode: int,
    feth: tuple[int, int],
    offset: int,
    length: int,
    payload: bytes,
    right_key: bool,
    writable: bool,
) -> None:
    with World() as world:
        a, b = world.pair()
        access = FLUSHED if writable else lib.DP_ACCESS_FLUSH_GLOBAL
        memory = b.host.memory(bytes(64), access=access)
        key = memory.key if right_key else memory.key ^ 1
        start = forge.feth(*feth) if opcode == 0x1C else b""
        body = payload if opcode == 0x1D else b""
        reth = forge.reth(memory, length, offset=offset, rkey=key)
        world.give(b.host, forge.packet(a, opcode, 100, start + reth, body))
        legal = opcode == 0x1D and right_key and writable and len(payload) == length == 8
        if legal and offset in (0, 8, 56):
            expected = bytearray(64)
            expected[offset : offset + 8] = payload
            assert bytes(memory) == bytes(expected)
        else:
            assert bytes(memory) == bytes(64)
        assert memory.guards_intact()
