# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Guests that do not boot, that die, and what is left of them."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest

from datapath.errors import RunFailed
from datapath.lanes import kernels
from datapath.lanes.base import Host
from datapath.lanes.spec import Path
from datapath.native.paths import ROOT
from tests.guests.conftest import KERNEL, Troubled
from tests.guests.processes import TROUBLES, guests
from tests.processes import descendants, runs

DEVICE = "several"


def output(host: Host, *argv: str) -> str:
    done = host.run(argv, timeout_s=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("index", [0, 1], ids=["ended", "stuck"])
def test_a_guest_that_does_not_boot_is_started_again(troubled: Troubled, index: int) -> None:
    host = troubled.network.hosts[index]
    assert output(host, "uname", "-r").strip() == troubled.network.kernel.release
    limit = time.monotonic() + 30
    while runs(troubled.hit[host.name]) and time.monotonic() < limit:
        time.sleep(0.2)
    assert not runs(troubled.hit[host.name])
    console = (troubled.logs / f"{host.name}.console").read_text(errors="replace")
    assert re.search(rf"dpctl: {TROUBLES[host.name][1]}.*; started again", console)


def test_a_dead_guest_is_an_error_and_not_a_hang(troubled: Troubled) -> None:
    """The last test of this network."""
    network = troubled.network
    guest = network.hosts[1]
    network.set_path(Path(), seed=1)
    output(network.hosts[0], "ping", "-c", "1", guest.endpoint.ipv4)
    sleeper = guest.popen(["sleep", "600"])
    with pytest.raises(RunFailed, match=r"host1 is gone: .*Kernel panic - .*sysrq"):
        guest.run(["sh", "-c", "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger"])
    with pytest.raises(RunFailed, match="host1"):
        sleeper.wait(timeout=60)
    assert not network.recover()
    assert b"sysrq triggered crash" in (troubled.logs / "host1.console").read_bytes()


BUILD = """
from datapath.lanes.spec import Topology
from datapath.lanes.vm import VmNetwork
with VmNetwork(Topology(lane="vm", kernel="6.12"), "none"):
    pass
"""


@pytest.mark.usefixtures("root")
def test_kill_9_leaves_no_guest() -> None:
    """Its owner is killed while they boot: the kernel ends them, whatever runs inside."""
    kernels.ensure(KERNEL, lambda _: None)
    with subprocess.Popen([sys.executable, "-c", BUILD], cwd=ROOT) as process:
        try:
            while len(guests(process.pid)) < 2:
                assert process.poll() is None
                time.sleep(0.1)
            family = descendants(process.pid)
        finally:
            process.kill()
    script = "while kill -0 $1 2>/dev/null; do sleep 0.1; done"
    for pid in family:
        subprocess.run(["sh", "-c", script, "sh", str(pid)], timeout=30, check=True)
