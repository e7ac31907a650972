# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The sim lane: sections of a file become a topology, and traffic tables are run on it."""

from __future__ import annotations

from math import inf
from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest

from datapath.cc.spec import Cc
from datapath.errors import LocalError, RunFailed
from datapath.fabric import flows as traffic
from datapath.fabric.links import (
    FqCoDel,
    Link,
    Loss,
    Marking,
    Policer,
    QueueClass,
    SharedBuffer,
)
from datapath.fabric.topology import Dumbbell, FatTree, LeafSpine, Rail, Star
from datapath.lanes import open_network
from datapath.lanes.base import PathCounters
from datapath.lanes.shape import lacking_headroom, shape
from datapath.lanes.sim import SimNetwork
from datapath.lanes.sim_options import engine_options
from datapath.lanes.spec import Path, Topology
from datapath.series import Request
from datapath.verbs.spec import Transport
from datapath.workloads.traffic import schedules

GBIT = 10**9
QUEUE = 2**20  # of a link for which none is named


def topology(**section: Any) -> Topology:
    return Topology.model_validate({"lane": "sim", **section})


def path(**section: Any) -> Path:
    return Path.model_validate(section)


def test_a_dumbbell_is_its_shared_link() -> None:
    section = path(rate="10gbit", delay="20us", queue="100kB", ecn="30kB", backward={"loss": "1%"})
    made = shape(topology(preset="dumbbell", hosts=6, host_rate="25gbit"), section)
    assert isinstance(made, Dumbbell)
    assert (made.pairs, made.edge) == (3, Link(25 * GBIT, 0))
    neck = Link(10 * GBIT, 20_000, 100_000, Marking("step", 30_000))
    assert made.bottleneck == neck
    assert made.backward is not None
    assert made.backward.loss == Loss(good=0.01)


def test_hosts_of_two_are_as_fast_as_can_be() -> None:
    made = shape(topology(), path(rate="1gbit"))
    assert isinstance(made, Dumbbell)
    assert made.edge.rate_bps == 0


def test_a_star_spoils_on_the_way_to_hosts() -> None:
    made = shape(topology(preset="star", hosts=9), path(rate="25gbit", delay="1us", loss="1%"))
    assert isinstance(made, Star)
    assert (made.hosts, made.edge) == (9, Link(25 * GBIT, 1_000, QUEUE))
    assert made.downlink == Link(25 * GBIT, 1_000, QUEUE, loss=Loss(good=0.01))


