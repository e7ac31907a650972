# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How exactly the emulator keeps rate and delay, measured from outside of it.

Delay: the kernel's own time stamps of packets that leave one host and reach the other, on an
idle link.  Rate: packets that reach the other host while more is offered than the link can
carry.  Beside them stands what the emulator says of itself.
"""

from __future__ import annotations

import contextlib
import math
import random
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath

from datapath.debian import install_hint
from datapath.errors import CapabilityError, LocalError, RunFailed
from datapath.lanes.base import Process
from datapath.lanes.local import TEST_DEVICE, NetnsHost, link_address
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.quantiles import nearest_rank
from datapath.units import format_bit_rate

WIRE_OVERHEAD = 14 + 24
"""Bytes that a packet has on an Ethernet wire beside its MTU's worth."""

_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_PACKET_BYTES = 200
_FRAME_BYTES = _PACKET_BYTES + 24
_APART = 4
"""Mean distance of two packets on an idle link, in times that one of them takes."""
_PORT = 9
_OFFERED = 1.2
_QUEUE_S = 0.25
_PACKETS_QUEUED = 10
"""In _QUEUE_S at the lowest rate."""
_LATE_S = 0.1
_WARM_UP_S = 2.0
_RTTS_TO_START = 10  # before iperf3 sends data, and some to spare
_SAMPLE_S = 0.05
_SURELY = 1.5
_DRAIN_S = 2.0


@dataclass(frozen=True)
class Spread:
    """Of a sample, ns."""

    n: int
    mean: float
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        if not values:
            raise RunFailed("no packet arrived", hint="is the machine overloaded?")
        ordered = sorted(values)
        at = [nearest_rank(ordered, share) for share in (0.5, 0.99)]
        return cls(len(ordered), sum(ordered) / len(ordered), at[0], at[1], ordered[-1])


@dataclass(frozen=True)
class Report:
    """The link that was asked for, and its measured behaviour.

    delay_error: one-way delay of packets less what was asked for, idle link; `without` is what
    the same packets take through backend bpf, which delays nothing.  rate_measured_bps: of what
    reached the other host while the link was saturated.  late_*_ns: the emulator's own measure
    during that time, both directions.  cpu_share: of one CPU that it used.  limit: why the run
    would not count, "" when it would.
    """

    rate_bps: int
    delay_ns: int
    mtu: int
    priority: str
    delay_error: Spread
    without: Spread
    rate_measured_bps: float
    marked_share: float
    late_p50_ns: int
    late_p99_ns: int
    late_max_ns: int
    cpu_share: float
    limit: str

    @property
    def rate_error(self) -> float:
        """Measured less asked for, as a share."""
        return self.rate_measured_bps / self.rate_bps - 1

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "rate_error": self.rate_error}


