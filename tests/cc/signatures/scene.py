# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One shared link in the simulator, flows over it, and what they made of it.

The transport is the real engine.  Runs repeat bit for bit, so each test keeps its table beside it
(`tables/*.txt`) and compares: numbers may move by a tenth, rows may not come or go.  After a
wanted change, write the tables anew and look at the difference:

    DATAPATH_WRITE_TABLES=1 python -m pytest tests/cc/signatures
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datapath.cc import CompiledAlgorithm, compile_algorithm
from datapath.fabric import flows as traffic
from datapath.fabric.changes import Change
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Jitter, Link, Loss, Marking, Policer
from datapath.fabric.sim_result import Sampling, SimResult
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell

MSS = 4096
WIRE = MSS + 118  # headers of an extended WRITE, framing and gap included
MS = 10**6
US = 1000
GBIT = 10**9

TABLES = Path(__file__).parent / "tables"
Row = dict[str, float | str]


@dataclass(frozen=True)
class Shared:
    """The shared link: everything waits in its queue, all delay is its own.

    rtt_ns: of an empty path, serialisation not counted.  loss: share lost at random.  cnp_ns: least
    time between two CNPs of a receiver, 0: it sends none.
    """

    rate_bps: int = GBIT
    rtt_ns: int = 200 * US
    limit_bytes: int = 256_000
    marking: Marking | None = None
    loss: float = 0
    jitter_ns: float = 0
    reorder: float = 0
    telemetry: bool = False
    cnp_ns: int = 0
    policer: Policer | None = None

    def link(self, extra_ns: int = 0) -> Link:
        """Half of the RTT lies in this direction; extra_ns: more, as on another route."""
        half = self.rtt_ns // 2
        return Link(
            rate_bps=self.rate_bps,
            delay_ns=half + extra_ns,
            limit_bytes=self.limit_bytes,
            marking=self.marking,
            loss=Loss(good=self.loss) if self.loss else None,
            policer=self.policer,
            jitter=Jitter(scale_ns=self.jitter_ns) if self.jitter_ns else None,
            reorder=self.reorder,
            reorder_ns=half if self.reorder else 0,
            telemetry=self.telemetry,
        )

    def topology(self, pairs: int) -> Dumbbell:
        back = Link(rate_bps=self.rate_bps, delay_ns=self.rtt_ns // 2)
        edge = Link(rate_bps=10 * self.rate_bps, delay_ns=0)
        return Dumbbell(pairs=pairs, edge=edge, bottleneck=self.link(), backward=back)


@dataclass
class Seen:
    """A run: samples of each flow and of the shared link.  Times in ns, arrays by sample."""

    result: SimResult
    shared: Shared

    @property
    def time_ns(self) -> Any:
        return self.result.series.time_ns.astype(float)

    def qp(self, column: str) -> Any:
        """Shape (samples, flows)."""
        return self.result.series.qps[column]

    def after(self, start_ns: float) -> Any:
        """Which samples are later."""
        return self.time_ns >= start_ns

    def goodput_bps(self, start_ns: float = 0, end_ns: float = np.inf) -> Any:
        """Of each flow."""
        inside = np.flatnonzero((self.time_ns >= start_ns) & (self.time_ns <= end_ns))
        first, last = inside[0], inside[-1]
        delivered = np.nan_to_num(self.qp("delivered_bytes"))
        elapsed = self.time_ns[last] - self.time_ns[first]
        return (delivered[last] - delivered[first]) * 8e9 / elapsed

    def share(self, start_ns: float = 0) -> float:
        """Goodput of all flows, of what the headers leave of the link."""
        left = self.shared.rate_bps * MSS / WIRE
        return float(self.goodput_bps(start_ns).sum() / left)

    def queue_bytes(self, start_ns: float = 0) -> Any:
        return self.result.series.links["queue_bytes"][self.after(start_ns), 0]

    def queue_us(self, start_ns: float = 0) -> float:
        """Mean."""
        return float(self.queue_bytes(start_ns).mean() * 8e6 / self.shared.rate_bps)

    @property
    def drops(self) -> int:
        return int(self.result.links["overflowed"].sum())


def jain(rates: Any) -> float:
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))


def long_flows(count: int, stop_ns: int, *, stagger_ns: int = 0) -> traffic.Flows:
    """From each host on the left to its partner, all the time."""
    rows = traffic.empty(count)
    rows["src"] = np.arange(count)
    rows["dst"] = np.arange(count) + count
    rows["bytes"] = traffic.UNTIL_STOP
    rows["start_ns"] = np.arange(count) * stagger_ns
    rows["stop_ns"] = stop_ns
    rows["message_bytes"], rows["depth"] = 1 << 16, 64
    return rows


def run(
    algorithm: CompiledAlgorithm | Sequence[CompiledAlgorithm],
    shared: Shared,
    flows: traffic.Flows,
    *,
    until_ns: int | None = None,
    interval_ns: int = 100 * US,
    changes: Sequence[Change] = (),
    pairs: int = 0,
    line_rate_bps: int = 0,
    path_mtu: int = MSS,
) -> Seen:
    options = EngineOptions(
        path_mtu=path_mtu,
        line_rate_bps=line_rate_bps or shared.rate_bps,
        telemetry=shared.telemetry,
        cnp_ns=shared.cnp_ns,
    )
    simulation = Simulation(shared.topology(pairs or len(flows)), transport=options)
    sampling = Sampling(interval_ns, flows=range(len(flows)), links=(0,))
    return Seen(
        simulation.run(flows, algorithm, until_ns=until_ns, sampling=sampling, changes=changes),
        shared,
    )


def steady(
    name: str,
    shared: Shared,
    *,
    count: int = 1,
    duration_ns: int = 200 * MS,
    stagger_ns: int = 0,
    params: dict[str, Any] | None = None,
    interval_ns: int = 100 * US,
    changes: Sequence[Change] = (),
) -> Seen:
    """`count` long flows of an algorithm for some time."""
    flows = long_flows(count, duration_ns, stagger_ns=stagger_ns)
    compiled = compile_algorithm(name, params or {})
    return run(
        compiled, shared, flows, until_ns=duration_ns, interval_ns=interval_ns, changes=changes
    )


def check_table(name: str, rows: list[Row], *, slack: float = 0.1) -> None:
    """Compare with the table that is kept, or write it when asked to."""
    path = TABLES / f"{name}.txt"
    if os.environ.get("DATAPATH_WRITE_TABLES"):
        TABLES.mkdir(exist_ok=True)
        path.write_text(_text(rows))
        return
    assert path.exists(), f"no table {path}; see the docstring of {__name__}"
    lines = path.read_text().splitlines()
    assert lines[0].split() == list(rows[0])
    assert len(lines) == len(rows) + 1
    for line, row in zip(lines[1:], rows, strict=True):
        for kept, (column, value) in zip(line.split(), row.items(), strict=True):
            if isinstance(value, str):
                assert kept == value
            else:
                where = f"{name}: {line.split()[0]} {column}\n{_text(rows)}"
                assert value == pytest.approx(float(kept), rel=slack, abs=0.02), where


def _text(rows: list[Row]) -> str:
    cells = [list(rows[0])]
    cells += [[v if isinstance(v, str) else f"{v:.4g}" for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "".join(line.rstrip() + "\n" for line in lines)
