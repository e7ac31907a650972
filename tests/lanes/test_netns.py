# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Networks of namespaces: traffic passes, programs run inside, and nothing outlives them."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path as FilePath

import pytest

from datapath.errors import CapabilityError, LocalError
from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.native import paths
from tests.processes import alive, descendants
from tests.waiting import wait_for_words, wait_until

pytestmark = pytest.mark.usefixtures("root")

ECHO = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.socket(family, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 7777))
print("ready", flush=True)
while True:
    data, peer = server.recvfrom(65536)
    server.sendto(data, peer)
"""
ASK = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
client = socket.socket(family, socket.SOCK_DGRAM)
client.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: never fragment
client.settimeout(float(sys.argv[3]))
client.sendto(b"x" * int(sys.argv[2]), (sys.argv[1], 7777))
print(len(client.recv(65536)))
"""
INTERRUPTIONS = 300


FEW_FILES = """
import resource
from datapath.errors import CapabilityError
from datapath.lanes.namespace import Holder
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
try:
    Holder([f"host{i}" for i in range(16)]).open()
except CapabilityError as error:
    print(error, error.hint, sep="; ")
"""


def echoes(
    client: NetnsHost,
    server: NetnsHost,
    address: str,
    size: int,
    log: FilePath,
    patience_s: float = 5,
) -> bool:
    """Whether a UDP datagram of `size` bytes comes back from `server` at `address`."""
    log.unlink(missing_ok=True)
    process = server.popen([sys.executable, "-c", ECHO, address], stdout=log)
    try:
        wait_for_words(log, "ready", process)
        done = client.run([sys.executable, "-c", ASK, address, str(size), str(patience_s)])
        return done.stdout.strip() == str(size)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("backend", ["bpf", "fabric", "none"])
@pytest.mark.parametrize("mtu", [1280, 1500, 9000, 65521])
def test_whole_packets_pass_at_every_mtu(backend: str, mtu: int, tmp_path: FilePath) -> None:
    with NetnsNetwork(Topology(mtu=mtu), backend) as network:
        left, right = network.hosts
        assert echoes(left, right, right.endpoint.ipv4, mtu - 28, tmp_path / "v4")
        assert echoes(right, left, left.endpoint.ipv6, mtu - 48, tmp_path / "v6")
        assert echoes(left, right, right.endpoint.mgmt_ipv4, 64, tmp_path / "mgmt")


def test_a_dumbbell_joins_all_hosts(tmp_path: FilePath) -> None:
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4)) as network:
        a, b, c, d = network.hosts
        assert network.pairs == [(a, c), (b, d)]
        for client, server in ((a, c), (b, d), (d, a), (a, b), (c, d)):
            assert echoes(client, server, server.endpoint.ipv4, 1000, tmp_path / "log")
        counters = network.path_counters()
        # What stays on one side does not cross the shared link.
        assert counters.passed == {"forward": 3, "backward": 3}
        network.set_path(Path(loss="100%"), seed=1)
        assert echoes(a, b, b.endpoint.ipv4, 1000, tmp_path / "log")
        assert not echoes(a, c, c.endpoint.ipv4, 1000, tmp_path / "log", patience_s=0.3)


def test_a_parking_lot_has_the_pairs_of_the_simulated_one() -> None:
    with NetnsNetwork(Topology(preset="parking-lot", hops=2), "fabric") as network:
        a, b, c, d, e, f = network.hosts
        assert network.pairs == [(a, b), (c, d), (e, f)]


def test_two_networks_at_once_are_strangers(tmp_path: FilePath) -> None:
    with NetnsNetwork(Topology()) as one, NetnsNetwork(Topology()) as two:
        one.set_path(Path(loss="100%"), seed=1)
        log = tmp_path / "log"
        (a, b), (c, d) = one.hosts, two.hosts
        assert not echoes(a, b, b.endpoint.ipv4, 100, log, patience_s=0.3)
        assert echoes(c, d, d.endpoint.ipv4, 100, log)