def measure(
    rate_bps: int, delay_ns: int, *, mtu: int = 9000, packets: int = 2000, seconds: float = 5.0
) -> Report:
    """Measure a link of this rate and one-way delay; takes packets * 2 ms, `seconds` and some RTTs.

    At low rates packets take longer.  CapabilityError without root or iperf3; LocalError for a
    rate at which the queue holds too few packets.
    """
    lowest = math.ceil(8 * (mtu + WIRE_OVERHEAD) * _PACKETS_QUEUED / _QUEUE_S)
    if rate_bps < lowest:
        raise LocalError(
            f"packets of MTU {mtu} take too long at {format_bit_rate(rate_bps)} to be measured",
            hint=f"ask for {format_bit_rate(lowest)} at least, or for a smaller MTU",
        )
    # The sender may lose the CPU for a quarter of a second, and the link stays busy.
    queue = min(2**25, int(rate_bps * _QUEUE_S / 8))
    path = Path.model_validate(
        {
            "rate": rate_bps,
            "delay": delay_ns,
            "queue": queue,
            "ecn": min(2**16, queue // 2),
        }
    )
    bare = _delays_bare(mtu, packets)
    with NetnsNetwork(Topology(mtu=mtu), "fabric") as network:
        network.set_path(path, seed=1)
        alone_ns = _FRAME_BYTES * 8e9 / rate_bps
        delays = _delays(network, packets, delay_ns, alone_ns)
        errors = [delay - delay_ns - alone_ns for delay in delays]
        network.set_path(path, seed=1)
        measured = _saturate(network, rate_bps, delay_ns, mtu, seconds)
        counters = network.path_counters()
        emulator = network.emulator()
        said = emulator.counters()
        return Report(
            rate_bps=rate_bps,
            delay_ns=delay_ns,
            mtu=mtu,
            priority=emulator.priority,
            delay_error=Spread.of(errors),
            without=Spread.of(bare),
            rate_measured_bps=measured,
            marked_share=min(1.0, counters.marked["forward"] / max(1, counters.passed["forward"])),
            late_p50_ns=max(counters.late_p50_ns.values()),
            late_p99_ns=max(counters.late_p99_ns.values()),
            late_max_ns=max(counters.late_max_ns.values()),
            cpu_share=said["busy_ns"] / said["elapsed_ns"],
            limit=counters.limit(),
        )


# ---- delay ---------------------------------------------------------------------------


def _delays_bare(mtu: int, packets: int) -> list[float]:
    with NetnsNetwork(Topology(mtu=mtu), "bpf") as network:
        network.set_path(Path(), seed=1)
        return _delays(network, packets, 0)


def _delays(
    network: NetnsNetwork, packets: int, delay_ns: int, alone_ns: float = 0.0
) -> list[float]:
    """One-way delays of numbered datagrams, ns, sent 0.5 to 1.5 ms apart, or so that none waits.

    delay_ns: what the link is asked for.  alone_ns: how long it transmits one of them.
    """
    sender, receiver = network.hosts
    gap_s = max(1e-3, _APART * alone_ns / 1e9)
    gaps = random.Random(1)
    left: dict[int, int] = {}
    arrived: dict[int, int] = {}
    with contextlib.ExitStack() as stack:
        # A socket does not see its own packets.
        output, source, sink = (
            stack.enter_context(contextlib.closing(host.namespace.in_network(_stamping_socket)))
            for host in (sender, sender, receiver)
        )
        for number in range(packets):
            output.send(_frame(number))
            time.sleep(gap_s * gaps.uniform(0.5, 1.5))
            left.update(_stamps(source))
            arrived.update(_stamps(sink))
        time.sleep(delay_ns / 1e9 + _LATE_S)
        left.update(_stamps(source))
        arrived.update(_stamps(sink))
    return [float(arrived[n] - left[n]) for n in left if n in arrived]


def _stamping_socket() -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
    raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    raw.bind((TEST_DEVICE, 0))
    raw.setblocking(False)
    return raw


def _stamps(raw: socket.socket) -> Iterator[tuple[int, int]]:
    """(number, kernel's time ns) of the packets seen."""
    while True:
        try:
            frame, ancillary, _, _ = raw.recvmsg(2048, 64)
        except BlockingIOError:
            return
        if len(frame) == _PACKET_BYTES and frame[36:38] == struct.pack(">H", _PORT):
            seconds, ns = struct.unpack("=qq", ancillary[0][2])
            yield struct.unpack_from(">I", frame, 42)[0], seconds * 10**9 + ns


def _frame(number: int) -> bytes:
    """A UDP datagram from host 0 to host 1, to a closed port."""
    macs = b"".join(bytes.fromhex(link_address(i).replace(":", "")) for i in (1, 0))
    body = struct.pack(">I", number).ljust(_PACKET_BYTES - 42, b"\0")
    datagram = struct.pack(">HHHH", 0xC000, _PORT, 8 + len(body), 0) + body
    ends = bytes([198, 18, 0, 1, 198, 18, 0, 2])
    head = struct.pack(">BBHHHBB", 0x45, 0, 20 + len(datagram), 0, 0x4000, 64, 17)
    words = struct.unpack(">9H", head + ends)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return macs + b"\x08\x00" + head + struct.pack(">H", check) + ends + datagram


# ---- rate ----------------------------------------------------------------------------


def _saturate(
    network: NetnsNetwork, rate_bps: int, delay_ns: int, mtu: int, seconds: float
) -> float:
    """Bit/s that reach host 1, everything on the wire counted, while host 0 offers more."""
    client, server = network.hosts
    if not client.has_program("iperf3"):
        raise CapabilityError("program iperf3 is not installed", hint=install_hint("iperf3"))
    listener = server.popen(["iperf3", "--server", "--one-off"])
    time.sleep(0.5)
    offered = int(rate_bps * _OFFERED)
    delay_s = delay_ns / 1e9
    load = client.popen(
        [
            *("iperf3", "--client", server.endpoint.ipv4, "--udp", "--bitrate", str(offered)),
            *("--length", str(mtu - 28), "--time", str(int(seconds + delay_s + _WARM_UP_S + 2))),
            *("--tos", "2"),  # ECT(0)
        ]
    )
    try:
        _wait_for_load(network, rate_bps, delay_s)
        packets, ns = _while_saturated(network, rate_bps, seconds)
        _check_running(load)
    finally:
        for process in (load, listener):
            process.kill()
            process.wait(_DRAIN_S)
    return packets * (mtu + WIRE_OVERHEAD) * 8e9 / ns


def _wait_for_load(network: NetnsNetwork, rate_bps: int, delay_s: float) -> None:
    """Until packets have waited for the link for a while, and the first of them have arrived."""
    end = time.monotonic() + _WARM_UP_S + _RTTS_TO_START * 2 * delay_s
    busy = rate_bps * _SAMPLE_S * _SURELY / 8
    while _waiting_bytes(network) < busy and time.monotonic() < end:
        time.sleep(_SAMPLE_S)
    time.sleep(_WARM_UP_S + delay_s)


def _waiting_bytes(network: NetnsNetwork) -> int:
    return int(network.emulator().counters()["forward"]["waiting_bytes"])


def _while_saturated(network: NetnsNetwork, rate_bps: int, seconds: float) -> tuple[int, int]:
    """(packets received, ns) of the times at which the link cannot have been idle.

    A sender that loses the CPU says nothing about the link: an interval counts if more
    waited at its beginning than the link can carry until its end.
    """
    packets = ns = 0
    server = network.hosts[1]
    end = time.monotonic() + seconds
    before: tuple[int, int, int] | None = None
    while time.monotonic() < end:
        now, received = _received(server)
        waiting = _waiting_bytes(network)
        if before is not None and before[2] * 8e9 > rate_bps * (now - before[0]) * _SURELY:
            packets += received - before[1]
            ns += now - before[0]
        before = now, received, waiting
        time.sleep(_SAMPLE_S)
    if ns < seconds * 1e9 / 4:
        raise RunFailed(
            "the link could not be kept busy", hint="end other work, or ask for a lower rate"
        )
    return packets, ns


def _check_running(load: Process) -> None:
    if load.poll() is not None:
        raise RunFailed("iperf3 ended early", hint="run it by hand in two namespaces")


def _received(host: NetnsHost) -> tuple[int, int]:
    """(now ns, packets that the device under test has received)."""

    def read() -> tuple[int, int]:
        table = FilePath("/proc/thread-self/net/dev").read_text(encoding="ascii")
        now = time.monotonic_ns()
        line = next(line for line in table.splitlines() if line.strip().startswith(TEST_DEVICE))
        return now, int(line.partition(":")[2].split()[1])

    return host.namespace.in_network(read)
