# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The emulator on real frames between namespaces: what it does to them, never how fast it is.

Of times only lower bounds are tested: nothing may arrive before it should.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import itertools
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.errors import DatapathError, LocalError, RunFailed
from datapath.fabric.emulation import PAIR, Emulator, Port, words
from datapath.fabric.links import Jitter, Link, Loss, Marking
from datapath.lanes.emulated import EARLY_NS
from datapath.lanes.local import NetnsHost
from datapath.lanes.namespace import Holder, Namespace, spawn
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.native import lib
from datapath.xdp.impair import stream_seed
from tests.link import aqm_reference
from tests.link.links import stream
from tests.waiting import wait_until
from tests.xdp.conftest import checksum, ethernet, ipv4, ipv6, roce, udp

pytestmark = pytest.mark.usefixtures("root")

ECT1, ECT0, CE = 1, 2, 3
IP_AT, PAYLOAD_AT = 14, 42
BTH_LEN = 12
DATE_LEN = 4
LOSS = 0
RING = 4096  # frames that a device may have to send, as io/raw.h has it
CLOCKS_NS = 5000  # by which two clocks, read one after the other, may differ
_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x2, 0x1000, 0x4000
_VNET_HDR_LEN = 10
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23


class Wire:
    """Raw frames between two hosts without addresses, through the emulator."""

    def __init__(self, network: NetnsNetwork) -> None:
        self.network = network
        self.dates: list[int | None] = []
        self.sockets = [host.namespace.in_network(_raw_socket) for host in network.hosts]

    def configure(self, seed: int = 1, *, held: bool = False, **section: Any) -> None:
        path = Path.model_validate({"backend": "fabric", **section})
        self.network.set_path(path, seed, held=held)
        for raw in self.sockets:
            drain(raw)

    def counters(self) -> dict[str, int]:
        """Of the direction forward."""
        return {k: v["forward"] for k, v in vars(self.network.path_counters()).items() if v}

    def send(self, frames: list[bytes], batch: int = 50) -> list[tuple[int, bytes]]:
        """Send from host 0; (arrival ns, frame) of what host 1 gets until the path is empty.

        Dates come off the frames; self.dates has them.
        """
        arrived: list[tuple[int, bytes]] = []
        came, went = self._passed()
        for start in range(0, len(frames), batch):
            sent = min(start + batch, len(frames))
            for frame in frames[start:sent]:
                self.sockets[0].send(frame)
            wait_until(lambda: self._passed()[0] >= came + sent, "each frame has met its fate")  # noqa: B023
            count = self._passed()[1] - went
            wait_until(lambda: self._has(arrived, count), "what passed has arrived")  # noqa: B023
        self.dates = [date_of(frame) for _, frame in arrived]
        return [
            (at, frame if date is None else frame[:-DATE_LEN])
            for (at, frame), date in zip(arrived, self.dates, strict=True)
        ]

    def _passed(self) -> tuple[int, int]:
        """(frames that came in, frames sent on), the first one once none is under way."""
        mine = self.network.emulator().counters()["forward"]
        fates = mine["delivered"] - mine["duplicated"]
        fates += sum(
            mine[why] for why in ("lost", "overflowed", "policed", "aqm_dropped", "shaped")
        )
        came = mine["offered"] + mine["exempt"] if fates == mine["offered"] else -1
        return came, mine["delivered"] + mine["exempt"]

    def _has(self, arrived: list[tuple[int, bytes]], count: int) -> bool:
        arrived += drain(self.sockets[1])
        return len(arrived) >= count

    def close(self) -> None:
        for raw in self.sockets:
            raw.close()


def date_of(frame: bytes) -> int | None:
    """What lies behind the IP packet; None: nothing, or it is no IP packet."""
    kind = struct.unpack_from(">H", frame, 12)[0]
    if kind not in (0x0800, 0x86DD):
        return None
    v4 = kind == 0x0800
    end = IP_AT + (0 if v4 else 40) + struct.unpack_from(">H", frame, 16 if v4 else 18)[0]
    return struct.unpack_from("=I", frame, end)[0] if len(frame) == end + DATE_LEN else None


def _raw_socket() -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    raw.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    raw.bind(("eth1", 0))
    raw.setblocking(False)
    return raw


def drain(raw: socket.socket) -> list[tuple[int, bytes]]:
    """(when the kernel received it, CLOCK_REALTIME ns; frame) of all that is there."""
    found: list[tuple[int, bytes]] = []
    while True:
        try:
            frame, ancillary, _, _ = raw.recvmsg(70_000, 64)
        except BlockingIOError:
            return found
        seconds, ns = struct.unpack("=qq", ancillary[0][2])
        found.append((seconds * 10**9 + ns, frame))


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(Topology(), "fabric") as network:
        for host in network.hosts:  # kernels without an address answer and ask nothing
            host.run(["ip", "address", "flush", "dev", "eth1"])
            host.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6"])
        yield network


@pytest.fixture
def wire(network: NetnsNetwork) -> Iterator[Wire]:
    wire = Wire(network)
    yield wire
    wire.close()


