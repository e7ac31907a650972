# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which records of telemetry algorithms compare: those of one link of one path."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cc import test_hpcc, test_powertcp

LINE = test_hpcc.LINE
RTT = test_hpcc.T
BDP = test_hpcc.BDP


class Watched:
    """An algorithm on a path of one link; load: what it makes of the link's records."""

    def __init__(self, path: Any, load: str) -> None:
        self.path, self._load = path, load

    @property
    def load(self) -> float:
        return float(getattr(self.path.hand.flow, self._load))


@pytest.fixture(params=["hpcc", "powertcp"])
def watched(request: pytest.FixtureRequest) -> Watched:
    if request.param == "hpcc":
        return Watched(test_hpcc.Path(), "u")
    return Watched(test_powertcp.Path(), "power")


@pytest.mark.parametrize("jump", [-1e6, 2e9])
def test_a_link_cannot_have_sent_so_much(watched: Watched, jump: float) -> None:
    """A reroute leads over another link of the same rate, whose counter is another."""
    path = watched.path
    for _ in range(20):
        path.ack(load=0.9)
    before = watched.load
    path.tx_bytes += jump
    path.ack(load=0.9)
    assert watched.load == before
    path.ack(load=0.9)
    assert watched.load == pytest.approx(before)


def test_of_several_paths_it_watches_one(watched: Watched) -> None:
    """And takes another when nothing is heard of that one for long."""
    path = watched.path
    path.hand.flow.paths = 8
    other = [(0, 7e9, path.ts_ns, LINE)]
    path.ack(load=0.5)
    known = watched.load
    for _ in range(5):
        path.hand.ack(1, wait_ns=RTT, rtt_ns=RTT, hops=other, path=3)
        assert watched.load == known
    path.ts_ns += 5 * RTT
    path.tx_bytes += 5 * 0.7 * BDP
    path.ack(load=0.7)
    assert watched.load == pytest.approx(0.7)
    path.hand.ack(1, wait_ns=9 * RTT, rtt_ns=RTT, hops=other, path=3)
    assert path.hand.flow.hop_path == 3
    assert watched.load == pytest.approx(0.7)
