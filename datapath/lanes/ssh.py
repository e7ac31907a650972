# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The ssh lane: hosts are machines that one can log in to, and the network is theirs.

Nothing is built and nothing impaired; what is added (an RDMA device of the
kernel's, the devices of virtual cards, files) is removed again, by the machine
itself if need be.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path as FilePath
from typing import Any

from datapath import foreign
from datapath.debian import install_hint
from datapath.errors import CapabilityError, DatapathError, LocalError, RemoteError
from datapath.lanes import rdma
from datapath.lanes.base import CpuUse, Endpoint, PathCounters, paired
from datapath.lanes.card_programs import WithCards
from datapath.lanes.event_spec import Event
from datapath.lanes.machine_cards import MachineCards
from datapath.lanes.machine_login import log_in
from datapath.lanes.remote import Connection, SshHost
from datapath.lanes.spec import Machine, Path, Topology
from datapath.native import paths
from datapath.spelling import did_you_mean

_BACKEND_REASON = "the machines' own network; nothing is in between that could impair"
_NOT_IN_LISTS = re.compile(r"[\s:;]")
"""What separates the names of LD_PRELOAD and of DATAPATH_DEVICES, which know no quotes."""


class SshNetwork(WithCards):
    """Machines by ssh, as a context manager; implements datapath.lanes.base.Network.

    folder: where a relative `ssh_config` begins.
    """

    def __init__(self, topology: Topology, path: Path, folder: FilePath | None = None) -> None:
        self.topology = topology
        self.hosts: list[SshHost] = []
        self._config: FilePath | None = None
        if topology.ssh_config is not None:
            self._config = foreign.beside(folder or FilePath(), topology.ssh_config)
            if not foreign.is_file(self._config):
                raise LocalError(
                    f"topology.ssh_config: there is no file {self._config}",
                    hint="vagrant ssh-config >ssh-config makes one; or leave the key out to use "
                    "~/.ssh/config",
                )
        self._folder = folder
        self._facts: dict[str, dict[str, Any]] = {}
        self._device: str | None = ""
        self._added: list[tuple[SshHost, str]] = []
        self._check(path)

    def __enter__(self) -> SshNetwork:
        try:
            for index, machine in enumerate(self.topology.machines):
                self.hosts.append(self._log_in(index, machine))
            self._check_hosts()
            self._place_cards()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._cards is not None:
            with suppress(DatapathError):  # of a machine that is gone
                self._cards.close()
        for host in self.hosts:
            host.close()

    @property
    def pairs(self) -> list[tuple[SshHost, SshHost]]:
        """(client, server): machine i of the first and of the second half."""
        return paired(self.hosts, self.topology.preset)

    @property
    def local(self) -> bool:
        return False

    def label(self, index: int) -> str:
        """The name of a machine in errors."""
        return f"machine {index} ({self.topology.machines[index].ssh})"

    def prepare(self, device: str) -> None:
        """As lanes.base.Network says; a device that was there before is used, and stays."""
        wanted = device if device in rdma.KERNEL_DEVICES else ""
        if wanted == self._device:
            return
        self._device = None  # until all of them are done
        while self._added:
            host, old = self._added[-1]
            rdma.remove(host, old)
            host.connection.undone(rdma.removing(old))
            self._added.pop()
        for index, host in enumerate(self.hosts if wanted else []):
            self._add_rdma(index, host, wanted)
        self._device = wanted

    def check_alive(self) -> None:
        """As lanes.base.Network says."""
        for host in self.hosts:
            host.check_alive()
        super().check_alive()

    def lacks(self, device: str, port: str) -> Iterator[DatapathError]:
        """Parts that the machines lack for a verbs device (and the port of a dp device)."""
        needs_root = device in rdma.KERNEL_DEVICES or (device == "dp" and port == "afxdp")
        for index, host in enumerate(self.hosts):
            if needs_root and not host.connection.root:
                what = "AF_XDP" if device == "dp" else f"making {device}0"
                yield _not_root(self.label(index), what)
            if device in rdma.KERNEL_DEVICES and not self._has_module(host, device):
                yield CapabilityError(
                    f"{self.label(index)}: its kernel has no {device}",
                    hint="use a kernel with RDMA: Debian's generic flavour, not cloud",
                )
            if device != "dp":
                continue
            if _NOT_IN_LISTS.search(host.connection.folder):
                yield CapabilityError(
                    f"{self.label(index)}: LD_PRELOAD cannot name files of its temporary folder "
                    f"{host.connection.folder}",
                    hint="set TMPDIR there to a folder without space, colon and semicolon",
                )
                continue
            yield from _library_lacks(
                self.label(index), host, paths.verbs_library(), "the dp device"
            )

    def recover(self) -> bool:
        """End the programs that a failed run left; False when a machine no longer answers."""
        try:
            for host in self.hosts:
                host.end_programs()
        except DatapathError:
            return False
        return True

    def set_path(self, path: Path, seed: int, *, held: bool = False) -> None:
        """Cards make new tunnels.  CapabilityError for a `path` section that asks for something."""
        self._check(path)
        if self._cards is not None:
            self._cards.meet()

    def change_path(self, zero_ns: int, events: Sequence[Event], since_ns: int = 0) -> None:
        raise LocalError("lane ssh does not change the path of its machines", hint="use lane netns")

    def path_counters(self) -> PathCounters:
        return PathCounters()

    def link_counters(self) -> dict[str, dict[str, int]]:
        """No link of its path can be asked."""
        return {}

    def queue_peaks(self) -> dict[str, int]:
        """No queue of its path can be asked."""
        return {}

    def emulator_late_ns(self) -> dict[str, int]:
        """No program emulates its path."""
        return {}

    def measuring(self) -> AbstractContextManager[CpuUse]:
        """Change nothing: how the machines share their CPUs is their owners' decision."""
        return nullcontext(CpuUse())

    def sampled_path(
        self, prefix: FilePath, interval_ns: int, max_bytes: int
    ) -> AbstractContextManager[None]:
        """Sample nothing: the queues of the machines' network cannot be seen from here."""
        return nullcontext()

    def describe(self) -> dict[str, object]:
        """Each machine with its facts, and its device as other lanes tell it."""
        facts: dict[str, dict[str, Any]] = {host.name: host.facts() for host in self.hosts}
        hosts: dict[str, object] = {}
        devices: dict[str, object] = {}
        for machine, host in zip(self.topology.machines, self.hosts, strict=True):
            where = host.endpoint
            addresses = {"ipv4": where.ipv4, "ipv6": where.ipv6, "mgmt": where.mgmt_ipv4}
            hosts[host.name] = {**facts[host.name], "ssh": machine.ssh, **addresses}
            devices[host.name] = {where.netdev: _device(facts[host.name], where)}
        return {
            "lane": "ssh",
            "preset": self.topology.preset,
            "backend": "none",
            "backend_reason": _BACKEND_REASON,
            **({"vnic": self._cards.describe()} if self._cards is not None else {}),
            "hosts": hosts,
            "devices": devices,
        }

    # --- building ---

    def _check(self, path: Path) -> None:
        if path.impaired or path.backend not in ("auto", "none"):
            raise CapabilityError(
                "lane ssh leaves the network as it is: nothing can be lost, marked or corrupted",
                hint="leave the path section out, or use topology: {lane: netns} or {lane: vm}",
            )

    def _log_in(self, index: int, machine: Machine) -> SshHost:
        connection = log_in(machine.ssh, self.label(index), self._config)
        try:
            where = _endpoint(connection, self.label(index), machine)
        except BaseException:
            connection.close()
            raise
        return SshHost(f"host{index}", where, connection)

    def _check_hosts(self) -> None:
        """LocalError or CapabilityError for machines that cannot be a network."""
        seen: dict[str, int] = {}
        for index, host in enumerate(self.hosts):
            address = host.endpoint.ipv4
            if address in seen:
                raise LocalError(
                    f"{self.label(seen[address])} and {self.label(index)} both have {address}",
                    hint="name each machine once, with the device that joins it to the others",
                )
            seen[address] = index
            mtu = self.hosts[0].endpoint.mtu
            if host.endpoint.mtu != mtu:
                raise CapabilityError(
                    f"MTU of {self.label(0)} is {mtu}, of {self.label(index)} "
                    f"{host.endpoint.mtu}: large packets would vanish",
                    hint=f"ip link set {host.endpoint.netdev} mtu {mtu}, there",
                )

    def _place_cards(self) -> None:
        """Make the machines guests of cards, if the topology has some."""
        if self.topology.card is None:
            return
        labels = [self.label(index) for index in range(len(self.hosts))]
        for label, host in zip(labels, self.hosts, strict=True):
            if not host.connection.root:
                raise _not_root(label, "a virtual card")
            for error in _library_lacks(label, host, paths.virtual_card(), "a virtual card"):
                raise error
        self._cards = MachineCards(self.topology, self.hosts, labels, self._folder)
        self._cards.join()
        self._cards.start()

    def _has_module(self, host: SshHost, device: str) -> bool:
        if host.name not in self._facts:
            self._facts[host.name] = host.facts()
        return bool(self._facts[host.name]["rdma"][device] != "none")

    def _add_rdma(self, index: int, host: SshHost, device: str) -> None:
        if not host.connection.root:
            raise _not_root(self.label(index), f"making {device}0")
        link, mark = host.connection, rdma.mark(device)
        # Asked before and after: the other run may just end, or begin.
        anothers = link.made(mark)
        there = _rdma_link(host, device)
        if there is None:
            rdma.load(host, device)
            said = link.make(rdma.adding(host, device), rdma.removing(device), mark)
            if said is not None:
                if _rdma_link(host, device) is None:
                    raise rdma.cannot_make(host, device, said)
                raise _anothers(self.label(index), device)
            self._added.append((host, device))
        elif anothers or link.made(mark):
            raise _anothers(self.label(index), device)
        elif there.get("netdev") != host.endpoint.netdev:
            raise CapabilityError(
                f"{self.label(index)}: its {device}0 is on {there.get('netdev')}, "
                f"not on {host.endpoint.netdev}",
                hint=f"rdma link delete {device}0, there",
            )


def _rdma_link(host: SshHost, device: str) -> dict[str, Any] | None:
    """What the machine tells of `<device>0`; None: there is none."""
    links: list[dict[str, Any]] = json.loads(host.run(["rdma", "-j", "link"]).stdout or "[]")
    return next((link for link in links if link["ifname"] == f"{device}0"), None)


def _anothers(label: str, device: str) -> CapabilityError:
    return CapabilityError(
        f"{label}: another run has its {device}0, and takes it away at its end",
        hint="wait for its end",
    )


def _not_root(label: str, what: str) -> CapabilityError:
    return CapabilityError(
        f"{label}: {what} needs root",
        hint="log in as root, or let the user sudo there without a password",
    )


def _library_lacks(label: str, host: SshHost, file: FilePath, what: str) -> Iterator[DatapathError]:
    """Libraries that a library or program of ours, `what`, needs and the machine has not."""
    there = host.provide(file)
    done = host.run(["ldd", there])
    missing = re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)
    if missing:
        yield CapabilityError(
            f"{label}: {what} needs {' and '.join(missing)}",
            hint=install_hint(*missing, where="there"),
        )
    elif done.returncode != 0 and _is_noexec(host, there):
        yield CapabilityError(
            f"{label}: {what} is copied to {host.connection.folder}, which is on a file system "
            "mounted noexec",
            hint="set TMPDIR there to a folder that may hold programs, such as /var/tmp: "
            "SetEnv TMPDIR=/var/tmp in its /etc/ssh/sshd_config",
        )
    elif done.returncode != 0 or "not found" in done.stderr + done.stdout:
        words = " ".join((done.stderr or done.stdout).split())
        yield CapabilityError(
            f"{label} cannot run {file.name} of this machine: {words}",
            hint="use machines of this architecture and Debian release, or run dpctl on one",
        )


