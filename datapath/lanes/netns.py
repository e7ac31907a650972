# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The netns lane: hosts are network namespaces of this machine, joined by veth.

    host0 eth1 --- port0 [middle] port1 --- eth1 host1          p2p
    host0 eth1 --- eth1 host1                                   p2p, backend none
    host0 eth1 --- port0 [middle: left == neckl-neckr == right] port2 --- eth1 host2 ...   dumbbell
    host0 eth1 --- port0 [middle: links and switches] port1 --- eth1 host1 ...   other presets

With virtual cards, what stands here for a host is its card (cards.py).

Each host also has `mgmt0` on a bridge in the middle namespace, which carries
control traffic and is never impaired.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import IO

from datapath import privileges
from datapath.errors import CapabilityError, LocalError
from datapath.fabric.emulation import Emulator
from datapath.fabric.topology import Graph
from datapath.lanes import scheduling
from datapath.lanes.base import CpuUse, paired
from datapath.lanes.cards import Cards, card_names, joined
from datapath.lanes.cpu_keeper import CpuKeeper
from datapath.lanes.devices import describe_devices
from datapath.lanes.emulated import dates_frames
from datapath.lanes.local import (
    MGMT_DEVICE,
    TEST_DEVICE,
    NetnsHost,
    endpoint,
    host_commands,
    link_address,
    set_ipv6,
)
from datapath.lanes.middle import BACKENDS, ONE_QUEUE, WIRE_OFFLOADS, Middle, WithMiddle
from datapath.lanes.namespace import Holder, spawn
from datapath.lanes.shape import described, link_rates_bps, shape
from datapath.lanes.spec import MIDDLE, Topology
from datapath.xdp.user import XdpHook


def _wanted(topology: Topology, backend: str) -> scheduling.Policy:
    """The policy that `scheduling: auto` stands for.

    Behind an emulated link programs wait for the link and sleep meanwhile.  Without one it is
    the CPUs that they wait for, and programs of real-time priority would take them from others.
    """
    if topology.scheduling != "auto":
        return topology.scheduling
    return "realtime" if backend == "fabric" else "short-slice"