def numbered(count: int, size: int = 4, **options: Any) -> list[bytes]:
    """IPv4 datagrams whose payload begins with their number."""
    return [ipv4(udp(struct.pack(">I", n).ljust(size, b"\0")), **options) for n in range(count)]


def numbers(arrived: list[tuple[int, bytes]]) -> list[int]:
    return [struct.unpack_from(">I", frame, PAYLOAD_AT)[0] for _, frame in arrived]


# ---- frames ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 100, 3700, 3750, 3900, 7500, 8972])
def test_frames_of_every_size_pass_unchanged(wire: Wire, size: int) -> None:
    """Of one chunk and of several, also when nothing is asked of the path."""
    wire.configure()
    payload = bytes(i * 7 % 251 for i in range(size))
    frames = [ipv4(udp(payload)), ipv6(udp(payload[:8952]))]
    assert [frame for _, frame in wire.send(frames)] == frames


@pytest.mark.parametrize("size", [0, 3778, 7500, 8956])
def test_roce_frames_are_dated_by_the_model_and_not_by_the_clock(wire: Wire, size: int) -> None:
    """Those of full MTU, too."""
    wire.configure(rate="8mbit", delay="5ms")
    frames = [ipv4(roce(7, n, bytes(size))) for n in range(3)]
    frames += [ipv6(roce(7, 3, bytes(min(size, 8936)))), ipv4(udp(bytes(size)))]
    took = [(len(frame) + lib.DP_LINK_HEADROOM) * 1000 for frame in frames]  # at 8 Mbit/s
    for _ in range(10):  # until this process is not held up between two frames
        begun_ns = time.monotonic_ns()
        arrived = wire.send(frames)
        ended_ns = time.monotonic_ns()
        assert [frame for _, frame in arrived] == frames
        *dated, last = wire.dates
        assert last is None
        ages = [(date - begun_ns) % 2**32 for date in dated if date is not None]
        assert 5_000_000 + took[0] < ages[0] < ages[3] < ended_ns - begun_ns
        apart = [after - before for before, after in itertools.pairwise(ages)]
        if apart == took[1:4]:
            break
    assert apart == took[1:4]


@pytest.mark.parametrize(
    ("path", "most_ns"),
    [
        ({"held": False, "delay": "1ms"}, 0),
        ({"held": True, "delay": "1ms"}, EARLY_NS),
        ({"held": True, "delay": "20us"}, 20_000),
        ({"held": True, "delay": "1ms", "jitter": "10us"}, 0),
    ],
)
def test_who_holds_dated_frames_gets_them_early(
    wire: Wire, path: dict[str, Any], most_ns: int
) -> None:
    """At most by the link's delay, and not where one could overtake another by jitter."""
    wire.configure(rate="1gbit", **path)
    frames = [ipv4(roce(7, n, bytes(2600))) for n in range(5)]  # 21 us each
    frames.append(ipv4(udp(bytes(2600))))  # is not dated
    early_ns = []
    for _ in range(50):
        arrived = wire.send(frames)
        assert [frame for _, frame in arrived] == frames
        offset_ns = time.time_ns() - time.monotonic_ns()
        for (at_ns, _), date in zip(arrived, wire.dates, strict=True):
            if date is not None:
                ahead = (date - at_ns + offset_ns) % 2**32
                early_ns.append(ahead - 2**32 if ahead >= 2**31 else ahead)
    assert len(early_ns) == 250
    assert max(early_ns) < most_ns + CLOCKS_NS
    if most_ns:
        assert max(early_ns) > most_ns / 4


def test_a_frame_without_room_for_a_date_passes_without(wire: Wire) -> None:
    wire.configure()
    frames = [ipv4(roce(7, 0, bytes(size))) for size in (3779, 3782, 3783)]
    assert [frame for _, frame in wire.send(frames)] == frames
    assert [date is None for date in wire.dates] == [True, True, False]


def test_what_is_not_ip_is_never_touched(wire: Wire) -> None:
    wire.configure(loss="100%", corrupt="100%", delay="1ms")
    arp = ethernet(0x0806, bytes(46))
    solicitation = ipv6(bytes([135, 0]) + bytes(30), protocol=58)
    report = ipv6(bytes([58, 0, 5, 2, 0, 0, 1, 0]) + bytes([143, 0]) + bytes(10), protocol=0)
    echo = ipv6(bytes([128, 0]) + bytes(30), protocol=58)
    arrived = wire.send([arp, solicitation, report, echo])
    assert [frame for _, frame in arrived] == [arp, solicitation, report]
    counters = wire.counters()
    assert (counters["exempt"], counters["dropped"]) == (3, 1)


def test_a_frame_that_lies_about_its_length_harms_nobody(wire: Wire) -> None:
    wire.configure(corrupt="100%")
    good = ipv4(udp(b"good"))
    lying = bytearray(good)
    lying[IP_AT + 2 : IP_AT + 4] = b"\xff\xff"
    short = ethernet(0x0800, b"\x4f" + bytes(45))
    assert len(wire.send([bytes(lying), short, good[:40].ljust(60, b"\0"), good])) == 4


