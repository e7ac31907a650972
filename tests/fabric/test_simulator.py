# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The simulator: what its numbers must be, that runs repeat, and that it sees what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datapath.cc import compile_algorithm
from datapath.errors import LocalError, RunFailed
from datapath.fabric import flows as traffic
from datapath.fabric import replay
from datapath.fabric.changes import (
    Change,
    OrderFlow,
    PauseLink,
    SetAlgorithm,
    SetLink,
    SetRoute,
    StallHost,
)
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.failures import Deadlock, TimeStandsStill
from datapath.fabric.links import (
    Aqm,
    CoDel,
    FqCoDel,
    Jitter,
    Link,
    Loss,
    Marking,
    Pie,
    Policer,
    QueueClass,
    SharedBuffer,
)
from datapath.fabric.sim_result import Sampling
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Cable, Custom, Dumbbell, FatTree, Graph, LeafSpine, Rail, Star
from datapath.fabric.wakeup import Lateness, Wakeup
from datapath.native import paths, sim
from tests.link.links import impairment_settings

pytestmark = pytest.mark.san

GBIT = 10**9
HEADROOM = 24  # FCS, preamble, gap
OUTER = 14 + 20 + 8 + 4  # Ethernet, IPv4, UDP, ICRC
BTH, RETH, XDH, AETH, XAH = 12, 16, 20, 4, 28
WRITE_HEADERS = HEADROOM + OUTER + BTH + XDH + RETH
ACK_BYTES = HEADROOM + OUTER + BTH + AETH + XAH


def flow(
    src: int = 0, dst: int = 1, size: int = 1_000_000, *, start_ns: int = 0, **more: int
) -> traffic.Flows:
    row = traffic.empty(1)
    row["src"], row["dst"], row["bytes"], row["start_ns"] = src, dst, size, start_ns
    for name, value in more.items():
        row[name] = value
    return row


def serialization_ns(frame_bytes: int, rate_bps: int) -> float:
    return frame_bytes * 8e9 / rate_bps


# --- numbers that can be told beforehand ---------------------------------------------------------


def test_goodput_is_what_the_headers_leave() -> None:
    """One QP on an idle dumbbell keeps the bottleneck busy but for one packet and the path."""
    rate, delay, mtu, size = 10 * GBIT, 2_000, 4096, 64 * 2**20
    line = Dumbbell(1, edge=Link(100 * GBIT, delay), bottleneck=Link(rate, delay))
    result = Simulation(line).run(flow(size=size, message_bytes=2**20, depth=8))
    packets = size // mtu
    busy = serialization_ns(packets * (mtu + WRITE_HEADERS), rate)
    way = 2 * serialization_ns(mtu + WRITE_HEADERS, 100 * GBIT) + 3 * delay
    back = (
        3 * delay + 2 * serialization_ns(ACK_BYTES, 100 * GBIT) + serialization_ns(ACK_BYTES, rate)
    )
    finish = int(result.flows.rows["finish_ns"][0])
    packet = serialization_ns(mtu + WRITE_HEADERS, rate)
    assert busy + way + back <= finish <= busy + way + back + packet
    row = result.links[0]
    assert (row["name"], row["delivered_bytes"]) == (
        "left>right",
        packets * (mtu + WRITE_HEADERS),
    )


def test_a_read_at_time_zero_is_asked_for_once() -> None:
    """Whatever its first PSN, which follows from the seed."""
    for seed in range(16):
        read = flow(size=65536, message_bytes=65536, opcode=traffic.RDMA_READ)
        result = Simulation(Dumbbell(1), seed=seed).run(read)
        assert (seed, result.qps["retransmits"]) == (seed, 0)


def test_a_small_flow_takes_serialization_and_propagation() -> None:
    """Every term is known: the packet over three links, and its ACK back over three."""
    edge, neck = Link(100 * GBIT, 1_500), Link(40 * GBIT, 7_000)
    size = 1000
    result = Simulation(Dumbbell(1, edge=edge, bottleneck=neck)).run(flow(size=size))

    def one_way(frame: int) -> int:
        """The nanosecond in which the last bit comes, hop by hop."""
        return sum(
            link.delay_ns + int(np.ceil(serialization_ns(frame, link.rate_bps)))
            for link in (edge, neck, edge)
        )

    expected = one_way(size + WRITE_HEADERS) + one_way(ACK_BYTES)
    assert int(result.flows.rows["finish_ns"][0]) == expected
    assert result.flows.latencies.max_ns == int(result.flows.rows["finish_ns"][0])


@pytest.mark.parametrize("senders", [2, 8])
def test_equal_flows_share_a_bottleneck(senders: int) -> None:
    """Windows alone, no algorithm: bytes delivered by the end are equal within a fifth."""
    line = Dumbbell(senders, edge=Link(), bottleneck=Link(10 * GBIT, 1_000, limit_bytes=10**8))
    rows = [
        flow(i, senders + i, traffic.UNTIL_STOP, stop_ns=40_000_000, message_bytes=65536, depth=8)
        for i in range(senders)
    ]
    delivered = Simulation(line).run(traffic.join(rows)).flows.rows["delivered_bytes"]
    share = delivered.astype(float)
    jain = share.sum() ** 2 / (senders * (share**2).sum())
    assert jain > 0.95
    assert share.sum() * 8e9 / 40e6 > 0.9 * 10 * GBIT


def test_incast_into_a_short_queue_drops_and_recovers() -> None:
    """32 to 1 with drop-tail: packets are lost, every flow ends, every byte comes once."""
    senders = 32
    star = Star(senders + 1, edge=Link(25 * GBIT, 1_000, limit_bytes=200_000))
    rows = traffic.join([flow(i, senders, 300_000) for i in range(senders)])
    result = Simulation(star).run(rows)
    assert result.finished
    assert (result.flows.rows["failed"] == 0).all()
    assert result.totals["overflowed"] > 0
    assert result.qps["retransmits"] >= result.totals["overflowed"] * 0.9
    assert result.qps["rx_bytes"] == senders * 300_000


@pytest.mark.parametrize("opcode", sorted(traffic.OPCODES.values()))
@pytest.mark.parametrize("extended", [True, False], ids=["extended", "standard"])
def test_every_operation_under_loss(opcode: int, extended: bool) -> None:
    lossy = Link(25 * GBIT, 2_000, loss=Loss(good=0.01))
    options = EngineOptions(extended=extended, path_mtu=1024)
    simulation = Simulation(Star(2, edge=lossy), transport=options)
    rows = flow(size=2_000_000, message_bytes=50_001, depth=4, opcode=opcode)
    result = simulation.run(rows)
    assert result.finished
    assert result.totals["lost"] > 0
    assert result.flows.rows["delivered_bytes"][0] == 2_000_000
    assert result.flows.rows["messages"][0] == 40


