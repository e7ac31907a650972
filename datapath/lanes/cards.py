# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Virtual cards between the hosts of lanes netns and vm and their network.

    host0 eth1 -- guest0 [card0] eth1 -- port0 [middle] port1 -- eth1 [card1] guest1 -- eth1 host1

A host is the guest of a card that has a namespace of its own: by a veth, or by its tap.  The
network joins the cards, which have the addresses 198.18.1.0/24 there.  Tenants share a card:
then there is one for the hosts of each side, and the network joins these two.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from datapath.lanes.card_programs import CardPrograms
from datapath.lanes.local import TEST_DEVICE, endpoint, link_address
from datapath.lanes.middle import ONE_QUEUE, WIRE_OFFLOADS
from datapath.lanes.namespace import Namespace, spawn
from datapath.lanes.spec import Topology
from datapath.vnic.program import GuestRow, Settings, Start
from datapath.vnic.spec import Share

_VNI = 1
"""Of the first tenant."""


def guest_device(host: int) -> str:
    """The card's side of a host's network."""
    return f"guest{host}"


def card_names(topology: Topology) -> list[str]:
    """Of the cards of a network, which has none without `vnic`."""
    return [f"card{index}" for index in range(len(_members(topology)))]


def _members(topology: Topology) -> list[list[int]]:
    """The hosts behind each card."""
    hosts = list(range(topology.hosts))
    if topology.card is None:
        return []
    if not topology.card.tenants:
        return [[host] for host in hosts]
    half = len(hosts) // 2
    return [hosts[:half], hosts[half:]]


def joined(topology: Topology) -> Topology:
    """The ends that the middle joins: hosts, or their cards."""
    if topology.card is None or not topology.card.tenants:
        return topology
    return topology.model_copy(update={"preset": "p2p", "hosts": 2})


def _address(index: int) -> str:
    return f"198.18.1.{index + 1}"


class Cards(CardPrograms):
    """The cards of one network, in namespaces that its owner opens and closes.

    folder: with an algorithm of the user's own.
    """

    def __init__(
        self, topology: Topology, spaces: Sequence[Namespace], folder: Path | None
    ) -> None:
        assert topology.card is not None
        super().__init__(topology.card, [_address(i) for i in range(len(spaces))], folder)
        self.topology, self.spaces = topology, list(spaces)
        self._members = _members(topology)
        self._card_of = {
            host: index for index, members in enumerate(self._members) for host in members
        }

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
        for index, host in enumerate(hosts):
            space = self.spaces[self._card_of[index]]
            veth = (
                f"link add {guest_device(index)} mtu {mtu} {ONE_QUEUE} type veth "
                f"peer name {TEST_DEVICE} netns /proc/self/fd/{host.net_fd} "
                f"address {link_address(index)} mtu {mtu} {ONE_QUEUE}"
            )
            space.check_output(["ip", "-batch", "-"], stdin=veth, pass_fds=[host.net_fd])
            # A guest sends whole frames: no offloads.
            host.check_output(["ethtool", "-K", TEST_DEVICE, *WIRE_OFFLOADS])
        self._configure()

    def take(self, place: Namespace, taps: Sequence[str]) -> None:
        """Make each virtual machine the guest of its card, by its tap, which is in `place` so far.

        QEMU has opened the taps by their names, and keeps them wherever they are.
        """
        for index, tap in enumerate(taps):
            space = self.spaces[self._card_of[index]]
            device = guest_device(index)
            move = f"link set {tap} netns /proc/self/fd/{space.net_fd} name {device}"
            place.check_output(["ip", "-batch", "-"], stdin=move, pass_fds=[space.net_fd])
        self._configure()

    def _configure(self) -> None:
        for index, space in enumerate(self.spaces):
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
        for host in self._members[index]:
            yield f"link set {guest_device(host)} addrgenmode none up"

    def starter(self, index: int) -> Start:
        """As CardPrograms has it."""
        pipe, space = subprocess.PIPE, self.spaces[index]
        return lambda program: spawn(space, [str(program)], stdin=pipe, stdout=pipe)

    def settings(self, me: int, cc: Path) -> Settings:
        """As CardPrograms has it."""
        port = f"udp:{_address(me)}" if self.card.port == "udp" else f"afxdp:{TEST_DEVICE}"
        return self.common_settings(
            me,
            port,
            cc,
            mtu=self.topology.mtu,
            guests=[self._guest(host, me) for host in range(self.topology.hosts)],
            tenants={self._vni(host): self._share(host).row for host in self._members[me]},
        )

    def describe(self) -> dict[str, object]:
        """As CardPrograms has it."""
        return {**super().describe(), "network_mtu": self.network_mtu}

    def _guest(self, host: int, me: int) -> GuestRow:
        where = endpoint(host, self.topology.mtu)
        card = self._card_of[host]
        device = guest_device(host) if card == me else "-"
        mac, at = link_address(host), self.order(me).index(card)
        return GuestRow(self._vni(host), mac, at, where.ipv4, where.ipv6, device)

    def _tenant(self, host: int) -> int:
        pair = host % max(1, self.topology.hosts // 2)
        return pair % len(self.card.tenants) if self.card.tenants else 0

    def _vni(self, host: int) -> int:
        return _VNI + self._tenant(host)

    def _share(self, host: int) -> Share:
        return self.card.tenants[self._tenant(host)] if self.card.tenants else Share()
