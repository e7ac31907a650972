# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What ExpressPass's paper says, done by the real engine over links with shaped credits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datapath.cc import CompiledAlgorithm, compile_algorithm
from datapath.fabric import flows as traffic
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, QueueClass, classes_by_dscp
from datapath.fabric.sim_result import Sampling, SimResult
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell, LeafSpine

from .scene import GBIT, MS, MSS, US, WIRE, Row, check_table, jain, long_flows

CREDIT = 86
"""Bytes on the wire."""
CLASSES = (
    QueueClass(share=CREDIT / (CREDIT + WIRE), limit_bytes=8 * CREDIT, jitter=0.1, credits=True),
    QueueClass(),
)
RATE = 10 * GBIT


@pytest.fixture(scope="module")
def expresspass() -> CompiledAlgorithm:
    return compile_algorithm("expresspass")


def options(rate_bps: int) -> EngineOptions:
    return EngineOptions(
        class_of_dscp=classes_by_dscp(CLASSES),
        credit_class=0,
        line_rate_bps=rate_bps,
        segment_max=MSS,
    )


def shared(
    algorithm: CompiledAlgorithm, flows: traffic.Flows, until_ns: int
) -> tuple[SimResult, Any, Any]:
    """(result, times, bytes delivered by each flow) over a shared link of 10 Gbit/s and 40 us."""
    edge = Link(RATE, 5 * US, limit_bytes=500_000, classes=CLASSES)
    neck = Link(RATE, 10 * US, limit_bytes=500_000, classes=CLASSES)
    simulation = Simulation(Dumbbell(len(flows), edge, neck, neck), transport=options(RATE))
    sampling = Sampling(20 * US, flows=range(len(flows)), links=(0,))
    result = simulation.run(flows, algorithm, until_ns=until_ns, sampling=sampling)
    delivered = np.nan_to_num(result.series.qps["delivered_bytes"])
    return result, result.series.time_ns.astype(float), delivered


def test_credits_are_dropped_in_the_place_of_data(expresspass: CompiledAlgorithm) -> None:
    """Sections 3.1, 3.3 and figure 15: a full link, a short queue, fair flows, no data lost."""
    rows: list[Row] = []
    for count in (1, 2, 8, 32):
        result, time, delivered = shared(expresspass, long_flows(count, 40 * MS), 40 * MS)
        half = int(np.searchsorted(time, 20 * MS))
        rates = (delivered[-1] - delivered[half]) * 8e9 / (time[-1] - time[half])
        share = rates.sum() / (RATE * MSS / WIRE)
        queue = result.links["queue_max_bytes"][0] / WIRE
        shaped = int(result.links["shaped"].sum())
        index = jain(rates)
        rows.append(
            {"flows": str(count), "share": share, "jain": index, "queue": queue, "shaped": shaped}
        )
        assert result.links["overflowed"].sum() == result.qps["retransmits"] == 0
        assert share > 0.85
        assert queue < 20
        assert index > 0.85
    check_table("expresspass", rows, slack=0.2)


def test_a_newcomer_has_its_share_within_a_few_rtts(expresspass: CompiledAlgorithm) -> None:
    """Section 6.1, figure 16: convergence in some RTTs, which are 40 us here.

    From the twentieth on, of two flows that share: a third of the link at least.
    """
    flows = long_flows(2, 8 * MS, stagger_ns=4 * MS)
    _, time, delivered = shared(expresspass, flows, 8 * MS)
    begin, end = np.searchsorted(time, [4 * MS + 20 * 40 * US, 8 * MS - 20 * US])
    gained = delivered[end] - delivered[begin]
    assert gained[1] / gained.sum() == pytest.approx(0.5, abs=1 / 6)


def test_an_incast_loses_no_data_over_the_shallowest_buffers(
    expresspass: CompiledAlgorithm,
) -> None:
    """128 senders, and 64 KiB in each queue.  slowdown: of the last flow, over the ideal."""
    core = Link(400 * GBIT, 1 * US, limit_bytes=1 << 16, classes=CLASSES)
    edge = Link(100 * GBIT, 1 * US, limit_bytes=1 << 16, classes=CLASSES)
    table: list[Row] = []
    for size in (1 << 14, 1 << 16, 1 << 18):
        rows = traffic.empty(128)
        rows["src"], rows["dst"], rows["bytes"] = np.arange(128) + 1, 0, size
        simulation = Simulation(LeafSpine(9, 4, 16, edge, core), transport=options(100 * GBIT))
        result = simulation.run(rows, expresspass)
        assert result.totals["overflowed"] == 0
        assert result.totals["shaped"] > 0
        ends = result.flows.rows["finish_ns"]
        assert (ends > 0).all()
        ideal_ns = 128 * size * WIRE / MSS * 8e9 / (100 * GBIT)
        table.append({"bytes": str(size), "slowdown": float(ends.max()) / ideal_ns})
    check_table("expresspass_incast", table, slack=0.2)
