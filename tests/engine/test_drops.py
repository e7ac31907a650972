# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packets that must change nothing: each is dropped and counted under one name."""

from __future__ import annotations

import pytest

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import ALL_ACCESS, QP, Memory, Options, Packet, World, ok, pattern

pytestmark = pytest.mark.san

DROPS = (
    "drop_malformed",
    "drop_icrc",
    "drop_unknown_qp",
    "drop_other_type",
    "drop_foreign_addr",
    "drop_bad_state",
    "drop_unknown_opcode",
)


def a_write(a: QP, b: QP) -> tuple[Packet, Memory]:
    memory = b.host.memory(bytes(64))
    return forge.packet(a, 0x0A, 100, forge.reth(memory, 8), b"xxxxxxxx"), memory


def expect_drop(world: World, b: QP, packet: Packet, counter: str, memory: Memory) -> None:
    assert world.give(b.host, packet) < 0
    counted = {name: n for name, n in b.host.stats().items() if name in DROPS and n}
    assert counted == {counter: 1}
    world.silent(b)
    assert bytes(memory) == bytes(64)


def resealed(packet: Packet, at: int, value: int) -> Packet:
    """One byte changed, the ICRC right again."""
    body = bytearray(packet.data[:-4])
    body[at] = value
    return forge.sealed(packet, bytes(body))


FOREIGN = bytes(10) + b"\xff\xff\x0a\x00\x00\x63"


@pytest.mark.parametrize("field", ["src", "dst"])
def test_foreign_addresses(world: World, field: str) -> None:
    a, b = world.pair()
    packet, memory = a_write(a, b)
    foreign = forge.sealed(packet._replace(**{field: FOREIGN}), packet.data[:-4])
    expect_drop(world, b, foreign, "drop_foreign_addr", memory)


def test_the_udp_source_port_may_change(world: World) -> None:
    a, b = world.pair()
    packet, memory = a_write(a, b)
    other = forge.sealed(packet._replace(sport=1234), packet.data[:-4])
    assert world.give(b.host, other) == 0
    assert bytes(memory)[:8] == b"x" * 8


def test_unknown_queue_pair(world: World) -> None:
    a, b = world.pair()
    packet, memory = a_write(a, b)
    low = resealed(packet, 7, packet.data[7] ^ 1)
    high = resealed(packet, 5, packet.data[5] ^ 1)
    expect_drop(world, b, low, "drop_unknown_qp", memory)
    assert world.give(b.host, high) < 0
    assert b.host.stats()["drop_unknown_qp"] == 2


@pytest.mark.parametrize(
    ("qpn", "counter"),
    [(0, "drop_unknown_qp"), (1, "drop_unknown_qp"), (0xFFFFFF, "drop_other_type")],
)
def test_reserved_queue_pair_numbers(world: World, qpn: int, counter: str) -> None:
    """The last one is that of multicast, which is for datagrams alone."""
    a, b = world.pair()
    packet, memory = a_write(a, b)
    body = packet.data[:5] + qpn.to_bytes(3, "big") + packet.data[8:-4]
    expect_drop(world, b, forge.sealed(packet, body), counter, memory)


def test_wrong_icrc(world: World) -> None:
    a, b = world.pair()
    packet, memory = a_write(a, b)
    expect_drop(world, b, packet.corrupted(8 * 30), "drop_icrc", memory)


@pytest.mark.parametrize("at", ["version", "odd-length", "truncated", "partition"])
def test_malformed(world: World, at: str) -> None:
    a, b = world.pair()
    packet, memory = a_write(a, b)
    if at == "truncated":
        bad = packet._replace(data=packet.data[:20])
    elif at == "partition":
        bad = resealed(packet, 2, 0x12)
    elif at == "odd-length":
        bad = forge.sealed(packet, packet.data[:-5])
    else:
        bad = resealed(packet, 1, packet.data[1] | 1)
    expect_drop(world, b, bad, "drop_malformed", memory)


@pytest.mark.parametrize("opcode", [0x15, 0x1F, 0x2A, 0x66, 0xD5, 0xFF])
def test_unknown_opcodes(world: World, opcode: int) -> None:
    a, b = world.pair()
    packet, memory = a_write(a, b)
    expect_drop(world, b, resealed(packet, 0, opcode), "drop_unknown_opcode", memory)


