# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The metrics of collectives, of the times that ranks report: as nccl-tests defines them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from datapath.errors import RunFailed
from datapath.lanes.base import Host
from datapath.workloads.base import Metric, Outcome
from datapath.workloads.programs import latency_metrics


def bus_factor(collective: str, ranks: int) -> float:
    """busbw / algbw, as nccl-tests has it."""
    if collective in ("broadcast", "reduce"):
        return 1.0
    return (2 if collective == "allreduce" else 1) * (ranks - 1) / ranks


def bandwidths(collective: str, ranks: int, size: int, mean_ns: float) -> list[Metric]:
    """algbw and busbw; size: bytes of each rank's data, mean_ns: of one collective."""
    algbw = 8e9 * size / mean_ns
    return [
        Metric("algbw", algbw, "bit/s"),
        Metric("busbw", algbw * bus_factor(collective, ranks), "bit/s"),
    ]


def outcome(
    collective: str, size: int, iterations: int, times_ns: Sequence[Sequence[float]]
) -> Outcome:
    """times_ns: of each rank, when the measured collectives began and when each had ended."""
    took = [[b - a for a, b in itertools.pairwise(one)] for one in times_ns]
    if not took or min(map(len, took)) != iterations:
        raise RunFailed("a rank has not ended all collectives", hint="see collective-*.err")
    slowest = [max(each) for each in zip(*took, strict=True)]
    mean_ns = max(math.fsum(one) for one in took) / iterations
    metrics = [*bandwidths(collective, len(took), size, mean_ns), *latency_metrics(slowest)]
    return Outcome(metrics, {"latency_ns": slowest})


def report_name(rank: int) -> str:
    return f"collective-{rank}.report"


def read_report(logs: Path, host: Host, rank: int) -> list[float]:
    """The times that a rank has left in the logs; RunFailed when there are none."""
    host.fetch(logs)
    try:
        return [float(line) for line in (logs / report_name(rank)).read_text().split()]
    except (OSError, ValueError) as error:
        raise RunFailed(
            f"no report of rank {rank}: {error}", hint=f"see collective-{rank}.err"
        ) from None
