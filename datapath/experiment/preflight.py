# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Finds what this machine lacks for an experiment, before a network is built.

It reports everything that is missing at once.  Otherwise a user would install one program, only
to learn of the next.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datapath import lanes, privileges
from datapath.debian import install_hint
from datapath.errors import CapabilityError, DatapathError, LocalError
from datapath.lanes.base import Tool
from datapath.lanes.rdma import KERNEL_DEVICES
from datapath.workloads import REGISTRY

if TYPE_CHECKING:
    from datapath.cc import CompiledAlgorithm
    from datapath.cc.spec import Cc
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.spec import PointSpec


class Lacking(CapabilityError):
    """Several things are missing; `lacks` has each with its own hint.

    When all of them are mistakes of the file, it exits as for a mistake of the file.
    """

    def __init__(self, lacks: Sequence[DatapathError]) -> None:
        self.lacks = list(lacks)
        if all(isinstance(lack, LocalError) for lack in lacks):
            self.exit_code = LocalError.exit_code
        super().__init__("\n".join(map(str, lacks)), hint=lacks[0].hint if lacks else "")


def check(experiment: LoadedExperiment, results: Path | None = None) -> None:
    """Raise Lacking with everything that the points need and their hosts do not have.

    For hosts of lane ssh it logs in to them.  results: the folder that results are to be in.
    """
    lacks: dict[str, DatapathError] = {}
    for lack in _lacks(experiment, results):
        lacks.setdefault(str(lack), lack)
    if lacks:
        raise Lacking(list(lacks.values()))


def fetch(experiment: LoadedExperiment, progress: Callable[[str], None]) -> None:
    """Install what is fetched at first use: the kernels of guests, and PyTorch.

    progress: called with a line of text for each step.

    Raises:
        LocalError: a name cannot mean a kernel.
        CapabilityError: no such kernel, no network, no room.
    """
    from datapath.extras import ensure_torch
    from datapath.lanes import kernels

    guests = (point.spec.topology for point in experiment.points)
    for name in sorted({topology.kernel for topology in guests if topology.of_lane.boots}):
        kernels.ensure(name, progress)
    if any(getattr(REGISTRY[point.spec.kind], "needs_torch", False) for point in experiment.points):
        ensure_torch(progress)


def compile_algorithms(experiment: LoadedExperiment) -> dict[str, CompiledAlgorithm]:
    """Compile each algorithm that a device uses, by `cc_key`; LocalError names the line."""
    from datapath.cc import compile_algorithm

    compiled = {}
    for point in experiment.points:
        if point.spec.transport.device != "dp" and not paces(point.spec):
            continue
        for cc in point.spec.algorithms.values():
            if cc_key(cc) not in compiled:
                name = cc.located(experiment.folder)
                compiled[cc_key(cc)] = compile_algorithm(name, cc.params)
    return compiled


def sets_own_tcp(spec: PointSpec) -> bool:
    """Whether the workload's own sockets can choose the kernel's algorithm."""
    from datapath.workloads.traffic.base import Traffic

    return issubclass(REGISTRY[spec.kind], Traffic) and spec.transport.device == "kernel"


def cc_key(cc: Cc) -> str:
    return cc.model_dump_json()


def paces(spec: PointSpec) -> bool:
    """Whether an algorithm paces rxe; a constant window is what rxe has of its own."""
    return spec.transport.device == "rxe" and spec.cc.algo != "fixed"


def _lacks(experiment: LoadedExperiment, results: Path | None) -> Iterator[DatapathError]:
    remote: dict[str, list[PointSpec]] = {}
    for point in experiment.points:
        spec = point.spec
        yield from _network(spec, experiment.folder, results)
        yield from _telemetry(spec)
        yield from _xdp(spec)
        lane = spec.topology.of_lane
        if lane.simulated:
            yield from _simulation(spec)
            continue
        if lane.local:
            yield from _tools(REGISTRY[spec.kind].tools)
            yield from _gpu(spec)
        else:
            remote.setdefault(spec.topology.model_dump_json(), []).append(spec)
        if spec.transport.device in KERNEL_DEVICES and not lane.own_kernels:
            yield CapabilityError(
                f"device {spec.transport.device} is not for namespaces",
                hint="use topology: {lane: vm} or {lane: ssh}, where each host has a kernel of its "
                "own; or transport: {device: dp}, which is RoCEv2 without a kernel module",
            )
        if spec.transport.device == "dp":
            yield from _device(spec.transport.port)
            yield from _paths(spec)
        yield from _kernel_cc(spec)
    for specs in remote.values():
        yield from _machines(specs, experiment.folder)


def _xdp(spec: PointSpec) -> Iterator[DatapathError]:
    """Where a program of the user's own cannot run, and its compiler if that is missing."""
    if spec.xdp is None:
        return
    if not spec.topology.of_lane.hooks:
        yield CapabilityError(
            f"lane {spec.topology.lane} runs no XDP programs",
            hint="take the xdp section away, or use topology: {lane: netns}",
        )
    elif importlib.util.find_spec("bcc") is None:
        yield CapabilityError(
            "an xdp section needs bcc, which Python cannot import", hint=install_hint("bcc")
        )


def _gpu(spec: PointSpec) -> Iterator[DatapathError]:
    """What a workload on a GPU needs, which nothing here can install."""
    from datapath.extras import require_gpu

    if getattr(REGISTRY[spec.kind], "needs_gpu", False):
        try:
            require_gpu()
        except CapabilityError as error:
            yield error


