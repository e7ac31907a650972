# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: packets longer than the IB path MTU, and the paths that do not carry them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import MS, QP, US, Channel, Host, Packet, World, failed, ok, pattern

pytestmark = pytest.mark.san

MTU = 1024
SEGMENT = 1408
HEADERS = 56  # of the longest packet: BTH, XDH, RETH, immediate, ICRC


@pytest.fixture
def long(make_world: MakeWorld) -> World:
    """Both ends take packets with 1408 bytes of payload."""
    return make_world(extended=True, path_mtu_max=MTU, segment_max=SEGMENT)


def segment(qp: QP) -> int:
    return int(lib.dp_qp_segment(qp.qp))


def settled(world: World) -> tuple[QP, QP]:
    """A pair whose offers and probes are answered."""
    a, b = world.pair()
    assert world.run()
    return a, b


def longer_than(limit: int, sender: str = "ab") -> Channel:
    """A path that loses what is longer."""
    return Channel(lose=lambda host, p: host.name in sender and len(p.data) > limit)


def test_a_probe_and_its_reply(long: World) -> None:
    a, b = long.pair()
    long.advance(US)
    for hello in a.host.send_all():
        long.give(b.host, hello)
    reply, hello, probe = b.host.send_all()
    assert (reply.name, hello.name, probe.name) == ("HELLO_REPLY", "HELLO", "PROBE")
    assert len(probe.data) == HEADERS + SEGMENT
    assert not any(probe.payload)
    long.give(b.host, reply._replace(src=b.host.addr))  # from the wrong side: dropped
    for packet in (probe, reply, hello):
        long.give(a.host, packet)
    said = {p.name: p for p in a.host.send_all()}
    assert len(said["PROBE_REPLY"].data) == len(probe.data)
    long.give(b.host, said["PROBE_REPLY"])
    long.settle()
    b.write(pattern(3000), a.host.memory(3000))
    long.says(b, "EXT_WRITE_FIRST 5000 len=1408", "EXT_WRITE_MIDDLE len=1408", "EXT_WRITE_LAST")


def test_messages_are_cut_into_longer_packets(long: World) -> None:
    a, b = settled(long)
    data = pattern(3000)
    target = b.host.memory(3000)
    a.write(data, target)
    a.send(b"end")
    into = b.recv(8)
    long.says(
        a,
        "EXT_WRITE_FIRST 100 len=1408",
        "EXT_WRITE_MIDDLE 101 len=1408",
        "EXT_WRITE_LAST 102 len=184 ack",
        "EXT_SEND_ONLY 103 len=3",
    )
    assert bytes(target) == data
    assert bytes(into)[:3] == b"end"
    content = a.read(3000, target)
    long.says(a, "EXT_READ_REQUEST 104")
    answers = b.host.send_all()
    assert [len(p.payload) for p in answers if p.name != "EXT_ACK"] == [1408, 1408, 184]
    for packet in answers:
        long.give(a.host, packet)
    assert a.poll() == [ok("RDMA_WRITE"), ok("SEND"), ok("RDMA_READ")]
    assert bytes(content) == data


@pytest.mark.parametrize(("own", "peer", "used"), [(1408, 1200, 1200), (1200, 1408, 1200),
                                                   (1408, 0, 1024), (0, 1408, 1024),
                                                   (1404, 1404, 1400)])  # fmt: skip
def test_the_smaller_of_both_ends(make_world: MakeWorld, own: int, peer: int, used: int) -> None:
    """In whole 8 bytes."""
    world = make_world(extended=True, path_mtu_max=MTU, segment_max=own)
    config: dict[str, Any] = {"extended": 1, "seed": 2, "path_mtu_max": MTU, "segment_max": peer}
    world.b_host = Host(world, "b", world.b_host.addr, **config)
    world.hosts = (world.a_host, world.b_host)
    a, b = settled(world)
    for x, y in ((a, b), (b, a)):
        x.write(pattern(5000), y.host.memory(5000))
        assert world.run()
        assert segment(x) == used


@pytest.mark.parametrize("sender", ["a", "b", "ab"])
def test_a_path_that_loses_long_packets_one_way_or_both(long: World, sender: str) -> None:
    """Neither end sends any: answers to READs go the other way than requests."""
    a, b = long.pair()
    data = pattern(50_000)
    target = b.host.memory(len(data))
    a.write(data, target)
    content = a.read(len(data), target)
    back = a.host.memory(len(data))
    b.write(data, back)
    assert long.run(longer_than(MTU + HEADERS, sender))
    assert a.poll() == [ok("RDMA_WRITE"), ok("RDMA_READ")]
    assert bytes(content) == bytes(back) == data
    for x, y in ((a, b), (b, a)):
        x.write(b"x", y.host.memory(8))
        assert long.run(longer_than(MTU + HEADERS, sender))
        assert x.extended
        assert segment(x) == MTU
        assert x.stats()["retransmits"] == 0


