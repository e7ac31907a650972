# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What this machine lacks for an experiment, found before anything is built.

All lacks are told at once: it is no help to learn of the second missing program after having
installed the first.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from datapath import lanes
from datapath.errors import CapabilityError, DatapathError
from datapath.experiment.sweep import Point
from datapath.workloads import REGISTRY

if TYPE_CHECKING:
    from datapath.cc import CompiledAlgorithm
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.spec import Cc

_DEBIAN_PACKAGES = {
    "ib_": "perftest",
    "iperf3": "iperf3",
    "sockperf": "sockperf",
    "ucx_": "ucx-utils",
    "fi_": "libfabric-bin",
    "ip": "iproute2",
    "ethtool": "ethtool",
}


class Lacking(CapabilityError):
    """Several things are missing; `lacks` has each with its own hint."""

    def __init__(self, lacks: Sequence[DatapathError]) -> None:
        self.lacks = list(lacks)
        super().__init__("\n".join(map(str, lacks)), hint=lacks[0].hint if lacks else "")


def check(experiment: LoadedExperiment) -> None:
    """Raise Lacking with everything that the points need and this machine has not."""
    lacks: dict[str, DatapathError] = {}
    for lack in _lacks(experiment.points):
        lacks.setdefault(str(lack), lack)
    if lacks:
        raise Lacking(list(lacks.values()))


def compile_algorithms(experiment: LoadedExperiment) -> dict[str, CompiledAlgorithm]:
    """Compile each algorithm that a dp device uses, by `cc_key`; LocalError names the line."""
    from datapath.cc import compile_algorithm

    compiled = {}
    for point in experiment.points:
        cc = point.spec.cc
        if point.spec.transport.device == "dp" and cc_key(cc) not in compiled:
            name = cc.located(experiment.folder)
            compiled[cc_key(cc)] = compile_algorithm(name, cc.params)
    return compiled


def cc_key(cc: Cc) -> str:
    return cc.model_dump_json()


def _lacks(points: Iterable[Point]) -> Iterator[DatapathError]:
    for point in points:
        spec = point.spec
        yield from _network(point)
        yield from _programs(REGISTRY[spec.kind].programs)
        if spec.transport.device in ("rxe", "siw"):
            yield CapabilityError(
                f"device {spec.transport.device} needs the vm lane, which is not in this version",
                hint="transport: {device: dp} is RoCEv2 without a kernel module",
            )
        if spec.transport.device == "dp":
            yield from _device(spec.transport.port)
        if spec.xdp is not None and importlib.util.find_spec("bcc") is None:
            yield CapabilityError(
                "an xdp section needs bcc, which Python cannot import",
                hint="apt-get install python3-bpfcc",
            )


def _network(point: Point) -> Iterator[DatapathError]:
    """The lane's own opinion, asked by making (not entering) the network, and its tools."""
    topology = point.spec.topology
    try:
        lanes.open_network(topology, point.spec.path)
    except DatapathError as error:
        yield error
        return
    if topology.lane == "netns":
        if os.geteuid() != 0:
            yield CapabilityError(
                "the netns lane needs root, to make network namespaces",
                hint="run it as root: sudo dpctl ...",
            )
        yield from _programs(("ip", "ethtool"))


def _programs(programs: Iterable[str]) -> Iterator[DatapathError]:
    for program in programs:
        if shutil.which(program) is None:
            package = next(
                (name for start, name in _DEBIAN_PACKAGES.items() if program.startswith(start)),
                None,
            )
            hint = f"apt-get install {package}" if package else "install it, or put it on PATH"
            yield CapabilityError(f"program {program} is not installed", hint=hint)


def _device(port: str) -> Iterator[DatapathError]:
    """The dp device's parts: the verbs library, and for AF_XDP the steering program."""
    from datapath.native import paths

    needed = [paths.verbs_library]
    if port == "afxdp":
        needed.append(lambda: paths.bpf_object("steer"))
    for find in needed:
        try:
            find()
        except DatapathError as error:
            yield error
