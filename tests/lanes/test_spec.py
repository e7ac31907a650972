# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The topology and path sections: what they accept, and what they say when they do not."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest
from ruamel.yaml import YAML

from datapath.errors import CapabilityError, LocalError
from datapath.fabric.links import CoDel, FqCoDel, Jitter, Link, Loss, Marking, Pie, Policer
from datapath.fabric.wakeup import Lateness, Wakeup
from datapath.lanes import link_spec, open_network
from datapath.lanes.loss_spec import Bernoulli, GilbertElliott
from datapath.lanes.spec import Path, Topology
from datapath.lanes.wakeup_spec import HostWakeup
from datapath.units import HAND_WRITTEN


@pytest.mark.parametrize("written", [0.01, "1%", "0.01", {"rate": "1%"}])
def test_a_bare_share_is_bernoulli_loss(written: Any) -> None:
    assert Path(loss=written).loss == Bernoulli(rate=0.01)


def test_gilbert_elliott_defaults_to_losing_all_in_the_bad_state() -> None:
    path = Path.model_validate({"loss": {"model": "gilbert-elliott", "p": "1%", "r": "25%"}})
    assert path.loss == GilbertElliott(p=0.01, r=0.25, good=0.0, bad=1.0)


def test_loss_in_bursts_by_time_is_the_same_in_both_back_ends() -> None:
    loss = {"model": "gilbert-elliott-time", "good_time": "1s", "bad_time": "5ms", "good": "0.1%"}
    path = Path.model_validate({"loss": loss})
    assert path.impaired
    assert path.carrier == "bpf"
    assert path.link("forward").loss == Loss(0.001, 1.0, good_ns=10**9, bad_ns=5 * 10**6)
    impairment = path.impairment("forward")
    assert (impairment.loss_good, impairment.loss_bad) == (0.001, 1.0)
    assert (impairment.good_ns, impairment.bad_ns) == (10**9, 5 * 10**6)


@pytest.mark.parametrize(
    ("key", "most", "more"),
    [
        ("delay", "10s", "10.1s"),
        ("jitter", "10s", "10.1s"),
        ("jitter", {"model": "pareto", "mean": "10s"}, {"model": "pareto", "mean": "10.1s"}),
        ("jitter", {"model": "trace", "samples": ["10s"]}, {"model": "trace", "samples": ["11s"]}),
        ("reorder", {"share": 1, "by": "10s"}, {"share": 1, "by": "10.1s"}),
        ("queue", "1TiB", "1.1TB"),
        ("ecn", "1TiB", "1.1TB"),
        (
            "ecn",
            {"model": "red", "min": 0, "max": "1TiB", "probability": 1},
            {"model": "red", "min": 0, "max": "1.1TB", "probability": 1},
        ),
        ("classes", [{"queue": "1TiB"}], [{"queue": "1.1TB"}]),
    ],
)
def test_settings_of_a_link_have_bounds_that_the_emulator_has_room_for(
    root: None, key: str, most: Any, more: Any
) -> None:
    with open_network(Topology(), path := Path.model_validate({key: most})) as network:
        network.set_path(path, seed=1)
    with pytest.raises(pydantic.ValidationError, match="less than or equal to"):
        Path.model_validate({key: more})


def test_no_live_host_has_the_name_of_the_middle() -> None:
    graph = {"links": [{"ends": "middle--s"}, {"ends": "s--b"}]}
    assert Topology(lane="sim", preset="graph", graph=graph).host_names == ["middle", "b"]
    with pytest.raises(pydantic.ValidationError, match="can be named middle"):
        Topology(preset="graph", graph=graph)


