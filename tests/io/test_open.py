# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Opening, refusing, and what is left when a port's process is gone."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable

import pytest

from tests.waiting import wait_until

from .conftest import SECONDS, Host, Pair, tool_path, unprivileged


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("eth0", "expected KIND:WHERE"),
        ("afxdp:", "expected KIND:WHERE"),
        ("dpdk:eth0", "there are: afxdp, udp"),
        ("udp:127.0.0.1,gso", "not key=value"),
        ("udp:127.0.0.1,gro=1", "no option 'gro' (it has: path_mtu, gso)"),
        ("udp:127.0.0.1,gso=2", "expected a number from 0 to 1"),
        ("udp:127.0.0.1,path_mtu=100", "from 256 to 4096"),
        ("udp:127.0.0.1,path_mtu=1k", "from 256 to 4096"),
        ("afxdp:lo,mode=fast", "expected one of auto, copy, zerocopy"),
        ("afxdp:lo,ip=10.0.0", "not an IP address"),
        ("afxdp:nosuch0", "no network device 'nosuch0'"),
        ("udp:nosuch0", "no network device 'nosuch0'"),
        ("udp:192.0.2.77", "not an address of this network namespace"),
        ("udp:::1%nosuch0", "no network device 'nosuch0'"),
        ("udp:::2%lo", "::2 is not an address of lo"),
        ("udp:0.0.0.0", "needs one local address"),
        ("udp:ff02::1", "needs one local address"),
        ("udp:" + "x" * 300, "longer than"),
    ],
)
def test_bad_specification(here: Host, spec: str, told: str) -> None:
    assert told in here.refusal(spec)


def test_afxdp_says_which_privilege_it_needs(pair: Pair) -> None:
    told = pair.a.refusal("afxdp:eth0", before=unprivileged())
    assert "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF" in told
    assert "udp:eth0" in told


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("afxdp:eth0,queue=7", "no queue 7"),
        ("afxdp:eth0,mode=zerocopy", "cannot do AF_XDP zero-copy"),
        ("afxdp:eth0,ip=10.9.9.9", "10.9.9.9 is not an address of eth0"),
    ],
)
def test_what_the_device_cannot(pair: Pair, spec: str, told: str) -> None:
    assert told in pair.a.refusal(spec)
    assert pair.a.xdp_program() is None


@pytest.mark.parametrize("spec", ["udp:eth0", "afxdp:eth0", "afxdp:eth0,queue=0"])
def test_few_descriptors(pair: Pair, spec: str) -> None:
    """Wherever they end, the message says so."""
    opened = []
    for most in range(5, 28):
        limit = ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(most))
        process = pair.a.popen(*limit, str(tool_path()), spec, "hold")
        error = process.communicate(timeout=SECONDS)[1].decode()
        assert process.returncode == 0 or error.endswith(": raise ulimit -n\n"), (most, error)
        opened.append(process.returncode == 0)
    assert opened == sorted(opened)
    assert any(opened)


def test_device_down_or_bare(pair: Pair) -> None:
    pair.a.run("ip", "address", "flush", "dev", "eth0")
    assert "has no IP address" in pair.a.refusal("afxdp:eth0")
    pair.a.run("ip", "link", "set", "eth0", "down")
    assert "eth0 is down" in pair.a.refusal("afxdp:eth0")


def test_an_ipv6_address_under_duplicate_address_detection(pair: Pair) -> None:
    """A port waits for the end, and tells of a duplicate."""
    new, taken = "fd12:3::77", "fd12:3::78"
    pair.b.run("ip", "address", "add", f"{taken}/64", "dev", "eth0", "nodad")
    for address in (new, taken):
        pair.a.run("ip", "address", "add", f"{address}/64", "dev", "eth0")
    assert pair.a.tool(f"udp:{new}", "hold").report().info["addr"] == new
    assert f"{taken} is not usable: duplicate address detection" in pair.a.refusal(f"udp:{taken}")


def test_a_link_local_address_that_two_devices_have(pair: Pair) -> None:
    address = "fe80::5"
    pair.a.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth2")
    pair.a.run("ip", "link", "set", "eth1", "up")
    for device in ("eth0", "eth1"):
        pair.a.run("ip", "address", "add", f"{address}/64", "dev", device, "nodad")
    assert f"several devices have {address}: name one ({address}%eth" in pair.a.refusal(
        f"udp:{address}"
    )
    for device in ("eth0", "eth1"):
        info = pair.a.tool(f"udp:{address}%{device}", "hold").report().info
        assert (info["netdev"], info["addr"]) == (device, address)
    pair.a.tool(f"afxdp:eth0,queue=0,ip={address}", "hold").report()


def test_tiny_mtu(pair: Pair) -> None:
    pair.a.run("ip", "link", "set", "eth0", "mtu", "300")
    assert "too small for RoCE" in pair.a.refusal("afxdp:eth0")


def test_second_opener_is_told(pair: Pair) -> None:
    first = pair.a.tool("afxdp:eth0", "hold")
    told = pair.a.refusal("afxdp:eth0")
    assert f"queue 0 of eth0 is in use by process {first.process.pid}:" in told
    first.report()
    assert pair.a.report("afxdp:eth0", "resolve", pair.b.ipv4).result["error"] == 0


