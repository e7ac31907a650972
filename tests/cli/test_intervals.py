# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A single live run tells each second what it does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from datapath.cli.intervals import told
from datapath.cli.top import Sample
from datapath.native import paths


def qp(**numbers: int) -> dict[str, object]:
    return {"program": "p", "cc": "swift", "cwnd_bytes": 65536, "srtt_ns": 20_000, **numbers}


def test_sums_of_the_qps_that_send() -> None:
    before = Sample(1.0, {(1, "dp0", n): qp(delivered_bytes=0) for n in range(3)})
    now = Sample(2.0, dict(before.qps))
    for n in range(2):
        now.qps[1, "dp0", n] = qp(delivered_bytes=125_000_000, retransmitted_packets=n)
    line = told(before, now).replace("\N{NO-BREAK SPACE}", " ")
    assert line == "goodput 2 Gbit/s, RTT 20 µs, cwnd 128 KiB, 1 retransmitted, 2 QPs"


def test_without_qps_the_busiest_link_tells() -> None:
    before = Sample(1.0, {}, {(1, "a"): {"passed": 0}, (1, "b"): {"passed": 0}})
    now = Sample(3.0, {}, {(1, "a"): {"passed": 8, "dropped": 2}, (1, "b"): {"passed": 2}})
    line = told(before, now).replace("\N{NO-BREAK SPACE}", " ")
    assert line == "a carries packets at 4 /s, 2 dropped"
    assert told(now, now) == ""


def test_of_a_real_run(root: None, tmp_path: Path) -> None:
    """It may last for a minute: a second may be told late, or not at all, where CPUs are busy."""
    (tmp_path / "one.yaml").write_text(
        "version: 1\nname: one\ntransport: {device: dp, port: udp}\n"
        "workload: {kind: stream, size: 64KiB, duration: 60s}\nsweep: {repetitions: 1}\n"
    )
    argv = [sys.executable, "-m", "datapath.cli", "run", str(tmp_path / "one.yaml"), "--no-report"]
    told_of_second = re.compile(r"^\d+ to \d+ s: goodput [\d.]+\s[GMk]bit/s, RTT ")
    with subprocess.Popen(
        [*argv, "--out", str(tmp_path / "r")], cwd=paths.ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if told_of_second.match(line):
                process.send_signal(signal.SIGINT)
        assert process.wait() == 130, lines
