# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Series of whole runs: what becomes of them, and what is told of those that are not there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from datapath import series
from datapath.experiment import collecting
from datapath.series import Request
from tests.cli import server
from tests.cli.told import told

EXPERIMENT = """\
version: 1
name: over-time
path: {loss: 0.5%}
cc: {algo: dctcp}
transport: {port: udp}
workload: {kind: perftest, test: write_bw, size: 64KiB, iterations: 3000, qps: 2}
sweep:
  matrix:
    stack:
      - {label: dp, set: {transport.device: dp}}
      - {label: tcp, set: {transport.device: kernel, workload: {kind: iperf3, duration: 1s}}}
      - {label: udp, set: {transport.device: kernel, workload: {kind: iperf3, protocol: udp,
         duration: 1s, rate: 100mbit}}}
  repetitions: 1
collect: {series: [cwnd, rtt, inflight, delivered, queue, retransmits], interval: 2ms}
report:
  plots: [{kind: series, metric: [cwnd, rtt, rate, retransmits], series: stack}]
"""


def dpctl(*arguments: object) -> str:
    done = server.dpctl(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("series")
    (path / "experiment.yaml").write_text(EXPERIMENT)
    dpctl("run", path / "experiment.yaml", "--out", path / "out")
    return path / "out"


def run_of(folder: Path, stack: str) -> dict[str, Any]:
    records = [json.loads(path.read_text()) for path in (folder / "runs").glob("*.json")]
    (record,) = (record for record in records if record["axes"]["stack"] == stack)
    assert isinstance(record, dict)
    return record


def table_of(folder: Path, record: dict[str, Any]) -> pd.DataFrame:
    run = f"{record['point']}-{record['repetition']}"
    frame = pd.read_parquet(folder / "series" / f"{run}.parquet")
    assert list(frame.columns) == ["run", *series.KEYS, *series.COLUMNS]
    assert (frame["run"] == run).all()
    assert len(frame) == record["series"]["rows"]
    return frame


def metrics_of(record: dict[str, Any]) -> dict[str, float]:
    return {metric["name"]: metric["value"] for metric in record["metrics"]}


def test_our_device_leaves_every_qp_of_both_hosts(root: None, folder: Path) -> None:
    record = run_of(folder, "dp")
    frame = table_of(folder, record)
    assert frame["time_ns"].min() == 0
    flows = series.flows(frame)
    assert [host for host, _, _ in flows] == ["host0", "host0"]
    assert set(frame["host"]) == {"host0", "host1"}
    # Each QP has written its half.
    assert sum(rows["delivered_bytes"].max() for _, _, rows in flows) == 2 * 3000 * 65536
    counters = [qp for device in record["device"] for qp in device["qps"]]
    again = frame.groupby(["host", "qp"])["retransmitted_packets"].max().sum()
    assert again == sum(qp["retransmits"] for qp in counters) > 0
    assert record["series"]["absent"] == {"queue": "no link of this network tells its queue"}
    assert record["series"]["rows_left_out"] == 0
    # Not asked for.
    assert frame["pacing_rate_bps"].isna().all()
    assert frame["marked_packets"].isna().all()
    found = metrics_of(record)
    assert 0 < found["queueing_delay_mean"] <= found["queueing_delay_p99"] * 100
    assert found["fairness"] == pytest.approx(1)


def test_kernel_tcp_is_sampled_too(root: None, folder: Path) -> None:
    record = run_of(folder, "tcp")
    frame = table_of(folder, record)
    ((host, _, rows),) = series.flows(frame)
    assert host == "host0"
    assert len(rows) > 50
    assert rows["cwnd_bytes"].min() > 0
    found = metrics_of(record)
    assert 0 < rows["retransmitted_packets"].max() <= found["retransmits"]
    assert 0 < found["retransmitted_share"] < 0.2
    assert found["queueing_delay_p99"] > 0
    assert set(record["series"]["absent"]) == {"queue"}


def test_what_cannot_be_sampled_has_a_reason(root: None, folder: Path) -> None:
    record = run_of(folder, "udp")
    assert len(table_of(folder, record)) == 0
    absent = record["series"]["absent"]
    assert set(absent) == {"cwnd", "rtt", "inflight", "delivered", "queue", "retransmits"}
    assert absent["rtt"] == "nothing was sampled: no TCP connection of the run carried data"


def test_no_sample_is_kept_twice(root: None, folder: Path) -> None:
    assert list((folder / "logs").rglob(f"*{series.SUFFIX}")) == []


def test_the_page_has_the_figure(root: None, folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "Time since the first delivery (s)" in page
    assert "no link of this network tells its queue" in page


def test_series_are_printed_as_csv(root: None, folder: Path) -> None:
    listed = told("series", dpctl("series", folder, "--format", "json"))
    assert {row["stack"]: row["rows"] > 0 for row in listed} == {
        "dp": True,
        "tcp": True,
        "udp": False,
    }
    run = next(row["run"] for row in listed if row["stack"] == "dp")
    printed = pd.read_csv(StringIO(dpctl("series", folder, run)))
    stored = pd.read_parquet(folder / "series" / f"{run}.parquet")
    assert list(printed.columns) == list(stored.columns)
    assert printed["delivered_bytes"].tolist() == stored["delivered_bytes"].tolist()


# --- without a run -----------------------------------------------------------------------------


def request(*names: series.Name) -> Request:
    return Request(names, 10_000_000, 16)


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("rxe", "the kernel tells nothing of the QPs of rxe"),
        ("siw", "the kernel tells nothing of the QPs of siw"),
        ("dp", "nothing was sampled: no flow of the run lasted for an interval"),
    ],
)
def test_devices_that_tell_nothing(tmp_path: Path, device: str, reason: str) -> None:
    frame, about, metrics = collecting.gather(request("cwnd", "queue"), None, device, tmp_path)
    assert frame.empty
    assert metrics == []
    assert about["absent"] == {"cwnd": reason, "queue": "no link of this network tells its queue"}