def test_negotiation_in_band_reaches_extended_mode() -> None:
    in_band = EngineOptions(preset=False)
    rows = flow(size=5_000_000, message_bytes=100_000)
    counts = [
        Simulation(Star(2), transport=options).run(rows).totals["injected"]
        for options in (EngineOptions(), in_band)
    ]
    assert counts[1] > counts[0]


@pytest.mark.parametrize("delay_ns", [3_000_000, 30_000_000, 90_000_000])
def test_the_first_time_out_knows_the_round_trip(delay_ns: int) -> None:
    """As in a handshake: without it, an RTT above 20 ms is taken for a loss and ends the start."""
    line = Dumbbell(1, bottleneck=Link(GBIT, delay_ns))
    result = Simulation(line).run(flow(0, 1, size=20_000))
    assert result.finished
    assert result.qps["timeouts"] == 0 == result.qps["retransmits"]


def test_a_path_that_loses_long_packets_silently() -> None:
    """The probe of the longer segment is lost, so packets stay at the path MTU and pass."""
    line = Dumbbell(1, bottleneck=Link(10 * GBIT, 1_000, impairments=(("max_packet", 5_000),)))
    transport = EngineOptions(preset=False, path_mtu=4096, segment_max=8960)
    result = Simulation(line, transport=transport).run(flow(0, 1, size=5_000_000))
    assert result.flows.rows["delivered_bytes"][0] == 5_000_000
    assert 0 < result.totals["lost"] < 10, "probes, and no data"


def test_a_black_hole_ends_the_flows_that_it_takes() -> None:
    """The others finish; one QP that spreads over paths finds those that are left."""
    rows = traffic.join(flow(i, 32 + i, size=100_000) for i in range(32))
    hole = Link(100 * GBIT, 1_000, impairments=(("blackhole", 0.25),))
    result = Simulation(Dumbbell(32, bottleneck=hole), seed=3).run(rows)
    failed = result.flows.rows["failed"] != 0
    assert 0 < failed.sum() < 32
    assert (result.flows.rows["delivered_bytes"][~failed] == 100_000).all()
    many = Simulation(Dumbbell(32, bottleneck=hole), transport=EngineOptions(paths=8), seed=3)
    assert (many.run(rows).flows.rows["failed"] != 0).sum() < failed.sum()


def test_the_numbers_of_a_link_are_those_of_c() -> None:
    members = sim.ffi.typeof("struct dp_link_config").fields
    numbers = {name for name, member in members if member.type.kind == "primitive"}
    assert set(Link().numbers()) == numbers - {"n_classes", "seed"}


@pytest.mark.parametrize("rate_mbps", [120, 90, 60])
def test_a_paced_flow_resends_what_was_lost_and_no_more(rate_mbps: int) -> None:
    """A packet each 270, 360 and 550 us over an RTT of 240 us.  Probes are for tails: one that
    goes out although newer packets have left draws nothing that these would not draw."""
    lossy = Link(10**9, 100_000, loss=Loss(good=0.01))
    network = Dumbbell(1, edge=Link(10**10, 0), bottleneck=lossy, backward=Link(10**9, 100_000))
    paced = compile_algorithm("fixed", {"window_bytes": 100_000, "rate_bps": rate_mbps * 1e6})
    rows = flow(0, 1, 10_000_000, message_bytes=65_536, depth=16)
    result = Simulation(network).run(rows, paced)
    assert result.qps["retransmits"] > 10
    assert result.qps["spurious"] == 0
    assert result.links["lost"].sum() == result.qps["retransmits"]


def test_the_host_does_not_queue_its_window() -> None:
    """A slow NIC holds one packet behind the one that it transmits."""
    star = Star(2, edge=Link(GBIT, 1_000))
    result = Simulation(star).run(flow(size=4_000_000))
    nic = result.links[result.links["name"] == "host0>switch"]
    assert int(nic["queue_max_bytes"][0]) <= 4096 + WRITE_HEADERS


# --- flows ---------------------------------------------------------------------------------------


def test_flows_of_one_qp_queue_behind_each_other() -> None:
    rows = traffic.join([flow(size=1_000_000, message_bytes=10_000), flow(size=5_000)])
    same = Simulation(Star(2)).run(rows).flows.rows
    rows["qp"] = [0, 1]
    apart = Simulation(Star(2)).run(rows).flows.rows
    assert same["posted_ns"][1] > 0
    assert same["finish_ns"][1] > same["finish_ns"][0]
    assert apart["posted_ns"][1] == 0
    assert apart["finish_ns"][1] < apart["finish_ns"][0]


def test_stop_ends_flows() -> None:
    """One until it is stopped, one that is cut short, one that had finished before."""
    stop = 500_000
    rows = traffic.join(
        [
            flow(0, 1, traffic.UNTIL_STOP, stop_ns=stop, message_bytes=10_000, depth=2),
            flow(2, 3, 10**9, stop_ns=stop, message_bytes=10_000),
            flow(4, 5, 10_000, stop_ns=stop),
        ]
    )
    result = Simulation(Star(6)).run(rows)
    finish = result.flows.rows["finish_ns"].tolist()
    assert finish[:2] == [stop, 0]
    assert 0 < finish[2] < stop
    assert result.flows.rows["delivered_bytes"][0] == 10_000 * result.flows.rows["messages"][0] > 0


def test_a_dead_path_fails_the_flow_and_those_behind_it() -> None:
    star = Star(3, edge=Link())
    simulation = Simulation(star, transport=EngineOptions(timeout=8, retry_cnt=1))
    rows = traffic.join(
        [flow(0, 1, 10_000), flow(0, 1, 10_000, start_ns=1), flow(0, 2, 1_000, start_ns=2)]
    )
    dead = SetLink(0, simulation.graph.link("switch", "host1"), Link(loss=Loss(good=1.0)))
    result = simulation.run(rows, changes=[dead])
    assert result.finished
    failed = result.flows.rows["failed"].tolist()
    assert failed[0] == 12  # retry exceeded
    assert failed[1] != 0
    assert failed[2] == 0


# --- what it refuses -----------------------------------------------------------------------------


