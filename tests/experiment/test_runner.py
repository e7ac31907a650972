# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whole runs of dpctl on real networks: failures, time-outs, signals, kill -9, resumption."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from datapath.processes import program
from tests.cli.server import dpctl
from tests.cli.told import told
from tests.processes import alive, descendants
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

ROOT = Path(__file__).resolve().parents[2]
PING = """\
version: 1
name: short
transport: {port: udp}
workload: {kind: perftest, test: send_lat, size: 64, iterations: 50}
sweep:
  matrix: {path.loss: [0, 2%], transport.port: [udp, afxdp]}
  repetitions: 2
report:
  expect:
    - {metric: latency_p50, where: {path.loss: 0}, max: 1s}
"""
COUNT = """
BPF_ARRAY(packets, u64, 1);
int count(struct xdp_md *ctx) { packets.increment(0); return XDP_PASS; }
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "datapath.cli", *map(str, arguments)]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))]


def events(folder: Path) -> list[str]:
    text = (folder / "events.ndjson").read_text()
    return [json.loads(line)["event"] for line in text.splitlines()]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: str = PING, **replaced: str) -> Path:
        for old, new in replaced.items():
            text = text.replace(f"<{old}>", new)
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        return path

    return written


def test_a_sweep_leaves_everything_that_is_promised(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = dpctl("run", write(), "--out", out, "--format", "json")
    assert done.returncode == 0, done.stderr
    summary = told("run", done.stdout)
    assert (summary["runs"], summary["failed_runs"]) == (8, 0)
    assert [claim["pass"] for claim in summary["claims"]] == [True]
    assert (out / "experiment.yaml").read_text() == PING
    assert (out / "report.html").stat().st_size > 1000
    frame = pd.read_parquet(out / "runs.parquet")
    assert set(frame["transport.port"]) == {"udp", "afxdp"}
    p50 = frame[frame["metric"] == "latency_p50"]
    assert len(p50) == 8
    assert (p50["value"] > 0).all()
    lossy = frame[(frame["metric"] == "path_passed") & (frame["path.loss"] == "2%")]
    assert (lossy["value"] > 50).all()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["runs_planned"] == 8
    assert manifest["machine"]["kernel"] == os.uname().release
    assert len(manifest["networks"]) == 1
    assert len(list((out / "samples").glob("*.parquet"))) == 8
    assert all(record["device"] for record in records(out))
    assert events(out).count("network up") == 1
    assert events(out)[-1] == "finished"


def test_a_failed_run_is_recorded_and_the_sweep_goes_on(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    # Forward traffic of one point is lost altogether: that QP must give up.
    text = PING.replace("[0, 2%]", "[0, 100%]").replace("[udp, afxdp]", "[udp]")
    text = text.replace("repetitions: 2", "repetitions: 1\n  timeout: 20s")
    out = tmp_path / "out"
    done = dpctl("run", "--no-report", write(text), "--out", out)
    assert done.returncode == 1, done.stderr
    assert "1 of 2 runs failed" in done.stderr
    assert f"report: dpctl report {out}" in done.stdout
    assert not (out / "report.html").exists()
    by_loss = {record["axes"]["path.loss"]: record for record in records(out)}
    assert by_loss["0"]["status"] == "ok"
    assert by_loss["100%"]["status"] == "failed"
    assert by_loss["100%"]["error"]["message"]
    assert by_loss["100%"]["metrics"] == []
    (path,) = (out / "logs").glob("*/path.json")  # of the failed run alone
    assert json.loads(path.read_text())["dropped"]["forward"] > 0
    for host in ("host0", "host1"):
        said = (path.parent / f"devices-{host}.txt").read_text()
        assert "eth1" in said
        assert "NIC statistics" in said
    frame = pd.read_parquet(out / "runs.parquet")
    assert frame[frame["status"] == "failed"]["metric"].isna().all()
    # Only what failed is made again.
    begun = events(out).count("run started")
    assert dpctl("run", "--no-report", "--resume", out).returncode == 1
    assert events(out).count("run started") == begun + 1


def test_a_run_that_takes_too_long_is_ended(write: Callable[..., Path], tmp_path: Path) -> None:
    text = PING.replace("iterations: 50", "iterations: 50000000").replace("[0, 2%]", "[0]")
    text = text.replace("[udp, afxdp]", "[udp]").replace(
        "repetitions: 2", "repetitions: 1\n  timeout: 2s"
    )
    out = tmp_path / "out"
    done = dpctl("run", "--no-report", write(text), "--out", out)
    assert done.returncode == 1
    (record,) = records(out)
    assert record["status"] == "failed"
    assert "2 s" in record["error"]["message"]


TCP = """\
version: 1
name: tcp
transport: {device: kernel}
cc: {tcp: ./hold.bpf.c}
workload: {kind: iperf3, duration: 1s}
sweep: {repetitions: 1}
"""
HOLD = """\
#include "vmlinux.h"
__attribute__((section(".struct_ops"), used)) struct tcp_congestion_ops hold = { .flags = 1 };
"""


def test_a_failure_of_several_lines_is_told(write: Callable[..., Path], tmp_path: Path) -> None:
    """In one line beside others, whole at the end, with what to do."""
    path = write(TCP)
    (path.parent / "hold.bpf.c").write_text(HOLD)
    done = dpctl("run", path, "--out", tmp_path / "out", "--no-report")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert any(re.fullmatch(r"error: .*hold\.bpf\.c: hold has no \.ssthresh, .*", x) for x in lines)
    assert "hint: datapath/cc/tcp/dp_copa.bpf.c" in done.stderr
    (line,) = [line for line in lines if "FAILED" in line]
    for said in (line, " ".join(done.stdout.split())):
        assert re.search(r"would know it; .*hold\.bpf\.c: hold has no \.ssthresh", said)
    assert "\\n" not in done.stdout + done.stderr


SLOW_NETWORK = """
import signal, sys
from datapath.cli import main
from datapath.lanes.netns import NetnsNetwork
build = NetnsNetwork._build
def timed(self):
    build(self)
    print("left:", signal.getitimer(signal.ITIMER_REAL)[0])
