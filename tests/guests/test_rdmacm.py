# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""RDMA-CM between our device on one guest and soft-RoCE, with the kernel's, on the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath.interop import capture, trace
from datapath.lanes import rdma
from datapath.lanes.base import Host
from datapath.lanes.vm import VmNetwork
from datapath.verbs.launch import device_environment
from tests.guests.conftest import Guests, cm_listens

Sides = dict[str, Host]
BOUND = "grep -q 'datapath-udp:.*:service-' /proc/net/unix"


DEVICE = "rxe"


@pytest.fixture(scope="module")
def sides(network: VmNetwork) -> Iterator[Sides]:
    """rxe0 on one guest; nothing of the kernel's on the other, where programs get dp0."""
    network.prepare("rxe")
    rxe, dp = network.hosts
    rdma.remove(dp, "rxe", unload=True)
    yield {"rxe": rxe, "afxdp": dp, "udp": dp}
    rdma.add(dp, "rxe")


def environment(host: Host, kind: str) -> dict[str, str]:
    if kind == "rxe":
        return {}
    endpoint = host.endpoint
    spec = f"afxdp:{endpoint.netdev}" if kind == "afxdp" else f"udp:{endpoint.ipv4}"
    return device_environment("dp0", spec, base={})


def listens(host: Host, kind: str) -> bool:
    if kind == "rxe":
        return cm_listens(host, True)
    return host.run(["sh", "-c", BOUND]).returncode == 0


@pytest.mark.parametrize(("server", "client"), [("rxe", "afxdp"), ("afxdp", "rxe"), ("udp", "rxe")])
@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("rping -s -a {} -C 10 -V", "rping -c -a {} -C 10 -V"),
        ("ucmatose -c 5", "ucmatose -s {} -c 5"),
        ("udaddy -c 3", "udaddy -s {} -c 3"),
        ("riostream -S 4096 -C 20", "riostream -s {} -S 4096 -C 20"),
    ],
)
def test_programs_connect_with_rxe(
    guests: Guests, sides: Sides, server: str, client: str, here: str, there: str
) -> None:
    host, peer = sides[server], sides[client]
    address = host.endpoint.ipv4
    path = guests.logs / "capture.pcap"
    taking = sides["rxe"].popen(
        ["tcpdump", "-i", "eth1", "-U", "-w", "-", "udp", "port", "4791"],
        stdout=path,
        stderr=guests.logs / "tcpdump",
    )
    try:
        until(lambda: "listening" in (guests.logs / "tcpdump").read_text(), "tcpdump is not ready")
        run_pair(
            guests,
            (host, server, environment(host, server), here.format(address)),
            (peer, environment(peer, client), there.format(address)),
        )
        time.sleep(1)  # what is on its way to tcpdump
    finally:
        taking.kill()
        taking.wait(timeout=20)
    judge(path, ours=sides["udp"].endpoint.ipv4)


def until(true: Callable[[], bool], otherwise: str) -> None:
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, otherwise
        time.sleep(0.2)


def judge(path: Path, ours: str) -> None:
    """The trace checker learns the connections from the messages."""
    report = trace.check(capture.read(path), [], offers=[ours])
    assert report.packets > 5
    assert [str(violation) for violation in report.violations] == []


@pytest.mark.parametrize("where", ["eth1", "mgmt0"])
def test_a_real_device_beside_ours(guests: Guests, sides: Sides, where: str) -> None:
    """A server that is bound to any address is reached through rxe0 and through dp0 alike."""
    host, peer = sides["rxe"], sides["afxdp"]
    address = host.endpoint.ipv4 if where == "eth1" else host.endpoint.mgmt_ipv4
    beside = device_environment("dp0", "afxdp:mgmt0", base={})
    run_pair(
        guests,
        (host, "rxe", beside, "rping -s -C 10 -V"),
        (
            peer,
            device_environment("dp0", f"afxdp:{where}", base={}),
            f"rping -c -a {address} -C 10 -V",
        ),
    )


def run_pair(
    guests: Guests,
    server: tuple[Host, str, dict[str, str], str],
    client: tuple[Host, dict[str, str], str],
) -> None:
    """Both programs must end with 0.

    server: host, the kind of device that tells when it listens, environment, command.
    """
    host, kind, env, words = server
    log = guests.logs / "server"
    running = host.popen(words.split(), env=env, stdout=log, stderr=log)
    try:
        until(lambda: running.poll() is not None or listens(host, kind), "it does not listen")
        assert running.poll() is None, log.read_text()
        done = client[0].run(client[2].split(), env=client[1], timeout_s=120)
        assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
        assert running.wait(timeout=60) == 0, log.read_text()
    finally:
        running.kill()
        running.wait(timeout=20)
