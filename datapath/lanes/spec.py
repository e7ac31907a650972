# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `topology` and `path` sections of an experiment: hosts, and the path between them."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from datapath.fabric.links import DELAY_NS_MAX, QUEUE_BYTES_MAX, Link
from datapath.lanes.graph_spec import GraphSetting, overlaid
from datapath.lanes.lane import LANES, Lane
from datapath.lanes.link_spec import LINK_KEYS, LinkSettings, excluding, link_arguments
from datapath.lanes.loss_spec import NO_LOSS, Fault, Loss, LossModel
from datapath.lanes.pfc_spec import Pfc
from datapath.lanes.wakeup_spec import WakeupSetting
from datapath.units import BitRate, Bytes, DurationNs, Probability
from datapath.vnic.spec import GUEST_MTU_MAX, NetworkCards, Share
from datapath.xdp.impair import DIRECTIONS, MAX_FAULTS, Direction, Impairment


class Machine(BaseModel):
    """A machine of the ssh lane."""

    model_config = ConfigDict(extra="forbid")

    ssh: str = Field(
        pattern=r"^(?:[^\s@/]+@)?(?:\w[\w.-]*|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$",
        description="How to log in: a name that ssh_config knows, or user@host:port.",
    )
    netdev: str = Field(
        pattern=r"^[^\s/]{1,15}$", description="Its network device under test, such as eth1."
    )
    ipv4: IPv4Address | None = Field(
        None, description="Address of that device, if it has several. Unset: found out."
    )
    mgmt: IPv4Address | None = Field(
        None,
        description="Address at which the other machines reach it for control traffic. Unset: "
        "the one that ssh uses; behind address translation, that of the device under test.",
    )


Preset = Literal[
    "p2p", "dumbbell", "star", "parking-lot", "leaf-spine", "fat-tree", "rail", "graph"
]
TWO_SIDED: tuple[Preset, ...] = ("p2p", "dumbbell", "parking-lot")
"""Presets that have a left and a right side, and hosts' links without a limit of their own."""
ONE_PATH: tuple[Preset, ...] = ("p2p", "dumbbell")
"""Presets whose path is one link with two directions."""


