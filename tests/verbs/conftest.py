# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Running verbs programs on our device, alone and in pairs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.native import paths
from datapath.verbs.launch import device_environment

PYTHON = "/usr/bin/python3"  # pyverbs is a package of the system's


def sanitizer() -> dict[str, str]:
    """What a program needs to load a front built with AddressSanitizer."""
    if paths.build_name() != "build-san":
        return {}
    libasan = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    # The programs' own leaks are not ours to judge.
    return {"LD_PRELOAD": libasan, "ASAN_OPTIONS": "detect_leaks=0"}


def environment(spec: str, **options: object) -> dict[str, str]:
    """For a program with device dp0 on port `spec`."""
    base = sanitizer()
    return {**base, **device_environment("dp0", spec, options=options, base=base)}


@dataclass
class Pair:
    """Two hosts on which programs talk to each other."""

    hosts: list[NetnsHost]
    logs: Path

    def spec(self, host: int, port: str) -> str:
        endpoint = self.hosts[host].endpoint
        return f"afxdp:{endpoint.netdev}" if port == "afxdp" else f"udp:{endpoint.ipv4}"

    def environment(self, host: int, port: str, **options: object) -> dict[str, str]:
        return environment(self.spec(host, port), **options)

    def run(
        self,
        argv: Sequence[str],
        port: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60,
        **options: object,
    ) -> tuple[str, str]:
        """`argv` on host 0 as server, and again with its address as client.

        Returns what both wrote; both must end with 0.
        """
        server_log = self.logs / "server"
        server_log.unlink(missing_ok=True)
        left, right = self.hosts
        server = left.popen(
            argv,
            env={**self.environment(0, port, **options), **(env or {})},
            stdout=server_log,
            stderr=server_log,
        )
        try:
            left.run(["sh", "-c", LISTENING], timeout_s=timeout_s)
            client = right.run(
                [*argv, left.endpoint.ipv4],
                env={**self.environment(1, port, **options), **(env or {})},
                timeout_s=timeout_s,
            )
            status = server.wait(timeout=timeout_s)
        finally:
            server.kill()
            server.wait()
        assert client.returncode == 0, client.stdout + client.stderr + server_log.read_text()
        assert status == 0, server_log.read_text()
        return server_log.read_text(), client.stdout + client.stderr


# Until a TCP socket listens (state 0A): clients give up when none does.
LISTENING = "until grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done"


@pytest.fixture(scope="session")
def hosts() -> Iterator[list[NetnsHost]]:
    with NetnsNetwork(Topology(), "none") as network:
        yield network.hosts


@pytest.fixture
def pair(root: None, request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    return Pair(request.getfixturevalue("hosts"), tmp_path)