def test_a_table_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(LocalError, match="src and dst"):
        Simulation(Star(2)).run(flow(0, 0))
    with pytest.raises(LocalError, match="not one of the 2 hosts"):
        Simulation(Star(2)).run(flow(0, 7))

    with pytest.raises(LocalError, match="has no flows"):
        Simulation(Star(2)).run(traffic.empty(0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path_mtu": 1500, "paths": 4}, "EngineOptions: the simulator refuses path_mtu = 1500"),
        ({"window_psns": 5}, "refuses window_psns = 5"),
        ({"path_mtu": 1000, "segment_max": 7}, "refuses path_mtu = 1000, segment_max = 7"),
        ({"window_psns": 64.0}, "EngineOptions: window_psns is 64.0, and has to be a whole"),
        ({"paths": 300}, "EngineOptions: paths is 300, and can be at most 255"),
        ({"min_rto_ns": 2**64}, "EngineOptions: min_rto_ns is 18446744073709551616, and can be at"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Simulation(Star(2), transport=EngineOptions(**options)).run(flow())


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"rate_bps": 1e9}, "Link: rate_bps is 1000000000.0, and has to be a whole number"),
        ({"delay_ns": -1}, "Link: delay_ns is -1"),
        ({"delay_ns": 2**62}, "Link: delay_ns is 4611686018427387904, and can be at most"),
        ({"trace_ms": (-1, 2)}, "Link: trace_ms goes from -1 to 2"),
        ({"classes": (QueueClass(),) * 9}, "Link: it has 9 classes, and at most 8"),
        ({"impairments": (("slto", 5000.0),)}, "Link: 'slto' is no impairment"),
        ({"rate_bps": "1gbit"}, "Link: rate_bps is '1gbit'"),
        ({"rate_bps": GBIT, "duplicate": 2.0}, "link switch>host0: Link: .* duplicate = 2.0"),
        ({"loss": Loss(good=2.0)}, r"link switch>host0: Link: .* loss = Loss\(good=2.0"),
    ],
)
def test_settings_of_links_that_make_no_sense_are_named(
    members: dict[str, Any], words: str
) -> None:
    with pytest.raises(LocalError, match=words):
        Simulation(Star(2, downlink=Link(**members))).run(flow())


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (((0, 2), (1, 3)), "no way leads from a to b"),
        (((0, 2),), "host b has 0 cables"),
        (((0, 2), (1, 2), (2, 1)), "host b has 2 cables"),
        (((0, 2), (1, 2), (2, 2)), "a cable from node 2 to node 2"),
        (((0, 2), (1, 4)), "a cable from node 1 to node 4 of 4 nodes"),
    ],
)
def test_what_keeps_cables_from_being_a_network_is_told(
    ends: tuple[tuple[int, int], ...], words: str
) -> None:
    cables = tuple(Cable(a, b, Link(), Link()) for a, b in ends)
    with pytest.raises(LocalError, match=words):
        Simulation(Custom(2, ("a", "b", "left", "right"), cables)).run(flow())


def test_a_buffer_and_a_trace_that_make_no_sense_are_told_apart() -> None:
    small = SharedBuffer(1000, pfc_classes=1, xoff_bytes=10, headroom_bytes=10_000)
    with pytest.raises(LocalError, match="refuse their SharedBuffer"):
        Simulation(Star(2, buffer=small)).run(flow())
    with pytest.raises(LocalError, match="beside network and transport") as caught:
        Simulation(Star(2)).run(flow(), trace_events=3)
    assert "power of two" in caught.value.hint


@pytest.mark.parametrize(("seed", "until_ns"), [(-1, None), (1, -1), (1, 1e6), (2**64, 1)])
def test_numbers_that_are_none_are_named(seed: int, until_ns: Any) -> None:
    with pytest.raises(LocalError, match=r"Simulation: (seed|until_ns) is .*, and (has|can)"):
        Simulation(Star(2), seed=seed).run(flow(), until_ns=until_ns)


@pytest.mark.parametrize(
    ("make", "members", "words"),
    [
        (SetLink, {"at_ns": -1, "link": 0, "settings": Link()}, "SetLink: at_ns is -1"),
        (PauseLink, {"at_ns": 0, "link": 2**32}, "PauseLink: link is 4294967296, and can be"),
        (OrderFlow, {"at_ns": 0, "flow": 1.5, "what": 0}, "OrderFlow: flow is 1.5"),
        (StallHost, {"at_ns": 2**63, "host": 0, "lasts_ns": 1}, "StallHost: at_ns is 9223"),
        (SetAlgorithm, {"at_ns": 0, "algorithm": None, "flows": [-1]}, "flows is -1"),
        (Sampling, {"interval_ns": 1000, "flows": [-1]}, "Sampling: flows is -1"),
        (Sampling, {"interval_ns": 1000, "links": [2**32]}, "Sampling: links is 4294967296"),
    ],
)
def test_changes_and_samplings_that_make_no_sense_are_named(
    make: Any, members: dict[str, Any], words: str
) -> None:
    with pytest.raises(LocalError, match=words):
        make(**members)


def test_a_dimension_that_is_no_whole_number_is_named() -> None:
    with pytest.raises(LocalError, match=r"Dumbbell: pairs is 1\.5"):
        Dumbbell(pairs=1.5).graph()  # type: ignore[arg-type]


@pytest.mark.parametrize("whole", [np.int64, np.uint32, np.int16])
def test_numbers_of_numpy_are_numbers(whole: Any) -> None:
    """And not dropped on the way to C: the link would have no rate and no delay."""
    settings = {"rate_bps": 20_000, "delay_ns": 30_000}
    made = Link(
        **{name: whole(value) for name, value in settings.items()}, loss=Loss(np.float32(0))
    )
    assert made == Link(**settings, loss=Loss(0.0))
    assert made.numbers() == Link(**settings).numbers()
    assert {type(value) for value in made.numbers().values()} == {int, float, bool}
    traced = Link(
        0, trace_ms=tuple(np.arange(1, 4)), jitter=Jitter("trace", samples_ns=(whole(5),))
    )
    assert repr(traced) == repr(
        Link(0, trace_ms=(1, 2, 3), jitter=Jitter("trace", samples_ns=(5.0,)))
    )
    with pytest.raises(LocalError, match="Link: reorder is '1%', and has to be a number"):
        Link(reorder="1%")  # type: ignore[arg-type]


# --- repeatability -------------------------------------------------------------------------------


MIXED = """
import sys
from tests.fabric.test_simulator import mixed
result = mixed(int(sys.argv[1]))
print(result.digest, result.packet_events, result.flows.rows["finish_ns"].sum())
"""


def mixed(seed: int) -> Any:
    """Everything random at once: loss, jitter, reordering, duplicates, ECMP, marking."""
    core = Link(
        40 * GBIT,
        1_000,
        limit_bytes=300_000,
        marking=Marking("red", 20_000, 100_000, 0.2),
        loss=Loss(good=0.001, bad=0.5, p=0.001, r=0.2),
        jitter=Jitter("pareto", 300, 2.5, reorders=True),
        reorder=0.01,
        reorder_ns=5_000,
        duplicate=0.01,
        corrupt=0.001,
    )
    spines = LeafSpine(4, 3, 4, edge=Link(25 * GBIT, 700, limit_bytes=200_000), core=core)
    rng = np.random.default_rng(7)
    rows = []
    for i in range(60):
        src, dst = rng.choice(16, 2, replace=False)
        size, start = int(rng.integers(1, 300_000)), int(rng.integers(0, 200_000))
        rows.append(flow(src, dst, size, start_ns=start, qp=i % 2, opcode=[0, 2, 4][i % 3]))
    return Simulation(spines, seed=seed).run(traffic.join(rows))


