# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The ssh lane on guests, which have what namespaces cannot have: the kernel's RDMA devices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.lanes import kernels
from datapath.lanes.namespace import spawn
from datapath.lanes.remote import ClientKey, SshHost
from datapath.lanes.spec import Topology
from datapath.lanes.vm import VmNetwork
from datapath.native.paths import ROOT

pytestmark = [
    pytest.mark.usefixtures("root"),
    pytest.mark.guests,
    pytest.mark.timeout(400),
]

KERNEL = "6.12"
EXPERIMENT = """\
version: 1
name: guests
topology:
  lane: ssh
  ssh_config: ./ssh-config
  machines:
    - {ssh: root@198.19.0.1, netdev: eth1}
    - {ssh: root@198.19.0.2, netdev: eth1}
workload: {kind: perftest, test: send_lat, size: 64, iterations: 20}
sweep:
  matrix: {transport.device: [rxe, siw, dp]}
  order: sequential
  repetitions: 1
"""


@pytest.fixture(scope="module")
def guests() -> Iterator[VmNetwork]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and taps")
    kernels.install(KERNEL, lambda _: None)
    with VmNetwork(Topology(lane="vm", kernel=KERNEL, mtu=1500)) as network:
        yield network


@pytest.fixture
def experiment(guests: VmNetwork, tmp_path: FilePath) -> FilePath:
    """An experiment file, with a key that the guests accept beside it."""
    key = ClientKey.generate()
    key.private.write_private_key(str(tmp_path / "key"))
    (tmp_path / "key").chmod(0o600)
    for host in guests.hosts:
        script = 'echo "$1" >>/run/datapath/authorized_keys'
        assert host.run(["sh", "-c", script, "sh", key.public]).returncode == 0
    (tmp_path / "ssh-config").write_text(
        f"Host *\n  IdentityFile {tmp_path}/key\n  IdentitiesOnly yes\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
    )
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT)
    return path


def start(guests: VmNetwork, *words: object) -> subprocess.Popen[bytes]:
    """dpctl in the namespace that is joined to the guests' management network."""
    assert guests._middle is not None
    argv = [sys.executable, "-m", "datapath.cli", *map(str, words)]
    pipe = subprocess.PIPE
    return spawn(
        guests._middle.namespace, argv, cwd=ROOT, env=dict(os.environ), stdout=pipe, stderr=pipe
    )


def rdma_links(host: Any) -> list[str]:
    done = host.run(["rdma", "-j", "link"], timeout_s=60)
    return [link["ifname"] for link in json.loads(done.stdout or "[]")]


def test_every_device_of_one_sweep(
    guests: VmNetwork, experiment: FilePath, tmp_path: FilePath
) -> None:
    out = tmp_path / "out"
    process = start(guests, "run", experiment, "--out", out)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err.decode()
    records = [json.loads(path.read_text()) for path in (out / "runs").glob("*.json")]
    assert {record["axes"]["transport.device"] for record in records} == {"rxe", "siw", "dp"}
    for record in records:
        values = {metric["name"]: metric["value"] for metric in record["metrics"]}
        assert values["latency_p50"] > 0
        dp = record["axes"]["transport.device"] == "dp"
        assert sorted(device["host"] for device in record["device"]) == (
            ["host0", "host1"] if dp else []
        )
    host = json.loads((out / "manifest.json").read_text())["networks"][0]["hosts"]["host1"]
    assert host["kernel"] == guests.kernel.release
    assert host["nic"]["driver"] == "virtio_net"
    assert host["rdma"]["rxe"] in ("available", "loaded")
    # A clock of its own, seen over a path of its own.
    assert host["clock"]["uncertainty_ns"] > 0
    for guest in guests.hosts:
        assert rdma_links(guest) == []


def test_a_device_of_somebody_elses_is_used_and_stays(
    guests: VmNetwork, experiment: FilePath, tmp_path: FilePath
) -> None:
    experiment.write_text(EXPERIMENT.replace("[rxe, siw, dp]", "[rxe]"))
    guests.prepare("rxe")
    try:
        process = start(guests, "run", experiment, "--out", tmp_path / "out")
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err.decode()
        for guest in guests.hosts:
            assert rdma_links(guest) == ["rxe0"]
    finally:
        guests.prepare("dp")


def test_kill_9_takes_the_device_away(
    guests: VmNetwork, experiment: FilePath, tmp_path: FilePath
) -> None:
    text = EXPERIMENT.replace("[rxe, siw, dp]", "[rxe]")
    experiment.write_text(
        text.replace("send_lat, size: 64, iterations: 20", "write_bw, duration: 60s")
    )
    process = start(guests, "run", experiment, "--out", tmp_path / "out")
    client = guests.hosts[0]
    assert isinstance(client, SshHost)
    wait_for(lambda: client.run(["pgrep", "ib_write_bw"]).returncode == 0)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_for(lambda: client.run(["pgrep", "ib_write_bw"]).returncode == 1)
    for guest in guests.hosts:
        wait_for(lambda guest=guest: rdma_links(guest) == [])


def wait_for(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("did not happen in a minute")
