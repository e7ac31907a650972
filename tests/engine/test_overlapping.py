# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What lies in memory is what messages make of it one after the other, whatever comes first.

DATAPATH_HUNT=N makes N runs of the search.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.engine.ladder import US, Channel, Memory, S, World, check, pattern

pytestmark = pytest.mark.san

RUNS = int(os.environ.get("DATAPATH_HUNT", "60"))
ROOM = 12_000
TAIL = 16
"""Bytes of a message that wait until all before it is there."""


def at(memory: Memory, offset: int) -> tuple[int, int]:
    return memory.addr + offset, memory.key


def test_the_later_of_two_writes_stays(ext: World) -> None:
    a, b = ext.extended_pair()
    memory = b.host.memory(64)
    a.write(b"1" * 64, memory)
    a.write(b"2" * 64, memory)
    first, second = a.host.send_all()
    ext.give(b.host, second)
    assert bytes(memory) == b"2" * (64 - TAIL) + bytes(TAIL)
    ext.give(b.host, first)
    assert bytes(memory) == b"2" * 64


def test_the_end_of_a_write_does_not_come_over_a_later_one(ext: World) -> None:
    """Only a write elsewhere is lost."""
    a, b = ext.extended_pair()
    memory, elsewhere = b.host.memory(256), b.host.memory(8)
    a.write(b"x" * 8, elsewhere)
    a.write(b"1" * 64, memory)
    a.write(b"2" * 256, memory)
    lost, *others = a.host.send_all()
    for packet in others:
        ext.give(b.host, packet)
    ext.give(b.host, lost)
    assert bytes(memory) == b"2" * 256


def test_what_is_held_back_hides_nothing(ext: World) -> None:
    """A program that waits for the first write's last bytes sees them, though a later one to the
    same place has come, which has to wait."""
    a, b = ext.extended_pair()
    memory, elsewhere = b.host.memory(64), b.host.memory(8)
    a.write(b"1" * 64, memory)
    a.write(b"x" * 8, elsewhere)
    a.write(b"2" * 64, memory)
    first, between, last = a.host.send_all()
    ext.give(b.host, last)
    ext.give(b.host, first)
    assert bytes(memory) == b"2" * (64 - TAIL) + b"1" * TAIL
    ext.give(b.host, between)
    assert bytes(memory) == b"2" * 64


def test_between_the_slots_of_a_ring(ext: World) -> None:
    """Later writes have gone to every other slot; an earlier long one fills those between."""
    a, b = ext.extended_pair()
    memory = b.host.memory(1024)
    a.write(b"1" * 1024, memory)
    for slot in range(4):
        a.write(b"2" * 64, at(memory, 100 + 200 * slot))
    first, *others = a.host.send_all()
    for packet in others:
        ext.give(b.host, packet)
    ext.give(b.host, first)
    expected = bytearray(b"1" * 1024)
    for slot in range(4):
        expected[100 + 200 * slot : 164 + 200 * slot] = b"2" * 64
    assert bytes(memory) == expected


def test_two_keys_of_the_same_memory(ext: World) -> None:
    a, b = ext.extended_pair()
    memory = b.host.memory(64)
    out = ffi.new("struct dp_mr **")
    access = lib.DP_ACCESS_LOCAL_WRITE | lib.DP_ACCESS_REMOTE_WRITE
    address = ffi.cast("void *", memory.address)
    check(lib.dp_mr_create(b.host.pd, address, 64, 0, access, out))
    a.write(b"1" * 64, memory)
    a.write(b"2" * 64, (0, int(lib.dp_mr_key(out[0]))))
    for packet in reversed(a.host.send_all()):
        ext.give(b.host, packet)
    assert bytes(memory) == b"2" * 64
    check(lib.dp_mr_destroy(out[0]))


def test_receives_of_one_buffer(ext: World) -> None:
    a, b = ext.extended_pair()
    memory = b.host.memory(64)
    for _ in range(2):
        check(b.post_recv([memory.sge()]))
    a.send(b"1" * 64)
    a.send(b"2" * 64)
    for packet in reversed(a.host.send_all()):
        ext.give(b.host, packet)
    assert bytes(memory) == b"2" * 64


def test_a_receive_whose_end_lies_elsewhere(ext: World) -> None:
    """It lies in the next receive: two that otherwise follow each other like slots."""
    a, b = ext.extended_pair()
    memory, elsewhere = b.host.memory(128), b.host.memory(8)
    check(b.post_recv([memory.sge(0, 64 - TAIL), memory.sge(100, TAIL)]))
    check(b.post_recv([memory.sge(64, 64)]))
    a.write(b"x" * 8, elsewhere)
    a.send(b"1" * 64)
    a.send(b"2" * 64)
    lost, *others = a.host.send_all()
    for packet in [*others, lost]:
        ext.give(b.host, packet)
    assert bytes(memory) == b"1" * 48 + bytes(16) + b"2" * 64


class Messages(NamedTuple):
    """Messages of one length, at offsets that grow by a step."""

    sends: bool
    offset: int
    step: int
    length: int
    number: int
    cut: int
    """Of a receive's buffer: bytes in its first piece, if that is not the whole."""

    def pieces(self, nth: int) -> list[tuple[int, int]]:
        start = self.offset + nth * self.step
        first = min(self.cut, self.length) if self.sends else self.length
        return [(start, first), (start + first, self.length - first)]


LENGTHS = st.one_of(st.integers(0, 100), st.integers(0, 3000), st.sampled_from([64, 1024, 2048]))
MESSAGES = st.builds(
    Messages,
    sends=st.booleans(),
    offset=st.one_of(st.integers(0, 100), st.integers(0, 3000)),
    step=st.sampled_from([0, 8, 64, 100, 500]),
    length=LENGTHS,
    number=st.integers(1, 12),
    cut=st.one_of(st.just(5000), st.integers(0, 100)),
)


@settings(
    max_examples=RUNS, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@given(
    groups=st.lists(MESSAGES, min_size=2, max_size=12),
    extended=st.sampled_from([True, True, True, False]),
    config=st.fixed_dictionaries(
        {
            "bundle": st.integers(0, 1),
            "paths": st.sampled_from([1, 4]),
            "window_psns": st.sampled_from([64, 1 << 17]),
        }
    ),
    loss=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
    jitter_ns=st.sampled_from([0, 20 * US, 200 * US]),
    seed=st.integers(0, 1000),
)
def test_any_messages_over_each_other(
    groups: list[Messages],
    extended: bool,
    config: dict[str, int],
    loss: float,
    jitter_ns: int,
    seed: int,
) -> None:
    with World(extended=extended, **config) as world:
        a, b = world.extended_pair() if extended else world.pair()
        memory, expected = b.host.memory(ROOM), bytearray(ROOM)
        sent = 0
        for group in groups:
            for nth in range(group.number):
                data = pattern(group.length, seed=sent)
                sent += 1
                pieces = group.pieces(nth)
                if group.sends:
                    check(b.post_recv([memory.sge(*piece) for piece in pieces]))
                    a.send(data)
                else:
                    a.write(data, at(memory, pieces[0][0]))
                expected[pieces[0][0] : pieces[0][0] + group.length] = data
        channel = Channel(loss=loss, jitter_ns=jitter_ns, seed=seed)
        assert world.run(channel, limit_ns=100 * S)
        done = a.poll()
        assert [c.status for c in done] == ["SUCCESS"] * sent
        assert bytes(memory) == expected
