# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long survivors take to say who is gone; prints a line for each way of dying.

    .venv/bin/python -m tests.collectives.dead_peers [RUNS]

Four ranks of a ring on loopback; rank 2 gets a signal.  The time is from there until the error of
each of the three others is written.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.collectives.test_live import LIKE_IWARP, Job, planned

WAYS = [
    ("UDP port, killed", "dp0", signal.SIGKILL, ()),
    ("UDP port, stopped", "dp0", signal.SIGSTOP, ()),
    ("shared memory, killed", "shm", signal.SIGKILL, ()),
    ("shared memory, stopped", "shm", signal.SIGSTOP, ()),
    ("RDMA-CM without immediates, killed", "dp0", signal.SIGKILL, LIKE_IWARP),
]


def told_after_s(way: str, how: signal.Signals, words: tuple[str, ...]) -> list[float]:
    """Of each survivor."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = planned("ring", 4, 1000)
        job = Job(folder, plan, "--iterations", "10000000", *words, way=way)
        try:
            job.until_running()
            begin = time.time()
            job.processes[2].send_signal(how)
            others = (0, 1, 3)
            for rank in others:
                job.processes[rank].wait(60)
            return [(folder / f"err-{rank}").stat().st_mtime - begin for rank in others]
        finally:
            job.close()


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for title, way, how, words in WAYS:
        took = [each for _ in range(runs) for each in told_after_s(way, how, words)]
        low, middle, high = min(took), statistics.median(took), max(took)
        print(f"{title}: {middle:.2f} s ({low:.2f} to {high:.2f}), {runs} runs", flush=True)


if __name__ == "__main__":
    main()