NetnsNetwork._build = timed
sys.exit(main(sys.argv[1:]))
"""


def test_the_network_is_not_made_in_the_time_of_a_run(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    """No alarm is set meanwhile: guests may need longer to boot than a run may take."""
    text = PING.replace("[0, 2%]", "[0]").replace("[udp, afxdp]", "[udp]")
    arguments = ["run", "--no-report", write(text), "--out", tmp_path / "out", "--repetitions", 1]
    argv = [sys.executable, "-c", SLOW_NETWORK, *map(str, arguments)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    assert "left: 0.0" in done.stdout


def test_the_users_xdp_program_counts(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "count.c").write_text(COUNT)
    text = PING.replace("[0, 2%]", "[0]").replace("[udp, afxdp]", "[udp]")
    text = text.replace("sweep:", "xdp: {source: count.c, hook: middle-forward}\nsweep:")
    out = tmp_path / "out"
    done = dpctl("run", "--no-report", write(text), "--out", out, "--repetitions", 1)
    assert done.returncode == 0, done.stderr
    (record,) = records(out)
    assert int(record["xdp_maps"]["packets"]["0"]) >= 50


def test_two_at_once_do_not_disturb_each_other(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write()
    both = [
        subprocess.Popen(
            command("run", "--no-report", path, "--out", tmp_path / f"out{i}", "--repetitions", 1),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    for process in both:
        _, said = process.communicate(timeout=150)
        assert process.returncode == 0, said
    assert [len(records(tmp_path / f"out{i}")) for i in range(2)] == [4, 4]


# --- ends -------------------------------------------------------------------------------------


def namespaces(pids: set[int]) -> set[str]:
    """Network namespaces that these processes are in, other than ours."""
    found = set()
    for pid in pids:
        try:
            found.add(str(Path(f"/proc/{pid}/ns/net").readlink()))
        except OSError:
            continue
    return found - {str(Path("/proc/self/ns/net").readlink())}


def all_namespaces() -> set[str]:
    return namespaces({int(path.name) for path in Path("/proc").glob("[0-9]*")})


SLOW = """\
version: 1
name: slow
path: {rate: 100mbit, delay: 1ms}
transport: {port: udp}
workload: {kind: stream, size: 32KiB, depth: 4, duration: 500ms}
sweep: {repetitions: 1, retakes: <retakes>}
"""


@pytest.mark.parametrize("retakes", [0, 20])
def test_a_run_without_the_network_that_was_asked_for_is_made_again(
    write: Callable[..., Path], tmp_path: Path, retakes: int
) -> None:
    """The emulator is stopped for most of the time, until a run has been made again."""
    folder = tmp_path / "out"
    with subprocess.Popen(
        command("run", "--no-report", write(SLOW, retakes=str(retakes)), "--out", folder),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    ) as process:
        until = "run retaken" if retakes else "run finished"
        while process.poll() is None:
            disturb(process.pid)
            if (folder / "events.ndjson").exists() and until in events(folder):
                break
        assert process.wait(150) == 0
    (record,) = records(folder)
    made_again = int(record["notes"].get("retakes", 0))
    seen = events(folder)
    assert seen.count("run retaken") == made_again
    assert seen.count("run started") == made_again + 1
    assert seen.count("run finished") == 1
    assert record["notes"].get("path", "").startswith("CPU-limited") == (made_again == retakes)
    assert (made_again > 0) == (retakes > 0)
    # Nothing of the attempts that do not count is in what does.
    assert len(record["device"]) == 2


POLLING = """\
version: 1
name: polling
topology: {scheduling: <scheduling>}
transport: {port: udp}
workload: {kind: perftest, test: write_bw, size: 64KiB, duration: 1s}
sweep: {repetitions: 1, retakes: 1, timeout: 200s}
"""


def test_a_run_that_had_no_cpu_is_made_again(write: Callable[..., Path], tmp_path: Path) -> None:
    """Its programs want both CPUs all the time, and so does somebody else."""
    out = tmp_path / "out"
    with subprocess.Popen(
        command("run", "--no-report", write(POLLING, scheduling="ordinary"), "--out", out),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # Only while perftest runs: setting a network up beside the others would take minutes.
        while process.poll() is None:
            if polls(process.pid):
                with others_on_all_cpus():
                    while polls(process.pid):
                        time.sleep(0.05)
            time.sleep(0.05)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    (record,) = records(out)
    assert record["notes"]["cpu"].startswith("CPU-starved: the programs ran for")
    assert record["notes"]["cpu"] in said
    assert record["notes"]["retakes"] == "1"
    assert events(out).count("run retaken") == 1
    metrics = {metric["name"]: metric for metric in record["metrics"]}
    assert metrics["cpu_starved"]["value"] == 1
    assert metrics["cpu_waited"]["unit"] == "s"
    assert metrics["cpu_waited"]["value"] > 0.5
    # What keeps the CPUs awake is no program of the run.
    used = metrics["cpu_user"]["value"] + metrics["cpu_system"]["value"]
    assert used < metrics["cpu_waited"]["value"] * 2


def polls(pid: int) -> bool:
    return "ib_write_bw" in map(program, descendants(pid))


@contextlib.contextmanager
def others_on_all_cpus() -> Iterator[None]:
    """Two programs on each CPU that never sleep."""
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    alone = ["setpriv", "--pdeathsig=KILL", "taskset", "-c"]
    others = [
        subprocess.Popen([*alone, str(cpu), *spin], start_new_session=True)
        for cpu in sorted(os.sched_getaffinity(0))
        for _ in range(2)
    ]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_machine_without_the_privilege_says_so_once(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    text = PING.replace("[0, 2%]", "[0]") + "topology: {scheduling: realtime}\n"
    text = text.replace("transport.port: [udp, afxdp]", "topology.mtu: [1500, 9000]")
    text = text.replace("repetitions: 2", "repetitions: 1")
    done = subprocess.run(
        [
            "setpriv",
            "--bounding-set=-sys_nice",
            *command("run", "--no-report", write(text), "--out", out),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    told = "note: no realtime scheduling of programs: Operation not permitted"
    assert done.stderr.count(told) == 1
    networks = json.loads((out / "manifest.json").read_text())["networks"]
    assert len(networks) == 2
    for network in networks:
        assert network["cpu"]["scheduling"] in ("short-slice", "ordinary")
        assert network["cpu"]["trouble"]


def disturb(pid: int) -> None:
    """Stop the emulator below a process for a while, if there is one."""
    found = []
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if program(child) == "dp_fabric":
                os.kill(child, signal.SIGSTOP)
                found.append(child)
    time.sleep(0.03)
    for child in found:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGCONT)
    time.sleep(0.01)


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(write: Callable[..., Path], tmp_path: Path) -> Iterator[Start]:
    """start(): four runs into the folder out.  start("--resume"): what is left of them."""
    begun: list[subprocess.Popen[str]] = []

    def started(*words: str) -> subprocess.Popen[str]:
        out = tmp_path / "out"
        what = [*words, out] if words else [write(), "--out", out, "--repetitions", 1]
        # Who runs the tests may ignore signals, as nohup does, and children inherit that.
        process = subprocess.Popen(
            ["env", "--default-signal=INT,TERM,HUP", *command("run", "--no-report", *what)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield started
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_cleanly_and_the_rest_can_be_resumed(
    start: Start, tmp_path: Path, signum: signal.Signals
) -> None:
    """All three leave the same folder; one of them is gone on with."""
    out = tmp_path / "out"
    started = start()
    wait_until(lambda: len(list((out / "runs").glob("[0-9a-f]*.json"))) >= 1, "no run finished")
    below = descendants(started.pid)
    spaces = namespaces(below)
    started.send_signal(signum)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert f"error: interrupted by {signum.name}" in said
    assert f"hint: go on with: dpctl run --resume {out}" in said
    assert alive(below) == {}
    wait_until(lambda: not spaces & all_namespaces(), "a network namespace is left")
    assert events(out).count("interrupted") == 1
    if signum != signal.SIGINT:
        return
    # One that failed is made again: perftest fails on a machine that takes its CPU away.
    finished = {record["started"] for record in records(out) if record["status"] == "ok"}
    done = dpctl("run", "--no-report", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert finished < {record["started"] for record in records(out)}
    assert len(records(out)) == 4


def test_kill_9_leaves_nothing_and_the_rest_can_be_resumed(start: Start, tmp_path: Path) -> None:
    """Also when what goes on is killed in turn."""
    out = tmp_path / "out"
    chance = random.Random(0)
    finished: set[str] = set()
    for _ in range(int(os.environ.get("DATAPATH_KILLS", "3"))):
        started = start("--resume") if out.exists() else start()
        wait_until(lambda: (out / "events.ndjson").exists(), "the run did not begin")
        time.sleep(chance.uniform(0, 3))
        below = descendants(started.pid)
        spaces = namespaces(below)
        started.kill()
        started.communicate()
        wait_until(lambda: not alive(below), f"left after kill -9: {alive(below)}")  # noqa: B023
        wait_until(lambda: not spaces & all_namespaces(), "a network namespace is left")  # noqa: B023
        before, finished = finished, {record["started"] for record in records(out)}
        assert before <= finished
    done = dpctl("run", "--no-report", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert len(records(out)) == 4
    assert finished <= {record["started"] for record in records(out)}
