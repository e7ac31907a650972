# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The ssh lane on two machines with real sshds: whole runs of dpctl, and what can go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import pandas as pd
import pytest
from pydantic import ValidationError

from datapath import report, series
from datapath.errors import CapabilityError, LocalError, RemoteError
from datapath.lanes import open_network
from datapath.lanes.machine_cards import MachineCards
from datapath.lanes.machine_login import parse_target
from datapath.lanes.namespace import Namespace, spawn
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.remote import ClientKey
from datapath.lanes.spec import Path, Topology
from datapath.lanes.ssh import _links
from tests.cli.server import COMMAND, Dpctl
from tests.waiting import wait_until

from .sshd import USER, Sshd, open_folder

PROGRAMS = FilePath(__file__).parent / "programs"
ROOT = FilePath(__file__).resolve().parents[2]
MACHINES = [{"ssh": "node1", "netdev": "eth1"}, {"ssh": "node2", "netdev": "eth1"}]
HOST = """\
Host {name}
  HostName {address}
  User {user}
  Port 22
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  PasswordAuthentication no
  IdentityFile {key}
  IdentitiesOnly yes
  LogLevel FATAL
"""
HOSTILE_ADDRESS = """[{"ifname": "eth1", "mtu": 1, "flags": ["UP"], "addr_info":
    [{"family": "inet", "scope": "global", "local": "198.18.0.9;cc=/tmp/x.so"}]}]"""
EXPERIMENT = """\
version: 1
name: two-machines
topology:
  lane: ssh
  ssh_config: ./ssh-config
  machines:
    - {ssh: node1, netdev: eth1}
    - {ssh: node2, netdev: eth1}
transport: {port: udp}
workload: {kind: perftest, test: send_lat, size: 64, iterations: 100}
sweep:
  timeout: 40s
  repetitions: 1
"""


@dataclass
class Site:
    """Two machines, and a third place from which they are driven."""

    network: NetnsNetwork
    sshds: list[Sshd]
    control: Namespace
    folder: FilePath
    server: Dpctl

    def dpctl(self, *words: object) -> subprocess.CompletedProcess[str]:
        """A dpctl command at the place of control."""
        done = self.server(*words, memory_bytes=None, env=environment(self.folder))
        return subprocess.CompletedProcess(words, done.code, done.out, done.err)

    def start(
        self, *words: object, program: Sequence[str] = ("-m", "datapath.cli")
    ) -> subprocess.Popen[bytes]:
        argv = [sys.executable, *program, *map(str, words)]
        return spawn(
            self.control,
            argv,
            cwd=ROOT,
            env=environment(self.folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def experiment(self, old: str = "", new: str = "") -> FilePath:
        assert old in EXPERIMENT
        path = self.folder / "experiment.yaml"
        path.write_text(EXPERIMENT.replace(old, new, 1))
        return path

    def refusal(self, old: str = "", new: str = "") -> tuple[int, str]:
        """(exit code, what it says) of an experiment that cannot be begun."""
        out = self.folder / "refused"
        done = self.dpctl("run", "--no-report", self.experiment(old, new), "--out", out)
        assert not out.exists()
        return done.returncode, done.stderr


def environment(folder: FilePath) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "300"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces")
    key = ClientKey.generate()
    with open_folder() as folder, NetnsNetwork(Topology()) as network:
        sshds = [Sshd(host, folder / host.name, key=key).start() for host in network.hosts]
        control = network.middle.namespace
        control.check_output(["ip", "address", "add", "198.19.0.254/24", "dev", "mgmt"])
        key.private.write_private_key(str(folder / "key"))
        (folder / "key").chmod(0o600)
        (folder / "stranger").write_bytes(ClientKey.generate().private.export_private_key())
        (folder / "stranger").chmod(0o600)
        address = sshds[0].host.endpoint.mgmt_ipv4
        entries: dict[str, dict[str, object]] = {
            "node1": {"address": address},
            "node2": {"address": sshds[1].host.endpoint.mgmt_ipv4},
            "user1": {"address": address, "user": USER},
            "refused": {"address": address, "key": folder / "stranger"},
            "silent": {"address": "198.19.0.77"},
        }
        text = "".join(
            HOST.format(**{"name": name, "user": "root", "key": folder / "key", **entry})
            for name, entry in entries.items()
        )
        text += f"Host strict\n  HostName {address}\n  User root\n  IdentityFile {folder}/key\n"
        strict = f"  HostName {address}\n  User root\n  IdentityFile {folder}/key\n"
        nothing = "  UserKnownHostsFile {}\n  GlobalKnownHostsFile {}/nowhere\n"
        text += f"Host unmet\n{strict}{nothing.format(folder / 'nowhere', folder)}"
        text += f"Host unlisted\n{strict}{nothing.format('none', folder)}"
        text += f"Host careless\n{strict}{nothing.format(folder / 'nowhere', folder)}"
        text += "  StrictHostKeyChecking no\n"
        text += f"Host met\n{strict}  UserKnownHostsFile {folder}/nowhere {folder}/met\n"
        (folder / "met").write_text(f"{address} {sshds[0].host_key}")
        text += f"Host changed\n{strict}  UserKnownHostsFile {folder}/nowhere {folder}/changed\n"
        (folder / "changed").write_text(f"{address} {sshds[1].host_key}")
        text += "Host noname\n  HostName nowhere.invalid\nHost bare.invalid\n  User root\n"
        text += "Host hop\n  ProxyJump jump.invalid\n"
        missing = "  UserKnownHostsFile {0}/met\n  IdentityFile {1}/nowhere\n"
        text += f"Host spare\n{missing.format(folder, folder)}{strict}"
        text += f"Host keyless\n{missing.format(folder, '%d')}{strict}"
        text += f"Host damaged\n{strict}  UserKnownHostsFile {folder}/damaged\n"
        (folder / "damaged").write_text("@nonsense x\n")
        (folder / "ssh-config").write_text(text)
        pipe = subprocess.PIPE
        process = spawn(control, COMMAND, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        server = Dpctl(process)
        yield Site(network, sshds, control, folder, server)
        server.close()


def records(folder: FilePath) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))]


