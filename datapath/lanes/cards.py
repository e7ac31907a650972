# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Virtual cards between the hosts of lanes netns and vm and their network.

    host0 eth1 -- guest [card0] eth1 -- port0 [middle] port1 -- eth1 [card1] guest -- eth1 host1

A host is the guest of a card that has a namespace of its own: by a veth, or by its tap.  The
network joins the cards, which have the addresses 198.18.1.0/24 there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from datapath.lanes.local import TEST_DEVICE, endpoint, link_address
from datapath.lanes.middle import ONE_QUEUE, WIRE_OFFLOADS
from datapath.lanes.namespace import Namespace, spawn
from datapath.lanes.spec import Topology
from datapath.vnic.program import GuestRow, HostRow, Program, Settings

GUEST_DEVICE = "guest"
_VNI = 1


def _address(index: int) -> str:
    return f"198.18.1.{index + 1}"


class Cards:
    """The cards of one network, in namespaces that its owner opens and closes."""

    def __init__(self, topology: Topology, spaces: Sequence[Namespace]) -> None:
        assert topology.card is not None
        self.topology, self.card, self.spaces = topology, topology.card, list(spaces)
        self._programs: list[Program] = []

    @property
    def network_mtu(self) -> int:
        """MTU of the links between the cards, bytes."""
        return self.card.network_mtu or self.topology.mtu

    def links(self) -> Iterator[str]:
        """ip commands, run in the middle, that join the cards to its ports."""
        for index, space in enumerate(self.spaces):
            yield (
                f"link add port{index} mtu {self.network_mtu} {ONE_QUEUE} type veth "
                f"peer name {TEST_DEVICE} netns /proc/self/fd/{space.net_fd} "
                f"address {link_address(index)} mtu {self.network_mtu} {ONE_QUEUE}"
            )
            yield f"link set port{index} up"

    def join(self, hosts: Sequence[Namespace]) -> None:
        """Make each namespace the guest of its card, by a veth."""
        mtu = self.topology.mtu
        for index, (space, host) in enumerate(zip(self.spaces, hosts, strict=True)):
            veth = (
                f"link add {GUEST_DEVICE} mtu {mtu} {ONE_QUEUE} type veth peer name {TEST_DEVICE} "
                f"netns /proc/self/fd/{host.net_fd} address {link_address(index)} "
                f"mtu {mtu} {ONE_QUEUE}"
            )
            space.check_output(["ip", "-batch", "-"], stdin=veth, pass_fds=[host.net_fd])
            self._configure(index)
            # A guest's frames are whole.
            host.check_output(["ethtool", "-K", TEST_DEVICE, *WIRE_OFFLOADS])

    def take(self, place: Namespace, taps: Sequence[str]) -> None:
        """Make each virtual machine the guest of its card, by its tap, which is in `place` so far.

        QEMU has opened the taps by their names, and keeps them wherever they are.
        """
        for index, (space, tap) in enumerate(zip(self.spaces, taps, strict=True)):
            move = f"link set {tap} netns /proc/self/fd/{space.net_fd} name {GUEST_DEVICE}"
            place.check_output(["ip", "-batch", "-"], stdin=move, pass_fds=[space.net_fd])
            self._configure(index)

    def start(self, folder: Path | None) -> None:
        """Start the programs; an algorithm of the user's own is in `folder`."""
        cc = self.card.compiled_cc(folder or Path())
        for index, space in enumerate(self.spaces):
            self._programs.append(Program(_starter(space), self._settings(index, cc)))

    def meet(self) -> None:
        """Make all tunnels anew: they know nothing of the path before."""
        for left, right in combinations(range(len(self._programs)), 2):
            a, b = self._programs[left], self._programs[right]
            # Each card names itself first.
            at_a, at_b = right, left + 1
            ends_a, ends_b = a.offer(at_a), b.offer(at_b)
            a.connect(at_a, ends_b)
            b.connect(at_b, ends_a)

    def counters(self) -> list[Mapping[str, Any]]:
        """Of each card, as Program.counters()."""
        return [program.counters() for program in self._programs]

    def describe(self) -> dict[str, object]:
        """For the manifest."""
        return {
            **self.card.model_dump(mode="json"),
            "network_mtu": self.network_mtu,
            "priority": [program.priority for program in self._programs],
        }

    def close(self) -> None:
        """End the programs; safe to call twice."""
        for program in self._programs:
            program.close()
        self._programs.clear()

    def _configure(self, index: int) -> None:
        space = self.spaces[index]
        space.check_output(["ip", "-batch", "-"], stdin="\n".join(self._commands(index)))
        space.check_output(["ethtool", "-K", TEST_DEVICE, *WIRE_OFFLOADS])

    def _commands(self, index: int) -> Iterator[str]:
        yield "link set lo up"
        yield f"link set {TEST_DEVICE} addrgenmode none up"
        yield f"address add {_address(index)}/24 dev {TEST_DEVICE}"
        for other in range(len(self.spaces)):
            if other != index:
                yield (
                    f"neighbour add {_address(other)} lladdr {link_address(other)} "
                    f"dev {TEST_DEVICE}"
                )
        yield f"link set {GUEST_DEVICE} addrgenmode none up"

    def _settings(self, me: int, cc: Path) -> Settings:
        count = len(self.spaces)
        order = [me, *(index for index in range(count) if index != me)]
        port = f"udp:{_address(me)}" if self.card.port == "udp" else f"afxdp:{TEST_DEVICE}"
        return Settings(
            port=port,
            ecn=self.card.ecn,
            cc=cc,
            mtu=self.topology.mtu,
            pipes=self.card.pipes,
            hosts=[HostRow(f"card{index}", _address(index)) for index in order],
            guests=[self._guest(index, me, order.index(index)) for index in range(count)],
            recover={"udp": self.card.recover.udp, "tcp": self.card.recover.tcp},
        )

    def _guest(self, index: int, me: int, at: int) -> GuestRow:
        host = endpoint(index, self.topology.mtu)
        device = GUEST_DEVICE if index == me else "-"
        return GuestRow(_VNI, link_address(index), at, host.ipv4, host.ipv6, device)


def _starter(space: Namespace) -> Any:
    pipe = subprocess.PIPE
    return lambda argv: spawn(space, argv, stdin=pipe, stdout=pipe)
