# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One of the two processes of a check: `python -m datapath.collectives.nccl.process RANK SOCKET`.

The process asks check.py for cases at a Unix socket, and runs each in a child of its own, which
loads the plug-in.  A child that crashes or hangs harms no other case.  The child says at the end
that its case is over: a plug-in that ends the process has not passed, whatever its exit status.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datapath.collectives.nccl import departures  # noqa: F401  registers its cases
from datapath.collectives.nccl.cases import CASES
from datapath.collectives.nccl.network import CallFailed, Network, Unset
from datapath.collectives.nccl.side import PEER_ENDED, Broken, Case, Channel, PeerEnded, Side
from datapath.errors import ending

_CASE_PATIENCES = 20
_OVER = b"\0"
"""Before the verdict in a child's report: the case came to its end."""


class Calls:
    """Where each thread of a child is in the plug-in, in memory that outlives the child."""

    _THREADS, _ROOM = 64, 64

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, self._THREADS * self._ROOM)
        self._numbers = itertools.count()
        self._own = threading.local()

    def note(self, where: str) -> None:
        if not hasattr(self._own, "number"):
            self._own.number = next(self._numbers)
        at = self._own.number * self._ROOM
        self._shared[at : at + self._ROOM] = where.encode()[: self._ROOM].ljust(self._ROOM, b"\0")

    def where(self) -> str:
        """Such as " in isend()", " after devices()", "": before all calls."""
        rows = range(0, self._THREADS * self._ROOM, self._ROOM)
        noted = [self._shared[at : at + self._ROOM].rstrip(b"\0").decode() for at in rows]
        inside = sorted({text for text in noted if text.startswith("in ")})
        return "".join(f" {text}" for text in [" or ".join(inside) or noted[0]] if text)


class Watch:
    """Notes which call runs, and ends the process when one of them does not return."""

    def __init__(self, patience_s: float, calls: Calls, report: Callable[[str], None]) -> None:
        self._patience_s, self._noted, self._report = patience_s, calls, report
        self._calls: dict[int, tuple[str, float]] = {}
        threading.Thread(target=self._look, daemon=True).start()

    def __call__(self, name: str) -> None:
        before, _ = self._calls.get(threading.get_ident(), ("", 0.0))
        self._noted.note(f"in {name}()" if name else f"after {before}()")
        self._calls[threading.get_ident()] = (name, time.monotonic())

    def _look(self) -> None:
        while True:
            time.sleep(min(self._patience_s / 4, 0.5))
            for name, since in list(self._calls.values()):
                if name and time.monotonic() > since + self._patience_s:
                    self._report(f"{name}() did not return within {self._patience_s:g} s")
                    os._exit(1)


def run_case(case: Case, side: Side) -> str:
    """The error; "": none.  PEER_ENDED: the other side knows more."""
    try:
        side.net.init()
        case.function(side)
        if case.dies is None:
            side.meet()
        side.net.finalize()
    except (Broken, CallFailed, Unset) as error:
        return str(error)
    except PeerEnded:
        return PEER_ENDED
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = "".join(traceback.format_exception_only(error)).strip()
        return f"the check itself fails: {Path(at.filename).name}:{at.lineno}: {text}"
    return ""


def child(order: dict[str, Any], rank: int, peer: socket.socket, calls: Calls, report: int) -> None:
    """Runs one case and writes the verdict to a pipe; exit status 0 whenever there is one."""

    def tell(text: str) -> None:
        os.write(report, _OVER + text.encode()[:4096])

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    patience_s = float(order["patience_s"])
    watch = Watch(patience_s, calls, tell)
    try:
        net = Network(order["plugin"], order["version"], watch)
    except (OSError, ValueError) as error:
        tell(f"cannot be loaded: {error}")
        return
    side = Side(rank, net, Channel(peer, patience_s), patience_s)
    tell(run_case(CASES[order["case"]], side))


def verdict(order: dict[str, Any], rank: int, peer: socket.socket) -> str:
    """Forks a child for the case; what it says, or how it ended."""
    calls = Calls()
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            child(order, rank, peer, calls, into)
        finally:
            os.close(into)
            # The ordinary end, so that sanitizers look for what is left.
            sys.exit(0)
    os.close(into)
    peer.close()
    status = _status(pid, _CASE_PATIENCES * float(order["patience_s"]))
    if status is None:
        return "the case did not end"
    with os.fdopen(out, "rb") as report:
        said = report.read()
    text = said.replace(_OVER, b"").decode(errors="replace")
    if text or (said and not status):
        return text
    if status < 0 or said:
        return f"the process {ending(status)}{calls.where()}"
    return f"the plug-in ended the process with status {status}{calls.where()}"


def _status(pid: int, limit_s: float) -> int | None:
    """How a child ended: its exit status, or minus a signal.  None: it had to be killed."""
    deadline = time.monotonic() + limit_s
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.005)


def main(argv: Sequence[str]) -> None:
    rank, path = int(argv[0]), argv[1]
    driver = socket.socket(socket.AF_UNIX)
    driver.connect(path)
    driver.sendall(json.dumps({"rank": rank}).encode() + b"\n")
    while True:
        data, fds, *_ = socket.recv_fds(driver, 65536, 1)
        if not data:
            return
        peer = socket.socket(fileno=fds[0])
        answer = verdict(json.loads(data), rank, peer)
        driver.sendall(json.dumps({"said": answer}).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
