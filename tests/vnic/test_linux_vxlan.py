# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A host without a card: Linux's own vxlan device stands in for one guest."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, UDP
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet
from scapy.utils import wrpcap

from datapath.vnic.program import Program
from datapath.vnic.spec import CardFile
from tests.vnic.bench import Bench, BenchGuest, frames, raw_socket

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Guest blue1 is the vxlan device of host 1, which knows of no card."""
    with contextlib.ExitStack() as stack:
        made = Bench(stack)
        file = CardFile.model_validate(made.data)
        settings = file.settings("host0", file.compiled_cc(Path()))
        program = Program(made.starter(0), settings)
        stack.callback(program.close)
        made.programs.append(program)
        blue1, (card, linux) = made.guests["blue1"], (host.endpoint for host in made.hosts)
        made.hosts[1].namespace.check_output(
            ["ip", "-batch", "-"],
            stdin=f"link add vx address {blue1.mac} type vxlan id 100 dstport 4789 "
            f"local {linux.ipv4} remote {card.ipv4}\n"
            "link set vx mtu 1400 up\n"
            f"address add {blue1.ipv4}/24 dev vx\n"
            f"address add {blue1.ipv6}/64 dev vx nodad",
        )
        yield made


def linux_guest(bench: Bench) -> BenchGuest:
    """To ping from the vxlan device."""
    blue1 = bench.guests["blue1"]
    return BenchGuest("vx", bench.hosts[1].namespace, blue1.mac, blue1.ipv4, blue1.ipv6)


def test_linux_answers_the_card(bench: Bench, tmp_path: Path) -> None:
    blue0, linux = bench.guests["blue0"], linux_guest(bench)
    with bench.hosts[1].namespace.in_network(lambda: raw_socket("eth1")) as wire:
        assert blue0.ping(linux.ipv4)
        packets = [Ether(frame) for frame in frames(wire)]
    # scapy knows the format from the RFC, not from us.
    inside = [packet[VXLAN] for packet in packets if VXLAN in packet and ICMP in packet]
    assert [packet.vni for packet in inside] == [100]
    assert inside[0][Ether].src == blue0.mac
    said = decoded(packets, tmp_path / "wire.pcap")
    assert "VXLAN, flags [I] (0x08), vni 100" in said
    assert f"IP {blue0.ipv4} > {linux.ipv4}: ICMP echo request" in said
    fields = ["vxlan.vni", "ip.src", "icmp.type"]
    lines = decoded_by_tshark(tmp_path / "wire.pcap", fields)
    assert f"100\t{blue0.ipv4}\t8" in map(_inner, lines)  # an echo request
    assert blue0.ping(linux.ipv6)


def decoded(packets: list[Packet], file: Path) -> str:
    """What tcpdump makes of them."""
    wrpcap(str(file), packets)
    argv = ["tcpdump", "-nn", "-r", str(file)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout


def decoded_by_tshark(file: Path, fields: Sequence[str]) -> list[str]:
    """A line of fields for each VXLAN packet."""
    argv = ["tshark", "-n", "-r", str(file), "-Y", "vxlan", "-T", "fields"]
    for field in fields:
        argv += ["-e", field]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def _inner(line: str) -> str:
    """Of fields that a packet has twice, the inner one."""
    return "\t".join(field.rpartition(",")[2] for field in line.split("\t"))


def test_flows_have_source_ports_of_their_own(bench: Bench) -> None:
    """The network's switches tell them apart by these (RFC 7348, section 5)."""
    blue0, linux = bench.guests["blue0"], linux_guest(bench)
    with (
        bench.hosts[1].namespace.in_network(lambda: raw_socket("eth1")) as wire,
        blue0.udp() as sender,
    ):
        for port in range(2000, 2064):
            sender.sendto(b"x", (linux.ipv4, port))
        sources: set[int] = set()
        while len(sources) < 4:
            for frame in frames(wire):
                packet = Ether(frame)
                if VXLAN in packet:
                    sources.add(packet[UDP].sport)
    assert len(sources) >= 4


def test_the_card_answers_linux(bench: Bench) -> None:
    """Linux asks by ARP and neighbour discovery, in VXLAN packets."""
    blue0, linux = bench.guests["blue0"], linux_guest(bench)
    for family in ("-4", "-6"):
        bench.hosts[1].namespace.check_output(["ip", family, "neigh", "flush", "dev", "vx"])
    assert linux.ping(blue0.ipv4)
    assert linux.ping(blue0.ipv6)
    assert not linux.ping("10.0.0.77", "-W", "1")
    assert bench.from_peer(0)["unknown_guest"] >= 1


def test_linux_cannot_ask_in_anothers_name(bench: Bench) -> None:
    """Nor can another tenant's guest of that host ask in this tenant."""
    foreign = bench.from_peer(0)["foreign_guest"]
    vx = bench.hosts[1].namespace
    vx.check_output(["ip", "link", "set", "vx", "address", bench.guests["red1"].mac])
    linux = linux_guest(bench)
    assert not linux.ping(bench.guests["blue0"].ipv4, "-W", "1")
    assert bench.from_peer(0)["foreign_guest"] > foreign
