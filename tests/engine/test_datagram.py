# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Unreliable datagrams (IBTA vol. 1, section 9.8.3) as ladders."""

from __future__ import annotations

import ipaddress
import itertools
import struct
from typing import Any

import pytest

from datapath.native import ffi, lib
from tests.clib import testffi, testlib
from tests.engine.conftest import MakeWorld
from tests.engine.datagram import (
    GRH_LEN,
    QKEY,
    RESET_TO_INIT,
    UD_OPTIONS,
    DatagramQP,
    datagram_pair,
    ip_header,
    make_ah,
)
from tests.engine.ladder import QP, World, failed, ok, pattern

pytestmark = pytest.mark.san


def last_wc(qp: QP) -> Any:
    wc = ffi.new("struct dp_wc *")
    assert lib.dp_cq_poll(qp.recv_cq, 1, wc) == 1
    return wc


def test_a_datagram_is_one_packet_that_nobody_answers(world: World) -> None:
    a, b = datagram_pair(world)
    memory = b.recv(100)
    a.send_to(b, b"hello")
    world.says(a, "UD_SEND_ONLY 100 len=5")
    assert a.poll() == [ok("SEND")]
    wc = last_wc(b)
    assert (wc.opcode, wc.byte_len, wc.src_qpn) == (lib.DP_WC_RECV, GRH_LEN + 5, a.qpn)
    assert wc.flags == lib.DP_WC_GRH
    assert bytes(memory)[GRH_LEN:][:6] == b"hello\0"
    world.silent(a, b)
    assert a.host.deadline == b.host.deadline == lib.DP_NEVER


def test_immediate_and_solicited(world: World) -> None:
    a, b = datagram_pair(world)
    b.recv(100)
    lib.dp_cq_arm(b.recv_cq, True)
    a.send_to(b, b"abc", imm=0x01020304, solicited=True)
    world.says(a, "UD_SEND_ONLY_IMM 100 se len=3")
    assert b.host.events() == ["CQ"]
    assert b.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 3, imm=0x01020304)]


def test_the_packet_byte_by_byte(world: World) -> None:
    """BTH, then DETH: Q_Key, 8 reserved bits, source QPN (9.2.4)."""
    a, b = datagram_pair(world)
    a.send_to(b, b"xyz", qkey=0x0A0B0C0D)
    (packet,) = a.host.send_all()
    bth = struct.pack("!BBHII", 0x64, 0x50, 0xFFFF, b.qpn, 100)
    assert packet.data[:-4] == bth + struct.pack("!II", 0x0A0B0C0D, a.qpn) + b"xyz\0"


def test_the_address_handle_says_the_dscp(world: World) -> None:
    a, b = datagram_pair(world)
    a.ahs[b.host.addr] = make_ah(a.host, b.host.addr, tos=0x68)
    a.send_to(b, b"xyz")
    (packet,) = a.host.send_all()
    assert packet.tos & ~lib.DP_ECN_MASK == 0x68
    for wrong in (lib.DP_DSCP_TRIMMED << 2, lib.DP_ECN_CE):
        with pytest.raises(AssertionError, match="errno 22"):
            make_ah(a.host, b.host.addr, tos=wrong)


def test_ipv4_header_in_the_receive_buffer(world: World) -> None:
    a, b = datagram_pair(world)
    memory = b.recv(200)
    a.send_to(b, pattern(33))
    (packet,) = a.host.send_all()
    world.give(b.host, packet._replace(tos=0x2A))
    assert bytes(memory)[:20] == bytes(20)
    header = ip_header(memory)
    version, tos, total, _, fragment, _, protocol, _ = struct.unpack("!BBHHHBBH", header[:12])
    assert (version, tos, total) == (0x45, 0x2A, 20 + 8 + len(packet.data))
    assert (fragment, protocol) == (0x4000, 17)
    assert header[12:] == a.host.addr[12:] + b.host.addr[12:]
    words = sum(struct.unpack("!10H", header))
    assert words % 0xFFFF == 0  # RFC 1071


def test_ipv6_header_in_the_receive_buffer(make_world: MakeWorld) -> None:
    world = make_world(v6=True)
    a, b = datagram_pair(world)
    memory = b.recv(200)
    a.send_to(b, pattern(8))
    (packet,) = a.host.send_all()
    world.give(b.host, packet._replace(tos=0xA2))
    header = ip_header(memory)
    first, carried, following = struct.unpack("!IHB", header[:7])
    assert (first, carried, following) == (0x6A200000, 8 + len(packet.data), 17)
    assert ipaddress.ip_address(header[8:24]).packed == a.host.addr
    assert header[24:] == b.host.addr


@pytest.mark.parametrize("length", [0, 1, 4095, 4096])
def test_up_to_the_path_mtu(world: World, length: int) -> None:
    a, b = datagram_pair(world)
    data = pattern(length)
    memory = b.recv(GRH_LEN + length)
    a.send_to(b, data)
    world.says(a, f"UD_SEND_ONLY 100 len={length}")
    assert b.poll_recv() == [ok("RECV", byte_len=GRH_LEN + length)]
    assert bytes(memory)[GRH_LEN:] == data


