# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Metrics, by hand-made results whose values are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from datapath.errors import RunFailed
from datapath.fabric import flows as table
from datapath.fabric.links import Link
from datapath.fabric.topology import Dumbbell, LeafSpine, Star
from datapath.fabric.ways import Ways
from datapath.stats import jain
from datapath.verbs.spec import Transport
from datapath.workloads.traffic import measure
from datapath.workloads.traffic.busiest import BusiestLink
from datapath.workloads.traffic.ideal import Framing, Ideal, framing

US = 1000


def done(flows: table.Flows, finish_ns: list[int], **columns: Any) -> table.FlowResults:
    """Results of flows that finished then, with all their bytes in one message."""
    rows = np.zeros(len(flows), table.RESULT_DTYPE)
    rows["flow"] = np.arange(len(flows))
    rows["posted_ns"] = flows["start_ns"]
    rows["finish_ns"] = finish_ns
    rows["delivered_bytes"] = np.where(rows["finish_ns"] > 0, flows["bytes"], 0)
    rows["messages"] = rows["finish_ns"] > 0
    for name, values in columns.items():
        rows[name] = values
    latencies = table.Latencies()
    latencies.add(rows["finish_ns"][rows["finish_ns"] > 0])
    return table.FlowResults(rows, latencies)


def pair(sizes: list[int], starts: list[int] | None = None) -> table.Flows:
    flows = table.empty(len(sizes))
    flows["dst"] = 1
    flows["bytes"] = sizes
    flows["start_ns"] = starts or 0
    return flows


DEADLINE_NS = 10**9


def values(
    flows: table.Flows, results: table.FlowResults, deadline_ns: int = DEADLINE_NS, **more: Any
) -> dict[str, float]:
    outcome = measure.outcome(flows, results, deadline_ns=deadline_ns, **more)
    return {metric.name: metric.value for metric in outcome.metrics}


# --- framing and the ideal -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "message", "expected"),
    [
        (1000, 0, 1000 + 100 + 16),
        (1001, 0, 1001 + 200 + 16),
        (5000, 1000, 5000 + 500 + 5 * 16),
        (5500, 1500, 5500 + 3 * 200 + 100 + 4 * 16),
        (500, 1500, 500 + 100 + 16),
        (0, 1500, 0),
    ],
)
def test_wire_bytes(size: int, message: int, expected: int) -> None:
    assert Framing(1000, 100, 16).wire_bytes(size, message) == expected


@pytest.mark.parametrize(
    ("size", "message", "expected"),
    [
        (4000, 2000, 4000 + 4 * 100 + 2 * 8),
        (4300, 2000, 4300 + 5 * 100 + 2 * 8 + 4),
        (900, 0, 900 + 100 + 4),
    ],
)
def test_wire_bytes_of_packets_at_both_ends(size: int, message: int, expected: int) -> None:
    assert Framing(1000, 100, 4, last=4).wire_bytes(size, message) == expected


def test_framing_of_transports() -> None:
    """Ethernet with preamble, FCS and gap 38, IPv4 20, UDP 8, BTH and ICRC 16, XDH 20, RETH 16."""
    assert framing(Transport(device="dp", port="afxdp"), 9000) == Framing(7552, 118)
    assert framing(Transport(device="dp", port="udp"), 9000) == Framing(8896, 118)
    assert framing(Transport(device="dp"), 1500) == Framing(1408, 118)
    assert framing(Transport(device="dp"), 1500, "send") == Framing(1408, 102)
    assert framing(Transport(device="dp"), 1500, "read") == Framing(1408, 102)
    standard = framing(Transport(device="dp", mode="standard"), 9000, "read")
    assert standard == Framing(4096, 82, 4, last=4)
    assert framing(Transport(device="dp", path_mtu=2048), 9000) == Framing(2048, 118)
    assert framing(Transport(device="dp", options={"segment": 5000}), 9000) == Framing(5000, 118)
    assert framing(Transport(device="dp", mode="standard"), 9000) == Framing(4096, 82, 16)
    assert framing(Transport(device="rxe"), 9000, "send") == Framing(4096, 82)
    assert framing(Transport(device="kernel"), 1500) == Framing(1448, 90)


def test_ideal_is_rtt_and_serialisation() -> None:
    ideal = Ideal(Framing(1000, 100), 1e9, 10 * US)
    assert ideal.fct_ns(pair([1000, 10_000])).tolist() == [10 * US + 8800, 10 * US + 88_000]
    edge, shared = Link(4_000_000_000, 1 * US), Link(1_000_000_000, 3 * US)  # 2 and 8 ns a byte
    network = Ideal(Framing(1000, 100), ways=Ways(Dumbbell(1, edge, shared).graph()))
    rtt = 10 * US + 86 * (2 + 8 + 2)
    assert network.fct_ns(pair([10_000, 400])).tolist() == [
        rtt + 88_000 + 1100 * (2 + 2),
        rtt + 4000 + 500 * (2 + 2),
    ], "a packet on each other link"
    slower = replace(network, rate_bps=5e8, base_rtt_ns=7 * US)
    assert slower.fct_ns(pair([400])).tolist() == [7 * US + 8000 + 500 * (2 + 2)]


