# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The vm lane: hosts are QEMU guests, each with a kernel of its own.

    guest0 eth1 --- port0 [middle] port1 --- eth1 guest1        p2p
    guest0 eth1 --- port0 [bridge] port1 --- eth1 guest1        p2p, backend none
    host0, a namespace, whose eth1 is the tap of --- eth1 guest1     p2p, namespaces: 1

The middle is that of the netns lane, with taps in place of veth devices; a
dumbbell works the same way.  QEMU, taps and bridges live in namespaces that
die with this process, so no address of the network exists outside of them,
and nothing is left behind.  Each guest has `mgmt0` too, on which it is driven
by ssh (guest.py).  One boot serves many runs.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path as FilePath

from datapath import privileges, scratch
from datapath.errors import CapabilityError, DatapathError, RunFailed
from datapath.lanes import kernels, rdma
from datapath.lanes.accel import accelerator
from datapath.lanes.base import CpuUse, Host, paired
from datapath.lanes.cards import Cards, card_names, joined
from datapath.lanes.devices import describe_devices
from datapath.lanes.guest import Guest, GuestConfig, Nic, check_seen
from datapath.lanes.local import (
    MGMT_DEVICE,
    TEST_DEVICE,
    NetnsHost,
    endpoint,
    host_commands,
    link_address,
    set_ipv6,
)
from datapath.lanes.middle import BACKENDS, Middle, WithMiddle
from datapath.lanes.namespace import Holder, Namespace
from datapath.lanes.remote import ClientKey, SshHost
from datapath.lanes.spec import MIDDLE, Topology
from datapath.native import paths

_TEMPORARY = "datapath-guests-"

_BOOT_S = 240.0
"""A guest that cannot be logged in to by then is dead; ten to twenty seconds are usual."""

_SILENT_S = 60.0
"""A guest that boots and says nothing for so long is stuck."""

_RESTARTS = 2
"""How often a guest that ends or is stuck while it boots is started again.

Seen with Linux 7.2 under TCG, once in some hundred boots with two CPUs from the start: where the
kernel changes its clock source it patches its own code, and a CPU that executes what was there
meanwhile ends in "Oops: int3", or both wait for each other.
"""

_LOGIN_POLL_S = 0.3
_TAP_PACKETS = 8192
"""That a tap holds for its guest; it drops further ones.

Of rxe, which keeps 128 packets of each QP under way, four QPs fill the 500 that it has by itself.
"""
_CONTROL = "198.19.0.254"
"""This process's own address on the management network."""

_BRIDGED = "a bridge joins the hosts, as the path section asks"
_DIRECT = "the tap of the guest is the device of the other host"