@pytest.mark.parametrize(
    ("section", "kind", "hosts"),
    [
        ({"preset": "leaf-spine", "leaves": 4, "spines": 3, "hosts_per_leaf": 5}, LeafSpine, 20),
        ({"preset": "fat-tree", "k": 6}, FatTree, 54),
        ({"preset": "rail", "servers": 4, "rails": 8, "spines": 2}, Rail, 32),
    ],
)
def test_dimensions_make_the_hosts(section: dict[str, Any], kind: type, hosts: int) -> None:
    made = topology(**section)
    assert made.hosts == hosts
    built = shape(made, path(delay="2us", loss="1%", ecn="10kB"))
    assert isinstance(built, kind)
    assert built.graph().hosts == hosts
    assert built.core == Link(  # type: ignore[attr-defined]
        100 * GBIT, 2_000, QUEUE, Marking("step", 10_000), Loss(good=0.01)
    )
    assert built.edge == Link(  # type: ignore[attr-defined]
        100 * GBIT, 2_000, QUEUE, Marking("step", 10_000)
    )


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"preset": "star", "leaves": 3}, "leaves: not for preset star"),
        ({"preset": "leaf-spine", "hosts": 5}, "the dimensions make 4"),
        ({"preset": "fat-tree", "k": 5}, "multiple of 2"),
        ({"lane": "vm", "preset": "leaf-spine"}, "for lanes netns and sim, not for vm"),
        ({"lane": "vm", "host_rate": "1gbit"}, "host_rate: for lanes netns and sim"),
        ({"lane": "vm", "buffer": "1MiB"}, "buffer: for lanes netns and sim, not for vm"),
        ({"lane": "netns", "preset": "dumbbell", "hosts": 34}, "at most 32"),
    ],
)
def test_topologies_that_make_no_sense(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        topology(**section)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"backend": "bpf"}, "no path backend bpf"),
        ({"faults": [{"action": "drop", "nth": 1}]}, "no aimed faults"),
        ({"ecn_mark": "1%"}, "no random marking"),
        ({}, "nothing limits the forward rate"),
        ({"forward": {"rate": "1gbit"}}, "nothing limits the backward rate"),
    ],
)
def test_paths_that_it_has_not(section: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        open_network(topology(), path(**section))


def test_hosts_of_one_side_need_links_with_a_rate() -> None:
    with open_network(topology(preset="dumbbell", hosts=4), path(rate="1gbit")) as network:
        rows = flow(0, 1, traffic.UNTIL_STOP, message_bytes=4096, depth=4, stop_ns=1_000_000)
        with pytest.raises(RunFailed, match="links without a rate") as caught:
            simulate(network, rows)
    assert "topology.host_rate" in caught.value.hint


def test_an_aqm_does_not_share_a_buffer() -> None:
    section = topology(preset="star", hosts=4, buffer="1MB")
    with pytest.raises(LocalError, match="not for a shared"):
        open_network(section, path(aqm="codel"))
    network = open_network(section, path())
    with network, pytest.raises(LocalError, match="not for a shared"):
        network.set_path(path(aqm="codel"), 1)


def test_what_policer_and_aqm_drop_is_counted() -> None:
    section = {
        "rate": "1gbit",
        "delay": "50us",
        "policer": {"rate": "900mbit", "burst": "60kB"},
        "backward": {"policer": {"rate": "1gbit", "burst": "9kB"}},
        "aqm": {"model": "codel", "target": "50us", "interval": "500us"},
    }
    with open_network(topology(mtu=1500), path(**section)) as network:
        rows = flow(0, 1, 4_000_000, message_bytes=65536, depth=16)
        simulate(network, rows, cc=Cc(algo="newreno"))
        counters = network.path_counters()
    assert counters.policed["forward"] > 0
    assert counters.aqm_dropped["forward"] > 0
    assert counters.dropped == {"forward": 0, "backward": 0}
    assert counters.overflowed == {"forward": 0, "backward": 0}


def test_transport_options_reach_the_engine() -> None:
    section = Transport.model_validate(
        {
            "mode": "standard",
            "ecn": True,
            "options": {"window": 128, "min_rto": "1ms", "paths": 4, "telemetry": True},
        }
    )
    options = engine_options(section, 1500, GBIT)
    assert (options.path_mtu, options.extended, options.ecn) == (1024, False, True)
    assert (options.window_psns, options.min_rto_ns) == (128, 10**6)
    assert (options.paths, options.telemetry, options.segment_max) == (4, True, 1408)
    assert (options.line_rate_bps, options.data_class) == (GBIT, 0)
    assert (options.retry_cnt, options.timeout, options.rnr_retry) == (7, 14, 7)


def test_attributes_of_qps_reach_the_engine() -> None:
    section = Transport(retry_count=3, ack_timeout=0, rnr_retry=1)
    options = engine_options(section, 1500, GBIT)
    assert (options.retry_cnt, options.timeout, options.rnr_retry) == (3, 0, 1)


@pytest.mark.parametrize(
    ("section", "mtu", "segment"),
    [
        ({}, 9000, 7552),
        ({"port": "udp"}, 9000, 8896),
        ({}, 1500, 1408),
        ({"path_mtu": 1024}, 9000, 1024),
        ({"path_mtu": 1024, "options": {"telemetry": True}}, 9000, 1156),
        ({"options": {"segment": 4096, "telemetry": True}}, 4200, 4096),
        ({"options": {"segment": 5000}}, 9000, 5000),
        ({"options": {"segment": 5000, "telemetry": True}}, 9000, 5132),
    ],
)
def test_packets_are_as_long_as_live_ones(section: dict[str, Any], mtu: int, segment: int) -> None:
    options = engine_options(Transport.model_validate(section), mtu, GBIT)
    assert options.segment_max == segment


@pytest.mark.parametrize("max_packet", [1200, 1400, 1500])
def test_qps_find_out_what_their_path_carries(max_packet: int) -> None:
    """As live ones: a segment of 1408 bytes fits the last of these paths alone."""
    section = path(rate="1gbit", delay="10us", backward={"max_packet": max_packet})
    with open_network(topology(mtu=1500), section) as network:
        result = simulate(network, flow(1, 0, 1_000_000))
    assert result.flows.rows["delivered_bytes"] == 1_000_000


def test_switches_share_buffers_trim_and_stamp() -> None:
    section = topology(preset="star", hosts=4, buffer="1MB")
    made = shape(section, path(trim=True, telemetry=True))
    assert isinstance(made, Star)
    assert made.buffer == SharedBuffer(10**6)
    assert made.downlink is not None
    for link in (made.edge, made.downlink):
        assert (link.trim, link.telemetry) == (True, True)
        assert link.classes == (QueueClass(), QueueClass())


@pytest.mark.parametrize("preset", ["p2p", "dumbbell", "parking-lot"])
def test_no_link_on_the_way_forgets_which_frames_were_trimmed(preset: str) -> None:
    """A host's link with one class would put all data into the class of trimmed headers."""
    made = shape(topology(preset=preset), path(rate="1gbit", backward={"trim": True}))
    links = {link for cable in made.graph().cables for link in (cable.forward, cable.backward)}
    assert {link.classes for link in links if not link.rate_bps} == {(QueueClass(), QueueClass())}


def test_queues_have_aqms_and_the_links_between_switches_a_policer() -> None:
    section = topology(preset="leaf-spine")
    made = shape(section, path(aqm="fq-codel", policer={"rate": "1gbit", "burst": "20kB"}))
    assert isinstance(made, LeafSpine)
    assert made.edge.aqm == made.core.aqm == FqCoDel()
    assert (made.edge.policer, made.core.policer) == (None, Policer(GBIT, 20_000))


def test_pfc_has_thresholds_that_fit_the_network() -> None:
    section = topology(
        preset="leaf-spine", leaves=2, spines=2, hosts_per_leaf=6, buffer="2MB", pfc=True, mtu=1500
    )
    made = shape(section, path(rate="40gbit", delay="10us"))
    assert isinstance(made, LeafSpine)
    headroom = 2 * 10_000 * 40 // 8 + 84 + 2 * 1538  # of the fastest link
    xoff = 2_000_000 // 8 - headroom
    assert made.buffer == SharedBuffer(
        2_000_000,
        pfc_classes=2,
        xoff_bytes=xoff,
        xon_bytes=xoff - 2 * 1538,
        headroom_bytes=headroom,
    )
    for link in (made.edge, made.core):
        assert (link.limit_bytes, link.classes) == (0, (QueueClass(), QueueClass()))


INCAST = {"preset": "leaf-spine", "leaves": 4, "hosts_per_leaf": 4, "buffer": "1500kB"}


def incast(delay: str, *, way: Any = None, **more: Any) -> tuple[Any, PathCounters]:
    """Twelve hosts of three leaves send to one of the fourth, without congestion control."""
    section = topology(**{**INCAST, **more})
    network = SimNetwork(section, path(rate="40gbit", delay=delay, **(way or {})))
    rows = schedules.incast(range(12), 15, size=1_000_000, rounds=1, interval_ns=1)
    result = simulate(network, rows, cc=Cc(algo="fixed", window_bytes=2_000_000))
    return result, network.path_counters()


@pytest.mark.parametrize("delay", ["100ns", "1us", "5us"])
def test_with_pfc_no_packet_is_dropped(delay: str) -> None:
    result, counters = incast(delay, pfc=True)
    assert (result.flows.rows["delivered_bytes"] == 1_000_000).all()
    assert sum(counters.overflowed.values()) == 0
    assert sum(counters.paused_ns.values()) > 100_000
    assert result.result.qps["retransmits"] == 0


@pytest.mark.parametrize(
    "way",
    [
        {"slot": "100us"},
        {"jitter": {"model": "trace", "samples": ["0us", "50us", "3us"]}},
        {"jitter": {"model": "trace", "samples": ["0us", "50us", "3us"], "reorders": True}},
        {"reorder": {"share": "30%", "by": "40us"}},
        {"duplicate": "50%"},
        {"slot": "20us", "reorder": {"share": "30%", "by": "20us"}, "duplicate": "10%"},
    ],
)
def test_headroom_has_room_for_what_comes_late(way: dict[str, Any]) -> None:
    """Links keep frames for so long that more are under way than by their delay."""
    _, counters = incast("1us", way=way, pfc={"xoff": "100kB"}, buffer="12MB")
    assert sum(counters.overflowed.values()) == 0
    assert sum(counters.paused_ns.values()) > 100_000


@pytest.mark.parametrize("slow", [{"rate": "10mbit"}, {"delay": "200us"}])
def test_a_pause_frame_takes_its_time_on_the_way_back(slow: dict[str, str]) -> None:
    """Two hosts at 10 Gbit/s, a shared link, and a host at 1 Gbit/s behind it."""
    links = [{"ends": "a--l"}, {"ends": "b--l"}, {"ends": "l--r"}, {"ends": "r>l", **slow}]
    section = topology(
        preset="graph",
        mtu=1500,
        buffer="2MB",
        pfc={"xoff": "100kB"},
        graph={"links": [*links, {"ends": "r--c", "rate": "1gbit"}]},
    )
    network = SimNetwork(section, path(rate="10gbit", delay="1us"))
    rows = schedules.incast(range(2), 2, size=3_000_000, rounds=1, interval_ns=1)
    result = simulate(network, rows, cc=Cc(algo="fixed", window_bytes=2_000_000)).result
    assert result.totals["overflowed"] == 0
    name = list(result.links["name"]).index("l>r")
    assert result.links["paused_ns"][name] > 0


def test_without_pfc_the_same_incast_drops() -> None:
    _, counters = incast("1us")
    assert sum(counters.overflowed.values()) > 0
    assert counters.paused_ns == {}


def test_with_too_little_headroom_pfc_drops() -> None:
    _, counters = incast("5us", pfc={"headroom": "20kB", "xoff": "100kB"})
    assert sum(counters.overflowed.values()) > 0


@pytest.mark.parametrize(
    ("section", "way", "words"),
    [
        ({"pfc": True}, {}, "needs a buffer"),
        ({"pfc": True, "buffer": "1MB"}, {"queue": "64kB"}, "no queue drops or trims"),
        ({"pfc": True, "buffer": "1MB"}, {"trim": True}, "no queue drops or trims"),
        ({"pfc": True, "buffer": "1MB", "preset": "p2p", "hosts": 2}, {}, "constant rate"),
        (
            {"pfc": True, "buffer": "1MB", "preset": "dumbbell", "host_rate": "1gbit"},
            {"rate": None, "forward": {"rate": "1gbit"}},
            "constant rate",
        ),
        ({"pfc": True, "buffer": "50kB"}, {}, "too few for PFC on 4 ports"),
        ({"pfc": {"xoff": "9kB", "xon": "10kB"}, "buffer": "1MB"}, {}, "xon is 10000, above xoff"),
        ({"pfc": {"headroom": "100B"}, "buffer": "1MB"}, {}, "headroom of 100 bytes holds no"),
    ],
)
def test_pfc_that_makes_no_sense(section: dict[str, Any], way: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        SimNetwork(
            topology(**{"preset": "star", "hosts": 4, **section}), path(**{"rate": "10gbit", **way})
        )


@pytest.mark.parametrize("jitter", ["1us", {"model": "pareto", "mean": "1us"}])
def test_a_jitter_without_a_limit_needs_a_headroom_of_the_file(jitter: Any) -> None:
    way = path(rate="10gbit", jitter=jitter)
    section = {"preset": "leaf-spine", "buffer": "1MB", "mtu": 1500}
    with pytest.raises(LocalError, match="no longest delay"):
        shape(topology(**section, pfc=True), way)
    given = topology(**section, pfc={"headroom": "50kB"})
    assert lacking_headroom(given, way) == inf
    star = topology(preset="star", buffer="1MB", pfc=True)
    shape(star, way)  # its links to switches have no jitter
    shape(topology(**section, pfc=True), path(rate="10gbit", jitter="0us"))


def test_trimmed_headers_go_before_data() -> None:
    with open_network(topology(), path(rate="10gbit", queue="20kB", trim=True)) as network:
        result = simulate(network, flow(0, 1, 4_000_000, message_bytes=2**20, depth=4))
    links = result.result.links
    assert links["trimmed"].sum() > 0
    assert result.result.qps["trimmed"] == links["trimmed"].sum()


def flow(src: int, dst: int, size: int, **more: int) -> traffic.Flows:
    row = traffic.empty(1)
    row["src"], row["dst"], row["bytes"] = src, dst, size
    for name, value in more.items():
        row[name] = value
    return row


def simulate(network: Any, flows: traffic.Flows, **more: Any) -> Any:
    arguments: dict[str, Any] = {"transport": Transport(), "cc": Cc(algo="dctcp"), "seed": 1}
    return network.simulate(flows, **(arguments | more))


def test_a_table_runs_and_its_packets_are_counted() -> None:
    with open_network(topology(), path(rate="10gbit", delay="10us", loss="1%")) as network:
        assert [host.name for host in network.hosts] == ["host0", "host1"]
        network.set_path(path(rate="10gbit", delay="10us", loss="1%"), 1)
        result = simulate(network, flow(0, 1, 4_000_000, message_bytes=65536, depth=16))
        counters = network.path_counters()
    assert result.flows.rows["delivered_bytes"][0] == 4_000_000
    assert counters.passed["forward"] >= 4_000_000 / 7552
    assert counters.dropped["forward"] > 0
    assert result.frame is None


def test_series_are_the_tables_of_live_lanes() -> None:
    with open_network(topology(), path(rate="10gbit", delay="10us")) as network:
        request = Request(("cwnd", "rtt", "queue"), 100_000, 4)
        frame = simulate(network, flow(0, 1, 10_000_000), series=request).frame
    qps, links = frame[frame["qp"].notna()], frame[frame["link"].notna()]
    assert set(qps["host"]) == {"host0"}
    assert (qps["cwnd_bytes"] > 0).all()
    assert qps["rtt_ns"].max() > 20_000
    assert links[links["link"] == "left>right"]["queue_bytes"].max() > 0


def test_series_of_links_count_their_marks() -> None:
    marking = path(rate="10gbit", delay="10us", ecn="5kB")
    with open_network(topology(), marking) as network:
        more = {"transport": Transport(ecn=True), "series": Request(("marks",), 100_000, 4)}
        many = flow(0, 1, 10_000_000, message_bytes=65536, depth=16)
        frame = simulate(network, many, **more).frame
        marked = network.path_counters().marked["forward"]
    assert marked > 0
    rows = frame[frame["link"] == "left>right"]
    assert rows["marked_packets"].is_monotonic_increasing
    assert 0 < rows["marked_packets"].iloc[-1] <= marked
    received = frame[frame["qp"].notna()]["marked_packets"]
    assert 0 < received.iloc[-1] <= marked


def test_the_network_says_what_it_is_of() -> None:
    network = SimNetwork(
        topology(preset="leaf-spine", leaves=2, hosts_per_leaf=2), path(rate="100gbit", delay="1us")
    )
    assert network.graph.hosts == 4
    assert network.link_rates_bps == [100 * GBIT] * 4


def test_hosts_run_no_programs() -> None:
    host = SimNetwork(topology(), path(rate="1gbit")).hosts[0]
    assert not host.has_program("python3")
    with pytest.raises(LocalError, match="run no programs"):
        host.run(["true"])


def test_it_gives_up_in_time(tmp_path: FilePath) -> None:
    network = SimNetwork(topology(), path(rate="100gbit"))
    endless = flow(0, 1, traffic.UNTIL_STOP, stop_ns=10**12, message_bytes=2**20, depth=4)
    with pytest.raises(RunFailed, match="not done in time"):
        simulate(network, endless, logs=tmp_path, timeout_s=0.0)


def test_the_algorithm_of_the_file_is_taken() -> None:
    """A window of ten packets: each round trip begins when all of them have arrived."""
    network = SimNetwork(topology(), path(rate="10gbit", delay="100us"))
    fixed = Cc.model_validate({"algo": "fixed", "window_bytes": "40960"})
    short = Transport.model_validate({"options": {"segment": 4096}})
    result = simulate(network, flow(0, 1, 4_096_000), cc=fixed, transport=short)
    took = int(result.flows.rows["finish_ns"][0])
    packet_ns = (4096 + 118) * 8 / 10
    assert took == pytest.approx(100 * (200_000 + 10 * packet_ns), rel=0.01)


# --- late programs -------------------------------------------------------------------------------


def median_latency_ns(late: Any, **more: Any) -> float:
    network = SimNetwork(topology(wakeup=late), path(rate="10gbit", delay="50us"))
    one_at_a_time = flow(0, 1, 64 * 50, message_bytes=64, depth=1)
    result = simulate(network, one_at_a_time, **more)
    return float(result.flows.latencies.quantile(0.5))


def test_programs_wake_late() -> None:
    """The receiver's, and the sender's unless it polls."""
    in_time = median_latency_ns(None)
    assert median_latency_ns("10us") == pytest.approx(in_time + 20_000, rel=0.03)
    assert median_latency_ns("10us", spin_ns=1_000_000) == pytest.approx(in_time + 10_000, rel=0.03)


def test_what_always_polls_is_never_late() -> None:
    assert median_latency_ns("10us", spin_ns=None) == median_latency_ns(None)


def test_the_shared_link_alone_is_emulated() -> None:
    section = {"packet": "0us", "timer": "0us", "emulator": "10us"}
    none = {"packet": "0us", "timer": "0us"}
    assert median_latency_ns(section) == pytest.approx(median_latency_ns(none) + 20_000, rel=0.03)
    spines = {"preset": "leaf-spine", "leaves": 2, "hosts_per_leaf": 1}
    took = [
        simulate(
            SimNetwork(topology(wakeup=late, **spines), path(rate="10gbit")), flow(0, 1, 64)
        ).flows.rows["finish_ns"][0]
        for late in (section, none)
    ]
    assert took[0] == took[1]
