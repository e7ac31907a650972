# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What shows only after more than ten seconds, for which the transport believes a lowest RTT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datapath.cc import compile_algorithm
from datapath.fabric import flows as traffic
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link
from datapath.fabric.sim_result import Sampling
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell

pytestmark = pytest.mark.compute

STEP_S = 0.05


def long_run(
    algorithm: str, params: dict[str, float], flows: int, seconds: float, delay_ns: int
) -> Any:
    """Samples of the QPs of a run over 100 Mbit/s, one each STEP_S."""
    rows = traffic.empty(flows)
    rows["src"], rows["dst"], rows["qp"] = 0, 1, np.arange(flows)
    rows["bytes"], rows["message_bytes"], rows["depth"] = 2**64 - 1, 1_000_000, 4
    rows["stop_ns"] = int(seconds * 1e9)
    link = Link(rate_bps=10**8, delay_ns=delay_ns, limit_bytes=1 << 20)
    network = Dumbbell(1, bottleneck=link, edge=Link(rate_bps=10**9))
    transport = EngineOptions(path_mtu=4096, line_rate_bps=10**8)
    sampling = Sampling(int(STEP_S * 1e9), flows=list(range(flows)))
    run = Simulation(network, transport=transport)
    return run.run(rows, compile_algorithm(algorithm, params), sampling=sampling).series.qps


@pytest.mark.parametrize(
    ("algorithm", "params", "flows"),
    [("nscc", {}, 1), ("powertcp", {"theta": True}, 8)],
    ids=["nscc", "powertcp"],
)
def test_a_queue_that_never_empties_does_not_become_the_base(
    algorithm: str, params: dict[str, float], flows: int
) -> None:
    rtt_ns = long_run(algorithm, params, flows, 24, 500_000)["rtt_ns"][:, 0]
    early, late = (np.median(rtt_ns[int(s / STEP_S) :][:40]) for s in (4, 22))
    assert late < 1.8 * early  # the flows of powertcp swing


def test_bbr_keeps_its_bandwidth_when_it_probes_the_rtt() -> None:
    """Of section 4.3.5: four packets in flight for 200 ms are twenty round trips here."""
    qps = long_run("bbr", {"rtprop_filter_len_ns": 1e9}, 1, 3, 5_000_000)
    cwnd, rate_bps = qps["cwnd_bytes"][:, 0], qps["pacing_rate_bps"][:, 0]
    probing = np.flatnonzero(cwnd[20:] <= 4 * 4096) + 20
    assert probing.size >= 3
    assert rate_bps[probing[0] :].min() > 0.7 * 0.75 * 1e8
