# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The bytes of frames: what the card reads of them, and its answers, with scapy as the judge."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from tests.clib import in_c, testffi, testlib

pytestmark = [pytest.mark.san, pytest.mark.compute]

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
ETHER = Ether(src=A, dst=B)
V4 = IP(src="10.0.0.1", dst="10.0.0.2")
V6 = IPv6(src="fd00::1", dst="fd00::2")


def read(frame: bytes) -> Any:
    found = testffi.new("struct X_vnic_frame *")
    testlib.X_vnic_read(in_c(frame), len(frame), found)
    return found


def answer(frame: bytes) -> bytes:
    out = testffi.new("uint8_t[]", 96)
    mac = bytes.fromhex(B.replace(":", ""))
    return bytes(testffi.buffer(out, testlib.X_vnic_answer(in_c(frame), len(frame), mac, out)))


def mark_ce(frame: bytes) -> bytes:
    out = testffi.new("uint8_t[]", len(frame) + 1)
    return bytes(testffi.buffer(out, testlib.X_vnic_mark_ce(in_c(frame), len(frame), out)))


def fit_mss(frame: bytes, room: int) -> bytes:
    out = testffi.new("uint8_t[]", len(frame) + 1)
    return bytes(testffi.buffer(out, testlib.X_vnic_fit_mss(in_c(frame), len(frame), room, out)))


def address(raw: Any) -> str:
    text = ipaddress.IPv6Address(bytes(raw))
    return str(text.ipv4_mapped or text)


@pytest.mark.parametrize("ip", [V4, V6, V6 / IPv6ExtHdrHopByHop()])
@pytest.mark.parametrize("transport", [UDP(sport=49999, dport=4791), TCP(sport=7471, dport=80)])
def test_addresses_and_ports(ip: Packet, transport: Packet) -> None:
    found = read(bytes(ETHER / ip / transport / b"payload"))
    assert found.valid
    assert found.has_ports
    assert (found.sport, found.dport) == (transport.sport, transport.dport)
    assert (address(found.src), address(found.dst)) == (ip.src, ip.dst)


@pytest.mark.parametrize(
    "packet",
    [
        V4 / ICMP(),
        V4.__class__(src="10.0.0.1", dst="10.0.0.2", flags="MF") / UDP(dport=4791),
        V4.__class__(src="10.0.0.1", dst="10.0.0.2", frag=3) / UDP(dport=4791),
        V6 / IPv6ExtHdrFragment() / UDP(dport=4791),
    ],
    ids=["icmp", "first fragment", "later fragment", "fragment header"],
)
def test_what_has_no_ports_to_trust(packet: Packet) -> None:
    found = read(bytes(ETHER / packet))
    assert found.valid
    assert not found.has_ports


def test_the_flow_is_in_the_hash_and_nothing_else() -> None:
    frames = [ETHER / V4 / UDP(sport=port, dport=4791) for port in range(50000, 50100)]
    assert len({read(bytes(frame)).hash for frame in frames}) == 100
    longer = frames[0] / b"another payload"
    assert read(bytes(longer)).hash == read(bytes(frames[0])).hash


@pytest.mark.parametrize(
    ("ip", "back"),
    [
        (IP(src="10.0.0.1", dst="10.0.0.2"), IP(src="10.0.0.2", dst="10.0.0.1")),
        (IP(src="10.0.0.1", dst="10.0.0.1"), IP(src="10.0.0.1", dst="10.0.0.1")),
        (IPv6(src="fd00::2", dst="fd00::1"), IPv6(src="fd00::1", dst="fd00::2")),
    ],
)
def test_the_answers_of_a_flow_have_its_hash(ip: Packet, back: Packet) -> None:
    there = read(bytes(ETHER / ip / TCP(sport=7000, dport=80)))
    answer = read(bytes(ETHER / back / TCP(sport=80, dport=7000)))
    assert there.hash == answer.hash
    swapped = read(bytes(ETHER / back / TCP(sport=7000, dport=80)))
    assert (swapped.hash == there.hash) == (ip == back)


