# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Traffic tables of the user's own, and those made of captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from datapath import foreign
from datapath.cc.spec import HostCc
from datapath.errors import LocalError
from datapath.experiment.document import InvalidFile
from datapath.experiment.load import load
from datapath.fabric import flows as table
from datapath.interop import flows as captured
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path as PathSection
from datapath.lanes.spec import Topology
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import RunContext
from datapath.workloads.traffic import rows_file
from tests.workloads.test_perftest import values
from tests.xdp.conftest import ipv4, ipv6, roce, udp

HOSTS = ["a", "b", "c"]
SMALL = "src,dst,bytes,start_ns\n0,1,1000,500\na,c,2000,0\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "flows.csv"
    path.write_text(text)
    return path


def test_rows_name_hosts_and_come_in_order_of_time(tmp_path: Path) -> None:
    flows = rows_file.read(written(tmp_path, SMALL), HOSTS)
    assert flows["start_ns"].tolist() == [0, 500]
    assert (flows["src"].tolist(), flows["dst"].tolist()) == ([0, 0], [2, 1])
    assert flows["bytes"].tolist() == [2000, 1000]
    assert flows["depth"].tolist() == [1, 1]


def test_a_row_without_bytes_sends_until_it_stops(tmp_path: Path) -> None:
    flows = rows_file.read(written(tmp_path, "src,dst,stop_ns\n0,1,9000\n"), HOSTS)
    assert flows["bytes"].tolist() == [table.UNTIL_STOP]
    assert flows["message_bytes"].tolist() == [65536]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_written_is_read_again(tmp_path: Path, ending: str) -> None:
    flows = table.empty(2)
    flows["src"], flows["dst"], flows["bytes"] = [0, 2], [1, 0], [5, 7]
    flows["start_ns"], flows["qp"], flows["depth"] = [0, 9], [3, 0], [2, 4]
    path = tmp_path / f"flows.{ending}"
    rows_file.write(path, flows)
    assert np.array_equal(rows_file.read(path, HOSTS), flows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "No columns"),
        ("src,dst,bytes\n", "0 rows"),
        ("src,dst\n0,1\n", "it has no column bytes"),
        ("dst,bytes\n0,1\n", "it has no column src"),
        ("src,dst,bytes,colour\n0,1,2,3\n", "no column 'colour'"),
        ("src,dst,byts\n0,1,2\n", "did you mean bytes"),
        ("src,dst,bytes\n0,7,2\n", "dst is not one of the 3 hosts"),
        ("src,dst,bytes\n0,d,2\n", "there is no host d"),
        ("src,dst,bytes\n0,1,-2\n", "row 1: bytes is -2"),
        ("src,dst,bytes\n0,1,2.5\n", "row 1: bytes is 2.5"),
        ("src,dst,bytes\n0,1,many\n", "row 1: bytes is many"),
        ("src,dst,bytes\n1,1,2\n", "src and dst are the same host"),
        ("src,dst,bytes\n0,1,0\n", "row 1: bytes is 0, so it needs stop_ns"),
        ("src,dst,bytes\n0,1,9\n,1,9\n", "row 2: src is empty"),
        ("src,dst,bytes,start_ns\n0,1,9,7\n0,3,9,5\n", "row 2: dst is not one of the 3 hosts"),
        ("src,dst,bytes,after\n0,1,5,3\n", "after is 3, of 1 rows"),
        ("src,dst,bytes,after\n0,1,5,2\n0,1,5,1\n", "waits for rows that wait for it"),
        ("src,dst,bytes,after\n0,1,5,1\n", "waits for rows that wait for it"),
        ("src,dst,bytes,dscp\n0,1,5,64\n", "dscp is 0 to 63"),
        ("src,dst,bytes,dscp\n0,1,5,1\n0,1,5,2\n", "another row of its QP has another dscp"),
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        rows_file.read(written(tmp_path, text), HOSTS)


