# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the device promises of itself can be had, in one process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.verbs.devices import PROGRAMS, environment

QPS = 10_000
QUEUES_BYTES = 4 * (72 + 16) + 4 * (16 + 16)  # entries of both queues, each with one SGE
SWITCHES_MAX = 20  # in two seconds, of all threads
IDLE_BYTES_MAX = 1024
"""struct ibv_qp of verbs.h is 160 bytes of it, the engine's share 664."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("limits") / "limits"
    strict = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]
    source = PROGRAMS / "limits.c"
    subprocess.run(["gcc", *strict, "-o", path, source, "-libverbs"], check=True)
    return path


def run(program: Path, *arguments: str) -> str:
    # At an address of its own: a process that comes to a shared one or leaves it wakes the others.
    done = subprocess.run(
        [str(program), *arguments],
        env={**os.environ, **environment("udp:127.0.88.1")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_ten_thousand_queue_pairs(program: Path) -> None:
    """All are connected and move data; an idle one costs little beside its queues."""
    each, count = map(int, run(program, "qps", str(QPS)).split())
    assert count == QPS
    assert each < QUEUES_BYTES + IDLE_BYTES_MAX


def test_idle_queue_pairs_wake_nobody(program: Path) -> None:
    """No timer runs for a connection on which nothing is outstanding."""
    cpu_us, switches = map(int, run(program, "idle", "1000").split())
    assert switches < SWITCHES_MAX
    assert cpu_us < 2_000_000 / 100


def test_a_million_work_requests(program: Path) -> None:
    assert int(run(program, "requests")) == 2**20


def test_a_region_of_many_gibibytes(program: Path) -> None:
    assert run(program, "region", "4") == "the end"