# --- metrics ---------------------------------------------------------------------------------


def test_goodput_is_over_all_flows() -> None:
    flows = pair([1000, 3000], [0, 1000])
    found = values(flows, done(flows, [2000, 4000]))
    assert found["goodput"] == pytest.approx(4000 * 8 / 4e-6)
    assert found["message_rate"] == pytest.approx(2 / 4e-6)
    assert found["unfinished_share"] == 0


def test_slowdown_is_at_least_one_and_by_size() -> None:
    flows = pair([5_000, 500_000, 5_000_000])
    ideal = Ideal(Framing(1000, 0), 8e9, 5 * US)
    results = done(flows, [20 * US, 100 * US, 50_050 * US])
    found = values(flows, results, ideal=ideal, completion=True)
    assert found["slowdown_p50_small"] == pytest.approx(2)
    assert found["slowdown_p99_medium"] == 1, "faster than can be: 1, as in the artefact"
    assert found["slowdown_p999_large"] == pytest.approx(10)
    assert found["slowdown_p50"] == pytest.approx(2)
    assert found["fct_p99"] == 50_050 * US


def test_completion_counts_from_the_scheduled_start() -> None:
    flows = pair([1000], [100 * US])
    found = values(flows, done(flows, [150 * US], posted_ns=[140 * US]), completion=True)
    assert found["fct_p50"] == 50 * US, "waiting behind another flow of the QP is part of it"


def test_flows_without_end_have_no_completion_time() -> None:
    """They end when they are told to, with no size that a slowdown could refer to."""
    flows = pair([5_000, table.UNTIL_STOP])
    ideal = Ideal(Framing(1000, 0), 8e9, 5 * US)
    results = done(flows, [20 * US, 900 * US], delivered_bytes=[5_000, 800_000])
    outcome = measure.outcome(flows, results, deadline_ns=DEADLINE_NS, ideal=ideal, completion=True)
    found = {m.name: m.value for m in outcome.metrics}
    assert found["fct_p50"] == found["fct_p999"] == 20 * US
    assert found["slowdown_p999"] == found["slowdown_p999_small"] == pytest.approx(2)
    assert "slowdown_p50_large" not in found
    assert outcome.samples["fct_ns"] == [20 * US]


def test_utilisation_of_a_shared_and_of_own_links() -> None:
    flows = table.empty(3)
    flows["src"], flows["dst"] = [0, 1, 2], [2, 3, 1]
    flows["bytes"] = [1000, 2000, 500]
    results = done(flows, [1000, 1000, 500])
    framing = Framing(1000, 100)
    link = Link(rate_bps=32_000_000_000)

    def utilisation(shape: Dumbbell | Star, **more: Any) -> float:
        busiest = BusiestLink(shape.graph(), framing, **more)
        return values(flows, results, busiest=busiest)["utilisation"]

    assert utilisation(Dumbbell(2, Link(rate_bps=0), link)) == pytest.approx(3300 * 8 / 32e3)
    slower = replace(link, rate_bps=8_000_000_000)
    assert utilisation(Dumbbell(2, slower, link)) == pytest.approx(2200 * 8 / 8e3)
    assert utilisation(Star(4, link)) == pytest.approx(2200 * 8 / 32e3)
    assert utilisation(Star(4, link), rate_bps=16e9) == pytest.approx(2200 * 8 / 16e3)


def test_utilisation_is_of_links_between_switches_too() -> None:
    """With a choice of spines only what links say that they carried tells the busiest."""
    flows = pair([1000])
    flows["dst"] = 2
    results = done(flows, [1000])
    host, core = Link(rate_bps=32_000_000_000), Link(rate_bps=16_000_000_000)
    for spines in (1, 2):
        graph = LeafSpine(2, spines, 2, host, core).graph()
        carried = np.zeros(2 * len(graph.cables))
        carried[graph.link("leaf0", "spine0")] = 1500
        busiest = BusiestLink(graph, Framing(1000, 100))
        known = replace(busiest, carried_bytes=carried)
        told = values(flows, results, busiest=known)["utilisation"]
        assert told == pytest.approx((1100 if spines == 1 else 1500) * 8 / 16e3)
        assert ("utilisation" in values(flows, results, busiest=busiest)) == (spines == 1)
    traced = Dumbbell(2, host, replace(core, rate_bps=0, trace_ms=(1, 2))).graph()
    busiest = BusiestLink(traced, Framing(1000, 100))
    assert "utilisation" not in values(flows, results, busiest=busiest)


def test_the_rate_of_a_qp_counts_a_time_once_whose_flows_wait_for_each_other() -> None:
    """Two of one QP end one behind the other, and one begins later; another QP has one flow."""
    flows = pair([1000, 1000, 2000, 4000], [0, 0, 30, 0])
    flows["src"] = [2, 2, 2, 0]
    results = done(flows, [10, 20, 50, 40])
    rates = measure._rates(flows, results.rows, results.rows["finish_ns"])
    assert rates == [4000 * 8e9 / 40, 4000 * 8e9 / 40]
    assert values(flows, results, fair=True)["fairness"] == 1


