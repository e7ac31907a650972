# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each way out of a tenant, and each way in: none leads anywhere, and each is counted."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import ARP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet

from datapath.lanes.local import link_address
from tests.bpf import compile_bpf
from tests.vnic.bench import Bench, BenchGuest, frames, raw_socket
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

ROCE, VXLAN_PORT = 4791, 4789
EVERYBODY = "ff:ff:ff:ff:ff:ff"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Host 2 of the dumbbell is the stranger's."""
    with contextlib.ExitStack() as stack:
        made = Bench(stack, topology={"preset": "dumbbell", "hosts": 4})
        made.start(stack)
        yield made


@pytest.fixture
def silence(bench: Bench) -> Iterator[None]:
    """No guest but the sender's own hears anything of what is tried."""
    listeners = {name: guest.raw() for name, guest in bench.guests.items() if name != "blue0"}
    yield
    heard = {name: list(frames(raw)) for name, raw in listeners.items()}
    for raw in listeners.values():
        raw.close()
    assert not any(heard.values()), heard


def bth(opcode: int, qpn: int, psn: int, payload: bytes = b"") -> bytes:
    """A packet of RoCEv2 with room for the ICRC, which nobody gets to look at."""
    return struct.pack(">BBHII", opcode, 0, 0xFFFF, qpn, psn) + payload + b"ICRC"


def send(guest: BenchGuest, packet: Packet) -> None:
    with guest.raw() as raw:
        raw.send(bytes(packet))


def counted(count: Callable[[], int], act: Callable[[], None], what: str) -> None:
    """Once and not twice: nobody else adds to the counter (Bench.is_quiet())."""
    before = count()
    act()
    wait_until(lambda: count() > before, what)
    assert count() == before + 1, what


def from_blue0(bench: Bench, **fields: str) -> Ether:
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    return Ether(src=fields.get("src", blue0.mac), dst=fields.get("dst", blue1.mac))


Ways = dict[str, tuple[str, Packet]]
"""Way out -> (the counter that tells of it, the frame)."""
DATA = UDP(sport=49152, dport=ROCE)


def out_of_the_tenant(bench: Bench) -> Ways:
    return {
        **as_another(bench),
        **elsewhere(bench),
        **by_asking(bench),
        **by_telling(bench),
        **malformed(bench),
    }


def right(bench: Bench) -> IP:
    return IP(src=bench.guests["blue0"].ipv4, dst=bench.guests["blue1"].ipv4)


def as_another(bench: Bench) -> Ways:
    blue1, red1, data = bench.guests["blue1"], bench.guests["red1"], DATA / bth(0x11, 17, 5)
    return {
        "with another's MAC": (
            "spoofed_mac",
            from_blue0(bench, src=blue1.mac) / right(bench) / data,
        ),
        "with the MAC of another tenant's guest": (
            "spoofed_mac",
            from_blue0(bench, src=red1.mac) / right(bench) / data,
        ),
        "with another's IPv4 address": (
            "spoofed_ip",
            from_blue0(bench) / IP(src=blue1.ipv4, dst=blue1.ipv4) / data,
        ),
        "with another's IPv6 address": (
            "spoofed_ip",
            from_blue0(bench) / IPv6(src=blue1.ipv6, dst=blue1.ipv6) / data,
        ),
    }


def elsewhere(bench: Bench) -> Ways:
    data = DATA / bth(0x11, 17, 5)
    to_red1 = from_blue0(bench, dst=bench.guests["red1"].mac)
    return {
        "to another tenant's MAC": ("unknown_guest", to_red1 / right(bench) / data),
        "RDMA to another tenant's QPN": (
            "unknown_guest",
            to_red1 / right(bench) / DATA / bth(0x04, 0x11, 0),
        ),
        "to all": ("group", from_blue0(bench, dst=EVERYBODY) / right(bench) / data),
    }


