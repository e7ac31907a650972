# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The entrance of a run: who gets in, to what, and that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath

import pytest

from datapath.cli import top
from datapath.errors import LocalError, RemoteError
from datapath.lanes import visiting
from datapath.lanes.entrance import Entrance
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.remote import SshHost
from datapath.lanes.spec import Path, Topology
from datapath.native import paths
from tests.waiting import wait_until

from .sshd import Sshd, open_folder

pytestmark = pytest.mark.usefixtures("root")

OWNER = """
import sys, time
from datapath.lanes.entrance import Entrance
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
with NetnsNetwork(Topology(), "none") as network:
    entrance = Entrance({"experiment": "owned"})
    entrance.now(network, run="r-0")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(mtu=1500), "fabric") as network:
        network.set_path(Path(backend="fabric", rate="1gbit", delay="1ms"), 1)
        yield network


@pytest.fixture
def entrance(network: NetnsNetwork) -> Iterator[Entrance]:
    entrance = Entrance({"experiment": "mine"})
    entrance.now(network, run="r-0")
    yield entrance
    entrance.close()


def mine() -> visiting.OpenRun:
    return visiting.chosen(os.getpid())


def test_a_visitor_is_told_what_runs(entrance: Entrance) -> None:
    run = mine()
    assert run.about["experiment"] == "mine"
    assert run.about["run"] == "r-0"
    assert [host["name"] for host in run.hosts()] == ["host0", "host1"]
    assert run.host("host1")["ipv4"] == "198.18.0.2"
    with pytest.raises(LocalError, match="has no host host7"):
        run.host("host7")


def test_a_command_runs_in_the_host(
    entrance: Entrance, network: NetnsNetwork, tmp_path: FilePath
) -> None:
    """It sees the host's network and processes, and the caller's folder and environment."""
    script = "readlink /proc/self/ns/net; cat /sys/class/net/eth1/address; echo $$ $MINE; exit 7"
    with (tmp_path / "out").open("wb") as out:
        argv = ["sh", "-c", script]
        status = visiting.run_on(mine(), "host1", argv, stdout=out, env={"MINE": "yes"})
    assert status == 7
    namespace, address, words = (tmp_path / "out").read_text().splitlines()
    inode = os.fstat(network.hosts[1].namespace.net_fd).st_ino
    assert namespace == f"net:[{inode}]"
    assert address == "02:00:c6:12:00:02"
    number, said = words.split()
    assert int(number) < 1000  # of the hosts' PID namespace
    assert said == "yes"


def test_the_end_of_a_command_is_told_as_a_shell_tells_it(entrance: Entrance) -> None:
    assert visiting.run_on(mine(), "middle", ["true"]) == 0
    assert visiting.run_on(mine(), "host0", ["sh", "-c", "kill -TERM $$"]) == 128 + signal.SIGTERM


def test_links_are_counted(entrance: Entrance, network: NetnsNetwork) -> None:
    before = mine().links()["forward"]["passed"]
    left, right = network.hosts
    assert left.run(["ping", "-c3", "-i0.01", right.endpoint.ipv4]).returncode == 0
    links = mine().links()
    assert links["forward"]["passed"] == before + 3
    assert links["forward"]["queue_bytes"] == 0


def test_nobody_enters_a_network_that_is_closed(entrance: Entrance, network: NetnsNetwork) -> None:
    run = mine()
    entrance.leave(network)
    with pytest.raises(LocalError, match="no network at the moment"):
        visiting.run_on(run, "middle", ["true"])
    assert mine().hosts() == []


def test_another_user_is_refused(entrance: Entrance) -> None:
    name = mine().socket[1:]
    code = (
        "import os, socket, sys\n"
        "os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.connect('\\0' + sys.argv[1])\n"
        's.send(b\'{"ask": "enter", "host": "host0"}\')\n'
        "data, fds, *_ = socket.recv_fds(s, 4096, 3)\n"
        "print(data.decode(), len(fds))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, name], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == '{"error": "the run belongs to another user"} 0\n'


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[]", b'{"ask": 3}', b'{"ask": "start"}', b"[" * 60_000, b"x" * 70_000]
)
def test_a_request_that_makes_no_sense_is_refused(entrance: Entrance, text: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(60)
        sock.connect("\0" + mine().socket[1:])
        sock.send(text)
        assert sock.recv(4096) == b'{"error": "the request is not known"}'
    assert mine().about["run"] == "r-0"


def test_an_impostor_is_not_taken_for_a_run() -> None:
    """A process that holds a socket with the name of another, and one that answers nonsense."""
    code = (
        "import os, socket, sys\n"
        "held = []\n"
        "for pid in (os.getppid(), os.getpid()):\n"
        "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "    s.bind(f'\\0datapath-run:{pid}:999')\n"
        "    s.listen(9)\n"
        "    held.append(s)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    visitor = held[1].accept()[0]\n"
        "    visitor.recv(4096)\n"
        "    visitor.send(b'[1]')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert {process.pid, os.getpid()}.isdisjoint(run.pid for run in visiting.runs())
        with pytest.raises(RemoteError, match="does not answer as a run does"):
            visiting.OpenRun(process.pid, f"@datapath-run:{process.pid}:999").links()
    finally:
        process.kill()
        process.communicate()


HOSTILE = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(f"\\0datapath-run:{os.getpid()}:1")
s.listen(9)
spare = os.open("/dev/null", os.O_RDONLY)
print("ready", flush=True)
while True:
    visitor = s.accept()[0]
    visitor.recv(4096)
    socket.send_fds(visitor, [sys.argv[1].encode()], [spare] * 3)
"""