# ---- what is done to them ------------------------------------------------------------


def test_no_frame_arrives_before_its_time(wire: Wire) -> None:
    """Delay, and the rate: n frames of 1038 bytes on the wire at 10 Mbit/s take n * 830 us."""
    wire.configure(rate="10mbit", delay="3ms")
    begin = time.clock_gettime_ns(time.CLOCK_REALTIME)
    arrived = wire.send(numbered(20, size=1000 - 28))
    assert numbers(arrived) == list(range(20))
    each = (1014 + 24) * 8 * 100
    for n, (at, _) in enumerate(arrived):
        assert at >= begin + 3_000_000 + (n + 1) * each


@pytest.mark.parametrize("seed", [1, 2**40])
def test_losses_are_those_of_the_published_generator(wire: Wire, seed: int) -> None:
    wire.configure(seed, loss="10%", delay="50us")
    arrived = numbers(wire.send(numbered(1000)))
    draws = stream(stream_seed(seed, "forward", "link"), LOSS)
    assert arrived == [n for n in range(1000) if next(draws) >= round(0.1 * 2**32)]
    assert wire.counters()["dropped"] == 1000 - len(arrived)


def test_changes_come_in_order_of_time(wire: Wire) -> None:
    wire.configure()
    emulator = wire.network.emulator()
    whole = Path().link("forward")
    dead = dataclasses.replace(whole, loss=Loss(good=1.0))
    never = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 10**15
    emulator.change(never, "forward", whole)
    emulator.change(2, "forward", dead)
    assert wire.send(numbered(3)) == []
    emulator.change(3, "forward", whole)
    assert numbers(wire.send(numbered(3))) == [0, 1, 2]
    counters = emulator.counters()["forward"]
    assert (counters["offered"], counters["lost"]) == (6, 3), "a change begins no new path"
    wire.configure(delay="1ms")
    assert numbers(wire.send(numbered(3))) == [0, 1, 2], "a new path has no changes to come"


def test_a_change_that_makes_no_sense_is_refused(wire: Wire) -> None:
    wire.configure(rate="1gbit")
    link = Path.model_validate({"rate": "1gbit"}).link("forward")
    emulator = wire.network.emulator()
    with pytest.raises(DatapathError, match="refuses a change"):
        emulator.change(0, "forward", dataclasses.replace(link, trim=True))
    with pytest.raises(DatapathError, match="refuses a change"):
        emulator.change(0, "forward", dataclasses.replace(link, loss=Loss(good=2.0)))
    assert emulator.counters()["forward"]["refused"] == 0


def test_a_full_queue_drops_what_comes_last(wire: Wire) -> None:
    """At 100 kbit/s one frame is under way and two more of 1038 bytes fit 2500."""
    wire.configure(rate="100kbit", queue="2500B")
    assert numbers(wire.send(numbered(10, size=972))) == [0, 1, 2]
    counters = wire.counters()
    assert counters["overflowed"] == 7
    assert counters["queue_max_bytes"] == 2 * 1038


def test_a_step_marks_behind_the_threshold(wire: Wire) -> None:
    wire.configure(rate="100kbit", ecn="2KiB")
    arrived = wire.send(numbered(8, size=972, tos=ECT0))
    marks = [frame[IP_AT + 1] & 3 for _, frame in arrived]
    assert marks == [ECT0] * 3 + [CE] * 5  # behind 0, 0, 1038, 2076 ... bytes
    for _, frame in arrived:
        assert checksum(frame[IP_AT : IP_AT + 20]) == 0
    assert wire.counters()["marked"] == 5


def test_marks_of_ipv6_and_of_what_is_not_capable(wire: Wire) -> None:
    wire.configure(rate="100kbit", ecn="1B")
    body = udp(bytes(500))
    frames = [ipv6(body), ipv6(body), ipv6(body, traffic_class=ECT1), ipv4(body)]
    arrived = [frame for _, frame in wire.send(frames)]
    assert arrived[:2] == frames[:2]
    assert arrived[2] == ipv6(body, traffic_class=CE)
    assert arrived[3] == frames[3]


def test_random_marks_are_a_share_of_the_capable(wire: Wire) -> None:
    wire.configure(ecn_mark="25%", delay="50us")
    arrived = wire.send(numbered(1000, tos=ECT1))
    marked = sum(frame[IP_AT + 1] & 3 == CE for _, frame in arrived)
    assert 190 < marked < 310
    assert wire.counters()["marked"] == marked


