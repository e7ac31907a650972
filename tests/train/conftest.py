# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""PyTorch, and jobs of ranks on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from datapath.errors import CapabilityError
from datapath.extras import ensure_torch
from datapath.verbs.launch import device_environment

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_S = 500


@pytest.fixture(scope="session", autouse=True)
def _torch() -> None:
    try:
        ensure_torch(print)
    except CapabilityError as error:
        pytest.skip(f"PyTorch cannot be had here: {error}")


class Ranks:
    """The process that ranks are forked from (programs/ranks.py): importing PyTorch takes long."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._server = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAMS / "ranks.py")],
            env=environment(device_environment("dp0", "udp:127.0.0.1")),
            stdin=pipe,
            stdout=pipe,
            text=True,
        )

    def start(self, **rank: object) -> Rank:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(rank) + "\n")
        self._server.stdin.flush()
        return Rank(os.pidfd_open(int(self._server.stdout.readline())))

    def close(self) -> None:
        """After all ranks have ended."""
        self._server.communicate()


class Rank:
    """A process that somebody else waits for."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd

    def wait(self, timeout_s: float) -> None:
        ended, _, _ = select.select([self._pidfd], [], [], timeout_s)
        assert ended, f"a rank runs on after {timeout_s:g} s"

    def kill(self) -> None:
        """Kill it and wait for its end."""
        with contextlib.suppress(ProcessLookupError):  # it has ended, and was waited for
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.wait(PATIENCE_S)
        os.close(self._pidfd)


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Of a rank: more threads would take the machine's few CPUs from each other."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


class Job:
    """A program of tests/train/programs, one process for each rank."""

    def __init__(self, server: Ranks, folder: Path, ranks: int, program: str, *words: str) -> None:
        self.folder = folder
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.ranks = []
        for rank in range(ranks):
            spec = f"udp:127.0.{1 + os.getpid() % 200}.{1 + rank}"
            changes = {
                **device_environment("dp0", spec),
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                **settings(),
            }
            self.ranks.append(
                server.start(
                    program=str(PROGRAMS / program),
                    words=words,
                    environment=environment(changes),
                    folder=str(folder),
                    out=str(folder / f"out-{rank}"),
                )
            )

    def output(self, rank: int) -> str:
        """Of a rank that has ended."""
        self.ranks[rank].wait(PATIENCE_S)
        return (self.folder / f"out-{rank}").read_text()

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()


def settings() -> dict[str, str]:
    """Of backend dp: a busy machine's ranks are silent for longer than others.

    Its plans have channel 0 alone, which so takes the device; tests without these settings have
    ranks that share memory.
    """
    return {"DATAPATH_TRAIN_SILENCE_MS": "20000", "DATAPATH_TRAIN_DEVICE": "dp0,shm"}


@pytest.fixture(scope="module")
def rank_server(_torch: None) -> Iterator[Ranks]:
    server = Ranks()
    yield server
    server.close()


@pytest.fixture
def run_job(rank_server: Ranks, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def start(ranks: int, program: str, *words: str) -> Job:
        made.append(Job(rank_server, tmp_path, ranks, program, *words))
        return made[-1]

    yield start
    for job in made:
        job.close()