# --- runs ------------------------------------------------------------------------------------


def test_a_sweep_on_machines_leaves_everything(site: Site, tmp_path: FilePath) -> None:
    matrix = """sweep:
  matrix:
    stack:
      - {label: udp, set: {transport.port: udp}}
      - {label: afxdp, set: {transport.port: afxdp}}
      - label: tcp
        set: {transport.device: kernel, workload: {kind: iperf3, duration: 1s}}
"""
    out = tmp_path / "out"
    done = site.dpctl("run", site.experiment("sweep:\n", matrix), "--out", out, "--format", "json")
    assert done.returncode == 0, done.stderr
    by_stack = {record["axes"]["stack"]: record for record in records(out)}
    assert set(by_stack) == {"udp", "afxdp", "tcp"}
    for stack, record in by_stack.items():
        metrics = {metric["name"]: metric["value"] for metric in record["metrics"]}
        assert metrics["goodput" if stack == "tcp" else "latency_p50"] > 0
        assert "cpu_user" not in metrics  # of ssh, not of the programs
    for stack in ("udp", "afxdp"):
        devices = by_stack[stack]["device"]
        assert sorted(device["host"] for device in devices) == ["host0", "host1"]
        assert {device["port"]["kind"] for device in devices} == {stack}
        assert all(device["qps"][0]["tx_packets"] >= 100 for device in devices)
    network = json.loads((out / "manifest.json").read_text())["networks"][0]
    assert (network["lane"], network["backend"]) == ("ssh", "none")
    for index, name in enumerate(("host0", "host1")):
        host = network["hosts"][name]
        assert host["ssh"] == f"node{index + 1}"
        assert host["kernel"] == os.uname().release
        assert (host["ipv4"], host["mgmt"]) == (f"198.18.0.{index + 1}", f"198.19.0.{index + 1}")
        assert abs(host["clock"]["offset_ns"]) <= host["clock"]["uncertainty_ns"]
        assert network["devices"][name]["eth1"]["mtu"] == 9000
    assert "eth1" in (out / "report.html").read_text()
    for sshd in site.sshds:
        assert not list(sshd.temporary.iterdir())
        assert sshd.host.run(["pgrep", "ib_send_lat"]).returncode == 1


