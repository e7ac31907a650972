# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl cc of` among processes that mean harm: hostile names, hostile answers, impostors."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.cli.app import run as dpctl
from datapath.errors import RemoteError
from datapath.native import paths
from datapath.verbs import control
from tests.cli.told import told
from tests.verbs.devices import PROGRAMS, environment

HONEST = """
import sys
import datapath.verbs
from pair import pair
a, b = pair()
sys.stdin.readline()
print("ready", flush=True)
sys.stdin.read()
"""

HOSTILE = """
import ctypes, os, socket, sys
plan = eval(sys.stdin.readline())
os.setgid(plan["uid"])
os.setuid(plan["uid"])
ctypes.CDLL(None).prctl(15, plan["comm"])
held = []
for name in plan["names"]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    sock.bind(b"\\0" + name.replace(b"PID", str(os.getpid()).encode()))
    held.append(sock)
print("ready", flush=True)
if not plan["answers"]:
    sys.stdin.read()
answers = list(plan["answers"])
while True:
    _, who = held[0].recvfrom(65536)
    try:
        held[0].sendto(answers.pop(0) if len(answers) > 1 else answers[0], who)
    except OSError:
        pass
"""

GOOD_NAME = b"datapath-verbs:PID:dp0:0"


@contextlib.contextmanager
def program(code: str, *, told: str = "", env: dict[str, str]) -> Iterator[int]:
    """A Python program that is told one line and says when it is ready; its PID."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **env, "PYTHONPATH": f"{paths.ROOT}:{PROGRAMS}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(told + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def hostile(
    *answers: bytes, names: tuple[bytes, ...] = (GOOD_NAME,), comm: bytes = b"hostile", uid: int = 0
) -> contextlib.AbstractContextManager[int]:
    """A process with sockets of these names, which answers so (the last for ever)."""
    plan = {"answers": answers, "names": names, "comm": comm, "uid": uid or os.geteuid()}
    return program(HOSTILE, told=repr(plan), env={})


@pytest.fixture
def honest() -> Iterator[int]:
    with program(HONEST, env=environment("udp:127.0.0.1")) as pid:
        yield pid


def listed(capsys: pytest.CaptureFixture[str]) -> set[int]:
    """PIDs that `dpctl cc of` lists."""
    assert dpctl(["cc", "of", "--format", "json"]) == 0
    return {row["pid"] for row in told("cc of", capsys.readouterr().out)}


NAMES = [
    b"datapath-verbs:\xff\xfe:dp0:0",
    b"datapath-verbs:\x1b[2J\x1b]0;owned\x07:dp0:0",
    b"datapath-verbs:PID",
    b"datapath-verbs:PID:dp0:0:1",
    b"datapath-verbs:PID:dp0 and more:0",
    b"datapath-verbs:PID:\x1b[31m:0",
    b"datapath-verbs:99999999999999999999999:dp0:0",
    b"datapath-verbs:\xc2\xb2:dp0:0",
    b"line\nends\r\nin\x0ba\x0cname\x85",
    b"0: 0 0 0 0 0 0 @datapath-verbs:1:dp0:0",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_tolerated(
    honest: int, capsys: pytest.CaptureFixture[str], name: bytes
) -> None:
    with hostile(names=(name,), comm=b"\xff\xfe\x1b[31m") as pid:
        pids = listed(capsys)
    assert honest in pids
    assert pid not in pids


def qp(qpn: int) -> dict[str, object]:
    return {"qpn": qpn, "cc": "vpc", "params": "a=1", "object": "/x", "changes": 0}


def answer(*qps: object, more: object = 0) -> bytes:
    return json.dumps({"qps": qps, "next": more}).encode()


ANSWERS = {
    "nothing": [b""],
    "not UTF-8": [b"\xff"],
    "not an object": [b'"x"'],
    "too deep": [b"[" * 100_000],
    "too long": [b'{"qps": [], "next": 0, "x": "' + b"x" * 200_000 + b'"}'],
    "cut": [answer(qp(1))[:-3]],
    "no list": [answer()[:-2] + b"1}", b'{"qps": 3, "next": 0}'],
    "not QPs": [answer(3)],
    "a QP without a number": [answer({**qp(1), "qpn": "x"})],
    "a long number": [answer({**qp(1), "qpn": 10**400})],
    "a rate that is none": [answer({**qp(1), "srtt_ns": "x"})],
    "a count that no float can hold": [answer({**qp(1), "delivered_bytes": 10**400})],
    "a count beyond 64 bits": [answer({**qp(1), "sent_packets": 1 << 65})],
    "a negative count": [answer({**qp(1), "marked_packets": -1})],
    "a rate without end": [answer({**qp(1), "pacing_rate_bps": float("inf")})],
    "a window that is no number": [answer({**qp(1), "cwnd_bytes": float("nan")})],
    "parameters that are none": [answer({**qp(1), "params": "a=b c"})],
    "an error that is no text": [b'{"error": {}}'],
    "the same for ever": [answer(qp(1), more=1)],
    "backwards": [answer(qp(1), more=9), answer(qp(2), more=8), answer(qp(3))],
    "on without a QP": [answer(more=1), answer(more=2), answer(more=3), answer()],
    "not a number of a QP": [answer(qp(1), more="x")],
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_answer_is_believed_that_a_device_cannot_give(
    honest: int, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    with hostile(*ANSWERS[kind]) as pid, pytest.raises(RemoteError) as caught:
        control.algorithms(control.devices(pid))
    assert f"process {pid}" in str(caught.value)
    with hostile(*ANSWERS[kind]) as pid:
        assert honest in listed(capsys)


def test_numbers_up_to_the_largest_of_a_device_are_believed() -> None:
    """A double may round the largest count up, and an algorithm may set any rate."""
    largest = {"min_rtt_ns": 1 << 64, "pacing_rate_bps": sys.float_info.max}
    with hostile(answer({**qp(1), **largest})) as pid:
        (row,) = control.algorithms(control.devices(pid))
    assert largest.items() <= row.items()


ENDLESS = """
import json, os, socket
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.bind(f"\\0datapath-verbs:{os.getpid()}:dp0:0")
print("ready", flush=True)
n = 0
while True:
    _, who = sock.recvfrom(65536)
    n += 1
    qp = {"qpn": n, "cc": "vpc", "params": "", "object": "", "changes": 0}
    sock.sendto(json.dumps({"qps": [qp], "next": n}).encode(), who)
