# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datagrams between our device on one guest and soft-RoCE on the other."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from datapath.lanes import rdma
from datapath.lanes.base import Host
from datapath.lanes.vm import VmNetwork
from tests.guests.conftest import Guests, environment, listening

Sides = dict[str, Host]


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