def test_extended_packets_mean_nothing_to_a_standard_peer(world: World) -> None:
    a, b = world.pair()
    memory = b.host.memory(bytes(64))
    offer = bytes.fromhex(f"03000800 00000000 {a.qpn:08x} 1000 0000 00000000")
    hello = forge.packet(a, 0xE0, 0, offer)
    expect_drop(world, b, hello, "drop_unknown_opcode", memory)
    write = forge.packet(a, 0xCA, 100, bytes(20) + forge.reth(memory, 8), b"xxxxxxxx")
    assert world.give(b.host, write) < 0
    assert bytes(memory) == bytes(64)
    assert not b.extended


@pytest.mark.parametrize("state", ["RESET", "INIT", "ERR"])
def test_states_that_take_no_packets(make_world: MakeWorld, state: str) -> None:
    world = make_world()
    a, peer = world.pair()
    b = QP(world.b_host, Options(access=ALL_ACCESS))
    if state != "RESET":
        assert b.to_init() == 0
    if state == "ERR":
        assert b.to(lib.DP_QPS_ERR) == 0
    a.peer = b
    packet, memory = a_write(a, b)
    expect_drop(world, b, packet, "drop_bad_state", memory)
    assert peer.state == "RTS"


def test_a_cnp_is_counted_and_nothing_else(world: World) -> None:
    a, b = world.pair()
    cnp = forge.packet(a, 0x81, 0, bytes(16), ack=False)
    world.give(b.host, cnp)
    assert b.stats()["cnp_rx"] == 1
    world.silent()
    assert b.state == "RTS"


@pytest.mark.parametrize("opcode", [0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12])
def test_responses_that_nobody_asked_for(world: World, opcode: int) -> None:
    a, b = world.pair()
    headers = b"" if opcode == 0x0E else forge.aeth(0x1F, 1)
    headers += bytes(8) if opcode == 0x12 else b""
    payload = bytes(1024) if opcode in (0x0D, 0x0E, 0x0F, 0x10) else b""
    for psn in (5000, 4999, 5001, 100, 0):
        world.give(b.host, forge.packet(a, opcode, psn, headers, payload))
    world.silent()
    assert b.state == "RTS"
    assert b.poll() == []


@pytest.mark.parametrize("opcode", [0x10, 0x12, 0x0E])
def test_a_response_of_the_wrong_kind_fails_the_request(world: World, opcode: int) -> None:
    """An answer of another length or kind than asked for: bad response, not memory damage."""
    a, b = world.pair()
    into = a.read(100, b.host.memory(pattern(100)))
    a.host.send_all()
    headers = b"" if opcode == 0x0E else forge.aeth(0x1F, 1)
    headers += bytes(8) if opcode == 0x12 else b""
    payload = b"y" * 1024 if opcode != 0x12 else b""
    world.give(a.host, forge.packet(b, opcode, 100, headers, payload))
    assert bytes(into) == bytes(100)
    assert into.guards_intact()
    completions = a.poll()
    assert [c.status for c in completions] in ([], ["BAD_RESP_ERR"])


def test_truncations_of_every_kind_of_packet_are_dropped(world: World) -> None:
    a, b = world.pair()
    memory = b.host.memory(64)
    b.recv(64)
    packets = [
        forge.packet(a, 0x04, 100, b"", b"payload."),
        forge.packet(a, 0x0B, 100, forge.reth(memory, 8) + bytes(4), b"payload."),
        forge.packet(a, 0x0C, 100, forge.reth(memory, 8)),
        forge.packet(a, 0x13, 100, forge.atomic_eth(memory.addr, memory.key)),
        forge.packet(a, 0x11, 5000, forge.aeth(0, 0)),
    ]
    for packet in packets:
        for length in range(len(packet.data)):
            assert world.give(b.host, packet._replace(data=packet.data[:length])) < 0
    world.silent()
    assert bytes(memory) == bytes(64)
    a.send(b"still here")
    world.settle()
    assert a.poll() == [ok("SEND")]