def test_machines_are_guests_of_cards_over_a_network_that_loses(
    site: Site, tmp_path: FilePath
) -> None:
    """Their own devices stay as they are, and go-back-N sees no loss.

    A device in standard mode sends again after its time-out, whatever the card does.  So that is
    long: a busy machine may stand still for perftest's 67 ms.
    """
    text = EXPERIMENT.replace(
        "topology:\n", "topology:\n  mtu: 4400\n  vnic: {cc: {algo: vpc}}\n"
    ).replace("port: udp", "port: afxdp, mode: standard, ack_timeout: 20")
    text += "collect: {series: [rtt, delivered], interval: 10ms}\n"
    path = site.folder / "cards.yaml"
    path.write_text(text.replace("iterations: 100", "iterations: 500"))
    out = tmp_path / "out"
    site.network.set_path(Path.model_validate({"loss": "2%"}), 1)
    try:
        done = site.dpctl("run", "--no-report", path, "--out", out)
    finally:
        site.network.set_path(Path(), 1)
    assert done.returncode == 0, done.stderr
    (record,) = records(out)
    assert [device["qps"][0]["retransmits"] for device in record["device"]] == [0, 0]
    assert (
        sum(
            card["hosts"][peer]["retransmits"]
            for card, peer in zip(record["cards"], ("card1", "card0"), strict=True)
        )
        > 0
    )
    (table,) = (out / "series").iterdir()
    tunnels = {name for _, name, _ in series.tunnels(pd.read_parquet(table))}
    assert tunnels == {"card0", "card1"}
    host = json.loads((out / "manifest.json").read_text())["networks"][0]["hosts"]["host1"]
    assert (host["ipv4"], host["mgmt"]) == ("198.18.2.2", "198.19.0.2")
    for sshd in site.sshds:
        wait_until(
            lambda: "dpcard" not in sshd.host.run(["ip", "-brief", "link"]).stdout,  # noqa: B023
            "the pair is gone",
        )
        assert "xdp" not in sshd.host.run(["ip", "link", "show", "eth1"]).stdout
        assert sshd.host.run(["pgrep", "dp_vnic"]).returncode == 1


def test_of_two_runs_that_want_a_machines_card_one_gets_it(site: Site) -> None:
    """The other one says so, and its end takes nothing away."""
    topology = Topology.model_validate({"lane": "ssh", "machines": MACHINES, "vnic": True})
    sshd = site.sshds[0]
    hosts = [sshd.log_in(), sshd.log_in()]
    cards = [MachineCards(topology, [host], ["node1"], None) for host in hosts]
    try:
        with ThreadPoolExecutor(len(cards)) as pool:
            errors = [future.exception() for future in [pool.submit(c.join) for c in cards]]
        (refused,) = [error for error in errors if error is not None]
        assert isinstance(refused, CapabilityError)
        assert "node1: another run has its dpcard" in str(refused)
        hosts[errors.index(refused)].close()
        assert "dpcard" in sshd.host.run(["ip", "-brief", "link"]).stdout
    finally:
        for host in hosts:
            host.close()
    assert "dpcard" not in sshd.host.run(["ip", "-brief", "link"]).stdout


def test_another_user_and_control_traffic_beside_the_path(site: Site, tmp_path: FilePath) -> None:
    """sudo makes AF_XDP possible; an address given for control traffic is used for it."""
    machine = "{ssh: user1, netdev: eth1, mgmt: 198.18.0.1}"
    text = EXPERIMENT.replace("{ssh: node1, netdev: eth1}", machine).replace(
        "port: udp", "port: afxdp"
    )
    path = site.folder / "user.yaml"
    path.write_text(text)
    out = tmp_path / "out"
    done = site.dpctl("run", "--no-report", path, "--out", out)
    assert done.returncode == 0, done.stderr
    assert len(records(out)[0]["device"]) == 2
    hosts = json.loads((out / "manifest.json").read_text())["networks"][0]["hosts"]
    assert (hosts["host0"]["user"], hosts["host0"]["mgmt"]) == (USER, "198.18.0.1")


