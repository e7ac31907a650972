# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One experiment file in lanes sim and netns: tables and graphs of the user's own, and links that
differ in ECN, AQM, policer and weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datapath.cc import compile_algorithm
from datapath.experiment.load import load
from datapath.fabric import flows as table
from datapath.fabric.sim_result import SimResult
from datapath.interop import flows as captured
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.sim import SimNetwork
from datapath.verbs.launch import device_environment
from datapath.workloads import REGISTRY
from datapath.workloads.base import RunContext
from datapath.workloads.traffic import base, rows_file
from tests.lanes.test_graph import CONTAINERLAB, GRAPHML
from tests.workloads.traffic.test_rows_file import capture
from tests.xdp.conftest import ipv4, udp

MS = 1_000_000
LANES = ["sim", "netns"]


def device(spec: Any, host: Any) -> dict[str, str]:
    """The environment of a program on a live host."""
    return device_environment(
        "dp0",
        f"udp:{host.endpoint.ipv4}",
        cc=compile_algorithm(spec.cc.algo, spec.cc.params).path,
        options=spec.transport.device_options(),
    )


def run(source: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    """Run the file's point; (results of its flows, counters of its links by name)."""
    (point,) = load(source).points
    spec = point.spec
    live = spec.topology.lane == "netns"
    if live and os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    found: list[Any] = []
    plain = base._run

    def spied(*arguments: Any) -> Any:
        answer = plain(*arguments)
        found.append(answer[0].rows)
        return answer

    monkeypatch.setattr(base, "_run", spied)
    simulated: list[SimResult] = []
    count = SimNetwork._count

    def counted(self: SimNetwork, result: SimResult) -> Any:
        simulated.append(result)
        return count(self, result)

    monkeypatch.setattr(SimNetwork, "_count", counted)
    network: Any = (
        NetnsNetwork(spec.topology, "fabric")
        if live
        else SimNetwork(spec.topology, spec.path, source.parent)
    )
    with network:
        network.set_path(spec.path, 1)
        kind = REGISTRY[spec.workload.kind]  # type: ignore[attr-defined]
        kind(spec.workload).run(
            RunContext(
                network=network,
                transport=spec.transport,
                cc=spec.cc,
                device_env=[device(spec, host) if live else {} for host in network.hosts],
                logs=source.parent,
                seed=1,
                timeout_s=60,
                path=spec.path,
                folder=source.parent,
            )
        )
        links = (
            dict(network.emulator().counters())
            if live
            else {str(row["name"]): row for row in simulated[0].links}
        )
    return found[0], links


def written(folder: Path, text: str) -> Path:
    source = folder / "mine.yaml"
    source.write_text(
        f"version: 1\nname: mine\ntransport: {{device: dp, port: udp, ecn: true}}\n{text}"
    )
    return source


# --- tables and graphs ---------------------------------------------------------------------------

CSV = "src,dst,bytes,start_ns,after\na,b,60000,0,\na,b,30000,0,1\nb,a,50000,5000000,\n"


def tables(folder: Path, ending: str) -> table.Flows:
    """Write flows.csv or flows.parquet; what is in it."""
    csv = folder / "flows.csv"
    if ending == "pcap":
        frames = [(at * MS, ipv4(udp(bytes(1000), port=7))) for at in range(20)]
        flows = captured.read(capture(folder / "c.pcap", frames), gap_ns=10 * MS).flows
        rows_file.write(csv, flows)
        return flows
    csv.write_text(CSV)
    flows = rows_file.read(csv, ["a", "b"])
    if ending == "parquet":
        csv.unlink()
        rows_file.write(folder / "flows.parquet", flows)
    return flows


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    ("ending", "graph", "text"),
    [
        ("csv", "n.graphml", GRAPHML),
        ("parquet", "n.clab.yml", CONTAINERLAB),
        ("pcap", "n.graphml", GRAPHML),
    ],
)
def test_a_table_on_a_graph(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lane: str,
    ending: str,
    graph: str,
    text: str,
) -> None:
    (tmp_path / graph).write_text(text)
    flows = tables(tmp_path, ending)
    name = "flows.parquet" if ending == "parquet" else "flows.csv"
    source = written(
        tmp_path,
        f"topology: {{lane: {lane}, preset: graph, graph: {graph}, mtu: 1500}}\n"
        f"path: {{rate: 100mbit, delay: 100us}}\nworkload: {{kind: table, file: {name}}}\n",
    )
    rows, links = run(source, monkeypatch)
    assert rows["delivered_bytes"].tolist() == flows["bytes"].tolist()
    waits = np.flatnonzero(flows["after"])
    before = flows["after"][waits].astype(int) - 1
    assert (rows["posted_ns"][waits] >= rows["finish_ns"][before]).all()
    assert (rows["finish_ns"] > 0).all()
    assert (rows["posted_ns"] >= flows["start_ns"]).all()
    assert all(links[link]["delivered"] > 0 for link in ("a>s", "s>b", "b>s", "s>a"))


# --- links that differ ---------------------------------------------------------------------------

BEGINNING = """\
topology:
  lane: LANE
  preset: graph
  mtu: 1500
  graph:
    links:
      - {ends: a--s}
      - {ends: b--s}
"""
LINKS = (
    BEGINNING
    + """\
      - {ends: s--t, rate: 20mbit, ecn: {model: step, threshold: 20KiB}}
      - {ends: t--c}
      - {ends: s--u, policer: {rate: 10mbit, burst: 20kB}}
      - {ends: u--d}
      - {ends: s--v, rate: 20mbit, aqm: {model: codel, target: 1ms, interval: 10ms, ecn: false}}
      - {ends: v--e}
path: {rate: 200mbit, delay: 100us, queue: 256KiB}
cc: {algo: fixed, window_bytes: 65536}
workload:
  kind: traffic
  duration: 500ms
  flows:
    - {from: a, to: c, size: 16KiB}
    - {from: b, to: d, size: 16KiB}
    - {from: a, to: e, size: 16KiB}
"""
)
WEIGHTS = (
    BEGINNING
    + """\
      - {ends: s--t, rate: 60mbit, classes: [{dscp: 10, weight: 3}, {weight: 1}]}
      - {ends: t--c}
path: {rate: 200mbit, delay: 100us, queue: 256KiB, classes: [{dscp: 10, weight: 1}, {weight: 1}]}
cc: {algo: fixed, window_bytes: 32768}
workload:
  kind: traffic
  duration: 500ms
  flows:
    - {from: a, to: c, size: 16KiB, dscp: 10}
    - {from: b, to: c, size: 16KiB}
"""
)


@pytest.mark.parametrize("lane", LANES)
def test_each_link_has_rules_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    _, links = run(written(tmp_path, LINKS.replace("LANE", lane)), monkeypatch)

    def where(counter: str) -> set[str]:
        rows = {name: one for name, one in links.items() if ">" in name}
        return {name for name, one in rows.items() if int(one[counter])}

    assert where("marked") == {"s>t"}
    assert where("policed") == {"s>u"}
    assert where("aqm_dropped") == {"s>v"}


@pytest.mark.parametrize("lane", LANES)
def test_flows_have_the_weights_of_their_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    rows, _ = run(written(tmp_path, WEIGHTS.replace("LANE", lane)), monkeypatch)
    heavy, light = (float(one) for one in rows["delivered_bytes"])
    assert 0.65 < heavy / (heavy + light) < 0.85
