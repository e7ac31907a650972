# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl ps | shell | capture | top` against a run that goes on."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath import processes
from datapath.cli import main, top
from datapath.interop import capture, files
from datapath.native import paths
from tests.cli.test_metrics import fetched, free_port, parsed
from tests.cli.told import told

EXPERIMENT = """\
version: 1
name: visited
topology: {lane: netns, preset: p2p, mtu: 1500}
path: {backend: BACKEND, PATH}
transport: {device: dp, port: PORT, mode: MODE}
cc: CC
workload: {kind: stream, size: 32KiB, depth: 8, duration: 300s}
sweep: {timeout: 600s}
"""
KINDS = {
    "emulated": ("fabric", "rate: 20mbit, delay: 1ms, queue: 64KiB", "udp", "auto", "{}"),
    # Paced: at full rate the run would take the CPUs from all other tests.
    "forwarded": ("bpf", "loss: 1%", "afxdp", "standard", "{algo: fixed, rate_bps: 20000000}"),
}


class Visited:
    """A run that goes on; its PID, and the answers of dpctl about it."""

    def __init__(self, folder: Path, kind: str) -> None:
        backend, path, port, mode, cc = KINDS[kind]
        text = EXPERIMENT.replace("BACKEND", backend).replace("PATH", path).replace("CC", cc)
        file = folder / "visited.yaml"
        file.write_text(text.replace("PORT", port).replace("MODE", mode))
        self.metrics_port = free_port()
        argv = ["run", str(file), "--out", str(folder / "out"), "--quiet"]
        argv += ["--metrics", str(self.metrics_port)]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "datapath.cli", *argv],
            env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.pid, self.kind = self.process.pid, kind

    def wait_for_traffic(self) -> None:
        for _ in range(600):
            assert self.process.poll() is None, self.process.communicate()[1].decode()
            taken = top.sample(None)
            mine = [link for link in taken.links if link[0] == self.pid]
            if mine and taken.links[mine[0]]["passed"] > 100:
                return
            time.sleep(0.2)
        pytest.fail("no traffic after two minutes")

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module", params=KINDS)
def visited(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Visited]:
    run = Visited(tmp_path_factory.mktemp(request.param), request.param)
    try:
        run.wait_for_traffic()
        yield run
    finally:
        run.end()


pytestmark = pytest.mark.usefixtures("root")


def answer(capfd: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    capfd.readouterr()
    assert main(list(argv)) == code, capfd.readouterr().err
    return capfd.readouterr().out


def test_ps(visited: Visited, capfd: pytest.CaptureFixture[str]) -> None:
    found = told("ps", answer(capfd, "ps", "--format", "json"))
    (run,) = (row for row in found["runs"] if row["pid"] == visited.pid)
    assert run["experiment"] == "visited"
    assert run["lane"] == "netns"
    assert [host["name"] for host in run["hosts"]] == ["host0", "host1"]
    assert "dp-traffic" in {row["program"] for row in found["programs"]}
    table = answer(capfd, "ps")
    assert f"{visited.pid}" in table
    assert "host0 host1" in table


def test_shell(visited: Visited, capfd: pytest.CaptureFixture[str]) -> None:
    run = ["--run", str(visited.pid)]
    script = 'cat /sys/class/net/eth1/address; echo "$DATAPATH_HOST"; exit 7'
    out = answer(capfd, "shell", *run, "host1", "--", "sh", "-c", script, code=7)
    assert out.split() == ["02:00:c6:12:00:02", "host1"]
    assert "eth1" in answer(capfd, "shell", *run, "host0", "ip", "-br", "link")
    assert main(["shell", *run, "host9", "true"]) == 2
    assert "has no host host9" in capfd.readouterr().err
    assert main(["shell", *run, "host0", "no-such-program"]) == 3
    assert "program no-such-program is not installed" in capfd.readouterr().err


def test_a_shell_has_the_terminal(visited: Visited) -> None:
    """^C ends what the shell runs and not the shell; the exit code is the shell's."""
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    argv = [sys.executable, "-P", "-m", "datapath.cli", "shell", "--run", str(visited.pid), "host1"]
    process = subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": str(paths.ROOT), "SHELL": "/bin/bash", "PS1": ""},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    try:
        # What the terminal echoes of the line is not what the program writes.
        os.write(ours, b"sh -c 'echo on-$DATAPATH_HOST; exec sleep 1000'\n")
        said = read_until(ours, b"on-host1\r\n")
        os.write(ours, b"\x03")
        os.write(ours, b"echo still-$((40+2)); exit 9\n")
        said += read_until(ours, b"still-42")
        assert process.wait(60) == 9, said
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, words: bytes) -> bytes:
    said = b""
    while words not in said:
        assert select.select([terminal], [], [], 60)[0], said
        said += os.read(terminal, 4096)
    return said


