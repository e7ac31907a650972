# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which plan a collective has: made and proved at the first use of a size, then kept for the next.

    DATAPATH_TRAIN_ALGORITHM  of allreduce, such as ring; auto, or unset: by a measurement

The measurement is made when a group is: of allreduce, and of broadcast, after which reduce, gather
and scatter go as well.  All ranks get the same times, those of the slowest, and so choose alike.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np

from datapath.collectives import Plan, check, load, make
from datapath.collectives.choose import Chooser, Fit, Terms, measure
from datapath.collectives.communicator import Communicator, Started
from datapath.collectives.make import TRANSFER_BYTES
from datapath.errors import LocalError, RemoteError

MEASURED_BYTES = (1 << 10, 1 << 15, 1 << 20)
_PATIENCE_NS = 3e8
_MOST_KEPT = 256  # plans of a communicator; one of 64 MiB for four ranks takes some 0.2 MB
_TIMES = 2
_ALGORITHMS = {
    "reduce_scatter": "ring_reduce_scatter",
    "allgather": "ring_allgather",
    "alltoall": "pairwise",
}
_LIKE_BROADCAST: Mapping[str, Mapping[str, str]] = {
    "reduce": {"tree": "reduce_tree", "chain": "reduce_chain"},
    "gather": {"tree": "gather_tree", "chain": "fan_in"},
    "scatter": {"tree": "scatter_tree", "chain": "fan_out"},
}
"""Collective -> the algorithm for sizes at which broadcast has a tree, or a chain."""


def named_algorithm() -> str:
    """Of allreduce, by the environment; "": none."""
    name = os.environ.get("DATAPATH_TRAIN_ALGORITHM", "")
    if name in ("", "auto"):
        return ""
    if load(name).collective != "allreduce":
        raise LocalError(
            f"DATAPATH_TRAIN_ALGORITHM is {name}, which is no allreduce",
            hint="name one, such as ring, or auto",
        )
    return name


def meeting_plan(ranks: int) -> Plan:
    """A plan in which each rank sends the largest transfer to each other one."""
    return check(make(load("pairwise"), ranks, ranks * TRANSFER_BYTES, item_bytes=1))


def pair_plan(size: int) -> Plan:
    """`size` bytes from rank 0 to rank 1."""
    return check(make(load("chain"), 2, size, item_bytes=1))


@dataclass
class _Kept:
    """A plan that the communicator has taken, and how many collectives that run follow it."""

    taken: Any
    borrowers: int = 0


class Running:
    """A collective that runs."""

    def __init__(self, started: Started, give_back: Callable[[], None]) -> None:
        self._started, self._give_back = started, give_back

    def wait(self) -> None:
        """RemoteError says which rank is gone, and where."""
        try:
            self._started.wait()
        finally:
            self._give_back()


class Plans:
    """The plans of a communicator."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._kept: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._choosers: dict[str, Chooser] = {}

    def measure(self, timeout: timedelta) -> None:
        """Have all ranks try the algorithms among which there is a choice.

        timeout: of each collective.  RemoteError when a rank does not take part.
        """
        trial = _Trial(self._communicator, timeout)
        for collective in ("allreduce", "broadcast"):
            name = named_algorithm() if collective == "allreduce" else ""
            if name:
                self._choosers[collective] = Chooser(collective, (Fit(name, (0,), (0.0,)),))
                continue
            self._choosers[collective] = measure(
                collective,
                self._communicator.ranks,
                trial.time_ns,
                sizes=MEASURED_BYTES,
                terms=Terms(item_bytes=1),
                patience_ns=_PATIENCE_NS,
            )

    def algorithm_of(self, collective: str, size: int) -> str:
        """The algorithm for `size` bytes of each rank's data."""
        if collective in _ALGORITHMS:
            return _ALGORITHMS[collective]
        if collective in _LIKE_BROADCAST:
            return _LIKE_BROADCAST[collective][self.algorithm_of("broadcast", size)]
        return self._choosers[collective].best(size).algorithm

    def start(
        self,
        collective: str,
        size: int,
        data: int,
        source: int = 0,
        *,
        item_bytes: int = 1,
        items: str = "int8",
        op: str = "sum",
        root: int = 0,
    ) -> Running:
        """Start a collective, as Communicator.start() does.

        size: bytes of DATA of each rank.
        """

        def plan() -> Plan:
            algorithm = load(self.algorithm_of(collective, size))
            ranks = self._communicator.ranks
            return check(make(algorithm, ranks, size, item_bytes=item_bytes, root=root))

        kept = self._borrowed((collective, size, item_bytes, root), plan)
        return self._started(kept, data, source, items, op)

    def start_pair(self, size: int, data: int, tag: int) -> Running:
        """Of a communicator of two: `size` bytes from rank 0 to rank 1."""
        kept = self._borrowed(("pair", size), lambda: pair_plan(size))
        return self._started(kept, data, 0, "int8", "sum", tag)

    def _borrowed(self, key: tuple[object, ...], plan: Callable[[], Plan]) -> _Kept:
        """The plan of a key, for one collective; those not used for longest are forgotten."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = _Kept(self._communicator.take(plan()))
            self._kept.move_to_end(key)
            kept = self._kept[key]
            kept.borrowers += 1
            for old in list(self._kept)[: max(0, len(self._kept) - _MOST_KEPT)]:
                if not self._kept[old].borrowers:
                    self._communicator.forget(self._kept.pop(old).taken)
            return kept

    def _given_back(self, kept: _Kept) -> None:
        with self._lock:
            kept.borrowers -= 1

    def _started(
        self, kept: _Kept, data: int, source: int, items: str, op: str, tag: int = 0
    ) -> Running:
        back = partial(self._given_back, kept)
        try:
            started = self._communicator.start(
                kept.taken, data, source, items=items, op=op, tag=tag
            )
        except BaseException:
            back()
            raise
        return Running(started, back)


class _Trial:
    """Collectives on memory of zeros, to see how long they take."""

    def __init__(self, communicator: Communicator, timeout: timedelta) -> None:
        self._communicator, self._timeout = communicator, timeout
        self._data = np.zeros(MEASURED_BYTES[-1] + communicator.ranks, np.int8)

    def time_ns(self, plan: Plan) -> float:
        """Of one collective by the slowest rank; all ranks get the same number."""
        taken = self._communicator.take(check(plan))
        self._run(taken, self._data)
        begin = time.monotonic_ns()
        for _ in range(_TIMES):
            self._run(taken, self._data)
        mine = np.array([(time.monotonic_ns() - begin) / _TIMES])
        self._communicator.forget(taken)
        agree = check(make(load("double_tree"), self._communicator.ranks, 8, item_bytes=8))
        taken = self._communicator.take(agree)
        self._run(taken, mine, "float64", "max")
        self._communicator.forget(taken)
        return float(mine[0])

    def _run(
        self,
        taken: Any,
        data: np.ndarray[Any, np.dtype[Any]],
        items: str = "int8",
        op: str = "sum",
    ) -> None:
        started = self._communicator.start(taken, data.ctypes.data, items=items, op=op)
        if not started.wait(self._timeout.total_seconds()):
            self._communicator.abort("not all ranks make the group")
            started.wait()
            raise RemoteError("not all ranks make the group")
