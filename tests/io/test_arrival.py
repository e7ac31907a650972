# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ports tell when the kernel saw a packet, however late a program reads it."""

from __future__ import annotations

import functools
import json
import struct
import time
from collections.abc import Callable

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from datapath.native import paths

from .conftest import Host, Pair, Report, Tool, qpn_of, unprivileged

STOP_S = 0.05
STANDARD, EXTENDED = "0x04", "0xc4"
WAITING = ("receive", "--wait", "--check", "--idle-ms", "200")


def read_late(receivers: list[Tool], send: Callable[[], None]) -> list[Report]:
    """Sends while nobody reads; checks that what is read then has arrived in that time."""
    begun_ns = time.monotonic_ns()
    send()
    sent_ns = time.monotonic_ns()
    time.sleep(STOP_S)
    reports = [tool.report() for tool in receivers]
    for report in reports:
        result = report.result
        if result["received"] > result["untimed"]:
            assert begun_ns < result["arrived_first_ns"] <= result["arrived_last_ns"] < sent_ns
        assert result["read_ns"] > sent_ns + STOP_S * 1e9
        assert result["bad_icrc"] == 0
    return reports


@pytest.mark.parametrize("size", [0, 1024, 4096])
@pytest.mark.parametrize("opcode", [STANDARD, EXTENDED])
@pytest.mark.parametrize("spec", ["afxdp:eth0", "udp:eth0", "udp:eth0,gso=0"])
def test_packets_arrive_before_they_are_read(pair: Pair, spec: str, opcode: str, size: int) -> None:
    """4096 bytes lie in two pieces over AF_XDP; extended packets arrive in runs over UDP."""
    receiver = pair.b.tool(spec, *WAITING)
    options = ("--count", "64", "--size", str(size), "--opcode", opcode, "--check")
    (report,) = read_late(
        [receiver], lambda: assert_sent(pair.a.report(spec, "send", pair.b.ipv4, *options), 64)
    )
    assert report.result["received"] == 64
    assert report.result["untimed"] == report.stats["rx_untimed"] == 0


def assert_sent(report: Report, count: int) -> None:
    assert report.result["error"] == 0
    assert report.result["sent"] == count


def test_over_generic_xdp(pair: Pair) -> None:
    host = pair.b
    host.run("ip", "address", "flush", "dev", "eth0")
    host.run("ip", "link", "add", "br0", "mtu", "9000", "type", "bridge")
    host.run("ip", "link", "set", "eth0", "master", "br0")
    host.run("ip", "link", "set", "br0", "up")
    host.run("ip", "address", "add", f"{host.ipv4}/24", "dev", "br0")
    receiver = host.tool("afxdp:br0", *WAITING)
    (report,) = read_late(
        [receiver],
        lambda: assert_sent(
            pair.a.report("udp:eth0,gso=0", "send", host.ipv4, "--count", "20", "--check"), 20
        ),
    )
    assert report.info["mode_reason"].startswith("generic XDP")
    assert report.result["received"] == 20
    assert report.result["untimed"] == 0


def test_handed_on_from_one_process_to_another(pair: Pair) -> None:
    """The time goes along, also if the other process reads late in turn."""
    waiting = (*WAITING, "--seconds", "3")  # one of them may get nothing
    before = unprivileged()  # no map of sockets
    first, *others = [pair.b.tool("udp:eth0", *waiting, before=before) for _ in range(3)]
    first.kill()  # the kernel numbers the sockets anew, and packets for slots 0 and 2 go astray
    again = pair.b.tool("udp:eth0", *waiting, before=before)

    def send() -> None:
        for slot in range(3):
            options = ("--count", "100", "--qpn", qpn_of(slot), "--check")
            assert_sent(pair.a.report("udp:eth0", "send", pair.b.ipv4, *options), 100)

    # The last is the first to read, so that the others find what it hands on.
    reports = read_late([*reversed(others), again], send)
    assert sum(report.stats["rx_misdirected"] for report in reports) > 0
    assert max(report.result["received"] for report in reports) > 100
    assert all(report.result["untimed"] == 0 for report in reports)


def test_what_crosses_no_network_has_no_time(pair: Pair) -> None:
    """An AF_XDP port keeps packets to itself; the kernel stamps what a UDP port sends so."""
    options = ("--count", "50", "--size", "4096", "--window", "4", "--sleep")
    for spec, untimed in [("afxdp:eth0", 50), ("udp:eth0", 0)]:
        ping = pair.a.report(spec, "ping", pair.a.ipv4, *options)
        assert ping.result["received"] == 50
        assert ping.result["untimed"] == untimed
        assert ping.stats["rx_untimed"] == 0


# --- dated frames ------------------------------------------------------------------------------


OLDEST_NS = 1_000_000_000
"""An older date is not believed (xdp/steer.h)."""