def test_a_host_sees_its_own_system(tmp_path: FilePath) -> None:
    with NetnsNetwork(Topology()) as network:
        host = network.hosts[0]
        assert host.run(["ls", "/sys/class/net"]).stdout.split() == ["eth1", "lo", "mgmt0"]
        assert host.run(["pwd"]).stdout.strip() == str(FilePath.cwd())
        assert host.run(["printenv", "ANSWER"], env={"ANSWER": "42"}).stdout == "42\n"
        numbers = host.run(["ls", "/proc"]).stdout.split()
        assert len([n for n in numbers if n.isdigit()]) < 10, "processes of the machine show"
        assert not FilePath("/sys/class/net/eth1").exists()


def test_popen_has_the_meaning_of_subprocess(tmp_path: FilePath) -> None:
    log = tmp_path / "log"
    with NetnsNetwork(Topology()) as network:
        host = network.hosts[0]
        assert host.popen(["sh", "-c", "exit 7"]).wait() == 7
        assert host.popen(["sh", "-c", "kill -TERM $$"]).wait() == -signal.SIGTERM
        for word in ("one", "two"):
            host.popen(["echo", word], stdout=log).wait()
        assert log.read_text() == "one\ntwo\n"
        sleeper = host.popen(["sleep", "60"])
        assert sleeper.poll() is None
        sleeper.terminate()
        assert sleeper.wait() == -signal.SIGTERM
        only = host.popen(
            ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"], stdout=log, cpus={0}
        )
        assert only.wait() == 0
        assert log.read_text().split()[-1] == "0"
        with pytest.raises(subprocess.TimeoutExpired):
            host.run(["sleep", "60"], timeout_s=0.1)
        with pytest.raises(CapabilityError, match="no-such-program is not installed"):
            host.run(["no-such-program"])
        left_running = host.popen(["sleep", "60"])
    assert left_running.poll() == -signal.SIGKILL


def test_grandchildren_die_with_the_network(tmp_path: FilePath) -> None:
    log = tmp_path / "pid"
    with NetnsNetwork(Topology()) as network:
        host = network.hosts[0]
        daemon = "setsid sleep 61.25 >/dev/null 2>&1 & echo started"
        host.popen(["sh", "-c", daemon], stdout=log).wait()
        wait_until(lambda: bool(sleepers("61.25")), "the daemon runs")
    wait_until(lambda: not sleepers("61.25"), "the daemon is gone")


def sleepers(seconds: str) -> list[int]:
    """Processes that run `sleep SECONDS`, zombies not counted."""
    found = []
    for path in FilePath("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_an_interrupt_while_a_program_starts_loses_none() -> None:
    """Wherever it comes: a program that nobody waits for would hold up the network's end."""

    def interrupt(_signum: int, _frame: object) -> None:
        raise KeyboardInterrupt

    chance = random.Random(1)
    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        with NetnsNetwork(Topology()) as network:
            others = descendants(os.getpid())
            for _ in range(INTERRUPTIONS):
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 0.006))
                    network.hosts[0].popen(["sleep", "60"])
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    interrupted += 1
                network.hosts[0].end_programs()
                assert descendants(os.getpid()) <= others
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > INTERRUPTIONS / 20


def test_another_backend_needs_another_network() -> None:
    with (
        NetnsNetwork(Topology(), "bpf") as network,
        pytest.raises(LocalError, match="built for path backend bpf"),
    ):
        network.set_path(Path(backend="none"), seed=1)


def test_describe_tells_what_is_between_the_hosts() -> None:
    with NetnsNetwork(Topology(mtu=1500)) as network:
        described = network.describe()
    assert described["backend"] == "bpf"
    devices = described["devices"]
    assert isinstance(devices, dict)
    host = devices["host0"]["eth1"]
    assert (host["mtu"], host["kind"], host["xdp"]) == (1500, "veth", "none")
    # Whole packets with a checksum of their own, or loss and corruption would not be per packet.
    assert not any(host["offloads"][name] for name in ("tx_checksum", "tso", "gso"))
    assert not host["offloads"]["udp_segmentation"]
    assert set(devices["middle"]) == {"port0", "port1"}


def test_batches_are_cut_into_packets_before_they_can_be_lost(tmp_path: FilePath) -> None:
    send = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT
for _ in range(100):
    sender.sendto(b"x" * 40000, (sys.argv[1], 7777))
