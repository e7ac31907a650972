# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datagrams of every kind cross every pair of ports unchanged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Host, Pair, Report, unprivileged

STANDARD = "0x04"  # SEND only
EXTENDED = "0xc4"


def closed_loop(
    a: Host, b: Host, specs: tuple[str, str], peer: str, *options: str
) -> tuple[Report, Report]:
    """`a` sends to `b`, which sends back; both check pattern and ICRC."""
    echo = b.tool(specs[1], "echo", "--check", "--sleep", "--idle-ms", "300")
    ping = a.report(specs[0], "ping", peer, "--check", "--sleep", *options)
    return ping, echo.report()


def assert_whole(ping: Report, echo: Report, count: int) -> None:
    assert ping.result["error"] == 0, ping.result["error_text"]
    assert ping.result["received"] == echo.result["received"] == count
    for report in (ping, echo):
        assert report.result["in_order"] == count
        assert report.result["bad_pattern"] == report.result["bad_icrc"] == 0
        assert report.stats["rx_malformed"] == report.stats["rx_dropped"] == 0
        assert report.stats["rx_packets"] == report.stats["tx_packets"] == count


@pytest.mark.parametrize("opcode", [STANDARD, EXTENDED])
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize(
    "kinds", [("afxdp", "afxdp"), ("udp", "udp"), ("afxdp", "udp"), ("udp", "afxdp")], ids="-".join
)
def test_closed_loop(pair: Pair, kinds: tuple[str, str], family: str, opcode: str) -> None:
    """4096-byte payloads, sixteen in flight; over AF_XDP each lies in two pieces."""
    specs = []
    for kind, host in zip(kinds, (pair.a, pair.b), strict=True):
        addr = getattr(host, family)
        specs.append(f"udp:{addr}" if kind == "udp" else f"afxdp:eth0,ip={addr}")
    options = ("--count", "500", "--size", "4096", "--window", "16", "--opcode", opcode)
    peer = getattr(pair.b, family)
    ping, echo = closed_loop(pair.a, pair.b, (specs[0], specs[1]), peer, *options)
    assert_whole(ping, echo, 500)
    for kind, report in zip(kinds, (ping, echo), strict=True):
        assert report.info["kind"] == kind
        assert report.info["path_mtu"] == 4096
        assert report.info["path_mtu_reason"] == ""
        assert report.result["in_two_pieces"] == (500 if kind == "afxdp" else 0)


@pytest.mark.parametrize("size", [0, 1, 64, 3783, 3784, 3785, 3957, 3958, 4096])
def test_sizes_around_a_chunk(pair: Pair, size: int) -> None:
    """Lengths at which a packet begins to need a second buffer, on either side."""
    ping, echo = closed_loop(
        pair.a, pair.b, ("afxdp:eth0",) * 2, pair.b.ipv4, "--count", "40", "--size", str(size)
    )
    assert_whole(ping, echo, 40)


def test_ecn_and_dscp_are_carried(pair: Pair) -> None:
    for specs in (("afxdp:eth0", "udp:eth0"), ("udp:eth0", "afxdp:eth0")):
        _, echo = closed_loop(pair.a, pair.b, specs, pair.b.ipv4, "--count", "32", "--tos", "0x2b")
        assert echo.result["marked"] == 32


@pytest.mark.parametrize(("mtu", "path_mtu"), [(1500, 1024), (2200, 2048), (9000, 4096)])
@pytest.mark.parametrize("kind", ["afxdp", "udp"])
def test_path_mtu_follows_the_device(
    make_pair: Callable[..., Pair], kind: str, mtu: int, path_mtu: int
) -> None:
    pair = make_pair(mtu)
    specs = (f"{kind}:eth0", f"{kind}:eth0")
    options = ("--count", "100", "--size", str(path_mtu), "--window", "8")
    ping, echo = closed_loop(pair.a, pair.b, specs, pair.b.ipv4, *options)
    assert_whole(ping, echo, 100)
    assert ping.info["path_mtu"] == path_mtu
    if path_mtu < 4096:
        assert f"MTU {mtu} of eth0" in ping.info["path_mtu_reason"]


@pytest.mark.parametrize("kind", ["afxdp", "udp"])
def test_path_mtu_can_be_capped(pair: Pair, kind: str) -> None:
    info = pair.a.report(f"{kind}:eth0,path_mtu=1024", "resolve", pair.b.ipv4).info
    assert info["path_mtu"] == 1024
    assert "path_mtu=1024" in info["path_mtu_reason"]


