# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Guests that do not boot, that die, and what is left of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path as FilePath

import pytest

from datapath import scratch
from datapath.errors import RunFailed
from datapath.experiment import live
from datapath.lanes import kernels, vm
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
    """The last test of this network.  Programs of the other guest end, and the run names this."""
    network = troubled.network
    guest = network.hosts[1]
    network.set_path(Path(), seed=1)
    output(network.hosts[0], "ping", "-c", "1", guest.endpoint.ipv4)
    sleeper = guest.popen(["sleep", "600"])
    other = network.hosts[0].popen(["sleep", "600"])
    with pytest.raises(RunFailed, match=r"host1 is gone: .*Kernel panic - .*sysrq"):
        guest.run(["sh", "-c", "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger"])
    with pytest.raises(RunFailed, match="host1"):
        sleeper.wait(timeout=60)
    assert other.wait(timeout=60) == -signal.SIGKILL
    told = live.cause(network, RunFailed("host 1 does not answer"))
    assert isinstance(told, RunFailed)
    assert re.search(r"guest host1: it has ended: .*sysrq", str(told))
    assert told.hint == f"its console is {troubled.logs / 'host1.console'}"
    assert not network.recover()
    assert b"sysrq triggered crash" in (troubled.logs / "host1.console").read_bytes()


BUILD = """
from datapath.lanes.spec import Topology
from datapath.lanes.vm import VmNetwork
with VmNetwork(Topology(lane="vm", kernel="6.12"), "none"):
    pass
"""


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_owner_leaves_no_guest(
    number: signal.Signals, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed while they boot: the kernel ends them, whatever runs inside.

    The files of virtme-ng and QEMU go with it, or with the next network.
    """
    kernels.ensure(KERNEL, lambda _: None)
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", BUILD], cwd=ROOT, env=env) as process:
        try:
            while len(guests(process.pid)) < 2 or len(list(tmp_path.glob("*/virtme_ret*"))) < 2:
                assert process.poll() is None
                time.sleep(0.1)
            family = descendants(process.pid)
            (folder,) = tmp_path.iterdir()
        finally:
            process.send_signal(number)
    script = "while kill -0 $1 2>/dev/null; do sleep 0.1; done"
    for pid in family:
        subprocess.run(["sh", "-c", script, "sh", str(pid)], timeout=30, check=True)
    assert list(tmp_path.iterdir()) == ([folder] if number == signal.SIGKILL else [])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch.remove_old(vm._TEMPORARY)
    assert not list(tmp_path.iterdir())
