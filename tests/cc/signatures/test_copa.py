# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What Copa's paper says, done by the real engine in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from datapath.cc import compile_algorithm
from datapath.fabric.changes import SetAlgorithm

from .scene import GBIT, MS, WIRE, Row, Shared, check_table, jain, steady


def test_copa_keeps_a_few_packets_of_each_flow_in_the_queue() -> None:
    """NSDI 2018, section 3: from 0 to 2.5 / delta packets of each flow wait, half of it on average.

    The queue is empty once in five RTTs, so that each flow sees the RTT of the path.
    """
    rows: list[Row] = []
    path = Shared(GBIT, 2 * MS, 4_000_000)
    for count in (1, 2, 4):
        seen = steady("copa", path, count=count, duration_ns=800 * MS, interval_ns=MS // 4)
        queue = seen.queue_bytes(400 * MS) / WIRE
        index, share = jain(seen.goodput_bps(400 * MS)), seen.share(400 * MS)
        p95 = np.percentile(queue, 95)
        rows.append(
            {"flows": str(count), "mean": queue.mean(), "p95": p95, "share": share, "jain": index}
        )
        assert queue.mean() == pytest.approx(2.5 * count, rel=0.2)
        assert p95 <= 5 * count + 1
        assert (queue < 0.5 * count).mean() > 0.02
        assert share > 0.99
        assert index > 0.99
    check_table("copa", rows, slack=0.2)


def test_copa_competes_with_a_flow_that_fills_the_queue() -> None:
    """Figure 9: with the mode of section 2.2 it has its share beside NewReno, without it none."""
    rows: list[Row] = []
    for competitive in (True, False):
        rival = SetAlgorithm(200 * MS, compile_algorithm("newreno"), flows=[1])
        seen = steady(
            "copa",
            Shared(GBIT // 5, 5 * MS, 250_000),
            count=2,
            duration_ns=8000 * MS,
            params={"competitive": competitive},
            changes=[rival],
            interval_ns=5 * MS,
        )
        rates = seen.goodput_bps(2000 * MS)
        rows.append({"competes": str(competitive), "share": float(2 * rates[0] / rates.sum())})
    assert float(rows[0]["share"]) > 0.7
    assert float(rows[1]["share"]) < 0.3
    check_table("copa_rival", rows, slack=0.3)
