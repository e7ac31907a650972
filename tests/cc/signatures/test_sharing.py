# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All algorithms on one link: fairness, incast, newcomers, and trouble on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datapath.cc import compile_algorithm
from datapath.fabric import flows as traffic
from datapath.fabric.changes import SetAlgorithm, SetLink
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.links import Link, Marking, Policer
from datapath.fabric.sim_result import Sampling
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell, Star
from datapath.workloads.traffic import schedules

from .scene import (
    GBIT,
    MS,
    MSS,
    US,
    WIRE,
    Row,
    Shared,
    check_table,
    jain,
    long_flows,
    run,
    steady,
)

STEP = Marking("step", 65 * WIRE)  # DCTCP's K for 10 Gbit/s
RED = Marking("red", 5_000, 200_000, 0.01)
SETTINGS: dict[str, dict[str, Any]] = {
    "newreno": {},
    "cubic": {},
    "dctcp": {},
    "dcqcn": {},
    "timely": {"patched": True, "rtt_ref_ns": 60 * US},
    "swift": {"base_target_ns": 80 * US},
    "hpcc": {"n_flows": 20},
    "bbr": {},
    "mprdma": {},
    "vpc": {},
}
"""Delays of the papers' own networks are set for this one; everything else is the default."""


def path(name: str) -> Shared:
    """10 Gbit/s and 40 us, with the marking or telemetry that the algorithm's paper has."""
    marking = RED if name == "dcqcn" else STEP
    return Shared(10 * GBIT, 40 * US, 1_000_000, marking, telemetry=name == "hpcc")


def test_equal_flows_get_equal_shares() -> None:
    """Jain's index among 2, 8 and 32 flows that start one after the other.

    BBR's first version does not promise it.
    """
    rows: list[Row] = []
    for name, params in SETTINGS.items():
        row: Row = {"algorithm": name}
        for count in (2, 8, 32):
            seen = steady(
                name,
                path(name),
                count=count,
                duration_ns=400 * MS,
                params=params,
                stagger_ns=MS // 2,
                interval_ns=MS,
            )
            index = jain(seen.goodput_bps(200 * MS))
            if name != "bbr":
                assert index >= 0.95, (name, count)
            assert seen.share(200 * MS) > 0.7
            row[f"jain_{count}"], row[f"queue_us_{count}"] = index, seen.queue_us(200 * MS)
        rows.append(row)
    check_table("fairness", rows, slack=0.2)


@pytest.mark.parametrize("name", SETTINGS)
def test_incast_does_not_collapse(name: str) -> None:
    """32 hosts send 1 MB each over one link at once: in less than three times what it needs."""
    flows = long_flows(32, 0)
    flows["stop_ns"], flows["bytes"], flows["message_bytes"] = 0, 1_000_000, 0
    seen = run(compile_algorithm(name, SETTINGS[name]), path(name), flows, interval_ns=MS)
    ideal_ns = 32 * 1_000_000 * WIRE / MSS * 8e9 / (10 * GBIT)
    assert seen.result.finished
    assert seen.result.flows.rows["finish_ns"].max() < 3 * ideal_ns


def test_short_incasts_leave_vpc_no_stragglers() -> None:
    """31 hosts send 256 KiB each at once, ten times: the last ends in 1.2 times what all need."""
    senders, rounds, size = 31, 10, 262_144
    table = schedules.incast(range(senders), senders, size=size, rounds=rounds, interval_ns=50 * MS)
    net = Star(senders + 1, Link(10 * GBIT, 2_000, limit_bytes=2 << 20))
    result = Simulation(net, seed=1, transport=EngineOptions(ecn=True)).run(
        table, compile_algorithm("vpc")
    )
    took = (result.flows.rows["finish_ns"] - table["start_ns"]).reshape(rounds, senders)
    ideal_ns = senders * size * WIRE / MSS * 8e9 / (10 * GBIT)
    assert np.median(took.max(axis=1)) < 1.2 * ideal_ns