def _is_noexec(host: SshHost, path: str) -> bool:
    found = host.run(["findmnt", "--noheadings", "--output", "OPTIONS", "--target", path])
    return "noexec" in found.stdout.strip().split(",")


def _device(facts: Mapping[str, Any], where: Endpoint) -> dict[str, object]:
    """The device under test in the words of the other lanes."""
    known: dict[str, str] = facts.get("offload", {})
    offloads = {name.replace("-", "_"): value == "on" for name, value in known.items()}
    return {"kind": facts["nic"].get("driver", ""), "mtu": where.mtu, "offloads": offloads}


# --- the device under test -------------------------------------------------------------------


def _endpoint(connection: Connection, label: str, machine: Machine) -> Endpoint:
    """Find the device and its addresses on the machine."""
    unaddressed = SshHost(label, Endpoint(machine.netdev, "", "", 0), connection)
    done = unaddressed.run(["ip", "-j", "address"])
    if done.returncode != 0:
        raise CapabilityError(
            f"{label}: ip: {done.stderr.strip()}", hint=install_hint("ip", where="there")
        )
    links = _links(label, done.stdout)
    link = links.get(machine.netdev)
    if link is None:
        raise LocalError(
            f"{label} has no network device {machine.netdev}",
            hint=did_you_mean(
                machine.netdev, [name for name in links if name != "lo"], "there are"
            ),
        )
    if "UP" not in link["flags"]:
        raise CapabilityError(
            f"{label}: {machine.netdev} is down", hint=f"ip link set {machine.netdev} up, there"
        )
    ipv4 = _choose(label, machine, list(_addresses(link, "inet")))
    return Endpoint(
        netdev=machine.netdev,
        ipv4=ipv4,
        ipv6=next(_addresses(link, "inet6"), ""),
        mtu=link["mtu"],
        mgmt_ipv4=str(machine.mgmt or connection.address or ipv4),
    )


