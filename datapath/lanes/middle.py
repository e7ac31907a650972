# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The namespace between the hosts: it forwards, impairs, and carries management.

Its devices are port0, port1, ... (whatever is behind them: the other end of a
veth pair, or a guest's tap), in a dumbbell also neckl and neckr, and the
bridge `mgmt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from datapath.errors import CapabilityError, LocalError
from datapath.lanes.base import PathCounters
from datapath.lanes.local import link_address, set_ipv6
from datapath.lanes.namespace import Namespace
from datapath.lanes.spec import Path, Topology
from datapath.xdp.impair import DIRECTIONS, Impairments, Port

MIDDLE = "middle"
ONE_QUEUE = "numtxqueues 1 numrxqueues 1"
BACKENDS = {
    "none": "hosts are joined directly, as the path section asks",
    "bpf": "a BPF program in the middle namespace forwards, lossless and impaired alike",
}
"""Path back end -> the reason for it, in words."""

# What passes the middle must be what a wire would carry: whole packets, each with its checksum
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

    def build(self, links: Iterable[str], *, pass_fds: Sequence[int] = ()) -> None:
        """The management bridge, the neck of a dumbbell, and `links` (ip commands)."""
        self.namespace.in_network(lambda: set_ipv6(disable_ipv6=1))
        commands = [*self._own_links(), *links]
        self.namespace.check_output(
            ["ip", "-batch", "-"], stdin="\n".join(commands), pass_fds=pass_fds
        )

    def forward(self) -> None:
        """Make the ports forward, by datapath.xdp.impair; hosts joined directly need nothing."""
        if self.backend == "bpf":
            ports = self._ports()
            self._impairments = self.namespace.in_network(lambda: Impairments(ports))

    def set_path(self, path: Path, seed: int) -> None:
        """Apply a `path` section; LocalError when it needs another network."""
        if choose_backend(path) != self.backend:
            raise LocalError(
                f"this network was built for path backend {self.backend}",
                hint="open a new network for another backend",
            )
        if self._impairments is not None:
            impairments = {direction: path.impairment(direction) for direction in DIRECTIONS}
            self._impairments.configure(impairments, seed)

    def counters(self) -> PathCounters:
        """What the impairments did since set_path(); empty for backend none."""
        counters = PathCounters()
        if self._impairments is not None:
            for direction in DIRECTIONS:
                counts = self._impairments.counts(direction)
                for name, value in vars(counters).items():
                    number = getattr(counts, name)
                    value[direction] = sum(number) if name == "fault_hits" else number
        return counters

    def hooks(self) -> dict[str, tuple[Namespace, str]]:
        """Where XDP programs see what travels in a direction, before it is impaired."""
        if self.backend == "none":
            return {}
        dumbbell = self.topology.preset == "dumbbell"
        return {
            "middle-forward": (self.namespace, "neckr" if dumbbell else "port0"),
            "middle-backward": (self.namespace, "neckl" if dumbbell else "port1"),
        }

    def close(self) -> None:
        """Let go of the programs; safe to call twice."""
        if self._impairments is not None:
            self._impairments.close()
            self._impairments = None

    def _own_links(self) -> Iterator[str]:
        mtu = self.topology.mtu
        yield "link set lo up"
        yield "link add mgmt type bridge"
        yield "link set mgmt up"
        if self.topology.preset == "dumbbell":
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


def choose_backend(path: Path) -> str:
    """The back end that will carry a `path` section; CapabilityError for those to come."""
    if path.backend in ("fabric", "netem"):
        raise CapabilityError(
            f"path backend {path.backend} is not in this version",
            hint="backend: bpf gives loss, ECN marking, corruption and aimed faults",
        )
    return "none" if path.backend == "none" else "bpf"
