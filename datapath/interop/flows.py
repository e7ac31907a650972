# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The flows of a capture as a traffic table.

A flow is what one end of a connection (addresses, protocol, ports; for RoCEv2 the QPN of the
destination) sends without a pause.  Its bytes are payload: behind the headers of TCP and UDP, for
RoCEv2 behind all of its headers, and what is sent again counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datapath.errors import LocalError
from datapath.interop import capture, files, frames
from datapath.interop.manager import QPN as MANAGER_QPN
from datapath.interop.opcodes import DATAGRAMS, MANUFACTURER, OPCODES, Kind
from datapath.interop.stream import SILENCE_NS, unwrap

_ANSWERS = frozenset(code for code, row in OPCODES.items() if row.kind is Kind.READ_RESPONSE)


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
    """The flows of a capture (frames.read).

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
        raise LocalError(f"{files.name_of(path)}: no packet of TCP or UDP has payload")
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
    roce = _Roce(path)
    for ip in frames.read(path):
        packet = capture.parse(ip)
        key, size = (_payload(ip) or ((), 0)) if packet is None else roce.payload(packet)
        if size > 0:
            yield ip.time_ns, key, size


def _payload(ip: frames.Ip) -> tuple[tuple[Any, ...], int] | None:
    key = (ip.src, ip.dst, ip.protocol, ip.data[:2], ip.data[2:4])
    if ip.protocol == frames.TCP and len(ip.data) >= 13:
        return key, ip.wire_bytes - (ip.data[12] >> 4) * 4
    return (key, ip.wire_bytes - 8) if ip.protocol == frames.UDP and len(ip.data) >= 8 else None


@dataclass
class _Psns:
    """Those that a sender has used, 256 of them in each number of `pages`."""

    newest: int
    last_ns: int
    pages: dict[int, int] = field(default_factory=dict)

    def add(self, psn: int) -> bool:
        """Whether it is new."""
        psn = unwrap(psn, self.newest)
        self.newest = max(self.newest, psn)
        page, bit = self.pages.get(psn >> 8, 0), 1 << (psn & 255)
        self.pages[psn >> 8] = page | bit
        return not page & bit


class _Roce:
    """Payload of RoCEv2 packets, of which each PSN counts once.

    After a silence longer than any time-out the PSNs are those of another connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._psns: dict[tuple[Any, ...], _Psns] = {}

    def payload(self, packet: capture.Packet) -> tuple[tuple[Any, ...], int]:
        for flaw in packet.flaws:
            if flaw.rule == "offload":
                raise capture.offloaded(self._path, packet.number, flaw.text)
        key = (packet.src, packet.dst, "roce", packet.qpn)
        if packet.opcode in DATAGRAMS:
            return key, 0 if packet.qpn == MANAGER_QPN else sum(packet.sizes)
        # Answers have the PSNs of the other end's requests.
        own = (*key, packet.opcode % MANUFACTURER in _ANSWERS)
        psns = self._psns.get(own)
        if psns is None or packet.time_ns - psns.last_ns > SILENCE_NS:
            psns = self._psns[own] = _Psns(packet.psn, packet.time_ns)
        psns.last_ns = packet.time_ns
        return key, sum(size for i, size in enumerate(packet.sizes) if psns.add(packet.psn + i))
