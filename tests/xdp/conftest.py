# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A network, and packets of one's own making through it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from datapath.lanes.local import link_address
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology

_ETH_P_ALL = 3
_ETH_P_END = 0x88B6  # for experiments (IEEE 802)
_BATCH = 50  # veth's ring holds 256
_SO_RCVBUFFORCE = 33
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23


@dataclass
class Wire:
    """Raw frames from host 0 to host 1 (forward) and back, through the middle."""

    network: NetnsNetwork
    sockets: list[socket.socket]

    def send(self, frames: list[bytes], direction: str = "forward") -> list[bytes]:
        """Send frames and return those that arrive, in order.

        The last one is followed by a frame that nothing can drop; what has not
        come before that one does not come.
        """
        source, sink = self.sockets if direction == "forward" else self.sockets[::-1]
        end = ethernet(_ETH_P_END, b"end".ljust(46), 0 if direction == "forward" else 1)
        sink.settimeout(10)
        arrived: list[bytes] = []
        for start in range(0, len(frames), _BATCH):
            for frame in [*frames[start : start + _BATCH], end]:
                source.send(frame)
            while (frame := sink.recv(65536)) != end:
                if frame[:12] == end[:12]:  # not one of the middle's or the host's own
                    arrived.append(frame)
        return arrived


def _raw_socket() -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    raw.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    raw.bind(("eth1", 0))
    return raw


@pytest.fixture
def wire(root: None) -> Iterator[Wire]:
    with NetnsNetwork(Topology()) as network:
        for host in network.hosts:  # kernels without an address answer nothing
            host.run(["ip", "address", "flush", "dev", "eth1"])
        network.set_path(Path(), seed=0)
        sockets = [host.namespace.in_network(_raw_socket) for host in network.hosts]
        cpus = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cpus)})  # one CPU's backlog keeps the order
        yield Wire(network, sockets)
        os.sched_setaffinity(0, cpus)
        for raw in sockets:
            raw.close()


def mac(host: int) -> bytes:
    return bytes.fromhex(link_address(host).replace(":", ""))


def ethernet(kind: int, payload: bytes, source: int = 0) -> bytes:
    return mac(1 - source) + mac(source) + struct.pack(">H", kind) + payload


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(payload: bytes, *, protocol: int = 17, tos: int = 0, source: int = 0) -> bytes:
    """An Ethernet frame with an IPv4 packet from host `source` to the other."""
    addresses = [bytes([198, 18, 0, 1]), bytes([198, 18, 0, 2])]
    ends = addresses[source] + addresses[1 - source]
    head = struct.pack(">BBHHHBB", 0x45, tos, 20 + len(payload), 0, 0x4000, 64, protocol)
    check = struct.pack(">H", checksum(head + b"\0\0" + ends))
    return ethernet(0x0800, head + check + ends + payload, source)


def ipv6(payload: bytes, *, protocol: int = 17, traffic_class: int = 0) -> bytes:
    """An Ethernet frame with an IPv6 packet from host 0 to host 1."""
    ends = [socket.inet_pton(socket.AF_INET6, f"2001:2::{n}") for n in (1, 2)]
    word = 6 << 28 | traffic_class << 20
    head = struct.pack(">IHBB", word, len(payload), protocol, 64) + ends[0] + ends[1]
    return ethernet(0x86DD, head + payload)


def udp(payload: bytes, port: int = 9) -> bytes:
    """A UDP datagram without checksum."""
    return struct.pack(">HHHH", 0xC000, port, 8 + len(payload), 0) + payload


def roce(qpn: int, psn: int, payload: bytes = b"", opcode: int = 0x04) -> bytes:
    """A RoCEv2 datagram: UDP, BTH, payload, and room for the ICRC."""
    bth = struct.pack(">BBHII", opcode, 0, 0xFFFF, qpn, psn)
    return udp(bth + payload + b"ICRC", 4791)
