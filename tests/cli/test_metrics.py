# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl metrics` and `dpctl exec --metrics`, of real QPs, read by HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from datapath.cli import main, metrics, top
from datapath.native import paths
from tests.verbs.devices import PROGRAMS, PYTHON

PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:]
from pair import pair
a, b = pair()
print("made", flush=True)
sys.stdin.read()
"""
LINE = re.compile(r'^([a-z_]+)\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)*)\} (\S+)$')


def parsed(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Metric -> (labels, value); each line is a comment or a value, types come first."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    types: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            if kind == "TYPE":
                assert name not in types
                types[name] = rest
            continue
        match = LINE.match(line)
        assert match, line
        labels = dict(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', match[2]))
        assert types[match[1]] == ("counter" if match[1].endswith("_total") else "gauge")
        found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def fetched(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
        return str(answer.read().decode())


def test_exec_serves_its_program_until_it_ends() -> None:
    port = free_port()
    argv = ["exec", "--device", "dp0=udp:127.0.0.1", "--metrics", str(port), "--"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "datapath.cli", *argv, PYTHON, "-c", PROGRAM, str(PROGRAMS)],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        found = parsed(fetched(port))
        assert {labels["pid"] for labels, _ in found["datapath_qp_info"]} == {str(process.pid)}
        assert len(found["datapath_qp_info"]) == 2
        assert all(labels["device"] == "dp0" for labels, _ in found["datapath_qp_cwnd_bytes"])
        assert all(value > 0 for _, value in found["datapath_qp_cwnd_bytes"])
        assert "datapath_link_passed_packets_total" not in found
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=60)
    finally:
        process.kill()
        process.communicate()
    for _ in range(600):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    pytest.fail("the port is served a minute after the end of the program")


def test_serving_ends_by_a_signal_without_a_word() -> None:
    argv = ["-P", "-m", "datapath.cli", "metrics", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, *argv],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    where = re.fullmatch(r"http://127.0.0.1:(\d+)/metrics\n", process.stderr.readline())
    assert where
    fetched(int(where[1]))
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == ""
    assert process.returncode == 130


def test_a_program_that_is_not_there_is_told_until_it_comes() -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "datapath.cli", "metrics", "no-such-prog", "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        where = process.stderr.readline().strip()
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError, match="503") as caught:
                urllib.request.urlopen(where, timeout=60)
            assert caught.value.read() == b"no program no-such-prog has a device of ours open\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == ""
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        argv = ["exec", "--device", "dp0=udp:127.0.0.1", "--metrics", port, "--", "true"]
        assert main(argv) == 2
        assert f"cannot serve metrics on 127.0.0.1 port {port}" in capsys.readouterr().err
        assert main(["metrics", "--port", port]) == 2


ROW = {"pid": 1, "program": 'a "b\\\n', "device": "dp0", "qpn": 7, "cc": "vpc", "srtt_ns": 2e6,
       "delivered_bytes": 3e9, "cwnd_bytes": 4096.0, "pacing_rate_bps": 0.0, "min_rtt_ns": 1e6,
       "inflight_bytes": 0.0, "sent_packets": 5, "retransmitted_packets": 1,
       "marked_packets": 2}  # fmt: skip
LINK = {"passed": 9, "dropped": 1, "overflowed": 2, "policed": 0, "aqm_dropped": 0, "shaped": 4,
        "starved": 0, "marked": 3, "queue_bytes": 1500}  # fmt: skip


def test_the_format() -> None:
    taken = top.Sample(0.0, {(1, "dp0", 7): dict(ROW)}, {(42, "forward"): dict(LINK)})
    found = parsed(metrics.text(taken))
    ((labels, value),) = found["datapath_qp_rtt_seconds"]
    assert labels["program"] == 'a \\"b\\\\\\n'
    assert value == pytest.approx(0.002)
    ((labels, value),) = found["datapath_qp_info"]
    assert (labels["cc"], value) == ("vpc", 1)
    drops = {
        labels["cause"]: value for labels, value in found["datapath_link_dropped_packets_total"]
    }
    assert (drops["full queue"], drops["shaped class"]) == (2, 4)
    assert found["datapath_link_queue_bytes"] == [({"run": "42", "link": "forward"}, 1500)]
    assert metrics.text(top.Sample(0.0)) == ""


def test_labels_from_other_processes_can_be_read() -> None:
    """They may hold halves of characters, which no text in UTF-8 has, and control characters."""
    taken = top.Sample(0.0, {}, {(42, "a\ud800\x00"): dict(LINK)})
    found = parsed(metrics.text(taken).encode().decode())
    ((labels, _),) = found["datapath_link_queue_bytes"]
    assert labels == {"run": "42", "link": r"a\\ud800\\x00"}


def test_the_dashboard_asks_for_what_there_is() -> None:
    """Every metric but three has a panel, and no panel asks in vain."""
    taken = top.Sample(0.0, {(1, "dp0", 7): dict(ROW)}, {(42, "forward"): dict(LINK)})
    there = parsed(metrics.text(taken))
    dashboard = json.loads((Path(paths.ROOT) / "docs" / "grafana.json").read_text())
    asked: set[str] = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"datapath_[a-z_]+", target["expr"]))
            asked |= names
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert all(label in there[name][0][0] for name in names), (names, label)
    unasked = {
        "datapath_qp_info",
        "datapath_qp_min_rtt_seconds",
        "datapath_qp_marked_packets_total",
    }
    assert asked == set(there) - unasked
