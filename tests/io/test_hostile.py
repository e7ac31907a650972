# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Damaged and foreign frames: counted or left to the kernel, never given to the engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from .conftest import Pair

GOOD = 5


def frame(pair: Pair, *, dst: str | None = None, udp_len: int | None = None) -> Ether:
    """A frame to b's port with the BTH of an extended SEND."""
    bth = bytes.fromhex("c4400000000000110000000000")[:12] + b"payload." + b"icrc"
    return (
        Ether(src=pair.a.mac(), dst=pair.b.mac())
        / IP(src=pair.a.ipv4, dst=dst or pair.b.ipv4, flags="DF")
        / UDP(sport=0xC011, dport=4791, len=udp_len)
        / Raw(bth)
    )


def cut(pair: Pair, length: int) -> bytes:
    return bytes(frame(pair))[:length]


def ip_total_too_long(pair: Pair) -> bytes:
    f = frame(pair)
    f[IP].len = 1400
    return bytes(f)


def ip_total_too_short(pair: Pair) -> bytes:
    f = frame(pair)
    f[IP].len = 20
    return bytes(f)


MALFORMED: dict[str, Callable[[Pair], bytes]] = {
    "udp longer than ip": lambda p: bytes(frame(p, udp_len=500)),
    "udp shorter than ip": lambda p: bytes(frame(p, udp_len=12)),
    "udp length zero": lambda p: bytes(frame(p, udp_len=0)),
    "ip longer than frame": ip_total_too_long,
    "ip shorter than headers": ip_total_too_short,
    "cut in the payload": lambda p: cut(p, 50),
    "three buffers": lambda p: bytes(frame(p) / Raw(bytes(8800))),
}

PASSED: dict[str, Callable[[Pair], bytes]] = {
    "cut in udp": lambda p: cut(p, 40),
    "cut in ip": lambda p: cut(p, 30),
    "ip options": lambda p: bytes(
        Ether(src=p.a.mac(), dst=p.b.mac())
        / IP(src=p.a.ipv4, dst=p.b.ipv4, options=b"\x01\x01\x01\x01")
        / UDP(dport=4791)
        / Raw(bytes(40))
    ),
    "first fragment": lambda p: bytes(
        Ether(src=p.a.mac(), dst=p.b.mac())
        / IP(src=p.a.ipv4, dst=p.b.ipv4, flags="MF")
        / UDP(dport=4791, len=3008)
        / Raw(bytes(1000))
    ),
    "other udp port": lambda p: bytes(
        Ether(src=p.a.mac(), dst=p.b.mac())
        / IP(src=p.a.ipv4, dst=p.b.ipv4)
        / UDP(dport=4792)
        / Raw(bytes(40))
    ),
    "tcp to 4791": lambda p: bytes(
        Ether(src=p.a.mac(), dst=p.b.mac()) / IP(src=p.a.ipv4, dst=p.b.ipv4) / TCP(dport=4791)
    ),
    "other address": lambda p: bytes(frame(p, dst="10.123.0.77")),
    "other family": lambda p: bytes(
        Ether(src=p.a.mac(), dst=p.b.mac())
        / IPv6(src=p.a.ipv6, dst=p.b.ipv6)
        / UDP(dport=4791)
        / Raw(bytes(40))
    ),
    "icmp": lambda p: bytes(
        Ether(src=p.a.mac(), dst=p.b.mac()) / IP(src=p.a.ipv4, dst=p.b.ipv4) / ICMP()
    ),
}


def send_among_good(pair: Pair, bad: bytes) -> tuple[int, int]:
    """Three copies of a bad frame between good ones: (received, malformed)."""
    receiver = pair.b.tool("afxdp:eth0", "receive", "--sleep", "--idle-ms", "300")
    good = bytes(frame(pair))
    pair.a.send_frames([good, bad, good, bad, good, good, bad, good])
    report = receiver.report()
    return report.result["received"], report.stats["rx_malformed"]


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_is_counted(pair: Pair, what: str) -> None:
    assert send_among_good(pair, MALFORMED[what](pair)) == (GOOD, 3)


@pytest.mark.parametrize("what", PASSED)
def test_foreign_is_left_to_the_kernel(pair: Pair, what: str) -> None:
    assert send_among_good(pair, PASSED[what](pair)) == (GOOD, 0)


def test_ethernet_padding_is_cut_off(pair: Pair) -> None:
    received = send_among_good(pair, bytes(frame(pair)) + bytes(20))
    assert received == (GOOD + 3, 0)


def test_udp_port_counts_short_datagrams(pair: Pair) -> None:
    receiver = pair.b.tool("udp:eth0", "receive", "--sleep", "--idle-ms", "300")
    good = bytes(frame(pair))
    short = frame(pair)
    short[Raw].load = b"short"
    pair.a.send_frames([good, bytes(short), good])
    report = receiver.report()
    assert report.result["received"] == 2
    assert report.stats["rx_malformed"] == 1


def test_buffers_survive_a_flood_of_garbage(pair: Pair) -> None:
    """Garbage of every shape, more than there are buffers; good packets still pass."""
    receiver = pair.b.tool("afxdp:eth0", "receive", "--sleep", "--idle-ms", "500", "--check")
    shapes = [make(pair) for make in MALFORMED.values()]
    pair.a.send_frames(shapes * 800)
    echo = receiver
    pair.a.report("afxdp:eth0", "send", pair.b.ipv4, "--check", "--count", "100", "--size", "4096")
    report = echo.report()
    assert report.result["received"] == 100
    assert report.result["bad_icrc"] == 0
    assert report.stats["rx_malformed"] == 800 * len(shapes) - report.stats["rx_dropped"]