class VmNetwork(WithMiddle):
    """Guests and the network between them; implements datapath.lanes.base.Network.

    logs: folder for the guests' consoles, or None.  folder: where the topology's files are.
    """

    def __init__(
        self,
        topology: Topology,
        backend: str = "bpf",
        logs: FilePath | None = None,
        folder: FilePath | None = None,
    ) -> None:
        if topology.namespaces and backend != "none":
            raise CapabilityError(
                "with namespaces: 1 the tap is the device under test, and nothing is in between",
                hint="set path: {backend: none}; netem inside the guest can impair",
            )
        check_seen("the toolkit in", paths.PACKAGE, "move it to another folder")
        check_seen("the cache", kernels.cache.folder(), "set XDG_CACHE_HOME to another folder")
        if logs is not None:
            check_seen("results in", logs, "choose another folder with --out")
        self.topology = topology
        self.backend = backend
        self.kernel = kernels.find(topology.kernel)
        self.hosts: list[Host] = []
        self._logs, self._folder = logs, folder
        self._guests: list[Guest] = []
        self._links: list[SshHost] = []
        self._namespace_hosts: list[NetnsHost] = []
        cards = card_names(topology)
        self._holder = Holder([*(f"host{i}" for i in range(topology.namespaces)), *cards, MIDDLE])
        self._device: str | None = ""
        self._temporary = contextlib.ExitStack()

    def __enter__(self) -> VmNetwork:
        privileges.check("the vm lane")
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for link in self._links:
            link.close()
        if self._cards is not None:
            self._cards.close()
        if self._middle is not None:
            self._middle.close()
        for guest in self._guests:
            guest.kill()
        self._holder.close()
        for host in self._namespace_hosts:
            host.end_programs()
        for guest in self._guests:
            guest.wait()
        self._holder.wait()
        self._temporary.close()

    @property
    def pairs(self) -> list[tuple[Host, Host]]:
        """(client, server) across the path."""
        return paired(self.hosts, self.topology.preset)

    @property
    def local(self) -> bool:
        return False

    def prepare(self, device: str) -> None:
        """As lanes.base.Network says; a namespace host keeps to dp and sockets."""
        wanted = device if device in rdma.KERNEL_DEVICES else ""
        if wanted == self._device:
            return
        if wanted == "siw" and self.kernel.siw is None:
            raise CapabilityError(
                f"kernel {self.kernel.release} has no siw: {self.kernel.siw_reason}",
                hint=f"dpctl kernel install {self.topology.kernel}",
            )
        gone, self._device = self._device, None  # until all of them are done
        for link in self._links:
            if gone:
                rdma.remove(link, gone, unload=True)
        for link in self._links:
            if wanted:
                rdma.add(link, wanted)
        self._device = wanted

    def check_alive(self) -> None:
        """As lanes.base.Network says."""
        self._check_guests()
        super().check_alive()

    def _check_guests(self) -> None:
        """RunFailed, with the guest's name: its own end says more than that of its connection."""
        for guest in self._guests:
            guest.check_alive()
        for link in self._links:
            link.check_alive()

    def recover(self) -> bool:
        """End the programs that a failed run left.

        False when a guest or the emulator is gone, or guests differ in their RDMA devices.
        """
        if self._device is None:
            return False
        try:
            self._check_guests()
            self.middle.check_alive()
            for link in self._links:
                link.end_programs()
        except DatapathError:
            return False
        for host in self._namespace_hosts:
            host.end_programs()
        return True

    def measuring(self) -> AbstractContextManager[CpuUse]:
        """Programs run in guests, whose kernels give them their CPUs."""
        return nullcontext(CpuUse())

    def describe(self) -> dict[str, object]:
        """Kernel, acceleration and devices, outside and inside of the guests."""
        reason = BACKENDS[self.backend]
        if self.backend == "none":
            reason = _DIRECT if self.topology.namespaces else _BRIDGED
        spaces = [(host.name, host.namespace) for host in self._namespace_hosts]
        spaces.append((self.middle.name, self.middle.namespace))
        return {
            "lane": "vm",
            "preset": self.topology.preset,
            "backend": self.backend,
            "backend_reason": reason,
            "kernel": self.kernel.release,
            "acceleration": self._accel.words,
            **({"vnic": self._cards.describe()} if self._cards is not None else {}),
            "cpus": self._accel.cpus,
            "memory": self.topology.memory,
            "hosts": {link.name: link.facts() for link in self._links},
            "devices": {name: describe_devices(space) for name, space in spaces},
        }

    # --- building ---

    def _build(self) -> None:
        topology = self.topology
        guests = topology.hosts - topology.namespaces
        self._accel = accelerator(self.kernel, topology.cpus, guests)
        *spaces, middle = self._holder.open()
        spaces, cards = spaces[: topology.namespaces], spaces[topology.namespaces :]
        if cards:
            self._cards = Cards(topology, cards, self._folder)
        self._middle = Middle(middle, joined(topology), self.backend)
        self._middle.build(self._middle_links(), pass_fds=[card.net_fd for card in cards])
        self._namespace_hosts = [
            NetnsHost(space.name, endpoint(i, topology.mtu), space)
            for i, space in enumerate(spaces)
        ]
        for index, host in enumerate(self._namespace_hosts):
            self._build_namespace_host(index, host)
        key = ClientKey.generate()
        temporary = self._temporary.enter_context(scratch.folder(_TEMPORARY))
        # The guests' QEMU runs where their taps are.
        place = spaces[0] if spaces else middle
        for index in range(topology.namespaces, topology.hosts):
            config = self._guest_config(index)
            self._guests.append(Guest(config, place, key.public, self._logs, temporary))
        self._log_in(place, key)
        if self._cards is not None:
            self._cards.take(middle, [tap for tap, _ in self._taps()])
        self._middle.forward()
        if self._cards is not None:
            self._cards.start(emulated=self._accel.emulated)
        self.hosts = [*self._namespace_hosts, *self._links]

    def _taps(self) -> Iterator[tuple[str, str]]:
        """(tap under test, management tap) of each guest."""
        if self.topology.namespaces:
            yield TEST_DEVICE, MGMT_DEVICE
        else:
            # With cards, the ports are theirs.
            name = "port" if self._cards is None else "tap"
            for index in range(self.topology.hosts):
                yield f"{name}{index}", f"mgmt{index}"

    def _middle_links(self) -> Iterator[str]:
        """ip commands, run in the middle, that make the taps."""
        if self.topology.namespaces:
            return
        yield f"address add {_CONTROL}/24 dev mgmt"
        if self.backend == "none":
            yield f"link add bridge0 mtu {self.topology.mtu} type bridge"
            yield "link set bridge0 up"
        for tap, mgmt in self._taps():
            yield from _tap(tap, self.topology.mtu)
            yield from _tap(mgmt)
            yield f"link set {mgmt} master mgmt"
            if self.backend == "none" and self._cards is None:
                yield f"link set {tap} master bridge0"
        if self._cards is not None:
            yield from self._cards.links()
            for index in range(len(self._cards.spaces) if self.backend == "none" else 0):
                yield f"link set port{index} master bridge0"

    def _build_namespace_host(self, index: int, host: NetnsHost) -> None:
        host.namespace.in_network(lambda: set_ipv6(accept_ra=0, router_solicitations=0))
        commands = [
            *_tap(TEST_DEVICE, self.topology.mtu, link_address(index)),
            *_tap(MGMT_DEVICE),
            *host_commands(index, self.topology.mtu, self.topology.hosts),
        ]
        host.namespace.check_output(["ip", "-batch", "-"], stdin="\n".join(commands))

    def _guest_config(self, index: int) -> GuestConfig:
        topology = self.topology
        tap, mgmt = list(self._taps())[index - topology.namespaces]
        address = endpoint(index, topology.mtu).mgmt_ipv4
        return GuestConfig(
            name=f"host{index}",
            kernel=self.kernel,
            cpus=self._accel.cpus,
            memory=topology.memory,
            accelerator=self._accel,
            nics=(
                Nic(tap, TEST_DEVICE, link_address(index), topology.mtu, under_test=True),
                Nic(mgmt, MGMT_DEVICE, f"02:00:c6:13:00:{index + 1:02x}", 1500),
            ),
            mgmt=f"{address}/24",
        )

    def _log_in(self, place: Namespace, key: ClientKey) -> None:
        """Wait for every guest's sshd, then finish its network as that of any host."""
        topology = self.topology
        places = range(topology.namespaces, topology.hosts)
        wheres = [endpoint(index, topology.mtu) for index in places]
        links: dict[int, SshHost] = {}
        # At once: an sshd waits two minutes for the log-in of a connection.
        for number, sock in _connect(place, [where.mgmt_ipv4 for where in wheres], self._guests):
            guest, where = self._guests[number], wheres[number]
            link = SshHost.over_socket(guest.config.name, where, sock, key, shared_files=True)
            links[number] = link
            self._links = [links[number] for number in sorted(links)]
            guest.when_ended(partial(self._lose, link))
        for index, link in zip(places, self._links, strict=True):
            commands = host_commands(index, topology.mtu, topology.hosts)
            _configure(link, [f"link set {TEST_DEVICE} mtu {topology.mtu}", *commands])

    def _lose(self, link: SshHost, words: str) -> None:
        """A guest has ended: programs of other hosts would wait for it as long as they care to."""
        link.connection.lose(words)
        hosts: list[SshHost | NetnsHost] = [*self._links, *self._namespace_hosts]
        for host in hosts:
            if host is not link:  # its own fail by themselves, with these words
                host.kill_programs()


