# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hosts with cards, and guests behind them, in namespaces.

    guest blue0 eth1 -- blue0 [host 0: card] eth1 -- middle -- ...  the same way to guest blue1

Guests of a tenant have equal names but for the number of their host; host 2 and 3 of a dumbbell
have no card, and belong to whoever wants to break in.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from datapath.lanes.local import NetnsHost
from datapath.lanes.middle import WIRE_OFFLOADS, choose_backend
from datapath.lanes.namespace import Holder, Namespace, spawn
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.vnic.program import Program
from datapath.vnic.spec import CardFile
from tests.waiting import wait_until

TENANTS = {"blue": 100, "red": 200}
ETH_P_ALL = 3


@dataclass(frozen=True)
class BenchGuest:
    """A guest's namespace, and its addresses in the file."""

    name: str
    space: Namespace
    mac: str
    ipv4: str
    ipv6: str

    def raw(self) -> socket.socket:
        """For whole frames on its device."""
        return self.space.in_network(lambda: raw_socket("eth1"))

    def address(self, version: int) -> str:
        """Of IP of that version."""
        return self.ipv4 if version == 4 else self.ipv6

    def udp(self, port: int = 0, *, version: int = 4) -> socket.socket:
        """A UDP socket on its IPv4 address, or its IPv6 address."""
        family = socket.AF_INET if version == 4 else socket.AF_INET6

        def make() -> socket.socket:
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
            sock.bind((self.address(version), port))
            sock.settimeout(10)
            return sock

        return self.space.in_network(make)

    def ping(self, address: str, *options: str) -> bool:
        return self.run("ping", "-n", "-c", "1", "-W", "5", *options, address).returncode == 0

    def run(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        process = spawn(self.space, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        out, _ = process.communicate(timeout=60)
        return subprocess.CompletedProcess(argv, process.returncode, out)


class Bench:
    """Everything, for as long as an ExitStack is open."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        *,
        path: Mapping[str, Any] | None = None,
        topology: Mapping[str, Any] | None = None,
        **card: Any,
    ) -> None:
        section = Path.model_validate(path or {})
        shape = Topology.model_validate({"mtu": 1500, **(topology or {})})
        self.network = stack.enter_context(NetnsNetwork(shape, choose_backend(shape, section)))
        self.network.set_path(section, 1)
        self.hosts: list[NetnsHost] = self.network.hosts
        holder = Holder([f"{tenant}{i}" for tenant in TENANTS for i in range(2)])
        spaces = holder.open()
        stack.callback(holder.wait)
        stack.callback(holder.close)
        self.guests = {space.name: _guest(space.name, space) for space in spaces}
        self.data: dict[str, Any] = {
            "version": 1,
            "key": secrets.token_hex(32),
            "hosts": {
                f"host{i}": {"address": self.hosts[i].endpoint.ipv4, "port": "udp"}
                for i in range(2)
            },
            "tenants": {
                tenant: {"vni": vni, "guests": [self._row(f"{tenant}{i}", i) for i in range(2)]}
                for tenant, vni in TENANTS.items()
            },
            **card,
        }
        for name in self.guests:
            self.join(name)
        self.programs: list[Program] = []

    def start(self, stack: contextlib.ExitStack) -> None:
        """Cards with tunnels, without the service around them."""
        for name in self.guests:
            wait_until(lambda name=name: self.is_quiet(name), f"{name} has told its IPv6 groups")  # type: ignore[misc]
        file = CardFile.model_validate(self.data)
        for i in range(2):
            settings = file.settings(f"host{i}", file.compiled_cc(FilePath()))
            program = Program(self.starter(i), settings)
            stack.callback(program.close)
            self.programs.append(program)
        left, right = (program.offer(1) for program in self.programs)
        self.programs[0].connect(1, right)
        self.programs[1].connect(1, left)

    def starter(self, host: int) -> Callable[..., subprocess.Popen[bytes]]:
        pipe = subprocess.PIPE
        space = self.hosts[host].namespace
        return lambda program: spawn(space, [str(program)], stdin=pipe, stdout=pipe)

    def is_quiet(self, name: str) -> bool:
        """Whether a guest's kernel has sent all that it sends unasked.

        That is an MLDv2 report of the address's group, which goes out mld_qrv times within a
        second or so (RFC 3810, 6.1).  A card that runs by then counts the report.
        """
        often = int(FilePath("/proc/sys/net/ipv6/mld_qrv").read_text())
        counters = self.guests[name].space.in_network(
            lambda: FilePath("/proc/thread-self/net/dev_snmp6/eth1").read_text()
        )
        return int(dict(map(str.split, counters.splitlines())).get("Icmp6OutType143", 0)) >= often

    def counts(self, guest: str) -> dict[str, int]:
        """Of a guest, by its own card."""
        found: dict[str, int] = self.programs[int(guest[-1])].counters()["guests"][guest]
        return found

    def from_peer(self, host: int) -> dict[str, int]:
        """What a card counts of the other host."""
        found: dict[str, int] = self.programs[host].counters()["hosts"][f"host{1 - host}"]
        return found

    def _row(self, name: str, host: int) -> dict[str, Any]:
        guest = self.guests[name]
        row = {"mac": guest.mac, "ipv4": guest.ipv4, "ipv6": guest.ipv6}
        return {"host": f"host{host}", "device": name, **row}

    def join(self, name: str, state: str = "up") -> None:
        """Make the veth of a guest, and its addresses.  state: of the card's end."""
        mtu = CardFile.model_validate(self.data).mtu
        guest, host = self.guests[name], self.hosts[int(name[-1])]
        queues = "numtxqueues 1 numrxqueues 1"
        host.namespace.check_output(
            ["ip", "-batch", "-"],
            stdin=f"link add {name} mtu {mtu} {queues} type veth peer name eth1 mtu {mtu} {queues} "
            f"netns /proc/self/fd/{guest.space.net_fd} address {guest.mac}\n"
            f"link set {name} addrgenmode none {state}",
            pass_fds=[guest.space.net_fd],
        )
        commands = (
            "link set lo up",
            "link set eth1 addrgenmode none up",
            f"address add {guest.ipv4}/24 dev eth1",
            f"address add {guest.ipv6}/64 dev eth1 nodad",
        )
        guest.space.check_output(["ip", "-batch", "-"], stdin="\n".join(commands))
        guest.space.check_output(["ethtool", "-K", "eth1", *WIRE_OFFLOADS])


def _guest(name: str, space: Namespace) -> BenchGuest:
    """Tenants have equal IP addresses, as tenants may."""
    tenant, host = name[:-1], int(name[-1])
    number = 10 * list(TENANTS).index(tenant) + host + 1
    return BenchGuest(
        name, space, f"02:00:0a:00:00:{number:02x}", f"10.0.0.{host + 1}", f"fd00::{host + 1}"
    )


def raw_socket(netdev: str) -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    raw.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
    raw.bind((netdev, 0))
    raw.setblocking(False)
    return raw


def frames(raw: socket.socket) -> Iterator[bytes]:
    """Those that wait in a socket."""
    with contextlib.suppress(BlockingIOError):
        while True:
            yield raw.recv(65536)


def write_file(folder: FilePath, data: Mapping[str, Any]) -> FilePath:
    """A card file, which its owner alone may read."""
    from ruamel.yaml import YAML

    path = folder / "cards.yaml"
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as out:
        YAML(typ="safe").dump(dict(data), out)
    return path