def test_a_machine_that_dies_fails_its_run_and_is_used_again(
    site: Site, tmp_path: FilePath
) -> None:
    text = EXPERIMENT.replace("iterations: 100", "duration: 3s").replace(
        "repetitions: 1", "repetitions: 2"
    )
    path = site.folder / "dies.yaml"
    path.write_text(text.replace("send_lat, size: 64", "write_bw, size: 64KiB"))
    out = tmp_path / "out"
    process = site.start("run", "--no-report", path, "--out", out)
    server = site.sshds[1].host
    wait_until(lambda: len(list(out.glob("logs/*/perftest-client-0.cmd"))) == 1, "the client is up")
    for pid in server.run(["pgrep", "--full", "^sshd(-session)?: root"]).stdout.split():
        if server.run(["nsenter", "-t", pid, "-n", "ip", "-o", "address"]).stdout.count(
            "198.19.0.2/"
        ):
            server.run(["kill", "-KILL", pid])
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err.decode()
    first, second = sorted(records(out), key=lambda record: record["repetition"])
    assert (first["status"], second["status"]) == ("failed", "ok")
    assert "machine 1 (node2) is gone" in first["error"]["message"]


@pytest.mark.parametrize(
    ("device", "workload", "program", "links"),
    [
        # Programs fail before the machine counts as gone.
        ("{port: udp}", "perftest, test: write_bw", "perftest-client-0", ["mgmt0", "eth1"]),
        ("{port: udp}", "stream", "traffic-host1", ["mgmt0", "eth1"]),
        # They go on.
        ("{device: kernel}", "iperf3", "iperf3-client-0", ["mgmt0"]),
    ],
)
def test_a_machine_that_is_silent_ends_the_run_with_its_name(
    site: Site, tmp_path: FilePath, device: str, workload: str, program: str, links: list[str]
) -> None:
    path = site.experiment("perftest, test: send_lat, size: 64, iterations: 100", workload)
    text = (
        path.read_text()
        .replace("{port: udp}", device)
        .replace(workload, f"{workload}, duration: 50s")
    )
    path.write_text(text.replace("timeout: 40s", "timeout: 100s"))
    out, lost = tmp_path / "out", site.sshds[1].host
    words = ["run", "--no-report", path, "--out", out]
    process = site.start(*words, program=[str(PROGRAMS / "impatient_dpctl.py")])
    wait_until(lambda: list(out.glob(f"logs/*/{program}.cmd")), "the client is up")
    try:
        for link in links:
            lost.run(["ip", "link", "set", link, "down"])
        _, err = process.communicate(timeout=300)
    finally:
        for link in ("mgmt0", "eth1"):
            lost.run(["ip", "link", "set", link, "up"])
        ipv6 = f"{lost.endpoint.ipv6}/64"
        lost.run(["ip", "address", "replace", ipv6, "dev", "eth1", "nodad"])
    (record,) = records(out)
    assert "machine 1 (node2) is gone: " in record["error"]["message"], err.decode()
    wait_until(lambda: not list(site.sshds[1].temporary.iterdir()), "its warden has left")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_the_machines_clean(
    site: Site, tmp_path: FilePath, signum: signal.Signals
) -> None:
    client, temporary = site.sshds[0].host, site.sshds[0].temporary
    path = site.experiment("send_lat, size: 64, iterations: 100", "write_bw, duration: 30s")
    process = site.start("run", "--no-report", path, "--out", tmp_path / "out")
    running = ["pgrep", "--full", "^ib_write_bw .*198"]  # the client
    wait_until(lambda: client.run(running).returncode == 0, "the client is up")
    assert list(temporary.iterdir())
    process.send_signal(signum)
    process.communicate(timeout=60)
    wait_until(
        lambda: client.run(["pgrep", "--full", "warden 60"]).returncode == 1, "wardens are gone"
    )
    assert client.run(["pgrep", "--full", "^ib_write_bw "]).returncode == 1
    assert not list(temporary.iterdir())


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "code", "said", "hint"),
    [
        ("ssh: node2", "ssh: nodel2", 2, "machine 1 (nodel2) is neither", "did you mean node2?"),
        ("ssh: node2", "ssh: refused", 3, "machine 1 (refused) refuses the login", "password: ssh"),
        ("ssh: node2", "ssh: silent", 3, "machine 1 (silent) cannot be reached", "try: ssh -F"),
        ("ssh: node2", "ssh: strict", 3, "machine 1 (strict): its host key is not known", "once"),
        ("ssh: node2", "ssh: unmet", 3, "machine 1 (unmet): its host key is not known", "once"),
        ("ssh: node2", "ssh: unlisted", 3, "(unlisted): its host key is not known", "once"),
        ("ssh: node2", "ssh: noname", 2, "its HostName nowhere.invalid cannot be", "correct it in"),
        ("ssh: node2", "ssh: bare.invalid", 2, "has no HostName for it", "add HostName in"),
        ("ssh: node2", "ssh: hop", 2, "its ProxyJump jump.invalid cannot be", "correct it in"),
        ("ssh: node2", "ssh: spare", 2, "(node1) and machine 1 (spare) both have", "once"),
        ("ssh: node2", "ssh: keyless", 2, "(keyless): there is no file /", "configuration names"),
        ("ssh: node2", "ssh: damaged", 2, "damaged: ", "correct that line"),
        ("ssh: node2", "ssh: careless", 2, "(node1) and machine 1 (careless) both have", "once"),
        ("ssh: node2", "ssh: met", 2, "(node1) and machine 1 (met) both have", "once"),
        ("ssh: node2", "ssh: 'node1:4'", 3, "machine 1 (node1:4) cannot be reached", "try: ssh"),
        ("ssh: node2", "ssh: node1", 2, "(node1) and machine 1 (node1) both have", "once"),
        (
            "node2, netdev: eth1",
            "node2, netdev: eth2",
            2,
            "machine 1 (node2) has no network device eth2",
            "did you mean eth1?",
        ),
        (
            "node2, netdev: eth1",
            "node2, netdev: eth1, ipv4: 10.1.2.3",
            2,
            "eth1 has not the address 10.1.2.3",
            "it has 198.18.0.2",
        ),
        ("./ssh-config", "./nowhere", 2, "there is no file", "vagrant ssh-config"),
        ("transport: {port: udp}", "path: {loss: 1%}", 3, "nothing can be lost", "lane: netns"),
        ("transport: {port: udp}", "transport: {device: rxe}", 3, "kernel has no rxe", "generic"),
    ],
)
def test_refusals_name_the_machine_and_say_what_to_do(
    site: Site, old: str, new: str, code: int, said: str, hint: str
) -> None:
    returned, text = site.refusal(old, new)
    assert said in text
    assert hint in text
    assert returned == code or code == 2  # several lacks at once are told with the code 3
    assert "Traceback" not in text


