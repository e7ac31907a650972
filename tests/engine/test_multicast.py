# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Multicast groups (IBTA vol. 1, sections 9.8.3.3 and 10.5): who gets a packet, and who not."""

from __future__ import annotations

import ipaddress

import pytest

from datapath.native import ffi, lib
from tests.engine import forge
from tests.engine.datagram import GRH_LEN, QKEY, DatagramQP, datagram_pair, deth, ip_header
from tests.engine.ladder import QP, Packet, World, ok

pytestmark = pytest.mark.san

MULTICAST_QPN = 0xFFFFFF


def address(text: str) -> bytes:
    ip = ipaddress.ip_address(text)
    return ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed


GROUP, OTHER = address("239.1.2.3"), address("239.1.2.4")


def c_address(where: bytes) -> object:
    to = ffi.new("struct dp_addr *")
    to.b = where
    return to


def attach(qp: QP, group: bytes = GROUP) -> int:
    return int(lib.dp_multicast_attach(qp.qp, c_address(group)))


def detach(qp: QP, group: bytes = GROUP) -> int:
    return int(lib.dp_multicast_detach(qp.qp, c_address(group)))


def to_group(
    sender: QP,
    payload: bytes = b"",
    *,
    group: bytes = GROUP,
    opcode: int = 0x64,
    headers: bytes | None = None,
) -> Packet:
    """A packet to the multicast QPN that `sender` could have sent."""
    start = deth(QKEY, sender.qpn) if headers is None else headers
    body = forge.bth(opcode, MULTICAST_QPN, 0, pad=-len(payload) % 4) + start
    like = Packet(b"", sender.host.addr, group, 0xC000, 0)
    return forge.sealed(like, body + payload + bytes(-len(payload) % 4))


def test_every_member_gets_a_copy(world: World) -> None:
    a, b = datagram_pair(world)
    members = [b, DatagramQP(b.host), DatagramQP(b.host)]
    stranger = DatagramQP(b.host)
    memories = [qp.recv(100) for qp in members]
    stranger.recv(100)
    for qp in members:
        assert attach(qp) == 0
    assert world.give(b.host, to_group(a, b"hello")) == 0
    for qp, memory in zip(members, memories, strict=True):
        assert qp.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 5)]
        assert bytes(memory)[GRH_LEN:][:6] == b"hello\0"
        assert ip_header(memory)[16:20] == GROUP[12:]
    assert stranger.poll_recv() == []


def test_the_sender_gets_none(world: World) -> None:
    a, _ = datagram_pair(world)
    same_host = DatagramQP(a.host)
    for qp in (a, same_host):
        qp.recv(100)
        attach(qp)
    assert world.give(a.host, to_group(a, b"1")) == 0
    assert a.poll_recv() == []
    assert same_host.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 1)]


def test_a_namesake_on_another_host_is_not_the_sender(world: World) -> None:
    a, b = datagram_pair(world)
    attach(b)
    b.recv(100)
    assert world.give(b.host, to_group(a, b"1", headers=deth(QKEY, b.qpn))) == 0
    assert b.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 1)]


def test_groups_are_apart_and_can_be_left(world: World) -> None:
    a, b = datagram_pair(world)
    b.recv(100)
    assert attach(b, OTHER) == 0
    assert world.give(b.host, to_group(a)) < 0
    assert attach(b) == 0
    assert attach(b) == -17  # EEXIST
    assert detach(b, OTHER) == 0
    assert detach(b, OTHER) == -22  # EINVAL
    assert world.give(b.host, to_group(a, group=OTHER)) < 0
    assert b.host.stats()["drop_no_member"] == 2
    assert b.poll_recv() == []
    assert world.give(b.host, to_group(a)) == 0
    assert b.poll_recv() == [ok("RECV", byte_len=GRH_LEN)]


def test_what_is_destroyed_is_in_no_group(world: World) -> None:
    a, b = datagram_pair(world)
    gone = DatagramQP(b.host)
    attach(gone)
    attach(gone, OTHER)
    gone.destroy()
    assert world.give(b.host, to_group(a)) < 0
    assert b.host.stats()["drop_no_member"] == 1


def test_one_member_that_cannot_take_it_keeps_it_from_no_other(world: World) -> None:
    """One has another Q_Key, one no receive, one is in error."""
    a, b = datagram_pair(world)
    for qp in (DatagramQP(b.host, qkey=5), DatagramQP(b.host), DatagramQP(b.host), b):
        attach(qp)
        if qp.qkey == 5 or qp is b:
            qp.recv(100)
    assert world.give(b.host, to_group(a, b"all")) == 0
    assert b.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 3)]
    assert b.host.stats()["drop_qkey"] == 1
    assert b.host.stats()["drop_no_receive"] == 2


@pytest.mark.parametrize("where", ["10.0.0.1", "223.255.255.255", "240.0.0.1", "fe80::1"])
def test_only_groups_can_be_joined(world: World, where: str) -> None:
    _, b = datagram_pair(world)
    assert attach(b, address(where)) == -22


def test_a_connection_is_in_no_group(world: World) -> None:
    a, _ = world.pair()
    assert attach(a) == -22


# ---- packets that nobody should have sent ------------------------------------------------


def hostile(world: World, packet: Packet, b: DatagramQP, counter: str) -> None:
    memory = b.recv(100)
    before = b.host.stats()
    assert world.give(b.host, packet) < 0
    assert b.host.stats()[counter] == before[counter] + 1
    assert bytes(memory) == bytes(100)
    assert b.poll_recv() == []


def test_a_wrong_q_key(world: World) -> None:
    a, b = datagram_pair(world)
    attach(b)
    hostile(world, to_group(a, b"x", headers=deth(QKEY ^ 1, a.qpn)), b, "drop_qkey")


def test_the_multicast_number_at_the_address_of_a_host(world: World) -> None:
    a, b = datagram_pair(world)
    attach(b)
    hostile(world, to_group(a, b"x", group=b.host.addr), b, "drop_foreign_addr")


def test_the_number_of_a_queue_pair_at_the_address_of_a_group(world: World) -> None:
    a, b = datagram_pair(world)
    attach(b)
    body = forge.bth(0x64, b.qpn, 0) + deth(QKEY, a.qpn)
    like = Packet(b"", a.host.addr, GROUP, 0xC000, 0)
    hostile(world, forge.sealed(like, body), b, "drop_foreign_addr")


@pytest.mark.parametrize("bit", [8 * 12 + 5, 8 * 24])
def test_a_broken_packet(world: World, bit: int) -> None:
    a, b = datagram_pair(world)
    attach(b)
    hostile(world, to_group(a, b"1234").corrupted(bit), b, "drop_icrc")


@pytest.mark.parametrize(
    "opcode",
    [
        opcode
        for opcode in range(256)
        if lib.dp_opcodes[opcode].hdr_len and not lib.dp_opcodes[opcode].mask & lib.DP_HAS_DETH
    ],
)
def test_packets_of_connections(ext: World, opcode: int) -> None:
    a, b = datagram_pair(ext)
    connected, _ = ext.pair()
    memory = connected.recv(100)
    attach(b)
    info = lib.dp_opcodes[opcode]
    payload = b"1234" if info.mask & lib.DP_HAS_PAYLOAD else b""
    packet = to_group(a, payload, opcode=opcode, headers=bytes(info.hdr_len - 12))
    hostile(ext, packet, b, "drop_other_type")
    assert bytes(memory) == bytes(100)
