# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How late programs of lane netns wake on this machine, for topology.wakeup of lane sim.

The program dp-wakeup runs on both hosts of an emulated link, with the scheduling that programs
of a run have there, and does what the thread of a device does (lanes/probe/main.c).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from datapath.errors import RunFailed
from datapath.fabric.links import frame_bytes
from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.lanes.wakeup_spec import HostWakeup
from datapath.native import paths
from datapath.quantiles import nearest_rank
from datapath.xdp.impair import DIRECTIONS

SHARES = (
    *(0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(0.95, 0.98, 0.99, 0.995, 0.998, 0.999),
)
"""Of the quantiles that are kept.

The slowest thousandth is not: it has the stops of the whole machine, and a few of them do not tell
how rare they are.
"""
_OF_EMULATOR = {
    "p50": "turn_late_p50_ns",
    "p90": "turn_late_p90_ns",
    "p99": "turn_late_p99_ns",
    "p99.9": "turn_late_p999_ns",
}

_SAMPLES_MIN = 100
_PATIENCE_S = 40.0
_LOAD = 0.8
_GAP_NS = 10_000
"""The shortest that is chosen: programs have to sleep in between."""


@dataclass(frozen=True)
class Report:
    """The measured times, and their conditions.

    packet, timer: how late programs of the hosts ran, ns, in order of size.  emulator: quantile ->
    how late the slower direction of the link handed over the first frame of a turn, ns.
    """

    packet: Sequence[int]
    timer: Sequence[int]
    emulator: Mapping[str, int]
    scheduling: str
    kept_awake: int
    trouble: Sequence[str]

    def setting(self) -> HostWakeup:
        """As a value of topology.wakeup."""
        return HostWakeup.model_validate(
            {
                "packet": _quantiles(self.packet),
                "timer": _quantiles(self.timer),
                "emulator": {name: f"{ns}ns" for name, ns in self.emulator.items()},
            }
        )

    def to_json(self) -> str:
        """A file that topology.wakeup may name."""
        about = {
            "scheduling": self.scheduling,
            "cpus_kept_awake": self.kept_awake,
            "samples": {"packet": len(self.packet), "timer": len(self.timer)},
        }
        return json.dumps({"about": about, **self.setting().model_dump(mode="json")}, indent=1)


def _emulator(counters: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Of the emulator's own counters."""
    ways = [counters[direction] for direction in DIRECTIONS]
    return {name: max(way[counter] for way in ways) for name, counter in _OF_EMULATOR.items()}


def _quantiles(ordered: Sequence[int]) -> Mapping[str, str]:
    return {f"p{share * 100:g}": f"{nearest_rank(ordered, share)}ns" for share in SHARES}


def measure(
    topology: Topology, path: Path, *, gap_ns: int | None = None, size: int = 4096, seconds: int = 3
) -> Report:
    """Measure for so many seconds; RunFailed when too little came of it.

    topology: of lane netns, two hosts; its scheduling and keep_awake are those of the programs.
    path: of an emulated link.  gap_ns: mean time between two datagrams of a host, of `size` bytes;
    None: as often as takes _LOAD of the link.
    """
    if gap_ns is None:
        gap_ns = max(int(frame_bytes(size + 28) * 8e9 / ((path.rate or 10**9) * _LOAD)), _GAP_NS)
    with NetnsNetwork(topology, "fabric") as network, tempfile.TemporaryDirectory() as folder:
        network.set_path(path, seed=1)
        cpu = network.describe()["cpu"]
        with network.measuring():
            outputs = list(_probes(network.hosts, FilePath(folder), gap_ns, size, seconds))
        emulator = _emulator(network.emulator().counters())
    assert isinstance(cpu, dict)
    delays: dict[str, list[int]] = {"packet": [], "timer": []}
    for line in "".join(outputs).splitlines():
        kind, late = line.split()
        delays[kind].append(int(late))
    fewest = min(map(len, delays.values()))
    if fewest < _SAMPLES_MIN:
        raise RunFailed(f"only {fewest} sleeps of a kind in {seconds} s", hint="measure for longer")
    return Report(
        sorted(delays["packet"]),
        sorted(delays["timer"]),
        emulator,
        str(cpu["scheduling"]),
        int(cpu["kept_awake"]),
        cpu["trouble"],
    )


def _probes(
    hosts: Sequence[NetnsHost], folder: FilePath, gap_ns: int, size: int, seconds: int
) -> Iterator[str]:
    """The output of the two programs; each has a CPU of its own, as programs of a run have."""
    started: list[tuple[subprocess.Popen[bytes], FilePath]] = []
    try:
        for host, peer in zip(hosts, reversed(hosts), strict=True):
            output = folder / host.name
            ends = (host.endpoint.ipv4, peer.endpoint.ipv4)
            words = [str(paths.wakeup_probe()), *ends, *map(str, (gap_ns, size, seconds))]
            cpu = host.cpus[len(started) % len(host.cpus)]
            started.append((host.popen(words, stdout=output, stderr=output, cpus={cpu}), output))
        for process, output in started:
            status = process.wait(seconds + _PATIENCE_S)
            if status:
                raise RunFailed(f"dp-wakeup ended with status {status}: {output.read_text()}")
            yield output.read_text()
    except subprocess.TimeoutExpired:
        raise RunFailed("dp-wakeup does not end", hint="the machine is overloaded") from None
    finally:
        for process, _ in started:
            process.kill()
            process.wait()