def test_a_changed_host_key_is_no_unknown_one(site: Site) -> None:
    code, text = site.refusal("ssh: node2", "ssh: changed")
    address = site.sshds[0].host.endpoint.mgmt_ipv4
    assert code == 3
    assert f"is not the one that {site.folder}/changed has for {address}" in text
    assert f"ssh-keygen -f {site.folder}/changed -R {address}" in text
    assert "StrictHostKeyChecking" not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1]",
        '[{"ifname": "eth1"}]',
        HOSTILE_ADDRESS,
    ],
)
def test_what_a_machine_says_of_its_addresses_is_checked(text: str) -> None:
    with pytest.raises(RemoteError, match="machine 1 does not tell its addresses"):
        _links("machine 1", text)


def test_different_mtus_are_told(site: Site) -> None:
    host = site.sshds[1].host
    host.run(["ip", "link", "set", "eth1", "mtu", "1500"])
    try:
        assert "MTU of machine 0 (node1) is 9000, of machine 1 (node2) 1500" in site.refusal()[1]
        host.run(["ip", "link", "set", "eth1", "down"])
        assert "machine 1 (node2): eth1 is down" in site.refusal()[1]
    finally:
        host.run(["ip", "link", "set", "eth1", "up", "mtu", "9000"])
        host.run(["ip", "address", "add", f"{host.endpoint.ipv6}/64", "dev", "eth1", "nodad"])