def test_rows_that_wait_come_behind_those_that_they_wait_for(tmp_path: Path) -> None:
    text = "src,dst,bytes,start_ns,after\n1,0,7,,3\n0,1,5,400,\n0,2,6,900,2\n"
    flows = rows_file.read(written(tmp_path, text), HOSTS)
    assert flows["bytes"].tolist() == [5, 6, 7]
    assert flows["start_ns"].tolist() == [400, 900, 900]
    assert flows["after"].tolist() == [0, 1, 2]


def test_a_long_chain_of_rows_that_wait(tmp_path: Path) -> None:
    """From the last row of the file to the first: one pass for each of them would take hours."""
    rows = 400_000
    frame = pd.DataFrame({"src": 0, "dst": 1, "bytes": np.arange(1, rows + 1)})
    frame["after"] = [*range(2, rows + 1), 0]
    frame["start_ns"] = [0] * (rows - 2) + [7, 5]
    frame.to_parquet(tmp_path / "chain.parquet")
    flows = rows_file.read(tmp_path / "chain.parquet", HOSTS)
    assert np.array_equal(flows["bytes"], np.arange(rows, 0, -1))
    assert np.array_equal(flows["after"], np.arange(rows))
    assert flows["start_ns"][:3].tolist() == [5, 7, 7]
    assert (flows["start_ns"][1:] == 7).all()


def test_a_row_that_waits_for_itself_is_told_by_its_number(tmp_path: Path) -> None:
    """Not one that waits for it and is in no circle."""
    text = "src,dst,bytes,after\n0,1,5,2\n0,1,5,3\n0,1,5,4\n0,1,5,3\n"
    with pytest.raises(LocalError, match=r"row [34] waits for rows that wait for it"):
        rows_file.read(written(tmp_path, text), HOSTS)


def test_a_table_runs_in_the_simulator(tmp_path: Path) -> None:
    written(tmp_path, "src,dst,bytes,start_ns\n0,2,100000,0\n1,3,50000,1000000\n")
    topology = Topology.model_validate({"lane": "sim", "preset": "dumbbell", "hosts": 4})
    path = PathSection.model_validate({"rate": "1gbit", "delay": "10us"})
    kind = REGISTRY["table"]
    with SimNetwork(topology, path, tmp_path) as network:
        context = RunContext(
            network=network,
            transport=Transport(),
            cc=HostCc(),
            device_env=[],
            logs=tmp_path,
            seed=1,
            timeout_s=30,
            path=path,
            folder=tmp_path,
        )
        found = values(kind(kind.Params.model_validate({"file": "flows.csv"})).run(context))
    assert found["unfinished_share"] == 0
    assert found["fct_p50"] > 400_000
    flows, hosts = table.read(tmp_path / "traffic.table")
    parts = [table.FlowResults.read(file) for file in tmp_path.glob("traffic-host*.report")]
    results = table.FlowResults.merge(parts, flows)
    assert (hosts, flows["bytes"].tolist()) == (4, [100_000, 50_000])
    assert results.rows["delivered_bytes"].tolist() == [100_000, 50_000]
    assert results.latencies.count == 2


def test_a_table_is_a_file_of_the_experiment(tmp_path: Path) -> None:
    """Workers elsewhere get it with their task."""
    written(tmp_path, "src,dst,bytes\n0,1,1000\n")
    source = tmp_path / "mine.yaml"
    source.write_text(
        "version: 1\nname: mine\ntopology: {lane: sim, preset: star, hosts: 3}\n"
        "path: {rate: 1gbit}\nworkload: {kind: table, file: flows.csv}\n"
    )
    (point,) = load(source).points
    assert point.spec.data == {("workload", "file"): "flows.csv"}


