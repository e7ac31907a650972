# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The interface of a lane: hosts joined by a network.

A lane builds a `Network` from the `topology` and `path` sections of an
experiment and takes it down again.  Whatever happens to the process that
built it (an exception, an interrupt, kill -9), nothing of it is left behind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from datapath.fabric.topology import Graph
    from datapath.lanes import spec
    from datapath.lanes.event_spec import Event


@dataclass(frozen=True)
class Tool:
    """A program that a lane or a workload starts.

    version: arguments with which it tells its version, None: it cannot.  datapath/packages.txt
    has the Debian package that brings it.
    """

    name: str
    version: tuple[str, ...] | None = ("--version",)


@dataclass(frozen=True)
class Endpoint:
    """A host's attachment to the network under test.

    netdev: name of the device inside the host.
    ipv4, ipv6: addresses without prefix length.
    mtu: bytes, of the device.
    mgmt_ipv4: address on the management network, which no impairment touches:
    for control traffic such as perftest's exchange of queue pair numbers.
    dated: RoCEv2 frames come with the time at which an emulated link let them go.
    """

    netdev: str
    ipv4: str
    ipv6: str
    mtu: int
    mgmt_ipv4: str = ""
    dated: bool = False


class Process(Protocol):
    """A program on a host, as far as lanes agree: a part of subprocess.Popen."""

    @property
    def pid(self) -> int | None:
        """On this machine; None: the program runs on another one."""
        ...

    @property
    def returncode(self) -> int | None:
        """Exit status, minus the signal's number when one ended it; None while it runs."""
        ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; its exit status.  subprocess.TimeoutExpired after `timeout` seconds."""
        ...

    def kill(self) -> None:
        """End it at once; harmless when it has ended.  wait() afterwards."""
        ...


class Host(Protocol):
    """A place where programs run: a namespace, a VM, a machine."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def cpus(self) -> Sequence[int]:
        """CPUs that programs may be bound to."""
        ...

    @property
    def shared_files(self) -> bool:
        """Whether the host sees this machine's files."""
        ...

    def has_program(self, name: str) -> bool:
        """Whether a program of this name is on the host's PATH."""
        ...

    def provide(self, path: Path) -> str:
        """The path on the host of a local file, which is copied there if it has to be."""
        ...

    def outputs(self, folder: Path) -> str:
        """The folder on the host for programs' files that belong in a local folder."""
        ...

    def fetch(self, folder: Path) -> None:
        """Bring the files in outputs(folder) to the local folder."""
        ...

    def popen(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        cpus: Collection[int] | None = None,
        busy: bool = False,
    ) -> Process:
        """Start a program on the host; `env` is added to the environment.

        `cpus` binds it to some of the host's CPUs.
        `busy`: it polls or computes and seldom sleeps, so it gets no real-time priority.
        Output goes to the named local log files (appended), or to /dev/null.
        The program dies with the network, whatever happens.
        """
        ...

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Run a short command to its end and return its output as text."""
        ...


@dataclass
class PathCounters:
    """The impairments' counters, by direction ("forward" is host 0 to host 1).

    exempt: ARP and the like, which are never touched.  fault_hits: packets met
    by aimed faults (also counted as dropped, marked or corrupted).
    unsegmented: packets that stood for several, which loss hit as one; 0 in a
    valid run.

    Only with backend fabric and in lane sim: overflowed: packets dropped because
    the queue was full.  policed: packets dropped by the policer.  aqm_dropped:
    packets dropped by the AQM.  shaped: packets dropped because the queue of
    their shaped class was full.  trimmed: packets cut down to their headers.
    starved: packets lost because the emulator had no CPU or memory; 0 in a valid
    run.  unstamped: packets without a time of arrival from the device; they count
    from when the emulator saw them.  queue_max_bytes: the longest queue.
    late_*_ns: how late frames left, as quantiles over all frames;
    late_allowed_ns: the largest p99 of a valid run.

    With PFC alone, paused_ns: the sum of the times that links were paused.
    """

    passed: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    marked: dict[str, int] = field(default_factory=dict)
    corrupted: dict[str, int] = field(default_factory=dict)
    exempt: dict[str, int] = field(default_factory=dict)
    fault_hits: dict[str, int] = field(default_factory=dict)
    unsegmented: dict[str, int] = field(default_factory=dict)
    overflowed: dict[str, int] = field(default_factory=dict)
    policed: dict[str, int] = field(default_factory=dict)
    aqm_dropped: dict[str, int] = field(default_factory=dict)
    shaped: dict[str, int] = field(default_factory=dict)
    trimmed: dict[str, int] = field(default_factory=dict)
    duplicated: dict[str, int] = field(default_factory=dict)
    reordered: dict[str, int] = field(default_factory=dict)
    paused_ns: dict[str, int] = field(default_factory=dict)
    starved: dict[str, int] = field(default_factory=dict)
    unstamped: dict[str, int] = field(default_factory=dict)
    queue_max_bytes: dict[str, int] = field(default_factory=dict)
    late_p50_ns: dict[str, int] = field(default_factory=dict)
    late_p99_ns: dict[str, int] = field(default_factory=dict)
    late_max_ns: dict[str, int] = field(default_factory=dict)
    late_allowed_ns: dict[str, int] = field(default_factory=dict)

    def limit(self) -> str:
        """Why the CPU was too slow to make the path of the file; "": it was not."""
        for direction, allowed in self.late_allowed_ns.items():
            if self.starved[direction]:
                return (
                    f"CPU-limited: {self.starved[direction]} {direction} frames came while the "
                    "emulator had no CPU or no buffer for them"
                )
            late = self.late_p99_ns[direction]
            if late > allowed:
                return (
                    f"CPU-limited: 1% of the {direction} frames left more than "
                    f"{late / 1000:.0f} us late"
                )
        return ""


@dataclass
class CpuUse:
    """The CPU time of a run's programs on this machine while they were measured.

    ran_ns: for how long they ran, all threads together.  waited_ns: for how long they were
    ready to run and had no CPU.  None: not known.  demoted: names of threads that lost their
    real-time priority because they did not sleep.
    """

    ran_ns: int | None = None
    waited_ns: int | None = None
    demoted: list[str] = field(default_factory=list)

    def limit(self) -> str:
        """Why the run measured the host's scheduler and not the network; "": it did not."""
        if not self.ran_ns or self.waited_ns is None:
            return ""
        if self.waited_ns <= STARVED_SHARE * (self.waited_ns + self.ran_ns):
            return ""
        return (
            f"CPU-starved: the programs ran for {self.ran_ns / 1e9:.2f} s and waited for a CPU "
            f"for {self.waited_ns / 1e9:.2f} s"
        )


