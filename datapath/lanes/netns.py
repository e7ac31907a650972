# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The netns lane: hosts are network namespaces of this machine, joined by veth.

    host0 eth1 --- port0 [middle] port1 --- eth1 host1          p2p
    host0 eth1 --- eth1 host1                                   p2p, backend none
    host0 eth1 --- port0 [middle: left == neckl-neckr == right] port2 --- eth1 host2 ...   dumbbell

Each host also has `mgmt0` on a bridge in the middle namespace, which carries
control traffic and is never impaired.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from datapath.errors import CapabilityError, LocalError
from datapath.lanes.base import PathCounters
from datapath.lanes.local import (
    MGMT_DEVICE,
    TEST_DEVICE,
    NetnsHost,
    endpoint,
    host_commands,
    link_address,
    set_ipv6,
)
from datapath.lanes.namespace import Holder, Namespace, spawn
from datapath.lanes.spec import Path, Topology
from datapath.xdp.impair import DIRECTIONS, Impairments, Port
from datapath.xdp.user import XdpHook

_MIDDLE = "middle"
_QUEUE_PACKETS = 1000


class NetnsNetwork:
    """Hosts in namespaces, as a context manager; implements datapath.lanes.base.Network.

    `backend` is "bpf" (a middle namespace forwards, and can impair) or "none"
    (hosts joined directly).
    """

    def __init__(self, topology: Topology, backend: str = "bpf") -> None:
        if backend == "none" and topology.preset != "p2p":
            raise LocalError(
                "backend none joins two hosts directly; a dumbbell has a middle",
                hint="use backend: auto",
            )
        self.topology = topology
        self.backend = backend
        self.hosts: list[NetnsHost] = []
        self._holder = Holder([*(f"host{i}" for i in range(topology.hosts)), _MIDDLE])
        self._middle: Namespace | None = None
        self._impairments: Impairments | None = None

    def __enter__(self) -> NetnsNetwork:
        if os.geteuid() != 0:
            raise CapabilityError(
                "the netns lane needs root, to make network namespaces",
                hint="run dpctl as root (sudo dpctl ...)",
            )
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._impairments is not None:
            self._impairments.close()
            self._impairments = None
        self._holder.close()
        for host in self.hosts:
            host.end_programs()
        self._holder.wait()

    @property
    def pairs(self) -> list[tuple[NetnsHost, NetnsHost]]:
        """(client, server) across the path: host i of the left and of the right side."""
        half = len(self.hosts) // 2
        return list(zip(self.hosts[:half], self.hosts[half:], strict=True))

    @property
    def local(self) -> bool:
        return True

    def prepare(self, device: str) -> None:
        """The kernel's RDMA devices belong to one network stack of a kernel: the first."""
        if device in ("rxe", "siw"):
            raise CapabilityError(
                f"device {device} is not for namespaces",
                hint="use topology: {lane: vm}, where each host has a kernel of its own",
            )

    def recover(self) -> bool:
        """Made again in a fraction of a second, which is the surer way."""
        return False

    def set_path(self, path: object, seed: int) -> None:
        """Apply a `path` section; LocalError when it needs another network."""
        assert isinstance(path, Path)
        if choose_backend(path) != self.backend:
            raise LocalError(
                f"this network was built for path backend {self.backend}",
                hint="open a new network for another backend",
            )
        if self._impairments is not None:
            impairments = {direction: path.impairment(direction) for direction in DIRECTIONS}
            self._impairments.configure(impairments, seed)

    def path_counters(self) -> PathCounters:
        """What the impairments did since set_path(); empty for backend none."""
        counters = PathCounters()
        if self._impairments is not None:
            for direction in DIRECTIONS:
                counts = self._impairments.counts(direction)
                for name, value in vars(counters).items():
                    number = getattr(counts, name)
                    value[direction] = sum(number) if name == "fault_hits" else number
        return counters

    def describe(self) -> dict[str, object]:
        """Devices with MTU, offloads and XDP mode, and what forwards between the hosts."""
        spaces = [(host.name, host.namespace) for host in self.hosts]
        if self._middle is not None:
            spaces.append((_MIDDLE, self._middle))
        reason = {
            "none": "hosts are joined directly, as the path section asks",
            "bpf": "a BPF program in the middle namespace forwards, lossless and impaired alike",
        }[self.backend]
        return {
            "lane": "netns",
            "preset": self.topology.preset,
            "backend": self.backend,
            "backend_reason": reason,
            "devices": {name: _describe_devices(space) for name, space in spaces},
        }

    def xdp_hook(self, hook: str) -> XdpHook:
        """Where a program of the user's own is attached; see datapath.xdp.user.

        "host0", "host1" ...: what the host receives.  "middle-forward",
        "middle-backward": what travels that way, before it is impaired.
        """
        assert self._middle is not None
        dumbbell = self.topology.preset == "dumbbell"
        places = {host.name: (host.namespace, TEST_DEVICE) for host in self.hosts}
        if self.backend != "none":
            places["middle-forward"] = (self._middle, "neckr" if dumbbell else "port0")
            places["middle-backward"] = (self._middle, "neckl" if dumbbell else "port1")
        if hook not in places:
            raise LocalError(
                f"this network has no XDP hook {hook}", hint=f"hooks are {', '.join(places)}"
            )
        namespace, netdev = places[hook]

        def start(
            argv: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes]
        ) -> subprocess.Popen[bytes]:
            pipe = subprocess.PIPE
            whole = {**os.environ, **env}
            return spawn(namespace, argv, env=whole, stdin=pipe, stdout=pipe, stderr=stderr)

        return XdpHook(hook, netdev, start)

    def _build(self) -> None:
        *spaces, self._middle = self._holder.open()
        self.hosts = [
            NetnsHost(space.name, endpoint(i, self.topology.mtu), space)
            for i, space in enumerate(spaces)
        ]
        fds = [space.net_fd for space in spaces]
        self._middle.in_network(lambda: set_ipv6(disable_ipv6=1))
        self._middle.check_output(
            ["ip", "-batch", "-"], stdin=_lines(self._links(fds)), pass_fds=fds
        )
        for index, host in enumerate(self.hosts):
            host.namespace.in_network(lambda: set_ipv6(accept_ra=0, router_solicitations=0))
            host.namespace.check_output(
                ["ip", "-batch", "-"],
                stdin=_lines(host_commands(index, self.topology.mtu, self.topology.hosts)),
            )
        if self.backend == "bpf":
            self._forward()

    def _links(self, fds: Sequence[int]) -> Iterator[str]:
        """ip commands, run in the middle, that make every link."""
        mtu = self.topology.mtu
        yield "link set lo up"
        yield "link add mgmt type bridge"
        yield "link set mgmt up"
        for i, fd in enumerate(fds):
            yield (f"link add mgmt{i} type veth peer name {MGMT_DEVICE} netns /proc/self/fd/{fd}")
            yield f"link set mgmt{i} master mgmt up"
        if self.backend == "none":
            yield (
                f"link add {TEST_DEVICE} netns /proc/self/fd/{fds[0]} address {link_address(0)} "
                f"mtu {mtu} {_ONE_QUEUE} type veth peer name {TEST_DEVICE} "
                f"netns /proc/self/fd/{fds[1]} address {link_address(1)} mtu {mtu} {_ONE_QUEUE}"
            )
            return
        for i, fd in enumerate(fds):
            yield (
                f"link add port{i} mtu {mtu} {_ONE_QUEUE} type veth peer name {TEST_DEVICE} "
                f"netns /proc/self/fd/{fd} address {link_address(i)} mtu {mtu} {_ONE_QUEUE}"
            )
            yield f"link set port{i} up"
        if self.topology.preset == "dumbbell":
            yield (
                f"link add neckl mtu {mtu} {_ONE_QUEUE} type veth "
                f"peer name neckr mtu {mtu} {_ONE_QUEUE}"
            )
            yield "link set neckl up"
            yield "link set neckr up"

    def _forward(self) -> None:
        """Make the middle forward: see datapath.xdp.impair for the programs."""
        switches = [w for name, on in _WIRE_OFFLOADS.items() for w in (name, "on" if on else "off")]
        for host in self.hosts:
            host.namespace.check_output(["ethtool", "-K", TEST_DEVICE, *switches])
        names = [f"port{i}" for i in range(len(self.hosts))]
        macs = [link_address(i) for i in range(len(self.hosts))]
        if self.topology.preset == "p2p":
            ports = [
                Port(names[0], "left", default=names[1], direction="forward"),
                Port(names[1], "right", default=names[0], direction="backward"),
            ]
        else:
            ports = []
            for i, (name, mac) in enumerate(zip(names, macs, strict=True)):
                side, neck = ("left", "neckl") if i < len(names) // 2 else ("right", "neckr")
                ports.append(Port(name, side, default=neck, macs=(mac,)))
            ports += [
                Port("neckl", "left", direction="backward"),
                Port("neckr", "right", direction="forward"),
            ]
        assert self._middle is not None
        self._impairments = self._middle.in_network(lambda: Impairments(ports))


