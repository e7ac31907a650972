# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Virtual cards on machines that one can log in to.

    machine: dpguest -- dpcard [card] eth1 --- network --- eth1 [card] dpcard -- dpguest

The guest of a machine's card is the machine itself, by a veth pair that is made there: programs
of the experiment use dpguest in place of the machine's device.  The warden takes the pair away
when the connection ends, and the program has its standard input over that connection.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from datapath.errors import CapabilityError
from datapath.lanes.base import Endpoint
from datapath.lanes.card_programs import CardPrograms
from datapath.lanes.local import link_address
from datapath.lanes.middle import ONE_QUEUE, WIRE_OFFLOADS
from datapath.lanes.remote import SshHost
from datapath.lanes.spec import Topology
from datapath.vnic.program import GuestRow, Settings, Start
from datapath.vnic.spec import Share

GUEST_DEVICE = "dpguest"
CARD_DEVICE = "dpcard"
_VNI = 1


class MachineCards(CardPrograms):
    """The cards of a network of machines, which become their guests: their endpoints change.

    labels: what errors call the machines.  folder: as CardPrograms.
    """

    def __init__(
        self,
        topology: Topology,
        hosts: Sequence[SshHost],
        labels: Sequence[str],
        folder: Path | None,
    ) -> None:
        assert topology.card is not None
        super().__init__(topology.card, [host.endpoint.ipv4 for host in hosts], folder)
        self._mtu, self._hosts, self._labels = topology.mtu, list(hosts), list(labels)
        self._devices = [host.endpoint.netdev for host in hosts]
        self._guests = [_guest(index, topology.mtu, host) for index, host in enumerate(hosts)]

    def join(self) -> None:
        """Make each machine the guest of its card.  CapabilityError in the words of its ip."""
        for index, (host, label) in enumerate(zip(self._hosts, self._labels, strict=True)):
            _make_pair(host, label, index, self._guests[index])
            host.endpoint = self._guests[index]

    def starter(self, index: int) -> Start:
        """As CardPrograms has it."""
        from datapath.lanes.remote.piped import start_piped

        host = self._hosts[index]
        return lambda program: start_piped(host.connection, [host.provide(program)])

    def settings(self, me: int, cc: Path) -> Settings:
        """As CardPrograms has it."""
        address, device = self.addresses[me], self._devices[me]
        port = f"udp:{address}" if self.card.port == "udp" else f"afxdp:{device},ip={address}"
        return self.common_settings(
            me,
            port,
            Path(self._hosts[me].provide(cc)),
            mtu=self._mtu,
            guests=[self._row(index, me) for index in range(len(self._hosts))],
            tenants={_VNI: Share().row},
        )

    def prefix(self, index: int, logs: Path) -> str:
        """As CardPrograms has it."""
        return f"{self._hosts[index].outputs(logs)}/{self.series_name(index)}"

    def _row(self, index: int, me: int) -> GuestRow:
        where = self._guests[index]
        device = CARD_DEVICE if index == me else "-"
        at = self.order(me).index(index)
        return GuestRow(_VNI, link_address(index), at, where.ipv4, where.ipv6, device)


def _guest(index: int, mtu: int, host: SshHost) -> Endpoint:
    """Addresses set aside for benchmarks, beside those that other lanes give to hosts."""
    return Endpoint(
        netdev=GUEST_DEVICE,
        ipv4=f"198.18.2.{index + 1}",
        ipv6=f"2001:2:0:2::{index + 1:x}",
        mtu=mtu,
        mgmt_ipv4=host.endpoint.mgmt_ipv4,
    )


def _make_pair(host: SshHost, label: str, index: int, where: Endpoint) -> None:
    delete = f"ip link delete {CARD_DEVICE}"
    said = host.connection.make(_pair(index, where), delete.split())
    if said is not None and host.run(["ip", "link", "show", CARD_DEVICE]).returncode == 0:
        raise CapabilityError(
            f"{label}: another run has its {CARD_DEVICE}",
            hint=f"wait for its end; if there is none: {delete}, there",
        )
    if said is None:
        script = " && ".join(shlex.join(words) for words in _commands(where))
        done = host.run(["sh", "-c", script])
        if done.returncode == 0:
            return
        said = " ".join(done.stderr.split())
    raise CapabilityError(
        f"{label} cannot make a guest of its card: {said}",
        hint="a veth pair needs root, iproute2 and ethtool there",
    )


def _pair(index: int, where: Endpoint) -> list[str]:
    size = f"mtu {where.mtu} {ONE_QUEUE}"
    pair = f"{CARD_DEVICE} {size} type veth peer name {GUEST_DEVICE} {size}"
    return f"ip link add {pair} address {link_address(index)}".split()


def _commands(where: Endpoint) -> Iterator[list[str]]:
    """What makes the pair's end a guest's device."""
    for words in (
        f"link set {CARD_DEVICE} addrgenmode none up",
        f"link set {GUEST_DEVICE} addrgenmode none up",
        f"address add {where.ipv4}/24 dev {GUEST_DEVICE}",
        f"address add {where.ipv6}/64 dev {GUEST_DEVICE} nodad",
    ):
        yield ["ip", *words.split()]
    # A guest sends whole frames: no offloads.
    yield ["ethtool", "-K", GUEST_DEVICE, *WIRE_OFFLOADS]
