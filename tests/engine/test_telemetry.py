# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""In-band telemetry: room in requests, switches that fill it, echoes, what algorithms see."""

from __future__ import annotations

import itertools

import pytest

from datapath.native import ffi, lib
from tests.clib import in_c, testlib
from tests.engine import forge
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import QP, US, Channel, Host, Packet, World, ok, pattern

pytestmark = pytest.mark.san

ROOM = 4 + 8 * 16
MTU = 1024


@pytest.fixture
def told(make_world: MakeWorld) -> World:
    """Both ends want telemetry."""
    return make_world(extended=True, telemetry=1)


def settled(world: World, **options: int) -> tuple[QP, QP]:
    a, b = world.pair(**options)
    assert world.run()
    return a, b


def stamped(packet: Packet, *records: tuple[int, int, int, int]) -> Packet:
    """As switches would pass it on; each record: queue_bytes, ts_ns, tx_bytes, rate_mbps."""
    data = in_c(packet.data)
    for record in records:
        fields = ffi.new("uint64_t[4]", record)
        assert testlib.X_dp_telemetry_stamp(data, len(packet.data), fields) == 1
    return packet._replace(data=bytes(ffi.buffer(data, len(packet.data))))


def test_every_request_has_room(told: World) -> None:
    """As HPCC has it (section 3.1): two flows get equal shares only if no packet lacks it."""
    a, b = settled(told)
    a.write(pattern(3000), b.host.memory(3000))
    first, middle, last = a.host.send_all()
    assert (first.room, middle.room, last.room) == (ROOM, ROOM, ROOM)
    assert len(last.payload) == 3000 - 2 * MTU
    assert not any(last.data[32 : 32 + ROOM])


@pytest.mark.parametrize(("own", "peer"), [(0, 1), (1, 0)])
def test_both_ends_must_want_it(make_world: MakeWorld, own: int, peer: int) -> None:
    world = make_world(extended=True, telemetry=own)
    world.b_host = Host(world, "b", world.b_host.addr, extended=1, seed=2, telemetry=peer)
    world.hosts = (world.a_host, world.b_host)
    a, b = settled(world)
    for x, y in ((a, b), (b, a)):
        x.write(b"x", y.host.memory(8))
        (packet,) = x.host.send_all()
        assert packet.name == "EXT_WRITE_ONLY"
        assert packet.room == 0


def test_an_algorithm_sees_what_switches_wrote(told: World) -> None:
    a, b = settled(told)
    witness = Witness(a)
    a.write(b"x", b.host.memory(8))
    (packet,) = a.host.send_all()
    hops = [(70_000, told.now, 5 << 32, 100_000), (0, told.now + 1000, 9, 400_000)]
    assert told.give(b.host, stamped(packet, *hops)) == 0
    (ack,) = b.host.send_all()
    assert ack.xah()["n_hops"] == 2
    told.give(a.host, ack)
    (event,) = witness.acks
    assert [(h["queue_bytes"], h["tx_bytes"], h["rate_bps"]) for h in event["hops"]] == [
        (70_000, 5 << 32, 100e9),
        (0, 9, 400e9),
    ]
    assert event["hops"][1]["ts_ns"] - event["hops"][0]["ts_ns"] == 1000


def test_clocks_and_counters_go_on_beyond_the_bits_on_the_wire(told: World) -> None:
    a, b = settled(told)
    witness = Witness(a)
    target = b.host.memory(8)
    clock, sent = (1 << 32) - 500, (1 << 40) - 1
    for idle_ns in (0, 1000, 10_000_000_000):  # more than 2^32 ns
        told.advance(idle_ns)
        clock, sent = clock + idle_ns, sent + 2
        a.write(b"x", target)
        (packet,) = a.host.send_all()
        told.give(b.host, stamped(packet, (1, clock % 2**32, sent % 2**40, 10)))
        told.settle()
    hops = [ack["hops"][0] for ack in witness.acks]
    assert [y["ts_ns"] - x["ts_ns"] for x, y in itertools.pairwise(hops)] == [
        1000,
        10_000_000_000,
    ]
    assert [y["tx_bytes"] - x["tx_bytes"] for x, y in itertools.pairwise(hops)] == [2, 2]


def test_a_hop_of_another_path_may_have_sent_less_or_more(told: World) -> None:
    """A counter that is behind is no counter that went round."""
    a, b = settled(told)
    witness = Witness(a)
    target = b.host.memory(8)
    counters = (1 << 39) + 5, (1 << 39) - 10**6, 10**6, (1 << 40) - 7, (1 << 39) + 5
    for sent in counters:
        told.advance(1000)
        a.write(b"x", target)
        (packet,) = a.host.send_all()
        told.give(b.host, stamped(packet, (1, told.now % 2**32, sent, 10)))
        told.settle()
    seen = [ack["hops"][0]["tx_bytes"] for ack in witness.acks]
    assert seen[0] == counters[0]
    assert seen[1:3] == [counters[1], counters[2]]
    assert seen[3] == -7  # the nearest that ends with these bits
    assert [int(value) % 2**40 for value in seen] == list(counters)


