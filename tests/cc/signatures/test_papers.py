# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each paper says its algorithm does, done by the real engine in the simulator."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from datapath.cc import compile_algorithm
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, Marking
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import LeafSpine

from .scene import (
    GBIT,
    MS,
    MSS,
    US,
    WIRE,
    Row,
    Seen,
    Shared,
    check_table,
    jain,
    long_flows,
    steady,
)

DEEP = 4_000_000  # bytes: no queue fills it


def packets(queue_bytes: Any) -> Any:
    return queue_bytes / WIRE


def dctcp(k: int, g: float = 1 / 16) -> Seen:
    marking = Marking("step", k * WIRE)
    path = Shared(10 * GBIT, 100 * US, DEEP, marking)
    return steady(
        "dctcp", path, count=2, duration_ns=100 * MS, params={"g": g}, interval_ns=10 * US
    )


def test_dctcp_keeps_the_queue_near_k() -> None:
    """SIGCOMM 2010, section 3.3: Q_max = K + N, and full throughput when K > C x RTT / 7."""
    rows: list[Row] = []
    for k in (20, 40, 80):
        seen = dctcp(k)
        queue = packets(seen.queue_bytes(50 * MS))
        assert queue.max() == pytest.approx(k + 2, abs=2)
        assert k - 8 < queue.mean() < k + 2
        assert seen.share(50 * MS) > 0.99
        assert seen.drops == 0
        rows.append(
            {"K": str(k), "mean": queue.mean(), "p5": np.percentile(queue, 5), "max": queue.max()}
        )
    check_table("dctcp_k", rows)


def test_dctcp_oscillates_more_with_a_large_g() -> None:
    """Section 3.3: g must be small enough that alpha spans more than one congestion event."""
    rows: list[Row] = []
    spread = {}
    for g in (1 / 64, 1 / 16, 1 / 4, 1):
        queue = packets(dctcp(40, g).queue_bytes(50 * MS))
        spread[g] = queue.std()
        rows.append({"g": f"{g:g}", "mean": queue.mean(), "sd": queue.std(), "min": queue.min()})
    assert spread[1] > 2 * spread[1 / 16]  # no memory: it halves on any marked window
    check_table("dctcp_g", rows)


def test_dcqcn_converges_to_fair_rates() -> None:
    """SIGCOMM 2015, section 5 and figure 11: flows that start one after the other.

    With the marks that acknowledgements echo, and with CNPs of the receiver.
    """
    rows: list[Row] = []
    path = Shared(40 * GBIT, 20 * US, DEEP, Marking("red", 5_000, 200_000, 0.01))
    for count, cnp_ns in ((2, 0), (2, 50 * US), (8, 0), (8, 50 * US)):
        path = replace(path, cnp_ns=cnp_ns)
        seen = steady("dcqcn", path, count=count, duration_ns=200 * MS, stagger_ns=MS)
        assert (seen.result.qps["cnp_rx"] > 0) == (cnp_ns > 0)
        rates = seen.goodput_bps(100 * MS)
        assert jain(rates) > 0.95
        assert seen.share(100 * MS) > 0.85
        assert seen.drops == 0
        rows.append(
            {
                "flows": str(count),
                "by": "CNP" if cnp_ns else "marks",
                "jain": jain(rates),
                "share": seen.share(100 * MS),
                "queue_us": seen.queue_us(100 * MS),
            }
        )
    check_table("dcqcn", rows)


def test_timely_settles_at_the_fixed_point_of_its_patch() -> None:
    """CoNEXT 2016, section 4.3: gradient 0, w = 1/2, so delta = R beta (RTT - RTT_ref) / RTT_ref.

    As published there is no fixed point: delay and shares are what the start made them.
    """
    rows: list[Row] = []
    path = Shared(10 * GBIT, 20 * US, DEEP)
    for count in (2, 8):
        for patched in (False, True):
            params = {"patched": patched, "rtt_ref_ns": 60 * US}
            seen = steady("timely", path, count=count, duration_ns=400 * MS, params=params)
            rtt_us = np.nanmean(seen.qp("rtt_ns")[seen.after(200 * MS)]) / US
            rates = seen.goodput_bps(200 * MS)
            if patched:
                rate_bps = 10 * GBIT * MSS / WIRE / count
                assert rtt_us == pytest.approx(60 * (1 + 10e6 / (0.008 * rate_bps)), rel=0.05)
                assert jain(rates) > 0.99
                assert seen.share(200 * MS) > 0.99
            else:
                assert rtt_us < 50
                assert seen.share(200 * MS) > 0.85
            rows.append(
                {
                    "timely": "patched" if patched else "published",
                    "flows": str(count),
                    "rtt_us": rtt_us,
                    "jain": jain(rates),
                    "share": seen.share(200 * MS),
                }
            )
    check_table("timely", rows)