class Topology(BaseModel):
    """Which hosts there are and how they are joined."""

    model_config = ConfigDict(extra="forbid")

    lane: Literal["netns", "vm", "ssh", "sim"] = Field(
        "netns",
        description="Where hosts live. netns: network namespaces of this machine. vm: QEMU "
        "guests, each with a kernel of its own. ssh: machines one can log in to. sim: the engine "
        "and the link model in virtual time.",
    )
    preset: Preset = Field(
        "p2p",
        description="p2p: two hosts and a path between them. dumbbell: half of the hosts on the "
        "left, half on the right, one shared link between the two sides. In lanes sim and netns "
        "also star, parking-lot, leaf-spine, fat-tree, rail, and graph: a network of one's own.",
    )
    hosts: int = Field(
        2,
        ge=2,
        le=65536,
        description="Number of hosts: 2 for p2p, an even number for dumbbell, at most 32 that are "
        "not simulated. Presets with dimensions have as many as those say.",
    )
    mtu: Bytes = Field(
        9000,
        ge=1280,
        le=65521,
        description="MTU of every link, bytes (IPv6 needs 1280). Machines of lane ssh keep theirs.",
    )

    scheduling: Literal["auto", "realtime", "short-slice", "ordinary"] = Field(
        "auto",
        description="netns: how programs get a CPU while they are measured. realtime: before "
        "all others. short-slice: sooner than others, and as much as they. ordinary: as others. "
        "auto: realtime behind an emulated link, else short-slice. What cannot be had here is "
        "told, and the next one taken.",
    )
    keep_awake: bool = Field(
        True, description="netns: keep CPUs from going to sleep while programs are measured."
    )

    vnic: bool | NetworkCards = Field(
        False,
        description="netns, vm and ssh: each host is the guest of a virtual card, and the path "
        "joins the cards (docs/vnic.md). true, or settings.",
    )

    kernel: str = Field(
        "6.12",
        description="vm: kernel of the guests, as `dpctl kernel install` names it: a version "
        "such as 6.12, or backports, whose virtio-net has AF_XDP zero-copy.",
    )
    cpus: int | None = Field(
        None,
        ge=1,
        le=16,
        description="vm: virtual CPUs of each guest; unset: 2, but without KVM not more than this "
        "machine has for each guest.",
    )
    memory: Bytes = Field(2**30, ge=2**28, le=2**36, description="vm: memory of each guest, bytes.")
    namespaces: int = Field(
        0,
        ge=0,
        le=1,
        description="vm: 1 makes host 0 a network namespace of this machine, in which the tap of "
        "the one guest is its eth1.",
    )

    ssh_config: str | None = Field(
        None,
        description="ssh: an OpenSSH client configuration, as `vagrant ssh-config` writes it; "
        "relative to the experiment file. Unset: ~/.ssh/config.",
    )
    machines: list[Machine] = Field(
        default_factory=list,
        description="ssh: the hosts, an even number of them; the first half are the clients.",
    )

    host_rate: BitRate | None = Field(
        None,
        ge=1_000,
        description="sim and netns: rate of the hosts' links. Unset: as path.rate or, in p2p and "
        "dumbbell, no limit.",
    )
    host_delay: DurationNs | None = Field(
        None,
        le=DELAY_NS_MAX,
        description="sim and netns: propagation delay of the hosts' links, one way. Unset: as "
        "path.delay or, in p2p and dumbbell, none.",
    )
    buffer: Bytes | None = Field(
        None,
        ge=1,
        le=QUEUE_BYTES_MAX,
        description="sim and netns: packet buffer that all queues of a switch share, with dynamic "
        "thresholds (each queue may have as much as is free). Unset: path.queue alone limits.",
    )
    pfc: bool | Pfc = Field(
        False,
        description="sim and netns: data packets are never dropped for want of room; switches "
        "pause their peers instead. Needs buffer, and takes the place of path.queue. true, or "
        "thresholds.",
    )
    wakeup: WakeupSetting = Field(
        None,
        description="sim: how late the hosts' programs run after they have slept: a duration, "
        "quantiles such as {p50: 20us, p99: 90us, max: 1ms}, a file (with a / in its name) that "
        "`dpctl fabric wakeup` wrote, or live: as measured in the run of the sweep that is the "
        "same but of lane netns. Unset: in time.",
    )
    leaves: int = Field(2, ge=1, le=1024, description="leaf-spine: leaf switches.")
    spines: int = Field(2, ge=1, le=1024, description="leaf-spine and rail: spine switches.")
    hosts_per_leaf: int = Field(2, ge=1, le=1024, description="leaf-spine: hosts of a leaf.")
    k: int = Field(4, ge=2, le=64, multiple_of=2, description="fat-tree: ports of a switch.")
    servers: int = Field(2, ge=1, le=8192, description="rail: servers.")
    rails: int = Field(
        8, ge=1, le=64, description="rail: NICs of a server, each a host, and rail switches."
    )
    hops: int = Field(
        2,
        ge=1,
        le=1024,
        description="parking-lot: bottlenecks in a row. The pairs: host 0 sends across all to "
        "host 1, hosts 2, 4 ... across one each, to hosts 3, 5 ...",
    )
    graph: GraphSetting = Field(
        None,
        description="graph: hosts and links, or the name of a file with them: GraphML, or a "
        "topology of containerlab.",
    )

    @model_validator(mode="after")
    def _keys_fit_lane(self) -> Topology:
        for lane, row in LANES.items():
            given = [key for key in sorted(row.keys & self.model_fields_set) if self._differs(key)]
            if self.lane != lane and given:
                raise ValueError(f"{' and '.join(given)}: for lane {lane}, not for {self.lane}")
        if self.namespaces and self.preset != "p2p":
            raise ValueError("namespaces joins one host to its guest: use preset p2p")
        if self.vnic and not self.of_lane.cards:
            have = " and ".join(lane for lane, row in LANES.items() if row.cards)
            raise ValueError(f"vnic: for lanes {have}, not for {self.lane}")
        if self.vnic and self.namespaces:
            raise ValueError("vnic: hosts behind a card are all guests, so namespaces is 0")
        if self.vnic and self.mtu > GUEST_MTU_MAX:
            raise ValueError(f"mtu: hosts behind a virtual card have at most {GUEST_MTU_MAX}")
        return self

    @property
    def of_lane(self) -> Lane:
        """The row of its lane."""
        return LANES[self.lane]

    @property
    def lossless(self) -> Pfc | None:
        """The settings of `pfc`; None: there is no PFC."""
        return Pfc() if self.pfc is True else self.pfc or None

    @property
    def card(self) -> NetworkCards | None:
        """The settings of `vnic`; None: hosts are on the network themselves."""
        return NetworkCards() if self.vnic is True else self.vnic or None

    @property
    def network(self) -> Topology:
        """The settings that a network is built of: not those that cards take at any time."""
        if self.card is None:
            return self
        tenants = self.card.tenants[:1] and [Share()]
        kept = NetworkCards(tenants=tenants, network_mtu=self.card.network_mtu)
        return self.model_copy(update={"vnic": kept})

    def _differs(self, key: str) -> bool:
        default = type(self).model_fields[key].get_default(call_default_factory=True)
        return bool(getattr(self, key) != default)

    @model_validator(mode="after")
    def _machines_are_the_hosts(self) -> Topology:
        if self.lane != "ssh":
            return self
        given, count = self.model_fields_set, len(self.machines)
        if not self.machines:
            raise ValueError("lane ssh needs machines: [{ssh: NAME, netdev: DEVICE}, ...]")
        if count % 2:
            raise ValueError(f"machines: an even number of them, not {count}")
        if self._differs("mtu") and not self.vnic:
            raise ValueError("mtu: machines of lane ssh keep the MTU that their devices have")
        if self.card and (self.card.tenants or self.card.network_mtu):
            raise ValueError("vnic: tenants and network_mtu are not for lane ssh")
        if "hosts" in given and self.hosts != count:
            raise ValueError(f"hosts is {self.hosts}, but there are {count} machines")
        self.hosts = count
        if "preset" not in given:
            self.preset = "p2p" if count == 2 else "dumbbell"
        return self

    @property
    def has_links(self) -> bool:
        """Whether it has links beside those of one path."""
        own = (self.host_rate, self.host_delay, self.buffer)
        return any(key is not None for key in own) or self.preset not in ONE_PATH

    @model_validator(mode="after")
    def _networks_are_for_lanes(self) -> Topology:
        if not self.has_links:
            return self
        if not self.of_lane.networks:
            have = " and ".join(lane for lane, row in LANES.items() if row.networks)
            own = "buffer" if self.buffer is not None else "host_rate"
            what = f"preset {self.preset}" if self.preset not in ONE_PATH else own
            raise ValueError(f"{what}: for lanes {have}, not for {self.lane}")
        if self.vnic:
            raise ValueError("vnic: cards are joined by one path, preset p2p or dumbbell")
        return self

    @model_validator(mode="after")
    def _dimensions_are_the_hosts(self) -> Topology:
        """Dimensions fit the preset and say how many hosts there are."""
        wanted = _DIMENSIONS.get(self.preset, ())
        every = {key for keys in _DIMENSIONS.values() for key in keys}
        others = sorted(key for key in every - set(wanted) if self._differs(key))
        if others:
            raise ValueError(f"{' and '.join(others)}: not for preset {self.preset}")
        if not wanted:
            return self
        if self.preset == "graph" and self.graph is None:
            raise ValueError("preset graph needs graph: {links: [{ends: a--s}, {ends: b--s}]}")
        count = {
            "graph": len(self.graph.hosts) if self.graph else 0,
            "parking-lot": 2 * self.hops + 2,
            "leaf-spine": self.leaves * self.hosts_per_leaf,
            "fat-tree": self.k**3 // 4,
            "rail": self.servers * self.rails,
        }[self.preset]
        if "hosts" in self.model_fields_set and self.hosts != count:
            raise ValueError(f"hosts is {self.hosts}, but the dimensions make {count}")
        self.hosts = count
        return self

    @model_validator(mode="after")
    def _live_hosts(self) -> Topology:
        if self.of_lane.simulated:
            return self
        if self.hosts > LIVE_HOSTS_MAX:
            raise ValueError(f"hosts is {self.hosts}: at most {LIVE_HOSTS_MAX} of lane {self.lane}")
        if MIDDLE in self.host_names:
            raise ValueError(f"no host of lane {self.lane} can be named {MIDDLE}")
        return self

    @property
    def host_names(self) -> list[str]:
        """Of all hosts, in the order of their numbers."""
        if self.preset == "rail":
            return [f"server{i // self.rails}-nic{i % self.rails}" for i in range(self.hosts)]
        return self.graph.hosts if self.graph else [f"host{i}" for i in range(self.hosts)]

    @model_validator(mode="after")
    def _hosts_fit_preset(self) -> Topology:
        if self.preset == "p2p" and self.hosts != 2:
            raise ValueError(f"preset p2p joins 2 hosts, not {self.hosts}; dumbbell joins more")
        if self.preset == "dumbbell" and self.hosts % 2:
            raise ValueError(f"preset dumbbell needs an even number of hosts, not {self.hosts}")
        return self