def _links(label: str, text: str) -> dict[str, Any]:
    """Devices by name, from `ip -j address`; RemoteError for any other text.

    Addresses become part of command lines on the other machines, so each must be one.
    """
    try:
        links = {str(link["ifname"]): link for link in json.loads(text)}
        for link in links.values():
            for info in link["addr_info"]:
                if info["family"] in ("inet", "inet6"):
                    ipaddress.ip_address(info["local"])
            link["mtu"] = int(link["mtu"])
            link["flags"] = list(link["flags"])
    except (ValueError, TypeError, KeyError) as error:
        raise RemoteError(
            f"{label} does not tell its addresses: {error!r}", hint="run there: ip -j address"
        ) from None
    return links


def _addresses(link: Mapping[str, Any], family: str) -> Iterator[str]:
    """Addresses of a device, global ones first."""
    known = [info for info in link["addr_info"] if info["family"] == family]
    for info in sorted(known, key=lambda info: info["scope"] != "global"):
        yield info["local"]


def _choose(label: str, machine: Machine, known: Sequence[str]) -> str:
    if not known:
        raise CapabilityError(
            f"{label}: {machine.netdev} has no IPv4 address",
            hint=f"ip address add ADDRESS/PREFIX dev {machine.netdev}, there",
        )
    if machine.ipv4 is None:
        return known[0]
    if str(machine.ipv4) not in known:
        raise LocalError(
            f"{label}: {machine.netdev} has not the address {machine.ipv4}",
            hint=f"it has {', '.join(known)}",
        )
    return str(machine.ipv4)
