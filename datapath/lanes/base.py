# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a lane gives to the layers above it: hosts joined by a network.

A lane builds a `Network` from the `topology` and `path` sections of an
experiment and takes it down again.  Whatever happens to the process that
built it (an exception, an interrupt, kill -9), nothing of it is left behind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Endpoint:
    """A host's attachment to the network under test.

    netdev: name of the device inside the host.
    ipv4, ipv6: addresses without prefix length.
    mtu: bytes, of the device.
    mgmt_ipv4: address on the management network, which no impairment touches:
    for control traffic such as perftest's exchange of queue pair numbers.
    """

    netdev: str
    ipv4: str
    ipv6: str
    mtu: int
    mgmt_ipv4: str = ""


class Host(Protocol):
    """A place where programs run: a namespace, a VM, a machine."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> Endpoint: ...

    def popen(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        stdin: int | None = None,
        cpus: Collection[int] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program on the host; `env` is added to the environment.

        `cpus` binds it to some of the machine's CPUs.
        Output goes to the named log files (appended), or to /dev/null.
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
    """What the impairments did, by direction ("forward" is host 0 to host 1).

    exempt: ARP and the like, which are never touched.  fault_hits: packets met
    by aimed faults (also counted as dropped, marked or corrupted).
    unsegmented: packets that stood for several, which loss hit as one; 0 in a
    valid run.
    """

    passed: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    marked: dict[str, int] = field(default_factory=dict)
    corrupted: dict[str, int] = field(default_factory=dict)
    exempt: dict[str, int] = field(default_factory=dict)
    fault_hits: dict[str, int] = field(default_factory=dict)
    unsegmented: dict[str, int] = field(default_factory=dict)


class Network(Protocol):
    """Hosts, and the path between them, as one context manager."""

    @property
    def hosts(self) -> Sequence[Host]: ...

    @property
    def pairs(self) -> Sequence[tuple[Host, Host]]:
        """(client, server) across the path; one pair in p2p, several in a dumbbell."""
        ...

    def __enter__(self) -> Network: ...
    def __exit__(self, *exc: object) -> None: ...

    def set_path(self, path: object, seed: int) -> None:
        """Apply a resolved `path` section; resets the counters."""
        ...

    def path_counters(self) -> PathCounters: ...

    def describe(self) -> dict[str, object]:
        """For the manifest: devices, MTU, offloads, impairment back end and why."""
        ...
