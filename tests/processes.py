# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""To see which processes there are.  Their names may hold any bytes."""

from __future__ import annotations

from pathlib import Path


def _stat(pid: int | str) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return stat.rpartition(b")")[2].decode().split()


def state_of(pid: int) -> str:
    """As ps shows it: R, S, D, T, Z, ...; "" where there is no such process."""
    stat = _stat(pid)
    return stat[0] if stat else ""


def runs(pid: int) -> bool:
    """A process that was killed stays as a zombie until somebody has waited for it."""
    return state_of(pid) not in ("", "Z", "X")


def alive(pids: set[int]) -> dict[int, str]:
    """Those that still run, each with its state, what it waits for, and its program."""
    living = {}
    for pid in pids:
        place = Path(f"/proc/{pid}")
        try:
            argv = (place / "cmdline").read_bytes().replace(b"\0", b" ")
            waits = (place / "wchan").read_text()
        except OSError:
            continue
        if runs(pid):
            living[pid] = f"{state_of(pid)} {waits} {argv!r}"
    return living


def descendants(pid: int) -> set[int]:
    """All processes below one, now."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if stat := _stat(path.name):
            children.setdefault(int(stat[1]), []).append(int(path.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found |= set(below)
        todo += below
    return found
