# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Multicast between two namespaces, and among the processes of one."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from datapath.lanes.base import Host, Process
from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS, environment
from tests.waiting import wait_for_words

COUNT = 20
GROUPS = {"v4": "239.1.2.3", "v6": "ff15::123"}
SAID = [f"datagram {i}" for i in range(COUNT)]
both_ports = pytest.mark.parametrize("port", ["afxdp", "udp"])


def build(folder: Path) -> Path:
    program = folder / "multicast"
    source = PROGRAMS / "multicast.c"
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *strict, "-o", program, source, "-libverbs"], check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("multicast"))


def device_on(pair: Pair, host: int, port: str, family: str) -> dict[str, str]:
    endpoint = pair.hosts[host].endpoint
    address = endpoint.ipv4 if family == "v4" else endpoint.ipv6
    spec = f"udp:{address}" if port == "udp" else f"afxdp:{endpoint.netdev},ip={address}"
    return environment(spec)


Place = tuple[Host, Mapping[str, str], str]
"""A host, the environment of programs on it, and their device."""


def place(pair: Pair, host: int, port: str, family: str) -> Place:
    return pair.hosts[host], device_on(pair, host, port, family), "dp0"


def drive(
    receivers: list[Place],
    sender: Place,
    program: Path,
    group: str,
    logs: Path,
) -> list[list[str]]:
    """What each receiver got."""
    running: list[Process] = []
    files = [logs / f"receiver-{i}" for i in range(len(receivers))]
    try:
        for (host, env, device), log in zip(receivers, files, strict=True):
            argv = [str(program), "receive", device, group, str(COUNT)]
            running.append(host.popen(argv, env=env, stdout=log, stderr=log))
        for process, log in zip(running, files, strict=True):
            wait_for_words(log, "ready", process)
        host, env, device = sender
        done = host.run([str(program), "send", device, group, str(COUNT)], env=env)
        assert done.returncode == 0, done.stderr
        for process, log in zip(running, files, strict=True):
            assert process.wait(timeout=30) == 0, log.read_text()
    finally:
        for process in running:
            process.kill()
            process.wait(timeout=10)
    return [log.read_text().splitlines()[1:] for log in files]


@both_ports
@pytest.mark.parametrize("family", GROUPS)
def test_from_host_to_host(pair: Pair, program: Path, port: str, family: str) -> None:
    hosts = [place(pair, i, port, family) for i in (0, 1)]
    got = drive([hosts[1]], hosts[0], program, GROUPS[family], pair.logs)
    assert got == [SAID]


def test_each_process_gets_a_copy(pair: Pair, program: Path) -> None:
    """Two on the sender's own host, two on the other, all on the addresses of their hosts."""
    hosts = [place(pair, i, "udp", "v4") for i in (0, 1)]
    receivers = [hosts[0], hosts[0], hosts[1], hosts[1]]
    assert drive(receivers, hosts[0], program, GROUPS["v4"], pair.logs) == [SAID] * 4


@both_ports
@pytest.mark.parametrize("family", GROUPS)
def test_another_queue_pair_of_the_sender(
    pair: Pair, program: Path, port: str, family: str
) -> None:
    """It gets a copy, and the one that sends gets none."""
    env = device_on(pair, 0, port, family)
    argv = [str(program), "both", "dp0", GROUPS[family], str(COUNT)]
    done = pair.hosts[0].run(argv, env=env)
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (SAID, "", 0)


@both_ports
def test_what_is_refused(pair: Pair, program: Path, port: str) -> None:
    env = pair.environment(0, port)
    done = pair.hosts[0].run([str(program), "rules", "dp0", GROUPS["v4"]], env=env)
    assert done.stdout.splitlines() == [
        "a host: Invalid argument",
        "not attached: Invalid argument",
        "again: Success",
        "destroy: Device or resource busy",
        "destroy: Success",
    ]
    other = pair.hosts[0].run([str(program), "rules", "dp0", GROUPS["v6"]], env=env)
    assert "Address family not supported" in other.stderr


@both_ports
def test_the_kernel_knows_of_the_group_while_it_is_used(
    pair: Pair, program: Path, port: str
) -> None:
    host, log = pair.hosts[1], pair.logs / "member"
    groups = ["ip", "-4", "maddress", "show", "dev", host.endpoint.netdev]
    argv = [str(program), "receive", "dp0", GROUPS["v4"], "1"]
    member = host.popen(argv, env=pair.environment(1, port), stdout=log, stderr=log)
    try:
        wait_for_words(log, "ready", member)
        assert GROUPS["v4"] in host.run(groups).stdout
    finally:
        member.kill()
        member.wait(timeout=10)
    assert GROUPS["v4"] not in host.run(groups).stdout