def test_the_metrics_of_a_run(visited: Visited) -> None:
    """Those of its programs and links alone."""
    found = parsed(fetched(visited.metrics_port))
    assert {labels["run"] for labels, _ in found["datapath_link_passed_packets_total"]} == {
        str(visited.pid)
    }
    sent = found["datapath_qp_sent_packets_total"]
    assert {labels["program"] for labels, _ in sent} == {"dp-traffic"}
    assert max(value for _, value in sent) > 0


def test_top(visited: Visited, capfd: pytest.CaptureFixture[str]) -> None:
    out = answer(capfd, "top", "-n", "4", "--interval", "500ms", "--format", "ndjson")
    samples = [json.loads(line) for line in out.splitlines()]
    assert [told("top", line) for line in out.splitlines()]
    for sample in samples:
        links = {row["link"]: row for row in sample["links"] if row["run"] == visited.pid}
        assert set(links) == {"forward", "backward"}
        assert links["forward"]["passed_pps"] > 0
        busiest = sample["qps"][0]
        assert busiest["goodput_bps"] > 0
        assert busiest["rtt_ns"] > 0
        assert busiest["cwnd_bytes"] > 0
        assert busiest["retransmitted_packets"] >= 0
    # At one moment there may be none: all is acknowledged, and the program waits for a CPU.
    assert any(sample["qps"][0]["inflight_bytes"] > 0 for sample in samples)
    if visited.kind == "emulated":
        assert links["forward"]["dropped_packets"] > 0
        # A full queue of 64 KiB at 20 Mbit/s: goodput below the rate, and an RTT of more than 2 ms.
        # If the emulator stands still for a moment, the sample after it has more.
        goodputs = [sample["qps"][0]["goodput_bps"] for sample in samples]
        assert statistics.median(goodputs) < 20e6 * 1.5
        assert busiest["rtt_ns"] > 2e6
    else:
        assert links["forward"]["queue_bytes"] is None


def test_metrics(visited: Visited, capfd: pytest.CaptureFixture[str]) -> None:
    lines = answer(capfd, "metrics").splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    forward = f'{{run="{visited.pid}",link="forward"}}'
    assert float(values[f"datapath_link_passed_packets_total{forward}"]) > 0
    delivered = [name for name in values if name.startswith("datapath_qp_delivered_bytes_total")]
    assert max(float(values[name]) for name in delivered) > 0
    assert (f"datapath_link_queue_bytes{forward}" in values) == (visited.kind == "emulated")


