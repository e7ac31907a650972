# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packets whose payload a switch has cut off: told at once, sent again at once."""

from __future__ import annotations

import pytest

from datapath.native import ffi, lib
from tests.engine.algorithms import Witness
from tests.engine.conftest import MakeWorld
from tests.engine.ladder import US, Packet, World, ok, pattern

pytestmark = pytest.mark.san

MTU = 1024
DSCP = 43


def trimmed(packet: Packet, left: int = 0) -> Packet:
    """Its headers, with `left` bytes of the payload."""
    data = packet.data[: packet.header_len + left]
    return packet._replace(data=data, tos=DSCP << 2 | packet.tos & 3)


def test_the_sender_repeats_a_trimmed_packet_at_once(ext: World) -> None:
    a, b = ext.extended_pair()
    witness = Witness(a)
    data = pattern(4 * MTU)
    target = b.host.memory(len(data))
    a.write(data, target)
    packets = a.host.send_all()
    ext.advance(10 * US)
    for packet in packets:
        ext.give(b.host, trimmed(packet) if packet.psn == 101 else packet)
    assert b.stats()["trimmed"] == 1
    (ack,) = b.host.send_all()
    assert (ack.name, ack.psn, ack.sacked()) == ("EXT_ACK", 100, {102, 103})
    assert ack.listed("trimmed") == [101]
    ext.give(a.host, ack)
    ext.says(a, "EXT_WRITE_MIDDLE 101 ack")
    assert bytes(target) == data
    ext.settle()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert [(loss["lost_bytes"], loss["trimmed"]) for loss in witness.losses] == [(MTU, 1)]


def test_an_only_packet_needs_no_timer(ext: World) -> None:
    a, b = ext.extended_pair()
    into = b.recv(8)
    a.send(b"word")
    (packet,) = a.host.send_all()
    ext.advance(10 * US)
    ext.give(b.host, trimmed(packet))
    assert ext.run()
    assert bytes(into)[:4] == b"word"
    assert a.poll() == [ok("SEND")]
    assert a.stats()["probes"] == a.stats()["timeouts"] == 0
    assert len(b.poll_recv()) == 1


def test_a_report_of_a_copy_that_has_only_just_left_is_of_another(ext: World) -> None:
    """However many forged ones come, they cost one packet in an eighth of an RTT."""
    a, b = ext.extended_pair()
    target = b.host.memory(8)
    a.write(b"warm", target)
    (packet,) = a.host.send_all()
    ext.advance(20 * US)
    ext.give(b.host, packet)
    ext.settle()  # the RTT is 20 us
    a.write(b"data", target)
    (packet,) = a.host.send_all()
    ext.advance(20 * US)
    for _ in range(5):
        ext.give(b.host, trimmed(packet))
        (ack,) = b.host.send_all()
        assert ack.listed("trimmed") == [packet.psn]
        ext.give(a.host, ack)
    (again,) = a.host.send_all()
    assert again.psn == packet.psn
    assert bytes(target)[:4] == b"warm"
    ext.give(b.host, again)
    ext.settle()
    assert a.poll() == [ok("RDMA_WRITE")] * 2
    assert a.stats()["retransmits"] == 1


@pytest.mark.parametrize("psn", [99, 98, 102, 100 + (1 << 17), 5_000_000])
def test_reports_of_what_is_not_missing_are_ignored(ext: World, psn: int) -> None:
    """Before the window, behind it, or received already."""
    a, b = ext.extended_pair()
    a.write(pattern(4 * MTU), b.host.memory(4 * MTU))
    packets = a.host.send_all()
    ext.give(b.host, packets[2])
    b.host.send_all()
    body = bytearray(trimmed(packets[1]).data)
    body[9:12] = (psn & 0xFFFFFF).to_bytes(3, "big")
    ext.give(b.host, trimmed(packets[1])._replace(data=bytes(body)))
    ext.silent(b)


@pytest.mark.parametrize("left", [0, 1, 4, 100])
def test_what_is_left_of_the_payload_is_not_placed(ext: World, left: int) -> None:
    a, b = ext.extended_pair()
    target = b.host.memory(MTU)
    a.write(b"\xff" * MTU, target)
    (packet,) = a.host.send_all()
    ext.give(b.host, trimmed(packet, left))
    assert bytes(target) == bytes(MTU)
    assert b.stats()["rx_bytes"] == 0


