# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Another congestion-control algorithm in a program that runs: by itself, and from outside."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datapath import series
from datapath.cc import compile_algorithm, linking
from datapath.cli.app import run as dpctl
from datapath.errors import CapabilityError, LocalError, RemoteError
from datapath.native import paths
from datapath.verbs import control
from tests.cli.told import told
from tests.listening import await_listener
from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS, environment

both_ports = pytest.mark.parametrize("port", ["afxdp", "udp"])
OPTIONS = ["-d", "dp0", "-F", "-s", "65536", "-n", "10000000", "-q", "2"]
WRITES = ["ib_write_bw", *OPTIONS]
CALM = ["ib_send_bw", *OPTIONS, "-e"]  # it sleeps, so that the rest of a test has the CPUs
CALM_BPS = 100_000_000  # of each QP
PAGE = paths.ROOT / "docs" / "cc.md"


def compiled(name: str, **params: float) -> Path:
    """Call it before programs use up the CPUs: a fresh tree has to run the compiler."""
    return compile_algorithm(name, params).path


@pytest.fixture
def foreign(tmp_path: Path) -> dict[str, Path]:
    """Files that hold no algorithm for this version."""
    (tmp_path / "none.c").write_text("int nothing;\n")
    header = tmp_path / "engine" / "cc.h"
    header.parent.mkdir()
    text = linking.HEADER.read_text()
    header.write_text(re.sub(r"(#define DP_CC_ABI) \d+", r"\1 1", text))
    (tmp_path / "old.c").write_text(
        '#include "engine/cc.h"\nstruct dp_cc_algo dp_cc_algo = { .abi = DP_CC_ABI };\n'
    )
    for name in ("none", "old"):
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-I",
            str(tmp_path),
            "-o",
            str(tmp_path / f"{name}.so"),
        ]
        subprocess.run([*command, str(tmp_path / f"{name}.c")], check=True)
    (tmp_path / "text.so").write_text("not an object\n")
    return {name: tmp_path / f"{name}.so" for name in ("old", "none", "text")}


# ---- from inside ------------------------------------------------------------------------


