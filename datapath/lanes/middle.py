# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The namespace between the hosts: it forwards, impairs, and carries management.

Its devices are port0, port1, ... (whatever is behind them: the other end of a
veth pair, or a guest's tap), in a dumbbell also neckl and neckr, and the
bridge `mgmt`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from datapath.errors import CapabilityError, LocalError
from datapath.fabric.emulation import Emulator
from datapath.lanes.base import PathCounters
from datapath.lanes.card_programs import WithCards
from datapath.lanes.emulated import EmulatedLinks
from datapath.lanes.event_spec import Event
from datapath.lanes.local import link_address, set_ipv6
from datapath.lanes.namespace import Namespace, spawn
from datapath.lanes.spec import MIDDLE, Path, Topology
from datapath.xdp.impair import DIRECTIONS, Impairments, Port

if TYPE_CHECKING:
    from datapath.lanes.cards import Cards

ONE_QUEUE = "numtxqueues 1 numrxqueues 1"
BACKENDS = {
    "none": "hosts are joined directly, as the path section asks",
    "bpf": "a BPF program in the middle namespace forwards, lossless and impaired alike",
    "fabric": "a program in the middle namespace emulates links, between AF_XDP sockets",
}
"""Path back end -> the reason for it, in words."""

# Packets must pass the middle as they pass a wire: whole, each with its checksum
# (without one, a corrupted TCP segment would be taken for intact).  gso alone does not stop
# UDP_SEGMENT batches.
WIRE_OFFLOADS = (
    *("tso", "off"),
    *("gso", "off"),
    *("tx-udp-segmentation", "off"),
    *("tx", "off"),
    *("gro", "on"),
)


class Middle:
    """The middle of one network, in a namespace that its owner opens and closes."""

    def __init__(self, namespace: Namespace, topology: Topology, backend: str) -> None:
        self.name = MIDDLE
        self.namespace = namespace
        self.topology = topology
        self.backend = backend
        self._impairments: Impairments | None = None
        self._emulated: EmulatedLinks | None = None
        self.path = Path()

    def build(self, links: Iterable[str], *, pass_fds: Sequence[int] = ()) -> None:
        """The management bridge, the neck of a dumbbell, and `links` (ip commands)."""
        self.namespace.in_network(lambda: set_ipv6(disable_ipv6=1))
        commands = [*self._own_links(), *links]
        self.namespace.check_output(
            ["ip", "-batch", "-"], stdin="\n".join(commands), pass_fds=pass_fds
        )

    def forward(self) -> None:
        """Make the ports forward; hosts joined directly need nothing."""
        if self.backend == "bpf":
            ports = self._ports()
            self._impairments = self.namespace.in_network(lambda: Impairments(ports))
        elif self.backend == "fabric":
            self._emulated = EmulatedLinks(self.topology, self._start)

    def set_path(self, path: Path, seed: int, *, held: bool = False) -> None:
        """Apply a `path` section; LocalError when it needs another network."""
        if choose_backend(self.topology, path) != self.backend:
            raise LocalError(
                f"this network was built for path backend {self.backend}",
                hint="open a new network for another backend",
            )
        if self._impairments is not None:
            impairments = {direction: path.impairment(direction) for direction in DIRECTIONS}
            self._impairments.configure(impairments, seed)
        if self._emulated is not None:
            self._emulated.set_path(path, seed, held=held)
        self.path = path

    def change_path(self, zero_ns: int, events: Sequence[Event], since_ns: int = 0) -> None:
        """As lanes.base.Network."""
        self._links().change(zero_ns, events, since_ns)

    def queue_peaks(self) -> dict[str, int]:
        """As lanes.base.Network."""
        return {} if self._emulated is None else self._emulated.queue_peaks()

    def counters(self) -> PathCounters:
        """The path's counters since set_path(); empty for backend none."""
        if self._impairments is not None:
            return _bpf_counters(self._impairments)
        return PathCounters() if self._emulated is None else self._emulated.counters()

    def link_counters(self) -> dict[str, dict[str, int]]:
        """As lanes.base.Network."""
        if self._emulated is not None:
            return self._emulated.link_counters()
        links: dict[str, dict[str, int]] = {}
        for counter, numbers in vars(self.counters()).items():
            for direction, number in numbers.items():
                links.setdefault(direction, {})[counter] = number
        return links

    def late_ns(self) -> dict[str, int]:
        """As lanes.base.Network.emulator_late_ns()."""
        return {} if self._emulated is None else self._emulated.late_ns()

    def emulator(self) -> Emulator:
        """The running emulator; LocalError when the back end is another one."""
        return self._links().emulator

    def _links(self) -> EmulatedLinks:
        if self._emulated is None:
            raise LocalError(
                f"path backend {self.backend} has no emulator", hint="build it for fabric"
            )
        return self._emulated

    def check_alive(self) -> None:
        """RunFailed when the emulator has ended, or did not answer once."""
        if self._emulated is not None:
            self._emulated.emulator.check_alive()

    def hooks(self) -> dict[str, tuple[Namespace, str]]:
        """Where XDP programs see the packets of a direction, before these are impaired."""
        if self.backend != "bpf":  # the emulator needs the hooks for itself
            return {}
        dumbbell = self.topology.preset == "dumbbell"
        return {
            "middle-forward": (self.namespace, "neckr" if dumbbell else "port0"),
            "middle-backward": (self.namespace, "neckl" if dumbbell else "port1"),
        }

    def sampled(
        self, prefix: FilePath, interval_ns: int, max_bytes: int
    ) -> AbstractContextManager[None]:
        """Sample the queues of emulated links; nothing else has any."""
        if self._emulated is None:
            return nullcontext()
        return self._emulated.sampled(prefix, interval_ns, max_bytes)

    def close(self) -> None:
        """Let go of the programs; safe to call twice."""
        if self._impairments is not None:
            self._impairments.close()
            self._impairments = None
        if self._emulated is not None:
            self._emulated.close()
            self._emulated = None

    def _own_links(self) -> Iterator[str]:
        mtu = self.topology.mtu
        yield "link set lo up"
        yield "link add mgmt type bridge"
        yield "link set mgmt up"
        if self.topology.preset == "dumbbell" and self.backend == "bpf":
            yield (
                f"link add neckl mtu {mtu} {ONE_QUEUE} type veth "
                f"peer name neckr mtu {mtu} {ONE_QUEUE}"
            )
            yield "link set neckl up"
            yield "link set neckr up"

    def _ports(self) -> list[Port]:
        hosts = self.topology.hosts
        if self.topology.preset == "p2p":
            return [
                Port("port0", "left", default="port1", direction="forward"),
                Port("port1", "right", default="port0", direction="backward"),
            ]
        ports = []
        for i in range(hosts):
            side, neck = ("left", "neckl") if i < hosts // 2 else ("right", "neckr")
            ports.append(Port(f"port{i}", side, default=neck, macs=(link_address(i),)))
        return [
            *ports,
            Port("neckl", "left", direction="backward"),
            Port("neckr", "right", direction="forward"),
        ]

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return spawn(self.namespace, arguments, stdin=pipe, stdout=pipe)


def _bpf_counters(impairments: Impairments) -> PathCounters:
    counters = PathCounters()
    for direction in DIRECTIONS:
        counts = impairments.counts(direction)
        for name, number in vars(counts).items():
            value = sum(number) if name == "fault_hits" else number
            getattr(counters, name)[direction] = value
    return counters


def choose_backend(topology: Topology, path: Path) -> str:
    """The back end for the two sections; CapabilityError for one that does not exist yet.

    LocalError for one that cannot make the topology.
    """
    if path.backend == "netem":
        raise CapabilityError(
            "path backend netem is not in this version",
            hint="backend: fabric gives rate, delay, jitter, queues, loss and reordering",
        )
    if not topology.has_links:
        return path.carrier
    if path.backend not in ("auto", "fabric"):
        raise LocalError(
            f"path backend {path.backend} makes no network of several links",
            hint="use backend: auto",
        )
    return "fabric"


class WithMiddle(WithCards):
    """What networks with a middle have in common, of datapath.lanes.base.Network.

    With virtual cards it is these that the middle joins.
    """

    _middle: Middle | None = None
    _cards: Cards | None = None

    @property
    def middle(self) -> Middle:
        """The middle, once the network is there."""
        assert self._middle is not None
        return self._middle

    def check_alive(self) -> None:
        """As lanes.base.Network; without the emulator nothing passes from host to host."""
        self.middle.check_alive()
        super().check_alive()

    def set_path(self, path: Path, seed: int, *, held: bool = False) -> None:
        """Apply a `path` section; then cards make new tunnels.

        LocalError when it needs another network.
        """
        self.middle.set_path(path, seed, held=held)
        if self._cards is not None:
            self._cards.meet()

    def change_path(self, zero_ns: int, events: Sequence[Event], since_ns: int = 0) -> None:
        """As lanes.base.Network; LocalError when the path's back end is not fabric."""
        self.middle.change_path(zero_ns, events, since_ns)

    def queue_peaks(self) -> dict[str, int]:
        """As lanes.base.Network."""
        return self.middle.queue_peaks()

    def path_counters(self) -> PathCounters:
        """The impairments' counters since set_path(); empty for backend none."""
        return self.middle.counters()

    def link_counters(self) -> dict[str, dict[str, int]]:
        """As lanes.base.Network."""
        return self.middle.link_counters()

    def emulator_late_ns(self) -> dict[str, int]:
        """As lanes.base.Network."""
        return self.middle.late_ns()

    def sampled_path(
        self, prefix: FilePath, interval_ns: int, max_bytes: int
    ) -> AbstractContextManager[None]:
        """As lanes.base.Network says: emulated links."""
        return self.middle.sampled(prefix, interval_ns, max_bytes)