def _tap(name: str, mtu: int = 1500, mac: str = "") -> Iterator[str]:
    yield f"tuntap add dev {name} mode tap"
    address = f"address {mac} " if mac else ""
    yield f"link set {name} mtu {mtu} txqueuelen {_TAP_PACKETS} {address}up"


def _connect(
    place: Namespace, addresses: Sequence[str], guests: Sequence[Guest]
) -> Iterator[tuple[int, socket.socket]]:
    """(number of a guest, connection to its sshd made in a namespace), as the guests come up.

    RunFailed when one never listens.
    """
    deadline = time.monotonic() + _BOOT_S
    restarts = [_RESTARTS] * len(guests)
    waiting = list(range(len(guests)))
    while waiting:
        for index in tuple(waiting):
            guest = guests[index]
            sock = place.in_network(partial(_sshd, addresses[index]))
            if sock is not None:
                waiting.remove(index)
                yield index, sock
                continue
            trouble = guest.ended() or guest.stuck(_SILENT_S)
            if trouble and restarts[index]:
                guest.restart(trouble)
                restarts[index] -= 1
            guest.check_alive()
            _check_time(guest, deadline)
        time.sleep(_LOGIN_POLL_S)


def _check_time(guest: Guest, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RunFailed(
            f"guest {guest.config.name} was not up after {_BOOT_S:g} s: {guest.last_words()}",
            hint="; ".join(filter(None, (guest.where, "a busy machine needs longer under TCG"))),
        )


def _sshd(address: str) -> socket.socket | None:
    """A connection to an sshd that answers, or None."""
    with contextlib.suppress(OSError):
        sock = socket.create_connection((address, 22), timeout=2)
        with contextlib.suppress(OSError):
            # sshd speaks first: a guest that is only half up is found out here.
            if sock.recv(4, socket.MSG_PEEK) == b"SSH-":
                sock.settimeout(None)
                return sock
        sock.close()
    return None


def _configure(link: SshHost, commands: Sequence[str]) -> None:
    """Addresses, MTU and neighbours of a guest, by ip commands as in a namespace."""
    # guest_init.sh has done the rest.
    done = ("link set lo", f"link set {MGMT_DEVICE}", f"address add {link.endpoint.mgmt_ipv4}")
    lines = [line for line in commands if not line.startswith(done)]
    script = "ip -batch - <<'END'\n" + "\n".join(lines) + "\nEND"
    result = link.run(["sh", "-c", script], timeout_s=60)
    if result.returncode != 0:
        raise DatapathError(f"network of {link.name}: {' '.join(result.stderr.split())}")