def test_validate_tells_all_mistakes_of_a_table(tmp_path: Path) -> None:
    """Each with its row, counted from 1, and its column; rows that are wrong hide no others."""
    rows = ("9,1,5,", "2,2,5,", "0,1,-5,", "0,1,1.5,", "x,1,5,", "0,1,0,", "0,1,5,x")
    written(tmp_path, "src,dst,bytes,start_ns\n" + "\n".join(rows) + "\n")
    source = tmp_path / "mine.yaml"
    source.write_text(
        "version: 1\nname: mine\ntopology: {lane: sim, preset: star, hosts: 4}\n"
        "path: {rate: 1gbit}\nworkload: {kind: table, file: flows.csv}\n"
        "sweep: {matrix: {path.delay: [1us, 2us]}}\n"
    )
    with pytest.raises(InvalidFile) as caught:
        load(source)
    said = [problem.message for problem in caught.value.problems]
    assert [text.partition("flows.csv: ")[2] for text in said] == [
        "row 1: src: there is no host 9; hosts: host0, host1, host2, host3 (2 such rows)",
        "row 2: src and dst are the same host",
        "row 3: bytes is -5, not a whole number in range (2 such rows)",
        "row 6: bytes is 0, so it needs stop_ns",
        "row 7: start_ns is x, not a whole number in range",
    ]
    assert {problem.path for problem in caught.value.problems} == {"workload.file"}


def test_a_file_is_read_as_often_for_many_points_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    plain = foreign.read_bytes

    def spied(path: Path, *rest: Any) -> bytes:
        read.append(path)
        return plain(path, *rest)

    monkeypatch.setattr(foreign, "read_bytes", spied)
    file = written(tmp_path, "src,dst,bytes\n0,1,1000\n")
    source = tmp_path / "mine.yaml"
    source.write_text(
        "version: 1\nname: mine\ntopology: {lane: sim, preset: star, hosts: 3}\n"
        "path: {rate: 1gbit}\nworkload: {kind: table, file: flows.csv}\n"
        "sweep: {matrix: {path.delay: [1us, 2us, 3us]}}\n"
    )
    assert len({point.key for point in load(source).points}) == 3
    assert read.count(file) == 2, "for its digest, and to check its rows"


# --- captures ------------------------------------------------------------------------------------

MS = 1_000_000


def capture(path: Path, frames: list[tuple[int, bytes]]) -> Path:
    from scapy.utils import RawPcapWriter

    with RawPcapWriter(str(path), linktype=1, nano=True) as writer:
        writer.write_header(None)
        for at, frame in frames:
            writer.write_packet(frame, sec=at // 10**9, usec=at % 10**9)
    return path


def tcp(payload: bytes, port: int = 80) -> bytes:
    head = port.to_bytes(2, "big") + (5000).to_bytes(2, "big") + bytes(8) + b"\x50\x10" + bytes(6)
    return ipv4(head + payload, protocol=6)


def test_flows_of_a_capture(tmp_path: Path) -> None:
    """Payload of UDP, TCP and RoCEv2; a pause begins another flow of the same connection."""
    frames = [
        (0, ipv4(udp(bytes(100), port=7))),
        (1 * MS, ipv4(udp(bytes(50), port=7))),
        (2 * MS, tcp(bytes(300))),
        (3 * MS, tcp(b"")),  # an acknowledgement
        (4 * MS, ipv4(roce(9, 1, bytes(64)))),
        (5 * MS, ipv6(udp(bytes(10), port=8))),
        (60 * MS, ipv4(udp(bytes(25), port=7))),
    ]
    found = captured.read(capture(tmp_path / "c.pcap", frames), gap_ns=10 * MS)
    rows = found.flows
    assert rows["start_ns"].tolist() == [0, 2 * MS, 4 * MS, 5 * MS, 60 * MS]
    assert rows["bytes"].tolist() == [150, 300, 64, 10, 25]
    assert rows["qp"].tolist() == [0, 1, 2, 0, 0]
    assert len(found.hosts) == 4
    assert rows["src"].tolist() == [0, 0, 0, 2, 0]


def test_a_capture_without_payload_is_refused(tmp_path: Path) -> None:
    path = capture(tmp_path / "c.pcap", [(0, tcp(b""))])
    with pytest.raises(LocalError, match="no packet of TCP or UDP has payload"):
        captured.read(path, gap_ns=MS)
    path.write_text("nothing")
    with pytest.raises(LocalError, match="is no capture"):
        captured.read(path, gap_ns=MS)
