# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each version of a program printed on our device is read (recorded/record.py)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from datapath.errors import RunFailed
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome
from datapath.workloads.kinds.iperf3 import Iperf3, read_report
from datapath.workloads.kinds.perftest import Perftest
from datapath.workloads.kinds.ucx import Ucx
from tests.workloads.recorded.record import CASES, FOLDER

DEBIAN = {
    "perftest": {"4.5", "25.01.0"},
    "iperf3": {"3.12", "3.18"},
    "ucx": {"1.13.1", "1.18.1"},
}
"""Versions of Debian 12 and 13."""


def outputs(kind: str) -> list[object]:
    return [
        pytest.param(path, id=f"{path.parent.name}-{path.stem}")
        for path in sorted(FOLDER.glob(f"{kind}-*/*.out"))
    ]


def values(outcome: Outcome) -> dict[str, float]:
    return {metric.name: metric.value for metric in outcome.metrics}


def last_row(path: Path) -> list[float]:
    """The numbers of the last line that has only numbers."""
    rows = re.findall(r"(?m)^[ \t]*(\d[\d. \t]*)$", path.read_text())
    return [float(number) for number in rows[-1].split()]


@pytest.mark.parametrize("kind", CASES)
def test_every_case_is_recorded_of_each_version(kind: str) -> None:
    found = {folder.name.removeprefix(f"{kind}-") for folder in FOLDER.glob(f"{kind}-*")}
    assert found >= DEBIAN[kind]
    for version in found:
        cases = {path.stem for path in (FOLDER / f"{kind}-{version}").glob("*.out")}
        assert cases == set(CASES[kind]), version


@pytest.mark.parametrize("path", outputs("perftest"))
def test_perftest(path: Path) -> None:
    params = Perftest.Params.model_validate(CASES["perftest"][path.stem])
    workload = Perftest(params)
    if path.stem.endswith("-all"):
        with pytest.raises(RunFailed, match="printed 23 results"):
            workload.outcome([path.read_text()])
        return
    outcome = workload.outcome([path.read_text()])
    row = last_row(path)
    if workload.params.is_bandwidth:
        size, _, _, average, million_rate = row
        unit = 1e9 if path.stem.endswith("-gbits") else 8 * 2**20
        # Both are rounded; a wrong unit or column would be far off.
        assert values(outcome)["goodput"] == pytest.approx(average * unit, abs=0.0051 * unit)
        assert values(outcome)["message_rate"] == pytest.approx(million_rate * 1e6, rel=0.01)
        assert values(outcome)["goodput"] == pytest.approx(million_rate * 8e6 * size, rel=0.05)
    else:
        samples = outcome.samples["latency_ns"]
        assert len(samples) == 19
        # perftest's own minimum, and its median, which leaves out the largest; of two decimals.
        assert values(outcome)["latency_min"] == pytest.approx(row[2] * 1e3, abs=5.1)
        assert sorted(samples)[8] - 5.1 <= row[4] * 1e3 <= sorted(samples)[10] + 5.1


@pytest.mark.parametrize("path", outputs("iperf3"))
def test_iperf3(path: Path) -> None:
    params = Iperf3.Params.model_validate(CASES["iperf3"][path.stem])
    text = path.read_text()
    found = values(Iperf3(params).outcome([read_report(text, "client")]))
    streams = json.loads(text)["end"]["streams"]
    if path.stem == "udp":
        assert found["goodput"] == pytest.approx(10e6, rel=0.05)
        assert found["lost_share"] == 0
    else:
        each = [stream["receiver"]["bits_per_second"] for stream in streams]
        assert found["goodput"] == pytest.approx(sum(each), rel=0.01)


@pytest.mark.parametrize("path", outputs("ucx"))
def test_ucx(path: Path) -> None:
    params = Ucx.Params.model_validate(CASES["ucx"][path.stem])
    found = values(Ucx(params).outcome(path.read_text()))
    row = path.read_text().splitlines()[-1].split(",")
    if path.stem.endswith("_lat"):
        assert found["latency_p50"] == float(row[1]) * 1e3
    else:
        assert found["goodput"] == pytest.approx(float(row[7]) * 64 * 8, rel=0.01)


def damaged(text: str) -> list[str]:
    """The output cut off anywhere, and without each of its lines."""
    lines = text.splitlines(keepends=True)
    step = max(1, len(text) // 400)
    cut = [text[:end] for end in range(0, len(text), step)]
    return cut + ["".join(lines[:n] + lines[n + 1 :]) for n in range(len(lines))]


def read(kind: str, name: str, text: str) -> Outcome:
    params = REGISTRY[kind].Params.model_validate(CASES[kind][name])
    if kind == "iperf3":
        return Iperf3(params).outcome([read_report(text, "client")])
    return Ucx(params).outcome(text) if kind == "ucx" else Perftest(params).outcome([text])


@pytest.mark.parametrize("path", [*outputs("perftest"), *outputs("iperf3"), *outputs("ucx")])
def test_damaged_output_is_a_failed_run(path: Path) -> None:
    """And nothing worse: a version that prints less must not end the whole experiment."""
    kind = path.parent.name.partition("-")[0]
    failed = 0
    for text in damaged(path.read_text()):
        try:
            read(kind, path.stem, text)
        except RunFailed:
            failed += 1
    assert failed