def test_a_trimmed_answer_to_a_read_is_asked_for_again(ext: World) -> None:
    a, b = ext.extended_pair()
    data = pattern(4 * MTU)
    source = b.host.memory(data)
    content = a.read(len(data), source)
    (request,) = a.host.send_all()
    ext.give(b.host, request)
    answers = [p for p in b.host.send_all() if p.name.startswith("EXT_READ")]
    ext.advance(10 * US)
    for packet in answers:
        ext.give(a.host, trimmed(packet) if packet.psn == 102 else packet)
    (again,) = ext.says(a, "EXT_READ_REQUEST 102")
    assert again.xdh()["offset"] == 2 * MTU
    ext.settle()
    assert a.poll() == [ok("RDMA_READ")]
    assert bytes(content) == data


def test_more_than_an_acknowledgement_can_list(ext: World) -> None:
    """The others are found missing as any loss is."""
    a, b = ext.extended_pair()
    data = pattern(50 * MTU)
    target = b.host.memory(len(data))
    a.write(data, target)
    packets = a.host.send_all()
    ext.advance(10 * US)
    for packet in packets[:-1]:
        ext.give(b.host, trimmed(packet))
    ext.give(b.host, packets[-1])
    (ack,) = b.host.send_all()
    assert ack.listed("trimmed") == [p.psn for p in packets[:32]]
    ext.give(a.host, ack)
    assert ext.run()
    assert a.poll() == [ok("RDMA_WRITE")]
    assert bytes(target) == data


def test_standard_packets_are_never_trimmed(world: World) -> None:
    a, b = world.pair()
    target = b.host.memory(MTU)
    a.write(b"\xff" * MTU, target)
    (packet,) = a.host.send_all()
    assert world.give(b.host, trimmed(packet)) < 0
    world.silent(b)
    assert bytes(target) == bytes(MTU)


def with_dscp(packet: Packet) -> Packet:
    return packet._replace(tos=DSCP << 2 | packet.tos & 3)


def test_a_standard_peer_may_choose_the_dscp_of_trimmed_packets(world: World) -> None:
    """Requests, acknowledgements and answers of READs, with their ICRCs."""
    a, b = world.pair()
    data = pattern(2 * MTU)
    target = b.host.memory(len(data))
    a.write(data, target)
    content = a.read(len(data), target)
    for packet in a.host.send_all():
        assert world.give(b.host, with_dscp(packet)) == 0
    for packet in b.host.send_all():
        assert world.give(a.host, with_dscp(packet)) == 0
    assert bytes(target) == bytes(content) == data
    assert a.poll() == [ok("RDMA_WRITE"), ok("RDMA_READ")]
    a.write(bytes(MTU), target)
    (packet,) = a.host.send_all()
    damaged = packet.data[:-5] + bytes([packet.data[-5] ^ 1]) + packet.data[-4:]
    assert world.give(b.host, with_dscp(packet._replace(data=damaged))) < 0
    assert bytes(target) == data


def test_extended_packets_without_payload_may_have_that_dscp(ext: World) -> None:
    a, b = ext.extended_pair()
    source = b.host.memory(pattern(MTU))
    content = a.read(MTU, source)
    (request,) = a.host.send_all()
    assert ext.give(b.host, with_dscp(request)) == 0
    assert ext.run()
    assert bytes(content) == pattern(MTU)


@pytest.mark.parametrize("extended", [0, 1])
def test_a_peer_that_has_not_agreed_hears_nothing(make_world: MakeWorld, extended: int) -> None:
    ext = make_world(extended=True)
    a, b = ext.extended_pair()
    a.write(pattern(MTU), b.host.memory(MTU))
    (packet,) = a.host.send_all()
    other = make_world(extended=extended)
    _, d = other.pair()
    data = bytearray(trimmed(packet).data)
    data[5:8] = d.qpn.to_bytes(3, "big")
    assert other.give(d.host, trimmed(packet)._replace(data=bytes(data))) < 0
    assert not d.extended


def test_the_mark_of_trimmed_packets_is_nobodys_own() -> None:
    config = {"path_mtu_max": MTU, "tos": DSCP << 2}
    settings = ffi.new("struct dp_engine_config *", config)
    assert lib.dp_engine_create(settings, ffi.new("struct dp_engine **")) < 0