def test_aqms_have_the_defaults_of_their_rfcs() -> None:
    def aqm(value: Any) -> Any:
        return Path.model_validate({"aqm": value}).link("forward").aqm

    assert aqm("codel") == CoDel(target_ns=5_000_000, interval_ns=100_000_000, ecn=False)
    assert aqm("fq-codel") == FqCoDel(5_000_000, 100_000_000, True, 1024, 1514)
    assert aqm("pie") == Pie(15_000_000, 15_000_000, 0.125, 1.25, 150_000_000, False, 0.1)
    given = {"model": "pie", "target": "1ms", "update": "2ms", "max_burst": 0, "ecn": True}
    assert aqm(given) == Pie(10**6, 2 * 10**6, max_burst_ns=0, ecn=True)


def test_a_direction_has_an_aqm_and_a_policer_of_its_own() -> None:
    path = Path.model_validate(
        {
            "aqm": {"model": "codel", "target": "1ms"},
            "forward": {"policer": {"rate": "500mbit", "burst": "64KiB"}},
            "backward": {"aqm": "pie"},
        }
    )
    forward, backward = path.link("forward"), path.link("backward")
    assert (forward.aqm, forward.policer) == (CoDel(10**6), Policer(500 * 10**6, 65536))
    assert (backward.aqm, backward.policer) == (Pie(), None)
    assert path.link_keys == ["aqm", "policer"]


def test_directions_override_the_common_values() -> None:
    path = Path.model_validate(
        {"loss": "1%", "ecn_mark": "5%", "backward": {"loss": 0}, "forward": {"corrupt": "2%"}}
    )
    forward, backward = path.impairment("forward"), path.impairment("backward")
    assert (forward.loss_good, forward.mark, forward.corrupt) == (0.01, 0.05, 0.02)
    assert (backward.loss_good, backward.mark, backward.corrupt) == (0.0, 0.05, 0.0)


def test_faults_belong_to_their_direction() -> None:
    path = Path.model_validate(
        {
            "faults": [
                {"action": "drop", "nth": 3},
                {"action": "mark", "qpn": 0x11, "psn": 42, "direction": "backward"},
            ]
        }
    )
    assert [f.nth for f in path.impairment("forward").faults] == [3]
    assert [(f.qpn, f.psn) for f in path.impairment("backward").faults] == [(0x11, 42)]


