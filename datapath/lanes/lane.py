# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""LANES: one row for each lane, with all that the layers above have to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from datapath.lanes.base import Tool

if TYPE_CHECKING:
    from datapath.lanes.base import Network
    from datapath.lanes.spec import Path, Topology


@dataclass(frozen=True)
class Lane:
    """Where hosts live.

    open: makes the network, not yet built, of topology, path, a folder for what hosts say, and the
    folder in which relative file names begin.
    keys: of the topology section, those that no other lane has.
    tools: what it starts on this machine.
    simulated: hosts exist in virtual time, and run no programs.
    local: hosts have this machine's files and programs, and making them takes root.
    own_kernels: each host has a kernel of its own, with RDMA modules if it likes.
    boots: hosts boot the kernel that the topology names.
    keeps_mtu: devices have the MTU that they had before (guests of cards: that of the topology).
    cards: a virtual card may stand between each host and the network.
    networks: the hosts may be joined by many links and switches.
    hooks: XDP programs of the user's own run in it: its network is an xdp.user.HookedNetwork.
    """

    open: Callable[[Topology, Path, FilePath | None, FilePath | None], Network]
    keys: frozenset[str]
    tools: tuple[Tool, ...] = ()
    simulated: bool = False
    local: bool = False
    own_kernels: bool = False
    boots: bool = False
    keeps_mtu: bool = False
    cards: bool = False
    networks: bool = False
    hooks: bool = False


def _netns(
    topology: Topology, path: Path, logs: FilePath | None, folder: FilePath | None
) -> Network:
    from datapath.lanes.middle import choose_backend
    from datapath.lanes.netns import NetnsNetwork

    return NetnsNetwork(topology, choose_backend(topology, path), folder)


def _vm(topology: Topology, path: Path, logs: FilePath | None, folder: FilePath | None) -> Network:
    from datapath.lanes.middle import choose_backend
    from datapath.lanes.vm import VmNetwork

    return VmNetwork(topology, choose_backend(topology, path), logs, folder)


def _ssh(topology: Topology, path: Path, logs: FilePath | None, folder: FilePath | None) -> Network:
    from datapath.lanes.ssh import SshNetwork

    return SshNetwork(topology, path, folder)


def _sim(topology: Topology, path: Path, logs: FilePath | None, folder: FilePath | None) -> Network:
    from datapath.lanes.sim import SimNetwork

    return SimNetwork(topology, path, folder)


_NAMESPACES = (Tool("ip"), Tool("ethtool"))
_GUESTS = (
    Tool("qemu-system-x86_64"),
    Tool("sshd"),
    Tool("ssh-keygen"),
    Tool("modprobe"),
)

LANES: Mapping[str, Lane] = {
    "netns": Lane(
        _netns,
        frozenset({"scheduling", "keep_awake"}),
        tools=_NAMESPACES,
        local=True,
        cards=True,
        networks=True,
        hooks=True,
    ),
    "vm": Lane(
        _vm,
        frozenset({"kernel", "cpus", "memory", "namespaces"}),
        tools=(*_NAMESPACES, *_GUESTS),
        local=True,
        own_kernels=True,
        boots=True,
        cards=True,
    ),
    "ssh": Lane(
        _ssh, frozenset({"ssh_config", "machines"}), own_kernels=True, keeps_mtu=True, cards=True
    ),
    "sim": Lane(
        _sim,
        frozenset({"wakeup"}),
        simulated=True,
        networks=True,
    ),
}
