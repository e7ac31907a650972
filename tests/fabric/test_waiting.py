# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flows that wait for the end of another one, and DSCPs of flows, in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.errors import LocalError
from datapath.fabric import flows as traffic
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, QueueClass
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Star

EDGE = Link(10**10, 1_000, limit_bytes=1 << 20)


def rows(count: int, **columns: Any) -> traffic.Flows:
    flows = traffic.empty(count)
    flows["dst"], flows["bytes"], flows["qp"] = 1, 100_000, np.arange(count)
    for name, value in columns.items():
        flows[name] = value
    return flows


def run(flows: traffic.Flows, **more: Any) -> Any:
    return Simulation(Star(4, EDGE)).run(flows, **more).flows.rows


def test_a_chain_across_hosts() -> None:
    done = run(rows(3, src=[0, 1, 2], dst=[1, 2, 0], after=[0, 1, 2]))
    assert (done["finish_ns"] > 0).all()
    assert (done["posted_ns"][1:] == done["finish_ns"][:-1]).all()


def test_it_does_not_begin_before_its_own_start() -> None:
    done = run(rows(2, after=[0, 1], start_ns=[0, 5_000_000]))
    assert done["posted_ns"].tolist() == [0, 5_000_000]


def test_it_holds_up_the_flows_of_its_qp() -> None:
    done = run(rows(3, qp=[0, 1, 1], after=[0, 1, 0]))
    assert done["posted_ns"][1] == done["finish_ns"][0]
    assert done["posted_ns"][2] >= done["posted_ns"][1]
    assert done["finish_ns"][2] > done["finish_ns"][1]


def test_a_flow_that_is_stopped_has_ended() -> None:
    done = run(rows(2, after=[0, 1], stop_ns=[20_000, 0], bytes=[10**9, 1000]))
    assert done["finish_ns"][0] == 0
    assert done["posted_ns"][1] == 20_000


@given(
    after=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    qps=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_none_begins_too_soon_and_all_end(after: list[int], qps: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = len(after)
    flows = rows(count, qp=draw.integers(0, qps, count), src=draw.integers(2, 4, count))
    flows["start_ns"] = np.sort(draw.integers(0, 300_000, count))
    flows["after"] = [min(one, index) for index, one in enumerate(after)]
    flows["bytes"] = draw.integers(1, 50_000, count)
    done = run(flows)
    assert (done["finish_ns"] > 0).all()
    for row, one in enumerate(flows["after"]):
        if one:
            assert done["posted_ns"][row] >= done["finish_ns"][int(one) - 1]
    assert (done["posted_ns"] >= flows["start_ns"]).all()


@pytest.mark.parametrize("after", [[1, 0], [0, 3], [2, 0]])
def test_only_earlier_rows_can_be_waited_for(after: list[int]) -> None:
    with pytest.raises(LocalError, match="after is not an earlier row"):
        run(rows(2, after=after))


def test_flows_go_into_the_class_of_their_dscp() -> None:
    """What is shaped to a tenth takes ten times as long."""
    classes = (QueueClass(share=0.1, dscp=(7,)), QueueClass())
    edge = Link(10**10, 1_000, classes=classes)
    options = EngineOptions(class_of_dscp=tuple(int(d != 7) for d in range(64)))
    flows = rows(2, src=[0, 2], dst=[1, 3], dscp=[7, 0], bytes=4_000_000)
    done = Simulation(Star(4, edge), transport=options).run(flows).flows.rows["finish_ns"]
    assert done[0] / done[1] == pytest.approx(10, rel=0.1)