@pytest.mark.parametrize("spec", ["afxdp:eth0", "udp:eth0"])
def test_device_talks_to_itself(pair: Pair, spec: str) -> None:
    """Two QPs of one device: what it sends to its own address it receives."""
    options = ("--count", "200", "--size", "4096", "--window", "16", "--check", "--sleep")
    ping = pair.a.report(spec, "ping", pair.a.ipv4, *options)
    assert ping.result["received"] == ping.result["in_order"] == 200
    assert ping.result["bad_pattern"] == ping.result["bad_icrc"] == 0


def test_identification_is_zero(pair: Pair) -> None:
    """The ICRC of standard packets covers it: single sends of a UDP socket have 0."""
    receiver = pair.b.tool("afxdp:eth0", "receive", "--count", "64", "--check")
    pair.a.report("udp:eth0", "send", pair.b.ipv4, "--count", "64", "--opcode", STANDARD, "--check")
    result = receiver.report().result
    assert result["received"] == 64
    assert result["ip_id_nonzero"] == result["bad_icrc"] == 0


def test_standard_packets_are_not_segmented(pair: Pair) -> None:
    sent = pair.a.report("udp:eth0", "send", pair.b.ipv4, "--count", "64", "--opcode", EXTENDED)
    assert sent.info["mode"] == "gso"
    assert sent.stats["tx_wakeups"] == 2  # two batches of 32
    sent = pair.a.report("udp:eth0,gso=0", "send", pair.b.ipv4, "--count", "64")
    assert sent.info["mode"] == "plain"
    assert sent.info["mode_reason"] == "gso=0 was asked for"


@pytest.mark.parametrize("mode", ["auto", "copy"])
def test_mode_is_told(pair: Pair, mode: str) -> None:
    """veth has no zero-copy: the port says so, and counts the copies."""
    ping, _ = closed_loop(
        pair.a, pair.b, (f"afxdp:eth0,mode={mode}", "afxdp:eth0"), pair.b.ipv4, "--count", "10"
    )
    assert ping.info["mode"] == "copy"
    assert ("zero-copy" if mode == "auto" else "mode=copy") in ping.info["mode_reason"]
    assert ping.stats["copies"] == 20


def test_generic_xdp_where_the_driver_has_none(pair: Pair) -> None:
    """A bridge has no XDP of its own: the kernel's generic one does, and is told of."""
    host = pair.a
    host.run("ip", "address", "flush", "dev", "eth0")
    host.run("ip", "link", "add", "br0", "mtu", "9000", "type", "bridge")
    host.run("ip", "link", "set", "eth0", "master", "br0")
    host.run("ip", "link", "set", "br0", "up")
    host.run("ip", "address", "add", f"{host.ipv4}/24", "dev", "br0")
    options = ("--count", "100", "--size", "4096", "--window", "8")
    specs = ("afxdp:br0", "afxdp:eth0")
    ping, echo = closed_loop(host, pair.b, specs, pair.b.ipv4, *options)
    assert_whole(ping, echo, 100)
    assert "generic XDP" in ping.info["mode_reason"]


def test_more_than_the_buffers_hold(pair: Pair) -> None:
    """A burst of many times the transmit buffers leaves whole and in order."""
    receiver = pair.b.tool("afxdp:eth0", "receive", "--count", "20000", "--check")
    options = ("--count", "20000", "--size", "256", "--batch", "64", "--rate-pps", "40000")
    sent = pair.a.report("afxdp:eth0", "send", pair.b.ipv4, "--check", *options)
    report = receiver.report()
    result = report.result
    # A receiver that has no CPU for long loses what its ring cannot hold, and counts it.
    assert sent.result["sent"] == result["received"] + report.stats["rx_dropped"] == 20000
    assert result["in_order"] == result["received"] > 0
    assert result["bad_icrc"] == 0


def test_loopback_without_privilege(here: Host) -> None:
    before = unprivileged()
    echo = here.tool("udp:127.0.0.2", "echo", "--check", "--idle-ms", "300", before=before)
    options = ("--count", "300", "--size", "4096", "--window", "16", "--check", "--sleep")
    ping = here.report("udp:127.0.0.1", "ping", "127.0.0.2", *options, before=before)
    assert_whole(ping, echo.report(), 300)
    assert ping.info["netdev"] == "lo"
    assert ping.info["path_mtu"] == 4096
    assert ping.info["udp_sport"] == 4791


@pytest.mark.parametrize("kind", ["udp", "afxdp"])
def test_any_number_of_peers_one_after_another(pair: Pair, kind: str) -> None:
    """More than a port has places for, each given back before the next."""
    pair.a.run("ip", "route", "add", "10.77.0.0/16", "via", pair.b.ipv4)
    report = pair.a.report(f"{kind}:eth0", "peers", "10.77.0.0", "--count", "2500")
    assert report.result["error"] == 0
    assert report.result["sent"] == 2500