def test_equal_seeds_give_equal_runs() -> None:
    first, again, other = mixed(1), mixed(1), mixed(2)
    assert first.finished
    assert first.digest == again.digest
    assert np.array_equal(first.flows.rows, again.flows.rows)
    assert np.array_equal(first.links, again.links)
    assert first.digest != other.digest


def test_another_process_and_another_build_repeat_it() -> None:
    """The digest of this process, of a new one, and of the other build if it is there."""
    expected = mixed(3)
    text = f"{expected.digest} {expected.packet_events} {expected.flows.rows['finish_ns'].sum()}"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(paths.ROOT), "PYTHONHASHSEED": "7"}
    if paths.build_name() == "build-san":
        environment["DATAPATH_BUILD"] = "release"
    done = subprocess.run(
        [sys.executable, "-c", MIXED, "3"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.stdout.strip(), done.stderr) == (text, "")


# --- invariants ----------------------------------------------------------------------------------


SHARES = st.one_of(st.just(0.0), st.floats(2.0**-32, 0.05))
JITTERS = st.one_of(
    st.none(),
    st.builds(Jitter, st.sampled_from(["normal", "pareto"]), st.floats(0, 5_000), st.just(3.0)),
    st.builds(Jitter, st.just("normal"), st.floats(0, 5_000), st.just(3.0), reorders=st.just(True)),
)
CLASSES = (QueueClass(0), QueueClass(1), QueueClass(3, limit_bytes=60_000))
LINKS = st.builds(
    Link,
    rate_bps=st.sampled_from([0, GBIT, 10 * GBIT, 100 * GBIT]),
    delay_ns=st.integers(0, 20_000),
    limit_bytes=st.sampled_from([0, 20_000, 200_000]),
    marking=st.one_of(st.none(), st.just(Marking("step", 10_000))),
    loss=st.one_of(st.none(), st.builds(Loss, good=SHARES)),
    jitter=JITTERS,
    reorder=SHARES,
    reorder_ns=st.integers(0, 50_000),
    impairments=impairment_settings().map(lambda some: tuple(some.items())),
    duplicate=SHARES,
    corrupt=SHARES,
    trim=st.booleans(),
    telemetry=st.booleans(),
    classes=st.sampled_from([(), CLASSES]),
)
AQMS = st.sampled_from(
    [
        CoDel(20_000, 100_000),
        CoDel(20_000, 100_000, ecn=True),
        FqCoDel(20_000, 100_000, flows=3, quantum_bytes=300),
        Pie(20_000, 50_000, alpha=1000, beta=5000, max_burst_ns=0),
    ]
)
MANAGED_LINKS = st.builds(
    Link,
    rate_bps=st.sampled_from([GBIT, 10 * GBIT]),
    delay_ns=st.integers(0, 20_000),
    limit_bytes=st.sampled_from([0, 20_000]),
    aqm=AQMS,
    loss=st.sampled_from([None, Loss(bad=0.5, good_ns=500_000, bad_ns=50_000)]),
    policer=st.sampled_from([None, Policer(GBIT, 20_000)]),
    jitter=JITTERS,
    duplicate=SHARES,
    telemetry=st.booleans(),
)
TRANSPORTS = st.builds(
    EngineOptions,
    path_mtu=st.sampled_from([256, 1024, 4096]),
    extended=st.booleans(),
    preset=st.booleans(),
    window_psns=st.sampled_from([0, 64]),
    data_class=st.integers(0, 2),
    telemetry=st.booleans(),
    paths=st.sampled_from([1, 8]),
    segment_max=st.sampled_from([0, 8960]),
)
LATENESS = st.sampled_from(
    [
        Lateness.constant(0),
        Lateness.constant(30_000),
        Lateness(((0.0, 0), (0.9, 20_000), (1.0, 400_000))),
    ]
)
WAKEUPS = st.builds(
    Wakeup, LATENESS, LATENESS, st.one_of(st.none(), LATENESS), st.sampled_from([0, 20_000])
)


@st.composite
def shapes(draw: st.DrawFn) -> Any:
    """Any topology of links that spoil, or that manage their queue."""
    edge, core = draw(LINKS), draw(st.one_of(LINKS, MANAGED_LINKS))
    buffer = draw(st.sampled_from([None, SharedBuffer(100_000, 1.0)])) if not core.aqm else None
    return draw(
        st.sampled_from(
            [
                Dumbbell(2, edge, core, buffer=buffer),
                Star(4, edge, core, buffer),
                LeafSpine(2, 2, 2, edge, core, buffer),
                FatTree(2, edge, core, buffer),
                FatTree(4, edge, core, buffer),
                Rail(2, 2, 2, edge, core, buffer),
            ]
        )
    )


@st.composite
def flow_tables(draw: st.DrawFn, hosts: int) -> traffic.Flows:
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        src = draw(st.integers(0, hosts - 1))
        rows.append(
            flow(
                src,
                (src + draw(st.integers(1, hosts - 1))) % hosts,
                draw(st.integers(1, 100_000)),
                start_ns=draw(st.integers(0, 100_000)),
                message_bytes=draw(st.sampled_from([0, 999, 30_000])),
                depth=draw(st.integers(1, 8)),
                qp=draw(st.integers(0, 1)),
                opcode=draw(st.sampled_from(sorted(traffic.OPCODES.values()))),
            )
        )
    return traffic.join(rows)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Simulation, traffic.Flows]:
    """Any topology, any spoiling, any traffic, any transport."""
    shape = draw(shapes())
    simulation = Simulation(
        shape,
        transport=draw(TRANSPORTS),
        wakeup=draw(st.one_of(st.none(), WAKEUPS)),
        seed=draw(st.integers(0, 2**32)),
    )
    return simulation, draw(flow_tables(shape.graph().hosts))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(networks())
def test_whatever_the_network_does(case: tuple[Simulation, traffic.Flows]) -> None:
    """The simulator itself checks order, exactly-once and conservation; here the rest."""
    simulation, rows = case
    result = simulation.run(rows, until_ns=20 * 10**9)
    totals, links = result.totals, result.links
    reasons = ("lost", "overflowed", "policed", "aqm_dropped")
    ended = totals["delivered"] + totals["corrupted"] + sum(totals[why] for why in reasons)
    assert totals["injected"] + totals["duplicated"] == ended + totals["in_flight"]
    assert all(links[why].sum() == totals[why] for why in reasons)
    assert links["duplicated"].sum() == totals["duplicated"]
    good = result.flows.rows["failed"] == 0
    assert result.finished
    assert (result.flows.rows["delivered_bytes"] <= rows["bytes"]).all()
    assert (result.flows.rows["delivered_bytes"][good] == rows["bytes"][good]).all()
    assert simulation.run(rows, until_ns=20 * 10**9).digest == result.digest


