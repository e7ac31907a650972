# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Frames of guests through two cards over a network that loses, reorders and duplicates."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.vnic.bench import Bench
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

ROUGH = {
    "backend": "fabric",
    "rate": "1gbit",
    "delay": "100us",
    "queue": "1MiB",
    "loss": "2%",
    "reorder": "1%",
    "duplicate": "1%",
}
TCP_PORT = 7000
ROCE_PORT = 4791


@pytest.fixture(scope="module", params=["udp", "afxdp"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with contextlib.ExitStack() as stack:
        made = Bench(stack, path=ROUGH, mtu=9000, recover={"udp": [ROCE_PORT], "tcp": [TCP_PORT]})
        if request.param == "afxdp":
            for host in made.data["hosts"].values():
                host["port"] = "afxdp:eth1"
        made.start(stack)
        yield made


def test_guests_find_each_other_by_ipv4_and_ipv6(bench: Bench) -> None:
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    assert any(blue0.ping(blue1.ipv4, "-W", "1") for _ in range(9))
    assert any(blue1.ping(blue0.ipv6, "-W", "1") for _ in range(9))
    counts = bench.counts("blue0")
    assert counts["answered"] >= 2  # the card knew the link addresses
    assert counts["plain"] >= 2


def test_datagrams_of_a_recovered_class_all_arrive_in_order(bench: Bench) -> None:
    """Each of them in two packets of the network, whose MTU is a sixth of the guests'."""
    before = bench.from_peer(0)["retransmits"]
    receiver = bench.guests["blue1"].udp(ROCE_PORT)
    sender = bench.guests["blue0"].udp()
    payload = bytes(range(256)) * 8
    count = 3000
    got: list[int] = []

    def receive() -> None:
        while len(got) < count:
            data = receiver.recv(9000)
            got.append(struct.unpack("!I", data[:4])[0])
            assert data[4:] == payload

    thread = threading.Thread(target=receive)
    thread.start()
    for number in range(count):
        sender.sendto(struct.pack("!I", number) + payload, (bench.guests["blue1"].ipv4, ROCE_PORT))
        if number % 64 == 63:  # as a QP does, this sender waits for what is under way
            wait_until(lambda: len(got) >= number - 256, "earlier datagrams arrive")  # noqa: B023
    thread.join(60)
    assert got == list(range(count))
    assert bench.from_peer(0)["retransmits"] > before, "the network lost none: the test is void"
    assert bench.from_peer(0)["aborted"] == 0
    receiver.close()
    sender.close()


@pytest.mark.parametrize("version", [4, 6])
def test_more_flows_than_pipes_each_keep_their_order(bench: Bench, version: int) -> None:
    """Forty flows in a tunnel of four QPs."""
    before = bench.from_peer(0)["retransmits"]
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    per_flow, flows = 60, 40
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(blue1.udp(ROCE_PORT, version=version))
        senders = [stack.enter_context(blue0.udp(version=version)) for _ in range(flows)]
        got: dict[int, list[int]] = {flow: [] for flow in range(flows)}
        for number in range(per_flow):
            for flow, sender in enumerate(senders):
                content = struct.pack("!II", flow, number).ljust(1000)
                sender.sendto(content, (blue1.address(version), ROCE_PORT))
            for _ in senders:  # what one round sent is there before the next
                flow, arrived = struct.unpack("!II", receiver.recv(2000)[:8])
                got[flow].append(arrived)
    assert got == {flow: list(range(per_flow)) for flow in range(flows)}
    assert bench.from_peer(0)["retransmits"] > before, "the network lost none: the test is void"


@pytest.mark.parametrize("version", [4, 6])
def test_a_tcp_stream_sees_no_loss_and_its_data_are_whole(bench: Bench, version: int) -> None:
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    where = (blue1.address(version), TCP_PORT)
    listener = blue1.space.in_network(lambda: socket.create_server(where, family=family))
    data = bytes(i * 31 % 251 for i in range(1 << 20)) * 4
    got = bytearray()

    def receive() -> None:
        connection, _ = listener.accept()
        with connection:
            while part := connection.recv(1 << 16):
                got.extend(part)

    thread = threading.Thread(target=receive)
    thread.start()
    client = blue0.space.in_network(lambda: socket.create_connection(where, 20))
    with client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        thread.join(60)
    listener.close()
    assert bytes(got) == data
    assert bench.counts("blue1")["overrun"] == bench.counts("blue0")["ring_drops"] == 0


def test_frames_of_full_mtu_without_recovery_arrive_in_pieces(bench: Bench) -> None:
    """The network's MTU is 1500: the kernel cuts VXLAN packets, as Linux's own device does."""
    blue0 = bench.guests["blue0"]
    address = bench.guests["blue1"].ipv4
    assert any(blue0.ping(address, "-W", "1", "-s", "8972", "-M", "do") for _ in range(20))


def test_nothing_is_held_when_all_is_said(bench: Bench) -> None:
    wait_until(
        lambda: all(bench.counts(f"blue{i}")["held_chunks"] == 0 for i in range(2)),
        "all chunks are back",
    )