def test_a_full_room_takes_no_more(told: World) -> None:
    a, b = settled(told)
    a.write(b"x", b.host.memory(8))
    (packet,) = a.host.send_all()
    full = stamped(packet, *[(i, i, i, i) for i in range(8)])
    data = in_c(full.data)
    assert testlib.X_dp_telemetry_stamp(data, len(full.data), ffi.new("uint64_t[4]")) == 0
    told.give(b.host, full)
    (ack,) = b.host.send_all()
    assert ack.xah()["n_hops"] == 8


@pytest.mark.parametrize("at", [12, 27, 31, 32 + ROOM, -5])
def test_the_icrc_covers_all_but_the_room(told: World, at: int) -> None:
    a, b = settled(told)
    target = b.host.memory(8)
    a.write(b"xxxx", target)
    (packet,) = a.host.send_all()
    data = bytearray(packet.data)
    for i in range(32, 32 + ROOM):
        data[i] ^= 0xFF
    data[at] ^= 0x01
    told.give(b.host, packet._replace(data=bytes(data)))
    assert bytes(target) == bytes(8)
    data[at] ^= 0x01
    assert told.give(b.host, packet._replace(data=bytes(data))) == 0
    assert bytes(target) == b"xxxx" + bytes(4)
    (ack,) = b.host.send_all()
    assert ack.xah()["n_hops"] == 0  # 255 records in a room for 8 are none


def test_an_echo_is_told_once_and_never_waits_behind_a_request(told: World) -> None:
    """What a request carries has no place for telemetry, so that an ACK goes by itself."""
    a, b = settled(told)
    target = b.host.memory(8)
    b.recv(8)
    a.send(b"x")
    (packet,) = a.host.send_all()
    told.give(b.host, stamped(packet, (1, 2, 3, 4)))
    b.write(b"y", a.host.memory(8))
    told.says(b, "EXT_WRITE_ONLY carries=no")
    told.expire(b)
    (ack,) = b.host.send_all()
    assert ack.xah()["n_hops"] == 1
    told.give(a.host, ack)
    told.settle()
    a.write(b"x", target)
    for packet in a.host.send_all():
        told.give(b.host, packet)
    (ack,) = b.host.send_all()
    assert ack.xah()["n_hops"] == 0


@pytest.mark.parametrize("limit", [0, MTU + 56])
def test_the_room_is_part_of_the_segment(make_world: MakeWorld, limit: int) -> None:
    """And where the path does not carry it, there is none.  Segments are whole 8 bytes."""
    world = make_world(extended=True, telemetry=1, path_mtu_max=MTU, segment_max=1408)
    a, b = world.pair()
    narrow = Channel(lose=lambda _, p: bool(limit) and len(p.data) > limit)
    assert world.run(narrow)
    data = pattern(20_000)
    target = b.host.memory(len(data))
    for _ in range(2):
        a.write(data, target)
        assert world.run(narrow)
    assert a.poll() == [ok("RDMA_WRITE")] * 2
    assert bytes(target) == data
    assert a.stats()["retransmits"] == 0
    assert lib.dp_qp_segment(a.qp) == (MTU if limit else 1408 - ROOM - 4)
    a.write(data[:8], target)
    (packet,) = a.host.send_all()
    assert packet.room == (0 if limit else ROOM)


def test_a_program_that_chose_a_smaller_mtu_has_telemetry_too(make_world: MakeWorld) -> None:
    world = make_world(extended=True, telemetry=1, path_mtu_max=4096, segment_max=8960)
    a, b = settled(world, mtu=MTU)
    a.write(pattern(2000), b.host.memory(2000))
    world.says(a, f"EXT_WRITE_FIRST len=1024 room={ROOM}", f"EXT_WRITE_LAST len=976 room={ROOM}")


def test_a_room_of_no_use_to_the_receiver_is_ignored(make_world: MakeWorld, told: World) -> None:
    a, _ = settled(told)
    other = make_world(extended=True)
    c, d = settled(other)
    a.write(b"x" * 8, (0, 0))
    (packet,) = a.host.send_all()
    body = bytearray(packet.data[:-4])
    memory = d.host.memory(8)
    body[5:8] = d.qpn.to_bytes(3, "big")
    body[32 + ROOM : 32 + ROOM + 16] = (
        memory.addr.to_bytes(8, "big") + memory.key.to_bytes(4, "big") + (8).to_bytes(4, "big")
    )
    sealed = forge.sealed(packet, bytes(body))
    other.advance(US)
    assert other.give(d.host, stamped(sealed, (1, 1, 1, 1))) == 0
    assert bytes(memory) == b"x" * 8
    other.settle()
    assert c.poll() == []
