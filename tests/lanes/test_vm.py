# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Guests: what runs in them, what becomes of them, and AF_XDP zero-copy on their devices."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.errors import CapabilityError, RunFailed
from datapath.lanes import kernels
from datapath.lanes.base import Host, Process
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.lanes.vm import VmNetwork
from datapath.native.paths import ROOT
from datapath.verbs.launch import device_environment

from .sshd import Sshd

pytestmark = [
    pytest.mark.usefixtures("root"),
    pytest.mark.guests,
    pytest.mark.timeout(600),
]

ZERO_COPY_MTU = 3800  # a packet must fit one buffer
BANDWIDTH = ["/usr/bin/python3", str(ROOT / "tools" / "bandwidth.py"), "-d", "dp0"]
# The functions in which the kernel copies, for a socket in copy mode, what is received and sent.
COPIERS = ("__xsk_rcv", "__xsk_generic_xmit")
TRACING = "/sys/kernel/tracing"
PROBE = f"""
set -e
cd {TRACING}
echo 0 >events/kprobes/enable 2>/dev/null || :
echo >kprobe_events
for name in {" ".join(COPIERS)}; do echo "p:$name $name" >>kprobe_events; done
echo 1 >events/kprobes/enable
"""


def kernel(name: str) -> str:
    kernels.ensure(name, lambda _: None)
    return name


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VmNetwork]:
    topology = Topology(lane="vm", kernel=kernel("backports"), mtu=ZERO_COPY_MTU, cpus=2)
    with VmNetwork(topology, "bpf", tmp_path_factory.mktemp("consoles")) as network:
        yield network


def output(host: Host, *argv: str) -> str:
    done = host.run(argv, timeout_s=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_guest_runs_the_kernel_asked_for(network: VmNetwork) -> None:
    for host in network.hosts:
        assert output(host, "uname", "-r").strip() == network.kernel.release
        link = json.loads(output(host, "ip", "-json", "link", "show", "eth1"))[0]
        assert link["mtu"] == ZERO_COPY_MTU
        assert output(host, "hostname").strip() == host.name
        assert host.cpus == [0, 1]  # those that started last, too


def test_an_emulated_cpu_is_spared_what_emulation_makes_slow(network: VmNetwork) -> None:
    if str(network.describe()["acceleration"]).startswith("KVM"):
        return
    for host in network.hosts:
        assert not {"erms", "fsrm"} & {*output(host, "cat", "/proc/cpuinfo").split()}
        assert "mitigations=off" in output(host, "cat", "/proc/cmdline").split()


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_packets_of_the_full_mtu_pass(network: VmNetwork, family: str) -> None:
    client, server = network.pairs[0]
    headers = 28 if family == "ipv4" else 48
    size = str(ZERO_COPY_MTU - headers)
    network.set_path(Path(), seed=1)
    address = getattr(server.endpoint, family)
    output(client, "ping", "-c", "3", "-i", "0.2", "-M", "do", "-s", size, address)
    assert network.path_counters().passed["forward"] >= 3


def test_loss_in_the_middle_meets_the_guests(network: VmNetwork) -> None:
    client, server = network.pairs[0]
    network.set_path(Path.model_validate({"loss": "100%"}), seed=1)
    ping = ["ping", "-c", "2", "-i", "0.2", "-W", "1", server.endpoint.ipv4]
    assert client.run(ping, timeout_s=30).returncode == 1
    assert network.path_counters().dropped["forward"] == 2
    network.set_path(Path(), seed=1)


def test_a_kernel_device_replaces_the_other(network: VmNetwork) -> None:
    for device in ("rxe", "siw", "dp"):
        network.prepare(device)
        expected = f"{device}0" if device != "dp" else ""
        for host in network.hosts:
            links = json.loads(output(host, "rdma", "-j", "link") or "[]")
            assert ",".join(link["ifname"] for link in links) == expected


def test_what_a_failed_run_leaves_is_ended(network: VmNetwork) -> None:
    host = network.hosts[0]
    lost = host.popen(["sh", "-c", "sleep 987 & exec sleep 987"])
    assert network.recover()
    assert lost.wait(timeout=10) == -signal.SIGKILL
    assert host.run(["pgrep", "-f", "sleep 987"]).returncode == 1


def test_a_network_whose_emulator_has_ended_is_of_no_more_use() -> None:
    """No guest is needed to see it: the middle here is that of namespaces."""
    network = VmNetwork(Topology(lane="vm", kernel=kernel("backports")), "fabric")
    with NetnsNetwork(Topology(), "fabric") as other:
        network._middle = other.middle
        assert network.recover()
        process = other.emulator()._program.process
        process.kill()
        process.wait(10)
        assert not network.recover()
        with pytest.raises(RunFailed, match="the emulator was killed by signal 9"):
            network.check_alive()


def test_a_device_that_is_changed_by_half_ends_the_network(tmp_path: FilePath) -> None:
    """The kernel of this namespace has no rxe0 to remove, as a guest that has lost its own."""
    network = VmNetwork(Topology(lane="vm", kernel=kernel("backports")), "fabric")
    with NetnsNetwork(Topology(), "fabric") as other:
        sshd = Sshd(other.hosts[0], tmp_path / "sshd").start()
        link = sshd.log_in()
        network._middle, network._links = other.middle, [link]
        try:
            assert network.recover()
            network._device = "rxe"
            with pytest.raises(CapabilityError, match="host0 cannot remove rxe0"):
                network.prepare("dp")
            assert not network.recover()
        finally:
            link.close()


def test_consoles_are_kept(network: VmNetwork) -> None:
    assert network._logs is not None
    for host in network.hosts:
        assert b"Linux version" in (network._logs / f"{host.name}.console").read_bytes()


# --- zero-copy ---


def transfer(
    network: VmNetwork, mode: str, operation: str, tmp_path: FilePath
) -> list[dict[str, Any]]:
    """Move data that is compared byte for byte; what both devices say of themselves."""
    network.prepare("dp")
    network.set_path(Path(), seed=1)
    processes: list[Process] = []
    words = [*BANDWIDTH, "--op", operation, "-s", "65536", "-n", "64"]
    for host, address in zip(
        reversed(network.hosts), ([], [network.hosts[1].endpoint.mgmt_ipv4]), strict=True
    ):
        environment = device_environment("dp0", f"afxdp:eth1,mode={mode}", base={})
        environment["DATAPATH_STATS"] = f"{host.outputs(tmp_path)}/stats-{host.name}"
        log = tmp_path / f"{host.name}.log"
        processes.append(host.popen([*words, *address], env=environment, stdout=log, stderr=log))
        if not address:
            wait_listening(host)
    for process, host in zip(processes, reversed(network.hosts), strict=True):
        assert process.wait(timeout=100) == 0, (tmp_path / f"{host.name}.log").read_text()
        host.fetch(tmp_path)
    return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("stats-*.json"))]