def test_a_path_that_does_nothing_is_not_impaired() -> None:
    assert not Path().impaired
    assert not Path.model_validate(
        {"loss": {"model": "gilbert-elliott", "p": 0, "r": "10%", "bad": "100%"}}
    ).impaired
    assert Path(loss="1%").impaired
    assert Path.model_validate({"forward": {"ecn_mark": "1%"}}).impaired


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"loss": "101%"}, "not between 0% and 100%"),
        ({"loss": {"model": "gilbert", "p": 0.1, "r": 0.1}}, "gilbert-elliott"),
        ({"loss": {"model": "bernoulli", "p": 0.1}}, "rate"),
        ({"loss": {"model": "gilbert-elliott-time", "good_time": "1s"}}, "bad_time"),
        ({"loss": {"model": "gilbert-elliott-time", "p": 0.1, "r": 0.1}}, "good_time"),
        ({"loss": {"model": "gilbert-elliott-time", "good_time": 0, "bad_time": "1s"}}, "1000"),
        ({"policer": {"rate": "1gbit"}}, "burst"),
        ({"policer": {"rate": "1gbit", "burst": 0}}, "greater than or equal to 1"),
        ({"policer": "1gbit"}, "policer"),
        ({"aqm": "red"}, "'codel', 'fq-codel', 'pie'"),
        ({"aqm": {"model": "codel", "flows": 3}}, "flows"),
        ({"aqm": {"model": "fq-codel", "flows": 0}}, "greater than or equal to 1"),
        ({"aqm": {"model": "codel", "target": "5 bananas"}}, "unknown unit"),
        ({"aqm": "codel", "ecn": "64KiB"}, "aqm and ecn exclude each other; aqm: {model"),
        ({"aqm": "codel", "backward": {"trim": True}}, "backward: aqm and trim exclude each"),
        ({"backend": "bpf", "aqm": "codel"}, "aqm: not for backend bpf"),
        ({"latency": "10us"}, "latency"),
        ({"rate": "1gbit", "trace": [1, 2]}, "exclude each other"),
        ({"trace": [3, 2]}, "do not fall"),
        ({"trace": [0]}, "above 0"),
        ({"loss": "0.00000001%"}, "1e-10 is below 2.33e-10"),
        ({"ecn_mark": "1e-12"}, "1e-12 is below"),
        ({"backward": {"corrupt": "1e-12"}, "duplicate": "1e-11"}, "1e-11 is below"),
        ({"ecn": {"model": "red", "min": 2, "max": 1, "probability": 1}}, "min is larger"),
        ({"jitter": {"model": "pareto", "mean": "1us", "shape": 1}}, "greater than 1"),
        ({"backend": "bpf", "rate": "1gbit", "delay": "1us"}, "rate and delay: not for backend"),
        ({"rate": "1gbit", "faults": [{"action": "drop", "nth": 1}]}, "faults are for backend bpf"),
        ({"backend": "none", "forward": {"queue": "1KiB"}}, "backend none impairs nothing"),
        ({"faults": [{"action": "drop"}]}, "needs a target"),
        ({"faults": [{"action": "explode", "nth": 1}]}, "'drop', 'mark' or 'corrupt'"),
        ({"faults": [{"action": "drop", "nth": 0}]}, "greater than or equal to 1"),
        ({"faults": [{"action": "drop", "psn": 2**24}]}, "16777215"),
        ({"faults": [{"action": "drop", "nth": 1}] * 17}, "more than 16 forward faults"),
        ({"backend": "none", "loss": "1%"}, "backend none impairs nothing"),
    ],
)
def test_wrong_paths_are_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        Path.model_validate(section)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"hosts": 3}, "joins 2 hosts"),
        ({"preset": "dumbbell", "hosts": 5}, "even number"),
        ({"mtu": 512}, "1280"),
        ({"mtu": "1MiB"}, "65521"),
        ({"mtu": "9000 bananas"}, "unknown unit"),
        ({"preset": "ring"}, "'p2p', 'dumbbell'"),
        (
            {
                "lane": "ssh",
                "preset": "star",
                "machines": [{"ssh": "a", "netdev": "e"}, {"ssh": "b", "netdev": "e"}],
            },
            "for lanes netns and sim",
        ),
        ({"queues": 2}, "queues"),
    ],
)
def test_wrong_topologies_are_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        Topology.model_validate(section)


def test_the_example_in_the_documentation_is_valid() -> None:
    text = (FilePath(__file__).parents[2] / "docs/impairments.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(path:.*?)```", text, re.DOTALL)
    assert example is not None
    path = Path.model_validate(YAML(typ="safe").load(example.group(1))["path"])
    assert len(path.faults) == 3
    assert path.impairment("backward").loss_good == 0


def test_backends_to_come_say_so() -> None:
    with pytest.raises(CapabilityError, match="not in this version"):
        open_network(Topology(), Path(backend="netem"))


@pytest.mark.parametrize(
    ("section", "backend"),
    [
        ({}, "bpf"),
        ({"loss": "1%", "ecn_mark": "1%", "corrupt": "1%"}, "bpf"),
        ({"delay": 0}, "fabric"),  # a sweep that begins at 0 keeps to one back end
        ({"forward": {"rate": "1gbit"}}, "fabric"),
        ({"backend": "fabric"}, "fabric"),
    ],
)
def test_auto_is_fabric_when_only_that_can_do_it(section: dict[str, Any], backend: str) -> None:
    assert Path.model_validate(section).carrier == backend


