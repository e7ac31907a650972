# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datagrams that nobody should have sent: no byte is written, and the QP goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.native import lib
from tests.engine import forge
from tests.engine.conftest import MakeWorld
from tests.engine.datagram import GRH_LEN, QKEY, DatagramQP, datagram_pair, deth, forged
from tests.engine.ladder import Packet, World, failed, ok, pattern

pytestmark = pytest.mark.san


OF_CONNECTIONS = [
    opcode
    for opcode in range(256)
    if lib.dp_opcodes[opcode].hdr_len and not lib.dp_opcodes[opcode].mask & lib.DP_HAS_DETH
]


def untouched(world: World, b: DatagramQP, packet: Packet, counter: str | None = None) -> None:
    """The packet does nothing but to be counted, and the next good one finds the receive."""
    memory = b.recv(100, wr_id=1)
    before = b.host.stats()
    assert world.give(b.host, packet) < 0
    after = b.host.stats()
    assert bytes(memory) == bytes(100)
    assert b.poll_recv() == []
    assert b.state == "RTS"
    world.silent(b)
    if counter:
        assert after[counter] == before[counter] + 1
    assert world.give(b.host, forged(b, b, b"good")) == 0
    assert b.poll_recv() == [ok("RECV", wr_id=1, byte_len=GRH_LEN + 4)]


@pytest.mark.parametrize("qkey", [0, QKEY ^ 1, QKEY | 0x80000000, 0xFFFFFFFF])
def test_a_wrong_q_key(world: World, qkey: int) -> None:
    a, b = datagram_pair(world)
    untouched(world, b, forged(a, b, b"attacker", headers=deth(qkey)), "drop_qkey")


def test_no_receive(world: World) -> None:
    """It is dropped, and does not wait for the next receive."""
    a, b = datagram_pair(world)
    assert world.give(b.host, forged(a, b, b"early")) < 0
    memory = b.recv(100)
    assert b.poll_recv() == []
    assert bytes(memory) == bytes(100)
    assert b.host.stats()["drop_no_receive"] == 1


@pytest.mark.parametrize("length", [61, 62, 1000, 4096])
def test_longer_than_the_receive(world: World, length: int) -> None:
    """The receive stays for the next one: a peer cannot stop the QP."""
    a, b = datagram_pair(world)
    untouched(world, b, forged(a, b, pattern(length)), "drop_too_long")


def test_a_receive_without_room_for_the_header(world: World) -> None:
    a, b = datagram_pair(world)
    memory = b.recv(GRH_LEN - 1)
    assert world.give(b.host, forged(a, b)) < 0
    assert bytes(memory) == bytes(GRH_LEN - 1)
    assert b.poll_recv() == []


@pytest.mark.parametrize("opcode", OF_CONNECTIONS)
def test_packets_of_connections(ext: World, opcode: int) -> None:
    """None of them is for a datagram QP, whatever follows the BTH."""
    a, b = datagram_pair(ext)
    info = lib.dp_opcodes[opcode]
    payload = b"1234" if info.mask & lib.DP_HAS_PAYLOAD else b""
    headers = bytes(info.hdr_len - 12)
    untouched(ext, b, forged(a, b, payload, opcode=opcode, headers=headers), "drop_other_type")


@pytest.mark.parametrize("opcode", [0x64, 0x65])
@pytest.mark.parametrize("extended", [False, True])
def test_datagrams_to_a_connection(make_world: MakeWorld, opcode: int, extended: bool) -> None:
    world = make_world(extended=extended)
    a, b = world.extended_pair() if extended else world.pair()
    memory = b.recv(100)
    headers = deth() + bytes(4 if opcode == 0x65 else 0)
    packet = forged(a, b, b"attacker", opcode=opcode, headers=headers, psn=100)
    assert world.give(b.host, packet) < 0
    assert b.host.stats()["drop_other_type"] == 1
    assert bytes(memory) == bytes(100)
    a.send(b"good")
    world.settle()
    assert b.poll_recv() == [ok("RECV", byte_len=4)]


def test_truncated_anywhere(world: World) -> None:
    a, b = datagram_pair(world)
    packet = forged(a, b, b"12345678", opcode=0x65, headers=deth() + bytes(4))
    for length in range(len(packet.data)):
        memory = b.recv(100)
        assert world.give(b.host, packet._replace(data=packet.data[:length])) < 0
        assert bytes(memory) == bytes(100)
    assert b.poll_recv() == []


def test_every_flipped_bit_is_seen(world: World) -> None:
    """But those of the BTH that the ICRC leaves out."""
    a, b = datagram_pair(world)
    packet = forged(a, b, b"1234")
    memory = b.recv(100)
    for bit in range(8 * len(packet.data)):
        if bit // 8 != 4:
            assert world.give(b.host, packet.corrupted(bit)) < 0, bit
    assert bytes(memory) == bytes(100)
    assert b.poll_recv() == []


def test_a_receive_into_memory_that_is_gone(world: World) -> None:
    """That is a mistake of the program, told in its completion."""
    a, b = datagram_pair(world)
    memory = b.recv(100, wr_id=1)
    b.recv(100, wr_id=2)
    assert memory.deregister() == 0
    a.send_to(b, b"1")
    world.says(a, "UD_SEND_ONLY 100")
    assert b.poll_recv() == [failed("LOC_PROT_ERR", wr_id=1), failed("WR_FLUSH_ERR", wr_id=2)]
    assert b.state == "ERR"
    assert b.host.events() == ["QP_FAILED"]
    assert bytes(memory) == bytes(100)


@given(
    opcode=st.integers(0, 255),
    headers=st.binary(max_size=60),
    payload=st.binary(max_size=80),
    right_key=st.booleans(),
    posted=st.booleans(),
    to_peer=st.booleans(),
)
def test_no_byte_without_key_and_receive(
    opcode: int, headers: bytes, payload: bytes, right_key: bool, posted: bool, to_peer: bool
) -> None:
    with World() as world:
        a, b = datagram_pair(world)
        connected, _ = world.pair(a_psn=0, b_psn=0)
        memory = b.recv(100) if posted else b.host.memory(100)
        start = deth() if right_key else b""
        like = Packet(b"", a.host.addr, b.host.addr, 0xC000, 0)
        body = forge.bth(opcode, (b if to_peer else connected).qpn, 0) + start + headers + payload
        world.give(b.host, forge.sealed(like, body + bytes(-len(body) % 4)))
        legal = opcode in (0x64, 0x65) and posted and to_peer
        keyed = right_key or headers[:4] == deth()[:4]
        if not (legal and keyed):
            assert bytes(memory) == bytes(100)
            assert b.poll_recv() == []
        assert b.state == "RTS"