def test_fairness_is_between_qps() -> None:
    flows = pair([1000, 1000, 1000, 1000])
    flows["qp"] = [0, 1, 0, 1]
    assert values(flows, done(flows, [10, 10, 10, 10]), fair=True)["fairness"] == 1
    uneven = done(flows, [10, 10**9, 10, 10**9])
    assert values(flows, uneven, fair=True)["fairness"] == pytest.approx(0.5, abs=0.01)
    assert "fairness" not in values(flows[:1], done(flows[:1], [10]), fair=True)


def test_rounds_end_with_their_last_flow() -> None:
    flows = pair([100] * 4, [0, 0, 1000, 1000])
    flows["tag"] = [0, 0, 1, 1]
    found = values(flows, done(flows, [300, 500, 1200, 1100]), rounds=True)
    assert (found["round_p50"], found["round_p99"]) == (200, 500)
    flows["tag"] = [2, 2, 7, 7]  # rounds that never began are not in the table
    assert values(flows, done(flows, [300, 500, 1200, 1100]), rounds=True) == found
    unfinished = done(flows, [300, 500, 1200, 0])
    assert "round_p50" not in values(flows, unfinished, rounds=True)


def test_what_is_unfinished_is_counted() -> None:
    flows = pair([100, 100])
    found = values(flows, done(flows, [300, 0]), completion=True)
    assert found["unfinished_share"] == 0.5
    assert found["fct_p999"] == 300


def test_what_unfinished_flows_delivered_took_until_the_deadline() -> None:
    flows = pair([10_000, 10_000], [0, 1000])
    flows["qp"] = [0, 1]
    results = done(flows, [0, 0], delivered_bytes=[5000, 3000], messages=[5, 3])
    graph = Dumbbell(1, Link(rate_bps=0), Link(rate_bps=32_000_000_000)).graph()
    busiest = BusiestLink(graph, Framing(1000, 0))
    found = values(flows, results, deadline_ns=5000, fair=True, busiest=busiest)
    assert found["goodput"] == pytest.approx(8000 * 8 / 5e-6)
    assert found["message_rate"] == pytest.approx(8 / 5e-6)
    assert found["utilisation"] == pytest.approx(found["goodput"] / 32e9)
    one_each = 5000 / 5, 3000 / 4
    assert found["fairness"] == pytest.approx(jain(one_each))
    one_finished = done(flows, [2000, 0], delivered_bytes=[10_000, 3000])
    assert values(flows, one_finished, 5000)["goodput"] == pytest.approx(13_000 * 8 / 5e-6)


def test_flows_that_were_cut_short_ended_at_their_stop() -> None:
    flows = pair([10_000, 10_000])
    flows["stop_ns"] = [3000, 4000]
    results = done(flows, [2000, 0], delivered_bytes=[10_000, 2000])
    assert values(flows, results)["goodput"] == pytest.approx(12_000 * 8 / 4e-6)
    assert values(flows, results, 2500)["goodput"] == pytest.approx(12_000 * 8 / 2.5e-6)


def test_a_flow_that_waited_for_one_that_was_cut_short_began_then() -> None:
    flows = pair([10_000, 1000])
    flows["stop_ns"], flows["after"] = [3000, 0], [0, 1]
    results = done(flows, [0, 4000], delivered_bytes=[2000, 1000])
    assert values(flows, results, completion=True)["fct_p50"] == 1000


def test_a_flow_of_which_nothing_arrived_takes_no_time() -> None:
    flows = pair([1000, 1000])
    assert values(flows, done(flows, [2000, 0]))["goodput"] == pytest.approx(1000 * 8 / 2e-6)


def test_retransmissions_when_the_transport_tells() -> None:
    flows = pair([100])
    results = done(flows, [300])
    assert "retransmitted_share" not in values(flows, results)
    results.data_packets, results.retransmitted_packets = 200, 3
    assert values(flows, results)["retransmitted_share"] == pytest.approx(0.015)


def test_a_failed_flow_fails_the_run_with_its_status() -> None:
    flows = pair([100, 100])
    with pytest.raises(RunFailed, match="1 of 2 flows failed; flow 1 from host 0 to host 1: tran"):
        values(flows, done(flows, [300, 0], failed=[0, 12]))


def test_nothing_delivered_fails_the_run() -> None:
    flows = pair([100])
    with pytest.raises(RunFailed, match="not one message"):
        values(flows, done(flows, [0]))


def test_every_metric_has_its_unit() -> None:
    from datapath.experiment.metrics import UNITS

    flows = pair([5_000, 500_000, 5_000_000])
    results = done(flows, [20 * US, 100 * US, 50_050 * US])
    results.data_packets = 1
    outcome = measure.outcome(
        flows,
        results,
        deadline_ns=DEADLINE_NS,
        ideal=Ideal(Framing(1000, 0), 1e9, 1),
        fair=True,
        completion=True,
        rounds=True,
    )
    assert {m.name: m.unit for m in outcome.metrics} == {
        m.name: UNITS[m.name] for m in outcome.metrics
    }
    assert set(outcome.samples) == {"latency_ns", "fct_ns"}