def test_foreign_xdp_program_is_named(pair: Pair) -> None:
    from datapath.native import paths  # the steering program stands for a user's own

    path = str(paths.bpf_object("steer"))
    pair.a.run("ip", "link", "set", "dev", "eth0", "xdpdrv", "object", path, "program", "dp_steer")
    assert "dp_steer" in pair.a.refusal("afxdp:eth0")
    pair.a.run("ip", "link", "set", "dev", "eth0", "xdpdrv", "off")
    assert pair.a.report("afxdp:eth0", "resolve", pair.b.ipv4).result["error"] == 0


@pytest.mark.parametrize("mode", ["xdpdrv", "xdpgeneric"])
def test_how_a_foreign_xdp_program_is_detached(pair: Pair, mode: str) -> None:
    from datapath.native import paths

    path = str(paths.bpf_object("raw"))
    pair.a.run("ip", "link", "set", "dev", "eth0", mode, "object", path, "program", "dp_raw")
    told = re.search(r"detach it \((.*?)\)", pair.a.refusal("afxdp:eth0"))
    assert told
    pair.a.run(*told[1].split())
    pair.a.tool("afxdp:eth0", "hold").report()


LINKED = """
import socket, sys
from pathlib import Path
from datapath.xdp.loader import BpfObject, attach_xdp
with BpfObject(Path(sys.argv[1])) as program:
    link = attach_xdp(program.program_fd("dp_raw"), socket.if_nametoindex("eth0"))
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_who_has_the_link_of_a_foreign_xdp_program(pair: Pair) -> None:
    """It cannot be detached; it ends with the process."""
    from datapath.native import paths

    process = pair.a.popen(sys.executable, "-c", LINKED, str(paths.bpf_object("raw")))
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    told = pair.a.refusal("afxdp:eth0")
    assert "(dp_raw, id" in told
    assert "end the process that has its link (bpftool link show)" in told
    process.communicate(timeout=SECONDS)
    pair.a.tool("afxdp:eth0", "hold").report()


@pytest.mark.parametrize("violent", [False, True], ids=["closed", "killed"])
def test_nothing_is_left(pair: Pair, violent: bool) -> None:
    """The program goes with the process, and the device opens at once again."""
    for _ in range(3):
        tool = pair.a.tool("afxdp:eth0", "hold")
        assert pair.a.xdp_program() == "dp_steer"
        if violent:
            tool.kill()
        else:
            tool.report()
        deadline = time.monotonic() + 5
        while pair.a.xdp_program() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert pair.a.xdp_program() is None
    pair.a.run("ip", "link", "set", "eth0", "mtu", "1400")


@pytest.mark.parametrize("others", [1, 3, 5, 17])
def test_every_queue_is_served(make_pair: Callable[..., Pair], others: int) -> None:
    """Packets arrive on whichever queue, one or two pieces long, and wake a sleeping reader."""
    pair = make_pair(queues=1 + others)
    until = ("--count", "80", "--seconds", "15", "--idle-ms", "10000")
    receiver = pair.b.tool("afxdp:eth0", "receive", "--check", "--sleep", *until)
    for size in (64, 4096):
        send = ("send", pair.b.ipv4, "--check", "--count", "20", "--size", str(size))
        for queue in (0, others):
            pair.a.report(f"afxdp:eth0,queue={queue}", *send)
    report = receiver.report()
    assert report.info["queues"] == 1 + others
    assert (report.result["received"], report.result["in_two_pieces"]) == (80, 40)
    assert report.result["bad_pattern"] == report.result["bad_icrc"] == 0
    assert report.stats["rx_other_queue"] == report.stats["rx_malformed"] == 0


def test_each_queue_gets_its_buffers_back(make_pair: Callable[..., Pair]) -> None:
    """Far more packets than a queue has buffers (2048, two for each packet)."""
    pair = make_pair(queues=2)
    until = ("--count", "8000", "--seconds", "15", "--idle-ms", "2000")
    receiver = pair.b.tool("afxdp:eth0", "receive", "--check", *until)
    send = ("send", pair.b.ipv4, "--check", "--size", "4096", "--rate-pps", "5000")
    for queue in (0, 1):
        pair.a.report(f"afxdp:eth0,queue={queue}", *send, "--count", "4000")
    report = receiver.report()
    assert report.result["received"] + report.stats["rx_dropped"] == 8000
    assert report.result["received"] > 6000
    assert report.result["bad_pattern"] == report.result["bad_icrc"] == 0


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_packets_on_another_queue_come_by_the_kernel(
    make_pair: Callable[..., Pair], family: str
) -> None:
    """What the device gives to a queue without a socket is counted, and not lost."""
    pair = make_pair(queues=2)
    a, b = (getattr(host, family) for host in (pair.a, pair.b))
    until = ("--check", "--sleep", "--count", "20", "--seconds", "10", "--idle-ms", "9000")
    receiver = pair.b.tool(f"afxdp:eth0,queue=1,ip={b}", "receive", *until)
    pair.a.report(f"afxdp:eth0,queue=0,ip={a}", "send", b, "--count", "20", "--check")
    report = receiver.report()
    assert report.result["received"] == report.stats["rx_packets"] == 20
    assert report.result["bad_icrc"] == report.stats["rx_untimed"] == 0
    assert report.stats["rx_other_queue"] == 20


def test_kernel_keeps_its_traffic(pair: Pair) -> None:
    """ping (both families, with fragments) and TCP work while a port is open."""
    held = [host.tool("afxdp:eth0", "hold") for host in (pair.a, pair.b)]
    for peer in (pair.b.ipv4, pair.b.ipv6):
        pair.a.run("ping", "-c", "3", "-i", "0.01", "-W", "2", peer)
    pair.a.run("ping", "-c", "2", "-i", "0.01", "-W", "2", "-s", "20000", pair.b.ipv4)
    server = pair.b.popen("iperf3", "-s", "-1", "-p", "5999", "--forceflush")
    assert server.stdout
    server.stdout.readline()
    time.sleep(0.2)
    pair.a.run("iperf3", "-c", pair.b.ipv4, "-p", "5999", "-n", "20M")
    server.communicate(timeout=20)
    for tool in held:
        assert tool.report().stats["rx_packets"] == 0


@pytest.mark.parametrize("spec", ["afxdp:eth0", "udp:eth0"])
@pytest.mark.parametrize(
    ("peer", "told"),
    [
        ("255.255.255.255", "Invalid argument"),
        ("240.0.0.1", "Invalid argument"),
        ("0.0.0.0", "Invalid argument"),
        ("198.51.100.1", "Network is unreachable"),
        ("fd12:3::2", "Address family not supported by protocol"),
    ],
)
def test_unreachable_peers(pair: Pair, spec: str, peer: str, told: str) -> None:
    assert pair.a.report(spec, "resolve", peer).result["error_text"] == told


def test_neighbour_that_is_not_there(pair: Pair) -> None:
    """The kernel asks for longer than the port waits."""
    assert pair.a.report("afxdp:eth0", "resolve", "10.123.0.99").result["error_text"] == (
        "Resource temporarily unavailable"
    )


def test_next_hop_of_a_route(pair: Pair) -> None:
    """A peer behind a gateway is reached by the gateway's link address."""
    pair.a.run("ip", "route", "add", "198.51.100.0/24", "via", pair.b.ipv4)
    pair.b.run("ip", "address", "add", "198.51.100.1/32", "dev", "eth0")
    echo = pair.b.tool("afxdp:eth0,ip=198.51.100.1", "echo", "--check", "--idle-ms", "300")
    ping = pair.a.report("afxdp:eth0", "ping", "198.51.100.1", "--count", "20", "--check")
    assert ping.result["received"] == 20
    assert echo.report().result["bad_icrc"] == 0