def test_corruption_flips_one_bit_of_the_payload(wire: Wire) -> None:
    """In RoCEv2 behind the BTH, wherever the payload lies."""
    wire.configure(corrupt="100%")
    frames = [ipv4(roce(7, n, bytes(8000))) for n in range(40)]
    flipped = set()
    for before, (_, after) in zip(frames, wire.send(frames), strict=True):
        changed = [(i, a ^ b) for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert len(changed) == 1
        where, bits = changed[0]
        assert where >= PAYLOAD_AT + BTH_LEN
        assert bits.bit_count() == 1
        flipped.add(where)
    assert len(flipped) > 30
    assert max(flipped) > 4096  # in the second chunk too


def test_duplicates_are_whole(wire: Wire) -> None:
    wire.configure(duplicate="100%", delay="100us")
    frames = [ipv4(udp(struct.pack(">I", n) + bytes([n]) * 8000)) for n in range(10)]
    arrived = [frame for _, frame in wire.send(frames)]
    assert arrived == [frame for frame in frames for _ in range(2)]
    assert wire.counters()["duplicated"] == 10


def test_reordered_frames_come_later(wire: Wire) -> None:
    wire.configure(delay="100us", reorder={"share": "10%", "by": "20ms"})
    arrived = numbers(wire.send(numbered(40), batch=40))
    assert sorted(arrived) == list(range(40))
    assert arrived != sorted(arrived)
    assert wire.counters()["reordered"] > 0


def test_longer_packets_vanish(wire: Wire) -> None:
    wire.configure(max_packet="1000B")
    short, long = numbered(1, 972), numbered(1, 973)  # bytes of payload behind 28 of headers
    arrived = wire.send([*long, *short, *long, *short])
    assert [frame for _, frame in arrived] == [*short, *short]
    assert wire.counters()["dropped"] == 2


def test_a_black_hole_takes_whole_flows(wire: Wire) -> None:
    """By addresses and ports, IPv4 and IPv6; the seed decides which."""
    wire.configure(blackhole="50%")
    flows = [ipv4(udp(bytes(20), port=port)) for port in range(32)]
    flows += [ipv6(udp(bytes(20), port=port)) for port in range(32)]
    arrived = [frame for _, frame in wire.send(flows * 3)]
    assert arrived == [frame for frame in flows if frame in arrived] * 3
    assert 0 < len(arrived) < 3 * len(flows)
    assert wire.counters()["dropped"] == 3 * len(flows) - len(arrived)


def test_jitter_keeps_the_order(wire: Wire) -> None:
    wire.configure(delay="2ms", jitter={"model": "pareto", "mean": "1ms", "shape": 1.5})
    assert numbers(wire.send(numbered(200))) == list(range(200))


def test_a_trace_lets_one_frame_pass_at_a_time(wire: Wire) -> None:
    wire.configure(trace=[5, 10, 15, 20])
    begin = time.clock_gettime_ns(time.CLOCK_REALTIME)
    arrived = wire.send(numbered(6, size=1472))
    for n, (at, _) in enumerate(arrived):
        assert at >= begin + (n + 1) * 5_000_000
    assert len(arrived) == 6


# ---- policer, AQMs, bursts by time -----------------------------------------------------

HOUR = "3600s"


def test_a_policer_passes_its_burst(wire: Wire) -> None:
    """Four of 1038 bytes; at 125 bytes a second, the next one had to come 8 seconds later."""
    wire.configure(policer={"rate": "1000bit", "burst": f"{4 * 1038}B"})
    assert numbers(wire.send(numbered(10, size=972))) == [0, 1, 2, 3]
    counters = wire.counters()
    assert (counters["policed"], counters["dropped"], counters["overflowed"]) == (6, 0, 0)


@pytest.mark.parametrize("tos", [0, ECT0], ids=["drop", "mark"])
def test_codel_decides_as_rfc_8289(wire: Wire, tos: int) -> None:
    """Frames leave 83 ms apart, which is far more than they come apart."""
    aqm = {"model": "codel", "target": "1ms", "interval": "10ms", "ecn": True}
    wire.configure(rate="100kbit", aqm=aqm)
    arrived = wire.send(numbered(12, size=972, tos=tos))
    queue = aqm_reference.CoDel(10**6, 10**7, True, 2**20)
    packets = [(n, aqm_reference.Packet(n, 1038, tos)) for n in range(12)]
    outcome = aqm_reference.transmit(queue, packets, 80_000)
    assert numbers(arrived) == [number for number, _ in outcome.sent]
    marked = [n for n, (_, f) in zip(numbers(arrived), arrived, strict=True) if f[IP_AT + 1] == CE]
    assert marked == outcome.marked
    counters = wire.counters()
    assert (counters["aqm_dropped"], counters["marked"]) == (12 - len(arrived), len(marked))
    assert counters["aqm_dropped"] + counters["marked"] > 3


def test_fq_codel_lets_another_flow_overtake(wire: Wire) -> None:
    """A queue of its own for each flow, by addresses and ports, IPv4 and IPv6."""
    wire.configure(rate="100kbit", aqm={"model": "fq-codel", "target": "10s"})
    others = [ipv4(udp(bytes(972), port=10)), ipv6(udp(bytes(952)))]
    frames = [*numbered(6, size=972), *others]
    arrived = [frame for _, frame in wire.send(frames)]
    # Two of the first flow use its credit; then the new flows have their turn.
    assert arrived == [*frames[:2], *others, *frames[2:6]]


def test_classes_take_turns_by_dscp(wire: Wire) -> None:
    """A strict class overtakes all that waits, IPv4 and IPv6; two others share by weight."""
    classes = [{"dscp": 46}, {"dscp": 10, "weight": 3}, {"weight": 1}]
    wire.configure(rate="100kbit", classes=classes)
    first, plain = numbered(1, size=972), numbered(4, size=972)
    weighty = numbered(6, size=972, tos=10 << 2)
    strict = [ipv4(udp(bytes(972)), tos=46 << 2), ipv6(udp(bytes(952)), traffic_class=46 << 2)]
    arrived = [f for _, f in wire.send([*first, *plain, *weighty, *strict])]
    assert arrived[:3] == [*first, *strict]
    later = [f[IP_AT + 1] >> 2 for f in arrived[3:]]
    assert len(later) == 10
    assert sorted(later[:8]) == [0] * 2 + [10] * 6, "three to one"


def test_a_class_that_is_not_there_is_refused(wire: Wire) -> None:
    emulator = wire.network.emulator()
    numbers = ",".join(["0"] * 64)
    for refused in (
        ["classes=0:0:0:0", f"class_of_dscp=1,{numbers}"],
        ["classes=0:0:0:0", f"class_of_dscp={numbers}"],
        ["classes=0:0:0", f"class_of_dscp={numbers},8"],
        ["classes=0:0:0:0"],
        [f"class_of_dscp={numbers},8"],
        ["classes=" + ",".join(["0:0:0:0"] * 9), f"class_of_dscp={numbers},8"],
    ):
        assert emulator._ask("configure", "forward", *refused).startswith("error")
    wire.configure(rate="1gbit")
    assert len(wire.send(numbered(3))) == 3


def test_pie_drops_arrivals_once_the_delay_is_known(wire: Wire) -> None:
    """With gains so large that one update is enough."""
    pie = {"model": "pie", "target": "1ms", "update": "1ms", "max_burst": 0}
    wire.configure(rate="1mbit", aqm={**pie, "alpha": 1000, "beta": 1000})
    sent = 0
    for _ in range(200):
        for frame in numbered(5, size=972):
            wire.sockets[0].send(frame)
        sent += 5
        if wire.counters()["aqm_dropped"]:
            break
        time.sleep(0.005)
    wait_until(lambda: sum(wire.counters()[w] for w in ("passed", "aqm_dropped")) == sent, "fates")
    counters = wire.counters()
    assert counters["aqm_dropped"] > 0
    assert counters["overflowed"] == 0


def test_bursts_by_time_do_not_depend_on_packets(wire: Wire) -> None:
    """Thousands of packets end no period, and time alone does."""

    def periods(good: str, bad: str) -> dict[str, str]:
        return {"model": "gilbert-elliott-time", "good_time": good, "bad_time": bad}

    wire.configure(loss=periods(HOUR, "1us"))
    assert numbers(wire.send(numbered(1000))) == list(range(1000))
    wire.configure(loss=periods("1us", HOUR))
    assert wire.send(numbered(1000)) == []
    assert wire.counters()["dropped"] == 1000
    wire.configure(loss=periods("5ms", "5ms"))
    fates = set()
    for _ in range(2000):
        fates.add(len(wire.send(numbered(1))))
        if fates == {0, 1}:
            break
        time.sleep(0.001)
    assert fates == {0, 1}


def test_directions_differ(wire: Wire) -> None:
    wire.configure(loss="100%", backward={"loss": 0})
    assert wire.send(numbered(3)) == []
    wire.sockets.reverse()
    wire.sockets[0].send(ipv4(udp(b"back"), source=1))
    wait_until(lambda: bool(drain(wire.sockets[1])), "it came back")
    wire.sockets.reverse()


def test_a_new_path_begins_anew(wire: Wire) -> None:
    wire.configure(3, loss="30%")
    first = numbers(wire.send(numbered(300)))
    wire.configure(3, loss="30%")
    counters = wire.counters()
    assert (counters["passed"], counters["dropped"], counters["exempt"]) == (0, 0, 0)
    assert numbers(wire.send(numbered(300))) == first


def test_every_frame_is_accounted_for(wire: Wire) -> None:
    wire.configure(
        9, rate="100mbit", delay="200us", queue="20KiB", loss="5%", duplicate="5%", corrupt="5%"
    )
    arrived = wire.send(numbered(2000, size=500))
    c = wire.counters()
    assert c["passed"] == len(arrived)
    assert c["passed"] + c["dropped"] + c["overflowed"] == 2000 + c["duplicated"]
    assert c["starved"] == c["unstamped"] == 0  # on veth every frame tells when it came
    assert c["late_p50_ns"] <= c["late_p99_ns"] <= c["late_max_ns"]
    late = wire.network.emulator_late_ns()
    assert 0 < late["0.5"] <= late["0.99"] <= late["1"] <= c["late_max_ns"]


# ---- packets of ours -----------------------------------------------------------------

EXT_WRITE_ONLY = 0xCA
XDH_LEN, RETH_LEN, HOP_LEN = 20, 16, 16
HEADERS = BTH_LEN + XDH_LEN + RETH_LEN
WIRE = 24
DSCP_TRIMMED = 43


def extended(psn: int, payload: bytes, records: int = 0) -> bytes:
    """An extended WRITE of one packet, with room for telemetry records."""
    xdh = bytearray(XDH_LEN)
    xdh[15] = records << 4
    room = bytes(4 + HOP_LEN * records if records else 0)
    return roce(7, psn, bytes(xdh) + room + bytes(RETH_LEN) + payload, EXT_WRITE_ONLY)


def summed(frame: bytes) -> bytes:
    """The frame with a UDP checksum."""
    udp_at = 34 if frame[12:14] == b"\x08\x00" else 54
    out = bytearray(frame)
    out[udp_at + 6 : udp_at + 8] = struct.pack(">H", udp_sum(bytes(out)))
    return bytes(out)


def udp_sum(frame: bytes) -> int:
    """Over pseudo-header and datagram: 0 when its checksum is right."""
    v4 = frame[12:14] == b"\x08\x00"
    udp_at, addresses = (34, frame[26:34]) if v4 else (54, frame[22:54])
    datagram = frame[udp_at:]
    return checksum(
        addresses + struct.pack(">HH", 17, len(datagram)) + datagram + b"\0" * (len(datagram) % 2)
    )


@pytest.mark.parametrize("size", [901, 8000])
def test_trimming_leaves_the_headers_which_overtake(wire: Wire, size: int) -> None:
    whole = size + HEADERS + 4 + 8 + 20 + 14 + WIRE
    wire.configure(rate="100kbit", queue=whole + 20, trim=True)
    frames = [summed(make(extended(n, bytes(size)))) for n, make in enumerate([ipv4] * 4 + [ipv6])]
    arrived = [frame for _, frame in wire.send(frames)]
    assert [arrived[0], arrived[-1]] == frames[:2]
    assert len(arrived) == 5
    for before, after in zip(frames[2:], arrived[1:-1], strict=True):
        v4 = before[12:14] == b"\x08\x00"
        udp_at = 34 if v4 else 54
        assert len(after) == udp_at + 8 + HEADERS
        assert after[udp_at + 8 :] == before[udp_at + 8 : len(after)]
        assert struct.unpack_from(">H", after, udp_at + 4)[0] == 8 + HEADERS
        assert udp_sum(after) == 0
        if v4:
            assert after[15] >> 2 == DSCP_TRIMMED
            assert struct.unpack_from(">H", after, 16)[0] == len(after) - 14
            assert checksum(after[14:34]) == 0
        else:
            assert struct.unpack_from(">I", after, 14)[0] >> 22 & 0x3F == DSCP_TRIMMED
            assert struct.unpack_from(">H", after, 18)[0] == len(after) - 54
    assert wire.counters()["trimmed"] == 3


def test_what_is_not_ours_is_not_trimmed(wire: Wire) -> None:
    wire.configure(rate="100kbit", queue="1100B", trim=True)
    frames = [ipv4(roce(7, n, bytes(900))) for n in range(3)]
    assert [frame for _, frame in wire.send(frames)] == frames[:2]
    assert wire.counters()["overflowed"] == 1


def test_telemetry_is_written_into_the_room_for_it(wire: Wire) -> None:
    wire.configure(rate="1mbit", telemetry=True)
    frames = [ipv4(extended(0, bytes(800), 2)), summed(ipv4(extended(1, bytes(501), 1)))]
    frames += [ipv4(extended(2, bytes(100))), ipv4(roce(7, 3, bytes(100)))]
    arrived = [frame for _, frame in wire.send(frames)]
    assert arrived[2:] == frames[2:]  # no room
    room_at = PAYLOAD_AT + BTH_LEN + XDH_LEN
    records = []
    for before, after in zip(frames[:2], arrived[:2], strict=True):
        end = room_at + 4 + HOP_LEN
        assert after[room_at] == 1
        assert after[end:] == before[end:]
        queue, ts, last = struct.unpack_from(">IIQ", after, room_at + 4)
        records.append((queue, last >> 24, last & 0xFFFFFF))
        assert ts != 0
    first, second, third, fourth = (len(frame) + WIRE for frame in frames)
    assert records == [(0, 0, 1), (third + fourth, first, 1)]
    assert second
    assert udp_sum(arrived[1]) == 0


def test_garbage_harms_nobody(wire: Wire) -> None:
    """Valid packets with random bytes in their headers and random ends, and all settings on."""
    chance = random.Random(4)
    makers = [
        lambda: ipv4(extended(1, bytes(300), 3)),
        lambda: ipv6(extended(1, bytes(5000), 1)),
        lambda: ipv4(bytes(40), protocol=6),
        lambda: ipv6(bytes([58, 9, 5, 2, 0, 0, 1, 0]) + bytes(60), protocol=0),
        lambda: ipv4(udp(bytes(100))),
    ]
    frames = []
    for _ in range(1500):
        frame = bytearray(chance.choice(makers)())
        for _ in range(chance.randrange(6)):
            frame[chance.randrange(14, min(len(frame), 110))] = chance.randrange(256)
        frames.append(bytes(frame[: chance.randrange(60, len(frame) + 1)]))
    everything = {"rate": "100mbit", "queue": "3KiB", "trim": True, "telemetry": True}
    wire.configure(2, **everything, ecn="1KiB", corrupt="50%", duplicate="10%", loss="5%")
    wire.send(frames)
    wire.configure()
    assert numbers(wire.send(numbered(10))) == list(range(10))


# ---- networks -----------------------------------------------------------------------


def ping(client: NetnsHost, address: str, count: int = 1) -> bool:
    done = client.run(["ping", "-c", str(count), "-W", "3", "-i", "0.01", address])
    return done.returncode == 0


@pytest.mark.parametrize("mtu", [1280, 9000, 65521])
def test_kernels_talk_through_it(mtu: int) -> None:
    """Also by ARP, without the permanent neighbours; management traffic goes its own way."""
    with NetnsNetwork(Topology(mtu=mtu), "fabric") as network:
        network.set_path(Path.model_validate({"rate": "1gbit", "delay": "50us"}), 1)
        left, right = network.hosts
        assert ping(left, right.endpoint.ipv4, 3)
        assert ping(right, left.endpoint.ipv6, 3)
        left.run(["ip", "neighbour", "flush", "dev", "eth1", "nud", "permanent"])
        right.run(["ip", "neighbour", "flush", "dev", "eth1", "nud", "permanent"])
        assert ping(left, right.endpoint.ipv4)
        assert ping(left, right.endpoint.mgmt_ipv4)
        whole = left.run(
            ["ping", "-c1", "-W3", "-M", "do", "-s", str(mtu - 28), right.endpoint.ipv4]
        )
        assert whole.returncode == 0, whole.stdout


def test_a_dumbbell_shares_the_neck() -> None:
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4), "fabric") as network:
        network.set_path(Path.model_validate({"delay": "20us"}), 1)
        a, b, c, d = network.hosts
        for client, server in ((a, c), (b, d), (d, a), (a, b), (c, d)):
            assert ping(client, server.endpoint.ipv4)
        # Of a pair across the neck each ping goes both ways; neighbours on a side do not cross.
        counters = network.path_counters()
        assert counters.passed == {"forward": 3, "backward": 3}
        network.set_path(Path.model_validate({"delay": "20us", "loss": "100%"}), 1)
        assert ping(a, b.endpoint.ipv4)
        assert not ping(a, c.endpoint.ipv4)


