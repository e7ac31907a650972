# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hosts reached by ssh, on real sshds: programs, files, and what happens when things break."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.cc.spec import HostCc
from datapath.errors import (
    CapabilityError,
    DatapathError,
    LocalError,
    RemoteError,
    RunFailed,
)
from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.remote import ClientKey, Connection, SshHost, connection
from datapath.lanes.remote.connection import parse_cpus, socket_login
from datapath.lanes.remote.facts import clock_offset, parse
from datapath.lanes.spec import Topology
from datapath.verbs.spec import Transport
from datapath.workloads.base import RunContext
from datapath.workloads.programs import Programs
from tests.waiting import wait_for_words, wait_until

from .sshd import USER, Sshd, open_folder

pytestmark = pytest.mark.usefixtures("root")

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(), "none") as network:
        yield network


@pytest.fixture(scope="module")
def sshd(network: NetnsNetwork) -> Iterator[Sshd]:
    with open_folder() as folder:
        yield Sshd(network.hosts[0], folder / "host0").start()


@pytest.fixture
def host(sshd: Sshd) -> Iterator[SshHost]:
    host = sshd.log_in()
    try:
        yield host
    finally:
        host.close()


def running(place: NetnsHost, marker: str) -> bool:
    """Whether a program on the host has `marker` in its command line."""
    return place.run(["pgrep", "--full", marker]).returncode == 0


def is_folder(place: NetnsHost, path: str) -> bool:
    return place.run(["test", "-d", path]).returncode == 0


def started(path: Path, word: str = "up") -> None:
    wait_for_words(path, word)


# --- programs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    ["", "two words", "it's", '"', "$HOME", "`id`", "a\\nb", "a\nb", "*", "-n;true", "é\t!", "#x"],
)
def test_words_and_environment_arrive_as_they_are(host: SshHost, word: str) -> None:
    done = host.run(["sh", "-c", 'printf "%s|%s" "$1" "$WORD"', "sh", word], env={"WORD": word})
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{word}|{word}", "")


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", -9),
        ("kill -TERM $$", -15),
        ("kill -11 $$", -11),
    ],
)
def test_status_is_that_of_subprocess(host: SshHost, script: str, status: int) -> None:
    done = host.run(["sh", "-c", f"echo out; echo err >&2; {script}"])
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\n", "err\n")


def test_output_is_logged_while_the_program_runs(host: SshHost, tmp_path: Path) -> None:
    log, errors = tmp_path / "log", tmp_path / "err"
    log.write_text("before\n")
    script = "echo one; echo two >&2; sleep 1000"
    process = host.popen(["sh", "-c", script], stdout=log, stderr=errors)
    started(log, "one")
    started(errors, "two")
    assert log.read_text() == "before\none\n"
    assert (process.poll(), process.returncode) == (None, None)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.kill()
    assert (process.wait(), process.poll(), process.returncode) == (-9, -9, -9)
    process.kill()


