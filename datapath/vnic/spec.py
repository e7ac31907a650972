# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The file of `dpctl vnic run`: hosts with a card, tenants, and their guests.

All hosts have the same file, but for the names of devices on other hosts, which may be left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path as FilePath
from string import hexdigits
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from datapath.cc.spec import Cc
from datapath.places import Path, wrong_at
from datapath.units import BitRate, Bytes, DurationNs
from datapath.vnic.program import GuestRow, HostRow, Settings, ShareRow

MAC = r"^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,30}$"
ROCE_PORT = 4791
GUEST_MTU_MAX = 9000
ANOTHER_DEVICE = "name the other end of its veth, or its tap"
"""What to do about a device that is no guest's."""
OTHER = "other"
"""The class of the frames that no other class names."""

_CLASSES_MAX = 8

HOSTS_MAX, GUESTS_MAX, LOCAL_MAX = 256, 4096, 64
"""Hosts, guests in all, and guests of one host, as vnic/card.h has them."""

RATE_MAX = 10_000_000_000_000  # that of vnic/control.c

_Port = Annotated[int, Field(ge=1, le=65535)]
_NETDEV = r"^[^\s/,]{1,15}$"
_KEY = r"^[0-9A-Fa-f]{64}$"


def _check_key(value: object) -> object:
    """Errors do not show the value, which is secret."""
    if value is None or (isinstance(value, str) and re.fullmatch(_KEY, value)):
        return value
    has = "is not text"
    if isinstance(value, str):
        odd = sum(c not in hexdigits for c in value)
        has = f"has {len(value)} characters" + (f", {odd} of them no such digits" if odd else "")
    raise ValueError(f"it should be 64 hexadecimal digits in quotes, and {has}")


def _check_mac(value: object) -> object:
    digits = value.replace(":", "") if isinstance(value, str) else ""
    if digits and set(digits) == {"0"}:
        raise ValueError(f"{value} is no guest's link address")
    if re.fullmatch(r"[0-9A-Fa-f]{12}", digits) and int(digits[:2], 16) & 1:
        raise ValueError(f"{value} is a multicast address; a guest's is unicast")
    return value


def _check_device(value: object) -> object:
    if value == "lo":
        raise ValueError(f"lo is no guest's device: {ANOTHER_DEVICE}")
    return value


