# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A host that is a network namespace of this machine, and the addresses of every lane's hosts.

Addresses are those set aside for benchmarks of network devices (RFC 2544,
RFC 5180), so that they cannot be mistaken for somebody's own; neighbours are
permanent entries, so that no measurement starts with an ARP exchange.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datapath.errors import CapabilityError
from datapath.lanes.base import Endpoint
from datapath.lanes.namespace import Namespace, installed, spawn
from datapath.lanes.scheduling import Policy, Scheduling

TEST_DEVICE = "eth1"
MGMT_DEVICE = "mgmt0"
_END_TIMEOUT_S = 5.0


def endpoint(index: int, mtu: int) -> Endpoint:
    """Addresses of host `index`: 198.18.0.0/24 and 2001:2::/64, management 198.19.0.0/24."""
    return Endpoint(
        netdev=TEST_DEVICE,
        ipv4=f"198.18.0.{index + 1}",
        ipv6=f"2001:2::{index + 1:x}",
        mtu=mtu,
        mgmt_ipv4=f"198.19.0.{index + 1}",
    )


def link_address(index: int) -> str:
    """Link address of host `index` on the network under test (locally administered)."""
    return f"02:00:c6:12:00:{index + 1:02x}"


@dataclass
class NetnsHost:
    """A namespace in which programs run; implements datapath.lanes.base.Host.

    scheduling: what popen() starts programs with; None: as this process has it.
    """

    name: str
    endpoint: Endpoint
    namespace: Namespace
    scheduling: Scheduling | None = None
    _programs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def cpus(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    @property
    def shared_files(self) -> bool:
        return True

    def has_program(self, name: str) -> bool:
        return shutil.which(name) is not None

    def provide(self, path: Path) -> str:
        return str(path)

    def outputs(self, folder: Path) -> str:
        return str(folder.resolve())

    def fetch(self, folder: Path) -> None:
        """Nothing to do: programs see this machine's files."""

    def popen(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        cpus: Collection[int] | None = None,
        busy: bool = False,
    ) -> subprocess.Popen[bytes]:
        """As lanes.base.Host says; CapabilityError when the program is not installed."""
        with contextlib.ExitStack() as files:
            out, err = (
                files.enter_context(path.open("ab")) if path else subprocess.DEVNULL
                for path in (stdout, stderr)
            )
            return self._spawn(
                argv,
                env=env,
                cpus=cpus,
                policy=self.scheduling.of(busy=busy) if self.scheduling else "ordinary",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT if stderr and stderr == stdout else err,
            )

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """As lanes.base.Host says; subprocess.TimeoutExpired after killing what overruns."""
        process = self._spawn(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        finally:
            self._programs.remove(process)
        return subprocess.CompletedProcess(
            list(argv),
            process.returncode,
            out.decode(errors="replace"),
            err.decode(errors="replace"),
        )

    def _spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cpus: Collection[int] | None = None,
        policy: Policy = "ordinary",
        **streams: Any,
    ) -> subprocess.Popen[bytes]:
        whole = {**os.environ, **(env or {})}
        self._programs[:] = [p for p in self._programs if p.poll() is None]
        with installed(argv):
            return spawn(
                self.namespace,
                argv,
                cpus=cpus,
                policy=policy,
                known=self._programs,
                env=whole,
                **streams,
            )

    def kill_programs(self) -> None:
        """Kill all that popen() started, from any thread, and do not wait."""
        for process in tuple(self._programs):
            process.kill()

    def end_programs(self) -> None:
        """Kill and wait for all that popen() started and that has not ended."""
        self.kill_programs()
        for process in self._programs:
            process.wait(_END_TIMEOUT_S)
        self._programs.clear()


def host_commands(index: int, mtu: int, hosts: int) -> Iterator[str]:
    """ip commands that bring up one host: addresses, queue, permanent neighbours."""
    mine = endpoint(index, mtu)
    yield "link set lo up"
    yield f"link set {MGMT_DEVICE} addrgenmode none up"
    yield f"address add {mine.mgmt_ipv4}/24 dev {MGMT_DEVICE}"
    yield f"link set {TEST_DEVICE} addrgenmode none up"
    yield f"address add {mine.ipv4}/24 dev {TEST_DEVICE}"
    yield f"address add {mine.ipv6}/64 dev {TEST_DEVICE} nodad"
    for other in range(hosts):
        if other != index:
            peer = endpoint(other, mtu)
            for address in (peer.ipv4, peer.ipv6):
                yield f"neighbour add {address} lladdr {link_address(other)} dev {TEST_DEVICE}"


def set_ipv6(**settings: int) -> None:
    """Settings of all devices of this network namespace, present and future."""
    folder = Path("/proc/sys/net/ipv6/conf")
    if not folder.is_dir():
        raise CapabilityError(
            "this kernel has no IPv6", hint="boot it without ipv6.disable=1, or with CONFIG_IPV6"
        )
    for name, value in settings.items():
        for devices in ("all", "default"):
            (folder / devices / name).write_text(str(value))
