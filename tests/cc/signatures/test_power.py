# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What PowerTCP's paper says, done by the real engine in the simulator."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm

from .scene import GBIT, MS, US, WIRE, Row, Shared, check_table, jain, long_flows, run, steady

DEEP = 4_000_000


@pytest.mark.parametrize("theta", [False, True])
def test_powertcp_keeps_the_betas_of_all_flows_in_the_queue(theta: bool) -> None:
    """NSDI 2022, theorem 1: the queue of the equilibrium is the sum of beta, and the link is full.

    With beta of twelve packets.  The records of telemetry leave 97 % of the line to payload.
    """
    rows: list[Row] = []
    path = Shared(25 * GBIT, 100 * US, DEEP, telemetry=True)
    params = {"beta_bytes": 12 * WIRE, "theta": theta, "base_rtt_ns": 104 * US}
    for count in (1, 2, 8):
        seen = steady(
            "powertcp", path, count=count, duration_ns=20 * MS, params=params, interval_ns=10 * US
        )
        queue = seen.queue_bytes(10 * MS).mean() / WIRE
        index, share = jain(seen.goodput_bps(10 * MS)), seen.share(10 * MS)
        rows.append({"flows": str(count), "queue": queue, "share": share, "jain": index})
        assert queue == pytest.approx(12 * count, rel=0.35)
        assert share > 0.96
        assert index > 0.95
    check_table("powertcp_theta" if theta else "powertcp", rows)


def test_powertcp_absorbs_an_incast_without_losing_throughput() -> None:
    """Figure 4: ten flows come to a long one; the queue is gone soon, and the link stays full."""
    rows: list[Row] = []
    path = Shared(25 * GBIT, 20 * US, DEEP, telemetry=True)
    for name in ("powertcp", "hpcc", "newreno"):
        flows = long_flows(11, 20 * MS)
        flows["start_ns"][1:] = 5 * MS
        flows["bytes"][1:], flows["stop_ns"][1:] = 250_000, 0
        params = {} if name == "newreno" else {"base_rtt_ns": 22 * US, "n_flows": 50}
        seen = run(
            compile_algorithm(name, params), path, flows, until_ns=20 * MS, interval_ns=10 * US
        )
        queue_us = seen.result.series.links["queue_bytes"][:, 0] * 8e6 / path.rate_bps
        time = seen.time_ns
        late = queue_us[(time > 5.3 * MS) & (time < 5.8 * MS)].mean()
        after = seen.goodput_bps(8 * MS, 20 * MS)[0] / (seen.goodput_bps(1 * MS, 4 * MS)[0])
        rows.append({"algorithm": name, "peak_us": queue_us.max(), "late_us": late, "after": after})
    power = rows[0]
    assert float(power["late_us"]) < 20
    assert float(power["after"]) > 0.98
    assert float(power["late_us"]) < 0.3 * float(rows[2]["late_us"])
    check_table("powertcp_incast", rows, slack=0.2)
