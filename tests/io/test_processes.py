# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Several processes on one UDP address, told apart by the top bits of the QPN: io/udp_steer.h."""

from __future__ import annotations

import ipaddress
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import Host, Pair, Report, Tool, send_to_slot, tool_path, unprivileged


def receivers(
    host: Host, count: int, seconds: int = 8, *, before: tuple[str, ...] = ()
) -> list[Tool]:
    options = ("--sleep", "--check", "--idle-ms", "800", "--seconds", str(seconds))
    return [host.tool("udp:eth0", "receive", *options, before=before) for _ in range(count)]


@pytest.fixture(params=["by map", "by number"])
def before(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """In front of receivers: without privileges, they have no map of sockets."""
    return unprivileged() if request.param == "by number" else ()


def send(pair: Pair, slot: int, count: int, *options: str) -> None:
    send_to_slot(pair, "udp:eth0", slot, count, *options)


def assert_got(report: Report, slot: int, count: int) -> None:
    assert report.info["qpn_prefix"] == slot
    assert report.result["received"] == report.result["in_order"] == count
    assert report.result["bad_icrc"] == report.stats["rx_dropped"] == 0


def test_each_process_gets_its_own(pair: Pair, before: tuple[str, ...]) -> None:
    tools = receivers(pair.b, 3, before=before)
    for slot in (2, 0, 1):
        send(pair, slot, 100 + slot)
    for slot, tool in enumerate(tools):
        report = tool.report()
        assert_got(report, slot, 100 + slot)
        assert report.stats["rx_misdirected"] == 0


def test_first_process_dies(pair: Pair, before: tuple[str, ...]) -> None:
    """The kernel then numbers the sockets anew; what goes astray is handed on."""
    first, *others = receivers(pair.b, 3, before=before)
    first.kill()
    for slot in (1, 2):
        send(pair, slot, 200)
    send(pair, 2, 200, "--opcode", "0x04")
    reports = [tool.report() for tool in others]
    got = {report.info["qpn_prefix"]: report for report in reports}
    assert_got(got[1], 1, 200)
    assert got[2].result["received"] == 400
    assert got[2].result["bad_icrc"] == got[2].stats["rx_dropped"] == 0


def test_slot_of_a_dead_process_is_taken_again(pair: Pair, before: tuple[str, ...]) -> None:
    tools = receivers(pair.b, 3, before=before)
    tools[0].kill()
    (again,) = receivers(pair.b, 1, before=before)
    for slot in range(3):
        send(pair, slot, 300)
    reports = [tool.report() for tool in (again, tools[1], tools[2])]
    for slot, report in enumerate(reports):
        assert_got(report, slot, 300)
    astray = sum(report.stats["rx_misdirected"] for report in reports)
    assert (astray > 0) == bool(before)


def test_a_stopped_process_holds_up_no_other(pair: Pair) -> None:
    """Its socket has the number that the first one had, and with it that one's slot."""
    first, second = receivers(pair.b, 2, seconds=5)
    first.kill()
    (again,) = receivers(pair.b, 1)
    second.process.send_signal(signal.SIGSTOP)
    send(pair, 0, 300)
    assert_got(again.report(), 0, 300)
    second.process.send_signal(signal.SIGCONT)
    assert second.report().result["received"] == 0


def map_of(host: Host) -> list[int]:
    """Ids of the map of sockets that the host's IPv4 address has, if any."""
    inode = Path("/run/netns", host.namespace).stat().st_ino
    address = bytes(10) + b"\xff\xff" + ipaddress.ip_address(host.ipv4).packed
    name = 0xCBF29CE484222325
    for byte in inode.to_bytes(8, "little") + address:  # FNV-1a
        name = (name ^ byte) * 0x100000001B3 & (1 << 64) - 1
    told = json.loads(host.run("bpftool", "-j", "map", "list"))
    return [one["id"] for one in told if one.get("name") == f"dps_{name & (1 << 40) - 1:010x}"]


def test_nothing_is_left_in_the_kernel(pair: Pair) -> None:
    """Three processes have one map, which goes with the last of them, killed or not."""
    tools = receivers(pair.b, 3)
    assert len(map_of(pair.b)) == 1
    for tool in tools:
        tool.kill()
    limit = time.monotonic() + 10
    while map_of(pair.b):  # the kernel frees it a moment later
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_qpn_that_nobody_owns(pair: Pair) -> None:
    """Reaches some process, whose engine counts it as for an unknown QPN."""
    tools = receivers(pair.b, 2, seconds=2)
    send(pair, 77, 50)
    reports = [tool.report() for tool in tools]
    assert sum(report.result["received"] for report in reports) == 50
    assert sum(report.stats["rx_misdirected"] for report in reports) == 0


SQUATTER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
held = []
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    for name in sys.argv[1:]:
        sock = socket.socket(socket.AF_UNIX, kind)
        sock.bind("\\0" + name)
        if kind != socket.SOCK_DGRAM:
            sock.listen()
        sock.setblocking(False)
        held.append(sock)
print("ready", flush=True)
sys.stdin.read()
for sock in held:
    try:
        peer = sock if sock.type == socket.SOCK_DGRAM else sock.accept()[0]
        peer.setblocking(False)
        if data := peer.recv(65536):
            sys.exit(f"got {len(data)} bytes")
    except (BlockingIOError, ConnectionError):
        pass
"""


def name_of(host: Host, slot: int) -> str:
    """The abstract name of a slot that a process holds."""
    names = re.findall(rf"@(datapath-udp:\S+:{slot})$", host.run("cat", "/proc/net/unix"), re.M)
    assert names
    return str(names[0])


def squat(host: Host, *names: str) -> subprocess.Popen[bytes]:
    """Another user takes names; ends with 0 if nobody sent it anything."""
    process = host.popen(sys.executable, "-c", SQUATTER, *names)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return process


def assert_got_nothing(squatter: subprocess.Popen[bytes]) -> None:
    _, error = squatter.communicate(timeout=20)
    assert (squatter.returncode, error) == (0, b"")


def test_names_that_another_user_holds_keep_nobody_out(pair: Pair) -> None:
    (first,) = receivers(pair.b, 1)
    lock = name_of(pair.b, 0).rpartition(":")[0] + ":lock"
    first.kill()
    squatter = squat(pair.b, lock, *(lock.replace("lock", str(slot)) for slot in range(3)))
    tools = receivers(pair.b, 2)
    for slot in (3, 4):
        send(pair, slot, 200)
    for slot, tool in enumerate(tools, 3):
        assert_got(tool.report(), slot, 200)
    assert_got_nothing(squatter)


def test_another_user_gets_no_payload(pair: Pair) -> None:
    """Packets to a slot whose owner has died, and whose name another user has taken."""
    first, *others = receivers(pair.b, 3)
    name = name_of(pair.b, 0)
    first.kill()
    squatter = squat(pair.b, name)
    send(pair, 0, 200)
    reports = [tool.report() for tool in others]
    assert sum(report.result["received"] for report in reports) == 200
    assert sum(report.stats["rx_misdirected"] for report in reports) == 0
    assert_got_nothing(squatter)


INTRUDER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.connect("\\0" + sys.argv[1])
        for _ in range(5):
            sock.send(bytes(16) + bytes([0, 0, 0, 0, 64, 0, 0, 0]) + bytes(64))
    except OSError:
        pass  # of another kind, or hung up on
"""


def test_another_user_hands_on_nothing(pair: Pair) -> None:
    (tool,) = receivers(pair.b, 1)
    pair.b.run(sys.executable, "-c", INTRUDER, name_of(pair.b, 0))
    send(pair, 0, 100)
    assert_got(tool.report(), 0, 100)


def test_a_stopped_owner_holds_up_nobody(pair: Pair) -> None:
    """What goes astray to it is dropped once its queue is full; the others get theirs."""
    first, second, third = receivers(pair.b, 3, seconds=15, before=unprivileged())
    first.kill()  # the kernel numbers the sockets anew: third, second
    third.process.send_signal(signal.SIGSTOP)
    send(pair, 2, 5000, "--rate-pps", "0")
    send(pair, 1, 200)
    third.process.send_signal(signal.SIGCONT)
    assert second.report().result["received"] == 200
    third.report()


@pytest.mark.parametrize("locked", [False, True], ids=["free", "lock held by another user"])
def test_many_that_open_at_once_get_a_slot_each(pair: Pair, locked: bool) -> None:
    if locked:
        squat(pair.b, f"datapath-udp:{pair.b.ipv4}:lock")
    command = (str(tool_path()), "udp:eth0", "hold")
    tools = [Tool(process) for process in [pair.b.popen(*command) for _ in range(12)]]
    assert {tool.report().info["qpn_prefix"] for tool in tools} == set(range(12))