@contextlib.contextmanager
def hostile(answer: object) -> Iterator[int]:
    """A process that answers like this whatever it is asked, with descriptors; its PID."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOSTILE, json.dumps(answer)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "links",
    [
        {"x": 5},
        {"x": [1]},
        {"x": {"passed": "1"}},
        {"x": {"passed": None}},
        {"x": {"passed": True}},
        {"x": {"passed": 1.5}},
        {"x": {"passed": -1}},
        {"forward": {"passed": 1}, "x": {"passed": 1 << 64}},
    ],
)
def test_no_counters_are_believed_that_a_link_cannot_have(links: object) -> None:
    """Whoever samples all runs goes on without this one."""
    with hostile({"version": 1, "links": links}) as pid:
        (run,) = (run for run in visiting.runs() if run.pid == pid)
        with pytest.raises(RemoteError, match=f"process {pid} does not answer as a run does"):
            run.links()
        assert [key for key in top.sample().links if key[0] == pid] == []


def test_a_silent_run_is_named_and_the_others_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"x": {"passed": 7}}
    with hostile({"version": 1, "links": links}) as silent, hostile({"links": links}) as pid:
        os.kill(silent, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(silent, os.WUNTRACED)[1])
        monkeypatch.setattr(top, "_PATIENCE_S", 5.0)
        try:
            taken = top.sample()
        finally:
            os.kill(silent, signal.SIGCONT)
    assert taken.links[pid, "x"] == {"passed": 7}
    assert [key for key in taken.links if key[0] == silent] == []
    assert f"run {silent} does not answer" in taken.silent
    shown = list(top.table(top.between(top.Sample(0.0), taken), 80))
    assert f"run {silent} does not answer" in shown


def test_descriptors_that_nobody_asked_for_are_not_taken() -> None:
    """Who samples each second would have none left after minutes."""
    links = {"x": {"passed": (1 << 64) - 1}}
    with hostile({"version": 1, "links": links}) as pid:
        before = len(list(FilePath("/proc/self/fd").iterdir()))
        (run,) = (run for run in visiting.runs() if run.pid == pid)
        assert run.links() == links
        assert len(list(FilePath("/proc/self/fd").iterdir())) == before


def test_kill_9_of_the_owner_ends_the_visit_and_leaves_nothing() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        run = visiting.chosen(owner.pid, "host0")
        assert run.about["experiment"] == "owned"
        killer = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {owner.pid}"])
        try:
            with pytest.raises(RemoteError, match="has ended, and its hosts with it"):
                visiting.run_on(run, "host0", ["sleep", "600"])
        finally:
            killer.wait()
            owner.wait()
    finally:
        owner.kill()
        owner.communicate()
    assert owner.pid not in [run.pid for run in visiting.runs()]


@dataclass
class Machines:
    """As much of a network as the entrance looks at, with hosts that ssh reaches."""

    hosts: list[SshHost]


@pytest.fixture
def machine(network: NetnsNetwork) -> Iterator[SshHost]:
    with open_folder() as folder:
        sshd = Sshd(network.hosts[0], folder / "host0").start()
        try:
            host = sshd.log_in()
            entrance = Entrance({"experiment": "by ssh"})
            entrance.now(Machines([host]))
            yield host
            entrance.close()
            host.close()
        finally:
            sshd.stop()


def test_a_command_runs_on_a_machine_reached_by_ssh(machine: SshHost, tmp_path: FilePath) -> None:
    with (tmp_path / "out").open("wb") as out:
        script = 'cat; cat /sys/class/net/eth1/address; echo "$SSH_CONNECTION"; exit 7'
        assert visiting.run_on(mine(), "host0", ["sh", "-c", script], stdout=out) == 7
    address, connection = (tmp_path / "out").read_text().splitlines()
    assert address == "02:00:c6:12:00:01"
    assert "198.19.0.1 22" in connection
    with pytest.raises(LocalError, match="program no-such is not installed on host0"):
        visiting.run_on(mine(), "host0", ["no-such"])


def test_a_visitor_who_leaves_takes_the_command_along(machine: SshHost) -> None:
    code = (
        "import sys\n"
        "from datapath.lanes import visiting\n"
        f"visiting.run_on(visiting.chosen({os.getpid()}), 'host0', ['sleep', '98765'])\n"
    )
    visitor = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(paths.ROOT)}
    )
    try:
        wait_until(lambda: runs_on(machine, "sleep 98765"), "the command runs")
    finally:
        visitor.kill()
        visitor.wait()
    wait_until(lambda: not runs_on(machine, "sleep 98765"), "the command has ended")


def runs_on(host: SshHost, command: str) -> bool:
    return host.run(["pgrep", "-f", f"^{command}$"]).returncode == 0
