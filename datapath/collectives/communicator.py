# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""libdpcoll for Python: plans run live, among processes, on memory of the caller.

    with Communicator(rank, ranks, device="dp0", address="10.0.0.1", port=29400, token="...",
                      plans=[plan]) as comm:
        comm.start(comm.take(plan), data.ctypes.data, items="float32").wait()

Calls that wait do so without Python's global lock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from datapath.collectives.plan import Plan
from datapath.errors import LocalError, RemoteError
from datapath.native.coll import ffi, lib

TYPES = ("int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "uint8")
"""enum dpcoll_type."""
OPS = ("sum", "product", "min", "max")
"""enum dpcoll_op."""
_ETIMEDOUT = 110
_LONGEST_MS = 2**31 - 1  # a time in C; some 25 days


def in_ms(time_s: float) -> int:
    """A time-out for C: one that is too long becomes the longest, one that is over becomes 0."""
    return int(max(0, min(time_s * 1000, _LONGEST_MS)))


class Communicator:
    """One rank of a job; all ranks make theirs at the same time.

    Args:
        device: names of verbs devices, between commas, which channels take in turn.  Ranks of a
            host share memory; with "shm" among the names on those channels alone.
        address, port: where rank 0 listens (TCP, IPv4), and the others look for it.
        token: shared by the job's processes, below 64 bytes.
        plans: they name the pairs of ranks that will talk to each other; plans that are used later
            need no other pairs, no more channels and no larger transfers.
        listener: of rank 0: the socket that listens there already.  Unset: it is made.
        node: ranks of one machine that give the same number share memory; unset: those of one
            network namespace.
        meet_ms: how long ranks wait for each other.
        silence_ms: a peer without a sign of life for so long is gone.
        rdma_cm: RDMA-CM connects the QPs; those of iWARP devices it always does.

    Raises:
        LocalError: the arguments make no sense, or the device is not there.
        RemoteError: ranks have not come, or have other plans.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        *,
        device: str,
        address: str,
        port: int,
        token: str,
        plans: Sequence[Plan],
        listener: socket.socket | None = None,
        node: int = 0,
        meet_ms: int = 30_000,
        silence_ms: int = 2_500,
        rdma_cm: bool = False,
    ) -> None:
        words = [ffi.new("char[]", text.encode()) for text in (device, address, token)]
        config = ffi.new("struct dpcoll_config *")
        config.rank, config.ranks = rank, ranks
        config.device, config.store_address, config.token = words
        config.store_port, config.gid_index = port, -1
        config.store_fd = listener.fileno() if listener is not None else 0
        config.node = node
        config.meet_ms, config.silence_ms = meet_ms, silence_ms
        config.flags = lib.DPCOLL_BY_CM if rdma_cm else 0
        blobs = [plan.to_bytes() for plan in plans]
        kept = [ffi.from_buffer(blob) for blob in blobs]
        sizes = ffi.new("size_t[]", list(map(len, blobs)))
        out = ffi.new("struct dpcoll **")
        self.rank, self.ranks = rank, ranks
        error = lib.dpcoll_open(config, ffi.new("void *[]", kept), sizes, len(kept), out)
        self._comm = out[0]
        if error:
            if not self._comm:
                raise LocalError(f"rank {rank}: {os.strerror(-error)}")
            what = self._error(error)
            lib.dpcoll_close(self._comm)
            self._comm = ffi.NULL
            raise what

    def take(self, plan: Plan) -> Any:
        """A plan for start(), which check() has proved; it is kept until forget() or close().

        LocalError: it does not suit the communicator, which is as good as before.
        """
        comm, blob = self._opened(), plan.to_bytes()
        out = ffi.new("struct dpcoll_plan **")
        error = lib.dpcoll_plan(comm, ffi.from_buffer(blob), len(blob), out)
        if error:
            raise self._error(error)
        return out[0]

    def forget(self, taken: Any) -> None:
        """Let go of a plan all of whose collectives have been waited for."""
        lib.dpcoll_forget(self._opened(), taken)

    def start(
        self,
        taken: Any,
        data: int,
        source: int = 0,
        *,
        items: str = "int8",
        op: str = "sum",
        tag: int = 0,
    ) -> Started:
        """Start a collective; all ranks start the same ones in the same order.

        data, source: addresses of the plan's DATA and, of an all-to-all, INPUT, which do not
        overlap.  That memory stays as it is until Started.wait() has returned.  items, op: one of
        TYPES and of OPS.  tag: below 2**32.  A rank fails that gets data of another collective
        than its own, or of one with another tag.
        """
        comm, out = self._opened(), ffi.new("struct dpcoll_work **")
        at = ffi.cast("void *", data), ffi.cast("void *", source)
        error = lib.dpcoll_start(comm, taken, *at, TYPES.index(items), OPS.index(op), tag, out)
        if error:
            raise self._error(error)
        return Started(self, out[0])

    def abort(self, why: str) -> None:
        """End the collectives under way, on all ranks, with these words."""
        lib.dpcoll_abort(self._opened(), why.encode())

    def close(self, patience_s: float | None = None) -> None:
        """Waits for the other ranks to close theirs, unless one is gone.

        patience_s: for so long; unset: meet_ms.  Threads that wait for a collective get an error.
        """
        comm, self._comm = self._comm, ffi.NULL
        if comm and patience_s is not None:
            lib.dpcoll_hurry(comm, in_ms(patience_s))
        lib.dpcoll_close(comm)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _opened(self) -> Any:
        if not self._comm:
            raise LocalError(f"rank {self.rank}: the communicator is closed")
        return self._comm

    def _error(self, error: int) -> Exception:
        if not self._comm:
            return LocalError(f"rank {self.rank}: the communicator was closed meanwhile")
        text = ffi.string(lib.dpcoll_error(self._comm)).decode(errors="replace")
        what = text or os.strerror(-error)
        kind = LocalError if -error in (22, 19, 95) else RemoteError
        return kind(what)


class Started:
    """A collective that runs."""

    def __init__(self, communicator: Communicator, work: Any) -> None:
        self._communicator, self._work = communicator, work

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has ended; RemoteError says which rank is gone, and where.

        After False the collective goes on, and so may be waited for again; else it may not.
        """
        if not self._work:
            raise LocalError("this collective has been waited for")
        self._communicator._opened()
        error = lib.dpcoll_wait(self._work, -1 if timeout_s is None else in_ms(timeout_s))
        if error == -_ETIMEDOUT:
            return False
        self._work = ffi.NULL
        if error:
            raise self._communicator._error(error)
        return True