def test_what_is_missing_on_a_machine_is_named(site: Site) -> None:
    """As that machine's sshd sees it, a program and a library are not there."""
    host = site.sshds[1].host
    pid = host.run(["pgrep", "--oldest", "--full", "sshd.*host1/host_key"]).stdout.strip()

    hidden_files = site.folder / "hidden"
    hidden_files.mkdir()

    def hidden(*paths: str) -> str:
        script = ""
        for number, path in enumerate(paths):
            folder, above = FilePath(path).parent, f"{hidden_files}/{number}"
            script += f"""
                mkdir -p {above}/upper {above}/work
                mount -t overlay hidden {folder} \\
                    -o lowerdir={folder},upperdir={above}/upper,workdir={above}/work
                rm {path}"""
        return f"mount -t tmpfs above {hidden_files}; {script}"

    library = host.run(["sh", "-c", "ls /usr/lib/*/libxdp.so.1"]).stdout.strip()
    inside = ["nsenter", "-t", pid, "--mount", "sh", "-ec"]
    done = host.run([*inside, hidden("/usr/bin/ib_write_bw", library)])
    assert done.returncode == 0, done.stderr
    try:
        code, text = site.refusal()
        assert code == 3
        assert "program ib_write_bw is not installed on machine 1 (node2)" in text
        assert "apt-get install perftest, there" in text
        assert "machine 1 (node2): the dp device needs libxdp.so.1" in text
        assert "apt-get install libxdp1, there" in text
        assert "machine 0" not in text
    finally:
        script = f"umount --lazy /usr/bin {FilePath(library).parent} {hidden_files}"
        assert host.run([*inside, script]).stderr == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("noexec", "which is on a file system mounted noexec"),
        ("size=256k", "no space is left for files of machine 1 (node2): "),
    ],
)
def test_a_temporary_folder_that_holds_no_programs(site: Site, options: str, said: str) -> None:
    sshd = site.sshds[1]
    pid = sshd.host.run(["pgrep", "--oldest", "--full", "sshd.*host1/host_key"]).stdout.strip()
    inside = ["nsenter", "-t", pid, "--mount"]
    mount = ["mount", "-t", "tmpfs", "-o", f"{options},mode=1777", "none", str(sshd.temporary)]
    assert sshd.host.run([*inside, *mount]).returncode == 0
    try:
        code, text = site.refusal()
    finally:
        sshd.host.run([*inside, "umount", "--lazy", str(sshd.temporary)])
    assert code != 0
    assert said in text
    assert "set TMPDIR there" in text
    assert "architecture" not in text


def test_only_the_device_minds_a_space_in_the_name_of_the_temporary_folder(
    site: Site, tmp_path: FilePath
) -> None:
    sshd = site.sshds[1]
    folder = sshd.temporary / "a b"
    folder.mkdir()
    (sshd.folder / "root" / ".bashrc").write_text(f"export TMPDIR='{folder}'\n")
    try:
        code, text = site.refusal()
        assert code == 3
        assert f"LD_PRELOAD cannot name files of its temporary folder {folder}/" in text
        path = site.experiment("{port: udp}", "{device: kernel}")
        path.write_text(
            path.read_text().replace(
                "perftest, test: send_lat, size: 64, iterations: 100", "iperf3, duration: 1s"
            )
            + "collect: {series: [cwnd], interval: 10ms}\n"
        )
        done = site.dpctl("run", "--no-report", path, "--out", tmp_path / "out")
        assert done.returncode == 0, done.stderr
        assert records(tmp_path / "out")[0]["series"]["absent"] == {}
    finally:
        (sshd.folder / "root" / ".bashrc").unlink()
        folder.rmdir()


def test_without_root_there_afxdp_is_refused_and_udp_works(site: Site, tmp_path: FilePath) -> None:
    sudoers = site.sshds[0].folder / "sudoers"
    before = sudoers.read_text()
    sudoers.write_text("root ALL=ALL\n")
    try:
        path = site.experiment("ssh: node1", "ssh: user1")
        done = site.dpctl("run", "--no-report", path, "--out", tmp_path / "udp")
        assert done.returncode == 0, done.stderr
        path.write_text(path.read_text().replace("port: udp", "port: afxdp"))
        done = site.dpctl("run", "--no-report", path, "--out", tmp_path / "afxdp")
        assert done.returncode == 3
        assert "machine 0 (user1): AF_XDP needs root" in done.stderr
        assert "sudo" in done.stderr
    finally:
        sudoers.write_text(before)