class NetnsNetwork(WithMiddle):
    """Hosts in namespaces, as a context manager; implements datapath.lanes.base.Network.

    `backend` is "bpf" (a middle namespace forwards, and can impair), "fabric" (it
    emulates links) or "none" (hosts joined directly).  `folder`: where the topology's files are.
    """

    def __init__(
        self, topology: Topology, backend: str = "bpf", folder: FilePath | None = None
    ) -> None:
        if backend == "none" and topology.vnic:
            raise LocalError(
                "backend none joins hosts directly; virtual cards are joined by a middle",
                hint="use backend: auto",
            )
        if backend == "none" and topology.preset != "p2p":
            raise LocalError(
                "backend none joins two hosts directly; more of them have a middle",
                hint="use backend: auto",
            )
        self.topology = topology
        self.backend = backend
        self._scheduling = scheduling.choose(_wanted(topology, backend))
        self.hosts: list[NetnsHost] = []
        self._folder = folder
        self._holder = Holder([*topology.host_names, *card_names(topology), MIDDLE])

    def __enter__(self) -> NetnsNetwork:
        privileges.check("the netns lane")
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._cards is not None:
            self._cards.close()
        if self._middle is not None:
            self._middle.close()
        self._holder.close()
        for host in self.hosts:
            host.end_programs()
        self._holder.wait()

    @property
    def pairs(self) -> list[tuple[NetnsHost, NetnsHost]]:
        """(client, server) across the path."""
        return paired(self.hosts, self.topology.preset)

    @property
    def local(self) -> bool:
        return True

    @property
    def link_rates_bps(self) -> list[float]:
        """As shape.link_rates_bps(); none: the path alone limits."""
        if not self.topology.has_links:
            return []
        return link_rates_bps(self.topology, self.middle.path)

    @property
    def graph(self) -> Graph | None:
        """The network that is emulated, before any event; None: the path alone."""
        if not self.topology.has_links:
            return None
        return shape(self.topology, self.middle.path).graph()

    def prepare(self, device: str) -> None:
        """Refuse the kernel's RDMA devices: they belong to the kernel's first network namespace."""
        if device in ("rxe", "siw"):
            raise CapabilityError(
                f"device {device} is not for namespaces",
                hint="use topology: {lane: vm}, where each host has a kernel of its own",
            )

    def recover(self) -> bool:
        """Always False: a new network takes a fraction of a second, and is certainly clean."""
        return False

    @contextlib.contextmanager
    def measuring(self) -> Iterator[CpuUse]:
        """As lanes.base.Network; the topology has the scheduling."""
        use = CpuUse()
        with self._keeper() as keeper:
            try:
                for host in self.hosts:
                    host.scheduling = self._scheduling
                yield use
            finally:
                for host in self.hosts:
                    host.scheduling = None
            keeper.finish(use)

    def _keeper(self) -> CpuKeeper:
        return CpuKeeper(
            self.middle.namespace,
            keep_awake=self.topology.keep_awake,
            watch=self._scheduling.programs == "realtime",
        )

    def emulator(self) -> Emulator:
        """The running emulator of backend fabric."""
        return self.middle.emulator()

    def describe(self) -> dict[str, object]:
        """Devices with MTU, offloads and XDP mode, and the back end between the hosts."""
        spaces = [(host.name, host.namespace) for host in self.hosts]
        spaces.append((self.middle.name, self.middle.namespace))
        return {
            "lane": "netns",
            "preset": self.topology.preset,
            "backend": self.backend,
            "backend_reason": BACKENDS[self.backend],
            "graph": described(self.topology),
            "devices": {name: describe_devices(space) for name, space in spaces},
            **({"vnic": self._cards.describe()} if self._cards is not None else {}),
            "cpu": self._describe_cpu(),
        }

    def _describe_cpu(self) -> dict[str, object]:
        """The scheduling of programs while they are measured, found out by trying."""
        with self._keeper() as keeper:
            return {
                "scheduling": self._scheduling.programs,
                "scheduling_of_busy_programs": self._scheduling.busy,
                "kept_awake": keeper.awake,
                "idle_cpus_poll": keeper.polling,
                "trouble": [*self._scheduling.trouble, *keeper.trouble],
            }

    def xdp_hook(self, hook: str) -> XdpHook:
        """Where a program of the user's own is attached; see datapath.xdp.user.

        "host0", "host1" ...: what the host receives.  "middle-forward",
        "middle-backward": what travels that way, before it is impaired.
        """
        places = {host.name: (host.namespace, TEST_DEVICE) for host in self.hosts}
        places |= self.middle.hooks()
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
        *spaces, middle = self._holder.open()
        spaces, cards = spaces[: self.topology.hosts], spaces[self.topology.hosts :]
        self._middle = Middle(middle, joined(self.topology), self.backend)
        dated = self.backend == "fabric" and dates_frames(self.topology)
        self.hosts = [
            NetnsHost(space.name, replace(endpoint(i, self.topology.mtu), dated=dated), space)
            for i, space in enumerate(spaces)
        ]
        if cards:
            self._cards = Cards(self.topology, cards, self._folder)
        fds = [space.net_fd for space in (*spaces, *cards)]
        self._middle.build(self._links(fds[: len(spaces)]), pass_fds=fds)
        if self._cards is not None:
            self._cards.join(spaces)
        for index, host in enumerate(self.hosts):
            host.namespace.in_network(lambda: set_ipv6(accept_ra=0, router_solicitations=0))
            host.namespace.check_output(
                ["ip", "-batch", "-"],
                stdin="\n".join(host_commands(index, self.topology.mtu, self.topology.hosts)),
            )
            if self.backend != "none":
                host.namespace.check_output(["ethtool", "-K", TEST_DEVICE, *WIRE_OFFLOADS])
        self._middle.forward()
        if self._cards is not None:
            self._cards.start()

    def _links(self, fds: Sequence[int]) -> Iterator[str]:
        """ip commands, run in the middle, that make every link but those to a card's guest."""
        mtu = self.topology.mtu
        for i, fd in enumerate(fds):
            yield (f"link add mgmt{i} type veth peer name {MGMT_DEVICE} netns /proc/self/fd/{fd}")
            yield f"link set mgmt{i} master mgmt up"
        if self._cards is not None:
            yield from self._cards.links()
            return
        if self.backend == "none":
            yield (
                f"link add {TEST_DEVICE} netns /proc/self/fd/{fds[0]} address {link_address(0)} "
                f"mtu {mtu} {ONE_QUEUE} type veth peer name {TEST_DEVICE} "
                f"netns /proc/self/fd/{fds[1]} address {link_address(1)} mtu {mtu} {ONE_QUEUE}"
            )
            return
        for i, fd in enumerate(fds):
            yield (
                f"link add port{i} mtu {mtu} {ONE_QUEUE} type veth peer name {TEST_DEVICE} "
                f"netns /proc/self/fd/{fd} address {link_address(i)} mtu {mtu} {ONE_QUEUE}"
            )
            yield f"link set port{i} up"