def test_hpcc_is_near_eta_with_a_near_empty_queue() -> None:
    """SIGCOMM 2019, section 3.2: what it steers to eta is txRate / B + qlen / (B T).

    Each of n flows adds W_AI = B T (1 - eta) / N to a window of U B T / n, so that U comes to rest
    where U (1 - eta / U) = n (1 - eta) / N.
    """
    rows: list[Row] = []
    path = Shared(25 * GBIT, 100 * US, DEEP, telemetry=True)
    bdp = packets(path.rate_bps * path.rtt_ns / 8e9)
    for count in (1, 2, 8):
        params = {"n_flows": 20}
        seen = steady("hpcc", path, count=count, duration_ns=100 * MS, params=params)
        link = seen.result.series.links
        later = np.flatnonzero(seen.after(50 * MS))
        delivered = link["delivered_bytes"][later[-1], 0] - link["delivered_bytes"][later[0], 0]
        elapsed_ns = seen.time_ns[later[-1]] - seen.time_ns[later[0]]
        used = delivered * 8e9 / elapsed_ns / (25 * GBIT)
        queue = packets(seen.queue_bytes(50 * MS)).mean()
        index = jain(seen.goodput_bps(50 * MS))
        assert used + queue / bdp == pytest.approx(0.95 + 0.05 * count / 20, abs=0.02)
        assert queue < 0.1 * bdp  # mostly what the pacing timer sends at once
        assert index > 0.95
        rows.append({"flows": str(count), "used": used, "queue_packets": queue, "jain": index})
    check_table("hpcc", rows)


def test_mprdma_uses_all_paths() -> None:
    """NSDI 2018, section 5.1: flows that share two spines by chance of their hash, or by packets.

    Four hosts of a leaf send to four of the other; the two spines carry just what they send.
    """
    marking = Marking("step", 20 * WIRE)
    link = Link(rate_bps=10 * GBIT, delay_ns=2 * US, limit_bytes=DEEP, marking=marking)
    core = replace(link, rate_bps=20 * GBIT)
    topology = LeafSpine(leaves=2, spines=2, hosts_per_leaf=4, edge=link, core=core)
    flows = long_flows(4, 40 * MS)
    used = {}
    for paths in (1, 8):
        total = []
        for seed in range(1, 7):
            simulation = Simulation(topology, seed=seed, transport=EngineOptions(paths=paths))
            result = simulation.run(flows, compile_algorithm("mprdma"), until_ns=40 * MS)
            total.append(result.flows.rows["delivered_bytes"].sum())
        used[paths] = np.mean(total) * 8e9 / (40 * MS) * WIRE / MSS / (40 * GBIT)
    assert used[8] > 0.93
    assert used[8] > used[1] + 0.03
    check_table("mprdma", [{"paths": str(p), "used": value} for p, value in used.items()])


def test_swift_keeps_the_delay_at_its_target() -> None:
    """SIGCOMM 2020, section 3.1; without flow scaling the target is the same for all.

    At a target of exactly two RTTs the flows can fall in step with acknowledgements that are held
    for one RTT, and leave a part of the link unused: so 45 us, and not 40.
    """
    rows: list[Row] = []
    path = Shared(10 * GBIT, 20 * US, DEEP)
    for target_us in (45, 60, 100):
        params = {"base_target_ns": target_us * US, "fs_range_ns": 0}
        seen = steady("swift", path, count=2, duration_ns=60 * MS, params=params)
        rtt_us = np.nanmean(seen.qp("rtt_ns")[seen.after(30 * MS)]) / US
        assert rtt_us == pytest.approx(target_us, rel=0.1)
        assert seen.share(30 * MS) > 0.98
        rows.append({"target_us": str(target_us), "rtt_us": rtt_us})
    check_table("swift", rows)


def test_cubic_grows_by_the_cube_of_time() -> None:
    """RFC 9438, equations 1 and 2, between two losses of a flow at 100 Mbit/s and 100 ms.

    After a second loss below W_max, W_max is 0.85 of the window then (section 4.7).
    """
    path = Shared(GBIT // 10, 100 * MS, 600_000)
    seen = steady("cubic", path, duration_ns=40_000 * MS, interval_ns=50 * MS)
    cwnd = seen.qp("cwnd_bytes")[:, 0] / MSS
    cuts = [at for at in range(2, len(cwnd)) if cwnd[at] < 0.9 * cwnd[at - 1]]
    first, end = next((a, b) for a, b in pairwise(cuts) if a > 200 and b - a > 100)
    w_max = cwnd[first] / 0.7 * (1 + 0.7) / 2
    k = math.cbrt((w_max - cwnd[first]) / 0.4)
    rows: list[Row] = []
    for at in np.linspace(first + 1, end - 2, 12).astype(int):
        t = (seen.time_ns[at] - seen.time_ns[first]) / 1e9
        assert cwnd[at] == pytest.approx(0.4 * (t - k) ** 3 + w_max, rel=0.05)
        rows.append({"t_s": f"{t:.2f}", "cwnd": cwnd[at]})
    steps = np.diff(cwnd[first + 5 : end - 2])
    slowest = steps[int(k / 0.05) - 25 : int(k / 0.05) + 25].mean()
    assert slowest < steps[:20].mean()  # concave before K
    assert slowest < steps[-20:].mean() / 5  # convex after it
    check_table("cubic", rows)
