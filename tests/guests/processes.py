# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The processes of QEMU, and what keeps a guest from booting."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from datapath.processes import program
from tests.processes import descendants

TROUBLES = {
    "host0": (signal.SIGKILL, "it has ended: "),
    "host1": (signal.SIGSTOP, "it said nothing for 25 s"),
}
"""The signal that a guest gets while it boots for the first time, and what its console says."""


def trouble(others: set[int], hit: dict[str, int]) -> None:
    """Hit each guest once; returns when all are hit, with their processes in `hit`.

    others: guests of networks that other tests share.
    """
    while len(hit) < len(TROUBLES):
        time.sleep(0.2)
        for pid in guests(os.getpid()) - others:
            if (name := guest_name(pid)) in TROUBLES and name not in hit:
                os.kill(pid, TROUBLES[name][0])
                hit[name] = pid


def guest_name(pid: int) -> str:
    """Which host it is; "" while the process has no command line yet, or none any more."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return words[words.index("-name") + 1] if "-name" in words else ""


def guests(pid: int) -> set[int]:
    """The processes of QEMU below this one."""
    return {child for child in descendants(pid) if program(child).startswith("qemu-system")}