def test_a_c_program_uses_the_public_header(tmp_path: Path, foreign: dict[str, Path]) -> None:
    program = tmp_path / "direct"
    sanitize = ["-fsanitize=address,undefined"] if paths.build_name() == "build-san" else []
    subprocess.run(
        [
            *("gcc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror"),
            *sanitize,
            *("-I", str(paths.include_dir()), "-o", str(program), str(PROGRAMS / "direct.c")),
            str(paths.verbs_library()),
        ],
        check=True,
    )
    objects = [tmp_path / "algo.so", tmp_path / "other.so"]
    for path, name in zip(objects, ["fixed", "swift"], strict=True):
        shutil.copy(compiled(name), path)
    done = subprocess.run(
        [str(path) for path in (program, *objects, *foreign.values())],
        env={**os.environ, **environment("udp:127.0.0.1")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def python_program(*arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / "two_algorithms.py"), *arguments],
        env={**os.environ, **environment("udp:127.0.0.1"), "PYTHONPATH": str(paths.ROOT), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_pyverbs_program_changes_its_own_qps(tmp_path: Path) -> None:
    """Two QPs on different algorithms, data compared; the counters tell what ran last."""
    program = python_program(DATAPATH_STATS=str(tmp_path / "s"))
    _, errors = program.communicate(timeout=120)
    assert (program.returncode, errors) == (0, "")
    (path,) = tmp_path.iterdir()
    qps = json.loads(path.read_text())["qps"]
    assert [(qp["cc"], qp["cc_changes"]) for qp in qps] == [
        ("fixed", 41),
        ("constant window", 0),
        ("constant window", 41),
        ("constant window", 0),
    ]


def section() -> str:
    """Of docs/cc.md, about this."""
    return PAGE.read_text().split("## Change it while a program runs")[1].split("\n## ")[0]


def test_the_python_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", section(), re.DOTALL)
    program = f"import datapath.verbs\nfrom pair import pair\na, b = pair()\nqp = a.qp\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            **environment("udp:127.0.0.1"),
            "PYTHONPATH": f"{paths.ROOT}:{PROGRAMS}",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("fixed\n", "")


def test_without_the_front_python_says_what_to_do() -> None:
    code = "from datapath.verbs import cc_of\ncc_of(1)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    assert "LocalError: no device of ours in this process" in done.stderr


# ---- from outside: a program that waits ----------------------------------------------------


@dataclass
class Waiting:
    """A program with four QPs."""

    process: subprocess.Popen[str]
    qpns: list[int]

    @property
    def pid(self) -> int:
        return self.process.pid

    def algorithms(self) -> list[tuple[str, int]]:
        rows = control.algorithms(control.devices(self.pid))
        assert [row["qpn"] for row in rows] == self.qpns
        return [(row["cc"], row["changes"]) for row in rows]


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    with python_program("wait") as process:
        assert process.stdout is not None
        yield Waiting(process, [int(word) for word in process.stdout.readline().split()])
        process.communicate(timeout=60)
    assert process.returncode == 0


NOTHING = [("constant window", 0)] * 4


def test_one_qp_or_all(waiting: Waiting) -> None:
    found = control.devices(waiting.pid)
    assert [(device.pid, device.name) for device in found] == [(waiting.pid, "dp0")]
    assert waiting.algorithms() == NOTHING
    assert control.set_algorithm(found, waiting.qpns[2], compiled("swift", ai=3)) == 1
    expected = NOTHING.copy()
    expected[2] = ("swift", 1)
    assert waiting.algorithms() == expected
    row = control.algorithms(found)[2]
    assert row["params"]["ai"] == 3
    assert row["object"] == str(compiled("swift", ai=3))
    assert row["cwnd_bytes"] > 0
    assert control.set_algorithm(found, None, compiled("fixed")) == 4
    assert waiting.algorithms() == [("fixed", 1), ("fixed", 1), ("fixed", 2), ("fixed", 1)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("old", "is made for another version: compile it again"),
        ("none", "is not a compiled congestion-control algorithm"),
        ("text", "file too short|invalid ELF header"),
        ("missing", "No such file or directory"),
    ],
)
@pytest.mark.parametrize("one", [False, True], ids=["all", "one"])
def test_what_cannot_be_loaded_changes_nothing(
    waiting: Waiting, foreign: dict[str, Path], name: str, message: str, one: bool
) -> None:
    path = foreign.get(name, Path("/nonexistent.so"))
    with pytest.raises(LocalError, match=message):
        control.set_algorithm(control.devices(waiting.pid), waiting.qpns[0] if one else None, path)
    assert waiting.algorithms() == NOTHING


JSON = ("--format", "json")


def test_commands(waiting: Waiting, capsys: pytest.CaptureFixture[str]) -> None:
    pid, qpn = str(waiting.pid), str(waiting.qpns[1])
    assert dpctl(["cc", "set", pid, "fixed", "-p", "window_bytes=65536", "--qpn", qpn]) == 0
    assert capsys.readouterr().out == f"fixed: 1 QP of {pid}\n"
    assert dpctl(["cc", "set", pid, "fixed", "-p", "window_bytes=65536", "--qpn", qpn, *JSON]) == 0
    changed = {"algorithm": "fixed", "pid": waiting.pid, "qps": 1}
    assert told("cc set", capsys.readouterr().out) == changed
    assert dpctl(["cc", "of", pid, *JSON]) == 0
    rows = told("cc of", capsys.readouterr().out)
    assert [row["cc"] for row in rows].count("fixed") == 1
    assert rows[1]["params"] == {"window_bytes": 65536, "rate_bps": 0}
    assert dpctl(["cc", "of"]) == 0
    table = capsys.readouterr().out
    where = rf"^{pid} +python\S* +dp0 +{qpn} +fixed +2 +\S+ +window_bytes=65536"
    assert re.search(where, table, re.M), table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "PID", "swift", "--qpn", "1"], "dp0 has no QP 1"),
        (["set", "PID", "swift", "--qpn", "first"], "--qpn first is not a QP number"),
        (["set", "PID", "swift", "--device", "dp1"], "has no device dp1"),
        (["set", "PID", "swft"], "swft"),
        (["set", "PID", "swift", "-p", "speed=1"], "no parameter 'speed'"),
        (["set", "4194305", "swift"], "there is no process 4194305"),
        (["set", "no_such_program", "swift"], "no program no_such_program has a device"),
        (["of", "SELF"], "has no device of ours open"),
    ],
)
def test_errors_are_one_line_and_change_nothing(
    waiting: Waiting, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    pids = {"PID": str(waiting.pid), "SELF": str(os.getpid())}
    assert dpctl(["cc", *(pids.get(word, word) for word in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"]
    assert message in lines[0]
    assert waiting.algorithms() == NOTHING


def test_a_stopped_program_is_not_waited_for(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = control.devices(waiting.pid)
    monkeypatch.setattr(control, "_ANSWER_S", 0.2)
    waiting.process.send_signal(signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(waiting.pid, os.WUNTRACED)[1])  # every thread of it
    try:
        with pytest.raises(RemoteError, match="does not answer"):
            control.algorithms(found)
    finally:
        waiting.process.send_signal(signal.SIGCONT)
    monkeypatch.undo()
    assert waiting.algorithms() == NOTHING


def test_another_user_is_refused(root: None, waiting: Waiting) -> None:
    """By the kernel when it looks, by the program when it asks."""
    (device,) = control.devices(waiting.pid)
    os.seteuid(65534)
    try:
        with pytest.raises(CapabilityError, match="may not be looked into"):
            control.devices(waiting.pid)
        assert waiting.pid not in {found.pid for found in control.devices()}
    finally:
        os.seteuid(0)
    ask = (
        "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind('');"
        f"s.connect('\\0{device.socket[1:]}'); s.send(b'set all {compiled('swift')}');"
        "print(s.recv(65536).decode())"
    )
    done = subprocess.run(
        ["/usr/bin/python3", "-c", ask],
        user=65534,
        group=65534,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == {"error": "the process belongs to another user"}
    assert waiting.algorithms() == NOTHING


@pytest.mark.parametrize(
    "request_", ["", "set", "set all", "set 1 ", "get", "set all " + "/x" * 800]
)
def test_nonsense_is_refused(waiting: Waiting, request_: str) -> None:
    (device,) = control.devices(waiting.pid)
    with pytest.raises(LocalError, match=f"process {waiting.pid}"):
        control._ask(device, request_)
    assert waiting.algorithms() == NOTHING


MANY = """
import sys
import datapath.verbs
from pair import Side, TARGET
context = TARGET.open()
side = Side(context)
qps = []
def make(count):
    for _ in range(count):
        side.make_qp()
        qps.append(side.qp)
make(700)
print("ready", flush=True)
sys.stdin.readline()
make(1)
print(datapath.verbs.cc_of(side.qp).name, flush=True)
sys.stdin.readline()
"""


def python(code: str) -> subprocess.Popen[str]:
    """A program with dp0 on loopback, which hears and is heard through pipes."""
    environ = {**os.environ, **environment("udp:127.0.0.1")}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**environ, "PYTHONPATH": f"{paths.ROOT}:{PROGRAMS}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_hundreds_of_qps_and_those_that_come_later() -> None:
    with python(MANY) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = control.devices(process.pid)
        assert control.set_algorithm(found, None, compiled("vpc")) == 700
        rows = control.algorithms(found)
        assert len({row["qpn"] for row in rows}) == len(rows) == 700
        assert {row["cc"] for row in rows} == {"vpc"}
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "vpc\n"
        process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_a_child_is_not_taken_for_its_parent() -> None:
    """It inherits the socket, and has no device."""
    code = (
        "import os, sys, datapath.verbs; from pair import pair; a, b = pair()\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "sys.stdin.readline()\n"
        "if child: os.waitpid(child, 0)\n"
    )
    with python(code) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        with pytest.raises(LocalError, match="has no device of ours open"):
            control.devices(child)
        assert len(control.algorithms(control.devices(process.pid))) == 2
        process.communicate("\n\n", timeout=60)


# ---- from outside: a program that sends --------------------------------------------------------


@dataclass
class Sending:
    """A program of perftest between two hosts; `devices` are the client's."""

    pair: Pair
    client: subprocess.Popen[bytes]
    devices: list[control.Device]

    def rows(self) -> list[dict[str, Any]]:
        return control.algorithms(self.devices)

    def delivered(self) -> int:
        return sum(row["delivered_bytes"] for row in self.rows())

    def goes_on(self, more_bytes: int) -> None:
        """Until it has delivered so much more."""
        start = self.delivered()
        for _ in range(6000):
            assert self.client.poll() is None
            if self.delivered() >= start + more_bytes:
                return
            time.sleep(0.01)
        pytest.fail(f"stuck: {self.rows()}")


def device_of(client: subprocess.Popen[bytes]) -> list[control.Device]:
    """Of the client, once it sends."""
    for _ in range(3000):
        assert client.poll() is None
        found = [device for device in control.devices() if device.pid == client.pid]
        if sum(row.get("delivered_bytes", 0) for row in control.algorithms(found)) > 0:
            return found
        time.sleep(0.01)
    pytest.fail("nothing is sent")


@pytest.fixture
def sending(pair: Pair) -> Iterator[Callable[..., Sending]]:
    programs: list[subprocess.Popen[bytes]] = []

    def start(port: str, argv: Sequence[str] = CALM, **options: object) -> Sending:
        left, right = pair.hosts
        env = {"DATAPATH_SERIES": f"{pair.logs}/s;interval_us=2000"}
        if argv is CALM:
            options["cc"] = compiled("fixed", rate_bps=CALM_BPS)
        server = left.popen(argv, env={**pair.environment(0, port, **options), **env})
        programs.append(server)
        await_listener(left, server)
        argv = [*argv, left.endpoint.ipv4]
        client = right.popen(argv, env={**pair.environment(1, port, **options), **env})
        programs.append(client)
        return Sending(pair, client, device_of(client))

    yield start
    for program in reversed(programs):
        program.kill()
        program.wait()


SLOW_BPS = 15_000_000


@pytest.mark.alone
@both_ports
@pytest.mark.parametrize("mode", ["auto", "standard"])
def test_the_rate_follows(sending: Callable[..., Sending], port: str, mode: str) -> None:
    """To a low rate and back, of two QPs; the series tell it in the program's own time."""
    slower, faster = compiled("fixed", rate_bps=SLOW_BPS), compiled("fixed")
    running = sending(port, WRITES, mode=mode)
    running.goes_on(64 << 20)
    assert control.set_algorithm(running.devices, None, slower) == 2
    running.goes_on(5 << 20)  # of which at most 2 MiB had been in flight
    assert control.set_algorithm(running.devices, None, faster) == 2
    running.goes_on(64 << 20)
    assert [(row["cc"], row["changes"]) for row in running.rows()] == [("fixed", 2)] * 2
    (path,) = (
        path
        for path in running.pair.logs.glob("s.*.series")
        if series.read_file(path, "host").frame["delivered_bytes"].max() > 0
    )
    for _, _, rows in series.flows(series.read_file(path, "host").frame):
        (paced,) = np.nonzero(rows["pacing_rate_bps"] == SLOW_BPS)
        first, last = paced[0], paced[-1]
        assert len(paced) == last - first + 1 > 10
        slow = rows.iloc[first : last + 1]
        slow = slow[slow["delivered_bytes"] > slow["delivered_bytes"].iloc[0] + (1 << 20)]
        assert rate_bps(slow) < 1.1 * SLOW_BPS
        assert rate_bps(rows.iloc[: first + 1]) > 3 * SLOW_BPS
        assert rate_bps(rows.iloc[last:]) > 3 * SLOW_BPS


def rate_bps(rows: Any) -> float:
    passed_ns = rows["time_ns"].iloc[-1] - rows["time_ns"].iloc[0]
    return float(8e9 * (rows["delivered_bytes"].iloc[-1] - rows["delivered_bytes"].iloc[0])) / (
        passed_ns
    )


@both_ports
def test_many_changes_while_packets_fly(sending: Callable[..., Sending], port: str) -> None:
    last = compiled("fixed", rate_bps=CALM_BPS)
    choices = [compiled("swift"), compiled("fixed", window_bytes=4096), compiled("cubic")]
    choices += [compiled("fixed", rate_bps=1000), compiled("bbr"), compiled("newreno")]
    running = sending(port)
    (device,) = running.devices
    targets = ["all", *(row["qpn"] for row in running.rows())]
    for i in range(200):
        control._ask(device, f"set {targets[i % 3]} {choices[(i + i // 6) % len(choices)]}")
    control.set_algorithm(running.devices, None, last)
    running.goes_on(16 << 20)
    mapped = Path(f"/proc/{running.devices[0].pid}/maps").read_text()
    assert set(re.findall(r"/cc/(\w+)-", mapped)) == {"fixed"}


def test_a_name_that_runs_twice_is_not_enough(
    sending: Callable[..., Sending], capsys: pytest.CaptureFixture[str]
) -> None:
    running = sending("udp")
    assert dpctl(["cc", "set", "ib_send_bw", "swift"]) == 2
    assert "ib_send_bw runs more than once" in capsys.readouterr().err
    assert {row["cc"] for row in running.rows()} == {"fixed"}


def test_the_page_is_true(
    tmp_path: Path,
    sending: Callable[..., Sending],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """docs/cc.md, with the numbers of this run."""
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", section(), re.DOTALL))
    example = tmp_path / "my_cc.py"
    example.write_text(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
    for algorithm in (str(example), "swift"):
        compiled(algorithm)
    running = sending("udp")
    monkeypatch.chdir(tmp_path)
    names = {"ib_write_bw": str(running.devices[0].pid), "10162": str(running.rows()[0]["qpn"])}
    seen = []
    for line in blocks["console"].splitlines():
        words = [names.get(word, word) for word in shlex.split(line, comments=True)]
        assert dpctl(words[1:]) == 0, capsys.readouterr().err
        seen.append([row["cc"] for row in running.rows()])
    assert seen[-2:] == [["swift"] * 2, ["keep-low", "swift"]]
    running.goes_on(1 << 20)
