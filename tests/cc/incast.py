# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Many hosts of a simulated leaf-spine send to one, over shallow buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datapath.cc import CompiledAlgorithm
from datapath.fabric import flows as traffic
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, Loss
from datapath.fabric.sim_result import SimResult
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import LeafSpine

RATE_BPS = 100 * 10**9
PAYLOAD, WIRE = 4096, 4096 + 118  # headers of an extended WRITE, framing and gap included
QUEUE = 512 << 10


@dataclass
class Round:
    """One round.  slowdown: the last flow's end, over the time that the receiver's link needs."""

    result: SimResult
    slowdown: float

    @property
    def drops(self) -> int:
        return int(self.result.totals["overflowed"])


def network(loss: float = 0) -> LeafSpine:
    """144 hosts; loss: share lost on each link between leaf and spine."""
    spoilt = Loss(good=loss) if loss else None
    core = Link(rate_bps=4 * RATE_BPS, delay_ns=1000, limit_bytes=QUEUE, loss=spoilt)
    edge = Link(rate_bps=RATE_BPS, delay_ns=1000, limit_bytes=QUEUE)
    return LeafSpine(leaves=9, spines=4, hosts_per_leaf=16, edge=edge, core=core)


def run(
    algorithm: CompiledAlgorithm,
    rows: traffic.Flows,
    *,
    loss: float = 0,
    rate_known: bool = True,
    segment: int = PAYLOAD,
) -> SimResult:
    options = EngineOptions(line_rate_bps=RATE_BPS if rate_known else 0, segment_max=segment)
    return Simulation(network(loss), transport=options).run(rows, algorithm, timeout_s=300)


def incast(
    algorithm: CompiledAlgorithm,
    *,
    senders: int,
    size: int,
    loss: float = 0,
    rate_known: bool = True,
    segment: int = PAYLOAD,
) -> Round:
    """`senders` hosts send `size` bytes each to host 0, at once."""
    rows = traffic.empty(senders)
    rows["src"], rows["dst"], rows["bytes"] = np.arange(senders) + 1, 0, size
    result = run(algorithm, rows, loss=loss, rate_known=rate_known, segment=segment)
    needed_ns = senders * size * WIRE / PAYLOAD * 8e9 / RATE_BPS
    return Round(result, float(result.flows.rows["finish_ns"].max()) / needed_ns)