STARVED_SHARE = 1 / 3
"""Most of the time in which programs want a CPU that they may wait; see docs/results.md."""


_H = TypeVar("_H")


def paired(hosts: Sequence[_H], preset: spec.Preset) -> list[tuple[_H, _H]]:
    """(client, server) across the path: host i of the first and of the second half of hosts.

    Of a parking lot hosts 0 and 1, across all its links, and 2 and 3, 4 and 5 ..., across one each.
    """
    if preset == "parking-lot":
        return list(zip(hosts[::2], hosts[1::2], strict=True))
    half = len(hosts) // 2
    return list(zip(hosts[:half], hosts[half : 2 * half], strict=True))


class Network(Protocol):
    """Hosts, and the path between them, as one context manager."""

    @property
    def hosts(self) -> Sequence[Host]: ...

    @property
    def local(self) -> bool:
        """Whether programs are children of this process, so that their CPU time is known."""
        ...

    @property
    def pairs(self) -> Sequence[tuple[Host, Host]]:
        """(client, server) across the path; one pair in p2p; as paired() has them."""
        ...

    @property
    def topology(self) -> spec.Topology: ...

    @property
    def link_rates_bps(self) -> Sequence[float]:
        """Of each host's link, 0: not limited; none at all: the `path` section alone limits."""
        ...

    @property
    def graph(self) -> Graph | None:
        """Hosts, switches and links before any event; None: the `path` section is all of it."""
        ...

    def __enter__(self) -> Network: ...
    def __exit__(self, *exc: object) -> None: ...

    def prepare(self, device: str) -> None:
        """Give every host the verbs device of a kind ("rxe" is rxe0, "siw" is siw0) and no other.

        "dp" and "kernel" need none of the kernel's.  CapabilityError when a host cannot have it.
        """
        ...

    def check_alive(self) -> None:
        """RunFailed, with the name of a host that is gone: why programs of the others failed.

        A host that is silent is waited for until it counts as gone.
        """
        ...

    def recover(self) -> bool:
        """After a failed run: end its programs.  False: this network is of no more use."""
        ...

    def set_path(self, path: spec.Path, seed: int, *, held: bool = False) -> None:
        """Apply a resolved `path` section; resets the counters.

        held: the hosts' ports hold dated frames (Endpoint.dated) until their date.  So an emulated
        link may hand them over some microseconds before, several at a time.
        """
        ...

    def change_path(self, zero_ns: int, events: Sequence[Event], since_ns: int = 0) -> None:
        """Make the events (event_spec) that are about links, from since_ns on; packets stay.

        zero_ns: CLOCK_MONOTONIC, from which their times count.  The events take the place of those
        of an earlier call.  LocalError when this network cannot.
        """
        ...

    def queue_peaks(self) -> Mapping[str, int]:
        """The most bytes that waited since set_path(), by link; {} where nothing knows."""
        ...

    def path_counters(self) -> PathCounters: ...

    def link_counters(self) -> Mapping[str, Mapping[str, int]]:
        """Of each link, or direction of the path: path_counters() of it alone, by name.

        Links with a queue also have queue_bytes, which wait at the moment.
        """
        ...

    def set_cards(self, topology: spec.Topology) -> None:
        """Give the virtual cards, if there are some, the settings of a resolved `topology` section.

        What they join stays as it is (Topology.network has all that does).
        """
        ...

    def card_counters(self) -> Sequence[Mapping[str, Any]]:
        """Of each virtual card (vnic.program.Program.counters()); those of tunnels and tenants
        since set_path()."""
        ...

    def sampled_cards(
        self, logs: Path, interval_ns: int, max_bytes: int, most: int
    ) -> AbstractContextManager[None]:
        """Sample the tunnels of virtual cards, and the classes in them, while the body runs.

        Files of datapath.series, at most `most` of a card, as `series-<card>.<n>.series`: in
        `logs`, or among outputs(logs) of a host.
        """
        ...

    def emulator_late_ns(self) -> dict[str, int]:
        """How late the first frame after each sleep of the emulator left since set_path().

        Share of the sleeps, such as "0.99" -> at most so many ns; {} without an emulator.
        """
        ...

    def measuring(self) -> AbstractContextManager[CpuUse]:
        """Give the programs that are started in the body the CPU when they need it.

        After the body the object tells what they had of it, as far as that can be known.
        """
        ...

    def sampled_path(
        self, prefix: Path, interval_ns: int, max_bytes: int
    ) -> AbstractContextManager[None]:
        """Sample the path's queues while the body runs, into files that begin with `prefix`.

        They are those of datapath.series; a path that has no queue leaves none.
        """
        ...

    def describe(self) -> dict[str, object]:
        """For the manifest: devices, MTU, offloads, impairment back end and why."""
        ...