def test_it_dies_with_its_network_and_alone() -> None:
    with NetnsNetwork(Topology(), "fabric") as network:
        network.set_path(Path(backend="fabric"), 1)
        process = network.emulator()._program.process
        network.check_alive()
        process.kill()
        process.wait(10)
        with pytest.raises(RunFailed, match="the emulator was killed by signal 9"):
            network.check_alive()
        with pytest.raises(RunFailed, match="the emulator was killed by signal 9"):
            network.path_counters()
    assert process.returncode == -signal.SIGKILL


def test_the_middle_has_no_hooks_of_its_own_to_give() -> None:
    with NetnsNetwork(Topology(), "fabric") as network:
        with pytest.raises(LocalError, match="no XDP hook"):
            network.xdp_hook("middle-forward")
        assert network.describe()["backend"] == "fabric"


def open_tap(name: str) -> int:
    """A tap with the header that QEMU's have; what is written to it comes in by the device."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
    fcntl.ioctl(fd, _TUNSETIFF, request)
    return fd


@contextlib.contextmanager
def between_taps() -> Iterator[tuple[Namespace, list[int], Emulator]]:
    """An emulator between port0 and port1, as guests have; the taps' other ends."""
    holder = Holder(["middle"])
    fds: list[int] = []
    try:
        (middle,) = holder.open()
        for name in ("port0", "port1"):
            fds.append(middle.in_network(functools.partial(open_tap, name)))
            middle.check_output(["ip", "link", "set", name, "mtu", "9000", "up"])
        pipe = subprocess.PIPE
        begin = functools.partial(spawn, middle, stdin=pipe, stdout=pipe)
        ports = [Port("port0", "left"), Port("port1", "right")]
        with Emulator(ports, PAIR, begin) as emulator:
            emulator.configure("forward", Link(rate_bps=10**9, delay_ns=100_000))
            emulator.configure("backward", Link())
            yield middle, fds, emulator
    finally:
        for fd in fds:
            os.close(fd)
        holder.close()
        holder.wait()