def _check_address(value: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if value.is_multicast or value.is_unspecified or value == IPv4Address("255.255.255.255"):
        raise ValueError(f"{value} is not the address of one host")
    return value


def _check_ipv6(value: IPv6Address) -> IPv6Address:
    if value.scope_id is not None:
        raise ValueError(f"{value} names a device: leave out %{value.scope_id}")
    if value.ipv4_mapped:
        raise ValueError(f"{value} is the IPv4 address {value.ipv4_mapped}")
    return value


def _link_local(mac: str) -> IPv6Address:
    """As link_local_address() of vnic/header.c has it."""
    b = bytes.fromhex(mac.replace(":", ""))
    return IPv6Address(bytes([0xFE, 0x80, *bytes(6), b[0] ^ 2, *b[1:3], 0xFF, 0xFE, *b[3:]]))


_Rate = Annotated[BitRate, Field(ge=1_000, le=RATE_MAX)]
_IPv4 = Annotated[IPv4Address, AfterValidator(_check_address)]
_IPv6 = Annotated[IPv6Address, AfterValidator(_check_address), AfterValidator(_check_ipv6)]


class Guest(BaseModel):
    """A guest: its addresses, and where it is."""

    model_config = ConfigDict(extra="forbid")

    host: str = Field(description="Name of the host on which it runs.")
    device: Annotated[str | None, BeforeValidator(_check_device)] = Field(
        None,
        pattern=_NETDEV,
        description="The host's side of its network: the other end of its veth, or its tap. "
        "Needed on its own host alone.",
    )
    mac: Annotated[str, BeforeValidator(_check_mac)] = Field(
        pattern=MAC, description="Its link address, which must be unicast."
    )
    ipv4: _IPv4 | None = Field(None, description="Its IPv4 address.")
    ipv6: _IPv6 | None = Field(
        None, description="Its IPv6 address, beside the link-local one that its MAC makes."
    )

    def addresses(self) -> Iterator[tuple[str, str]]:
        """Everything that no other guest of the tenant may have, with its key."""
        yield "mac", self.mac.lower()
        link_local = _link_local(self.mac)
        yield "mac", str(link_local)
        for key, address in (("ipv4", self.ipv4), ("ipv6", self.ipv6)):
            if address not in (None, link_local):
                yield key, str(address)


class Share(BaseModel):
    """The share of one of several that together want more than there is."""

    model_config = ConfigDict(extra="forbid")

    weight: int = Field(1, ge=1, le=4096, description="Its part, beside the weights of others.")
    min_rate: _Rate | None = Field(
        None, description="Guaranteed: it has that much, if its weight gives it less."
    )
    max_rate: _Rate | None = Field(
        None, description="It never has more, even when nobody else wants it."
    )

    @model_validator(mode="after")
    def _guarantee_is_allowed(self) -> Share:
        if self.min_rate and self.max_rate and self.min_rate > self.max_rate:
            raise ValueError("min_rate is more than max_rate")
        return self

    @property
    def row(self) -> ShareRow:
        """As the card takes it."""
        return ShareRow(self.weight, self.min_rate or 0, self.max_rate or 0)


class FrameClass(Share):
    """Frames of a tenant that share what the tenant has with its other frames."""

    udp: list[_Port] = Field(default=[], description="UDP ports of source or destination.")
    tcp: list[_Port] = Field(default=[], description="TCP ports of source or destination.")


class Tenant(Share):
    """A network of its own: its guests reach each other and nobody else."""

    vni: int = Field(ge=0, le=2**24 - 1, description="VXLAN network identifier.")
    guests: list[Guest] = Field(min_length=1)


class CardHost(BaseModel):
    """A host with a card."""

    model_config = ConfigDict(extra="forbid")

    address: _IPv4 | _IPv6 = Field(description="Its address on the network between the hosts.")
    port: str = Field(
        "udp",
        pattern=r"^(udp|afxdp:[^\s/,]{1,15})$",
        description="How its card reaches the network: udp, an ordinary socket; afxdp:DEV, "
        "AF_XDP on the device that has the address.",
    )

    @property
    def port_spec(self) -> str:
        """As io/port.h has it."""
        return f"udp:{self.address}" if self.port == "udp" else f"{self.port},ip={self.address}"


class Recover(BaseModel):
    """Frames that the card recovers when the network loses them: by UDP or TCP port."""

    model_config = ConfigDict(extra="forbid")

    udp: list[_Port] = Field(
        default=[ROCE_PORT],
        description="UDP ports of source or destination. 4791 is RoCEv2.",
    )
    tcp: list[_Port] = Field(
        default=[], description="TCP ports of source or destination, such as those of siw."
    )


class Card(BaseModel):
    """Settings of all cards, wherever they are."""

    model_config = ConfigDict(extra="forbid")

    pipes: int = Field(
        4,
        ge=1,
        le=16,
        description="QPs of the tunnel to another host. A flow takes one of them, and waits for "
        "the losses of the flows that share it.",
    )
    cc: Cc = Field(
        default_factory=lambda: Cc(algo="vpc"),
        description="Congestion control of these QPs: an algorithm and its parameters.",
    )
    ecn: bool = Field(False, description="The tunnels' packets are ECN-capable.")
    recover: Recover = Field(default_factory=lambda: Recover())
    coalesce: DurationNs | None = Field(
        None,
        le=10_000_000,
        description="How long frames may wait for others, so that the card and its guests wake "
        "less often, but no longer than an eighth of the tunnels' RTT. A frame after a longer "
        "silence does not wait. Unset: not at all, but 1ms behind virtual machines whose CPUs are "
        "emulated.",
    )
    rate: _Rate | None = Field(
        None,
        description="Most that a card sends, counted in its guests' frames. Unset: as much as "
        "the network takes.",
    )
    classes: dict[Annotated[str, Field(pattern=NAME)], FrameClass] = Field(
        default={},
        max_length=_CLASSES_MAX,
        description="Classes of a tenant's frames by port, with their shares of what the tenant "
        "has. The class `other` has no ports: it is all other frames.",
    )

    @model_validator(mode="after")
    def _classes_are_told_apart(self) -> Card:
        for name, row in self.classes.items():
            if (name == OTHER) == bool(row.udp or row.tcp):
                raise wrong_at(("classes", name), f"every class but {OTHER} has ports")
        if len(self.classes) == _CLASSES_MAX and OTHER not in self.classes:
            raise wrong_at(("classes",), f"at most {_CLASSES_MAX}, {OTHER} among them")
        _refuse_twice(
            (f"port {protocol} {port}", ("classes", name, protocol, index))
            for name, row in self.classes.items()
            for protocol, ports in (("udp", row.udp), ("tcp", row.tcp))
            for index, port in enumerate(ports)
        )
        _refuse_promises("classes", self.classes, self.rate)
        return self

    def assigned(self) -> list[tuple[str, int, str]]:
        """Of each port that a class names: "udp" or "tcp", the port, and the class."""
        return [
            (protocol, port, name)
            for name, row in self.classes.items()
            for protocol, ports in (("udp", row.udp), ("tcp", row.tcp))
            for port in ports
        ]

    def class_rows(self) -> dict[str, ShareRow]:
        """Name of each class -> its share; `other` comes first."""
        rows = {name: row.row for name, row in self.classes.items()}
        return {OTHER: rows.pop(OTHER, FrameClass().row), **rows}

    def compiled_cc(self, folder: FilePath) -> FilePath:
        """The algorithm as an object file, its source beside the card's file in `folder`.

        LocalError when it cannot be compiled.
        """
        from datapath.cc import compile_algorithm

        return compile_algorithm(self.cc.located(folder), self.cc.params).path


class NetworkCards(Card):
    """The cards of an experiment: each host is the guest of one."""

    tenants: list[Share] = Field(
        default=[],
        max_length=64,
        description="The hosts of each side share a card, and each pair of hosts is a tenant: "
        "these, in turn. Unset: each host has a card of its own, and all are one tenant.",
    )

    port: Literal["afxdp", "udp"] = Field(
        "afxdp", description="How cards reach the network, as transport.port."
    )
    network_mtu: Bytes | None = Field(
        None,
        ge=1280,
        le=65521,
        description="MTU between the cards, bytes. Unset: topology.mtu, which is the hosts'.",
    )


class CardFile(Card):
    """The whole file."""

    version: Literal[1] = Field(description="Version of the format.")
    mtu: Bytes = Field(
        1500,
        ge=1280,
        le=GUEST_MTU_MAX,
        description="MTU of the guests' devices. The network's own may be less.",
    )
    key: Annotated[str, BeforeValidator(_check_key)] = Field(
        pattern=_KEY,
        description="The secret by which cards accept each other: 32 random bytes, as "
        "`openssl rand -hex 32` writes them.",
    )
    control_port: int = Field(
        4790, ge=1, le=65535, description="TCP port on which cards meet, on the hosts' addresses."
    )
    hosts: dict[Annotated[str, Field(pattern=NAME)], CardHost] = Field(
        min_length=1, max_length=HOSTS_MAX
    )
    tenants: dict[Annotated[str, Field(pattern=NAME)], Tenant] = Field(min_length=1)

    @model_validator(mode="after")
    def _addresses_are_unique(self) -> CardFile:
        _refuse_twice(
            (f"address {host.address}", ("hosts", name, "address"))
            for name, host in self.hosts.items()
        )
        _refuse_families(self.hosts)
        _refuse_twice(
            (f"vni {tenant.vni}", ("tenants", name, "vni")) for name, tenant in self.tenants.items()
        )
        _refuse_promises("tenants", self.tenants, self.rate)
        for name, tenant in self.tenants.items():
            _refuse_twice(
                (f"address {address}", ("tenants", name, "guests", index, key))
                for index, guest in enumerate(tenant.guests)
                for key, address in guest.addresses()
            )
        return self

    @model_validator(mode="after")
    def _guests_have_a_host(self) -> CardFile:
        for name, tenant in self.tenants.items():
            for index, guest in enumerate(tenant.guests):
                if guest.host not in self.hosts:
                    known = ", ".join(self.hosts)
                    raise wrong_at(
                        ("tenants", name, "guests", index, "host"),
                        f"no host {guest.host!r}; hosts are {known}",
                    )
        _refuse_crowds(self.tenants)
        _refuse_twice(
            (f"device {device} of {host}", place)
            for host in self.hosts
            for device, place in self.devices(host)
        )
        return self

    def devices(self, host: str) -> Iterator[tuple[str, Path]]:
        """The devices of a host's guests, each with its place in the file."""
        for name, tenant in self.tenants.items():
            for index, guest in enumerate(tenant.guests):
                if guest.host == host and guest.device is not None:
                    yield guest.device, ("tenants", name, "guests", index, "device")

    def settings(self, me: str, cc: FilePath) -> Settings:
        """The settings of the card of host `me`.  ValueError: one of its guests has no device."""
        names = [me, *(name for name in self.hosts if name != me)]
        return Settings(
            port=self.hosts[me].port_spec,
            ecn=self.ecn,
            cc=cc,
            mtu=self.mtu,
            pipes=self.pipes,
            coalesce_ns=self.coalesce or 0,
            hosts=[HostRow(name, str(self.hosts[name].address)) for name in names],
            guests=list(self._guest_rows(me, names)),
            recover={"udp": self.recover.udp, "tcp": self.recover.tcp},
            rate_bps=self.rate or 0,
            classes=self.class_rows(),
            assigned=self.assigned(),
            tenants={
                tenant.vni: tenant.row
                for tenant in self.tenants.values()
                if any(guest.host == me for guest in tenant.guests)
            },
        )

    def _guest_rows(self, me: str, names: Sequence[str]) -> Iterator[GuestRow]:
        for name, tenant in self.tenants.items():
            for guest in tenant.guests:
                here = guest.host == me
                if here and guest.device is None:
                    raise ValueError(f"tenants.{name}: guest {guest.mac} of {me} needs a device")
                yield GuestRow(
                    vni=tenant.vni,
                    mac=guest.mac,
                    host=names.index(guest.host),
                    ipv4=str(guest.ipv4 or "-"),
                    ipv6=str(guest.ipv6 or "-"),
                    device=guest.device if here and guest.device else "-",
                )


def _refuse_families(hosts: Mapping[str, CardHost]) -> None:
    first = next(iter(hosts))
    version = hosts[first].address.version
    for name, host in hosts.items():
        if host.address.version != version:
            text = f"all hosts have addresses of one family, and the first one's is IPv{version}"
            raise wrong_at(("hosts", name, "address"), text, first=("hosts", first, "address"))


def _refuse_promises(section: str, shares: Mapping[str, Share], rate: int | None) -> None:
    promised = 0
    for name, share in shares.items():
        promised += share.min_rate or 0
        if rate is not None and promised > rate:
            text = f"with this one, the min_rate of all {section} together is more than rate"
            raise wrong_at((section, name, "min_rate"), text, first=("rate",))


def _refuse_crowds(tenants: Mapping[str, Tenant]) -> None:
    in_all, at_host = 0, Counter[str]()
    for name, tenant in tenants.items():
        for index, guest in enumerate(tenant.guests):
            place = ("tenants", name, "guests", index)
            in_all += 1
            if in_all > GUESTS_MAX:
                raise wrong_at(place, f"with this one, there are more than {GUESTS_MAX} guests")
            at_host[guest.host] += 1
            if at_host[guest.host] > LOCAL_MAX:
                raise wrong_at((*place, "host"), f"{guest.host} has more than {LOCAL_MAX} guests")


def _refuse_twice(entries: Iterable[tuple[str, Path]]) -> None:
    """Each entry: what must be there once, and its place."""
    seen: dict[str, Path] = {}
    for text, place in entries:
        if text in seen:
            raise wrong_at(place, f"{text} is there twice", first=seen[text])
        seen[text] = place
