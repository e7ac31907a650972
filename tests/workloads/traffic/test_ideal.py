# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A flow that is alone in a simulated network takes as long as its slowdown is measured by."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from datapath.cc.spec import Cc
from datapath.fabric import flows as table
from datapath.fabric.ways import Ways
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.spec import Transport
from datapath.workloads.traffic.ideal import Ideal, framing

PRESETS: dict[str, dict[str, Any]] = {
    "p2p": {},
    "dumbbell": {"hosts": 6},
    "star": {"hosts": 5},
    "parking-lot": {"hops": 3},
    "leaf-spine": {"leaves": 3, "spines": 2, "hosts_per_leaf": 2},
    "fat-tree": {"k": 4},
    "rail": {"servers": 2, "rails": 3, "spines": 2},
}
GRAPH = {
    "links": [
        {"ends": "a--s"},
        {"ends": "b--s", "rate": "300mbit"},
        {"ends": "s--t", "rate": "700mbit", "delay": "3us"},
        {"ends": "t>s", "rate": "200mbit"},
        {"ends": "c--t", "delay": "40us"},
    ]
}
RATES = ["1gbit", "3gbit", "10gbit", "100gbit"]
HOW: list[tuple[Literal["auto", "standard"], str]] = [
    ("auto", "write"),
    ("standard", "write"),
    ("standard", "send"),
    ("standard", "read"),
]
"""Modes and operations.  In extended mode the answer to a SEND waits for up to 4 us."""
LONGER_BYTES = 40
"""By so much an acknowledgement of extended mode, or a READ request, is longer than the shortest
acknowledgement at most."""
PADDING_BYTES = 3
ROUNDED_NS = 10
"""Each link ends a frame at a whole nanosecond."""


def alone(
    network: SimNetwork,
    src: int,
    dst: int,
    size: int,
    operation: str,
    transport: Transport,
    message_bytes: int = 0,
) -> tuple[float, float, float]:
    """(completion time, that of the ideal, by how much the ideal may be shorter), ns."""
    flows = table.empty(1)
    flows["src"], flows["dst"], flows["bytes"] = src, dst, size
    flows["opcode"] = table.OPCODES[operation]
    flows["message_bytes"], flows["depth"] = message_bytes, 16
    fixed = Cc.model_validate({"algo": "fixed", "window_bytes": "1000000000"})
    answer = network.simulate(flows, transport=transport, cc=fixed, seed=1)
    reads = operation == "read"
    frames = framing(transport, network.topology.mtu, operation)
    ways = Ways(network.graph)
    ideal = Ideal(frames, ways=ways, reads=reads)
    there, back = ways.there_and_back([src], [dst])
    if reads:
        there, back = back, there
    more = LONGER_BYTES * back.byte_ns[0] + PADDING_BYTES * there.byte_ns[0] + ROUNDED_NS
    took = float(answer.flows.rows["finish_ns"][0])
    return took, float(ideal.fct_ns(flows)[0]), float(more)


@settings(max_examples=40, deadline=None)
@given(
    preset=st.sampled_from([*PRESETS, "graph"]),
    rates=st.tuples(st.sampled_from(RATES), st.sampled_from(RATES)),
    mtu=st.sampled_from([1500, 4400, 9000]),
    how=st.sampled_from(HOW),
    ends=st.tuples(st.integers(0, 15), st.integers(0, 15)),
    size=st.one_of(st.integers(1, 20_000), st.integers(1, 1_000_000)),
)
@example("leaf-spine", ("3gbit", "1gbit"), 1500, HOW[0], (0, 5), 1409)  # its end catches up
@example("dumbbell", ("10gbit", "3gbit"), 9000, HOW[0], (0, 3), 8897)
@example("dumbbell", ("3gbit", "1gbit"), 1500, HOW[0], (0, 3), 1409)
def test_a_flow_alone_takes_what_the_ideal_says(
    preset: str,
    rates: tuple[str, str],
    mtu: int,
    how: tuple[Literal["auto", "standard"], str],
    ends: tuple[int, int],
    size: int,
) -> None:
    section: dict[str, Any] = {"lane": "sim", "preset": preset, "mtu": mtu, "host_rate": rates[0]}
    section |= {"graph": GRAPH} if preset == "graph" else PRESETS[preset]
    topology = Topology.model_validate(section)
    network = SimNetwork(topology, Path(rate=rates[1], delay="2us", queue="1GB"))
    src, dst = (end % len(network.hosts) for end in ends)
    assume(src != dst)
    transport = Transport(mode=how[0])
    took, ideal, more = alone(network, src, dst, size, how[1], transport)
    assert ideal - ROUNDED_NS <= took <= ideal + more


@pytest.mark.parametrize("size", [9_000, 100_000])
def test_a_slower_core_is_no_slowdown(size: int) -> None:
    """The rate is that of the path's slowest link, and each further link takes a packet in turn."""
    section = {"preset": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2}
    topology = Topology.model_validate({"lane": "sim", "host_rate": "10gbit", **section})
    for rate in ("1gbit", "10gbit"):
        network = SimNetwork(topology, Path(rate=rate, delay="1us"))
        took, ideal, _ = alone(network, 0, 2, size, "write", Transport())
        assert took == pytest.approx(ideal, rel=0.03)


@pytest.mark.parametrize("mode", ["auto", "standard"])
@pytest.mark.parametrize(
    ("operation", "size", "message_bytes"),
    [("read", 100_000, 0), ("write", 1_000_000, 10_000), ("read", 100, 30), ("write", 9_000, 0)],
)
def test_no_flow_is_faster_than_the_ideal(
    mode: Literal["auto", "standard"], operation: str, size: int, message_bytes: int
) -> None:
    """Behind the slowest link only the last packet counts, which may be shorter than the first."""
    section = {"preset": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 1}
    topology = Topology.model_validate({"lane": "sim", "host_rate": "100gbit", **section})
    network = SimNetwork(topology, Path(rate="1gbit", delay="2us", queue="2MB"))
    took, ideal, _ = alone(network, 0, 1, size, operation, Transport(mode=mode), message_bytes)
    assert ideal - ROUNDED_NS <= took <= 1.3 * ideal