def test_vpc_keeps_its_goodput_when_packets_are_lost() -> None:
    """1 Gbit/s, 200 us, no marks: 97 % without loss; of 1 - p, 97 % up to 1 %, 93 % above.

    CUBIC beside it, and its queue.
    """
    rows: list[Row] = []
    for loss in (0, 1 / 4096, 0.001, 0.01, 0.05, 0.1, 0.2):
        row: Row = {"loss": f"{loss:.4g}"}
        for name in ("vpc", "cubic"):
            seen = steady(name, Shared(loss=loss), duration_ns=1000 * MS, interval_ns=MS)
            row[name], row[f"{name}_queue_us"] = seen.share(200 * MS), seen.queue_us(200 * MS)
        assert float(row["vpc"]) >= (1 - loss) * (0.97 if loss <= 0.01 else 0.93)
        assert float(row["vpc_queue_us"]) < 100
        rows.append(row)
    check_table("loss", rows)


CROWDS = (
    *((64, GBIT, 40 * US), (64, 10 * GBIT, 40 * US), (64, 10 * GBIT, 200 * US)),
    *((128, 10 * GBIT, 40 * US), (128, 10 * GBIT, 200 * US)),
)


def test_vpc_shares_a_path_that_holds_fewer_packets_than_flows() -> None:
    """No marks, a buffer of 63 packets; Swift beside it, which is told its delay, and newreno.

    All start at once, so that few of them see the path empty, or one after the other, each behind
    the queue of those before.
    """
    rows: list[Row] = []
    for count, rate, rtt in CROWDS:
        for stagger in (0, MS):
            row: Row = {"flows": f"{count}/{rate // GBIT}G/{rtt // US}us/{stagger // US}us"}
            for name in ("vpc", "swift", "newreno"):
                seen = steady(
                    name,
                    Shared(rate, rtt),
                    count=count,
                    duration_ns=600 * MS,
                    stagger_ns=stagger,
                    interval_ns=MS,
                )
                row[f"{name}_jain"] = jain(seen.goodput_bps(300 * MS))
                row[f"{name}_drops"] = float(seen.drops)
                if name == "vpc":
                    row["vpc_share"] = seen.share(300 * MS)
                    row["vpc_queue_us"] = seen.queue_us(300 * MS)
            if count == 64 and rate > GBIT:
                assert float(row["vpc_jain"]) >= 0.95
            if count == 64:
                assert float(row["vpc_share"]) >= 0.85
                assert float(row["vpc_drops"]) < 0.5 * float(row["newreno_drops"])
            rows.append(row)
    check_table("crowds", rows, slack=0.3)