@pytest.mark.parametrize("size", [60, 1514, 3600, 4000, 9014])
def test_frames_pass_between_taps(size: int) -> None:
    """The devices of guests."""
    with between_taps() as (_, fds, _):
        frame = ipv4(udp(bytes(range(256)) * 40))[:size]
        frame = frame[:16] + struct.pack(">H", size - 14) + frame[18:]
        os.write(fds[0], bytes(_VNET_HDR_LEN) + frame)
        wait_until(lambda: frame in tap_frames(fds[1]), "the frame came through")


def test_a_device_that_is_up_again_gets_frames() -> None:
    """Also when its ring became full while it was down."""
    with between_taps() as (middle, fds, emulator):

        def send(end: int, frame: bytes) -> None:
            os.write(fds[end], bytes(_VNET_HDR_LEN) + frame)

        def counted(direction: str, counter: str) -> int:
            return emulator.counters()[direction][counter]

        # With a frame under way the emulator does not poll its devices, by which the kernel sends.
        emulator.configure("backward", Link(delay_ns=3600 * 10**9))
        send(1, ipv4(udp(b"under way")))
        wait_until(lambda: counted("backward", "offered"), "a frame is under way")
        middle.check_output(["ip", "link", "set", "port1", "down"])
        for number, frame in enumerate(numbered(RING + 400), 1):
            send(0, frame)
            if number % 400 == 0:
                wait_until(lambda: counted("forward", "delivered") >= number, "they left")  # noqa: B023
        wait_until(lambda: counted("forward", "starved"), "the ring is full")
        middle.check_output(["ip", "link", "set", "port1", "up"])
        last = ipv4(udp(b"up again"))

        def comes() -> bool:
            send(0, last)
            return last in tap_frames(fds[1])

        wait_until(comes, "what came after the device was up passes")