# --- the file --------------------------------------------------------------------------------


def test_machines_are_the_hosts() -> None:
    topology = Topology.model_validate({"lane": "ssh", "machines": MACHINES})
    assert (topology.hosts, topology.preset) == (2, "p2p")
    four = [{"ssh": f"n{i}", "netdev": "eth1"} for i in range(4)]
    topology = Topology.model_validate({"lane": "ssh", "machines": four})
    assert (topology.hosts, topology.preset) == (4, "dumbbell")
    assert Topology.model_validate(topology.model_dump(mode="json")) == topology


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "lane ssh needs machines"),
        ({"machines": MACHINES[:1]}, "an even number"),
        ({"machines": MACHINES, "hosts": 4}, "hosts is 4, but there are 2"),
        ({"machines": MACHINES, "mtu": 1500}, "keep the MTU"),
        ({"machines": MACHINES, "kernel": "6.1"}, "kernel: for lane vm"),
        ({"machines": [{"ssh": "a b", "netdev": "eth1"}] * 2}, "pattern"),
        ({"machines": [{"ssh": "-oProxyCommand=x", "netdev": "eth1"}] * 2}, "pattern"),
        ({"machines": [{"ssh": "a", "netdev": "eth1", "ipv4": "::1"}] * 2}, "IPv4"),
        ({"machines": MACHINES, "lane": "netns"}, "machines: for lane ssh, not for netns"),
    ],
)
def test_senseless_topologies_are_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Topology.model_validate({"lane": "ssh", **keys})


@pytest.mark.parametrize(
    ("target", "login"),
    [
        ("n", {"host": "n"}),
        ("a.b-c", {"host": "a.b-c"}),
        ("u@h", {"username": "u", "host": "h"}),
        ("u@h:22", {"username": "u", "host": "h", "port": 22}),
        ("10.0.0.1:2222", {"host": "10.0.0.1", "port": 2222}),
        ("[fe80::1]", {"host": "fe80::1"}),
        ("u@[fe80::1]:23", {"username": "u", "host": "fe80::1", "port": 23}),
    ],
)
def test_ways_to_name_a_machine(target: str, login: dict[str, object]) -> None:
    machines = [{"ssh": target, "netdev": "eth1"}] * 2
    topology = Topology.model_validate({"lane": "ssh", "machines": machines})
    assert parse_target(topology.machines[0].ssh) == login


def test_the_network_as_it_is_cannot_be_impaired(tmp_path: FilePath) -> None:
    topology = Topology.model_validate({"lane": "ssh", "machines": MACHINES})
    for path in (Path(loss="1%"), Path(backend="bpf")):
        with pytest.raises(CapabilityError, match="leaves the network as it is"):
            open_network(topology, path)
    topology = Topology.model_validate(
        {"lane": "ssh", "machines": MACHINES, "ssh_config": "none-here"}
    )
    with pytest.raises(LocalError, match=f"there is no file {tmp_path}/none-here"):
        open_network(topology, Path(), folder=tmp_path)


OVER_TIME = """\
sweep:
  matrix:
    stack:
      - {label: dp, set: {workload: {kind: perftest, test: write_bw, size: 64KiB}}}
      - {label: tcp, set: {transport.device: kernel, workload: {kind: iperf3, duration: 1s}}}
"""


def test_series_come_from_both_machines(site: Site, tmp_path: FilePath) -> None:
    path = site.experiment("sweep:\n", OVER_TIME)
    path.write_text(path.read_text() + "collect: {series: [cwnd, delivered], interval: 1ms}\n")
    done = site.dpctl("run", "--no-report", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for file in (tmp_path / "out" / "runs").glob("*.json"):
        record = json.loads(file.read_text())
        assert record["series"]["absent"] == {}
        frame = report.series(tmp_path / "out", f"{record['point']}-0")
        ((host, _, rows),) = series.flows(frame)
        assert host == "host0"
        assert len(rows) > 10
        if record["axes"]["stack"] == "dp":
            assert set(frame["host"]) == {"host0", "host1"}
            # Both have the clock of this machine, and ran at the same time.
            times = frame.groupby("host")["time_ns"].agg(["min", "max"])
            assert times["min"].max() < times["max"].min()
