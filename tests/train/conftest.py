# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""PyTorch, and jobs of ranks on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
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


class Job:
    """A program of tests/train/programs, one process for each rank."""

    def __init__(self, folder: Path, ranks: int, program: str, *words: str) -> None:
        self.folder = folder
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.processes = []
        for rank in range(ranks):
            spec = f"udp:127.0.{1 + os.getpid() % 200}.{1 + rank}"
            environment = {
                **os.environ,
                **device_environment("dp0", spec),
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                **settings(),
            }
            with (folder / f"out-{rank}").open("w") as out:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", str(PROGRAMS / program), *words],
                        env=environment,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        cwd=folder,
                    )
                )

    def output(self, rank: int) -> str:
        """Of a rank that has ended."""
        self.processes[rank].wait(PATIENCE_S)
        return (self.folder / f"out-{rank}").read_text()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def settings() -> dict[str, str]:
    """Of backend dp: a busy machine's ranks are silent for longer than others.

    Its plans have channel 0 alone, which so takes the device; tests without these settings have
    ranks that share memory.
    """
    return {"DATAPATH_TRAIN_SILENCE_MS": "20000", "DATAPATH_TRAIN_DEVICE": "dp0,shm"}


@pytest.fixture
def run_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def start(ranks: int, program: str, *words: str) -> Job:
        made.append(Job(tmp_path, ranks, program, *words))
        return made[-1]

    yield start
    for job in made:
        job.close()