def wait_listening(host: Host) -> None:
    tables = "/proc/net/tcp /proc/net/tcp6"
    script = f"until grep -v ':0016 ' {tables} | grep -q ' 0A '; do sleep 0.1; done"
    output(host, "sh", "-c", script)


def kernel_copies(host: Host) -> dict[str, int]:
    """Calls of each copying function since PROBE, by the kernel's own count."""
    lines = output(host, "cat", f"{TRACING}/kprobe_profile").splitlines()
    return {line.split()[0]: int(line.split()[1]) for line in lines}


@pytest.mark.parametrize(
    ("mode", "operation"),
    [("zerocopy", "write"), ("zerocopy", "read"), ("zerocopy", "send"), ("copy", "send")],
)
def test_zero_copy_moves_data_that_the_kernel_never_copies(
    network: VmNetwork, mode: str, operation: str, tmp_path: FilePath
) -> None:
    for host in network.hosts:
        output(host, "sh", "-c", PROBE)
    statistics = transfer(network, mode, operation, tmp_path)
    assert len(statistics) == 2
    for host, entry in zip(network.hosts, statistics, strict=True):
        counts = kernel_copies(host)
        assert set(counts) == set(COPIERS)
        if mode == "zerocopy":
            assert entry["port"]["mode"] == "zero-copy"
            assert entry["port_stats"]["copies"] == 0
            assert sum(counts.values()) == 0
        else:
            assert entry["port"]["mode"] == "copy"
            assert entry["port_stats"]["copies"] > 64
            assert min(counts.values()) > 0


def test_an_unknown_kernel_says_how_to_get_it() -> None:
    with pytest.raises(CapabilityError) as caught:
        VmNetwork(Topology(lane="vm", kernel="2.4"))
    assert "dpctl kernel install 2.4" in caught.value.hint