def by_asking(bench: Bench) -> Ways:
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    group = "33:33:ff:00:00:02"
    question = {"hwsrc": blue0.mac, "psrc": blue0.ipv4}
    return {
        "with an ARP request in another's name": (
            "spoofed_arp",
            from_blue0(bench, dst=EVERYBODY)
            / ARP(hwsrc=blue1.mac, psrc=blue1.ipv4, pdst=blue0.ipv4),
        ),
        "with an ARP request for another's address": (
            "spoofed_arp",
            from_blue0(bench, dst=EVERYBODY)
            / ARP(hwsrc=blue0.mac, psrc=blue1.ipv4, pdst="10.0.0.9"),
        ),
        "with an ARP answer to another": (
            "other_protocol",
            from_blue0(bench) / ARP(op=2, hwdst=blue1.mac, pdst=blue1.ipv4, **question),
        ),
        "by asking for whom the tenant does not have": (
            "unanswered",
            from_blue0(bench, dst=EVERYBODY) / ARP(pdst="10.0.0.77", **question),
        ),
        "with a solicitation in another's name": (
            "spoofed_arp",
            from_blue0(bench, dst=group)
            / IPv6(src=blue1.ipv6, dst="ff02::1:ff00:2", hlim=255)
            / ICMPv6ND_NS(tgt=blue0.ipv6)
            / ICMPv6NDOptSrcLLAddr(lladdr=blue0.mac),
        ),
    }


def by_telling(bench: Bench) -> Ways:
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    to_blue1 = from_blue0(bench) / IPv6(src=blue0.ipv6, dst=blue1.ipv6, hlim=255)
    own = ICMPv6NDOptDstLLAddr(lladdr=blue0.mac)
    asked = ICMPv6ND_NS(tgt=blue1.ipv6) / ICMPv6NDOptSrcLLAddr(lladdr=blue0.mac)
    return {
        "with a solicitation behind options": (
            "spoofed_nd",
            to_blue1 / IPv6ExtHdrDestOpt() / asked,
        ),
        "with a solicitation behind a router's options": (
            "spoofed_nd",
            to_blue1 / IPv6ExtHdrHopByHop() / asked,
        ),
        "with a solicitation of routers": ("spoofed_nd", to_blue1 / ICMPv6ND_RS()),
        "with an advertisement of another's address": (
            "spoofed_nd",
            to_blue1 / ICMPv6ND_NA(tgt="fd00::3", R=0, O=1) / own,
        ),
        "with such an advertisement as a fragment": (
            "spoofed_nd",
            to_blue1 / IPv6ExtHdrFragment() / ICMPv6ND_NA(tgt="fd00::3", R=0, O=1) / own,
        ),
        "with an advertisement of a router": ("spoofed_nd", to_blue1 / ICMPv6ND_RA()),
        "with a redirect": ("spoofed_nd", to_blue1 / ICMPv6ND_Redirect(dst="fd00::3")),
        "with a probe of its own address": (
            "unanswered",
            from_blue0(bench, dst=EVERYBODY)
            / ARP(hwsrc=blue0.mac, psrc="0.0.0.0", pdst=blue0.ipv4),
        ),
    }


def malformed(bench: Bench) -> Ways:
    to_blue1 = from_blue0(bench)
    return {
        "in a VLAN": (
            "other_protocol",
            Ether(bytes(to_blue1)[:12] + b"\x81\x00\x00\x07" + b"x" * 60),
        ),
        "with a header cut short": ("malformed", Ether(bytes(to_blue1 / right(bench))[:20])),
        "with a false header length": (
            "malformed",
            to_blue1 / IP(ihl=15, src=right(bench).src, dst=right(bench).dst),
        ),
    }


WAYS_OUT = 23


@pytest.mark.usefixtures("silence")
def test_no_way_out_of_a_tenant(bench: Bench) -> None:
    ways = out_of_the_tenant(bench)
    assert len(ways) == WAYS_OUT
    for way, (counter, frame) in ways.items():
        counted(
            lambda counter=counter: bench.counts("blue0")[counter],  # type: ignore[misc]
            lambda frame=frame: send(bench.guests["blue0"], frame),  # type: ignore[misc]
            f"a frame {way} is counted as {counter}",
        )


