# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ports that serve one receive queue each of a device and share its address: io/afxdp_share.c.

A veth device gives what was sent on a queue to the same queue of its peer."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.waiting import wait_until

from .conftest import Host, Pair, Report, Tool, send_to_slot, tool_path


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair(queues=2)


def receiver(host: Host, queue: int, seconds: int = 8) -> Tool:
    options = ("--sleep", "--check", "--idle-ms", "800", "--seconds", str(seconds))
    return host.tool(f"afxdp:eth0,queue={queue}", "receive", *options)


def send(pair: Pair, queue: int, slot: int, count: int, *options: str) -> None:
    send_to_slot(pair, f"afxdp:eth0,queue={queue}", slot, count, *options)


def assert_got(report: Report, count: int, by_kernel: int = 0) -> None:
    """It received so many.  by_kernel: came to the device on other queues than their ports'."""
    assert report.result["received"] == report.result["in_order"] == count
    assert report.stats["rx_packets"] == count
    assert report.stats["rx_other_queue"] == by_kernel
    assert report.stats["rx_misdirected"] == 0
    assert report.result["bad_icrc"] == report.stats["rx_dropped"] == 0


def wait_for_no_program(host: Host) -> None:
    wait_until(lambda: host.xdp_program() is None, "the last port takes the program along")


def test_each_port_gets_its_queue(pair: Pair) -> None:
    tools = [receiver(pair.b, queue) for queue in (0, 1)]
    for queue in (0, 1):
        send(pair, queue, queue, 100 + queue)
    for queue, tool in enumerate(tools):
        report = tool.report()
        assert report.info["queues"] == 1
        assert report.info["qpn_prefix"] == queue
        assert_got(report, 100 + queue)


@pytest.mark.parametrize(
    "options",
    [(), ("--size", "4096"), ("--opcode", "0x04")],
    ids=["extended", "two pieces", "standard"],
)
def test_a_packet_on_the_wrong_queue_comes_by_the_kernel(
    pair: Pair, options: tuple[str, ...]
) -> None:
    tools = [receiver(pair.b, queue, seconds=2) for queue in (0, 1)]
    send(pair, 0, 1, 300, *options)
    first, second = [tool.report() for tool in tools]
    assert_got(first, 0, by_kernel=300)
    assert_got(second, 300, by_kernel=300)


def test_a_qpn_that_no_port_has_reaches_some_port(pair: Pair) -> None:
    """Its engine counts it as for an unknown QPN."""
    tools = [receiver(pair.b, queue, seconds=2) for queue in (0, 1)]
    send(pair, 1, 77, 50)
    reports = [tool.report() for tool in tools]
    assert sum(report.result["received"] for report in reports) == 50


def test_the_first_process_dies(pair: Pair) -> None:
    """The program stays for the others, and its queue can be had again; the last one takes it
    along."""
    first, second = [receiver(pair.b, queue) for queue in (0, 1)]
    first.kill()
    again = receiver(pair.b, 0)
    send(pair, 0, 0, 200)
    send(pair, 1, 1, 200)
    assert_got(again.report(), 200)
    assert_got(second.report(), 200)
    wait_for_no_program(pair.b)


def test_all_processes_are_killed(pair: Pair) -> None:
    for tool in [receiver(pair.b, queue) for queue in (0, 1)]:
        tool.kill()
    wait_for_no_program(pair.b)
    pair.b.tool("afxdp:eth0", "hold").report()


def test_a_stopped_process_holds_up_no_other(pair: Pair) -> None:
    """Not even on the queue of its port."""
    first, second = [receiver(pair.b, queue, seconds=3) for queue in (0, 1)]
    first.process.send_signal(signal.SIGSTOP)
    send(pair, 1, 1, 300)
    send(pair, 0, 1, 200)
    report = second.report()
    assert report.result["received"] == 500
    assert report.stats["rx_other_queue"] == 200
    first.process.send_signal(signal.SIGCONT)
    assert first.report().result["received"] == 0


def test_ports_that_are_opened_and_closed_at_the_same_time(make_pair: Callable[..., Pair]) -> None:
    """One of them attaches the program, the others join, also while it is going."""
    pair = make_pair(queues=4)
    for _ in range(5):
        started = [
            pair.b.popen(str(tool_path()), f"afxdp:eth0,queue={queue}", "hold")
            for queue in range(4)
        ]
        tools = [Tool(process) for process in started]
        assert pair.b.xdp_program() == "dp_steer"
        for tool in tools:
            tool.kill()


def test_who_has_a_queue_is_told(pair: Pair) -> None:
    held = pair.b.tool("afxdp:eth0,queue=1", "hold")
    for spec in ("afxdp:eth0,queue=1", "afxdp:eth0"):
        told = pair.b.refusal(spec)
        assert "queue 1 of eth0 is in use by process" in told, told
    held.report()
    held = pair.b.tool("afxdp:eth0", "hold")
    assert "queue 1 of eth0 is in use by process" in pair.b.refusal("afxdp:eth0,queue=1")
    held.report()


def test_any_free_queue(pair: Pair) -> None:
    """Each process gets one; when all are taken, an error says so."""
    tools = [pair.b.tool("afxdp:eth0,queue=any", "receive", "--sleep", "--check",
                         "--idle-ms", "800", "--seconds", "8") for _ in range(2)]  # fmt: skip
    told = pair.b.refusal("afxdp:eth0,queue=any")
    assert "queue 1 of eth0 is in use by process" in told, told
    assert "and so are those before it" in told, told
    for queue in (0, 1):
        send(pair, queue, queue, 100)
    for tool in tools:
        assert_got(tool.report(), 100)
    told = pair.b.refusal("afxdp:eth0,queue=some")
    assert "expected a number from 0 to 1023 or any" in told, told


def test_ports_of_a_device_have_one_address(pair: Pair) -> None:
    pair.b.run("ip", "address", "add", "10.123.0.77/24", "dev", "eth0")
    held = pair.b.tool("afxdp:eth0,queue=0", "hold")
    told = pair.b.refusal("afxdp:eth0,queue=1,ip=10.123.0.77")
    assert "eth0 has afxdp ports with another address" in told, told
    held.report()


def test_a_udp_port_at_the_address_gets_its_packets(pair: Pair) -> None:
    """All packets come to the device's queue, where the kernel takes those of the UDP port."""
    udp = pair.b.tool("udp:eth0", "receive", "--sleep", "--check", "--idle-ms", "800",
                      "--seconds", "8")  # fmt: skip
    port = receiver(pair.b, 0)
    send(pair, 0, 0, 200)
    send(pair, 0, 1, 100)
    assert_got(port.report(), 100, by_kernel=200)
    assert udp.report().result["received"] == 200
