# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Groups of flows: what a file may say, their rows, and runs live and simulated."""

from __future__ import annotations

import subprocess
import tracemalloc
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pydantic
import pytest

from datapath.cc.spec import HostCc
from datapath.errors import LocalError
from datapath.fabric import flows as table
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.native import paths
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.traffic import base, groups, sizes
from datapath.workloads.traffic.groups import FlowGroup, Phase
from datapath.workloads.traffic.qps import QpNumbers
from tests.workloads.conftest import RunWorkload
from tests.workloads.test_perftest import environments, values

MS = 1_000_000
TRAFFIC = REGISTRY["traffic"]


def group(**section: Any) -> FlowGroup:
    return FlowGroup.model_validate({"from": 0, "to": 1, **section})


# --- what a file may say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"from": "3-1"}, "a range of hosts rises"),
        ({"from": "?"}, "not a host: a number, a name"),
        ({"from": True}, "not a host: a number, a name"),
        ({"from": []}, "at least 1 item"),
        ({"to": 0}, "host 0 would send to itself"),
        ({"from": "0-2", "to": "3-4"}, "3 senders and 2 receivers"),
        ({"bytes": 1000, "rate": "1mbit"}, "bytes or rate, not both"),
        ({"distribution": "websearch"}, "needs rate or load"),
        ({"distribution": "webserch", "load": "10%"}, "no distribution 'webserch'"),
        ({"distribution": "websearch", "load": "10%", "count": 2}, "distribution draws flows"),
        ({"load": "10%"}, "only with distribution"),
        ({"repeat": 2}, "repeat needs every"),
        ({"after": "x"}, "after: only for flows of a number of bytes"),
        ({"start": "2ms", "stop": "1ms"}, "stop is not after start"),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        group(**section)


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        ([{"name": "a", "bytes": 1, "after": "b"}, {"name": "b", "bytes": 1}], "no group before"),
        ([{"name": "a"}, {"name": "b", "bytes": 1, "after": "a"}], "a has no number of bytes"),
    ],
)
def test_a_group_waits_for_one_before_it(flows: list[dict[str, Any]], words: str) -> None:
    section = {"flows": [{"from": 0, "to": 1, **one} for one in flows]}
    with pytest.raises(pydantic.ValidationError, match=words):
        TRAFFIC.Params.model_validate(section)


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        ([], "at least 1 item"),
        ([{"from": 0, "to": 1, "name": "a"}] * 2, "two groups have the name a"),
        ([{"from": 0, "to": 1, "start": "3s"}], "flows0 would begin when all end"),
    ],
)
def test_groups_that_make_no_sense_are_refused(flows: list[Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        TRAFFIC.Params.model_validate({"flows": flows})


def test_hosts_are_numbers_ranges_and_lists() -> None:
    made = group(**{"from": ["0-2", 7], "to": 5})
    assert made.pairs() == [(0, 5), (1, 5), (2, 5), (7, 5)]
    assert group(**{"from": 1, "to": "2-3"}).pairs() == [(1, 2), (1, 3)]
    assert FlowGroup.model_validate(made.model_dump(mode="json")) == made


# --- rows ----------------------------------------------------------------------------------------


def four_before() -> QpNumbers:
    """Host 0 has four QPs to host 1."""
    numbers, flows = QpNumbers(), table.empty(1)
    flows["dst"] = 1
    numbers.take(flows, 4)
    return numbers


def rows(when: list[Phase], **section: Any) -> table.Flows:
    made = group(**section)
    return groups.rows(made, when, four_before())


def test_endless_flows_have_a_row_for_each_phase() -> None:
    when = [Phase(0, 10 * MS, 1), Phase(20 * MS, 30 * MS, 2)]
    flows = table.check(rows(when, count=2, stagger="1ms"), 2)
    assert flows["start_ns"].tolist() == [0, MS, 20 * MS, 21 * MS]
    assert flows["stop_ns"].tolist() == [10 * MS, 10 * MS, 30 * MS, 30 * MS]
    assert flows["qp"].tolist() == [4, 5, 4, 5]
    assert flows["cc"].tolist() == [1, 1, 2, 2]
    assert flows["tag"].tolist() == [0, 0, 1, 1]
    assert (flows["bytes"] == table.UNTIL_STOP).all()


def test_a_pair_that_is_named_twice_has_twice_as_many_qps() -> None:
    made = group(**{"from": [0, 2, 0], "to": 1, "count": 2, "bytes": 1})
    numbers = four_before()
    flows = groups.rows(made, [Phase(0, MS)], numbers)
    of_host = {host: sorted(flows["qp"][flows["src"] == host].tolist()) for host in (0, 2)}
    assert of_host == {0: [4, 5, 6, 7], 2: [0, 1]}
    numbers.take(flows, made.qps_of_pair, made.pairs())
    assert numbers.next([0, 2, 1], [1, 1, 0]).tolist() == [8, 2, 0]


def test_drawn_flows_take_qps_behind_those_of_earlier_groups() -> None:
    """The same flows as without them, whatever the earlier groups have."""
    made = group(**{"from": "0-3", "to": "0-3", "distribution": "1KiB", "rate": "10mbit"})
    drawing = groups.Drawing(sizes.named("1KiB", FilePath()), [1e7] * 4, 4, seed=1)
    when, numbers = [Phase(0, 100 * MS)], four_before()
    first = groups.drawn_rows(made, when, QpNumbers(), drawing)
    second = groups.drawn_rows(made, when, numbers, drawing)
    behind = (first["src"] == 0) & (first["dst"] == 1)
    assert behind.any()
    assert (second["qp"] - first["qp"] == 4 * behind).all()
    numbers.take(second, made.qps_of_pair)
    assert numbers.next([0, 3, 2], [1, 2, 2]).tolist() == [12, 8, 0]


def test_many_hosts_that_send_to_each_other_need_no_list_of_pairs() -> None:
    hosts = 3000
    made = group(**{"from": "0-2999", "to": "0-2999", "distribution": "1KiB", "rate": "1mbit"})
    drawing = groups.Drawing(sizes.named("1KiB", FilePath()), [1e6] * hosts, hosts, seed=1)
    tracemalloc.start()
    try:
        flows = groups.drawn_rows(made, [Phase(0, 10 * MS)], QpNumbers(), drawing)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(np.unique(flows["src"])) > 2000
    assert peak < 4 * hosts**2


def test_flows_of_bytes_begin_with_a_phase_and_no_other() -> None:
    when = groups.with_algorithm([Phase(0, 10 * MS), Phase(20 * MS, 30 * MS)], 5 * MS, 3)
    assert [(phase.begin_ns, phase.cc) for phase in when] == [(0, 0), (5 * MS, 3), (20 * MS, 3)]
    flows = rows(when, bytes="1MiB", count=2, stagger="6ms")
    assert flows["start_ns"].tolist() == [0, 6 * MS, 20 * MS, 26 * MS]
    assert flows["cc"].tolist() == [0, 3, 3, 3]
    assert set(flows["bytes"].tolist()) == {2**20}
    assert set(flows["stop_ns"].tolist()) == {0}


def test_a_rate_is_messages_at_equal_intervals() -> None:
    flows = rows([Phase(0, 10 * MS), Phase(20 * MS, 30 * MS)], rate="8mbit", size=1000, count=2)
    assert len(flows) == 2 * 20
    of_one = flows[flows["qp"] == 4]
    assert np.diff(of_one["start_ns"][:10]).tolist() == [MS] * 9
    assert flows["start_ns"][1] == MS // 2, "flows of a group take turns"
    assert flows["bytes"].sum() * 8 == 2 * 8e6 * 0.020


def test_a_group_that_stops_begins_anew() -> None:
    whole = [Phase(0, 100)]
    assert groups.without(whole, 30, 60) == [Phase(0, 30), Phase(60, 100)]
    assert groups.without(whole, 30, 200) == [Phase(0, 30)]
    assert groups.without(whole, 0, 200) == []
    assert groups.without([Phase(0, 10), Phase(20, 40)], 30, 50) == [Phase(0, 10), Phase(20, 30)]
    late = groups.with_algorithm(whole, 50, 1)
    assert late[1] == Phase(50, 100, 1, begins=False)
    assert groups.without(late, 60, 70)[-1] == Phase(70, 100, 1)


def test_an_algorithm_changes_without_a_gap() -> None:
    flows = rows(groups.with_algorithm([Phase(0, 10 * MS)], 4 * MS, 2), stagger="1ms", count=2)
    assert flows["start_ns"].tolist() == [0, MS, 4 * MS, 4 * MS]
    assert flows["stop_ns"].tolist() == [4 * MS, 4 * MS, 10 * MS, 10 * MS]


# --- runs ----------------------------------------------------------------------------------------

BESIDE: dict[str, Any] = {
    "duration": "200ms",
    "flows": [
        {"name": "old", "from": 0, "to": 2, "size": 4096, "depth": 64},
        {"name": "new", "from": 1, "to": 3, "size": 4096, "depth": 64, "start": "50ms",
         "cc": {"algo": "newreno"}},
    ],
}  # fmt: skip


@pytest.fixture
def simulate(tmp_path: FilePath) -> Any:
    """simulate(section, hosts) on a dumbbell of 1 Gbit/s."""

    def run(section: dict[str, Any], hosts: int = 4, seed: int = 9) -> tuple[Outcome, table.Flows]:
        path = Path.model_validate({"rate": "1gbit", "delay": "100us", "queue": "300kB"})
        topology = Topology.model_validate({"lane": "sim", "preset": "dumbbell", "hosts": hosts})
        with SimNetwork(topology, path, tmp_path) as network:
            network.set_path(path, seed)
            context = RunContext(
                network=network,
                transport=Transport(),
                cc=HostCc(),
                device_env=[{} for _ in network.hosts],
                logs=tmp_path,
                seed=seed,
                timeout_s=60,
                path=path,
                folder=tmp_path,
            )
            workload: Any = TRAFFIC(TRAFFIC.Params.model_validate(section))
            return workload.run(context), workload.table(context)

    return run


def test_answers_follow_requests_in_the_simulator(simulate: Any) -> None:
    """Three requests of one host, an answer to each, and a flow that waits for a single one."""
    flows = [
        {"name": "asks", "from": 0, "to": 2, "bytes": 30_000, "count": 3, "stagger": "1ms"},
        {"name": "answers", "from": 2, "to": 0, "bytes": 300_000, "count": 3, "after": "asks"},
        {"name": "one", "from": 1, "to": 3, "bytes": 1000},
        {"name": "all", "from": 3, "to": 1, "bytes": 1000, "count": 2, "after": "one"},
    ]
    outcome, rows = simulate({"duration": "100ms", "flows": flows})
    assert values(outcome)["unfinished_share"] == 0
    for row in rows[rows["src"] == 2]:
        before = rows[int(row["after"]) - 1]
        assert (before["src"], before["start_ns"]) == (0, row["start_ns"])
    assert set(rows["src"][rows["after"][rows["src"] == 3] - 1]) == {1}


def test_a_group_that_waits_for_other_numbers_is_refused(simulate: Any) -> None:
    flows = [
        {"name": "asks", "from": 0, "to": 2, "bytes": 10, "count": 2},
        {"name": "answers", "from": 2, "to": 0, "bytes": 10, "count": 3, "after": "asks"},
    ]
    with pytest.raises(LocalError, match="answers has 3 flows and waits for 2 of asks"):
        simulate({"duration": "1ms", "flows": flows})


def test_groups_beside_each_other_in_the_simulator(simulate: Any) -> None:
    """A constant window of most of the queue, beside one that gives way to loss."""
    outcome, flows = simulate(BESIDE)
    found = values(outcome)
    assert found["fair_share"] > 1 > found["competing_fair_share"] > 0
    assert flows["start_ns"].tolist() == [0, 50 * MS]
    assert flows["cc"].tolist() == [0, 1]
    same = {**BESIDE, "flows": [{**one, "cc": {"algo": "newreno"}} for one in BESIDE["flows"]]}
    assert values(simulate(same)[0])["fair_share"] < found["fair_share"]


def test_an_incast_in_rounds(simulate: Any) -> None:
    section = {"from": "0-1", "to": 3, "bytes": "64KiB", "repeat": 3, "every": "10ms"}
    outcome, flows = simulate({"flows": [section]})
    found = values(outcome)
    assert flows["tag"].tolist() == [0, 0, 1, 1, 2, 2]
    assert found["round_p50"] >= found["fct_p50"] > 0
    assert found["unfinished_share"] == 0


def test_the_goodput_of_flows_that_do_not_finish_is_below_the_link_rate(simulate: Any) -> None:
    section = {"from": 0, "to": 2, "bytes": "1GB", "size": 4096}
    found = values(simulate({"duration": "1ms", "drain": "50ms", "flows": [section]})[0])
    assert found["unfinished_share"] == 1
    assert 1e8 < found["goodput"] < 1e9


def test_the_rows_of_all_groups_together_are_not_too_many(
    simulate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups with a share of the link's rate, each of which has about 600 rows."""
    monkeypatch.setattr(base, "FLOWS_MAX", 1000)
    drawn = {"from": 0, "to": 2, "distribution": "64B", "load": "5%"}
    assert 500 < len(simulate({"duration": "6ms", "flows": [drawn]})[1]) < 700
    with pytest.raises(LocalError, match=r"flows would be generated; the most is 1000"):
        simulate({"duration": "6ms", "flows": [drawn, drawn]})


def test_drawn_flows_repeat_from_the_seed(simulate: Any) -> None:
    drawn = {"distribution": "alistorage2019", "load": "30%", "start": "2ms", "stop": "12ms"}
    section = {
        "duration": "15ms",
        "flows": [{"from": "0-1", "to": "2-3", **drawn}, {"from": 0, "to": 3}],
    }
    outcome, flows = simulate(section)
    assert values(outcome)["slowdown_p50"] >= 1
    mine = flows[flows["bytes"] != table.UNTIL_STOP]
    assert 2 * MS <= mine["start_ns"].min() < mine["start_ns"].max() < 12 * MS
    assert {(int(f["src"]), int(f["dst"])) for f in mine} == {(0, 2), (0, 3), (1, 2), (1, 3)}
    endless = flows[flows["bytes"] == table.UNTIL_STOP]
    assert endless["qp"].tolist() == [8], "QPs of other groups are others"
    again = simulate(section)
    assert again[1].tobytes() == flows.tobytes()
    assert values(again[0]) == values(outcome)
    assert simulate(section, seed=10)[1].tobytes() != flows.tobytes()


@pytest.mark.parametrize("device", ["udp", "kernel"])
def test_groups_on_live_hosts(run: RunWorkload, tmp_path: FilePath, device: str) -> None:
    ours = device != "kernel"
    cc = {"algo": "swift"} if ours else {"tcp": "bbr"}
    section = {
        "duration": "200ms",
        "flows": [
            {"from": 0, "to": 2, "size": 4096},
            {"from": 1, "to": 3, "size": 4096, "start": "50ms", "cc": cc},
        ],
    }
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4)) as dumbbell:
        outcome = run(
            "traffic",
            device="dp" if ours else "kernel",
            network=dumbbell,
            device_env=environments(dumbbell, device) if ours else None,
            **section,
        )
    found = values(outcome)
    assert found["fair_share"] + found["competing_fair_share"] == pytest.approx(2)
    flows, hosts = table.read(tmp_path / "traffic.table")
    parts = [table.FlowResults.read(tmp_path / f"traffic-host{h}.report") for h in range(hosts)]
    results = table.FlowResults.merge(parts, flows).rows
    assert results["posted_ns"][1] >= 50 * MS
    assert (results["delivered_bytes"] > 0).all()
    name = "swift" if ours else "bbr"
    assert f"--cc {'/' if ours else name}" in (tmp_path / "traffic-host1.cmd").read_text()


@pytest.mark.parametrize(
    ("device", "cc", "words"),
    [
        ("kernel", {"algo": "swift"}, "device kernel cannot have swift"),
        ("dp", {"tcp": "dp_copa"}, "device dp cannot have dp_copa"),
    ],
)
def test_algorithms_fit_the_device(
    run: RunWorkload, network: NetnsNetwork, device: str, cc: dict[str, str], words: str
) -> None:
    arguments = {"device_env": environments(network, "udp")} if device == "dp" else {}
    with pytest.raises(LocalError, match=words):
        run("traffic", device=device, flows=[{"from": 0, "to": 1, "cc": cc}], **arguments)


def test_a_table_that_names_an_unknown_algorithm_is_refused(tmp_path: FilePath) -> None:
    flows = table.empty(1)
    flows["dst"], flows["bytes"], flows["cc"] = 1, 1000, 2
    table.write(tmp_path / "t", flows, 2)
    words = [str(paths.traffic_generator()), "--table", str(tmp_path / "t"), "--host", "0"]
    words += ["--report", str(tmp_path / "r"), "--management", "127.0.0.1,127.0.0.1"]
    done = subprocess.run([*words, "--tcp", "--address", "127.0.0.1,127.0.0.1", "--cc", "bbr"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 2
    assert "flow 0: its algorithm is not one of --cc" in done.stderr