def test_a_program_that_chose_a_smaller_mtu_keeps_it(make_world: MakeWorld) -> None:
    world = make_world(extended=True, path_mtu_max=4096, segment_max=8960)
    a, b = world.extended_pair(mtu=MTU)
    a.write(pattern(2000), b.host.memory(2000))
    world.says(a, "EXT_WRITE_FIRST len=1024", "EXT_WRITE_LAST len=976")


@pytest.mark.parametrize("segment_max", [0, 4096, 8960])
@pytest.mark.parametrize("agreed", [False, True])
def test_a_packet_longer_than_the_peers_program_chose_is_refused(
    make_world: MakeWorld, segment_max: int, agreed: bool
) -> None:
    """In both modes alike: what becomes of it is not for the time of the first HELLO to say."""
    world = make_world(extended=True, path_mtu_max=4096, segment_max=segment_max)
    a, b = (world.extended_pair if agreed else world.pair)(mtu=4096, b_mtu=MTU)
    a.write(pattern(2000), b.host.memory(2000))
    assert world.run()
    assert a.poll() == [failed("REM_INV_REQ_ERR")]
    assert (a.state, b.state) == ("ERR", "ERR")


@pytest.mark.parametrize("rate_bps", [1e9, 10e9])
def test_requests_posted_before_are_numbered_anew(long: World, rate_bps: float) -> None:
    """The change comes in the middle of a message, with others waiting behind it."""
    a, b = long.pair()
    data = pattern(300_000)
    target, counter = b.host.memory(len(data)), b.host.memory(8)
    into = [b.recv(5000, wr_id=i) for i in range(3)]
    a.write(data, target)
    a.send(data[:5000])
    a.faa(counter, 1)
    a.write(data[:700], target, imm=7)
    content = a.read(len(data) - 700, (target.addr + 700, target.key))
    a.send(data[:3000])
    seen: list[tuple[str, int]] = []

    def watch(host: Host, packet: Packet) -> bool:
        if host.name == "a":
            seen.append((packet.name, len(packet.payload)))
        return False

    assert long.run(Channel(rate_bps=rate_bps, lose=watch))
    assert [c.status for c in a.poll()] == ["SUCCESS"] * 6
    assert ("WRITE_MIDDLE", MTU) in seen
    assert ("EXT_WRITE_MIDDLE", SEGMENT) in seen
    assert bytes(target) == data
    assert bytes(content) == data[700:]
    assert bytes(into[0]) == data[:5000]
    assert bytes(into[2])[:3000] == data[:3000]
    assert bytes(counter)[0] == 1
    assert [c.opcode for c in b.poll_recv()] == ["RECV", "RECV_RDMA_WITH_IMM", "RECV"]
    assert a.stats()["retransmits"] == 0


def test_a_change_while_the_extended_mode_is_in_use(long: World) -> None:
    """The replies to A's probes come when A has given them up and sends extended packets."""
    a, b = long.pair()
    data = pattern(200_000)
    target = b.host.memory(len(data))
    seen: list[int] = []
    late: list[Packet] = []

    def lose(host: Host, packet: Packet) -> bool:
        if packet.name == "EXT_WRITE_MIDDLE":
            seen.append(len(packet.payload))
        if packet.name == "PROBE_REPLY" and host is b.host and not late:
            late.append(packet)
        return packet.name == "PROBE_REPLY" and host is b.host

    long.run(Channel(lose=lose), limit_ns=50 * MS)
    assert a.extended
    assert segment(a) == MTU
    a.write(data, target)
    assert long.run(Channel(lose=lose, rate_bps=10e9), until=lambda: bool(seen))
    long.give(a.host, late[0])
    a.write(data, target)
    assert long.run(Channel(lose=lose, rate_bps=10e9))
    assert a.poll() == [ok("RDMA_WRITE")] * 2
    assert {MTU, SEGMENT} <= set(seen)
    assert bytes(target) == data


@pytest.mark.parametrize("size", [0, 255, 1406, 1412, 2**31])
def test_a_read_in_pieces_of_a_strange_size_is_dropped(long: World, size: int) -> None:
    a, b = settled(long)
    memory = b.host.memory(8000)
    xdh = struct.pack("!5I", 0, size, 0, 0, 0)
    request = forge.packet(a, 0xCC, 100, xdh + forge.reth(memory, 8000))
    long.give(b.host, request)
    long.silent(b)


@pytest.mark.parametrize("size", [0, 36, 40, 43, 2000])
def test_probes_that_make_no_sense_are_ignored(long: World, size: int) -> None:
    a, b = settled(long)
    long.give(b.host, forge.packet(a, 0xE2, 0, b"", bytes(size)))
    long.give(b.host, forge.packet(a, 0xE3, 0, b"", bytes(size)))
    long.silent(b)
    assert segment(b) == SEGMENT