# --- policers, AQMs, bursts by time --------------------------------------------------------------


def bulk(senders: int, size: int) -> traffic.Flows:
    rows = [flow(i, senders + i, size, message_bytes=100_000, depth=4) for i in range(senders)]
    return traffic.join(rows)


def congested(aqm: Aqm | None, *, ecn: bool = False, rows: traffic.Flows | None = None) -> Any:
    """Four NewReno flows on 100 Mbit/s and 4 ms of RTT with room for 80 ms in the queue.

    Returns the result, and the mean queue in milliseconds of the line.
    """
    neck = Link(GBIT // 10, 2_000_000, limit_bytes=1_000_000, aqm=aqm)
    simulation = Simulation(
        Dumbbell(4, bottleneck=neck), transport=EngineOptions(path_mtu=1024, ecn=ecn)
    )
    result = simulation.run(
        bulk(4, 6_000_000) if rows is None else rows,
        compile_algorithm("newreno"),
        sampling=Sampling(1_000_000, links=[0]),
    )
    queue_ms = float(result.series.links["queue_bytes"].mean()) * 8e3 / (GBIT // 10)
    return result, queue_ms


@pytest.mark.parametrize(
    "aqm", [CoDel(), FqCoDel(ecn=False), Pie()], ids=lambda a: type(a).__name__
)
def test_an_aqm_keeps_the_queue_short(aqm: Aqm) -> None:
    """And the line busy: within a tenth of the time that drop-tail needs."""
    long, long_ms = congested(None)
    short, short_ms = congested(aqm)
    assert short.finished
    assert short.totals["aqm_dropped"] > 0
    assert long.totals["aqm_dropped"] == 0
    assert short_ms < long_ms / 2
    assert short.totals["now_ns"] < 1.1 * long.totals["now_ns"]


@pytest.mark.parametrize(
    "aqm", [CoDel(ecn=True), FqCoDel(ecn=True), Pie(ecn=True)], ids=lambda a: type(a).__name__
)
def test_an_aqm_marks_instead_of_dropping(aqm: Aqm) -> None:
    result, queue_ms = congested(aqm, ecn=True)
    assert result.finished
    assert result.links["marked"][0] > 0
    assert result.totals["aqm_dropped"] == 0
    assert queue_ms < congested(None, ecn=True)[1] / 2


def test_fq_codel_keeps_a_small_flow_from_waiting() -> None:
    """Beside bulk flows its messages wait as long as the queue is; with FQ-CoDel they do not."""
    mice = flow(0, 4, 50_000, start_ns=1_000_000_000, message_bytes=1000, qp=1)
    rows = traffic.join([bulk(4, 6_000_000), mice])
    rtt_ns = 4_000_000

    def each_ns(aqm: Aqm | None) -> float:
        row = congested(aqm, rows=rows)[0].flows.rows[-1]
        return float(row["finish_ns"] - 1_000_000_000) / 50

    assert each_ns(None) > 4 * rtt_ns
    assert each_ns(FqCoDel()) < 1.2 * rtt_ns


def test_a_policer_passes_its_rate_and_queues_nothing() -> None:
    policed = Link(10 * GBIT, 100_000, policer=Policer(GBIT, 100_000))
    simulation = Simulation(Dumbbell(1, bottleneck=policed), transport=EngineOptions(path_mtu=1024))
    result = simulation.run(
        flow(size=20_000_000, message_bytes=100_000, depth=4), compile_algorithm("newreno")
    )
    assert result.finished
    row, seconds = result.links[0], result.totals["now_ns"] / 1e9
    assert row["policed"] == result.totals["policed"] > 0
    assert row["overflowed"] == 0
    assert row["delivered_bytes"] <= 100_000 + GBIT / 8 * seconds
    assert row["delivered_bytes"] > 0.5 * GBIT / 8 * seconds


def test_bursts_by_time_end_while_a_qp_waits() -> None:
    """1 % lost in bursts of 8 packets each, or of the time that 8 packets take.

    By packets, a QP that sends one at a time, and then again and again after time-outs, is in the
    bad state until it gives up; by time the bad state is over long before the first time-out.
    """
    options = EngineOptions(extended=False, path_mtu=1024, timeout=10)  # of 4 ms

    def failed(loss: Loss) -> int:
        link = Link(GBIT, 10_000, loss=loss)
        rows = [flow(i, 8 + i, 2_000_000, message_bytes=1000) for i in range(8)]
        simulation = Simulation(Dumbbell(8, Link(), link), seed=3, transport=options)
        result = simulation.run(traffic.join(rows))
        assert result.totals["lost"] > 50
        return int((result.flows.rows["failed"] != 0).sum())

    eight_ns = 8 * int(serialization_ns(1000 + WRITE_HEADERS, GBIT))
    assert failed(Loss(bad=1.0, p=1 / 8 / 99, r=1 / 8)) > 0
    assert failed(Loss(bad=1.0, good_ns=99 * eight_ns, bad_ns=eight_ns)) == 0


def test_who_looks_at_the_queue_changes_nothing() -> None:
    """An AQM's drops are made up for whenever somebody looks; the run is the same."""
    rows = bulk(2, 2_000_000)
    neck = Link(GBIT // 10, 2_000_000, limit_bytes=1_000_000, aqm=CoDel(1_000_000, 20_000_000))
    simulation = Simulation(Dumbbell(2, bottleneck=neck), transport=EngineOptions(path_mtu=1024))
    plain = simulation.run(rows)
    watched = simulation.run(rows, sampling=Sampling(77_000, links=[0, 1]))
    assert plain.totals["aqm_dropped"] == watched.totals["aqm_dropped"] > 0
    assert plain.digest == watched.digest


def test_totals_and_links_are_of_one_moment() -> None:
    """However long ago the last packet arrived: what links have duplicated since then counts."""
    sent = [flow(src, 2, size=40_000) for src in (0, 1)]
    for until_ns in range(400_000, 460_000, 1_000):
        simulation = Simulation(Star(3, Link(GBIT, 100_000), Link(GBIT, 100_000, duplicate=1.0)))
        result = simulation.run(traffic.join(sent), until_ns=until_ns)
        assert result.links["duplicated"].sum() == result.totals["duplicated"] > 0


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Star(1), "Star: hosts is 1, at least 2"),
        (Star(2, Link(marking=Marking("foo"))), "Marking: kind is 'foo'"),  # type: ignore[arg-type]
        (Star(2, Link(jitter=Jitter("gauss"))), "Jitter: kind is 'gauss'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_named(shape: Star, said: str) -> None:
    with pytest.raises(LocalError, match=said):
        Simulation(shape).run(flow())


# --- deadlock ------------------------------------------------------------------------------------


class Ring:
    """Switches in a circle, a host on each: shortest paths of two hops go around it."""

    name = "ring"

    def __init__(self, buffer: SharedBuffer) -> None:
        self.buffer = buffer

    def graph(self) -> Graph:
        n, link = 5, Link(10 * GBIT, 1_000)
        cables = [Cable(i, n + i, link, link) for i in range(n)]
        cables += [Cable(n + i, n + (i + 1) % n, link, link) for i in range(n)]
        names = (*(f"host{i}" for i in range(n)), *(f"switch{i}" for i in range(n)))
        return Graph(n, names, tuple(cables), (self.buffer,) * n)


def test_a_cycle_of_paused_links_is_found() -> None:
    """PFC on a ring: every link waits for the next one, for ever."""
    buffer = SharedBuffer(
        2_000_000, 1.0, pfc_classes=1, xoff_bytes=20_000, xon_bytes=10_000, headroom_bytes=100_000
    )
    rows = traffic.join([flow(i, (i + 2) % 5, 20_000_000) for i in range(5)])
    with pytest.raises(Deadlock, match="packets stand still"):
        Simulation(Ring(buffer), transport=EngineOptions(timeout=0)).run(rows)


def test_a_held_flow_that_nobody_begins_is_a_deadlock() -> None:
    rows = traffic.join([flow(), flow(held=1)])
    orders = [OrderFlow(10**9, 1, traffic.HOLD)]
    for changes in ([], orders):
        with pytest.raises(Deadlock, match="1 of 2 flows have not ended"):
            Simulation(Star(2)).run(rows, changes=changes)
    assert Simulation(Star(2)).run(rows, until_ns=10**9).totals["ended"] == 1
    orders += [OrderFlow(2 * 10**9, 1, traffic.BEGIN)]
    assert Simulation(Star(2)).run(rows, changes=orders).finished


def test_the_same_ring_without_pfc_moves_on() -> None:
    rows = traffic.join([flow(i, (i + 2) % 5, 2_000_000) for i in range(5)])
    assert Simulation(Ring(SharedBuffer(2_000_000))).run(rows).finished


def test_a_link_that_stays_paused_is_a_deadlock_and_replays(tmp_path: Path) -> None:
    """With senders that wait for ever; others try again until they give up."""
    simulation = Simulation(Star(2), seed=5, transport=EngineOptions(timeout=0))
    pause = PauseLink(10_000, simulation.graph.link("switch", "host1"))
    rows = flow(size=1_000_000)
    with pytest.raises(Deadlock) as caught:
        simulation.run(rows, changes=[pause], trace_events=64, keep=tmp_path)
    assert f"python -m datapath.fabric.replay {tmp_path}/case.json" in caught.value.hint
    case = json.loads((tmp_path / "case.json").read_text())
    assert (case["seed"], case["commit"]) == (5, replay.commit())
    trace = (tmp_path / "trace.tsv").read_text().splitlines()
    assert trace[0].split("\t")[:3] == ["flow", "at_ns", "event"]
    assert {line.split("\t")[2] for line in trace[1:]} <= {"post", "tx", "rx", "drop"}
    again, arguments = replay.read(tmp_path / "case.json")
    with pytest.raises(Deadlock) as repeated:
        again.run(**arguments)
    assert str(repeated.value) == str(caught.value)


class Own:
    """A topology that the toolkit does not know."""

    name = "own"

    def graph(self) -> Graph:
        return Star(2).graph()


def test_a_case_of_an_own_topology_replays(tmp_path: Path) -> None:
    simulation = Simulation(Own(), transport=EngineOptions(timeout=0))
    pause = PauseLink(10_000, simulation.graph.link("switch", "host1"))
    with pytest.raises(Deadlock) as caught:
        simulation.run(flow(), changes=[pause], keep=tmp_path)
    again, arguments = replay.read(tmp_path / "case.json")
    assert again.graph == simulation.graph
    with pytest.raises(Deadlock) as repeated:
        again.run(**arguments)
    assert str(repeated.value) == str(caught.value)


@pytest.mark.parametrize("depth", [2, 8, 64])
def test_flows_of_several_operations_share_a_qp(depth: int) -> None:
    """WRITEs take no receives of the SENDs that follow them."""
    rows = traffic.join([flow(size=12_000), flow(size=32_000)])
    rows["message_bytes"], rows["depth"], rows["qp"] = 1000, depth, 0
    rows["opcode"] = [traffic.RDMA_WRITE, traffic.SEND]
    result = Simulation(Star(2)).run(rows)
    assert result.finished
    assert list(result.flows.rows["delivered_bytes"]) == [12_000, 32_000]


def test_the_same_algorithm_set_again_begins_anew() -> None:
    """As on live hosts."""
    compiled = compile_algorithm("newreno")
    later = SetAlgorithm(at_ns=5_500_000, algorithm=compiled)
    sampling = Sampling(1_000_000, flows=[0])
    rows = flow(size=20_000_000)
    network = Star(2, Link(rate_bps=10 * GBIT, delay_ns=100_000))
    windows = [
        Simulation(network).run(rows, compiled, changes=changes, sampling=sampling).series.qps
        for changes in ([], [later])
    ]
    plain, anew = (qps["cwnd_bytes"][:, 0] for qps in windows)
    assert list(plain[:5]) == list(anew[:5])
    assert anew[5:7].min() < plain[4] / 2


def test_pauses_travel_as_the_link_is_now() -> None:
    """Over a link that has become longer, a pause comes later, and the queue grows further."""
    buffer = SharedBuffer(
        8_000_000, 1.0, pfc_classes=1, xoff_bytes=50_000, xon_bytes=40_000, headroom_bytes=1_000_000
    )
    link = Link(rate_bps=10 * GBIT, delay_ns=1_000)
    rows = traffic.join([flow(src, 2, 4_000_000, message_bytes=1_000_000) for src in (0, 1)])
    peaks = []
    for delay_ns in (1_000, 100_000):
        simulation = Simulation(Star(3, link, buffer=buffer))
        longer = replace(link, delay_ns=delay_ns)
        changes = [SetLink(0, number, longer) for number in range(4)]
        links = simulation.run(rows, changes=changes).links
        peaks.append(max(links["queue_max_bytes"]))
    # It grows by the excess of two senders, for the time of a pause and of the data behind it.
    excess = 2 * 100_000 * 10 * GBIT / 8e9
    assert peaks[0] + excess < peaks[1] < peaks[0] + 1.1 * excess


def test_a_case_with_numbers_of_numpy_replays(tmp_path: Path) -> None:
    """They do not hide why the run failed."""
    simulation = Simulation(Star(np.int64(2)), seed=np.int64(3))  # type: ignore[arg-type]
    pause = PauseLink(np.int64(10_000), np.uint32(0))  # type: ignore[arg-type]
    with pytest.raises(Deadlock) as caught:
        simulation.run(flow(), changes=[pause], keep=tmp_path)
    again, arguments = replay.read(tmp_path / "case.json")
    assert (again.seed, arguments["changes"]) == (3, [PauseLink(10_000, 0)])
    with pytest.raises(Deadlock) as repeated:
        again.run(**arguments)
    assert str(repeated.value) == str(caught.value)


@pytest.mark.parametrize("name", ["newreno", "cubic", "copa"])
def test_a_case_of_an_algorithm_with_switches_replays(name: str, tmp_path: Path) -> None:
    """Parameters that are true or false."""
    simulation = Simulation(Star(2), transport=EngineOptions(timeout=0))
    pause = PauseLink(10_000, simulation.graph.link("switch", "host1"))
    compiled = compile_algorithm(name)
    with pytest.raises(Deadlock) as caught:
        simulation.run(flow(), compiled, changes=[pause], keep=tmp_path)
    again, arguments = replay.read(tmp_path / "case.json")
    assert arguments["algorithms"][0].params == compiled.params
    with pytest.raises(Deadlock) as repeated:
        again.run(**arguments)
    assert str(repeated.value) == str(caught.value)


def test_a_network_that_takes_no_time_is_found() -> None:
    endless = flow(size=traffic.UNTIL_STOP, stop_ns=1_000, message_bytes=100, start_ns=1)
    with pytest.raises(TimeStandsStill, match="time does not pass"):
        Simulation(Star(2, Link(0, 0))).run(endless)


def test_simulated_time_ends() -> None:
    """36 years, where an object's number leaves so many bits for the time."""
    with pytest.raises(RunFailed, match="simulated time ends after 1152921504 s"):
        Simulation(Star(2, Link(delay_ns=1 << 60))).run(flow(size=1000, start_ns=1 << 61))


def test_a_long_wait_for_a_time_out_is_no_deadlock() -> None:
    """Every packet is lost for a while, so that the next is sent after 160 ms of silence."""
    simulation = Simulation(Star(2), transport=EngineOptions(min_rto_ns=160_000_000))
    lost = simulation.graph.link("host0", "switch")
    changes = [
        SetLink(0, lost, Link(loss=Loss(good=1.0))),
        SetLink(100_000_000, lost, Link(delay_ns=50_000_000)),
    ]
    result = simulation.run(flow(size=100, start_ns=10), changes=changes)
    assert result.finished
    assert result.totals["lost"] > 0
    assert result.totals["failed"] == 0


def test_packets_that_jitter_holds_on_a_wire_are_no_deadlock() -> None:
    """Nothing moves for 300 ms; then all arrive."""
    held = Star(2, Link(10 * GBIT, reorder=1.0, reorder_ns=300_000_000))
    simulation = Simulation(held, transport=EngineOptions(min_rto_ns=2_000_000_000))
    assert simulation.run(flow(size=100_000)).finished


SLOW_PATIENT = EngineOptions(path_mtu=1024, timeout=20, min_rto_ns=10_000_000_000)


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param(Link(64_000, 1_000), id="a frame takes 140 ms"),
        pytest.param(Link(trace_ms=(500,)), id="an opportunity each 500 ms"),
        pytest.param(Link(trace_ms=(*range(1, 10), 300)), id="a gap of 291 ms in a trace"),
        pytest.param(Link(10_000_000, 1_000, impairments=(("slot", 300e6),)), id="slots"),
        pytest.param(
            Link(GBIT, 1_000, classes=(QueueClass(rate_bps=64_000),)), id="a shaped class"
        ),
    ],
)
def test_a_slow_link_is_no_deadlock(slow: Link) -> None:
    """Nothing leaves any link for more than 100 ms, and the link knows when something will."""
    simulation = Simulation(Dumbbell(1, bottleneck=slow), transport=SLOW_PATIENT)
    result = simulation.run(flow(size=40_960, message_bytes=2_048, depth=4))
    assert result.finished
    assert result.totals["now_ns"] > 400_000_000


def test_a_rate_that_falls_is_no_deadlock() -> None:
    simulation = Simulation(Star(2, Link(10_000_000, 1_000)), transport=SLOW_PATIENT)
    down = simulation.graph.link("switch", "host1")
    slower = SetLink(2_000_000, down, Link(8_000, 1_000))
    assert simulation.run(flow(size=8_192), changes=[slower]).finished


@pytest.mark.parametrize("delay_ms", [300, 450, 900])
def test_no_time_out_on_a_clean_path_with_a_long_rtt(delay_ms: int) -> None:
    """1.2, 1.8 and 3.6 s."""
    far = Star(2, Link(10 * GBIT, delay_ms * 1_000_000))
    simulation = Simulation(far, transport=EngineOptions(timeout=31))
    result = simulation.run(flow(size=100, start_ns=10))
    assert result.finished
    assert result.qps["timeouts"] == result.qps["retransmits"] == 0


# --- changes and series --------------------------------------------------------------------------


def test_a_longer_route_is_seen_in_the_rtt() -> None:
    """10 ms more on the way, from one moment on; nothing is lost by it."""
    line = Dumbbell(1, bottleneck=Link(10 * GBIT, 5_000))
    simulation = Simulation(line, transport=EngineOptions(min_rto_ns=50_000_000))
    rows = flow(0, 1, traffic.UNTIL_STOP, stop_ns=100_000_000, message_bytes=65536, depth=16)
    longer = SetLink(30_000_000, 0, Link(10 * GBIT, 10_000_000))
    series = simulation.run(
        rows, changes=[longer], sampling=Sampling(1_000_000, flows=[0], links=[0])
    ).series
    rtt = series.qps["rtt_ns"][:, 0]
    before = (series.time_ns > 5_000_000) & (series.time_ns <= 30_000_000)
    assert np.nanmax(rtt[before]) < 2_000_000
    assert rtt[-1] > 9_000_000
    # Packets are read as they arrive: what hosts add is the wait of an acknowledgement.
    assert 0 < np.nanmax(series.qps["host_ns"]) <= 50_000
    assert series.link_names == ["left>right"]
    assert (np.diff(series.links["delivered_bytes"][:, 0]) >= 0).all()
    assert np.nanmax(series.qps["inflight_bytes"]) > 500_000


def test_routes_lead_around_a_link_that_is_dead() -> None:
    """Black-holed until switches send along the other spine; without that, for good."""
    ms = 1_000_000
    simulation = Simulation(LeafSpine(2, 2, 1))
    rows = flow(0, 1, traffic.UNTIL_STOP, stop_ns=50 * ms, message_bytes=4096, depth=4)
    spines = [simulation.graph.link("leaf0", f"spine{i}") for i in range(2)]
    carried = simulation.run(rows).links["delivered"][spines]
    assert carried.min() == 0, "one flow, one path"
    used = spines[int(carried.argmax())]
    dead = SetLink(ms, used, Link(loss=Loss(good=1.0)))
    (lost,) = simulation.run(rows, changes=[dead]).flows.rows
    (found,) = simulation.run(rows, changes=[dead, SetRoute(2 * ms, used, used=False)]).flows.rows
    assert found["delivered_bytes"] > 5 * lost["delivered_bytes"] > 0
    back: list[Change] = [SetRoute(2 * ms, used, used=False), SetLink(30 * ms, used, Link())]
    again = simulation.run(rows, changes=[dead, *back, SetRoute(30 * ms, used, used=True)])
    assert again.flows.rows["failed"][0] == 0
    assert again.links["delivered"][spines].min() > 0, "first one path, then the other, then back"


def test_a_switch_without_another_way_keeps_its_own() -> None:
    simulation = Simulation(LeafSpine(2, 1, 1))
    only = simulation.graph.link("leaf0", "spine0")
    assert simulation.run(flow(), changes=[SetRoute(1, only, used=False)]).finished
    with pytest.raises(LocalError, match="cannot be done"):
        simulation.run(flow(), changes=[SetRoute(1, 0, used=False)])


def test_a_host_reads_what_comes_as_its_stall_ends() -> None:
    """Packets come at whole milliseconds, and the stall ends at one; then it hears as before."""
    ms, slots = 1_000_000, Link(GBIT, 100_000, impairments=(("slot", 1e6),))
    line = Dumbbell(1, Link(0, 0), slots, Link(GBIT, 100_000))
    rows = traffic.join([flow(size=20_000, start_ns=i * ms // 4, qp=i) for i in range(60)])
    stall = StallHost(5 * ms + ms // 2, 1, 4 * ms + ms // 2)
    result = Simulation(line).run(rows, until_ns=1_000 * ms, changes=[stall])
    assert result.finished
    assert result.totals["failed"] == 0
    waited = result.flows.rows["finish_ns"][22:36]  # begun during the stall
    assert (waited > 10 * ms).all()
    assert (waited < 13 * ms).all()


# --- what switches and engines do together -------------------------------------------------------


def test_telemetry_reaches_the_algorithm() -> None:
    """HPCC keeps a queue that the constant window fills; without records it cannot know."""
    neck = Link(10 * GBIT, 5_000, limit_bytes=10**7, telemetry=True)
    rows = traffic.join(
        [
            flow(i, 2 + i, traffic.UNTIL_STOP, stop_ns=20_000_000, message_bytes=2**20, depth=4)
            for i in range(2)
        ]
    )
    edge = Link(25 * GBIT, 1_000)
    hpcc = compile_algorithm("hpcc")
    queues = []
    for telemetry, algorithm in ((True, hpcc), (True, None)):
        simulation = Simulation(
            Dumbbell(2, edge, neck), transport=EngineOptions(telemetry=telemetry)
        )
        sampling = Sampling(100_000, links=[0])
        series = simulation.run(rows, algorithm, sampling=sampling).series
        later = series.time_ns > 5_000_000
        queues.append(series.links["queue_bytes"][later, 0].mean())
    assert queues[1] > 500_000
    assert queues[0] < 100_000


def test_links_may_begin_to_stamp_later() -> None:
    def digest(*stamps: bool) -> str:
        first, later = (Link(GBIT, 10_000, telemetry=stamp) for stamp in stamps)
        return (
            Simulation(Dumbbell(1, Link(), first), transport=EngineOptions(telemetry=True))
            .run(flow(), compile_algorithm("hpcc"), changes=[SetLink(0, 0, later)])
            .digest
        )

    assert digest(False, True) == digest(True, True) != digest(False, False)


def test_trimmed_packets_tell_what_was_lost() -> None:
    """Incast into a short queue: with trimming every header arrives, and the end comes sooner."""
    senders = 16
    classes = (QueueClass(), QueueClass())
    results = []
    for trim in (False, True):
        edge = Link(25 * GBIT, 1_000, limit_bytes=100_000, trim=trim, classes=classes)
        simulation = Simulation(
            Star(senders + 1, edge), transport=EngineOptions(data_class=1, control_class=0)
        )
        results.append(
            simulation.run(traffic.join([flow(i, senders, 200_000) for i in range(senders)]))
        )
    dropped, trimmed = results
    assert dropped.totals["overflowed"] > 100
    assert trimmed.totals["overflowed"] == 0
    assert trimmed.qps["trimmed"] == trimmed.links["trimmed"].sum() > 100
    assert trimmed.totals["now_ns"] < dropped.totals["now_ns"]


def test_packets_of_one_qp_take_several_paths() -> None:
    for ports, most in ((1, 1), (16, 4)):
        simulation = Simulation(LeafSpine(2, 4, 1), transport=EngineOptions(paths=ports))
        links = simulation.run(flow(size=4_000_000)).links
        used = [
            row["name"]
            for row in links
            if row["name"].startswith("leaf0>spine") and row["delivered_bytes"] > 100_000
        ]
        assert len(used) == most


def test_segments_are_longer_than_the_path_mtu() -> None:
    counts = [
        Simulation(Star(2), transport=EngineOptions(segment_max=segment))
        .run(flow(size=896_000))
        .qps["tx_packets"]
        for segment in (0, 8960)
    ]
    assert counts == [219, 100]


@pytest.mark.parametrize(
    ("shape", "hosts", "switches", "cables"),
    [
        (Dumbbell(3), 6, 2, 7),
        (Star(5), 5, 1, 5),
        (LeafSpine(4, 2, 3), 12, 6, 20),
        (FatTree(4), 16, 20, 48),
        (Rail(4, 2, 2), 8, 4, 12),
    ],
)
def test_every_pair_of_hosts_is_joined(shape: Any, hosts: int, switches: int, cables: int) -> None:
    graph = shape.graph()
    assert (graph.hosts, graph.switches, len(graph.cables)) == (hosts, switches, cables)
    pairs = [flow(a, b, 100) for a in range(hosts) for b in range(hosts) if a != b]
    result = Simulation(shape).run(traffic.join(pairs))
    assert result.finished
    assert result.totals["failed"] == 0


def test_equal_paths_are_all_used() -> None:
    spines = LeafSpine(2, 4, 16)
    rows = traffic.join([flow(i, 16 + i, 4096) for i in range(16)])
    links = Simulation(spines).run(rows).links
    up = [row for row in links if row["name"].startswith("leaf0>spine")]
    assert len(up) == 4
    assert sum(row["offered"] > 0 for row in up) >= 3