def test_one_log_has_both_outputs_in_order(host: SshHost, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "for i in $(seq 200); do echo o$i; echo e$i >&2; done"
    assert host.popen(["sh", "-c", script], stdout=log, stderr=log).wait() == 0
    assert log.read_text().split() == [f"{c}{i}" for i in range(1, 201) for c in "oe"]


def test_output_that_nobody_wants_costs_nothing(host: SshHost) -> None:
    script = 'test "$(readlink /proc/$$/fd/1)$(readlink /proc/$$/fd/2)" = /dev/null/dev/null'
    assert host.popen(["sh", "-c", script]).wait() == 0


def test_large_output_is_whole(host: SshHost, tmp_path: Path) -> None:
    size = 48 * 2**20
    log = tmp_path / "log"
    script = f"head -c {size} /dev/zero | tr '\\0' x"
    assert host.popen(["sh", "-c", script], stdout=log).wait(60) == 0
    assert log.stat().st_size == size
    with log.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").digest() == hashlib.sha256(b"x" * size).digest()
    assert len(host.run(["sh", "-c", f"head -c {2**20} /dev/zero"]).stdout) == 2**20


def test_a_full_disk_is_told_and_ends_the_program(host: SshHost) -> None:
    process = host.popen(["yes"], stdout=Path("/dev/full"))
    with pytest.raises(OSError, match="No space left"):
        process.wait(30)


def test_programs_are_bound_to_cpus(host: SshHost) -> None:
    assert host.cpus == sorted(os.sched_getaffinity(0))
    log_free = host.run(["sh", "-c", "grep Cpus_allowed_list /proc/self/status"])
    assert parse_cpus(log_free.stdout.split()[1]) == host.cpus


def test_a_bound_program_stays_there(host: SshHost, tmp_path: Path) -> None:
    log = tmp_path / "log"
    last = host.cpus[-1]
    argv = ["grep", "Cpus_allowed_list", "/proc/self/status"]
    assert host.popen(argv, stdout=log, cpus={last}).wait() == 0
    assert parse_cpus(log.read_text().split()[1]) == [last]


def test_a_missing_program_is_named(host: SshHost) -> None:
    assert host.has_program("ls")
    assert host.has_program("/bin/ls")
    assert not host.has_program("no-such-program")
    for start in (host.run, host.popen):
        with pytest.raises(CapabilityError, match="no-such-program is not installed on host0"):
            start(["no-such-program"])


def test_kill_reaches_what_ignores_it_and_what_has_left(
    host: SshHost, sshd: Sshd, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = "trap '' TERM HUP INT; setsid sleep 7001 & sleep 7002 & echo up; sleep 7003; echo no"
    process = host.popen(["sh", "-c", script], stdout=log)
    other = host.popen(["sleep", "7004"])
    started(log)
    process.kill()
    assert process.wait(20) == -9
    wait_until(lambda: not running(sshd.host, "sleep 700[123]"), "its children are gone")
    assert other.poll() is None
    other.kill()
    assert other.wait(20) == -9


def test_a_daemon_does_not_keep_its_parent_from_ending(host: SshHost, sshd: Sshd) -> None:
    assert host.run(["sh", "-c", "echo parent; setsid sleep 7011 &"]).stdout == "parent\n"
    assert running(sshd.host, "sleep 7011")
    host.end_programs()
    assert not running(sshd.host, "sleep 7011")


def test_a_command_that_overruns_is_ended(host: SshHost, sshd: Sshd) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        host.run(["sleep", "7021"], timeout_s=0.2)
    assert not running(sshd.host, "sleep 7021")


def test_an_interrupt_ends_the_command(host: SshHost, sshd: Sshd) -> None:
    def interrupt(_signum: int, _frame: object) -> None:
        raise InterruptedError("by the test")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(InterruptedError, match="by the test"):
            host.run(["sleep", "7031"], timeout_s=100)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not running(sshd.host, "sleep 7031")
    assert host.run(["echo", "still"]).stdout == "still\n"


def test_programs_stay_out_of_the_home_folder(host: SshHost, sshd: Sshd) -> None:
    where = host.run(["pwd"]).stdout.strip()
    assert where == host.connection.folder
    assert where.startswith(f"{sshd.temporary}/datapath-")


def test_a_host_that_starts_no_more_sessions_says_so(network: NetnsNetwork, tmp_path: Path) -> None:
    few = Sshd(network.hosts[1], tmp_path / "few", ["MaxSessions=2"]).start()
    try:
        host = few.log_in()
        process = host.popen(["sleep", "7041"])
        with pytest.raises(RunFailed, match="host1 starts no more sessions") as caught:
            host.run(["true"])
        assert "MaxSessions" in caught.value.hint
        with pytest.raises(RunFailed, match="host1 starts no more sessions"):
            host.outputs(tmp_path)
        process.kill()
        process.wait()

        def refused() -> str:
            with pytest.raises(DatapathError) as caught:
                host.outputs(tmp_path)
            return str(caught.value)

        # sshd forgets a session that has ended a moment later.
        wait_until(lambda: "no sftp" in refused(), "another session is possible, sftp is not")
        host.close()
    finally:
        few.stop()


def test_a_host_without_sessions_says_so_at_login(network: NetnsNetwork, tmp_path: Path) -> None:
    none = Sshd(network.hosts[1], tmp_path / "none", ["MaxSessions=0"]).start()
    try:
        with pytest.raises(CapabilityError, match="host1 starts no more sessions") as caught:
            none.log_in()
        assert "MaxSessions" in caught.value.hint
    finally:
        none.stop()


# --- files -----------------------------------------------------------------------------------


def test_files_are_brought_once_and_kept_apart(host: SshHost, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho first\n")
    tool.chmod(0o755)
    there = host.provide(tool)
    assert there == host.provide(tool)
    assert Path(there).name == "tool"
    assert there.startswith(host.connection.folder)
    assert host.run([there]).stdout == "first\n"
    tool.write_text("#!/bin/sh\necho second one\n")
    newer = host.provide(tool)
    assert host.run([newer]).stdout == "second one\n"
    assert host.run([there]).stdout == "first\n"
    same = tmp_path / "copy" / "tool"
    same.parent.mkdir()
    same.write_bytes(tool.read_bytes())
    assert host.provide(same) == newer
    with pytest.raises(LocalError, match="nowhere"):
        host.provide(tmp_path / "nowhere")


def test_a_folder_keeps_its_links(host: SshHost, tmp_path: Path) -> None:
    library = tmp_path / "real.so"
    library.write_bytes(os.urandom(100_000))
    folder = tmp_path / "compat"
    folder.mkdir()
    (folder / "name.so.1").symlink_to(library)
    there = host.provide(folder)
    target = host.run(["readlink", f"{there}/name.so.1"]).stdout.strip()
    assert target == host.provide(library)
    digest = host.run(["sha256sum", f"{there}/name.so.1"]).stdout.split()[0]
    assert digest == hashlib.sha256(library.read_bytes()).hexdigest()


def test_shared_files_stay_where_they_are(sshd: Sshd, tmp_path: Path) -> None:
    host = sshd.log_in(shared_files=True)
    try:
        assert host.provide(tmp_path / "x") == str(tmp_path / "x")
        assert host.outputs(tmp_path) != str(tmp_path)
    finally:
        host.close()


def test_what_programs_write_is_fetched_and_gone_there(host: SshHost, tmp_path: Path) -> None:
    there = host.outputs(tmp_path)
    assert there == host.outputs(tmp_path)
    blob = hashlib.sha256(b"seed").digest() * 50_000
    (tmp_path / "in").write_bytes(blob)
    source = host.provide(tmp_path / "in")
    script = f"cp {source} big; mkdir -p deep/er; echo a > deep/er/a; echo b > 'b c'; : > empty"
    assert host.run(["sh", "-c", f"cd {there}; {script}"]).returncode == 0
    host.fetch(tmp_path)
    assert (tmp_path / "big").read_bytes() == blob
    assert (tmp_path / "deep/er/a").read_text() == "a\n"
    assert (tmp_path / "b c").read_text() == "b\n"
    assert (tmp_path / "empty").read_text() == ""
    assert host.run(["ls", "-A", there]).stdout == ""
    assert host.outputs(tmp_path / "deep") != there
    host.fetch(tmp_path / "never asked for")


def test_a_temporary_folder_may_have_any_name(network: NetnsNetwork, tmp_path: Path) -> None:
    with open_folder() as folder:
        odd = Sshd(network.hosts[1], folder / "sshd", temporary_name="a b  ü'$x;y").start()
        try:
            host = odd.log_in()
            assert host.run(["pwd"]).stdout == f"{host.connection.folder}\n"
            assert host.connection.folder.startswith(f"{odd.temporary}/datapath-")
            (tmp_path / "in").write_text("there and back\n")
            there = host.outputs(tmp_path)
            host.run(["cp", host.provide(tmp_path / "in"), f"{there}/out"])
            host.fetch(tmp_path)
            assert (tmp_path / "out").read_text() == "there and back\n"
            host.close()
            assert not list(odd.temporary.iterdir())
        finally:
            odd.stop()


def test_no_temporary_folder_is_no_fault_of_the_shell(
    network: NetnsNetwork, tmp_path: Path
) -> None:
    bare = Sshd(network.hosts[1], tmp_path / "bare").start()
    try:
        bare.temporary.rmdir()
        with pytest.raises(DatapathError, match="no temporary folder on host1: mktemp: ") as caught:
            bare.log_in()
        assert "TMPDIR" in caught.value.hint
    finally:
        bare.stop()


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize(("there", "hostile"), [("AAxAAxvictim", "../../victim"), ("AAA", "..\n")])
def test_a_host_cannot_name_a_file_outside_the_folder(
    network: NetnsNetwork, tmp_path: Path, there: str, hostile: str, kind: str
) -> None:
    filter_ = f"/usr/bin/python3 -I -S {PROGRAMS / 'renaming_sftp.py'} {there} '{hostile}'"
    logs = tmp_path / "outer" / "run" / "logs"
    logs.mkdir(parents=True)
    with open_folder() as folder:
        program = folder / "sftp"
        program.write_text(f"#!/bin/sh\nexec {filter_}\n")
        program.chmod(0o755)
        site = Sshd(network.hosts[1], folder / "sshd", [f"Subsystem=sftp {program}"]).start()
        host = site.log_in()
        try:
            place = host.outputs(logs)
            make = "mkdir" if kind == "folder" else "touch"
            assert host.run([make, f"{place}/{there}"]).returncode == 0
            with pytest.raises(RemoteError, match="host1 names a file") as caught:
                host.fetch(logs)
            assert repr(hostile) in str(caught.value)
        finally:
            host.close()
            site.stop()
    assert sorted(path.name for path in (tmp_path / "outer").rglob("*")) == ["logs", "run"]


def test_a_link_on_a_host_is_not_followed_here(host: SshHost, tmp_path: Path) -> None:
    logs, secret = tmp_path / "logs", tmp_path / "secret"
    secret.mkdir()
    logs.mkdir()
    there = host.outputs(logs)
    host.run(["ln", "-s", str(secret), f"{there}/link"])
    with pytest.raises(RemoteError, match=r"host0: .*/link is neither a file nor a folder"):
        host.fetch(logs)
    assert list(logs.iterdir()) == []


def test_a_link_here_is_not_written_through(host: SshHost, tmp_path: Path) -> None:
    logs, secret = tmp_path / "logs", tmp_path / "secret"
    secret.mkdir()
    logs.mkdir()
    (logs / "folder").symlink_to(secret)
    (logs / "file").symlink_to(secret / "file")
    for make in ("mkdir folder; touch folder/x", "touch file"):
        host.run(["sh", "-c", f"cd {host.outputs(logs)}; {make}"])
        with pytest.raises(LocalError, match="is a link"):
            host.fetch(logs)
        host.run(["sh", "-c", f"rm -rf {host.outputs(logs)}/*"])
    assert list(secret.iterdir()) == []


# --- the end ---------------------------------------------------------------------------------


def test_close_leaves_nothing(sshd: Sshd, tmp_path: Path) -> None:
    host = sshd.log_in()
    log = tmp_path / "log"
    process = host.popen(
        ["sh", "-c", "trap '' TERM HUP; setsid sleep 7051 & echo up; sleep 7052"], stdout=log
    )
    started(log)
    host.close()
    assert not running(sshd.host, "sleep 705[12]")
    assert not is_folder(sshd.host, host.connection.folder)
    process.kill()
    assert process.wait(20) == -9
    with pytest.raises(RunFailed, match="host host0 is gone: its connection was closed"):
        host.run(["true"])
    host.close()


ADD = ["ip", "link", "add", "both0", "type", "veth", "peer", "name", "both1"]
DELETE = ["ip", "link", "delete", "both0"]
MARK = "/sys/class/net/both0"


def links(sshd: Sshd) -> str:
    return sshd.host.run(["ip", "-brief", "link"]).stdout


def test_who_made_something_takes_it_away_and_nobody_else(sshd: Sshd) -> None:
    """Two connections ask for the same at a time."""
    first, second = sshd.log_in(), sshd.log_in()
    try:
        assert first.connection.make(ADD, DELETE) is None
        assert "File exists" in str(second.connection.make(ADD, DELETE))
        second.close()
        assert "both0" in links(sshd)
    finally:
        first.close()
        second.close()
    assert "both0" not in links(sshd)


def test_what_another_connection_made_is_told_from_what_is_there_to_stay(sshd: Sshd) -> None:
    first, second = sshd.log_in(), sshd.log_in()
    try:
        assert not second.connection.made(MARK)
        for _ in range(2):
            assert first.connection.make(ADD, DELETE, MARK) is None
            assert second.connection.made(MARK)
            assert first.run(DELETE).returncode == 0
            first.connection.undone(DELETE)
            assert not second.connection.made(MARK)
        assert first.connection.make(ADD, DELETE, MARK) is None
        first.close()
        assert second.run(ADD).returncode == 0
        assert not second.connection.made(MARK)
        assert second.run(DELETE).returncode == 0
    finally:
        first.close()
        second.close()


def test_what_is_undone_is_not_taken_away_again(sshd: Sshd) -> None:
    first, second = sshd.log_in(), sshd.log_in()
    try:
        assert first.connection.make(ADD, DELETE) is None
        assert first.run(DELETE).returncode == 0
        first.connection.undone(DELETE)
        assert second.connection.make(ADD, DELETE) is None
        first.close()
        assert "both0" in links(sshd)
    finally:
        first.close()
        second.close()
    assert "both0" not in links(sshd)


def test_kill_9_of_the_client_leaves_nothing(
    network: NetnsNetwork, sshd: Sshd, tmp_path: Path
) -> None:
    """From the other host, where only the client runs."""
    key, log = tmp_path / "key", tmp_path / "log"
    sshd.key.private.write_private_key(str(key))
    script = "trap '' TERM HUP; setsid sleep 7061 & echo up; sleep 7062"
    address = sshd.host.endpoint.mgmt_ipv4
    client = network.hosts[1].popen(
        [sys.executable, str(PROGRAMS / "ssh_client.py"), address, str(key), str(log), script],
        stdout=tmp_path / "client",
        stderr=tmp_path / "client",
    )
    started(log)
    folder = (tmp_path / "client").read_text().strip()
    assert is_folder(sshd.host, folder)
    assert running(sshd.host, "sleep 706[12]")
    client.send_signal(signal.SIGKILL)
    client.wait()
    wait_until(lambda: not running(sshd.host, "sleep 706[12]"), "the programs are gone")
    wait_until(lambda: not is_folder(sshd.host, folder), "the folder is gone")


def test_programs_end_on_a_full_disk(network: NetnsNetwork) -> None:
    """Also with a bash that needs room there for a here-string."""
    with open_folder() as folder:
        site = Sshd(network.hosts[1], folder / "sshd").start()
        (site.folder / "root" / ".bashrc").write_text("export BASH_COMPAT=5.0\n")
        find = ["pgrep", "--oldest", "--full", f"sshd.*{site.folder}/host_key"]
        pid = network.hosts[1].run(find).stdout.strip()
        inside = ["nsenter", "-t", pid, "--mount"]
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "none", str(site.temporary)]
        assert network.hosts[1].run([*inside, *mount]).returncode == 0
        host = site.log_in()
        try:
            host.popen(["sleep", "7065"])
            wait_until(lambda: running(network.hosts[1], "sleep 7065"), "the program is up")
            fill = f"head -c 1M /dev/zero >'{site.temporary}/all'"
            assert "No space left" in network.hosts[1].run([*inside, "sh", "-c", fill]).stderr
            host.connection.ask("end ")
            assert not running(network.hosts[1], "sleep 7065")
        finally:
            host.close()
            site.stop()


def test_a_session_asked_for_while_the_connection_closes(host: SshHost) -> None:
    """The host is gone; it does not lack sessions."""
    connection = host.connection

    async def close_and_ask() -> None:
        assert connection._ssh is not None
        for watcher in connection._tasks:  # they would notice it first, or not
            watcher.cancel()
        connection._ssh.abort()
        await connection._ssh.create_process("true")

    with pytest.raises(RunFailed, match="host host0 is gone: SSH connection closed"):
        connection.call(close_and_ask())
    assert connection.lost


def test_a_host_that_goes_away_is_told_at_once(sshd: Sshd, tmp_path: Path) -> None:
    host = sshd.log_in()
    log = tmp_path / "log"
    running_one = host.popen(["sh", "-c", "echo up; sleep 7071"], stdout=log)
    killed_one = host.popen(["sleep", "7072"])
    done_one = host.popen(["true"])
    assert done_one.wait(20) == 0
    started(log)
    mine = sshd.host.run(["pgrep", "--full", "^sshd(-session)?: root"]).stdout.split()
    for pid in mine:
        sshd.host.run(["kill", "-KILL", pid])
    with pytest.raises(RunFailed, match="host host0 is gone: ") as caught:
        running_one.wait(60)
    assert caught.value.hint
    for later in (
        lambda: host.run(["true"]),
        lambda: host.popen(["true"]),
        lambda: host.has_program("ls"),
        lambda: host.provide(PROGRAMS / "ssh_client.py"),
        lambda: host.outputs(tmp_path),
        host.facts,
        host.end_programs,
        running_one.poll,
    ):
        with pytest.raises(RunFailed, match="host host0 is gone"):
            later()
    killed_one.kill()
    assert killed_one.wait(20) == -9
    assert done_one.wait() == 0
    wait_until(lambda: not running(sshd.host, "sleep 707[12]"), "the programs are gone")
    wait_until(lambda: not is_folder(sshd.host, host.connection.folder), "the folder is gone")
    host.close()


def test_a_program_is_not_waited_for_when_its_peer_is_on_a_host_that_is_gone(
    network: NetnsNetwork, host: SshHost, tmp_path: Path
) -> None:
    site = Sshd(network.hosts[1], tmp_path / "sshd").start()
    other = site.log_in()
    context = RunContext(network, Transport(), HostCc(), [{}, {}], tmp_path, 1, timeout_s=30)
    try:
        with Programs(context, ()) as programs:
            programs.start(other, "there", ["sleep", "7075"])
            here = programs.start(host, "here", ["sleep", "7076"])
            session = other.run(["sh", "-c", "echo $PPID"]).stdout.strip()
            site.host.run(["kill", "-KILL", session])
            with pytest.raises(RunFailed, match="host host1 is gone: "):
                programs.finish(here)
        with pytest.raises(RunFailed, match="host host1 is gone: "):
            other.check_alive()
    finally:
        other.close()
        site.stop()


def test_a_pulled_cable_is_noticed_on_both_sides(
    network: NetnsNetwork, sshd: Sshd, tmp_path: Path
) -> None:
    """The client runs on the other host; then the management network carries nothing."""
    key, log, said = tmp_path / "key", tmp_path / "log", tmp_path / "client"
    sshd.key.private.write_private_key(str(key))
    address = sshd.host.endpoint.mgmt_ipv4
    client = network.hosts[1].popen(
        [
            *(sys.executable, str(PROGRAMS / "ssh_client.py"), address, str(key), str(log)),
            *("echo up; sleep 7081", "1", "3"),
        ],
        stdout=said,
        stderr=said,
    )
    started(log)
    folder = said.read_text().strip()
    network.hosts[1].run(["ip", "link", "set", "mgmt0", "down"])
    try:
        assert client.wait(60) == 3
        assert "host there is gone" in said.read_text()
        wait_until(lambda: not running(sshd.host, "sleep 7081"), "the program is gone")
        wait_until(lambda: not is_folder(sshd.host, folder), "the folder is gone")
    finally:
        network.hosts[1].run(["ip", "link", "set", "mgmt0", "up"])


# --- logging in ------------------------------------------------------------------------------


def test_a_wrong_key_is_refused(sshd: Sshd) -> None:
    with pytest.raises(RunFailed, match=r"cannot log in to host0: .*Permission denied"):
        sshd.log_in(ClientKey.generate())


def test_a_host_without_a_shell_says_what_it_said(network: NetnsNetwork, tmp_path: Path) -> None:
    odd = Sshd(
        network.hosts[1], tmp_path / "odd", ["ForceCommand=echo This service is closed."]
    ).start()
    try:
        with pytest.raises(DatapathError, match=r"shell on host1: This service is closed\."):
            odd.log_in()
    finally:
        odd.stop()


@pytest.mark.parametrize("may_sudo", [True, False])
def test_another_user_than_root(network: NetnsNetwork, tmp_path: Path, may_sudo: bool) -> None:
    with open_folder() as folder:
        site = Sshd(network.hosts[1], folder / "sshd", may_sudo=may_sudo).start()
        with (site.folder / "sudoers").open("a") as sudoers:
            sudoers.write('Defaults secure_path="/usr/sbin:/usr/bin:/sbin:/bin"\n')
        tool = folder / "tool-of-the-user"
        tool.write_text("#!/bin/sh\necho here\n")
        tool.chmod(0o755)
        (site.folder / USER / ".bashrc").write_text(f"PATH=$PATH:{folder}\n")
        login = socket_login(site.socket(), site.key, USER)
        link = Connection("host1", login, sudo=True)
        host = SshHost("host1", network.hosts[1].endpoint, link)
        assert (link.user, link.root) == (USER, may_sudo)
        assert link.folder.startswith(f"{site.temporary}/")  # TMPDIR, also with sudo
        assert host.run(["id", "-u"]).stdout == ("0\n" if may_sudo else "1000\n")
        assert host.run(["sh", "-c", "echo $X"], env={"X": "a b"}).stdout == "a b\n"
        assert host.has_program("ip")
        assert host.has_program("tool-of-the-user")
        assert host.run(["tool-of-the-user"]).stdout == "here\n"
        assert host.run(["sh", "-c", "kill -9 $$"]).returncode == -9
        there = host.outputs(tmp_path)
        host.run(["sh", "-c", f"mkdir {there}/d; echo yes > {there}/answer; echo 1 >{there}/d/e"])
        host.fetch(tmp_path)
        assert (tmp_path / "answer").read_text() == "yes\n"
        process = host.popen(["sh", "-c", "trap '' TERM; setsid sleep 7091 & sleep 7092"])
        wait_until(lambda: running(network.hosts[1], "sleep 7091"), "the program is up")
        process.kill()
        assert process.wait(20) == -9
        host.close()
        wait_until(lambda: not running(network.hosts[1], "sleep 709[12]"), "the programs are gone")
        assert not is_folder(network.hosts[1], link.folder)
        site.stop()


def test_a_login_shell_that_hangs_is_told(
    network: NetnsNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOGIN_TIMEOUT_S", 1)
    with open_folder() as folder:
        site = Sshd(network.hosts[1], folder / "sshd").start()
        (site.folder / USER / ".bashrc").write_text("sleep 100\n")
        login = socket_login(site.socket(), site.key, USER) | {"login_timeout": 60}
        try:
            with pytest.raises(DatapathError, match="host1: its login shell or sudo did not") as it:
                Connection("host1", login, sudo=True)
            assert "~/.bashrc" in it.value.hint
        finally:
            site.stop()


def test_an_sftp_that_hangs_is_told(
    network: NetnsNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Sshd(network.hosts[1], tmp_path / "sshd", ["Subsystem=sftp /bin/sleep 100"]).start()
    try:
        host = site.log_in()
        monkeypatch.setattr(connection, "LOGIN_TIMEOUT_S", 1)
        with pytest.raises(DatapathError, match="host1: its sftp did not answer") as caught:
            host.outputs(tmp_path)
        assert "Subsystem sftp" in caught.value.hint
        host.close()
    finally:
        site.stop()


# --- facts -----------------------------------------------------------------------------------


def test_facts_are_those_of_the_host(host: SshHost) -> None:
    facts = host.facts()
    assert facts["kernel"] == os.uname().release
    assert facts["cores"] == os.cpu_count()
    assert facts["user"] == "root"
    assert facts["nic"]["driver"] == "veth"
    assert facts["nic"]["mtu"] == 9000
    assert facts["offload"]["tcp-segmentation-offload"] in ("on", "off")
    assert facts["rdma"]["rxe"] in ("loaded", "available", "none")
    assert facts["xdp"]["sockets"] == "yes"
    assert facts["package"]["libxdp1"]


def test_one_clock_has_no_offset_to_itself(host: SshHost) -> None:
    clock = clock_offset(host.connection)
    assert abs(clock.offset_ns) <= clock.uncertainty_ns
    assert clock.uncertainty_ns < 1_000_000_000


def test_facts_are_nested_and_numbers_where_they_count() -> None:
    assert parse("kernel=6.1\ncores=2\nnic.mtu=1500\nnic.speed=-1\nnonsense\n") == {
        "kernel": "6.1",
        "cores": 2,
        "nic": {"mtu": 1500, "speed": -1},
    }


def test_cpu_lists() -> None:
    assert parse_cpus("0") == [0]
    assert parse_cpus("0-2,5,8-9") == [0, 1, 2, 5, 8, 9]