def test_ipv6_next_hop_of_an_ipv4_route(pair: Pair) -> None:
    """Both ways, so that no host asks by ARP."""
    tentative = ("ip", "address", "show", "dev", "eth0", "tentative")
    for host in (pair.a, pair.b):
        wait_until(lambda host=host: not host.run(*tentative), "the kernel may solicit by IPv6")
    pair.a.run("ip", "route", "add", "198.51.100.0/24", "via", "inet6", pair.b.ipv6)
    pair.b.run("ip", "route", "add", f"{pair.a.ipv4}/32", "via", "inet6", pair.a.ipv6)
    pair.b.run("ip", "address", "add", "198.51.100.1/32", "dev", "eth0")
    echo = pair.b.tool("udp:198.51.100.1", "echo", "--check", "--idle-ms", "300")
    ping = pair.a.report("afxdp:eth0", "ping", "198.51.100.1", "--count", "20", "--check")
    assert ping.result["received"] == 20
    assert echo.report().result["bad_icrc"] == 0


def test_a_quiet_peer_with_a_new_link_address(pair: Pair) -> None:
    """The kernel verifies the old one, and so finds the new one, though it sends nothing itself."""

    def state() -> str:
        show = ("ip", "-j", "neighbour", "show", pair.b.ipv4, "dev", "eth0")
        return str(json.loads(pair.a.run(*show))[0]["state"][0])

    for parameter in ("delay_first_probe_time=1", "retrans_time_ms=10"):
        pair.a.run("sysctl", "-q", f"net.ipv4.neigh.eth0.{parameter}")
    pair.b.run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
    old = ("lladdr", "02:00:00:00:00:66", "dev", "eth0", "nud", "stale")
    pair.a.run("ip", "neighbour", "replace", pair.b.ipv4, *old)
    assert pair.a.report("afxdp:eth0", "resolve", pair.b.ipv4).result["error"] == 0
    wait_until(lambda: state() in ("FAILED", "REACHABLE"), "the old address is verified")
    echo = pair.b.tool("udp:eth0", "echo", "--check", "--idle-ms", "300")
    ping = pair.a.report("afxdp:eth0", "ping", pair.b.ipv4, "--count", "20", "--check")
    assert ping.result["received"] == 20
    assert echo.report().result["bad_icrc"] == 0
