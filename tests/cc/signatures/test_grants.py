# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What Homa's paper and Ultra Ethernet say of grants, done by the real engine at one port."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datapath.cc import CompiledAlgorithm, compile_algorithm
from datapath.fabric import flows as traffic
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, Marking, QueueClass, classes_by_dscp, ranks_by_dscp
from datapath.fabric.sim_result import Sampling, SimResult
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell, Star
from datapath.workloads.traffic import schedules, sizes

from .scene import GBIT, MS, MSS, US, WIRE, Row, check_table, jain

RATE = 10 * GBIT
RTT = 4 * 2 * US
"""Of an idle path, serialisation not counted."""
SMALL = 10_000
LEVELS = 3
CLASSES = (
    QueueClass(dscp=(46,)),
    QueueClass(),
    *(QueueClass(dscp=(16 + level,)) for level in reversed(range(LEVELS))),
)
PRIORITIES: dict[str, Any] = {"unscheduled": SMALL, "lowest_dscp": 16, "levels": LEVELS}


def star(
    algorithm: CompiledAlgorithm,
    rows: traffic.Flows,
    hosts: int,
    *,
    classes: tuple[QueueClass, ...] = (),
    marking: Marking | None = None,
    limit_bytes: int = 1 << 20,
    **run: Any,
) -> SimResult:
    """Hosts around one switch, 10 Gbit/s and 2 us to each."""
    edge = Link(RATE, 2 * US, limit_bytes=limit_bytes, classes=classes, marking=marking)
    options = EngineOptions(
        line_rate_bps=RATE,
        segment_max=MSS,
        class_of_dscp=classes_by_dscp(classes),
        rank_of_dscp=ranks_by_dscp(classes),
    )
    return Simulation(Star(hosts, edge), transport=options).run(rows, algorithm, **run)


def slowdown_p99(algorithm: CompiledAlgorithm, dscp: int, **network: Any) -> tuple[float, float]:
    """Of messages up to 10 kB and of all others, at 80 % load.  dscp: of the small ones."""
    hosts = 12
    rows = schedules.poisson(
        sizes.published("fb_hadoop"),
        hosts=hosts,
        load=0.8,
        rates_bps=[RATE] * hosts,
        duration_ns=10 * MS,
        seed=1,
        qps=8,
        destinations=lambda host: [to for to in range(hosts) if to != host],
    )
    small = rows["bytes"] <= SMALL
    rows["dscp"][small] = dscp
    rows["qp"][small] += 8
    ends = star(algorithm, rows, hosts, **network).flows.rows["finish_ns"]
    assert (ends > 0).all()
    packets = np.ceil(rows["bytes"] / MSS)
    # Store and forward: the switch sends the last packet once more.
    last = np.minimum(rows["bytes"], MSS) + WIRE - MSS
    alone_ns = RTT + (rows["bytes"] + packets * (WIRE - MSS) + last) * 8e9 / RATE
    slowdown = (ends - rows["start_ns"]).astype(float) / alone_ns
    return float(np.percentile(slowdown[small], 99)), float(np.percentile(slowdown[~small], 99))


def test_short_messages_hardly_wait_at_high_load() -> None:
    """Figures 8 and 12: at 80 % load, with priorities, p99 of short messages is twice the ideal.

    Here Hadoop at Facebook, W4 of the paper.  In one queue, and without any receiver that grants,
    they wait behind long ones.
    """
    marking = Marking("step", 96_000)
    table: list[Row] = []
    for name, algorithm, params, dscp, network in (
        ("homa", "homa", PRIORITIES, 46, {"classes": CLASSES}),
        ("one-queue", "homa", {"unscheduled": SMALL}, 0, {}),
        ("dctcp", "dctcp", {}, 0, {"marking": marking}),
    ):
        short, long = slowdown_p99(compile_algorithm(algorithm, params), dscp, **network)
        table.append({"stack": name, "short": short, "long": long})
    homa, one_queue, dctcp = (float(row["short"]) for row in table)
    assert homa < 4
    assert homa < one_queue < dctcp
    check_table("homa_load", table)


