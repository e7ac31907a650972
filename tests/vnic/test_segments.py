# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TCP of guests whose full frames fill whole packets of the tunnel."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from tests.vnic.bench import Bench, frames
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

MTU = 4400
RECOVERED, PLAIN, STORAGE = 7000, 7001, 7002
ETH_LEN, TCP_LEN, TIMESTAMPS = 14, 20, 12
IP_LEN = {4: 20, 6: 40}
# A thousand frames: the network loses some of them but once in ten thousand runs.
DATA = bytes(range(251)) * (1 << 14)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    path = {"backend": "fabric", "rate": "200mbit", "delay": "1ms", "queue": "1MiB", "loss": "1%"}
    with contextlib.ExitStack() as stack:
        made = Bench(
            stack,
            path=path,
            topology={"mtu": MTU},
            mtu=MTU,
            recover={"tcp": [RECOVERED]},
            classes={"storage": {"tcp": [STORAGE]}, "other": {}},
        )
        made.start(stack)
        for host in range(2):
            wait_until(
                lambda host=host: made.from_peer(host)["extended"] == 4,  # type: ignore[misc]
                "the tunnel's packets are as long as the network lets them be",
            )
        yield made


@dataclass
class Segments:
    """Largest segments of both ends of a connection, without options."""

    client: int
    server: int


def connect(bench: Bench, port: int, version: int, data: bytes = b"x") -> Segments:
    """A connection from blue0 to blue1, over which the data arrive as they were sent."""
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    where = (blue1.address(version), port)
    got = bytearray()
    found: list[int] = []

    def segment(connection: socket.socket) -> int:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) + TIMESTAMPS

    def receive() -> None:
        connection, _ = listener.accept()
        with connection:
            while part := connection.recv(1 << 16):
                got.extend(part)
            found.append(segment(connection))

    with blue1.space.in_network(lambda: socket.create_server(where, family=family)) as listener:
        thread = threading.Thread(target=receive)
        thread.start()
        with blue0.space.in_network(lambda: socket.create_connection(where, 20)) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            thread.join(60)
            found.append(segment(client))
    assert bytes(got) == data
    server, own = found
    return Segments(own, server)


def room(bench: Bench) -> int:
    """Bytes of a frame that fill a packet of the tunnel."""
    return connect(bench, RECOVERED, 4).client + TCP_LEN + IP_LEN[4] + ETH_LEN


@pytest.mark.parametrize("version", [4, 6])
def test_full_frames_of_a_recovered_connection_take_one_packet_each(
    bench: Bench, version: int
) -> None:
    before = bench.from_peer(0)
    segments = connect(bench, RECOVERED, version, DATA)
    longest = MTU - IP_LEN[version] - TCP_LEN
    assert segments.client == segments.server
    assert 0.9 * longest < segments.client < longest
    now = bench.from_peer(0)
    count = {name: now[name] - before[name] for name in ("packets", "retransmits", "tx_recovered")}
    assert count["retransmits"] > 0, "the network lost none: the test is void"
    assert count["tx_recovered"] >= len(DATA) / segments.client
    assert count["packets"] - count["retransmits"] == count["tx_recovered"]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("port", [PLAIN, STORAGE], ids=["in no list", "a class without recovery"])
def test_other_connections_keep_their_segments(bench: Bench, port: int, version: int) -> None:
    longest = MTU - IP_LEN[version] - TCP_LEN
    assert connect(bench, port, version) == Segments(longest, longest)


def frame(bench: Bench, payload: Packet, length: int) -> bytes:
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    made = Ether(src=blue0.mac, dst=blue1.mac) / IP(src=blue0.ipv4, dst=blue1.ipv4) / payload
    return bytes(made / bytes([0xAA] * (length - len(made))))


@pytest.mark.parametrize(
    ("lacks", "port", "added"),
    [
        (0, RECOVERED, 0),
        (1, RECOVERED, 1),
        (16, RECOVERED, 16),
        (17, RECOVERED, 0),
        (-1, RECOVERED, 0),
        (4, PLAIN, 0),
    ],
)
def test_a_frame_that_lacks_a_few_bytes_to_a_packet_gets_them(
    bench: Bench, lacks: int, port: int, added: int
) -> None:
    """They lie behind its IP packet, which stays as it is, and tell nothing of other frames."""
    sent = frame(bench, TCP(sport=port, dport=9, flags="A", seq=lacks + 99), room(bench) - lacks)
    got: list[bytes] = []
    with bench.guests["blue0"].raw() as sender, bench.guests["blue1"].raw() as receiver:

        def arrives() -> bool:
            # What is not recovered may be lost.
            if port == PLAIN or not got:
                sender.send(sent)
            got.extend(f for f in frames(receiver) if f[:54] == sent[:54])
            return bool(got)

        wait_until(arrives, "the frame arrives")
    assert got[0] == sent + bytes(added)


def test_datagrams_are_never_filled_up(bench: Bench) -> None:
    """Only TCP is: RoCE ends its packets where a device expects its ICRC."""
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    sent = frame(bench, UDP(sport=5000, dport=RECOVERED), room(bench) - 4)
    got: list[bytes] = []
    with blue0.raw() as sender, blue1.raw() as receiver:

        def arrives() -> bool:
            sender.send(sent)
            got.extend(f for f in frames(receiver) if f[:42] == sent[:42])
            return bool(got)

        wait_until(arrives, "the datagram arrives")
    assert got[0] == sent