@pytest.mark.parametrize("width", [80, 140])
def test_top_fits_the_terminal(
    visited: Visited,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    """With all columns, which on a narrow one stand in two lines."""
    monkeypatch.setenv("COLUMNS", str(width))
    lines = answer(capfd, "top", "-n", "1").splitlines()
    assert max(map(len, lines)) <= width
    first = next(number for number, line in enumerate(lines) if line.startswith("program"))
    heads = lines[first].split() + (lines[first + 1].split() if width == 80 else [])
    assert heads == [column.heading for column in top._QP_COLUMNS.values()]
    assert any(line.startswith("dp-traffic") for line in lines[first:])


def test_capture_to_a_file(
    visited: Visited, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also of AF_XDP's packets, where the middle forwards; both ways."""
    file = tmp_path / "host0.pcap"
    run = ["--run", str(visited.pid)]
    answer(capfd, "capture", *run, "host0", "-w", str(file), "-c", "200", "-s", "9000")
    packets = list(capture.read(file))
    assert len(packets) == 200
    assert {packet.src for packet in packets} == {"198.18.0.1", "198.18.0.2"}
    if visited.kind == "forwarded":
        assert {packet.name.split()[0] for packet in packets} & {"WRITE", "SEND", "ACKNOWLEDGE"}
        assert not [flaw for packet in packets for flaw in packet.flaws]
    else:
        assert {packet.opcode & 0xC0 for packet in packets} == {0xC0}


def test_a_capture_that_cannot_begin_leaves_the_file(
    visited: Visited, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "host0.pcap"
    file.write_text("an older one")
    run = ["--run", str(visited.pid)]
    assert main(["capture", *run, "host0", "-w", str(file), "--filter", "udp prt 4791"]) != 0
    assert "syntax error" in capfd.readouterr().err
    assert file.read_text() == "an older one"


def test_a_file_has_the_headers_or_all(
    visited: Visited, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, run = tmp_path / "host0.pcap", ["--run", str(visited.pid)]
    for options, longest in ((["-s", "0"], 1000), ([], 256), (["-s", "64"], 64)):
        answer(capfd, "capture", *run, "host0", "-w", str(file), "-c", "50", *options)
        kept = max(len(record.data) for record in files.records(file))
        assert kept > longest if options == ["-s", "0"] else kept == longest
    assert main(["capture", *run, "host0", "-w", str(file), "-s", "63"]) == 2
    assert "-s 63 leaves no headers" in capfd.readouterr().err


def test_capture_decoded(visited: Visited, capfd: pytest.CaptureFixture[str]) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    assert main(["capture", "--run", str(visited.pid), "host0", "-c", "20"]) == 0
    out, err = capfd.readouterr()
    assert "AF_XDP" not in err  # the capture sees all packets of either run
    assert "Malformed" not in out
    assert "limited" not in out
    lines = out.splitlines()
    assert len(lines) == 20
    protocol = "RoCEv2-X" if visited.kind == "emulated" else "RRoCE"
    assert all(protocol in line for line in lines), out


# ---- programs of dpctl exec ---------------------------------------------------------------

PINGPONG = """\
ip link set lo up
side() { dpctl exec --device dp0=udp:$1 -- ibv_rc_pingpong -d dp0 -g 0 -n 1000000000 $2; }
dpctl() { "$PYTHON" -P -m datapath.cli "$@"; }
side 127.0.0.2 &
until side 127.0.0.3 127.0.0.1; do sleep 0.2; done
"""


@pytest.fixture
def pingpong() -> Iterator[list[int]]:
    """Both sides of a program that goes on, in a network of their own; their PIDs."""
    process = subprocess.Popen(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", PINGPONG],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT), "PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            assert process.poll() is None
            rows = top.sample(None, family=process.pid).qps.values()
            if len(busy := sorted(row["pid"] for row in rows if row.get("delivered_bytes"))) == 2:
                break
            time.sleep(0.2)
        else:
            pytest.fail("no traffic after two minutes")
        yield busy
    finally:
        process.kill()
        process.wait()


def test_programs_of_exec_are_visited(
    pingpong: list[int], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their own network, without a run."""
    pid = str(pingpong[0])
    programs = told("ps", answer(capfd, "ps", "--format", "json"))["programs"]
    assert [row["program"] for row in programs if row["pid"] in pingpong] == ["ibv_rc_pingpong"] * 2
    out = answer(capfd, "shell", pid, "--", "sh", "-c", "cat /proc/net/dev; exit 7", code=7)
    assert [line.split(":")[0].strip() for line in out.splitlines()[2:]] == ["lo"]
    (row,) = told("top", answer(capfd, "top", pid, "-n", "1", "--format", "ndjson"))["qps"]
    assert row["goodput_bps"] > 0
    assert f'datapath_qp_info{{pid="{pid}"' in answer(capfd, "metrics", pid)
    # By their name, client and server, which share a network here.
    both = told("top", answer(capfd, "top", "ibv_rc_pingpong", "-n", "1", "--format", "json"))
    assert {row["pid"] for row in both["qps"]} == set(pingpong)
    answer(capfd, "shell", "ibv_rc_pingpong", "--", "test", "-d", f"/proc/{pid}")
    elsewhere = {int(pid): "net:[1]"}
    with monkeypatch.context() as patch:
        patch.setattr(processes, "network", lambda each: elsewhere.get(each, "net:[2]"))
        assert main(["shell", "ibv_rc_pingpong", "true"]) == 2
    assert "ibv_rc_pingpong runs more than once" in capfd.readouterr().err
    if shutil.which("tshark") is not None:
        lines = answer(capfd, "capture", pid, "-c", "20").splitlines()
        assert len(lines) == 20
        assert all("127.0.0.2" in line and "127.0.0.3" in line for line in lines)


def test_a_capture_on_all_devices_is_read(
    pingpong: list[int], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "capture.pcap"
    answer(capfd, "capture", str(pingpong[0]), "-w", str(file), "-c", "20", "-s", "0")
    assert {record.link for record in files.records(file)} == {276}
    packets = list(capture.read(file))
    assert len(packets) == 20
    assert {packet.src for packet in packets} == {"127.0.0.2", "127.0.0.3"}


def started(*argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "datapath.cli", *argv],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def test_a_capture_in_a_pipe(pingpong: list[int], tmp_path: Path) -> None:
    """`-w -` has no file but stdout; a reader that goes is told by the exit code."""
    capturing = started("capture", str(pingpong[0]), "-w", "-", "-c", "20")
    file = tmp_path / "capture.pcap"
    file.write_bytes(capturing.communicate(timeout=60)[0])
    assert len(list(files.records(file))) == 20
    assert not Path("-").exists()
    for options in (["-w", "-"], []):
        if options or shutil.which("tshark") is not None:
            with started("capture", str(pingpong[0]), *options) as capturing:
                assert capturing.stdout is not None
                capturing.stdout.read(10)
                capturing.stdout.close()
                assert capturing.wait(60) == 128 + signal.SIGPIPE


def test_nothing_to_visit(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "--run", str(os.getpid()), "host0", "true"]) == 2
    assert f"process {os.getpid()} has no run" in capfd.readouterr().err


def test_a_rate_needs_two_counts_that_belong_together() -> None:
    """A QP that was made in between, or a path that was set anew, has no rate yet."""
    key = (1, "dp0", 7)
    row = {"pid": 1, "program": "x", "device": "dp0", "qpn": 7, "delivered_bytes": 1000}
    before = top.Sample(0.0, {key: row}, {(1, "forward"): {"passed": 500}})
    now = top.Sample(2.0, {key: {**row, "delivered_bytes": 6000}}, {(1, "forward"): {"passed": 9}})
    rows = top.between(before, now)
    assert rows["qps"][0]["goodput_bps"] == 20_000
    assert rows["links"][0]["passed_pps"] is None
    assert top.between(top.Sample(1.0), now)["qps"][0]["goodput_bps"] is None


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_columns_stay_where_they_are(width: int) -> None:
    """While numbers get longer and shorter; all are there at any width."""

    def shown(number: float | None) -> list[str]:
        row = dict.fromkeys(top._QP_COLUMNS, number) | {"cc": "vpc", "device": "dp0"}
        links = [dict.fromkeys(top._LINK_COLUMNS, number) | {"run": 4711, "link": "forward"}]
        qps = [row | {"program": "dp-traffic", "pid": 123456, "qpn": 2**24 - 1}]
        return list(top.table({"qps": qps, "links": links, "silent": []}, width))

    few, many = shown(None), shown(1234567.0)
    assert max(map(len, few + many)) <= width
    heads = [number for number, line in enumerate(many) if not re.search(r"\d", line)]
    assert [few[number] for number in heads] == [many[number] for number in heads]
    assert len(few) == len(many)
    assert {"retr.", "rate", "marked", "device"} <= set(" ".join(many).split())