def test_what_is_longer_is_not_sent_and_no_error(make_world: MakeWorld) -> None:
    """C10-93.1.1; the PSN of the next packet does not tell either."""
    world = make_world(path_mtu_max=1024)
    a, b = datagram_pair(world)
    b.recv(2000)
    a.send_to(b, pattern(1025), wr_id=1)
    a.send_to(b, b"next", wr_id=2)
    world.says(a, "UD_SEND_ONLY 100 len=4")
    assert a.poll() == [ok("SEND", wr_id=1), ok("SEND", wr_id=2)]
    assert a.host.stats()["tx_too_long"] == 1
    assert a.stats()["tx_packets"] == 1


def test_one_queue_pair_sends_to_many_and_hears_many(world: World) -> None:
    """Each QP of a host sends to each of the other, and to its own host."""
    every = [DatagramQP(host) for host in world.hosts for _ in range(3)]
    for receiver in every:
        for sender in every:
            receiver.recv(60, wr_id=sender.qpn)
    for sender in every:
        for receiver in every:
            sender.send_to(receiver, struct.pack("!I", sender.qpn))
    for host in world.hosts:
        for packet in host.send_all():
            (to,) = (h for h in world.hosts if h.addr == packet.dst)
            world.give(to, packet)
    for receiver in every:
        out = ffi.new("struct dp_wc[10]")
        assert lib.dp_cq_poll(receiver.recv_cq, 10, out) == len(every)
        assert {out[i].src_qpn for i in range(6)} == {sender.qpn for sender in every}


def test_inline_and_scattered(world: World) -> None:
    """The IP header and the payload may lie in pieces, wherever they are cut."""
    a, b = datagram_pair(world)
    parts = [b.host.memory(n) for n in (10, 35, 1, 0, 20)]
    assert b.post_recv([part.sge() for part in parts]) == 0
    a.send_to(b, pattern(20), inline=True)
    world.says(a, "UD_SEND_ONLY 100 len=20")
    whole = b"".join(map(bytes, parts))
    assert whole[GRH_LEN:][:20] == pattern(20)
    assert whole[20] == 0x45


def test_own_q_key_by_the_highest_bit(world: World) -> None:
    """10.2.5: such a Q_Key in a request stands for that of the QP."""
    a, b = datagram_pair(world)
    b.recv(100)
    a.send_to(b, b"1", qkey=0x80000000)
    world.says(a, "UD_SEND_ONLY 100")
    assert b.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 1)]


def test_the_q_key_can_be_changed_while_it_runs(world: World) -> None:
    a, b = datagram_pair(world)
    b.recv(100)
    assert b.modify(lib.DP_QP_QKEY, qkey=5) == 0
    assert b.attr.qkey == 5
    a.send_to(b, b"old")
    a.send_to(b, b"new", qkey=5)
    world.says(a, "UD_SEND_ONLY 100", "UD_SEND_ONLY 101")
    assert b.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 3)]
    assert b.host.stats()["drop_qkey"] == 1


# ---- requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opcode", ["RDMA_WRITE", "RDMA_READ", "SEND_WITH_INV", "ATOMIC_FETCH_AND_ADD"]
)
def test_only_sends_can_be_posted(world: World, opcode: str) -> None:
    a, b = datagram_pair(world)
    source = a.host.memory(8)
    to = (a.ah(b.host), b.qpn, QKEY)
    assert a.post_send(getattr(lib, f"DP_WR_{opcode}"), [source.sge()], to=to) < 0


def test_a_send_needs_an_address_handle_of_its_domain(world: World) -> None:
    a, b = datagram_pair(world)
    other = make_ah(a.host, b.host.addr, pd=a.host.make_pd())
    for ah in (ffi.NULL, other):
        assert a.post_send(lib.DP_WR_SEND, [], to=(ah, b.qpn, QKEY)) < 0
    assert lib.dp_ah_destroy(other) == 0


def test_an_address_handle_stays_while_a_request_uses_it(world: World) -> None:
    a, b = datagram_pair(world)
    ah = make_ah(a.host, b.host.addr)
    for reason in ("sent", "reset", "error"):
        a.send(b"1", to=(ah, b.qpn, QKEY))
        assert lib.dp_ah_destroy(ah) < 0
        if reason == "sent":
            a.host.send_all()
        else:
            a.to(lib.DP_QPS_RESET if reason == "reset" else lib.DP_QPS_ERR)
        assert lib.dp_ah_destroy(ah) == 0
        ah = make_ah(a.host, b.host.addr)
        if reason == "reset":
            a.modify(RESET_TO_INIT, state=lib.DP_QPS_INIT, qkey=QKEY)
            a.to(lib.DP_QPS_RTR)
            a.modify(lib.DP_QP_STATE | lib.DP_QP_SQ_PSN, state=lib.DP_QPS_RTS)
    assert lib.dp_ah_destroy(ah) == 0