"""


def test_an_answer_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_LIST_S", 0.5)
    with program(ENDLESS, env={}) as pid, pytest.raises(RemoteError, match="does not come to"):
        control.algorithms(control.devices(pid))


def test_more_qps_than_a_device_holds_are_left() -> None:
    qps = [qp(n) for n in range(700)]
    answers = [answer(*qps, more=n + 1) for n in range(100)]
    with hostile(*answers) as pid, pytest.raises(RemoteError, match=f"process {pid}"):
        control.algorithms(control.devices(pid))


def inode_of_socket(pid: int, name: bytes) -> bytes:
    for line in Path(f"/proc/{pid}/net/unix").read_bytes().splitlines():
        if line.endswith(name):
            return line.split()[6]
    raise AssertionError(name)


def test_an_impostor_is_not_asked_in_place_of_a_process(root: None, honest: int) -> None:
    """A line end in a name makes a line of /proc/net/unix that another user has written."""
    (device,) = control.devices(honest)
    inode = inode_of_socket(honest, device.socket[1:].encode())
    name = f"datapath-verbs:{honest}:dp0:7".encode()
    line = b"x\n0: 2 0 0 2 1 " + inode + b" @" + name
    with hostile(answer(qp(1)), names=(name, line), uid=65534):
        found = control.devices(honest)
        assert device in found
        for fake in set(found) - {device}:
            with pytest.raises(RemoteError, match="another process answers"):
                control.algorithms([fake])
