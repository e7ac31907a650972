# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dpctl exec shows a program its devices in sysfs, and nobody else."""

from __future__ import annotations

import ipaddress
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.verbs.sysfs import Place, device_files
from tests.verbs.devices import PYTHON, sanitizer

DEVICES = "/sys/class/infiniband"
EXEC = [sys.executable, "-m", "datapath.cli", "exec"]

# What verbs say of a device, line by line as sysfs has it.
ASK = """
import socket, sys
from pyverbs.device import Context
context = Context(name="dp0")
attr, port = context.query_device(), context.query_port(1)
print(context.query_gid(1, 0))
print(socket.if_indextoname(context.query_gid_ex(1, 0).ndev_ifindex))
print(attr.node_guid.to_bytes(8, sys.byteorder).hex(":", 2))
print({4: "4: ACTIVE"}[port.state])
"""
SHOWN = ("ports/1/gids/0", "ports/1/gid_attrs/ndevs/0", "node_guid", "ports/1/state")


def test_files_are_as_the_kernel_writes_them() -> None:
    gid = ipaddress.IPv6Address("::ffff:10.0.0.1")
    place = Place("dp0", "eth1", True, gid, 2, bytes(range(8)), 25_000_000_000)
    files = device_files(place, "1.2")
    assert files["node_guid"] == "0001:0203:0405:0607"
    assert files["node_type"] == "1: CA"
    assert files["ports/1/gids/1"] == "0000:0000:0000:0000:0000:ffff:0a00:0001"
    assert files["ports/1/gid_attrs/types/0"] == "RoCE v2"
    assert files["ports/1/gid_attrs/ndevs/1"] == "eth1"
    assert files["ports/1/rate"] == "25 Gb/sec"
    assert files["ports/1/state"] == "4: ACTIVE"


@pytest.fixture(scope="module")
def host() -> Iterator[NetnsHost]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces")
    with NetnsNetwork(Topology(), "none") as network:
        yield network.hosts[0]


def run(host: NetnsHost, *argv: str) -> str:
    done = host.run(argv, env=sanitizer())
    assert done.returncode == 0, done.stderr
    return done.stdout


def classes(host: NetnsHost) -> list[str]:
    return run(host, "ls", "/sys/class").split()


@pytest.mark.parametrize("port", ["udp:{0.ipv4}", "udp:{0.ipv6}", "afxdp:{0.netdev}"])
def test_sysfs_and_verbs_tell_the_same(host: NetnsHost, port: str) -> None:
    device = "dp0=" + port.format(host.endpoint)
    files = [f"{DEVICES}/dp0/{name}" for name in SHOWN]
    shown = run(host, *EXEC, "--device", device, "--", "cat", *files)
    asked = run(host, *EXEC, "--device", device, "--", PYTHON, "-c", ASK)
    assert shown == asked


def test_the_net_device_is_behind_the_device(host: NetnsHost) -> None:
    device = ["--device", "dp0=udp:eth1", "--device", "dp1=udp:mgmt0"]
    folders = [f"{DEVICES}/{name}/device/net" for name in ("dp0", "dp1")]
    assert run(host, *EXEC, *device, "--", "ls", folders[0]).split() == ["eth1"]
    assert run(host, *EXEC, *device, "--", "ls", folders[1]).split() == ["mgmt0"]
    mtu = f"{folders[0]}/eth1/mtu"
    assert run(host, *EXEC, *device, "--", "cat", mtu).strip() == str(host.endpoint.mtu)
    verbs = "/sys/class/infiniband_verbs"
    assert run(host, *EXEC, *device, "--", "ls", verbs).split() == ["dpverbs-dp0", "dpverbs-dp1"]


def test_all_else_stays_and_nobody_writes(host: NetnsHost) -> None:
    before = classes(host)
    command = [*EXEC, "--device", "dp0=udp:eth1", "--"]
    inside = run(host, *command, "ls", "/sys/class").split()
    assert sorted(inside) == sorted({*before, "infiniband", "infiniband_verbs"})
    assert run(host, *command, "ls", "/sys/class/net") == run(host, "ls", "/sys/class/net")
    script = f"touch {DEVICES}/x 2>&1; touch /sys/class/x 2>&1; true"
    assert run(host, *command, "sh", "-c", script).count("Read-only file system") == 2


def test_one_program_inside_another(host: NetnsHost) -> None:
    outer = [*EXEC, "--device", "dp0=udp:eth1", "--"]
    inner = [*EXEC, "--device", "dp1=udp:mgmt0", "--"]
    assert run(host, *outer, *inner, "ls", DEVICES).split() == ["dp1"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind(host: NetnsHost, tmp_path: Path, end: signal.Signals) -> None:
    before = classes(host)
    mounts = run(host, "cat", "/proc/self/mounts")
    command = [*EXEC, "--device", "dp0=udp:eth1", "--"]
    said = tmp_path / "said"
    script = f"ls {DEVICES}; exec sleep 60"
    program = host.popen([*command, "sh", "-c", script], env=sanitizer(), stdout=said)
    try:
        while not said.exists() or "dp0" not in said.read_text():
            assert program.poll() is None
        assert classes(host) == before
        program.send_signal(end)
        assert program.wait(timeout=20) == -end
    finally:
        program.kill()
        program.wait()
    assert classes(host) == before
    assert run(host, "cat", "/proc/self/mounts") == mounts


def test_without_the_right_a_program_runs_without() -> None:
    """As another user: no mount namespace, and the device is there all the same."""
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    drop = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    script = f"ibv_devices; ls {DEVICES} || true"
    done = subprocess.run(
        [*drop, *EXEC, "--device", "dp0=udp:127.0.0.1", "--", "sh", "-c", script],
        env={**os.environ, **sanitizer()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "dp0" in done.stdout
    assert "infiniband" in done.stderr  # ls, which found no such folder
