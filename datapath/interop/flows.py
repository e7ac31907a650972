# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The flows of a capture as a traffic table.

A flow is what one end of a connection (addresses, protocol, ports; for RoCEv2 the QPN of the
destination) sends without a pause.  Its bytes are payload: behind the headers of TCP and UDP, for
RoCEv2 between BTH and ICRC.  Acknowledgements and CNPs have none, and are passed over.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datapath.errors import LocalError
from datapath.interop.capture import ROCE_PORT, frames

_ETHERNET, _IPV4, _IPV6, _VLAN = 14, 0x0800, 0x86DD, 0x8100
_TCP, _UDP = 6, 17
_BTH, _ICRC = 12, 4
_ROCE_WITHOUT_DATA = (0x11, 0x81)
"""Opcodes ACKNOWLEDGE of RC, and CNP."""


@dataclass
class _Burst:
    start_ns: int
    last_ns: int
    bytes: int


@dataclass(frozen=True)
class Captured:
    """flows: the table, whose times begin with the first packet.  hosts: addresses, by number."""

    flows: Any
    hosts: list[str]


def read(path: Path, *, gap_ns: int) -> Captured:
    """The flows of a pcap or pcapng file of Ethernet frames.

    gap_ns: a longer pause ends a flow, and the next packet begins another one.  LocalError when
    the file is no capture, or when no packet has payload.
    """
    done: list[tuple[tuple[Any, ...], _Burst]] = []
    open_: dict[tuple[Any, ...], _Burst] = {}
    for time_ns, key, size in _payloads(path):
        burst = open_.get(key)
        if burst is not None and time_ns - burst.last_ns <= gap_ns:
            burst.last_ns, burst.bytes = max(time_ns, burst.last_ns), burst.bytes + size
            continue
        if burst is not None:
            done.append((key, burst))
        open_[key] = _Burst(time_ns, time_ns, size)
    done += open_.items()
    if not done:
        raise LocalError(f"{path}: no packet of TCP or UDP has payload")
    return _table(sorted(done, key=lambda one: one[1].start_ns))


def _table(bursts: list[tuple[tuple[Any, ...], _Burst]]) -> Captured:
    from datapath.fabric import flows as table
    from datapath.fabric.flows import MESSAGE_MAX

    hosts: dict[str, int] = {}
    qps: dict[tuple[Any, ...], int] = {}
    of_pair: Counter[tuple[str, str]] = Counter()
    flows = table.empty(len(bursts))
    first = bursts[0][1].start_ns
    for row, (key, burst) in zip(flows, bursts, strict=True):
        src, dst = (hosts.setdefault(address, len(hosts)) for address in key[:2])
        if key not in qps:
            qps[key] = of_pair[key[:2]]
            of_pair[key[:2]] += 1
        row["src"], row["dst"], row["qp"] = src, dst, qps[key]
        row["start_ns"], row["bytes"] = burst.start_ns - first, burst.bytes
        row["message_bytes"] = 2**20 if burst.bytes > MESSAGE_MAX else 0
    return Captured(flows, list(hosts))


def _payloads(path: Path) -> Iterator[tuple[int, tuple[Any, ...], int]]:
    """(time, connection, bytes of payload) of the packets that have some."""
    for frame, _, time_ns, _ in frames(path):
        found = _payload(frame)
        if found is not None and found[1] > 0:
            yield time_ns, *found


def _payload(frame: bytes) -> tuple[tuple[Any, ...], int] | None:
    at, kind = _ETHERNET, int.from_bytes(frame[12:14], "big")
    if kind == _VLAN:
        at, kind = at + 4, int.from_bytes(frame[16:18], "big")
    packet = frame[at:]
    if kind == _IPV4 and len(packet) >= 20:
        if int.from_bytes(packet[6:8], "big") & 0x1FFF:
            return None
        head, protocol = (packet[0] & 15) * 4, packet[9]
        length, addresses = (
            int.from_bytes(packet[2:4], "big") - head,
            (packet[12:16], packet[16:20]),
        )
    elif kind == _IPV6 and len(packet) >= 40:
        head, protocol = 40, packet[6]
        length, addresses = int.from_bytes(packet[4:6], "big"), (packet[8:24], packet[24:40])
    else:
        return None
    ends = tuple(str(ipaddress.ip_address(address)) for address in addresses)
    return _transport(ends, protocol, packet[head:], length)


def _transport(
    ends: tuple[str, ...], protocol: int, datagram: bytes, length: int
) -> tuple[tuple[Any, ...], int] | None:
    """length: of the datagram on the wire, of which less may have been captured."""
    ports = (int.from_bytes(datagram[:2], "big"), int.from_bytes(datagram[2:4], "big"))
    if protocol == _TCP and len(datagram) >= 13:
        return (*ends, protocol, *ports), length - (datagram[12] >> 4) * 4
    if protocol != _UDP or len(datagram) < 8:
        return None
    if ports[1] != ROCE_PORT:
        return (*ends, protocol, *ports), length - 8
    if len(datagram) < 8 + _BTH or datagram[8] in _ROCE_WITHOUT_DATA:
        return None
    qpn = int.from_bytes(datagram[13:16], "big")
    return (*ends, "roce", qpn), length - 8 - _BTH - _ICRC
