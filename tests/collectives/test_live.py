# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""libdpcoll among processes on loopback: right results, and an end when a peer is gone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath.collectives import Plan, check, load, make
from datapath.native import paths
from datapath.verbs.launch import device_environment
from tests.verbs.devices import sanitizer

pytestmark = pytest.mark.san

PATIENCE_S = 120
ITEM_BYTES = {"int8": 1, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2}
ITEM_BYTES |= {"float32": 4, "float64": 8}


class Job:
    """One process for each rank, each with a loopback address of its own."""

    def __init__(self, folder: Path, plan: Plan, *words: str, ranks: int | None = None) -> None:
        self.folder = folder
        file, token = folder / "plan", folder / "token"
        plan.write(file)
        token.write_text("a secret of this test\n")
        base = sanitizer()
        # Leaks are looked for where nothing of others is in the process.
        base |= {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0:exitcode=99"}
        port = 20000 + os.getpid() % 20000
        self.processes = []
        for rank in range(plan.ranks if ranks is None else ranks):
            spec = f"udp:127.0.{1 + os.getpid() % 200}.{1 + rank}"
            argv = [paths.collective_program(), "--rank", rank, "--ranks", plan.ranks]
            argv += ["--device", "dp0", "--store", "127.0.0.1", "--store-port", port]
            argv += ["--token", token, "--plan", file, "--report", folder / f"report-{rank}"]
            argv += ["--record", folder / f"record-{rank}", *words]
            with (folder / f"err-{rank}").open("w") as err:
                self.processes.append(
                    subprocess.Popen(
                        [str(word) for word in argv],
                        env={**os.environ, **base, **device_environment("dp0", spec, base=base)},
                        stderr=err,
                    )
                )

    def statuses(self) -> list[int]:
        """Of all ranks; one that hangs fails the test by TimeoutExpired."""
        return [process.wait(PATIENCE_S) for process in self.processes]

    def error(self, rank: int) -> str:
        return (self.folder / f"err-{rank}").read_text()

    def times(self, rank: int) -> list[int]:
        return [int(line) for line in (self.folder / f"report-{rank}").read_text().split()]

    def until_running(self) -> None:
        """Until each rank has ended some collectives."""
        begin = time.monotonic()
        while time.monotonic() < begin + PATIENCE_S:
            if all(self.record_grows(rank) for rank in range(len(self.processes))):
                return
            time.sleep(0.05)
        pytest.fail("the ranks do not run")

    def record_grows(self, rank: int) -> bool:
        path = self.folder / f"report-{rank}"
        return path.is_file() and path.stat().st_size > 4096

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.close()


def planned(name: str, ranks: int, items: int, type_: str = "float32", **more: object) -> Plan:
    item = ITEM_BYTES[type_]
    unit = item * ranks
    size = -(-items * item // unit) * unit
    return check(make(load(name), ranks, size, item_bytes=item, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ranks", "type_", "op"),
    [
        ("ring", 4, "float32", "sum"),
        ("halving_doubling", 3, "bfloat16", "max"),
        ("double_tree", 4, "float16", "sum"),
        ("two_level", 4, "int32", "min"),
        ("ring_allgather", 3, "int64", "sum"),
        ("ring_reduce_scatter", 3, "float64", "product"),
        ("pairwise", 3, "int8", "sum"),
        ("tree", 3, "int32", "sum"),
        ("chain", 2, "float32", "sum"),
        ("reduce_tree", 3, "int32", "sum"),
        ("reduce_chain", 3, "float32", "max"),
        ("gather_tree", 4, "int32", "sum"),
        ("scatter_tree", 4, "int8", "sum"),
    ],
)
def test_collectives_give_what_they_should(
    jobs: list[Job], tmp_path: Path, name: str, ranks: int, type_: str, op: str
) -> None:
    """The program compares the first one with what it should be."""
    plan = planned(name, ranks, 5000, type_, transfer_bytes=1024, channels=2)
    words = ["--type", type_, "--op", op, "--iterations", "3", "--warm-up", "1"]
    job = Job(tmp_path, plan, *words, "--silence-ms", "20000")
    jobs.append(job)
    assert job.statuses() == [0] * ranks, [job.error(rank) for rank in range(ranks)]
    for rank in range(ranks):
        times = job.times(rank)
        assert len(times) == 4
        assert times == sorted(times)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_peer_that_is_gone_ends_the_collective_everywhere(
    jobs: list[Job], tmp_path: Path, how: signal.Signals
) -> None:
    """Every rank that is left names the rank, the collective, the QP and what was seen."""
    job = Job(tmp_path, planned("ring", 4, 1000), "--iterations", "10000000")
    jobs.append(job)
    job.until_running()
    job.processes[2].send_signal(how)
    for rank in (0, 1, 3):
        assert job.processes[rank].wait(PATIENCE_S) == 1
        told = job.error(rank)
        assert re.search(r"rank 2 is gone: rank \d, allreduce \d+, ", told), told
        assert re.search(r"QP 0x[0-9a-f]+", told), told
        assert re.search(r"no sign of life for \d+ ms|retry counter exceeded|Flushed", told), told
    assert "farewell" in (tmp_path / "record-0").read_text()


def test_ranks_that_do_not_come_are_named(jobs: list[Job], tmp_path: Path) -> None:
    job = Job(tmp_path, planned("ring", 4, 1000), "--meet-ms", "1500", ranks=2)
    jobs.append(job)
    assert job.statuses() == [1, 1]
    assert "these ranks have not come" in job.error(0)
    assert " 2 3" in job.error(0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "this is no plan"),
        (lambda data: b"x" + data[1:], "this is no plan"),
        (lambda data: data[:88] + b"\xff" * 8 + data[96:], "row 0 of the plan makes no sense"),
        (lambda data: data[:-4] + b"\xff" * 4, r"wait \d+ of the plan makes no sense"),
    ],
)
def test_plans_that_are_none_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    (tmp_path / "plan").write_bytes(damage(planned("ring", 2, 100).to_bytes()))
    (tmp_path / "token").write_text("a secret\n")
    argv = [paths.collective_program(), "--rank", 0, "--ranks", 2, "--device", "dp0"]
    argv += ["--store", "127.0.0.1", "--token", tmp_path / "token", "--plan", tmp_path / "plan"]
    argv += ["--report", tmp_path / "report"]
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert re.search(message, done.stderr), done.stderr
