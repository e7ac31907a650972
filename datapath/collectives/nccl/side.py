# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a case works with on its side of a check: the plug-in, the other side, and patience."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from datapath.collectives.nccl.network import Handle, Memory, Network, Receive

SENDER, RECEIVER = 0, 1
_NAP_S = 0.0002
_SPINS = 200
_PLAUSIBLE_MAX = 1024  # of devices or receives: far above what machines have, or NCCL asks for
_T = TypeVar("_T")


class Broken(Exception):
    """The plug-in does not do what it has to; the text says what."""


class PeerEnded(Exception):
    """The other side's process has ended before this one's case was over."""


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
        most = int(self.net.properties(0)["max_receives"])
        self.plausible(most, "getProperties()", "receives in a group (max_receives)")
        return most

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

    def plausible(self, count: int, call: str, of: str) -> None:
        """Broken when a number of things that a call tells cannot be meant."""
        if not 1 <= count <= _PLAUSIBLE_MAX:
            raise Broken(f"{call} tells {count:,} {of}: it should be 1 to {_PLAUSIBLE_MAX:,}")


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