def test_a_simulation_gives_its_own_table(tmp_path: Path) -> None:
    def flow(qp: int, columns: Sequence[float]) -> pd.DataFrame:
        times = range(1000, 1000 + len(columns))
        return series.table(host="host0", qp=qp, time_ns=times, delivered_bytes=columns)

    link = series.table(link="leaf0-spine1", time_ns=[1000], queue_bytes=[7.0])
    table = series.join([flow(1, [0, 4]), flow(2, [0, 4]), link])
    wanted = request("delivered", "queue", "rtt")
    frame, about, metrics = collecting.gather(wanted, table, "dp", tmp_path)
    assert frame["time_ns"].min() == 1000
    assert about["absent"] == {"rtt": "no flow of the run has it"}
    found = {metric.name: metric.value for metric in metrics}
    assert found == {"fairness": 1.0, "queue_mean": 7.0, "queue_p99": 7.0}


@pytest.mark.parametrize(
    ("samples", "noted"),
    [
        (0, ""),
        (1, "1 of each flow and link at most: metrics that follow from series are rough"),
        (9, "9 of each flow and link at most: metrics that follow from series are rough"),
        (10, ""),
    ],
)
def test_a_run_of_few_samples_says_so(samples: int, noted: str) -> None:
    times = range(samples)
    flows = [series.table(host="host0", qp=qp, time_ns=times) for qp in (1, 2)]
    link = series.table(link="left>right", time_ns=times)
    assert collecting.few_samples(series.join([*flows, link])) == noted


EMULATED = """\
version: 1
name: queue-over-time
path: {rate: 200mbit, delay: 500us, queue: 128KiB, ecn: 32KiB}
transport: {device: kernel}
workload: {kind: iperf3, duration: 1s, congestion: cubic, streams: 4}
sweep: {repetitions: 1}
collect: {series: [rtt, delivered, queue, marks], interval: 5ms}
"""


def test_the_queue_of_an_emulated_link_is_sampled(root: None, tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(EMULATED)
    dpctl("run", tmp_path / "experiment.yaml", "--out", tmp_path / "out")
    (file,) = (tmp_path / "out" / "runs").glob("*.json")
    record = json.loads(file.read_text())
    assert record["series"]["absent"] == {}
    frame = table_of(tmp_path / "out", record)
    links = frame[frame["link"].notna()]
    assert set(links["link"]) == {"forward", "backward"}
    assert links["host"].isna().all()
    forward = links[links["link"] == "forward"]["queue_bytes"]
    # CUBIC fills the queue of the link that it sends through, and only that one. It takes more
    # than one connection: Linux opens the receive window beyond its first 64 KiB (half of
    # tcp_rmem's default) only when it judges the program to read fast enough.
    assert 64 * 1024 < forward.max() <= 128 * 1024
    assert links[links["link"] == "backward"]["queue_bytes"].max() < 16 * 1024
    # What waits there takes its time, 5 ms for 128 KiB at 200 Mbit/s; a busy machine adds its own.
    found = metrics_of(record)
    assert 1e6 < found["queueing_delay_mean"] < found["queueing_delay_p99"]
    assert list((tmp_path / "out" / "logs").rglob(f"*{series.SUFFIX}")) == []
