# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""mprdma against sections 3.1, 3.2 and 3.4 of Lu et al. (NSDI 2018)."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, Marking
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import LeafSpine

from .hand import Hand
from .signatures.scene import GBIT, MS, US, WIRE, long_flows

STAY = {"probe_share": 0.0}


def test_the_window_moves_by_each_packet() -> None:
    """Section 3.1: cwnd + 1 / cwnd without a mark, cwnd - 1/2 with one."""
    flow = Hand("mprdma", initial_window=16, paths=8, **STAY)
    assert flow.ack(1) == pytest.approx(16 + 1 / 16)
    assert flow.ack(1, marked=1) == pytest.approx(16 + 1 / 16 - 1 / 2)
    before = flow.packets
    assert flow.ack(4, marked=0.5) == pytest.approx(before + 2 / before - 1)


def test_acknowledgements_clock_their_own_path() -> None:
    flow = Hand("mprdma", paths=8, **STAY)
    assert flow.flow.next_path == -1  # the first window is spread in turn
    for path in (3, 7, 0, 0, 5):
        flow.ack(1, path=path)
        assert flow.flow.next_path == path
    flow.ack(1, path=2, marked=1)
    assert flow.flow.next_path == 2


def test_one_packet_in_a_hundred_probes() -> None:
    """Section 3.2: p = 1 %."""
    flow = Hand("mprdma", paths=8, initial_window=2000)
    chosen = [flow.flow.next_path for _ in range(20_000) if flow.ack(1, path=0) is not None]
    others = [path for path in chosen if path != 0]
    assert len(others) / len(chosen) == pytest.approx(0.01 * 7 / 8, rel=0.25)
    assert set(others) == set(range(1, 8))


def test_a_path_that_is_too_late_is_left() -> None:
    """Section 3.4: more than delta = 32 packets behind, cwnd - 1 and nothing along that path."""
    flow = Hand("mprdma", paths=4, initial_window=64, **STAY)
    flow.ack(1, path=1, prior=100)
    before = flow.packets
    assert flow.ack(1, path=2, prior=68) == pytest.approx(before + 1 / before)
    assert flow.flow.next_path == 2
    before = flow.packets
    assert flow.ack(1, path=2, prior=67) == pytest.approx(before - 1)
    assert flow.flow.next_path == 1


def test_loss_and_timeout() -> None:
    flow = Hand("mprdma", paths=4, initial_window=16, **STAY)
    flow.ack(1, path=3, prior=10)
    before = flow.packets
    assert flow.lose(2, path=1) == pytest.approx(before - 1)
    assert flow.flow.next_path == 3
    assert flow.timeout() == 1
    assert flow.flow.next_path == -1


def test_one_path_and_limits() -> None:
    flow = Hand("mprdma", paths=1, initial_window=2)
    for _ in range(50):
        flow.ack(1, marked=1, inflight=1)
        assert flow.flow.next_path == 0
    assert flow.packets == 1


def test_without_acknowledgements_to_come_the_paths_take_turns() -> None:
    flow = Hand("mprdma", paths=8)
    for inflight, path in ((3, 5), (0, -1), (1, 5)):
        flow.ack(1, path=5, inflight=inflight)
        assert flow.flow.next_path == path


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_eight_equal_spines_stay_in_use(seed: int) -> None:
    """Section 3.2: an acknowledgement of four packets sends one along each of their paths.

    Nothing probes here: the paths of the first window are all there are.
    """
    marking = Marking("step", 20 * WIRE)
    link = Link(rate_bps=10 * GBIT, delay_ns=2 * US, limit_bytes=4_000_000, marking=marking)
    topology = LeafSpine(leaves=2, spines=8, hosts_per_leaf=1, edge=link, core=link)
    simulation = Simulation(topology, seed=seed, transport=EngineOptions(paths=64))
    flows = long_flows(1, 20 * MS)
    links = simulation.run(flows, compile_algorithm("mprdma", STAY), until_ns=20 * MS).links
    up = [int(link["offered_bytes"]) for link in links if link["name"].startswith("leaf0>spine")]
    assert sum(one > 0.05 * sum(up) for one in up) >= 6
    assert max(up) < 0.32 * sum(up)