LIVE_HOSTS_MAX = 32
MIDDLE = "middle"
"""Name of what is between live hosts."""
_DIMENSIONS = {
    "leaf-spine": ("leaves", "spines", "hosts_per_leaf"),
    "fat-tree": ("k",),
    "rail": ("servers", "rails", "spines"),
    "parking-lot": ("hops",),
    "graph": ("graph",),
}


class PathDirection(LinkSettings):
    """Settings of one direction of the path, in place of the common ones."""

    loss: Loss | None = Field(None, description="As path.loss, for this direction.")
    ecn_mark: Probability | None = Field(None, description="As path.ecn_mark, for this direction.")
    corrupt: Probability | None = Field(None, description="As path.corrupt, for this direction.")


class Path(LinkSettings):
    """Impairments and links on the way of packets, per direction."""

    backend: Literal["auto", "none", "bpf", "fabric", "netem"] = Field(
        "auto",
        description="bpf: a BPF program in a middle namespace, at line rate. fabric: an emulated "
        "link with rate, delay and queue. none: hosts joined directly, nothing can be impaired. "
        f"auto: fabric if something is set that only it can do ({', '.join(LINK_KEYS)}), else bpf. "
        "netem is not in this version.",
    )
    loss: Loss = Field(NO_LOSS, description="Random loss: a share, or a model with parameters.")
    ecn_mark: Probability = Field(0.0, description="Share of ECN-capable packets marked CE.")
    corrupt: Probability = Field(0.0, description="Share of packets with one payload bit flipped.")
    faults: list[Fault] = Field(
        default_factory=list, description="Faults aimed at single packets, in order of matching."
    )
    forward: PathDirection | None = Field(None, description="Overrides, host 0 to host 1.")
    backward: PathDirection | None = Field(None, description="Overrides, host 1 to host 0.")

    @model_validator(mode="after")
    def _consistent(self) -> Path:
        for direction in DIRECTIONS:
            if sum(f.direction == direction for f in self.faults) > MAX_FAULTS:
                raise ValueError(f"more than {MAX_FAULTS} {direction} faults")
            self._check_queue(direction)
        if self.backend == "none" and self.impaired:
            raise ValueError("backend none impairs nothing; use backend auto or bpf")
        keys = " and ".join(self.link_keys)
        if self.backend == "bpf" and keys:
            raise ValueError(f"{keys}: not for backend bpf; use auto or fabric")
        if self.faults and (self.backend == "fabric" or keys):
            raise ValueError(f"faults are for backend bpf, which has no {keys or 'link model'}")
        return self

    def _check_queue(self, direction: Direction) -> None:
        if two := excluding(self._settings(direction)):
            hint = "; aqm: {model: codel, ecn: true} marks" if "ecn" in two else ""
            raise ValueError(f"{direction}: {' and '.join(two)} exclude each other{hint}")

    @property
    def carrier(self) -> str:
        """The back end that carries this path: the one of the file, or the choice of auto."""
        if self.backend != "auto":
            return self.backend
        return "fabric" if self.link_keys else "bpf"

    @property
    def link_keys(self) -> list[str]:
        """Settings, in common or for a direction, that need a link model."""
        parts = [part for part in (self, self.forward, self.backward) if part is not None]
        return [key for key in LINK_KEYS if any(getattr(part, key) is not None for part in parts)]

    def link(self, direction: Direction) -> Link:
        """One direction as the link model has it: for the emulator and the simulator.

        Random marking (ecn_mark) and aimed faults are not part of it.
        """
        return Link(
            **link_arguments(self._settings(direction)),
            loss=self.loss_of(direction).setting(),
            corrupt=self.corrupt_of(direction),
        )

    def _settings(self, direction: Direction) -> dict[str, Any]:
        """The keys of LINK_KEYS, those of the direction in place of the common ones."""
        override = getattr(self, direction)
        given = {key: getattr(self, key) for key in LINK_KEYS}
        if override is None:
            return given
        own = {key: getattr(override, key) for key in LINK_KEYS}
        own = {key: value for key, value in own.items() if value is not None}
        return dict.fromkeys(LINK_KEYS) | overlaid(given, own)

    def _either(self, direction: Direction, key: str) -> Any:
        """The direction's own setting, or the common one."""
        override = getattr(self, direction)
        own = None if override is None else getattr(override, key)
        return getattr(self, key) if own is None else own

    def loss_of(self, direction: Direction) -> LossModel:
        return cast(LossModel, self._either(direction, "loss"))

    def ecn_mark_of(self, direction: Direction) -> float:
        return float(self._either(direction, "ecn_mark"))

    def corrupt_of(self, direction: Direction) -> float:
        return float(self._either(direction, "corrupt"))

    def impairment(self, direction: Direction) -> Impairment:
        """Configuration of the BPF program for one direction."""
        return Impairment(
            **self.loss_of(direction).states(),
            mark=self.ecn_mark_of(direction),
            corrupt=self.corrupt_of(direction),
            faults=tuple(f.aimed() for f in self.faults if f.direction == direction),
        )

    @property
    def impaired(self) -> bool:
        """Whether any packet could be touched."""
        return bool(self.link_keys) or any(self.impairment(way).touches for way in DIRECTIONS)
