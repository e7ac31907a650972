# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A peer that falls silent and a device that is gone: what is lost, and what goes on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def send(bench: Bench, sender: str, receiver: str, count: int) -> None:
    """So many datagrams of a recovered class."""
    with bench.guests[sender].udp() as sock:
        for _ in range(count):
            sock.sendto(bytes(100), (bench.guests[receiver].ipv4, ROCE_PORT))


def test_a_tunnel_to_a_silent_peer_ends_and_the_card_goes_on(
    stack: contextlib.ExitStack,
) -> None:
    """As a host does that loses its power: nothing answers, and nothing refuses."""
    bench = Bench(stack)
    file = CardFile.model_validate(bench.data)
    silent = bench.hosts[1].namespace.in_network(
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    )
    silent.bind((bench.hosts[1].endpoint.ipv4, ROCE_PORT))
    program = Program(bench.starter(0), file.settings("host0", file.compiled_cc(Path())))
    stack.callback(program.close)
    bench.programs.append(program)
    program.offer(1)
    program.connect(1, [PipeEnd(100 + pipe, 5) for pipe in range(file.pipes)])
    send(bench, "blue0", "blue1", 5)
    wait_until(lambda: program.state() == {"host1": "broken"}, "the tunnel has ended")
    counters = program.counters()
    assert counters["hosts"]["host1"]["aborted"] == 5
    assert counters["guests"]["blue0"]["held_chunks"] == 0
    send(bench, "blue0", "blue1", 3)
    wait_until(lambda: bench.counts("blue0")["no_tunnel"] == 3, "there is no tunnel")

    # The host is back: another tunnel carries frames.
    silent.close()
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
    rounds, each = 30, 100
    for number in range(1, rounds + 1):
        send(bench, "blue1", "blue0", each)
        wait_until(
            lambda: bench.from_peer(0)["rx_recovered"] == number * each,  # noqa: B023
            "the other card has them",
        )
    counts = bench.counts("blue0")
    assert counts["tx_frames"] - before["tx_frames"] == DELIVERED
    assert counts["overrun"] == rounds * each - DELIVERED
    left = int(bench.programs[0].counters()["network"]["free_chunks"])
    assert free - left <= DELIVERED + 256  # the fill rings of both devices are filled by eighths
    assert bench.guests["red0"].ping(bench.guests["red1"].ipv4)