def _paths(spec: PointSpec) -> Iterator[DatapathError]:
    """A live device cannot be opened so; the simulator has several whatever the port."""
    paths = spec.transport.options.paths
    if paths > 1 and spec.transport.port == "udp":
        yield LocalError(
            f"transport.options.paths is {paths}, and a port of kind udp has one UDP source port",
            hint="use transport: {port: afxdp}",
        )


def _kernel_cc(spec: PointSpec) -> Iterator[DatapathError]:
    """Congestion control that changes a host's kernel."""
    from datapath.cc import bpf
    from datapath.native import paths

    lane = spec.topology.of_lane
    if paces(spec):
        if not lane.boots:
            yield CapabilityError(
                f"device rxe is not paced by {spec.cc.algo} in lane {spec.topology.lane}: its "
                "machines keep their qdiscs",
                hint="use topology: {lane: vm}, or cc: {algo: fixed}",
            )
        yield from _built(paths.rxe_pacer)
    tcp = spec.cc.tcp
    if tcp is None:
        return
    file = bpf.source_of(tcp, Path())
    if not lane.local and (file is not None or not sets_own_tcp(spec)):
        yield CapabilityError(
            f"cc.tcp: {tcp} changes the kernels of hosts, which those of lane "
            f"{spec.topology.lane} keep as they are",
            hint="use topology: {lane: netns} or {lane: vm}; or the kernel device, a workload of "
            "traffic tables and an algorithm that those kernels have",
        )
    if file is not None:
        yield from _built(paths.tcp_registrar)


def _telemetry(spec: PointSpec) -> Iterator[DatapathError]:
    """A packet without room for records carries no telemetry, and nothing else would say so."""
    transport, mtu = spec.transport, spec.topology.mtu
    if transport.device != "dp" or not transport.options.telemetry:
        return
    if spec.topology.of_lane.keeps_mtu:
        return
    # Only here: these open C libraries, which takes a tenth of a second.
    from datapath.lanes.sim_options import has_room_for_telemetry
    from datapath.verbs.sizes import telemetry_room

    if not has_room_for_telemetry(transport, mtu):
        yield LocalError(
            f"telemetry needs {telemetry_room()} bytes in packets beside the path MTU of "
            f"{transport.path_mtu}, and an MTU of {mtu} has no room for them",
            hint="raise topology.mtu, or set a smaller transport.path_mtu",
        )


def _network(spec: PointSpec, folder: Path, results: Path | None) -> Iterator[DatapathError]:
    """The lane's objections when its network is made (not entered), and missing tools."""
    lane = spec.topology.of_lane
    try:
        lanes.open_network(spec.topology, spec.path, results, folder)
    except DatapathError as error:
        yield error
    if lane.local:
        if (lacking := privileges.lack(f"the {spec.topology.lane} lane")) is not None:
            yield lacking
        if not root_is_mount_point():
            yield CapabilityError(
                "the root directory is no mount point, as in a plain chroot: hosts cannot get "
                "mount namespaces of their own",
                hint="make it one before the chroot: mount --rbind FOLDER FOLDER, then chroot "
                "FOLDER; or enter it by pivot_root",
            )
    yield from _tools(lane.tools)


def root_is_mount_point(table: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a mount begins at this process's root; True where /proc does not tell."""
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return True
    return any(line.split()[4] == "/" for line in lines)


def _simulation(spec: PointSpec) -> Iterator[DatapathError]:
    """Settings that lane sim cannot have, and its library if that is missing."""
    from datapath.native import paths

    if not REGISTRY[spec.kind].simulated:
        kinds = sorted(name for name, kind in REGISTRY.items() if kind.simulated)
        yield CapabilityError(
            f"workload {spec.kind} runs programs, and hosts of lane sim run none",
            hint=f"lane sim has the workloads {', '.join(kinds)}",
        )
    if spec.transport.device != "dp":
        yield CapabilityError(
            f"lane sim has no device {spec.transport.device}", hint="use transport: {device: dp}"
        )
    yield from _built(paths.sim_library, paths.sim_cdef)


def _machines(specs: Sequence[PointSpec], folder: Path) -> Iterator[DatapathError]:
    """What machines of lane ssh lack for the points that share them; logs in to them."""
    from datapath.lanes.ssh import SshNetwork

    first = specs[0]
    try:
        network = SshNetwork(first.topology, first.path, folder)
        tools = {tool.name: tool for spec in specs for tool in REGISTRY[spec.kind].tools}
        with network:
            for index, host in enumerate(network.hosts):
                for name, tool in sorted(tools.items()):
                    if not host.has_program(name):
                        yield _missing(tool, f" on {network.label(index)}", "there")
            transports = {(spec.transport.device, spec.transport.port) for spec in specs}
            for device, port in sorted(transports):
                yield from network.lacks(device, port)
    except DatapathError as error:
        yield error


def _tools(tools: Iterable[Tool]) -> Iterator[DatapathError]:
    for tool in tools:
        if shutil.which(tool.name) is None:
            yield _missing(tool)


def _missing(tool: Tool, where: str = "", there: str = "") -> CapabilityError:
    return CapabilityError(
        f"program {tool.name} is not installed{where}",
        hint=install_hint(tool.name, where=there),
    )


def _device(port: str) -> Iterator[DatapathError]:
    """The dp device's parts: the verbs library, and for AF_XDP the steering program."""
    from datapath.native import paths

    needed = [paths.verbs_library]
    if port == "afxdp":
        needed.append(lambda: paths.bpf_object("steer"))
    yield from _built(*needed)


def _built(*finders: Callable[[], Path]) -> Iterator[DatapathError]:
    for find in finders:
        try:
            find()
        except DatapathError as error:
            yield error
