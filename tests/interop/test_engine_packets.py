# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packets of the engine before the trace checker, and in tables of traffic."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from datapath.interop import capture, flows, trace
from datapath.native import lib
from tests.engine.ladder import ALL_ACCESS, QP, Channel, Packet, S, World, ok, pattern


def frame(packet: Packet, time_ns: int, kept: int | None) -> Raw:
    """As the packet stands on Ethernet; kept: bytes that were captured."""
    src, dst = (str(ipaddress.IPv6Address(a).ipv4_mapped) for a in (packet.src, packet.dst))
    whole = bytes(
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / IP(src=src, dst=dst, id=0, flags="DF", tos=packet.tos)
        / UDP(sport=packet.sport, dport=4791, chksum=0)
        / Raw(packet.data)
    )
    raw = Raw(whole[:kept])
    raw.time, raw.wirelen = time_ns / S, len(whole)
    return raw


def written(world: World, folder: Path, kept: int | None = None) -> Path:
    path = folder / "capture.pcap"
    wrpcap(str(path), [frame(packet, now, kept) for now, _, packet in world.log], linktype=1)
    return path


def judged(world: World, a: QP, b: QP, folder: Path, gaps: list[str]) -> trace.Report:
    path = written(world, folder)
    ends = (trace.End("10.0.0.1", a.qpn, 100), trace.End("10.0.0.2", b.qpn, 5000))
    return trace.check(capture.read(path), [trace.Connection(ends, 1024)], gaps=gaps)


@pytest.mark.parametrize("loss", [0, 0.1])
def test_flushes_and_atomic_writes(tmp_path: Path, loss: float) -> None:
    """No program of Debian 12 posts them.

    What is lost is not in the capture, which is taken where it arrives.
    """
    with World() as world:
        a, b = world.pair(rd_atomic=4)
        access = ALL_ACCESS | lib.DP_ACCESS_FLUSH_GLOBAL
        target = b.host.memory(4096, access=access)
        posted = []
        for i in range(40):
            a.write(pattern(2500, i), target)
            a.flush(target, 4096)
            a.atomic_write(pattern(8, i), target)
            a.flush(target, 0, selectivity=lib.DP_FETH_MR)
            a.read(2500, target)
            posted += ["RDMA_WRITE", "FLUSH", "ATOMIC_WRITE", "FLUSH", "RDMA_READ"]
        assert world.run(Channel(loss=loss, seed=3), limit_ns=100 * S)
        assert a.poll() == [ok(name) for name in posted]
        report = judged(world, a, b, tmp_path, ["10.0.0.1", "10.0.0.2"] if loss else [])
    assert [str(violation) for violation in report.violations] == []
    assert report.coverage["10.0.0.1"]["FLUSH"] >= 80
    assert report.coverage["10.0.0.1"]["ATOMIC WRITE"] >= 40
    assert bool(report.retransmissions) == bool(loss)


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "headers"])
@pytest.mark.parametrize("telemetry", [0, 1])
@pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])
def test_a_table_has_what_was_posted(
    tmp_path: Path, extended: bool, telemetry: int, cut: bool
) -> None:
    """To the byte, whatever was lost, sent again and doubled on the way."""
    with World(extended=extended, telemetry=telemetry, bundle=1) as world:
        a, b = (world.extended_pair if extended else world.pair)(rd_atomic=4)
        source, target = a.host.memory(4096), b.host.memory(4096)
        there = back = 0
        for size in (1, 5, 1024, 1027, 4096):
            for _ in range(4):  # of which short ones share a packet in extended mode
                a.write(pattern(size, size), target)
            b.recv(size)
            a.send(pattern(size, size))
            a.write(pattern(8, 1), target, fence=True)
            a.faa(target, 1)
            a.read(size, target)
            b.write(pattern(size, size), source)
            there, back = there + 5 * size + 8, back + 2 * size
        assert world.run(Channel(loss=0.05, duplicate=0.1, seed=3), limit_ns=100 * S)
        path = written(world, tmp_path, 320 if cut else None)
    rows = flows.read(path, gap_ns=10 * S).flows
    totals = {way: int(rows[rows["src"] == way]["bytes"].sum()) for way in (0, 1)}
    assert totals == {0: there, 1: back}