def dated(pair: Pair, version: int, size: int, ago_ns: int) -> bytes:
    """A frame to B that left a link so long ago; `port_tool --check` knows its payload."""
    ether = Ether(dst=pair.b.mac(), src=pair.a.mac())
    ip = IP(src=pair.a.ipv4, dst=pair.b.ipv4, id=0, flags="DF")
    network = ip if version == 4 else IPv6(src=pair.a.ipv6, dst=pair.b.ipv6)
    body = bytes((i + (i >> 8) * 7) & 0xFF for i in range(size))
    bth = bytes.fromhex("0400ffff0000001100000000")
    udp = UDP(sport=0xC000, dport=4791, chksum=0 if version == 4 else None)
    frame = bytes(ether / network / udp / Raw(bth + body + b"ICRC"))
    return frame + struct.pack("=I", (time.monotonic_ns() - ago_ns) % 2**32)


def late_ns(pair: Pair, spec: str, frame: Callable[[], bytes]) -> int:
    """What the port tells of one frame, which is made, and so dated, when the port is open."""
    tool = pair.b.tool(spec, "receive", "--count", "1", "--idle-ms", "5000", "--check")
    pair.a.send_frames([frame()])
    report = tool.report()
    assert report.result["received"] == 1
    assert report.result["bad_pattern"] == report.result["untimed"] == 0
    assert report.stats["rx_malformed"] == 0
    return int(report.result["late_most_ns"])


@pytest.mark.parametrize("size", [0, 1024, 3778, 3782, 4096, 7552, 7622])
@pytest.mark.parametrize("version", [4, 6])
def test_a_dated_frame_tells_when_it_left_the_network(pair: Pair, version: int, size: int) -> None:
    """In one piece and in two; the date comes off, and needs no piece of its own."""
    size -= 20 if version == 6 and size else 0
    spec = f"afxdp:eth0,dated=1,ip={pair.b.ipv4 if version == 4 else pair.b.ipv6}"
    for _ in range(5):
        begun_ns = time.monotonic_ns()
        late = late_ns(pair, spec, lambda: dated(pair, version, size, 50_000_000))
        most_ns = 50_000_000 + time.monotonic_ns() - begun_ns
        if late or most_ns < OLDEST_NS:
            break
    assert 50_000_000 < late < most_ns


@pytest.mark.parametrize("ago_ns", [-1_000_000_000, 1_500_000_000])
def test_a_date_that_cannot_be_is_not_believed(pair: Pair, ago_ns: int) -> None:
    frame = functools.partial(dated, pair, 4, 1024, ago_ns)
    assert late_ns(pair, "afxdp:eth0,dated=1", frame) == 0


def test_who_expects_no_date_reads_none(pair: Pair) -> None:
    """Behind a packet may lie anything, such as a checksum; nor is anything else a date."""
    frame = dated(pair, 4, 1024, 50_000_000)
    assert late_ns(pair, "afxdp:eth0", lambda: frame) == 0
    for other in (frame[:-4], frame[:-1], frame + b"\0"):
        assert late_ns(pair, "afxdp:eth0,dated=1", functools.partial(bytes, other)) == 0


# --- what algorithms see -----------------------------------------------------------------------


STOP_NS = 50_000_000  # of late_reader


def read_seldom(host: Host, *ends: str) -> dict[str, dict[str, float]]:
    process = host.popen(str(paths.ROOT / paths.build_name() / "tests" / "late_reader"), *ends)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error.decode()
    told: dict[str, dict[str, float]] = json.loads(out)
    return told


def assert_hosts_are_told_apart(told: dict[str, dict[str, float]]) -> None:
    """The network is never as slow as a host that does not read; what it took is the host's.

    An acknowledgement tells of the last copy: a probe leaves when about half of the time is over.
    """
    assert told["requester"]["host_ns"] > STOP_NS
    assert told["responder"]["host_ns"] > STOP_NS / 5
    for stopped in ("requester", "responder"):
        assert told[stopped]["host_ns"] / 2 > told[stopped]["rtt_ns"] > 0
    assert told["nobody"]["rtt_ns"] > 0
    probed = told["responder probed"]  # only the last of many probes is timed
    assert STOP_NS > probed["host_ns"] > 0
    assert STOP_NS / 2 > probed["rtt_ns"] > 0


@pytest.mark.alone
@pytest.mark.parametrize("kinds", [("afxdp", "afxdp"), ("udp", "udp"), ("afxdp", "udp")])
def test_algorithms_see_the_network_and_not_the_host(pair: Pair, kinds: tuple[str, str]) -> None:
    specs = [f"{kind}:eth0" for kind in kinds]
    netns = [f"/run/netns/{host.namespace}" for host in (pair.a, pair.b)]
    told = read_seldom(Host("", "", ""), specs[0], netns[0], specs[1], netns[1])
    assert_hosts_are_told_apart(told)


@pytest.mark.alone
def test_algorithms_see_the_network_on_loopback(here: Host) -> None:
    told = read_seldom(here, "udp:127.0.0.21", "-", "udp:127.0.0.22", "-")
    assert_hosts_are_told_apart(told)