def tap_frames(fd: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            found.append(os.read(fd, 70_000)[_VNET_HDR_LEN:])
        except BlockingIOError:
            return found


# ---- the program ---------------------------------------------------------------------


def start(arguments: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_device_that_is_not_there_is_named() -> None:
    ports = [Port("dp-none0", "left"), Port("dp-none1", "right")]
    with pytest.raises(DatapathError, match="cannot find dp-none0"):
        Emulator(ports, PAIR, start)


def test_a_device_with_several_queues_is_refused() -> None:
    """Frames on the others would be lost without a word."""
    name = f"dpq{os.getpid()}"
    queues = ("numtxqueues", "4", "numrxqueues", "4")
    subprocess.run(["ip", "link", "add", name, *queues, "type", "veth"], check=True)
    try:
        with pytest.raises(DatapathError, match=f"{name} has 4 receive queues, .*ethtool -L"):
            Emulator([Port(name, "left"), Port("lo", "right")], PAIR, start)
    finally:
        subprocess.run(["ip", "link", "delete", name], check=True)


LINKS = ["link:there:a:b", "link:back:b:a"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["port:a:lo", *LINKS],
        ["port:a:lo", "port:b:lo"],
        ["port:a:lo", "port:b:lo", "link:there:a:b"],
        ["port:a:lo", "port:b:lo", "link:there:a:b", "link:there:b:a"],
        ["port:a:lo", "port:b:lo", "link:there:a:b", "link:back:b:c"],
        ["port:a:lo", "port:b:lo", "link:there:a:a", "link:back:a:a"],
        ["port:a:lo", "port:c:lo", *LINKS],
        ["port:a:lo", "port:d:lo", *LINKS, "link:out:c:d", "link:in:d:c"],
        ["port:a:lo:zz", "port:b:lo", *LINKS],
        ["port:a:lo", "cable:b:lo", *LINKS],
    ],
)
def test_arguments_are_checked(arguments: list[str]) -> None:
    from datapath.native import paths

    done = subprocess.run(
        [paths.emulator_program(), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "usage" in done.stdout


def test_settings_that_the_model_refuses_are_an_error(network: NetnsNetwork) -> None:
    emulator = network.emulator()
    with pytest.raises(DatapathError, match="refuses the path"):
        emulator.configure("forward", Link(loss=Loss(good=2.0)))
    emulator.configure("forward", Link())


def test_every_setting_reaches_the_program() -> None:
    link = Link(
        rate_bps=5,
        delay_ns=6,
        limit_bytes=7,
        marking=Marking("red", 1, 2, 0.5),
        loss=Loss(0.1, 0.2, 0.3, 0.4),
        jitter=Jitter("trace", samples_ns=(1.5, 2.0), reorders=True),
        reorder=0.125,
        reorder_ns=8,
        duplicate=0.25,
        corrupt=0.5,
        trim=True,
        telemetry=True,
        trace_ms=(1, 2, 3),
        impairments=(("slot", 9),),
    )
    told = dict(word.split("=") for word in words(link, ecn_mark=0.75, seed=9))
    assert told["trace_ms"] == "1,2,3"
    assert (told["trim"], told["telemetry"], told["slot"]) == ("1", "1", "9")
    assert told["jitter_samples_ns"] == "1.5,2.0"
    assert (told["mark_kind"], told["mark_pmax"]) == ("2", "0.5")
    assert (told["loss_good"], told["loss_p"]) == ("0.1", "0.3")
    assert (told["ecn_mark"], told["seed"]) == ("0.75", "9")


OWNER = """
import sys
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
with NetnsNetwork(Topology(), "fabric") as network:
    network.set_path(Path(backend="fabric"), 1)
    print(network.emulator()._program.process.pid, flush=True)
    sys.stdin.read()
"""


def test_kill_9_of_the_owner_leaves_no_emulator() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    wait_until(lambda: not FilePath(f"/proc/{pid}").exists(), "the emulator is gone")
