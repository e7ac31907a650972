# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The running dp_vnic; control.c there has the other end of the pipe."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from datapath.dialogue import Dialogue, Piped
from datapath.errors import CapabilityError, RemoteError, RunFailed, ending
from datapath.native import paths

Start = Callable[[Path], Piped]
"""Starts a program where the devices are, with pipes as standard input and output."""

_ROUTE_S = 3.0
_ROUTE_STEP_S = 0.002
"""How often the card is asked whether it has the link address."""
_HINTS = {
    errno.EBUSY: "another card or AF_XDP program has that device: end it; "
    "dpctl vnic show lists cards",
    errno.EADDRINUSE: "another program, or Linux's own vxlan device, has that port: ss -ulnp; "
    "ip -d link show type vxlan",
}


class CardEnded(RunFailed):
    """dp_vnic has ended; a new one has to be made."""


class PipeEnd(NamedTuple):
    """One end of a pipe: the QP's number, and the first PSN that it sends."""

    qpn: int
    psn: int


class HostRow(NamedTuple):
    """A host by name and address."""

    name: str
    address: str


class GuestRow(NamedTuple):
    """A guest; host: index among the hosts.  "-" for an address or device that it has not."""

    vni: int
    mac: str
    host: int
    ipv4: str
    ipv6: str
    device: str


class ShareRow(NamedTuple):
    """Weight, guaranteed and largest rate in bit/s; 0: none."""

    weight: int
    least_bps: int
    most_bps: int


@dataclass(frozen=True)
class Settings:
    """All that a card is told before it starts.

    port: as io/port.h.  cc: a compiled algorithm, where the program runs.  mtu: of guests, bytes.
    coalesce_ns: how long frames may wait for others.
    hosts: the card's own first.  recover: ports whose frames are recovered, by "udp" and "tcp".
    rate_bps: of all frames that leave the card; 0: no limit.
    classes: by name, the first is of all ports that are not assigned.
    assigned: ("udp" or "tcp", port, name of its class).  tenants: by VNI, those with guests here.
    """

    port: str
    ecn: bool
    cc: Path
    mtu: int
    pipes: int
    coalesce_ns: int
    hosts: Sequence[HostRow]
    guests: Sequence[GuestRow]
    recover: Mapping[str, Sequence[int]]
    rate_bps: int
    classes: Mapping[str, ShareRow]
    assigned: Sequence[tuple[str, int, str]]
    tenants: Mapping[int, ShareRow]

    @property
    def devices(self) -> list[str]:
        """Names of the devices of this host's guests."""
        return [guest.device for guest in self.guests if guest.device != "-"]


class Program:
    """The running card, from construction to close().  CapabilityError: it cannot work here.

    devices: those of its guests by name, with their numbers; None: there is none here.
    """

    def __init__(self, start: Start, settings: Settings) -> None:
        self.settings = settings
        self._dialogue = Dialogue(start(paths.virtual_card()), "the virtual card")
        try:
            ready = self._dialogue.hear()
            about = json.loads(ready.removeprefix("ready "))
            self.priority, self.pid = str(about["priority"]), int(about["pid"])
            self._configure(settings)
            self.devices = {name: index_of(name) for name in settings.devices}
        except BaseException:
            self.close()
            raise

    @property
    def runs(self) -> bool:
        """Whether the program has not ended."""
        return self._dialogue.process.poll() is None

    def check_alive(self, name: str) -> None:
        """CardEnded when the program has ended; name: as the error calls it."""
        status = self._dialogue.process.poll()
        if status is not None:
            raise CardEnded(f"{name} {ending(status)}")

    def offer(self, host: int) -> list[PipeEnd]:
        """Make the pipes to a host anew; our ends of them."""
        return parse_ends(self._ask("offer", host).removeprefix("ok\t").split(" "))

    def connect(self, host: int, ends: Sequence[PipeEnd]) -> None:
        """Join the pipes to the peer's ends; from then on frames may enter the tunnel."""
        deadline = time.monotonic() + _ROUTE_S
        words = [f"{end.qpn}:{end.psn}" for end in ends]
        while self._ask("connect", host, *words) == "again":
            if time.monotonic() > deadline:
                address = self.settings.hosts[host].address
                raise RemoteError(
                    f"no route to {address}: its link address is not known",
                    hint=f"ip neighbour show {address}",
                )
            time.sleep(_ROUTE_STEP_S)

    def disconnect(self, host: int) -> None:
        """End the tunnel to a host; frames for it are dropped and counted."""
        self._ask("disconnect", host)

    def clear(self) -> None:
        """Have the counters of tenants begin anew, as those of a tunnel do with offer()."""
        self._ask("clear")

    def state(self) -> Mapping[str, str]:
        """Name of each other host -> "up", "down" or "broken"."""
        state: Mapping[str, str] = json.loads(self._ask("state"))
        return state

    def counters(self) -> Mapping[str, Any]:
        """As report.c: of "hosts" by name, "guests" by device, "tenants" by VNI, "network"."""
        counters: Mapping[str, Any] = json.loads(self._ask("counters"))
        return counters

    @contextlib.contextmanager
    def sampled(self, prefix: str, interval_ns: int, max_bytes: int, most: int) -> Iterator[None]:
        """Sample tunnels and classes while the body runs, into `<prefix>.<n>.series`.

        Files of datapath.series, at most `most` of them and of max_bytes each, where the program
        runs; they must not be there.
        """
        self._ask("sample", interval_ns, max_bytes, most, prefix)
        try:
            yield
        finally:
            with contextlib.suppress(CardEnded):
                self._ask("sample")

    def close(self) -> None:
        """End the program; safe to call twice."""
        self._dialogue.close()

    def _configure(self, s: Settings) -> None:
        self._ask("network", s.port, int(s.ecn), s.cc)
        self._ask("cards", s.mtu, s.pipes, s.coalesce_ns)
        self._ask("rate", s.rate_bps)
        for name, share in s.classes.items():
            self._ask("class", name, *share)
        for vni, share in s.tenants.items():
            self._ask("tenant", vni, *share)
        for host in s.hosts:
            self._ask("host", *host)
        for guest in s.guests:
            self._ask("guest", *guest)
        for protocol, ports in s.recover.items():
            for port in ports:
                self._ask("recover", protocol, port)
        names = list(s.classes)
        for protocol, port, name in s.assigned:
            self._ask("assign", protocol, port, names.index(name))
        self._ask("start")

    def _ask(self, *words: object) -> str:
        try:
            answer = self._dialogue.ask("\t".join(map(str, words)))
        except RunFailed as error:
            raise CardEnded(str(error), hint=error.hint) from None
        if answer.startswith("error "):
            why = answer.removeprefix("error ")
            hints = (hint for code, hint in _HINTS.items() if why.endswith(os.strerror(code)))
            raise CapabilityError(f"the virtual card: {why}", hint=next(hints, ""))
        return answer


def index_of(device: str) -> int | None:
    """Its number here; None: there is none of that name."""
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(device)
    return None


def parse_ends(words: Sequence[object]) -> list[PipeEnd]:
    """Ends written as "QPN:PSN".  ValueError for anything else."""
    ends = []
    for word in words:
        qpn, colon, psn = str(word).partition(":")
        if not colon or not (qpn + psn).isascii() or not qpn.isdigit() or not psn.isdigit():
            raise ValueError("an end of a pipe is QPN:PSN")
        end = PipeEnd(int(qpn), int(psn))
        if not (2 <= end.qpn < 2**24 and 0 <= end.psn < 2**24):
            raise ValueError("a QPN or PSN is out of range")
        ends.append(end)
    return ends
