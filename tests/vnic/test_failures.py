# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A peer that falls silent and a device that is gone: what is lost, and what goes on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.errors import RemoteError
from datapath.vnic import program as program_module
from datapath.vnic.program import PipeEnd, Program
from datapath.vnic.spec import CardFile
from tests.vnic.bench import Bench
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

ROCE_PORT = 4791
DELIVERED = 1024
"""As vnic/card.h has it."""


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def send(bench: Bench, sender: str, receiver: str, count: int, payload: bytes = bytes(100)) -> None:
    """So many datagrams of a recovered class."""
    with bench.guests[sender].udp() as sock:
        for _ in range(count):
            sock.sendto(payload, (bench.guests[receiver].ipv4, ROCE_PORT))


def send_all(bench: Bench, count: int) -> None:
    """Send datagrams to blue0, all of which reach its card."""
    each = 100
    for number in range(each, count + 1, each):
        send(bench, "blue1", "blue0", each)
        wait_until(
            lambda: bench.from_peer(0)["rx_recovered"] == number,  # noqa: B023
            "the other card has them",
        )


def start_one(stack: contextlib.ExitStack, bench: Bench) -> tuple[Program, list[PipeEnd]]:
    """The card of host 0 alone, and ends of pipes that a peer could have."""
    file = CardFile.model_validate(bench.data)
    program = Program(bench.starter(0), file.settings("host0", file.compiled_cc(Path())))
    stack.callback(program.close)
    bench.programs.append(program)
    program.offer(1)
    return program, [PipeEnd(100 + pipe, 5) for pipe in range(file.pipes)]


def test_a_tunnel_to_a_silent_peer_ends_and_the_card_goes_on(
    stack: contextlib.ExitStack,
) -> None:
    """As a host does that loses its power: nothing answers, and nothing refuses."""
    bench = Bench(stack)
    silent = bench.hosts[1].namespace.in_network(
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    )
    silent.bind((bench.hosts[1].endpoint.ipv4, ROCE_PORT))
    program, ends = start_one(stack, bench)
    program.connect(1, ends)
    send(bench, "blue0", "blue1", 5)
    wait_until(lambda: program.state() == {"host1": "broken"}, "the tunnel has ended")
    counters = program.counters()
    assert counters["hosts"]["host1"]["aborted"] == 5
    assert counters["guests"]["blue0"]["held_chunks"] == 0
    send(bench, "blue0", "blue1", 3)
    wait_until(lambda: bench.counts("blue0")["no_tunnel"] == 3, "there is no tunnel")

    # The host is back: another tunnel carries frames.
    silent.close()
    file = CardFile.model_validate(bench.data)
    peer = Program(bench.starter(1), file.settings("host1", file.compiled_cc(Path())))
    stack.callback(peer.close)
    ends = program.offer(1)
    program.connect(1, peer.offer(1))
    peer.connect(1, ends)
    with bench.guests["blue1"].udp(ROCE_PORT) as receiver:
        send(bench, "blue0", "blue1", 1)
        assert receiver.recv(9000) == bytes(100)


@pytest.mark.parametrize("change", [["delete", "blue0"], ["set", "blue0", "down"]])
def test_a_device_that_sends_nothing_has_only_its_own_chunks(
    stack: contextlib.ExitStack, change: list[str]
) -> None:
    bench = Bench(stack)
    bench.start(stack)
    bench.hosts[0].namespace.check_output(["ip", "link", *change])
    before = bench.counts("blue0")
    free = int(bench.programs[0].counters()["network"]["free_chunks"])
    send_all(bench, 3000)
    counts = bench.counts("blue0")
    assert counts["tx_frames"] - before["tx_frames"] == DELIVERED
    assert counts["overrun"] == 3000 - DELIVERED
    left = int(bench.programs[0].counters()["network"]["free_chunks"])
    assert free - left <= DELIVERED + 256  # the fill rings of both devices are filled by eighths
    assert bench.guests["red0"].ping(bench.guests["red1"].ipv4)


def test_a_device_that_is_up_again_gets_frames(stack: contextlib.ExitStack) -> None:
    """Also when as many as a device may have came for it while it was down."""
    bench = Bench(stack)
    bench.start(stack)
    receiver = stack.enter_context(bench.guests["blue0"].udp(ROCE_PORT))
    receiver.setblocking(False)
    bench.hosts[0].namespace.check_output(["ip", "link", "set", "blue0", "down"])
    send_all(bench, 1100)
    assert bench.counts("blue0")["overrun"] > 0
    bench.hosts[0].namespace.check_output(["ip", "link", "set", "blue0", "up"])

    def hears() -> bool:
        send(bench, "blue1", "blue0", 1, b"up again")
        with contextlib.suppress(BlockingIOError):
            while receiver.recv(9000) != b"up again":
                pass
            return True
        return False

    wait_until(hears, "the guest hears what came after its device was up")


def test_a_peer_whose_link_address_is_not_known_at_once(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card asks for it and does not wait, and its starter asks again."""
    bench = Bench(stack)
    bench.data["hosts"]["host0"]["port"] = "afxdp:eth1"
    address, peer = bench.hosts[1].endpoint.ipv4, bench.hosts[1].namespace
    peer.check_output(["sysctl", "-q", "net.ipv4.conf.eth1.arp_ignore=8"])
    forget = ["ip", "neighbour", "delete", address, "dev", "eth1"]
    bench.hosts[0].namespace.check_output(forget)
    program, ends = start_one(stack, bench)
    with monkeypatch.context() as hasty:
        hasty.setattr(program_module, "_ROUTE_S", 0.0)
        with pytest.raises(RemoteError, match=f"{address}: its link address is not known"):
            program.connect(1, ends)
    peer.check_output(["sysctl", "-q", "net.ipv4.conf.eth1.arp_ignore=0"])
    program.connect(1, ends)
    assert program.state() == {"host1": "up"}
