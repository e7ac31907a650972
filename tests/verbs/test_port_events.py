# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program is told when the port of its device goes down and comes back, or is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from tests.verbs import devices
from tests.verbs.conftest import Pair
from tests.waiting import wait_for_words


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize("side", [0, 1], ids=["its own", "the other end"])
def test_a_cable_that_is_drawn(root: None, tmp_path: Path, port: str, side: int) -> None:
    """The device of one host, or that of the peer, without which there is no carrier."""
    with NetnsNetwork(Topology(), "none") as network:
        pair = Pair(network.hosts, tmp_path)
        host, log = pair.hosts[0], tmp_path / "asyncwatch"
        env = pair.environment(0, port)
        watch = host.popen(
            ["stdbuf", "-oL", "ibv_asyncwatch", "-d", "dp0"], env=env, stdout=log, stderr=log
        )
        try:
            wait_for_words(log, "async event FD", watch)
            for state, event, shown in (
                ("down", "IBV_EVENT_PORT_ERR", "PORT_DOWN"),
                ("up", "IBV_EVENT_PORT_ACTIVE", "PORT_ACTIVE"),
            ):
                pair.hosts[side].run(["ip", "link", "set", "eth1", state])
                wait_for_words(log, event, watch)
                described = host.run(["ibv_devinfo", "-d", "dp0"], env=pair.environment(0, "udp"))
                assert shown in described.stdout, described.stderr
            assert log.read_text().count("IBV_EVENT_PORT") == 2
        finally:
            watch.kill()
            watch.wait()
        pair.run(["ibv_rc_pingpong", "-d", "dp0", "-g", "0", "-n", "100"], port)


@pytest.mark.parametrize("port", ["afxdp", "udp"])
def test_a_device_that_is_renamed_or_made_again(root: None, tmp_path: Path, port: str) -> None:
    """An AF_XDP port belongs to the device, whatever its name, and ends with it; a UDP port goes
    with its address."""
    with NetnsNetwork(Topology(), "none") as network:
        pair = Pair(network.hosts, tmp_path)
        host = pair.hosts[0]
        program = [devices.PYTHON, str(devices.PROGRAMS / "renewed.py"), port]
        where = [host.endpoint.netdev, f"{host.endpoint.ipv4}/24"]
        done = host.run([*program, *where], env=pair.environment(0, port), timeout_s=60)
        assert done.returncode == 0, done.stdout + done.stderr
