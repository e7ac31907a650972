# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two namespaces joined by a veth pair, and the tool that drives a port in one."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from datapath.native import paths

SECONDS = 20  # bound of everything that is started
_serial = itertools.count()

SEND_FRAMES = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for line in sys.stdin:
    s.send(bytes.fromhex(line))
"""


def run(*argv: str, check: bool = True) -> str:
    """Output of a command that ends by itself."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    if check:
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}{done.stdout}"
    return done.stdout


@dataclass
class Report:
    """What port_tool printed at its end."""

    info: dict[str, Any]
    stats: dict[str, int]
    result: dict[str, Any]


class Tool:
    """A running port_tool whose port is open."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        ready = self._out.readline()
        if ready != b"ready\n":
            rest, error = process.communicate(timeout=SECONDS)
            pytest.fail(f"port_tool: {(ready + rest + error).decode()}")

    @property
    def _out(self) -> IO[bytes]:
        assert self.process.stdout
        return self.process.stdout

    def report(self) -> Report:
        """Waits for the end, or ends a `hold` by closing its input."""
        out, error = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == 0, error.decode()
        return Report(**json.loads(out.splitlines()[-1]))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)


@dataclass
class Host:
    """One namespace; its device is eth0."""

    namespace: str
    ipv4: str
    ipv6: str
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *argv]

    def run(self, *argv: str, check: bool = True) -> str:
        return run(*self.command(*argv), check=check)

    def popen(self, *argv: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command(*argv) if self.namespace else list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # communicate() would not see what readline() had buffered
        )
        self.started.append(process)
        return process

    def tool(self, spec: str, *what: str, before: tuple[str, ...] = ()) -> Tool:
        """Starts port_tool and returns when its port is open."""
        return Tool(self.popen(*before, str(tool_path()), spec, *what))

    def report(self, spec: str, *what: str, before: tuple[str, ...] = ()) -> Report:
        return self.tool(spec, *what, before=before).report()

    def refusal(self, spec: str, *, before: tuple[str, ...] = ()) -> str:
        """What a port that cannot be opened says."""
        process = self.popen(*before, str(tool_path()), spec, "hold")
        out, error = process.communicate(timeout=SECONDS)
        assert process.returncode == 1, (out + error).decode()
        assert error.count(b"\n") == 1, error.decode()
        return error.decode().strip()

    def send_frames(self, frames: list[bytes]) -> None:
        """Puts raw Ethernet frames on eth0."""
        subprocess.run(
            self.command(sys.executable, "-c", SEND_FRAMES, "eth0"),
            input="\n".join(frame.hex() for frame in frames),
            text=True,
            timeout=SECONDS,
            check=True,
        )

    def mac(self) -> str:
        return self.run("cat", "/sys/class/net/eth0/address").strip()

    def xdp_program(self) -> str | None:
        """Name of the XDP program on eth0."""
        link = json.loads(self.run("ip", "-j", "-d", "link", "show", "dev", "eth0"))[0]
        return link["xdp"]["prog"].get("name", "?") if "xdp" in link else None


@dataclass
class Pair:
    a: Host
    b: Host


def tool_path() -> Path:
    return paths.ROOT / paths.build_name() / "tests" / "port_tool"


def unprivileged() -> tuple[str, ...]:
    """What to put in front of a command to take every privilege from it."""
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv (util-linux)")
    return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def make_host(number: int, mtu: int, queues: int) -> Host:
    host = Host(f"dptest-{os.getpid()}-{next(_serial)}", f"10.123.0.{number}", f"fd12:3::{number}")
    run("ip", "netns", "add", host.namespace)
    host.run("ip", "link", "set", "lo", "up")
    if number == 1:
        each = ("numtxqueues", str(queues), "numrxqueues", str(queues))
        peer = ("type", "veth", "peer", "name", "eth1", *each)
        host.run("ip", "link", "add", "eth0", "mtu", str(mtu), *each, *peer)
    return host


def configure(host: Host, mtu: int) -> None:
    host.run("ip", "link", "set", "eth0", "mtu", str(mtu), "up")
    host.run("ip", "address", "add", f"{host.ipv4}/24", "dev", "eth0")
    host.run("ip", "address", "add", f"{host.ipv6}/64", "dev", "eth0", "nodad")


def qpn_of(slot: int) -> str:
    """A QPN of the port that has the slot."""
    return hex(slot << 16 | 0x11)


def send_to_slot(pair: Pair, port: str, slot: int, count: int, *options: str) -> None:
    """Messages from a port of host a to the port of host b that has the slot."""
    checks = ("--check", "--rate-pps", "5000")
    wanted = ("--count", str(count), "--qpn", qpn_of(slot), *checks, *options)
    pair.a.report(port, "send", pair.b.ipv4, *wanted)


@pytest.fixture
def make_pair(root: None) -> Iterator[Callable[..., Pair]]:
    """make_pair(mtu=9000, queues=1): hosts 10.123.0.1 and .2, fd12:3::1 and ::2."""
    hosts: list[Host] = []

    def make(mtu: int = 9000, queues: int = 1) -> Pair:
        hosts.append(make_host(1, mtu, queues))
        hosts.append(make_host(2, mtu, queues))
        a, b = hosts[-2:]
        a.run("ip", "link", "set", "eth1", "netns", b.namespace, "name", "eth0")
        configure(a, mtu)
        configure(b, mtu)
        return Pair(a, b)

    yield make
    for host in hosts:
        for process in host.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
    for host in hosts:
        run("ip", "netns", "delete", host.namespace)


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair(9000)


@pytest.fixture
def here() -> Iterator[Host]:
    """This namespace, for ports on loopback; needs no privilege."""
    host = Host("", "127.0.0.1", "::1")
    yield host
    for process in host.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
