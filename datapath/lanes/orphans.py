# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holders of namespaces whose dpctl has ended.  There should be none."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_OWNER = 5
"""Where its command line has the PID of the owner; see holder.py."""


def orphaned_holders() -> list[int]:
    """Processes that hold the namespaces of a dpctl that has ended.

    The marker is the command line: `python -I -S .../datapath/lanes/holder.py FD OWNER ...`.
    """
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _is_orphan(pid)]


def end(pid: int) -> None:
    """Kill an orphaned holder, unless its PID belongs to another process by now."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if _is_orphan(pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _is_orphan(pid: int) -> bool:
    try:
        if not Path(f"/proc/{pid}/ns/pid").samefile("/proc/self/ns/pid"):
            return False  # in a container, say: its owner's number means nothing here
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    is_holder = (
        len(argv) > _OWNER
        and argv[1:3] == [b"-I", b"-S"]
        and argv[3].endswith(b"/datapath/lanes/holder.py")
        and argv[_OWNER].isdigit()
    )
    return is_holder and not Path("/proc", argv[_OWNER].decode()).exists()
