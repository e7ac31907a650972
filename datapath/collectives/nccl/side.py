# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One of the two processes of a check: `python -m datapath.collectives.nccl.side RANK SOCKET`.

The process asks check.py for cases at a Unix socket, and runs each in a child of its own, which
loads the plug-in.  A child that crashes or hangs harms no other case.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from datapath.collectives.nccl.network import CallFailed, Handle, Memory, Network, Receive

SENDER, RECEIVER = 0, 1
_NAP_S = 0.0002
_SPINS = 200
_CASE_PATIENCES = 20
_T = TypeVar("_T")


class Broken(Exception):
    """The plug-in does not do what it has to; the text says what."""


class PeerEnded(Exception):
    """The other side's process has ended before this one's case was over."""


class Watch:
    """Ends the process when one call of the plug-in's does not return."""

    def __init__(self, patience_s: float, report: Callable[[str], None]) -> None:
        self._patience_s, self._report = patience_s, report
        self._calls: dict[int, tuple[str, float]] = {}
        threading.Thread(target=self._look, daemon=True).start()

    def __call__(self, name: str) -> None:
        self._calls[threading.get_ident()] = (name, time.monotonic())

    def _look(self) -> None:
        while True:
            time.sleep(min(self._patience_s / 4, 0.5))
            for name, since in list(self._calls.values()):
                if name and time.monotonic() > since + self._patience_s:
                    self._report(f"{name}() did not return within {self._patience_s:g} s")
                    os._exit(1)


@dataclass
class Channel:
    """Messages between the two sides beside the plug-in: JSON, one in a line."""

    socket: socket.socket
    patience_s: float
    _unread: bytes = field(default=b"", init=False)

    def tell(self, what: Any) -> None:
        try:
            self.socket.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            raise PeerEnded from None

    def hear(self) -> Any:
        """Waits; PeerEnded when nothing can come any more, or nothing came in time."""
        self.socket.settimeout(2 * self.patience_s)
        while b"\n" not in self._unread:
            try:
                got = self.socket.recv(65536)
            except OSError:
                got = b""
            if not got:
                raise PeerEnded
            self._unread += got
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)


@dataclass
class Side:
    """The argument of a case.  rank: SENDER or RECEIVER."""

    rank: int
    net: Network
    channel: Channel
    patience_s: float

    @property
    def sends(self) -> bool:
        return self.rank == SENDER

    @property
    def group(self) -> int:
        """The largest group of receives."""
        return int(self.net.properties(0)["max_receives"])

    def meet(self) -> None:
        """Goes on when the other side is here, too."""
        self.channel.tell("here")
        self.channel.hear()

    def until(self, look: Callable[[], _T | None], what: str) -> _T:
        """Calls look() until it has a result; Broken when that takes too long."""
        deadline, turns = time.monotonic() + self.patience_s, 0
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise Broken(f"{what} within {self.patience_s:g} s")
            turns += 1
            if turns > _SPINS:
                time.sleep(_NAP_S)
        return found

    # ---- connections

    def pair(self, *, forward: bool = True) -> int:
        """A communicator with the other side; forward: data goes from SENDER to RECEIVER."""
        if self.sends == forward:
            return self.connected(Handle(bytes.fromhex(self.channel.hear())))
        handle, listener = self.net.listen()
        self.channel.tell(handle.data.hex())
        comm = self.accepted(listener)
        self.net.close("listen", listener)
        return comm

    def connected(self, handle: Handle) -> int:
        return self.until(lambda: self.net.connect(handle), "connect() gave no communicator")

    def accepted(self, listener: int) -> int:
        return self.until(lambda: self.net.accept(listener), "accept() gave no communicator")

    def close(self, comm: int) -> None:
        self.net.close("send" if self.sends else "receive", comm)

    # ---- data

    def sent(
        self, comm: int, memory: Memory, size: int, handle: int | None, tag: int = 0, at: int = 0
    ) -> int:
        """The request of a send, which waits until the plug-in takes it."""
        return self.until(
            lambda: self.net.isend(comm, memory, size, handle, tag, at),
            f"isend() of {size} bytes, whose receive is posted, gave no request",
        )

    def received(self, comm: int, *receives: Receive) -> int:
        return self.until(
            lambda: self.net.irecv(comm, receives), "irecv() gave no request, though few are open"
        )

    def done(self, request: int, n: int = 1, *, sizes: bool = True) -> list[int]:
        """The sizes of a request when it is done."""
        what = f"a {'send' if self.sends else 'receive'} was not done"
        return self.until(lambda: self.net.test(request, n, sizes=sizes), what)

    def expect(self, found: object, wanted: object, what: str) -> None:
        if found != wanted:
            raise Broken(f"{what}: {_short(found)} in place of {_short(wanted)}")


PEER_ENDED = "the other side ended early"


@dataclass(frozen=True)
class Case:
    """A case that a plug-in has to pass.  dies: the side whose process kills itself."""

    name: str
    summary: str
    function: Callable[[Side], None]
    dies: int | None = None


def _short(what: object) -> str:
    text = repr(what)
    return text if len(text) < 80 else f"{text[:60]}... ({len(text)} characters)"


def run_case(case: Case, side: Side) -> str:
    """The error; "": none.  PEER_ENDED: the other side knows more."""
    try:
        side.net.init()
        case.function(side)
        if case.dies is None:
            side.meet()
        side.net.finalize()
    except (Broken, CallFailed) as error:
        return str(error)
    except PeerEnded:
        return PEER_ENDED
    except Exception:
        return "the check itself fails: " + traceback.format_exc()
    return ""


def child(order: dict[str, Any], rank: int, peer: socket.socket, report: int) -> None:
    """Runs one case and writes the verdict to a pipe; exit status 0 whenever there is one."""
    from datapath.collectives.nccl import departures  # noqa: F401  registers its cases
    from datapath.collectives.nccl.cases import CASES

    def tell(text: str) -> None:
        os.write(report, text.encode()[:4096])

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    patience_s = float(order["patience_s"])
    watch = Watch(patience_s, tell)
    try:
        net = Network(order["plugin"], order["version"], watch)
    except (OSError, ValueError) as error:
        tell(f"cannot be loaded: {error}")
        return
    side = Side(rank, net, Channel(peer, patience_s), patience_s)
    tell(run_case(CASES[order["case"]], side))


def verdict(order: dict[str, Any], rank: int, peer: socket.socket) -> str:
    """Forks a child for the case; what it says, or how it ended."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            child(order, rank, peer, into)
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
        said = report.read().decode(errors="replace")
    return said or (f"the process ended with status {status}" if status else "")


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