"""
    with NetnsNetwork(Topology(mtu=1500)) as network:
        left, right = network.hosts
        network.set_path(Path(loss="10%"), seed=1)
        assert left.run([sys.executable, "-c", send, right.endpoint.ipv4]).returncode == 0
        counters = network.path_counters()
        assert counters.unsegmented == {"forward": 0, "backward": 0}
        assert counters.passed["forward"] + counters.dropped["forward"] == 4000


OWNER = """
import sys, time
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
with NetnsNetwork(Topology()) as network:
    network.set_path(Path(loss="1%"), seed=1)
    for host in network.hosts:
        host.popen(["sh", "-c", "setsid sleep {mark} & exec sleep {mark}"])
    print("up", flush=True)
    time.sleep(60)
"""


def namespaces() -> set[int]:
    """Network namespaces in which some process of this machine is."""
    found = set()
    for path in FilePath("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(path.stat().st_ino)
        except OSError:
            continue
    return found


def impairment_programs() -> set[int]:
    """Numbers of the dp_impair programs that the kernel has."""
    text = subprocess.run(
        ["bpftool", "prog", "list"], capture_output=True, text=True, check=True
    ).stdout
    return {int(n) for n in re.findall(r"^(\d+): sched_cls\s+name dp_impair", text, re.MULTILINE)}


@pytest.mark.parametrize("moment_s", [0.0, 0.02, 0.05, 0.1, 0.2, None])
def test_kill_9_of_the_owner_leaves_nothing(moment_s: float | None) -> None:
    """At moments while the network is built, and (None) when it is up."""
    mark = f"62.{os.getpid()}"
    programs_before = impairment_programs()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(mark=mark)], stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    if moment_s is None:
        assert owner.stdout.readline() == b"up\n"
        wait_until(lambda: len(sleepers(mark)) == 4, "the programs run")
    else:
        time.sleep(moment_s)
    children = descendants(owner.pid)
    spaces = {FilePath(f"/proc/{pid}/ns/net") for pid in [*sleepers(mark), *children]}
    inodes = {path.stat().st_ino for path in spaces if path.exists()} - own_namespace()
    owner.kill()
    owner.communicate()
    wait_until(lambda: not sleepers(mark), "its programs are gone")
    wait_until(lambda: not alive(children), "its holder is gone")
    wait_until(lambda: not inodes & namespaces(), "its namespaces are gone")
    wait_until(lambda: not impairment_programs() - programs_before, "its programs are unloaded")


def own_namespace() -> set[int]:
    return {FilePath("/proc/self/ns/net").stat().st_ino}


def test_the_holder_may_be_killed_too() -> None:
    others = descendants(os.getpid())  # holders of networks that other tests keep
    with NetnsNetwork(Topology()) as network:
        host = network.hosts[0]
        sleeper = host.popen(["sleep", "60"])
        new = descendants(os.getpid()) - others
        holder = next(p for p in new if is_holder(p))
        os.kill(holder, signal.SIGKILL)
        assert sleeper.wait(10) == -signal.SIGKILL


def is_holder(pid: int) -> bool:
    try:
        return b"holder.py" in FilePath(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_nothing_has_a_name_in_the_machine(tmp_path: FilePath) -> None:
    links = set(socket.if_nameindex())
    with NetnsNetwork(Topology()) as network:
        assert set(socket.if_nameindex()) == links
        named = {path.stat().st_ino for path in FilePath("/run/netns").glob("*")}
        assert not named & {os.fstat(host.namespace.net_fd).st_ino for host in network.hosts}


def test_without_permission_it_says_what_is_needed() -> None:
    code = """
import os
from datapath.errors import CapabilityError
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
os.setuid(65534)  # after the imports: the tree may be root's alone
try:
    NetnsNetwork(Topology()).__enter__()
except CapabilityError as error:
    print(error, "|", error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs root" in done.stdout, done.stderr
    assert "sudo" in done.stdout


def test_a_limit_on_open_files_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = r"cannot make the namespaces of host\d+: Too many open files; .*ulimit -n 4096\n"
    assert re.fullmatch(said, done.stdout), (done.stdout, done.stderr)