def questions() -> Iterator[Packet]:
    arp = ARP(hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2")
    yield Ether(src=A, dst="ff:ff:ff:ff:ff:ff") / arp
    yield Ether(src=A, dst=B) / ARP(hwsrc=A, psrc="0.0.0.0", pdst="10.0.0.2")
    solicitation = ICMPv6ND_NS(tgt="fd00::2") / ICMPv6NDOptSrcLLAddr(lladdr=A)
    group = IPv6(src="fd00::1", dst="ff02::1:ff00:2", hlim=255)
    yield Ether(src=A, dst="33:33:ff:00:00:02") / group / solicitation
    yield Ether(src=A, dst=B) / IPv6(src="fe80::1", dst="fd00::2", hlim=255) / solicitation


@pytest.mark.parametrize("question", list(questions()))
def test_a_question_is_answered_from_the_target(question: Packet) -> None:
    told = Ether(answer(bytes(question)))
    assert (told.src, told.dst) == (B, A)
    if ARP in question:
        assert told[ARP].op == 2
        assert (told[ARP].hwsrc, told[ARP].psrc) == (B, "10.0.0.2")
        assert (told[ARP].hwdst, told[ARP].pdst) == (A, question[ARP].psrc)
        return
    assert (told[IPv6].src, told[IPv6].dst) == ("fd00::2", question[IPv6].src)
    assert told[IPv6].hlim == 255
    assert told[ICMPv6ND_NA].tgt == "fd00::2"
    assert told[ICMPv6NDOptDstLLAddr].lladdr == B
    checksum = told[ICMPv6ND_NA].cksum
    del told[ICMPv6ND_NA].cksum
    assert Ether(bytes(told))[ICMPv6ND_NA].cksum == checksum


@pytest.mark.parametrize(
    "frame",
    [
        ETHER / ARP(op=2, hwsrc=A, psrc="10.0.0.1", hwdst=B, pdst="10.0.0.2"),
        ETHER / ARP(hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.1"),
        ETHER / ARP(hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2", hwtype=6),
        ETHER / IPv6(src="fd00::1", dst="fd00::2", hlim=64) / ICMPv6ND_NS(tgt="fd00::2"),
        ETHER / IPv6(src="::", dst="ff02::1:ff00:2", hlim=255) / ICMPv6ND_NS(tgt="fd00::2"),
        ETHER / V4 / UDP(dport=4791),
    ],
    ids=["answer", "announcement", "no Ethernet", "routed", "own address", "data"],
)
def test_what_asks_nothing(frame: Packet) -> None:
    assert answer(bytes(frame)) == b""


BEHIND = [
    V6,
    V6 / IPv6ExtHdrHopByHop(),
    V6 / IPv6ExtHdrDestOpt() / IPv6ExtHdrRouting(),
    V6 / AH(nh=58, payloadlen=4, icv=bytes(12)),
    V6 / IPv6ExtHdrFragment(m=1),
    V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrFragment() / IPv6ExtHdrDestOpt(),
]
NEIGHBOUR = ICMPv6ND_NA(tgt="fd00::3", R=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=A)


@pytest.mark.parametrize("ip", BEHIND, ids=lambda ip: ip.summary())
@pytest.mark.parametrize(
    "message",
    [
        NEIGHBOUR,
        ICMPv6ND_RA(),
        ICMPv6ND_Redirect(),
        ICMPv6ND_RS(),
        ICMPv6ND_NS(tgt="fd00::2") / ICMPv6NDOptSrcLLAddr(lladdr=A),
    ],
    ids=lambda m: m.name,
)
def test_what_tells_of_neighbours_is_known_behind_any_headers(ip: Packet, message: Packet) -> None:
    frame = bytes(ETHER / ip / message)
    assert read(frame).tells
    assert not read(bytes(ETHER / ip / ICMPv6EchoRequest())).tells
    assert not any(read(frame[:end]).tells for end in range(len(frame) - len(message)))


def test_headers_that_end_before_the_message_are_refused() -> None:
    """In the first fragment, which has to have them all; the later ones have none."""
    first = V6 / IPv6ExtHdrFragment(m=1) / IPv6ExtHdrDestOpt(nh=58)
    assert read(bytes(ETHER / first / b"\x88")).tells
    assert not read(bytes(ETHER / first)).valid
    later = read(bytes(ETHER / V6 / IPv6ExtHdrFragment(nh=58, offset=1) / b"\x88"))
    assert later.valid
    assert not later.tells


@pytest.mark.parametrize("packet", [V4 / UDP(), V6 / UDP()])
@pytest.mark.parametrize("ecn", [0, 1, 2])
def test_a_mark_leaves_the_checksum_right(packet: Packet, ecn: int) -> None:
    packet = packet.copy()
    setattr(packet, "tos" if IP in packet else "tc", ecn | 0xB8)
    before = Ether(bytes(ETHER / packet))
    marked = Ether(mark_ce(bytes(before)))
    assert read(bytes(marked)).ecn == (3 if ecn else 0)
    if IP in marked:
        checksum = marked[IP].chksum
        del marked[IP].chksum
        assert Ether(bytes(marked))[IP].chksum == checksum


def syn(mss: int, *before: tuple[str, Any], flags: str = "S") -> TCP:
    return TCP(sport=7471, dport=80, flags=flags, options=[*before, ("MSS", mss), ("SAckOK", b"")])


@pytest.mark.parametrize("ip", [V4, V6, V6 / IPv6ExtHdrHopByHop()])
@pytest.mark.parametrize("before", [(), (("NOP", None),), (("Timestamp", (7, 0)),)])
@pytest.mark.parametrize("flags", ["S", "SA"])
@pytest.mark.parametrize(("mtu", "packets"), [(4400, 1), (9000, 2)])
def test_full_frames_of_a_connection_fill_whole_packets(
    ip: Packet, before: tuple[tuple[str, Any], ...], flags: str, mtu: int, packets: int
) -> None:
    """Options before the MSS put it at even and at odd offsets, which its checksum feels."""
    room = 4288
    bare = len(bytes(ETHER / ip / TCP()))
    sent = ETHER / ip / syn(mtu - bare + len(ETHER), *before, flags=flags)
    fitted = Ether(fit_mss(bytes(sent), room))
    assert dict(fitted[TCP].options)["MSS"] + bare == packets * room
    checksum = fitted[TCP].chksum
    del fitted[TCP].chksum
    assert Ether(bytes(fitted))[TCP].chksum == checksum


@pytest.mark.parametrize(
    "segment",
    [
        syn(1460),
        syn(4346, flags="A"),
        TCP(flags="S"),
        TCP(flags="S", options=[("SAckOK", b"")]),
        UDP(dport=4791),
    ],
    ids=["shorter than a packet", "no SYN", "no options", "no MSS", "no TCP"],
)
def test_other_frames_are_left_alone(segment: Packet) -> None:
    frame = bytes(ETHER / V4 / segment)
    assert fit_mss(frame, 4288) == frame


DATA = [
    ETHER / V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrFragment() / AH(nh=58, payloadlen=1) / NEIGHBOUR,
    ETHER / V4 / TCP(),
    ETHER / V4 / syn(8960, ("NOP", None)),
    ETHER / V6 / UDP(),
    ETHER / V6 / IPv6ExtHdrHopByHop() / UDP(),
]
SEEDS = [bytes(frame) for frame in itertools.chain(questions(), DATA)]


def test_every_cut_frame_is_read_within_its_bytes() -> None:
    for frame in SEEDS:
        for end in range(len(frame) + 1):
            read(frame[:end])
            answer(frame[:end])
            fit_mss(frame[:end], 100)


@given(st.data())
def test_any_bytes(data: st.DataObject) -> None:
    """Frames with bytes changed, and bytes that are no frame."""
    frame = bytearray(data.draw(st.sampled_from(SEEDS) | st.binary(max_size=120)))
    for _ in range(data.draw(st.integers(0, 6))):
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(frame))
    told = answer(bytes(frame))
    assert len(fit_mss(bytes(frame), data.draw(st.integers(1, 2000)))) == len(frame)
    assert bool(told) == bool(found.asks)
    assert not told or not read(told).asks
