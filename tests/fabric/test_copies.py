# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Copies that timers send: none where a queue is only long, soon where packets are lost."""

from __future__ import annotations

import numpy as np
import pytest

from datapath.fabric import flows as traffic
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.flows import Flows
from datapath.fabric.links import Link, Loss
from datapath.fabric.sim_result import SimResult
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell
from tests.fabric.test_simulator import WRITE_HEADERS

pytestmark = pytest.mark.san

GBIT, US = 10**9, 10**3
SIZE, LOAD, MESSAGES = 4096, 0.7, 6000
SERVICE_NS = 8 * (SIZE + WRITE_HEADERS)
"""At 1 Gbit/s."""


def poisson(pairs: int, qps: int, opcode: str, two_way: bool) -> Flows:
    """Messages of one packet at random times, over QPs in turn."""
    ways = [(0, pairs), (pairs, 0)][: 1 + two_way]
    rng = np.random.default_rng(1)
    tables = []
    for nth, (src, dst) in enumerate(ways):
        rows = traffic.empty(MESSAGES)
        rows["start_ns"] = np.cumsum(rng.exponential(SERVICE_NS / LOAD, MESSAGES))
        turn = np.arange(MESSAGES)
        rows["src"], rows["dst"] = src + turn % pairs, dst + turn % pairs
        rows["qp"] = turn // pairs % qps + nth * qps
        rows["bytes"], rows["opcode"] = SIZE, traffic.OPCODES[opcode]
        tables.append(rows)
    return traffic.ordered(np.concatenate(tables))


def run(pairs: int, link: Link, rows: Flows) -> SimResult:
    network = Dumbbell(pairs, edge=Link(10 * link.rate_bps, 0), bottleneck=link, backward=link)
    result = Simulation(network, transport=EngineOptions(ecn=False)).run(rows)
    assert result.finished
    assert not result.totals["failed"]
    return result


@pytest.mark.parametrize(
    ("pairs", "qps", "opcode", "two_way"),
    [
        (16, 4, "write", False),
        (64, 1, "write", False),
        (16, 64, "write", False),
        (16, 4, "read", False),
        (16, 4, "write", True),
    ],
)
def test_a_queue_longer_than_the_timers_is_not_made_longer(
    pairs: int, qps: int, opcode: str, two_way: bool
) -> None:
    """Poisson arrivals at a link: mean waiting time of M/D/1."""
    rows = poisson(pairs, qps, opcode, two_way)
    result = run(pairs, Link(GBIT, 1 * US, limit_bytes=1 << 20), rows)
    unloaded_ns = 1.1 * SERVICE_NS + 2 * US
    wait_ns = LOAD * SERVICE_NS / (2 * (1 - LOAD))
    ways = 1 + two_way  # an acknowledgement waits behind the data of the other way
    assert result.flows.latencies.mean_ns < unloaded_ns + 2 * ways * wait_ns
    assert result.qps["retransmits"] <= 0.02 * len(rows)


@pytest.mark.parametrize(("loss", "longest_ns"), [(0.01, 730 * US), (0.05, 1750 * US)])
def test_lost_messages_are_sent_again_soon(loss: float, longest_ns: int) -> None:
    """One at a time, over an RTT of 200 us: a probe comes after 0.5 ms, and again after 1 ms."""
    rows = traffic.empty(1)
    rows["dst"], rows["bytes"], rows["message_bytes"], rows["depth"] = 1, 64 * 20_000, 64, 1
    result = run(1, Link(GBIT, 100 * US, loss=Loss(good=loss)), rows)
    assert result.flows.latencies.quantile(0.98) < 730 * US
    assert result.flows.latencies.quantile(0.998) < longest_ns
