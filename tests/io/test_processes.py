# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Several processes on one UDP address, told apart by the top bits of the QPN."""

from __future__ import annotations

from .conftest import Host, Pair, Report, Tool


def qpn(slot: int) -> str:
    return hex(slot << 16 | 0x11)


def receivers(host: Host, count: int, seconds: int = 8) -> list[Tool]:
    options = ("--sleep", "--check", "--idle-ms", "800", "--seconds", str(seconds))
    return [host.tool("udp:eth0", "receive", *options) for _ in range(count)]


def send(pair: Pair, slot: int, count: int, *options: str) -> None:
    pair.a.report(
        "udp:eth0", "send", pair.b.ipv4, "--count", str(count), "--qpn", qpn(slot), "--check",
        "--rate-pps", "5000", *options,
    )  # fmt: skip


def assert_got(report: Report, slot: int, count: int) -> None:
    assert report.info["qpn_prefix"] == slot
    assert report.result["received"] == report.result["in_order"] == count
    assert report.result["bad_icrc"] == report.stats["rx_dropped"] == 0


def test_each_process_gets_its_own(pair: Pair) -> None:
    tools = receivers(pair.b, 3)
    for slot in (2, 0, 1):
        send(pair, slot, 100 + slot)
    for slot, tool in enumerate(tools):
        report = tool.report()
        assert_got(report, slot, 100 + slot)
        assert report.stats["rx_misdirected"] == 0


def test_first_process_dies(pair: Pair) -> None:
    """The kernel then numbers the sockets anew; what goes astray is handed on."""
    first, *others = receivers(pair.b, 3)
    first.kill()
    for slot in (1, 2):
        send(pair, slot, 200)
    send(pair, 2, 200, "--opcode", "0x04")
    reports = [tool.report() for tool in others]
    got = {report.info["qpn_prefix"]: report for report in reports}
    assert_got(got[1], 1, 200)
    assert got[2].result["received"] == 400
    assert got[2].result["bad_icrc"] == got[2].stats["rx_dropped"] == 0


def test_slot_of_a_dead_process_is_taken_again(pair: Pair) -> None:
    tools = receivers(pair.b, 3)
    tools[0].kill()
    (again,) = receivers(pair.b, 1)
    for slot in range(3):
        send(pair, slot, 300)
    reports = [tool.report() for tool in (again, tools[1], tools[2])]
    for slot, report in enumerate(reports):
        assert_got(report, slot, 300)
    assert sum(report.stats["rx_misdirected"] for report in reports) > 0


def test_qpn_that_nobody_owns(pair: Pair) -> None:
    """Reaches some process, whose engine counts it as for an unknown QPN."""
    tools = receivers(pair.b, 2, seconds=2)
    send(pair, 77, 50)
    reports = [tool.report() for tool in tools]
    assert sum(report.result["received"] for report in reports) == 50
    assert sum(report.stats["rx_misdirected"] for report in reports) == 0
