# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flows in both directions of one link: acknowledgements wait in the other direction's queue."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link
from datapath.fabric.sim_result import Sampling
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell

from .scene import GBIT, MS, MSS, US, WIRE, Seen, Shared, long_flows


@pytest.mark.parametrize("loss", [0, 0.001, 0.05])
@pytest.mark.parametrize("rtt_us", [50, 200, 2000])
@pytest.mark.parametrize("pairs", [1, 4])
def test_vpc_fills_both_directions(pairs: int, rtt_us: int, loss: float) -> None:
    """A queue of the return path, of flows in the other direction, is not taken for its own.

    The least that both directions carry, of what a direction holds beside the acknowledgements.
    """
    shared = Shared(rtt_ns=rtt_us * US, loss=loss)
    topology = Dumbbell(
        pairs=2 * pairs,
        edge=Link(rate_bps=10 * GBIT, delay_ns=0),
        bottleneck=shared.link(),
        backward=shared.link(),
    )
    flows = long_flows(2 * pairs, 600 * MS)
    flows["src"][pairs:], flows["dst"][pairs:] = flows["dst"][pairs:], flows["src"][pairs:].copy()
    simulation = Simulation(topology, transport=EngineOptions(line_rate_bps=GBIT))
    sampling = Sampling(MS, flows=range(len(flows)), links=(0,))
    compiled = compile_algorithm("vpc", {})
    seen = Seen(simulation.run(flows, compiled, until_ns=600 * MS, sampling=sampling), shared)
    rates = seen.goodput_bps(200 * MS)
    least = {1: 0.9, 4: 0.85}[pairs] * GBIT * MSS / WIRE
    assert min(rates[:pairs].sum(), rates[pairs:].sum()) > least
