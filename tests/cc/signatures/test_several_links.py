# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A flow that crosses several bottlenecks, beside flows that cross one each."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link
from datapath.fabric.sim_result import Sampling
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import ParkingLot

from .scene import GBIT, MS, US, Seen, Shared, long_flows


@pytest.mark.parametrize(("hops", "least"), [(2, 0.5), (4, 0.15), (6, 0.05)])
def test_vpc_keeps_a_share_over_several_links(hops: int, least: float) -> None:
    """Packets of 1 KiB, where proportional fairness is 0.6, 0.29 and 0.19 of equal shares.

    The target is a share of the base RTT, so a longer path bears the queues of more links.
    """
    link = Link(rate_bps=GBIT, delay_ns=50 * US, limit_bytes=256_000)
    edge = Link(rate_bps=10 * GBIT, delay_ns=0)
    flows = long_flows(hops + 1, 600 * MS)
    flows["src"] = [0, *range(2, 2 * hops + 2, 2)]
    flows["dst"] = [1, *range(3, 2 * hops + 3, 2)]
    options = EngineOptions(path_mtu=1024, line_rate_bps=GBIT)
    simulation = Simulation(ParkingLot(hops=hops, edge=edge, hop=link), transport=options)
    sampling = Sampling(MS, flows=range(hops + 1), links=(0,))
    result = simulation.run(flows, compile_algorithm("vpc"), until_ns=600 * MS, sampling=sampling)
    rates = Seen(result, Shared()).goodput_bps(200 * MS)
    assert rates[0] / rates.mean() > least
