# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Wrong input, one line each: where it is said to be, and what was meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datapath.cc import registry
from datapath.errors import LocalError
from datapath.experiment.claims import evaluate
from datapath.experiment.document import InvalidFile, parse
from datapath.experiment.load import load as load_file
from datapath.experiment.load import load_text
from datapath.experiment.spec import json_schema
from datapath.experiment.store import to_yaml

from .conftest import GOOD, Load

PATH = "path: {loss: 0}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mtu: 9000", "mtus: 9000", "3:12: topology.mtus: unknown key; did you mean mtu?"),
        ("mtu: 9000", "mtu: 70000", "3:17: topology.mtu: 70000: it should be at most 65521 (65521"),
        ("size: 64}", "size: 2147483648}", "it should be at most 1073741824 (1GiB)"),
        ("size: 64}", "size: 2GiB}", "'2GiB': it should be at most 1GiB"),
        (PATH, "path: {slot: 0}", "4:14: path.slot: 0: it should be at least 1us"),
        ("mtu: 9000", "mtu: 100", "3:17: topology.mtu: 100: it should be at least 1280 (1280B)"),
        ("mtu: 9000", "mtu: 9kb", "3:17: topology.mtu: '9kb': unknown unit 'kb'"),
        ("mtu: 9000", "hosts: 3", "3:11: topology: preset p2p joins 2 hosts, not 3"),
        ("path:", "paht:", "4:1: paht: unknown key; did you mean path?"),
        (PATH, "path:", "5:1: path: is empty; give it a value, or leave the key out"),
        (PATH, "path: {mtu: 3}", "4:8: path.mtu: unknown key here; it belongs to topology"),
        (PATH, "path: {loss: 1}\npath: {}", "5:1: path: given twice; first in line 4"),
        (PATH, "path: {loss: {model: gilbert}}", "no model 'gilbert'; did you mean gilbert-el"),
        (PATH, "path: {ecn_mark: 5}", "path.ecn_mark: 5 is not between 0% and 100%; for 5 perc"),
        (PATH, "path: [", "YAML syntax"),
        (PATH, "transport: {device: dpp}", "'dpp' is not possible; did you mean dp?"),
        (PATH, "transport: {path_mtu: 4000}", "transport.path_mtu: 4000 is not possible; one of"),
        (PATH, "transport: {ecn: 3}", "transport.ecn: "),
        (PATH, "transport: {options: {min_rto: 5}}", "min_rto: 5 has no unit; a duration is"),
        (
            PATH,
            "transport: {retry_count: 8}",
            "4:26: transport.retry_count: 8: it should be at most 7",
        ),
        (PATH, "transport: {ack_timeout: 32}", "ack_timeout: 32: it should be at most"),
        (PATH, "transport: {ack_timeout: 67ms}", "ack_timeout: '67ms' is not a whole number"),
        (PATH, "transport: {rnr_retry: -1}", "rnr_retry: -1: it should be at least"),
        (PATH, "transport: {retry_cnt: 1}", "4:13: transport.retry_cnt: unknown key; did you mean"),
        (
            PATH,
            "transport: {ack_timeout: 9}",
            "4:13: transport.ack_timeout: device kernel has no ack_timeout, only dp, rxe have",
        ),
        (
            "label: dp-afxdp, set: {transport.port: afxdp}",
            "label: dp-afxdp, set: {transport.rnr_retry: 3}",
            'transport.rnr_retry"]: workload perftest cannot set rnr_retry; these can: flows',
        ),
        (PATH, "collect: {series: [cwn]}", "4:20: collect.series[0]: 'cwn' is not possible; did y"),
        (PATH, "collect: {series: [rtt, rtt]}", "4:10: collect: series: rtt is there twice"),
        (
            PATH,
            "collect: {interval: 10us}",
            "4:21: collect.interval: '10us': it should be at least 100us",
        ),
        (PATH, "collect: {interval: 10}", "collect.interval: 10 has no unit; a duration is"),
        ("kind: bar, metric: goodput", "kind: series", "kind series needs some: collect: {series"),
        (PATH, "cc: {algo: swif}", "4:12: cc.algo: no congestion-control algorithm is called"),
        (PATH, "cc: {algo: swift, target_ns: 3}", "cc.target_ns: swift has no parameter 'target"),
        (PATH, "cc: {algo: swift, params: {x: 1}, x: 1}", "x is given beside algo and under par"),
        (PATH, "cc: {algo: ./none.py:A}", "cc.algo: "),
        (PATH, "cc: {tcp: cubic}", "cc.tcp: device dp does not run over TCP, only kernel, siw do"),
        (PATH, "cc: {tcp: a b}", "'a b' is no name of a TCP congestion control"),
        (PATH, "cc: {tcp: bbr, algo: swift}", "tcp stands alone: algo and parameters are for"),
        (PATH, "cc: {tcp: ./none.bpf.c}", "none.bpf.c: No such file or directory"),
        (PATH, "xdp: {source: none.c}", "none.c: No such file or directory; paths are relative"),
        (PATH, "xdp: {source: a.c, hook: host7}", "4:26: xdp.hook: 'host7' is not possible; di"),
        ("version: 1", "version: 2", "1:10: version: 2 is not possible; one of: 1"),
        ("version: 1\n", "", "version: required, but missing"),
        ("name: good", "name: a b", "2:7: name: 'a b' is not possible here; it must match"),
        ("kind: iperf3", "kind: iperf", "no kind 'iperf'; did you mean iperf3?"),
        ("kind: iperf3", "kind: perftest, test: send_bw", "perftest cannot use transport.device"),
        ("size: 64}", "sise: 64}", "test[0].set.workload.sise: unknown key; did you mean size?"),
        ("size: 64}", "size: 64k}", "'k' is ambiguous; write KiB (binary) or kB (decimal)"),
        ("size: 64}", "iterations: 1}", "iterations: 1: it should be at least 5"),
        ("path.loss: [0", "path.los: [0", '14:5: sweep.matrix["path.los"]: path has no key \'lo'),
        ("path.loss: [0, 1%]", "path.loss: [0, 150%]", '14:20: sweep.matrix["path.loss"][1]: 150'),
        ("path.loss: [0, 1%]", "path.loss: [1%, 1%]", "'1%' is in this axis twice"),
        ("path.loss: [0, 1%]", "path.loss: []", "an axis needs at least one value"),
        ("path.loss: [0, 1%]", "value: [0, 1%]", "'value' is a column of the results"),
        (
            "path.loss: [0, 1%]",
            "verdict: [0, 1%]",
            "'verdict' is a column of the results, as are point, ",
        ),
        ("path.loss: [0, 1%]", "report.x: [0]", "no section 'report' that a sweep can vary"),
        ("path.loss: [0, 1%]", "path.loss: 3", 'sweep.matrix["path.loss"]: 3 is not a list'),
        ("transport.port: afxdp", "transport.prt: afxdp", "transport has no key 'prt'; did you"),
        ("transport.port: afxdp", "transport.port: xdp", "'xdp' is not possible; did you mean a"),
        ("transport.port: afxdp", "path.loss.rate: 1%", "path.loss is 0 here, so nothing can be"),
        ("label: tcp", "lable: tcp", "a named axis has values {label: ..., set: {path: value}}"),
        ("baseline: {stack: tcp}", "baseline: {stack: tpc}", "no value 'tpc'; did you mean tcp?"),
        ("baseline: {stack", "baseline: {stak", "18:14: sweep.baseline.stak: no such axis; did y"),
        ("repetitions: 3", "repetitions: three", "'three' is not a whole number"),
        ("repetitions: 3", "repetitions: 0", "it should be at least 1"),
        (
            "repetitions: 3",
            "repetitions: 10000",
            "sweep: 8 points x 10000 repetitions are 80,000 runs; the most is 50,000",
        ),
        ("repetitions: 3", "repetitions: true", "sweep.repetitions: True is not a whole number"),
        ("repetitions: 3", "exclude: [{stack: [tcp, dp-afxdp]}]", "sweep: no point is left"),
        ("repetitions: 3", "only: {stack: tpc}", "sweep.only.stack: stack has no value 'tpc'; did"),
        (
            "repetitions: 3",
            "exclude: [{stack: tcp, path.loss: 0}]\n  only: {stack: tcp, path.loss: 0}",
            "sweep.only: no point of the sweep has these values together",
        ),
        ("repetitions: 3", "include: [{stack: tcp}]", "axis 'test' is missing here"),
        (
            "repetitions: 3",
            "include: [{stack: tcp, test: latency, path.loss: 0}]",
            "this point is in the sweep already",
        ),
        ("repetitions: 3", "order: random", "'random' is not possible; did you mean blocked-ra"),
        ("label: tcp", "label: ''", "stack[1].label: a label needs a name"),
        ("kind: bar, metric: goodput", "kind: cdf, metric: slowdown", "no samples of 'slowdown'"),
        ("kind: bar, metric: goodput", "kind: cdf, metric: goodput", "only of latency and fct"),
        (
            "kind: bar, metric: goodput",
            "kind: cdf, metric: fct",
            "of fct of workload iperf3 and perftest and sockperf for a CDF; these leave some: ",
        ),
        (
            "kind: bar, metric: goodput",
            "kind: cdf, metric: latency, where: {stack: tcp, test: bandwidth}",
            "no samples of latency of workload iperf3 for a CDF",
        ),
        (
            "kind: bar, metric: goodput",
            "kind: cdf, metric: [latency_p50, fct_ns]",
            "no samples of fct of workload",
        ),
        (
            "kind: bar, metric: goodput",
            "kind: line, metric: [goodput, latency_p99]",
            "22:28: report.plots[0].metric: goodput in bit/s and latency_p99 in ns: one axis has",
        ),
        ("metric: goodput, x", "metric: [], x", "report.plots[0].metric: names nothing to draw"),
        ("metric: goodput, x", "qps: [-9], x", "plots[0].qps[0]: -9: it should be at least 0"),
        ("metric: goodput, where", "metric: godput, where", "no metric 'godput'; did you mean"),
        ("series: stack", "series: stak", "no such axis: 'stak'; did you mean stack?"),
        ("min: 0.9", "min: lots", "'lots' is not a number; write for example 0.9 or 90%"),
        ("min: 0.9", "min: nan", "report.expect[0].min: 'nan' is not a finite number"),
        ("min: 0.9", "max: inf%", "report.expect[0].max: 'inf%' is not a finite number"),
        ("min: 0.9", "max: snan%", "report.expect[0].max: 'snan%' is not a finite number"),
        ("min: 0.9", "min: 1e999%", "report.expect[0].min: '1e999%' is not a finite number"),
        ("min: 0.9", "min: 91%, max: 0.9", "expect[0].max: is below min: no result can meet both"),
        ("max: 10us", "max: 10us, min: 1ms", "expect[1].max: is below min: no result can meet"),
        ("{stack: dp-afxdp}", "{stack: []}", "expect[1].where.stack: names no value, so no point"),
        (", min: 0.9", "", "report.expect[0]: a claim needs min, max or both"),
        ("max: 10us", "max: 10", "10 has no unit; a bound on latency_p50 is written like 10us"),
        ("latency_p50, where", "queue_p99, where", "expect[1].max: '10us': unknown unit 'us' for"),
        (
            "latency_p50, where: {stack: dp-afxdp}, max: 10us",
            "path_dropped, max: 90%",
            "expect[1].max: '90%' is a share, and path_dropped is in packets",
        ),
        (
            "latency_p50, where: {stack: dp-afxdp}, max: 10us",
            "fairness, min: 50",
            "expect[1].min: 50 is not between 0% and 100%; for 50 percent write 50%",
        ),
        (
            "latency_p50, where: {stack: dp-afxdp}, max: 10us",
            "lost_share, max: -0.1",
            "expect[1].max: -0.1 is not between 0% and 100%",
        ),
        (
            "latency_p50, where",
            "fct_p50, where",
            "expect[1].metric: there is no fct_p50 of workload perftest; these have it: flows, ",
        ),
        (
            "latency_p50, where",
            "connection_rate, where",
            "there is no connection_rate of workload perftest; these have it: connections",
        ),
        (
            "kind: bar, metric: goodput",
            "kind: bar, metric: slowdown_p99",
            "plots[0].metric: there is no slowdown_p99 of workload iperf3 and perftest and sockp",
        ),
        (
            "latency_p50, where",
            "startup_time, where",
            "expect[1].metric: startup_time is made of series; add collect: {series: [...]}",
        ),
        ("ratio_to: {path.loss: 0}", "ratio_to: {}", "expect[0].ratio_to: names no axis"),
        (
            "where: {stack: dp-afxdp, path.loss: 1%}",
            "where: {stack: dp-afxdp}",
            "path.loss=0 would be compared with itself; where needs other values of path.loss",
        ),
        (
            "repetitions: 3",
            "exclude: [{stack: dp-afxdp, test: latency, path.loss: 0}]",
            "test=latency, stack=dp-afxdp, path.loss=1% has no point to be compared with",
        ),
        ("{stack: dp-afxdp, path.loss: 1%}", "{path.loss: 2%}", "path.loss has no value '2%'"),
    ],
)
def test_mistakes_are_located_and_explained(load: Load, old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        load(old, new)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.hint or "YAML" in said or "twice" in said


@pytest.mark.parametrize(
    ("metric", "written", "bound"),
    [
        ("queue_p99", "64KiB", 65536.0),
        ("queue_p99", "20000", 20000.0),
        ("path_dropped", "90", 90.0),
        ("fairness", "95%", 0.95),
        ("unfinished_share", "1e-4", 1e-4),
        ("lost_share", "1/4096", 1 / 4096),
        ("fair_share", "150%", 1.5),
        ("cpu_user", "2s", 2.0),
    ],
)
def test_bounds_are_read_in_the_unit_of_their_metric(
    load: Load, metric: str, written: str, bound: float
) -> None:
    old = "latency_p50, where: {stack: dp-afxdp}, max: 10us"
    loaded = load(old, f"{metric}, max: {written}", ["collect.series=[queue]"])
    (_, verdict) = evaluate(loaded, [])
    assert verdict.bound == {"max": bound}


def test_all_mistakes_are_told_at_once(load: Load) -> None:
    with pytest.raises(InvalidFile) as caught:
        load("mtu: 9000}\npath: {loss: 0}", "mtu: 1}\npath: {los: 0}\nseed: -1")
    assert [problem.path for problem in caught.value.problems] == [
        "topology.mtu",
        "path.los",
        "seed",
    ]


def test_a_wrong_sweep_hides_no_other_mistake(load: Load) -> None:
    swept = "path.loss: [0, 1%]"
    wrong = "path.loss: [0, 120%]\n    cc.algo: [cubik]"
    with pytest.raises(InvalidFile) as caught:
        load(swept, wrong, ["sweep.repetitions=99999999999", "report.plots=[]", "report.title=x"])
    assert {problem.path for problem in caught.value.problems} == {
        "sweep.repetitions",
        "report.title",
        'sweep.matrix["path.loss"][1]',
        'sweep.matrix["cc.algo"][0]',
    }


def test_what_follows_from_a_mistake_is_not_told(load: Load) -> None:
    """A plot over time needs series, which are there but misspelt."""
    bar = "{kind: bar, metric: goodput, x: path.loss, series: stack}"
    with pytest.raises(InvalidFile) as caught:
        load(bar, "{kind: series}", ["collect.series=[cwmd]"])
    assert [problem.path for problem in caught.value.problems] == ["collect.series[0]"]


def test_attributes_of_qps_are_axes(tmp_path: Path) -> None:
    text = """\
version: 1
name: patience
transport: {retry_count: 2}
workload: {kind: stream}
sweep:
  matrix: {transport.ack_timeout: [0, 8, 31], transport.rnr_retry: [0, 7]}
"""
    points = load_text(text, tmp_path / "patience.yaml").points
    assert [dict(point.spec.transport.qp_attributes()) for point in points] == [
        {"retry_count": 2, "ack_timeout": timeout, "rnr_retry": rnr}
        for timeout in (0, 8, 31)
        for rnr in (0, 7)
    ]


MISSPELT = """\
from datapath.cc import algorithm


@algorithm("mine", source="none")
class A:
    '''Nothing.'''

    def on_akc(flow, ack):
        pass
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class A:\n    pass\n", "my.py holds no algorithm"),
        ("def (:\n", "my.py:1"),
        (MISSPELT, "my.py:8"),
    ],
)
def test_a_wrong_algorithm_file_names_its_line(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "my.py").write_text(source)
    text = GOOD.replace("path: {loss: 0}", "cc: {algo: './my.py:A'}")
    with pytest.raises(InvalidFile) as caught:
        load_text(text, tmp_path / "good.yaml")
    assert "4:12: cc.algo: " in str(caught.value)
    assert said in str(caught.value)


def test_code_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `dpctl cc check` finds it; the folder's name has .py in it, too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / "cc.py.old"
    home.mkdir()
    (home / "my.py").write_text(
        "from datapath.cc import algorithm\n"
        '@algorithm("mine")\nclass Mine:\n    def on_ack(flow, ack): pass\n'
    )
    text = GOOD.replace(PATH, "cc: {algo: '~/cc.py.old/my.py:Mine'}")
    point = load_text(text, Path("/nowhere/x.yaml")).points[0]
    assert point.spec.cc.located(Path("/nowhere")) == f"{home}/my.py:Mine"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("path.loss=500%", "--set path.loss=500%: path.loss: 500% is not between"),
        ("foo=1", "--set foo=1: foo: unknown key"),
        ("name", "--set name: write --set path.to.key=value"),
        ("name.x=2", "--set name.x=2: name: name is 'good', so nothing can be set inside it"),
        ("path.loss=[", "--set path.loss=[:1:9: YAML syntax"),
        ("path.loss=3%", "--set path.loss=3%: path.loss: axis path.loss sets this in every point"),
    ],
)
def test_overrides_are_checked_like_the_file(load: Load, override: str, said: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        load(overrides=[override])
    assert said in str(caught.value)


def test_an_override_changes_the_points(load: Load) -> None:
    experiment = load(overrides=["sweep.repetitions=7", "topology.mtu=3000"])
    assert experiment.spec.sweep.repetitions == 7
    assert {point.spec.topology.mtu for point in experiment.points} == {3000}
    assert {p.key for p in experiment.points}.isdisjoint(p.key for p in load().points)


def test_what_is_resolved_resolves_to_the_same_points(load: Load, tmp_path: Path) -> None:
    experiment = load()
    again = load_text(to_yaml(experiment.resolved).decode(), tmp_path / "resolved.yaml")
    assert [point.key for point in again.points] == [point.key for point in experiment.points]


@pytest.mark.parametrize(
    ("begin", "axis", "values"),
    [
        ("", "[010, 0o10, 1e2, ~]", [10, 8, 100.0, None]),
        ("%YAML 1.1\n---\n", "[010, yes, off, 1:30]", [8, True, False, 90]),
        ("", "[!!bool yes, !!float 3, !!str 5, !!int '3']", [True, 3.0, "5", 3]),
    ],
)
def test_what_is_resolved_has_the_values_of_the_file(
    tmp_path: Path, begin: str, axis: str, values: list[object]
) -> None:
    """Also of one of YAML 1.1, or with tags; resolved.yaml is of YAML 1.2, without."""
    text = f"{begin}version: 1\nname: x\nsweep: {{matrix: {{a: {axis}}}}}\n"
    document = parse(text, "x.yaml")
    again = parse(to_yaml(document.spelled(())).decode(), "resolved.yaml")
    for one in (document, again):
        found = one.data["sweep"]["matrix"]["a"]
        assert [(type(value), value) for value in found] == [(type(v), v) for v in values]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_the_text_is_kept_byte_for_byte(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(GOOD.replace("\n", line_end).encode())
    experiment = load_file(path)
    assert experiment.text.encode() == path.read_bytes()
    assert experiment.resolved == load_text(GOOD, path).resolved
    path.write_bytes(path.read_bytes() + b"unknown: 1")
    with pytest.raises(InvalidFile, match=f"x.yaml:{GOOD.count(chr(10)) + 1}:1: unknown"):
        load_file(path)


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text(GOOD)
    with pytest.raises(LocalError, match="no such file") as caught:
        load_file(tmp_path / "quikstart.yaml")
    assert "quickstart.yaml" in caught.value.hint


def test_cc_parameters_are_read_in_their_unit(load: Load) -> None:
    experiment = load(PATH, "cc: {algo: swift, base_target_ns: 70us}")
    assert experiment.points[0].spec.cc.params == {"base_target_ns": 70_000}


def test_the_schema_describes_every_section() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert set(schema["properties"]) >= {"topology", "path", "transport", "cc", "workload", "sweep"}
    undescribed = [
        f"{name}.{key}"
        for name, part in schema["$defs"].items()
        for key, entry in part.get("properties", {}).items()
        if not ({"description", "$ref", "const"} & set(entry) or "allOf" in entry)
    ]
    assert undescribed == []


@pytest.mark.parametrize("path", sorted(Path("experiments").glob("*.yaml")), ids=str)
def test_the_experiments_that_come_along_are_valid(path: Path) -> None:
    assert load_file(path).points


@pytest.mark.parametrize("name", ["vnic-cc", "vnic-cc-rxe"])
def test_each_algorithm_is_tried_in_virtual_cards(name: str) -> None:
    points = load_file(Path(f"experiments/{name}.yaml")).points
    cards = [point.spec.topology.card for point in points]
    assert sorted(card.cc.algo for card in cards if card) == sorted(registry())


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("[cwnd, rat]", "no series 'rat'; did you mean rate?"),
        ("queue", "series queue is not collected; add it to collect.series"),
        ("rate", "series rate is not collected; add it to collect.series"),
        ("[cwnd, rtt]", ""),
    ],
)
def test_a_plot_over_time_shows_what_is_collected(load: Load, metric: str, said: str) -> None:
    old = "{kind: bar, metric: goodput, x: path.loss, series: stack}"
    new = f"{{kind: series, metric: {metric}}}"
    collect = "collect.series=[cwnd, rtt]"
    if not said:
        assert load(old, new, [collect]).spec.report.plots[0].kind == "series"
        return
    with pytest.raises(InvalidFile) as caught:
        load(old, new, [collect])
    assert said in str(caught.value)


OF_LOAD = """\
version: 1
name: load
topology: {lane: netns}
workload: {kind: flows, sizes: websearch}
"""
MACHINES = "lane: ssh, machines: [{ssh: a, netdev: eth1}, {ssh: b, netdev: eth1}]"
GROUPS = "kind: traffic, flows: [{from: 0, to: 1, distribution: websearch, load: 50%}]"


@pytest.mark.parametrize("workload", ["kind: flows, sizes: websearch", GROUPS])
@pytest.mark.parametrize(
    ("topology", "advice"),
    [
        ("lane: netns", "give workload.link_rate, or path.rate"),
        (MACHINES, "give workload.link_rate, the rate of the machines' links"),
    ],
)
def test_a_load_needs_the_rate_of_a_link(
    tmp_path: Path, topology: str, advice: str, workload: str
) -> None:
    def loaded(text: str) -> None:
        text = text.replace("kind: flows, sizes: websearch", workload)
        load_text(text.replace("lane: netns", topology), tmp_path / "load.yaml")

    with pytest.raises(InvalidFile, match="load: a share of which rate") as caught:
        loaded(OF_LOAD)
    assert str(caught.value).endswith(advice)
    loaded(OF_LOAD.replace("websearch}", "websearch, link_rate: 1gbit}", 1))


@pytest.mark.parametrize("network", ["lane: sim", "lane: netns, preset: star, hosts: 4"])
def test_a_network_with_links_tells_their_rate(tmp_path: Path, network: str) -> None:
    load_text(OF_LOAD.replace("lane: netns", network), tmp_path / "load.yaml")


def test_an_emulated_link_tells_its_rate(tmp_path: Path) -> None:
    load_text(OF_LOAD + "path: {rate: 1gbit}\n", tmp_path / "load.yaml")


OF_BYTES = "from: 0, to: 1, bytes: 1kB"
OF_DRAWN = "{from: 0-1, to: 1, distribution: 64B, rate: 188mbit}"
"""Of two senders one, since the other one would send to itself: 3.7 million flows in 10 s."""


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (
            "{kind: traffic, duration: 10s, flows: [{from: 0, to: 1, rate: 10gbit, size: 64B}]}",
            "1.95e+08 flows would be generated; the most is 10000000: lower count, repeat, rate",
        ),
        (
            f"{{kind: traffic, flows: [{{{OF_BYTES}, count: 999, repeat: 99999, every: 1s}}]}}",
            "9.99e+07 flows would be generated",
        ),
        (
            f"{{kind: traffic, duration: 10s, flows: [{', '.join([OF_DRAWN] * 4)}]}}",
            "1.47e+07 flows would be generated",
        ),
        (f"{{kind: traffic, duration: 10s, flows: [{OF_DRAWN}]}}", ""),
        ("{kind: incast, rounds: 100000}", "1e+08 flows would be generated"),
        ("{kind: stream, qps: 1024, pairs: 1}", ""),
        ("{kind: stream, pairs: 501}", "pairs is 501, but 1001 hosts make 500"),
        ("{kind: stream, pairs: 500}", ""),
        ("{kind: incast, rounds: 10000}", ""),
    ],
)
def test_traffic_of_too_many_flows_is_a_mistake(tmp_path: Path, workload: str, said: str) -> None:
    source = tmp_path / "many.yaml"
    topology = "{lane: sim, preset: star, hosts: 1001}"
    source.write_text(
        f"version: 1\nname: many\ntopology: {topology}\npath: {{rate: 1gbit}}\n"
        f"workload: {workload}\n"
    )
    if not said:
        assert load_file(source).points
        return
    with pytest.raises(InvalidFile) as caught:
        load_file(source)
    (problem,) = caught.value.problems
    assert said in problem.message
    assert problem.path.startswith("workload")
