# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""After the set-up nothing needs a network: dpctl where there is a loopback device alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from datapath.native import paths

pytestmark = pytest.mark.usefixtures("root")

LIVE = """\
version: 1
name: offline
topology: {lane: netns}
path: {backend: fabric, rate: 100mbit, delay: 1ms}
transport: {port: udp}
workload: {kind: stream, size: 32KiB, depth: 8, duration: 200ms}
sweep: {repetitions: 2, matrix: {cc.algo: [vpc, cubic]}}
report: {plots: [{kind: bar, metric: goodput, x: cc.algo}]}
"""


def offline(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line of shell; `dpctl` is that of the tree."""
    whole = f'ip link set lo up; dpctl() {{ "{paths.ROOT}/dpctl" "$@"; }}; {line}'
    return subprocess.run(
        ["unshare", "--net", "bash", "-euc", whole], cwd=cwd, capture_output=True, text=True
    )


def test_an_experiment_and_what_is_made_of_it(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(LIVE)
    done = offline(
        "dpctl validate x.yaml; dpctl run x.yaml --out a; dpctl show a; dpctl report a --plots svg;"
        "dpctl compare a a; dpctl compare --repetitions 1 --out b . . -- x.yaml",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "x.yaml: valid: 2 points, 4 runs" in done.stdout
    assert (tmp_path / "a" / "report.html").exists()
    assert "All 4 runs succeeded" in done.stdout
    assert done.stdout.count("too few runs") > 1


def test_a_kernel_tells_that_it_comes_from_the_network(tmp_path: Path) -> None:
    """With what was wrong, and what to do."""
    done = offline(f"XDG_CACHE_HOME={tmp_path} dpctl kernel install 6.1", tmp_path)
    assert done.returncode == 3
    assert "Failed to fetch" in done.stderr
    assert "hint: check the network" in done.stderr