def test_short_forms_of_link_settings() -> None:
    path = Path.model_validate(
        {"rate": "1gbit", "delay": "100us", "jitter": "5us", "ecn": "64KiB", "reorder": "1%"}
    )
    link = path.link("forward")
    arguments = {name for key in link_spec.LINK_KEYS for name in link_spec.sets(key)}
    assert arguments <= {one.name for one in fields(link)}, "each key says what it sets"
    assert (link.rate_bps, link.delay_ns, link.limit_bytes) == (10**9, 100_000, 2**20)
    assert link.jitter == Jitter("normal", scale_ns=5000.0)
    assert link.marking == Marking("step", kmin_bytes=65536)
    assert (link.reorder, link.reorder_ns) == (0.01, 500_000)
    assert (link.loss, link.duplicate, link.trace_ms) == (None, 0.0, ())


def test_a_direction_overrides_link_settings_one_by_one() -> None:
    path = Path.model_validate(
        {
            "rate": "1gbit",
            "delay": "100us",
            "loss": "1%",
            "forward": {"delay": "1ms", "loss": 0},
            "backward": {
                "trace": [1, 2],
                "ecn": {"model": "red", "min": 1, "max": 2, "probability": "10%"},
            },
        }
    )
    forward, backward = path.link("forward"), path.link("backward")
    assert (forward.rate_bps, forward.delay_ns, forward.loss) == (10**9, 10**6, None)
    assert (backward.rate_bps, backward.trace_ms) == (0, (1, 2))
    assert backward.loss == Loss(good=0.01)
    assert backward.marking == Marking("red", 1, 2, 0.1)


def test_a_resolved_path_reads_back_as_itself() -> None:
    path = Path.model_validate({"rate": "1gbit", "jitter": "5us", "ecn": "64KiB"})
    assert Path.model_validate(path.model_dump(mode="json")) == path
    policer = {"rate": "1gbit", "burst": "9kB"}
    loss = {"model": "gilbert-elliott-time", "good_time": "1s", "bad_time": "5ms"}
    path = Path.model_validate({"policer": policer, "aqm": "fq-codel", "loss": loss})
    assert Path.model_validate(path.model_dump(mode="json")) == path


def test_a_dumbbell_has_a_middle() -> None:
    with pytest.raises(LocalError, match="backend none"):
        open_network(Topology(preset="dumbbell", hosts=4), Path(backend="none"))


def test_traces_come_from_files_beside_the_experiment(tmp_path: FilePath) -> None:
    (tmp_path / "lte.up").write_text("1\n1\n5\n")
    (tmp_path / "wifi").write_text("0\n80000\n20000\n")
    section = {"trace": "lte.up", "jitter": {"model": "trace", "samples": "wifi"}}
    context = {**HAND_WRITTEN, "folder": str(tmp_path)}
    path = Path.model_validate(section, context=context)
    link = path.link("forward")
    assert link.trace_ms == (1, 1, 5)
    assert link.jitter == Jitter("trace", samples_ns=(0.0, 80_000.0, 20_000.0))
    # What a run keeps is whole without the files.
    assert Path.model_validate(path.model_dump(mode="json")) == path


def test_the_times_of_a_trace_have_a_limit() -> None:
    assert Path(trace=[0, 2**32 - 1]).link("forward").trace_ms[-1] == 2**32 - 1
    with pytest.raises(pydantic.ValidationError, match="trace: 4294967296 milliseconds"):
        Path(trace=[0, 2**32])
    for ms in ((2**32,), (0,), (2**32, 5)):
        with pytest.raises(LocalError, match=r"Link: trace_ms .* milliseconds"):
            Link(trace_ms=ms)


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot read"), ("fast\n", "whole numbers"), ("", "at least 1")]
)
def test_files_that_are_no_traces_are_refused(
    content: str | None, words: str, tmp_path: FilePath
) -> None:
    if content is not None:
        (tmp_path / "t").write_text(content)
    with pytest.raises(pydantic.ValidationError, match=words):
        Path.model_validate({"trace": "t"}, context={"folder": str(tmp_path)})


# --- wakeup --------------------------------------------------------------------------------------


