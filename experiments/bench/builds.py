#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Compares builds of the verbs front: perftest between two namespaces, in blocks of random order.

    cp -a build/datapath/verbs /tmp/before     # then change something, and build
    python experiments/bench/builds.py /tmp/before --point send --point spin --blocks 4

Prints the median (least to greatest) of each build, and of the ratios within blocks.  Point
`emulated` sends over an emulated link of 1 Gbit/s: it tells how much CPU time the programs use, and
whether they leave the emulator enough of it (`late_p99`).  With --beside 2, two endless loops want
the CPUs meanwhile.  Root.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datapath.cc.spec import HostCc
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as PathSpec
from datapath.lanes.spec import Topology
from datapath.native import paths
from datapath.verbs.launch import device_environment
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import RunContext

EMULATED = "emulated"
POINTS: Mapping[str, dict[str, Any]] = {
    "send": {"test": "send_lat", "size": 64, "iterations": 100_000},
    "spin": {"test": "write_lat", "size": 64, "iterations": 10_000},
    "event": {"test": "send_lat", "size": 64, "iterations": 5_000, "use_event": True},
    "read": {"test": "read_lat", "size": 64, "iterations": 10_000},
    "rate": {"test": "write_bw", "size": 64, "iterations": 300_000},
    "many-qps": {"test": "write_bw", "size": 64, "iterations": 40, "qps": 10_000, "tx_depth": 4},
    "bandwidth": {"test": "write_bw", "size": 2**20, "iterations": 400},
    "read-bandwidth": {"test": "read_bw", "size": 2**20, "iterations": 400},
    EMULATED: {"size": "32KiB", "depth": 8, "duration": "2s"},
}
EMULATED_MTU = 4400  # 1500 leaves two CPUs no time to spare: no thread lingers
LINK = {"rate": "1gbit", "delay": "100us", "queue": "256KiB"}
SCALES = {"ns": (1e3, "us"), "bit/s": (1e9, "Gbit/s"), "1/s": (1e3, "k/s")}
SHOWN = ("latency_p50", "latency_p99", "latency_mean", "goodput", "message_rate")

Values = dict[tuple[str, str, str], dict[str, dict[int, float]]]
"""(point, metric, unit) -> build -> block -> value."""


def environment(port: str, netdev: str, address: str, build: Path) -> dict[str, str]:
    """That of a program whose verbs front is the build's."""
    spec = f"afxdp:{netdev}" if port == "afxdp" else f"udp:{address}"
    ours = str(paths.verbs_library().parent)
    made = device_environment("dp0", spec)
    return {key: value.replace(ours, str(build)) for key, value in made.items()}


def measure(network: NetnsNetwork, point: str, port: str, build: Path) -> list[tuple[Any, ...]]:
    """(metric, unit, value) of one run."""
    ends = [host.endpoint for host in network.hosts]
    workload = REGISTRY["stream" if point == EMULATED else "perftest"]
    path = PathSpec.model_validate(LINK if point == EMULATED else {})
    with tempfile.TemporaryDirectory() as logs:
        context = RunContext(
            network=network,
            transport=Transport.model_validate({"device": "dp"}),
            cc=HostCc(),
            device_env=[environment(port, e.netdev, e.ipv4, build) for e in ends],
            logs=Path(logs),
            seed=1,
            timeout_s=60,
            path=path,
        )
        if point == EMULATED:
            network.set_path(path, seed=1)
        with network.measuring() as use:
            done = workload(workload.Params.model_validate(POINTS[point])).run(context)
    values = [(m.name, m.unit, m.value) for m in done.metrics if m.name in SHOWN]
    if point == EMULATED:
        late_ns = max(network.path_counters().late_p99_ns.values())
        values.append(("late_p99", "ns", late_ns))
        if use.ran_ns is not None:
            values.append(("programs_ran", "ns", use.ran_ns))
    return values


def back_end_of(point: str) -> str:
    return "fabric" if point == EMULATED else "none"


@contextlib.contextmanager
def endless_loops(count: int) -> Iterator[None]:
    """They end with this process at the latest."""
    loop = ["setpriv", "--pdeathsig=KILL", "sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for process in loops:
            process.kill()
            process.wait()


def spread(values: Sequence[float], digits: int = 2) -> str:
    least, most = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def show(values: Values, before: str, after: str) -> None:
    for (point, metric, unit), of_builds in values.items():
        scale, name = SCALES[unit]
        old, new = of_builds[before], of_builds[after]
        told = [spread([value / scale for value in of.values()]) for of in (old, new)]
        ratio = spread([new[block] / old[block] for block in old])
        print(f"{point:10} {metric:13} before {told[0]} {name}, after {told[1]}, ratio {ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="copy of build/datapath/verbs")
    parser.add_argument("--point", action="append", choices=[*POINTS], required=True)
    parser.add_argument("--port", choices=["afxdp", "udp"], default="afxdp")
    parser.add_argument("--mtu", type=int, default=1500, help="bytes, but for emulated (1500)")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--beside", type=int, default=0, help="endless loops beside it (0)")
    args = parser.parse_args()
    if not (args.before / "libdpverbs.so").exists():
        parser.error(f"{args.before} has no libdpverbs.so: copy build/datapath/verbs there")
    builds = {"before": args.before.resolve(), "after": paths.verbs_library().parent}
    values: Values = defaultdict(lambda: defaultdict(dict))
    with contextlib.ExitStack() as stack:
        stack.enter_context(endless_loops(args.beside))
        networks = {
            back_end: stack.enter_context(NetnsNetwork(Topology(mtu=mtu), back_end))
            for back_end, mtu in (("none", args.mtu), ("fabric", EMULATED_MTU))
            if back_end in {back_end_of(point) for point in args.point}
        }
        for block in range(args.blocks):
            order = [(point, name) for point in args.point for name in builds]
            random.shuffle(order)
            for point, name in order:
                network = networks[back_end_of(point)]
                for metric, unit, value in measure(network, point, args.port, builds[name]):
                    values[point, metric, unit][name][block] = value
    show(values, *builds)


if __name__ == "__main__":
    main()