def test_overcommitment_buys_throughput_with_queue() -> None:
    """Section 3.5 and figure 16: a sender that is busy elsewhere wastes the grants of one receiver.

    Twelve hosts send 0.5 to 1.5 MB to each other.  share: of the busiest link until the last
    message has come; queue: the longest of all, in bandwidth-delay products.
    """
    hosts = 12
    pairs = [(a, b) for a in range(hosts) for b in range(hosts) if a != b]
    rows = traffic.empty(len(pairs))
    rows["src"], rows["dst"] = np.array(pairs).T
    rows["bytes"] = np.random.default_rng(1).integers(500_000, 1_500_000, len(rows))
    busiest = max(rows["bytes"][rows[end] == host].sum() for host in range(hosts)
                  for end in ("src", "dst"))  # fmt: skip
    needed_ns = busiest * WIRE / MSS * 8e9 / RATE
    product = RATE * (RTT + 2 * WIRE * 8e9 / RATE) / 8e9
    table: list[Row] = []
    for overcommit in (1, 2, 4, 7):
        algorithm = compile_algorithm("homa", {"overcommit": overcommit, "rtt_bytes": product})
        result = star(algorithm, rows, hosts)
        ends = result.flows.rows["finish_ns"]
        assert (ends > 0).all()
        queue = float(result.links["queue_max_bytes"].max()) / product
        table.append(
            {"overcommit": str(overcommit), "share": needed_ns / float(ends.max()), "queue": queue}
        )
        assert queue <= overcommit
    share = [float(row["share"]) for row in table]
    assert share == sorted(share)
    assert share[0] < 0.6
    assert share[-1] > 0.9
    check_table("homa_overcommit", table)


def into_one(
    algorithm: CompiledAlgorithm, count: int, until_ns: int, starts: Any = 0
) -> tuple[Any, Any, float]:
    """(times, bytes delivered by each flow, longest queue in packets) of flows into host 0."""
    rows = traffic.empty(count)
    rows["src"], rows["dst"], rows["start_ns"] = np.arange(count) + 1, 0, starts
    rows["bytes"], rows["stop_ns"] = traffic.UNTIL_STOP, until_ns
    rows["message_bytes"], rows["depth"] = 1 << 16, 16
    sampling = Sampling(10 * US, flows=range(count), links=(1,))
    result = star(algorithm, rows, count + 1, until_ns=until_ns, sampling=sampling)
    assert result.totals["overflowed"] == 0
    delivered = np.nan_to_num(result.series.qps["delivered_bytes"])
    queue = float(result.links["queue_max_bytes"][1]) / WIRE
    return result.series.time_ns.astype(float), delivered, queue


def test_credits_fill_a_port_in_equal_parts_without_a_queue() -> None:
    """Ultra Ethernet 1.0, RCCC: the receiver shares 99 % of its port in turn."""
    algorithm = compile_algorithm("rccc", {"initial": 0})
    table: list[Row] = []
    for count in (1, 2, 8, 32):
        time, delivered, queue = into_one(algorithm, count, 10 * MS)
        begin = int(np.searchsorted(time, 1 * MS))
        rates = (delivered[-1] - delivered[begin]) * 8e9 / (time[-1] - time[begin])
        share = rates.sum() / (RATE * MSS / WIRE)
        table.append({"flows": str(count), "share": share, "jain": jain(rates), "queue": queue})
        assert 0.98 < share <= 0.992
        assert jain(rates) > 0.999
        assert queue < 2 * np.sqrt(count)
    check_table("rccc", table)


def test_a_newcomer_has_its_share_in_its_second_round_trip() -> None:
    """Nothing has to be found out: the receiver knows the newcomer by its first demand."""
    algorithm = compile_algorithm("rccc", {"initial": 0})
    time, delivered, _ = into_one(algorithm, 2, 4 * MS, starts=(0, 2 * MS))
    begin, end = np.searchsorted(time, [2 * MS + 5 * RTT, 2 * MS + 40 * RTT])
    gained = delivered[end] - delivered[begin]
    assert gained[1] / gained.sum() == pytest.approx(0.5, abs=0.05)


def test_credits_know_nothing_of_queues_elsewhere() -> None:
    """Why Ultra Ethernet has NSCC beside it: the narrow link is not the receiver's."""
    count = 4
    rows = traffic.empty(count)
    rows["src"], rows["dst"], rows["bytes"] = np.arange(count), np.arange(count) + count, 1 << 20
    wide = Link(RATE, 2 * US, limit_bytes=1 << 22)
    narrow = Link(RATE, 2 * US, limit_bytes=1 << 22)
    options = EngineOptions(line_rate_bps=RATE, segment_max=MSS)
    simulation = Simulation(Dumbbell(count, wide, narrow), transport=options)
    result = simulation.run(rows, compile_algorithm("rccc", {"initial": 0}))
    # Four receivers grant a port's rate each: three quarters of it all waits in front of the link.
    waited = float(result.links["queue_max_bytes"].max())
    assert waited > 0.5 * count * (1 << 20)