def wakeup(value: Any, folder: FilePath | None = None) -> Any:
    context = {**HAND_WRITTEN, "folder": str(folder or "")}
    section = {"lane": "sim", "wakeup": value}
    topology = Topology.model_validate(section, context=context)
    # What a run keeps is whole without the files.
    assert Topology.model_validate(topology.model_dump(mode="json")) == topology
    assert isinstance(topology.wakeup, HostWakeup)
    return topology.wakeup.setting(20_000, emulated=True)


def test_one_delay_and_one_list_of_quantiles_stand_for_packets_and_timers() -> None:
    constant = Lateness.constant(30_000)
    assert wakeup("30us") == Wakeup(constant, constant)
    drawn = Lateness(((0.0, 0), (0.5, 20_000), (0.999, 90_000), (1.0, 90_000)))
    assert wakeup({"p99.9": "90us", "p50": "20us"}) == Wakeup(drawn, drawn)
    bounded = Lateness(((0.0, 5_000), (0.5, 20_000), (1.0, 1_000_000)))
    assert wakeup({"min": "5us", "p50": "20us", "max": "1ms"}).packet == bounded


def test_packets_timers_and_the_emulator_have_delays_of_their_own() -> None:
    given = wakeup({"packet": "10us", "timer": {"p50": "20us"}, "emulator": "40us"})
    assert given.packet == Lateness.constant(10_000)
    assert given.timer == Lateness(((0.0, 0), (0.5, 20_000), (1.0, 20_000)))
    assert given.emulator == Lateness.constant(40_000)


def test_presets_without_an_emulator_have_none() -> None:
    section = {"lane": "sim", "wakeup": {"packet": "1us", "timer": "1us", "emulator": "1us"}}
    late = Topology.model_validate(section).wakeup
    assert isinstance(late, HostWakeup)
    assert late.setting(0, emulated=False).emulator is None


def test_delays_come_from_a_file_that_was_measured(tmp_path: FilePath) -> None:
    content = {
        "about": {"scheduling": "realtime"},
        "packet": {"p50": "7us"},
        "timer": {"max": "9us"},
        "awake": "4us",
    }
    (tmp_path / "late.json").write_text(json.dumps(content))
    given = wakeup("./late.json", tmp_path)
    assert given.packet == Lateness(((0.0, 0), (0.5, 7_000), (1.0, 7_000)))
    assert given.timer == Lateness(((0.0, 0), (1.0, 9_000)))
    assert given.emulator is None
    assert given.awake_ns == 4_000


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("20", "no unit"),
        ("late.json", "is not a duration"),  # a file has a / in its name
        ("2s", "1000000000"),
        ({}, "needs a quantile"),
        ({"p50": 20}, "no unit"),
        ({"median": "20us"}, "median is not a quantile: write p50"),
        ({"p101": "20us"}, "p101 is not a quantile"),
        ({"p50": "20us", "p50.0": "30us"}, "names a quantile twice"),
        ({"max": "20us", "p100": "20us"}, "names a quantile twice"),
        ({"p50": "20us", "p90": "10us"}, "a higher quantile is lower"),
        ({"packet": "20us"}, "timer"),
        ({"packet": "20us", "timer": "1us", "emulater": "1us"}, "emulater"),
        ("./none.json", "cannot read ./none.json"),
        ("./text", "cannot read ./text"),
        ("./list", "./list is not a file that `dpctl fabric wakeup --out` wrote"),
    ],
)
def test_wrong_wakeups_are_refused(value: Any, words: str, tmp_path: FilePath) -> None:
    (tmp_path / "text").write_text("late")
    (tmp_path / "list").write_text("[1, 2]")
    with pytest.raises(pydantic.ValidationError, match=re.escape(words)):
        wakeup(value, tmp_path)


@pytest.mark.parametrize("lane", ["netns", "vm", "ssh"])
def test_live_programs_are_as_late_as_they_are(lane: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=f"wakeup: for lane sim, not for {lane}"):
        Topology.model_validate({"lane": lane, "wakeup": "20us"})