@pytest.mark.skipif(
    "bpf_xdp_metadata_rx_vlan_tag" not in Path("/proc/kallsyms").read_text(),
    reason="needs Linux 6.8, which tells XDP programs the tags that travel beside frames",
)
@pytest.mark.usefixtures("silence")
def test_no_way_out_with_a_tag_beside_the_frame(bench: Bench, tmp_path: Path) -> None:
    """Guests' kernels leave it there, since veth says that it inserts tags itself."""
    blue0 = bench.guests["blue0"]
    program = compile_bpf(Path(__file__).with_name("tag.bpf.c"), tmp_path)
    tagging = ("bpf", "direct-action", "object-file", str(program), "section", "tc")
    blue0.space.check_output(["tc", "qdisc", "add", "dev", "eth1", "clsact"])
    blue0.space.check_output(["tc", "filter", "add", "dev", "eth1", "egress", *tagging])
    counted(
        lambda: bench.counts("blue0")["other_protocol"],
        lambda: send(blue0, from_blue0(bench) / right(bench) / DATA / bth(0x04, 17, 5)),
        "the frame is counted as one in a VLAN",
    )
    blue0.space.check_output(["tc", "qdisc", "del", "dev", "eth1", "clsact"])


def test_who_probes_its_own_address_keeps_it(bench: Bench) -> None:
    """An answer would tell it that another has the address (RFC 5227, 2.1.1)."""
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    with blue0.raw() as raw:
        for address in (blue0.ipv4, blue1.ipv4):
            probe = ARP(hwsrc=blue0.mac, psrc="0.0.0.0", pdst=address)
            raw.send(bytes(from_blue0(bench, dst=EVERYBODY) / probe))
        heard: list[str] = []

        def hear() -> list[str]:
            heard.extend(frame[ARP].psrc for frame in map(Ether, frames(raw)) if ARP in frame)
            return heard

        wait_until(hear, "the second probe is answered")
    assert heard == [blue1.ipv4]


def test_equal_addresses_of_two_tenants_do_not_meet(bench: Bench) -> None:
    blue1, red1 = bench.guests["blue1"], bench.guests["red1"]
    with blue1.raw() as blue, red1.raw() as red:
        assert bench.guests["blue0"].ping(blue1.ipv4)
        assert any(ICMP in Ether(frame) for frame in frames(blue))
        assert not list(frames(red))


# ---- from the network --------------------------------------------------------------------


def outer(bench: Bench, *, src: str = "", dport: int = VXLAN_PORT) -> Ether:
    """From the stranger's device to host 0, as if from address `src`."""
    stranger, card = bench.hosts[2].endpoint, bench.hosts[0].endpoint
    ether = Ether(src=link_address(2), dst=link_address(0))
    return ether / IP(src=src or stranger.ipv4, dst=card.ipv4) / UDP(sport=49152, dport=dport)


def inner(bench: Bench, sender: str, receiver: str) -> Ether:
    a, b = bench.guests[sender], bench.guests[receiver]
    return Ether(src=a.mac, dst=b.mac) / IP(src=a.ipv4, dst=b.ipv4) / ICMP()


def send_as_stranger(bench: Bench, packet: Packet) -> None:
    with bench.hosts[2].namespace.in_network(lambda: raw_socket("eth1")) as raw:
        raw.send(bytes(packet))


def network_count(bench: Bench, name: str) -> int:
    return int(bench.programs[0].counters()["network"][name])