DEEP = (
    *((32, GBIT, 200 * US), (100, GBIT, 200 * US), (100, GBIT, MS)),
    *((50, GBIT // 10, MS), (64, 10 * GBIT, 200 * US)),
)


def test_vpc_shares_a_deep_buffer_that_many_flows_overshoot() -> None:
    """1 MiB.  The queue that all flows left behind together is no rival's.

    When one of 100 flows took it for one, the others got out of its way (Jain 0.05).  So it is
    still where flows begin one after the other.  Marks shorten their queue, and make them no more
    equal.
    """
    rows: list[Row] = []
    for count, rate, rtt in DEEP:
        row: Row = {"flows": f"{count}/{rate / GBIT:g}G/{rtt // US}us"}
        for when, stagger, marking in (
            ("0ms", 0, None),
            ("3ms", 3 * MS, None),
            ("marks", 3 * MS, Marking("step", 1 << 16)),
        ):
            seen = steady(
                "vpc",
                Shared(rate, rtt, 1 << 20, marking),
                count=count,
                duration_ns=1000 * MS,
                stagger_ns=stagger,
                interval_ns=MS,
            )
            row[f"jain_{when}"] = jain(seen.goodput_bps(400 * MS))
            row[f"share_{when}"] = seen.share(400 * MS)
            row[f"queue_us_{when}"] = seen.queue_us(400 * MS)
        assert float(row["jain_0ms"]) > 0.9
        assert float(row["share_0ms"]) > 0.9
        assert float(row["queue_us_0ms"]) < 0.3 * (1 << 23) * 1e6 / rate
        assert float(row["queue_us_marks"]) < 0.3 * (1 << 23) * 1e6 / rate
        rows.append(row)
    check_table("crowds_deep", rows, slack=0.5)


@pytest.mark.parametrize(("rate", "rtt_ns"), [(7 * GBIT, 100 * US), (GBIT // 10, 4 * MS)])
def test_one_flow_of_vpc_takes_much_loss_for_what_it_is(rate: int, rtt_ns: int) -> None:
    """At 20 %, 90 % of what is left of other paths as well."""
    shared = Shared(rate, rtt_ns, 2 * rate * rtt_ns // (8 * 10**9) + 20_000, loss=0.2)
    duration_ns = 400 * max(rtt_ns, 250 * US)
    seen = steady("vpc", shared, duration_ns=duration_ns, interval_ns=rtt_ns)
    assert seen.share(duration_ns // 5) > 0.9 * (1 - 0.2)


def test_vpc_learns_the_rate_of_a_policer() -> None:
    """200 Mbit/s of 1 Gbit/s, a bucket of 64 KiB: 94 % of it.  Several flows take longer."""
    rows: list[Row] = []
    for count in (1, 2, 4, 8):
        row: Row = {"flows": str(count)}
        for name in ("vpc", "cubic"):
            shared = Shared(policer=Policer(rate_bps=GBIT // 5, burst_bytes=65_536))
            seen = steady(name, shared, count=count, duration_ns=3000 * MS, interval_ns=10 * MS)
            sent = seen.qp("sent_packets")[-1].sum()
            row[name] = float(5 * seen.share(600 * MS))
            row[f"{name}_again"] = float(seen.qp("retransmitted_packets")[-1].sum() / sent)
        assert float(row["vpc"]) > 0.94
        assert float(row["vpc_again"]) < (0.05 if count <= 2 else float(row["cubic_again"]))
        rows.append(row)
    check_table("policer", rows, slack=0.3)


def test_vpc_has_short_messages_beside_loss() -> None:
    """p99 of 64 KiB messages, eight at a time, with 1 % loss: near the median, below CUBIC's."""
    flows = long_flows(1, 2000 * MS)
    flows["depth"] = 8
    median, p99 = {}, {}
    for name in ("vpc", "cubic"):
        seen = run(
            compile_algorithm(name), Shared(loss=0.01), flows, until_ns=2000 * MS, interval_ns=MS
        )
        median[name] = seen.result.flows.latencies.quantile(0.5)
        p99[name] = seen.result.flows.latencies.quantile(0.99)
    assert p99["vpc"] < 1.15 * median["vpc"]
    assert p99["vpc"] < 0.95 * p99["cubic"]


@pytest.mark.parametrize(("name", "rtts"), [("vpc", 100), ("swift", 200), ("dctcp", 600)])
def test_a_newcomer_gets_its_share(name: str, rtts: int) -> None:
    """A second flow has 80 % of its half after so many RTTs of the empty path, for the next 300."""
    seen = steady(
        name,
        path(name),
        count=2,
        duration_ns=70 * MS,
        params=SETTINGS[name],
        stagger_ns=20 * MS,
        interval_ns=50 * US,
    )
    rtt_ns = 50 * US
    start = 20 * MS + rtts * rtt_ns
    mine = seen.goodput_bps(start, start + 300 * rtt_ns)
    assert mine[1] > 0.8 * mine.sum() / 2


def test_vpc_survives() -> None:
    """Two flows: jitter of half the delay, 3 % reordered, 10 ms more at once.

    After the change of route they have 200 ms, some twenty of its RTTs.
    """
    shared = Shared()
    longer = SetLink(at_ns=400 * MS, link=0, settings=shared.link(extra_ns=10 * MS))
    cases: dict[str, tuple[Shared, list[SetLink], float]] = {
        "calm": (shared, [], 0.97),
        "jitter": (Shared(jitter_ns=50 * US), [], 0.8),
        "reordering": (Shared(reorder=0.03), [], 0.9),
        "route": (shared, [longer], 0.85),
    }
    rows: list[Row] = []
    for case, (path_, changes, least) in cases.items():
        seen = steady("vpc", path_, count=2, duration_ns=1600 * MS, changes=changes, interval_ns=MS)
        share, fairness = seen.share(600 * MS), jain(seen.goodput_bps(600 * MS))
        assert share > least, case
        assert fairness > 0.95, case
        rows.append({"case": case, "share": share, "jain": fairness})
    check_table("survival", rows)


def test_vpc_fills_a_long_path_with_jitter() -> None:
    """1 Gbit/s and 20 ms, a queue of one bandwidth-delay product: 80 % at least, in 150 RTTs.

    The start is in them.  CUBIC beside it, with its queue.
    """
    rows: list[Row] = []
    for count in (1, 2):
        for jitter_us in (0, 200, 2000):
            shared = Shared(GBIT, 20 * MS, 2_500_000, jitter_ns=jitter_us * US)
            row: Row = {"flows": f"{count}/{jitter_us}us"}
            for name in ("vpc", "cubic"):
                seen = steady(name, shared, count=count, duration_ns=3000 * MS, interval_ns=5 * MS)
                row[name], row[f"{name}_queue_ms"] = seen.share(), seen.queue_us(400 * MS) / 1000
            assert float(row["vpc"]) > 0.8
            assert float(row["vpc_queue_ms"]) < 5
            rows.append(row)
    check_table("long_paths", rows, slack=0.2)


def test_vpc_keeps_a_share_beside_a_rival_in_a_deep_buffer() -> None:
    """30 % of the fair share at least, beside a flow of BBR.

    It comes with the first packets, before vpc has a window to go back to, or after 20 or 100 ms.
    """
    vpc, bbr = compile_algorithm("vpc"), compile_algorithm("bbr")
    rows: list[Row] = []
    for rtt_us, buffer_bytes in ((200, 512_000), (2000, 1_000_000)):
        row: Row = {"rtt_us": str(rtt_us)}
        for at_ms in (0, 20, 100):
            seen = run(
                (vpc, bbr) if at_ms == 0 else vpc,
                Shared(rtt_ns=rtt_us * US, limit_bytes=buffer_bytes),
                long_flows(2, 2000 * MS),
                until_ns=2000 * MS,
                changes=[SetAlgorithm(at_ms * MS, bbr, flows=[1])] if at_ms else [],
                interval_ns=MS,
            )
            rates = seen.goodput_bps(200 * MS)
            share = float(2 * rates[0] / rates.sum())
            assert share > 0.3, (rtt_us, at_ms)
            row[f"share_{at_ms}ms"] = share
        rows.append(row)
    check_table("rivals", rows, slack=0.5)


def test_vpc_keeps_a_share_beside_bbr_whenever_that_begins() -> None:
    """Both begin within a round trip of each other, overshoot, and lose packets."""
    vpc, bbr = compile_algorithm("vpc"), compile_algorithm("bbr")
    rows: list[Row] = []
    for after_us in (0, 20, 50, 65, 80, 100, 120, 150, 200, 300, 700, 1500):
        seen = run(
            (vpc, bbr),
            Shared(rtt_ns=MS, limit_bytes=256_000),
            long_flows(2, 3000 * MS, stagger_ns=after_us * US),
            until_ns=3000 * MS,
            interval_ns=MS,
            path_mtu=1024,
        )
        rates = seen.goodput_bps(200 * MS)
        share = float(2 * rates[0] / rates.sum())
        assert share > 0.2, after_us
        rows.append({"after_us": str(after_us), "share": share})
    check_table("starts", rows, slack=0.3)


def test_vpc_keeps_a_share_beside_rivals_at_100_mbit() -> None:
    """4 ms, a buffer of two bandwidth-delay products, packets of 1 KiB; who comes first varies.

    Losses of the beginning, when all overshoot, keep vpc from competing for a moment only, and a
    flow that has been pressed to the least window by a rival competes as well.
    """
    vpc = compile_algorithm("vpc")
    rows: list[Row] = []
    for name in ("cubic", "newreno", "bbr"):
        rival = compile_algorithm(name)
        row: Row = {"rival": name}
        for late, column in ((-80, "rival_first"), (0, "together"), (80, "vpc_first")):
            flows = long_flows(2, 5000 * MS, stagger_ns=abs(late) * MS)
            both = (rival, vpc) if late < 0 else (vpc, rival)
            shared = Shared(GBIT // 10, 4 * MS, 100_000)
            seen = run(both, shared, flows, until_ns=5000 * MS, interval_ns=4 * MS, path_mtu=1024)
            rates = seen.goodput_bps(600 * MS)
            share = float(2 * rates[both.index(vpc)] / rates.sum())
            assert share > 0.3, (name, column)
            row[column] = share
        rows.append(row)
    check_table("rivals_100m", rows, slack=0.5)


def test_an_algorithm_is_changed_while_the_flows_run() -> None:
    """Two CUBIC flows fill the queue; vpc empties it without a loss of its own; CUBIC again."""
    vpc, cubic = compile_algorithm("vpc"), compile_algorithm("cubic")
    changes = [SetAlgorithm(400 * MS, vpc), SetAlgorithm(800 * MS, cubic, flows=[0, 1])]
    seen = steady("cubic", Shared(), count=2, duration_ns=1200 * MS, changes=changes)
    queue_us = seen.result.series.links["queue_bytes"][:, 0] * 8e6 / seen.shared.rate_bps
    parts = [(seen.time_ns > a * MS) & (seen.time_ns < b * MS)
             for a, b in ((200, 400), (600, 800), (1000, 1200))]  # fmt: skip
    before, during, after = (queue_us[part].mean() for part in parts)
    assert during < 150 < 1000 < min(before, after)
    assert seen.share(600 * MS) > 0.97
    assert jain(seen.goodput_bps(600 * MS, 800 * MS)) > 0.95


def test_one_of_two_flows_gets_another_algorithm() -> None:
    """The other goes on with its own: its window stays what `fixed` says."""
    fixed = compile_algorithm("fixed", {"window_bytes": 8 * MSS})
    changes = [SetAlgorithm(100 * MS, compile_algorithm("vpc"), flows=[1])]
    seen = run(
        fixed, Shared(), long_flows(2, 300 * MS), until_ns=300 * MS, interval_ns=MS, changes=changes
    )
    windows = seen.qp("cwnd_bytes")[seen.after(110 * MS)]
    assert set(windows[:, 0]) == {8 * MSS}
    assert len(set(windows[:, 1])) > 20


@pytest.mark.parametrize("name", ["newreno", "cubic", "dctcp", "bbr", "vpc"])
def test_many_qps_of_two_hosts_share_a_short_queue(name: str) -> None:
    """128 QPs, where path and queue hold 69 packets; all begin at once, and most packets are lost.

    The second host had nothing for a second, and a third of its QPs died: QPs that had lost their
    packets together sent them again together, at instants at which the queue had room for one.
    """
    qps = 64
    flows = traffic.empty(2 * qps)
    flows["src"] = np.repeat([0, 1], qps)
    flows["dst"] = flows["src"] + 2
    flows["qp"] = np.tile(np.arange(qps), 2)
    flows["bytes"], flows["stop_ns"] = traffic.UNTIL_STOP, 1000 * MS
    flows["message_bytes"], flows["depth"] = 1 << 16, 16
    link = Link(rate_bps=GBIT, delay_ns=100 * US, limit_bytes=256 << 10)
    network = Simulation(
        Dumbbell(2, Link(), link, link), transport=EngineOptions(line_rate_bps=GBIT)
    )
    sampling = Sampling(10 * MS, flows=range(2 * qps))
    result = network.run(flows, compile_algorithm(name, {}), until_ns=2000 * MS, sampling=sampling)
    assert not result.flows.rows["failed"].any()
    delivered = result.series.qps["delivered_bytes"][99]
    assert jain(delivered) > 0.7
    hosts = delivered.reshape(2, qps).sum(axis=1)
    assert hosts.min() > 0.5 * hosts.max()
    assert delivered.sum() * 8 > 0.9 * GBIT


@pytest.mark.parametrize("name", ["newreno", "cubic", "bbr", "vpc"])
def test_reads_over_a_short_path_with_a_short_queue(name: str) -> None:
    """Path and queue hold eight packets each, and chunks of eight at a time overflowed them."""
    link = Link(rate_bps=GBIT, delay_ns=75 * US // 2, limit_bytes=9375)
    network = Simulation(
        Dumbbell(2, Link(), link, link),
        transport=EngineOptions(path_mtu=1024, line_rate_bps=GBIT),
    )
    delivered = {}
    for operation in ("write", "read"):
        flows = long_flows(2, 300 * MS)
        flows["opcode"] = traffic.OPCODES[operation]
        sampling = Sampling(MS, flows=range(2))
        result = network.run(
            flows, compile_algorithm(name, {}), until_ns=300 * MS, sampling=sampling
        )
        series = result.series.qps["delivered_bytes"]
        delivered[operation] = (series[-1] - series[50]).sum()
    assert delivered["read"] > 0.94 * delivered["write"]