_ONE_QUEUE = "numtxqueues 1 numrxqueues 1"

# What passes the middle must be what a wire would carry: whole packets, each with its checksum
# (without one, a corrupted TCP segment would be taken for intact).  gso alone does not stop
# UDP_SEGMENT batches.
_WIRE_OFFLOADS = {
    "tso": False,
    "gso": False,
    "tx-udp-segmentation": False,
    "tx": False,
    "gro": True,
}


def _lines(commands: Iterator[str]) -> str:
    return "".join(f"{command}\n" for command in commands)


def _describe_devices(namespace: Namespace) -> dict[str, object]:
    links = json.loads(namespace.check_output(["ip", "-j", "-d", "link", "show"]))
    devices: dict[str, object] = {}
    for link in links:
        name = link["ifname"]
        if name == "lo" or name.startswith("mgmt"):
            continue
        xdp = link.get("xdp", {}).get("mode", 0)
        devices[name] = {
            "kind": link.get("linkinfo", {}).get("info_kind", ""),
            "mtu": link["mtu"],
            "qdisc": link.get("qdisc", ""),
            "xdp": {0: "none", 1: "native", 2: "generic"}.get(xdp, f"mode {xdp}"),
            "offloads": _offloads(namespace, name),
        }
    return devices


_SHOWN_OFFLOADS = {
    "tx-checksumming": "tx_checksum",
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "tx-udp-segmentation": "udp_segmentation",
}


def _offloads(namespace: Namespace, device: str) -> dict[str, bool]:
    text = namespace.check_output(["ethtool", "-k", device])
    values = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
    return {
        short: values[name].startswith("on")
        for name, short in _SHOWN_OFFLOADS.items()
        if name in values
    }


def choose_backend(path: Path) -> str:
    """The back end that will carry a `path` section; CapabilityError for those to come."""
    if path.backend in ("fabric", "netem"):
        raise CapabilityError(
            f"path backend {path.backend} is not in this version",
            hint="backend: bpf gives loss, ECN marking, corruption and aimed faults",
        )
    return "none" if path.backend == "none" else "bpf"