def vxlan_of_a_stranger(bench: Bench) -> Iterator[tuple[str, str, Packet]]:
    """(what, counter of the network, packet) of those that no known host sends rightly."""
    peer = bench.hosts[1].endpoint.ipv4
    frame = inner(bench, "blue1", "blue0")
    yield "of a stranger", "unknown_host", outer(bench) / VXLAN(vni=100) / frame
    yield "without a VNI", "bad_vxlan", outer(bench, src=peer) / VXLAN(flags=0, vni=100) / frame
    yield "cut short", "bad_vxlan", outer(bench, src=peer) / b"\x08\0\0\0\0\0d\0x"


def vxlan_of_the_peer(bench: Bench) -> Iterator[tuple[str, str, Packet]]:
    """(what, counter of the peer, packet), each in the name of a host that is known."""
    peer = outer(bench, src=bench.hosts[1].endpoint.ipv4)
    blue0, blue1, red1 = (bench.guests[name] for name in ("blue0", "blue1", "red1"))
    frame, tenant = inner(bench, "blue1", "blue0"), peer / VXLAN(vni=100)
    to_blue0 = Ether(src=blue1.mac, dst=blue0.mac)
    yield "of a tenant that is not there", "foreign_guest", peer / VXLAN(vni=300) / frame
    yield "of another tenant's VNI", "foreign_guest", peer / VXLAN(vni=200) / frame
    local = inner(bench, "blue0", "blue0")
    yield "from a guest that is on this host", "foreign_guest", tenant / local
    spoofed = to_blue0 / IP(src="10.0.0.9") / ICMP()
    yield "from an address that the guest has not", "spoofed_ip", tenant / spoofed
    told = ICMPv6ND_NA(tgt="fd00::3", R=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=blue1.mac)
    poison = to_blue0 / IPv6(src=blue1.ipv6, dst=blue0.ipv6, hlim=255) / told
    yield "that tells of a neighbour", "spoofed_nd", tenant / poison
    abroad = Ether(src=blue1.mac, dst=red1.mac) / IP(src=blue1.ipv4, dst=blue0.ipv4) / ICMP()
    yield "to a guest of another tenant", "unknown_guest", tenant / abroad


@pytest.mark.usefixtures("silence")
def test_no_way_in_by_vxlan(bench: Bench) -> None:
    def try_all(packets: Iterator[tuple[str, str, Packet]], count: Callable[[str], int]) -> None:
        for what, name, packet in packets:
            counted(
                partial(count, name),
                partial(send_as_stranger, bench, packet),
                f"a VXLAN packet {what} is counted",
            )

    with bench.guests["blue0"].raw() as heard:
        try_all(vxlan_of_a_stranger(bench), partial(network_count, bench))
        try_all(vxlan_of_the_peer(bench), lambda name: bench.from_peer(0)[name])
        assert not list(frames(heard))


@pytest.mark.usefixtures("silence")
def test_no_way_in_by_a_forged_packet_of_the_tunnel(bench: Bench) -> None:
    """The QPNs are known to the forger here, which they are to nobody outside the hosts."""
    ours = bench.programs[0].offer(1)
    theirs = bench.programs[1].offer(1)
    bench.programs[0].connect(1, theirs)
    bench.programs[1].connect(1, ours)
    frame = bytes(inner(bench, "blue1", "blue0")) + bytes(2)  # whole words, as BTH says
    with (
        bench.guests["blue0"].raw() as heard,
        bench.hosts[2].namespace.in_network(
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ) as stranger,
    ):
        for qpn, counter in (
            (ours[0].qpn, "engine_drop_foreign_addr"),
            (ours[0].qpn ^ 0x8000, "engine_drop_unknown_qp"),
        ):
            packet = bth(0x05, qpn, theirs[0].psn, b"\0\0\0\x64" + frame)
            counted(
                lambda counter=counter: network_count(bench, counter),  # type: ignore[misc]
                lambda packet=packet: stranger.sendto(  # type: ignore[misc]
                    packet, (bench.hosts[0].endpoint.ipv4, ROCE)
                ),
                f"a forged packet is counted as {counter}",
            )
        assert not list(frames(heard))
