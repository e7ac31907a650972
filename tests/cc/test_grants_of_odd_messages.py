# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Receiver-driven algorithms over paths that hold no two packets.

A grant counts bytes, and a message may end anywhere within a packet.  What is left of a grant must
not make receiver and sender wait for each other.
"""

from __future__ import annotations

import numpy as np
import pytest

from datapath.cc import compile_algorithm, load, registry
from datapath.fabric import flows as traffic
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Star

RECEIVERS = [name for name in registry() if load(name).grants]


@pytest.mark.parametrize("algorithm", RECEIVERS)
@pytest.mark.parametrize("message", [700, 8192, 9000, 20_000])
@pytest.mark.parametrize("rate_bps", [10**8, 10**9])
@pytest.mark.parametrize("segment", [1408, 8896])
def test_every_flow_ends(algorithm: str, message: int, rate_bps: int, segment: int) -> None:
    senders, messages = 6, 8
    edge = Link(rate_bps=rate_bps, delay_ns=1000, limit_bytes=1 << 20)
    rows = traffic.empty(senders)
    rows["src"], rows["dst"] = np.arange(senders) + 1, 0
    rows["bytes"], rows["message_bytes"], rows["depth"] = message * messages, message, 2
    options = EngineOptions(path_mtu=1024, segment_max=segment, line_rate_bps=rate_bps)
    network = Star(hosts=senders + 1, edge=edge)
    result = Simulation(network, transport=options).run(
        rows, compile_algorithm(algorithm), until_ns=20 * 10**9, timeout_s=100
    )
    assert result.totals["ended"] == senders
