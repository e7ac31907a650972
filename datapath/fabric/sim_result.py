# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The samples and the result of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datapath.fabric import flows as traffic
from datapath.fabric.members import U32_MAX, WholeNumbers, check_whole
from datapath.native.sim import ffi


@dataclass(frozen=True)
class Sampling(WholeNumbers):
    """Series at an interval: of the QPs of some flows (rows) and of some links (numbers)."""

    interval_ns: int
    flows: Sequence[int] = ()
    links: Sequence[int] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for row in self.flows:
            check_whole(self, "flows", row)
        for number in self.links:
            check_whole(self, "links", number, U32_MAX)


@dataclass
class Series:
    """Samples as columns.

    time_ns: shape (samples,).  flows, sources: row and source host of each sampled QP.
    qps: column name -> shape (samples, flows), NaN before the QP is connected; links: column
    name -> shape (samples, links).  The names are those of datapath.series.
    """

    time_ns: np.ndarray[Any, np.dtype[np.uint64]]
    flows: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    link_names: list[str] = field(default_factory=list)
    qps: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)
    links: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)


@dataclass
class SimResult:
    """The results of flows, and the counters of the network.

    totals: packets by their fate, packet events and turns of the loop, `now_ns`.
    links: counters, one row for each link with its `name`.  qps: counters summed over all QPs.
    step_ns: when each step was done, shape (steps,).
    cpu_s: CPU time of the event loop, the only thing here that differs between equal runs.
    """

    flows: traffic.FlowResults
    totals: dict[str, int]
    links: np.ndarray[Any, np.dtype[np.void]]
    qps: dict[str, int]
    series: Series
    cpu_s: float
    step_ns: np.ndarray[Any, np.dtype[np.uint64]] = field(
        default_factory=lambda: np.zeros(0, np.uint64)
    )

    @property
    def digest(self) -> str:
        """Of every event; equal for equal runs."""
        return f"{self.totals['digest']:016x}"

    @property
    def packet_events(self) -> int:
        return self.totals["packet_events"]

    @property
    def finished(self) -> bool:
        """Whether every flow ended before the simulation did."""
        return self.totals["ended"] == self.totals["flows"]


def fields(struct: Any) -> dict[str, int]:
    """A struct of numbers, or a pointer to one, by the names of its fields."""
    kind = ffi.typeof(struct)
    kind = kind.item if kind.kind == "pointer" else kind
    return {name: int(getattr(struct, name)) for name, _ in kind.fields}


def columns(rows: Any, count: int, width: int) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Structs of doubles, `width` for each of `count` samples, as arrays (count, width)."""
    names = [name for name, _ in ffi.typeof(rows).item.fields]
    if not count or not width:
        return {name: np.zeros((count, width)) for name in names}
    data = np.frombuffer(ffi.buffer(rows, 8 * len(names) * count * width), np.float64)
    cube = data.reshape(count, width, len(names))
    return {name: cube[:, :, index].copy() for index, name in enumerate(names)}
