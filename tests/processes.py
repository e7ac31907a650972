# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""To see which processes there are.  Their names may hold any bytes."""

from __future__ import annotations

from pathlib import Path

from datapath import processes


def state_of(pid: int) -> str:
    """As ps shows it: R, S, D, T, Z, ...; "" where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return stat.rpartition(b")")[2].decode().split()[0]


def runs(pid: int) -> bool:
    """A process that was killed stays as a zombie until somebody has waited for it."""
    return state_of(pid) not in ("", "Z", "X")


def alive(pids: set[int]) -> dict[int, str]:
    """Those that still run, each with its state, what it waits for, and its program."""
    living = {}
    for pid in filter(runs, pids):
        place = Path(f"/proc/{pid}")
        try:
            argv = (place / "cmdline").read_bytes().replace(b"\0", b" ")
            waits = (place / "wchan").read_text()
        except OSError:
            continue
        living[pid] = f"{state_of(pid)} {waits} {argv!r}"
    return living


def descendants(pid: int) -> set[int]:
    """All processes below one, now."""
    return processes.family(pid) - {pid}
