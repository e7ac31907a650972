# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datagrams between our device on one guest and soft-RoCE on the other."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from datapath.lanes import rdma
from datapath.lanes.base import Host
from datapath.lanes.vm import VmNetwork
from datapath.native.paths import ROOT
from tests.guests.conftest import Guests, environment, listening
from tests.verbs.devices import PYTHON
from tests.verbs.test_multicast import COUNT, GROUPS, SAID, build, drive

Sides = dict[str, Host]


DEVICE = "rxe"


@pytest.fixture(scope="module")
def sides(network: VmNetwork) -> Iterator[Sides]:
    """rxe0 on one guest; nothing of the kernel's on the other, where programs get dp0."""
    network.prepare("rxe")
    rxe, dp = network.hosts
    rdma.remove(dp, "rxe", unload=True)
    yield {"rxe": rxe, "dp": dp}
    rdma.add(dp, "rxe")


@pytest.mark.parametrize("server", ["rxe", "dp"])
@pytest.mark.parametrize(
    "command",
    [
        "ibv_ud_pingpong -g 1 -c -n 200",
        "ibv_ud_pingpong -g 1 -c -n 200 -e",
        "ib_send_lat -c UD -x 1 -F -s 1024 -n 200",
        "ib_send_bw -c UD -x 1 -F -s 64 -n 200",
    ],
)
def test_datagrams_with_rxe(guests: Guests, sides: Sides, server: str, command: str) -> None:
    client = "dp" if server == "rxe" else "rxe"
    here, there = sides[server], sides[client]
    log = guests.logs / "server"
    before = listening(here)
    words = command.split()
    running = here.popen(
        [*words, "-d", f"{server}0"], env=environment(server), stdout=log, stderr=log
    )
    try:
        limit = time.monotonic() + 60
        while listening(here) <= before:
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < limit, "the server does not listen"
            time.sleep(0.2)
        done = there.run(
            [*words, "-d", f"{client}0", here.endpoint.ipv4],
            env=environment(client),
            timeout_s=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
        assert running.wait(timeout=60) == 0, log.read_text()
    finally:
        running.kill()
        running.wait(timeout=20)
    assert "invalid" not in done.stdout + log.read_text()


@pytest.mark.parametrize("receiver", ["rxe", "dp"])
def test_multicast_with_rxe(guests: Guests, sides: Sides, receiver: str) -> None:
    """rxe attaches a QP and leaves it to others to tell the network: RDMA-CM, or `ip`."""
    sender = "dp" if receiver == "rxe" else "rxe"
    here, there = sides[receiver], sides[sender]
    group = GROUPS["v4"]
    address = f"{group}/32 dev {here.endpoint.netdev}"
    if receiver == "rxe":
        assert here.run(["ip", *f"address add {address} autojoin".split()]).returncode == 0
    program = build(guests.logs)
    try:
        with_devices = [
            (host, environment(kind), f"{kind}0")
            for host, kind in ((here, receiver), (there, sender))
        ]
        got = drive(with_devices[:1], with_devices[1], program, group, guests.logs)
    finally:
        if receiver == "rxe":
            here.run(["ip", *f"address delete {address}".split()])
    assert got == [SAID[:COUNT]]


def test_sysfs_has_rxe_beside_ours(guests: Guests, sides: Sides) -> None:
    """rxe's entry is the kernel's own; nothing of ours is there for others."""
    host = sides["rxe"]
    devices = "/sys/class/infiniband"
    command = f"cd {ROOT} && .venv/bin/python -m datapath.cli exec --device dp0=afxdp:eth1 --"
    script = f"ls {devices}; cat {devices}/rxe0/node_type {devices}/dp0/node_type; ibv_devices"
    done = host.run(["sh", "-c", f"{command} sh -c '{script}'"], timeout_s=120)
    assert done.stdout.split()[:2] == ["dp0", "rxe0"], done.stderr
    assert done.stdout.count("1: CA") == 2
    assert done.stdout.count("rxe0") == 2
    assert host.run(["ls", devices]).stdout.split() == ["rxe0"]


def test_memory_of_another_driver(guests: Guests, sides: Sides) -> None:
    """A DMA-BUF of /dev/udmabuf as a memory region, written and read by a peer QP."""
    env = environment("dp")
    program = str(ROOT / "tests/verbs/programs/dmabuf.py")
    done = sides["dp"].run([PYTHON, program], env=env, timeout_s=120)
    assert (done.returncode, done.stdout.split()) == (0, ["done"]), done.stderr