def test_queue_pairs_without_congestion_control(world: World) -> None:
    a, _ = datagram_pair(world)
    assert lib.dp_qp_set_cc(a.qp, ffi.NULL, world.now) < 0
    assert lib.dp_qp_flow(a.qp) == ffi.NULL
    assert not lib.dp_qp_extended(a.qp)


# ---- states ----------------------------------------------------------------------------


def test_attributes_of_init_and_rts(world: World) -> None:
    qp = QP(world.a_host, UD_OPTIONS)
    for bit in (lib.DP_QP_PKEY_INDEX, lib.DP_QP_PORT, lib.DP_QP_QKEY):
        assert qp.modify(RESET_TO_INIT & ~bit, state=lib.DP_QPS_INIT) < 0
    assert qp.modify(RESET_TO_INIT | lib.DP_QP_ACCESS_FLAGS, state=lib.DP_QPS_INIT) < 0
    assert qp.modify(RESET_TO_INIT, state=lib.DP_QPS_INIT, qkey=9) == 0
    assert qp.modify(lib.DP_QP_STATE | lib.DP_QP_PATH_MTU, state=lib.DP_QPS_RTR) < 0
    assert qp.to(lib.DP_QPS_RTR) == 0
    assert qp.to(lib.DP_QPS_RTS) < 0
    mask = lib.DP_QP_STATE | lib.DP_QP_SQ_PSN
    assert qp.modify(mask | lib.DP_QP_TIMEOUT, state=lib.DP_QPS_RTS) < 0
    assert qp.modify(mask, state=lib.DP_QPS_RTS, sq_psn=0xFFFFFF) == 0
    assert (qp.attr.qkey, qp.attr.sq_psn) == (9, 0xFFFFFF)


def test_psns_wrap(world: World) -> None:
    a, b = DatagramQP(world.a_host, psn=0xFFFFFF), DatagramQP(world.b_host)
    for _ in range(2):
        a.send_to(b, b"")
    world.says(a, "UD_SEND_ONLY 16777215", "UD_SEND_ONLY 0")
    assert a.attr.sq_psn == 1


def test_a_send_that_fails_ends_the_send_queue_alone(world: World) -> None:
    """10.3.1.6: in SQE sends are flushed and receives go on, until the program ends it."""
    a, b = datagram_pair(world)
    a.recv(100)
    to = (a.ah(b.host), b.qpn, QKEY)
    assert a.post_send(lib.DP_WR_SEND, [(1, 1, 0xDEAD)], to=to, wr_id=1, signaled=False) == 0
    a.send_to(b, b"2", wr_id=2)
    world.silent(a)
    assert a.state == "SQE"
    assert a.poll() == [failed("LOC_PROT_ERR", wr_id=1), failed("WR_FLUSH_ERR", wr_id=2)]
    a.send_to(b, b"3", wr_id=3)
    assert a.poll() == [failed("WR_FLUSH_ERR", wr_id=3)]
    b.send_to(a, b"still")
    world.says(b, "UD_SEND_ONLY 5000")
    assert a.poll_recv() == [ok("RECV", byte_len=GRH_LEN + 5)]
    mask = lib.DP_QP_STATE | lib.DP_QP_CUR_STATE
    assert a.modify(mask, state=lib.DP_QPS_RTS, cur_state=lib.DP_QPS_SQD) < 0
    assert a.modify(mask, state=lib.DP_QPS_RTS, cur_state=lib.DP_QPS_SQE) == 0
    a.send_to(b, b"4")
    world.says(a, "UD_SEND_ONLY 100")


def test_drained_sends_wait_for_rts(world: World) -> None:
    a, b = datagram_pair(world)
    a.send_to(b, b"1")
    assert a.to(lib.DP_QPS_SQD) == 0
    a.send_to(b, b"2")
    world.silent(a)
    assert not a.attr.sq_draining
    assert a.to(lib.DP_QPS_RTS) == 0
    world.says(a, "UD_SEND_ONLY 100", "UD_SEND_ONLY 101")


def test_error_flushes_both_queues(world: World) -> None:
    a, b = datagram_pair(world)
    a.recv(100, wr_id=1)
    a.send_to(b, b"1", wr_id=2)
    assert a.to(lib.DP_QPS_ERR) == 0
    assert a.poll() == [failed("WR_FLUSH_ERR", wr_id=2)]
    assert a.poll_recv() == [failed("WR_FLUSH_ERR", wr_id=1)]
    world.silent(a)


def test_planted_faults_are_found(world: World) -> None:
    a, b = datagram_pair(world)
    a.send_to(b, b"waits")
    for number in itertools.count():
        words = testlib.X_spoil_datagram(a.qp, number, 1)
        if words == testffi.NULL:
            break
        found = lib.dp_engine_check(a.host.engine)
        testlib.X_spoil_datagram(a.qp, number, -1)
        assert found != ffi.NULL, f"fault {number} is not found"
        assert testffi.string(words) in ffi.string(found)
        a.host.verify()
    assert number > 3
