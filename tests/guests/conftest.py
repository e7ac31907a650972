# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two guests on one network, and two on virtual cards, booted once for all tests of this folder."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from datapath.lanes import kernels, vm
from datapath.lanes.base import Host
from datapath.lanes.spec import Topology
from datapath.lanes.vm import VmNetwork
from datapath.native.paths import ROOT
from datapath.verbs.launch import device_environment
from tests.guests import processes

KERNEL = "6.12"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Booting and emulated processors take long: these tests have a stage of their own.

    They run device by device, since changing the device takes seconds.
    """
    here = Path(__file__).parent
    places = [place for place, item in enumerate(items) if here in item.path.parents]
    ours = [items[place] for place in places]
    ours.sort(key=lambda item: ORDER.index(kind_of(item)))  # sort() keeps the order of equal ones
    for place, item in zip(places, ours, strict=True):
        items[place] = item
        item.add_marker(pytest.mark.guests)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


ORDER = ("", "kernel", "dp", "rxe", "siw", "several")
"""Kinds of devices, in the order of their tests."""


def kind_of(item: pytest.Item) -> str:
    """The kind of device that a test is for: what its file says, or its parameter.

    "several": tests that change devices themselves, or have guests of their own.
    """
    module = getattr(item, "module", None)
    if (said := getattr(module, "DEVICE", None)) is not None:
        return str(said)
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return ""
    return str(callspec.params.get("device", callspec.params.get("kind", "")))


@dataclass
class Guests:
    """The two guests; programs run on them as on any two machines with a verbs device."""

    network: VmNetwork
    logs: Path

    def has_device(self, kind: str) -> None:
        """From now on rxe0 or siw0 is on both; dp0 is with each program that wants it."""
        self.network.prepare(kind)

    @property
    def server(self) -> Host:
        return self.network.hosts[1]

    def shell(self, host: Host, script: str, timeout_s: float) -> tuple[int, str]:
        """A script in the root of the tree; exit status and all that it said."""
        line = f"cd '{ROOT}' && {script}"
        done = host.run(
            ["sh", "-c", line], env={"PYTHONDONTWRITEBYTECODE": "1"}, timeout_s=timeout_s
        )
        return done.returncode, done.stdout + done.stderr

    def pair(
        self,
        argv: Sequence[str],
        kind: str,
        *,
        timeout_s: float = 120,
        cm: bool = False,
        client_waits: bool = False,
    ) -> tuple[str, str]:
        """`argv` on one guest as server, and with its address on the other as client.

        client_waits: the program waits for its server, so that both start at once.
        Returns all that the server wrote, and the client's standard output; both must end with 0.
        """
        client, server = self.network.hosts
        env = environment(kind)
        log = self.logs / "server"
        log.unlink(missing_ok=True)
        before = 0 if client_waits else listening(server)
        running = server.popen(argv, env=env, stdout=log, stderr=log)
        try:
            limit = time.monotonic() + timeout_s
            while not client_waits and listening(server) <= before and not cm_listens(server, cm):
                assert running.poll() is None, log.read_text()
                assert time.monotonic() < limit, "the server does not listen"
                time.sleep(0.2)
            done = client.run([*argv, server.endpoint.ipv4], env=env, timeout_s=timeout_s)
            assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
            status = running.wait(timeout=timeout_s)
        finally:
            running.kill()
            running.wait(timeout=20)
        assert status == 0, log.read_text()
        return log.read_text(), done.stdout


def environment(kind: str) -> Mapping[str, str]:
    return device_environment("dp0", "afxdp:eth1", base={}) if kind == "dp" else {}


# A busy machine lets a guest wait for longer than the half second that programs grant.
PATIENT = {"dp": ["--ack-timeout", "19"]}


def listening(host: Host) -> int:
    """How many TCP sockets listen (state 0A)."""
    script = "grep -hc ' 0A ' /proc/net/tcp /proc/net/tcp6"
    return sum(int(n) for n in host.run(["sh", "-c", script]).stdout.split())


def cm_listens(host: Host, wanted: bool) -> bool:
    """Whether RDMA-CM listens: the kernel knows of an id in that state."""
    if not wanted:
        return False
    return "LISTEN" in host.run(["rdma", "resource", "show", "cm_id"]).stdout


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VmNetwork]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes namespaces and taps for the guests")
    kernels.ensure(KERNEL, lambda text: print(text, file=sys.stderr))
    logs = tmp_path_factory.mktemp("consoles")
    with VmNetwork(Topology(lane="vm", kernel=KERNEL), "none", logs) as network:
        yield network


@dataclass
class Troubled:
    """A network whose first guests did not boot: `hit` are their processes."""

    network: VmNetwork
    logs: Path
    hit: dict[str, int]


ON_CARDS = {
    "lane": "vm",
    "kernel": KERNEL,
    "mtu": 1500,
    "vnic": {"recover": {"udp": [4791], "tcp": [18601]}},
}
"""Over TCP port 18601 the generator's connections on siw meet."""


@pytest.fixture(scope="package")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    """Guests on cards.  While they boot for the first time, one is killed and one stopped."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes namespaces and taps for the guests")
    kernels.ensure(KERNEL, lambda text: print(text, file=sys.stderr))
    others = processes.guests(os.getpid())
    hit: dict[str, int] = {}
    logs = tmp_path_factory.mktemp("consoles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vm, "_SILENT_S", 25.0)
        hitter = threading.Thread(target=processes.trouble, args=(others, hit), daemon=True)
        hitter.start()
        with VmNetwork(Topology.model_validate(ON_CARDS), "bpf", logs) as network:
            hitter.join()
            yield Troubled(network, logs, hit)


@pytest.fixture
def guests(network: VmNetwork, tmp_path: Path) -> Iterator[Guests]:
    yield Guests(network, tmp_path)
    network.recover()  # nothing of a failed test runs on
