# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""qperf over kernel sockets and our device, run for real and briefly."""

from __future__ import annotations

import pydantic
import pytest

from datapath.errors import LocalError, RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path
from datapath.verbs.launch import device_environment
from datapath.workloads import REGISTRY
from tests.workloads.conftest import RunWorkload
from tests.workloads.test_sockets import values


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_latency_is_a_mean(run: RunWorkload, protocol: str) -> None:
    outcome = run("qperf", test=f"{protocol}_lat", duration="1s")
    assert {m.name: m.unit for m in outcome.metrics} == {"latency_mean": "ns"}
    assert values(outcome)["latency_mean"] > 100


def test_goodput_of_tcp(run: RunWorkload) -> None:
    outcome = run("qperf", test="tcp_bw", size="64KiB", duration="1s")
    assert {m.name: m.unit for m in outcome.metrics} == {"goodput": "bit/s"}
    assert values(outcome)["goodput"] > 1e8


def test_udp_tells_what_was_lost(run: RunWorkload) -> None:
    path = Path.model_validate({"forward": {"loss": "50%"}})
    outcome = run("qperf", test="udp_bw", size="1000B", duration="1s", path=path)
    assert 0.3 < values(outcome)["lost_share"] < 1


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize(
    ("test", "metric"),
    [
        ("rc_lat", "latency_mean"),
        ("rc_bw", "goodput"),
        ("rc_rdma_write_bw", "goodput"),
        ("rc_rdma_read_lat", "latency_mean"),
    ],
)
def test_our_device(
    run: RunWorkload, network: NetnsNetwork, port: str, test: str, metric: str
) -> None:
    ends = [h.endpoint.netdev if port == "afxdp" else h.endpoint.ipv4 for h in network.hosts]
    outcome = run(
        "qperf",
        device="dp",
        device_env=[device_environment("dp0", f"{port}:{end}") for end in ends],
        test=test,
        size="4KiB",
        duration="1s",
    )
    assert [m.name for m in outcome.metrics] == [metric]
    passed = network.path_counters().passed
    assert min(passed["forward"], passed["backward"]) > 0


def test_tests_need_their_device(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="rc_lat does not run on transport device kernel"):
        run("qperf", test="rc_lat")
    with pytest.raises(LocalError, match="tcp_lat does not run on transport device dp"):
        run("qperf", device="dp", test="tcp_lat")


def test_output_without_a_result_is_refused() -> None:
    workload = REGISTRY["qperf"]
    qperf = workload(workload.Params.model_validate({"test": "tcp_bw"}))
    with pytest.raises(RunFailed, match="no result"):
        qperf.outcome("tcp_bw:\n")  # type: ignore[attr-defined]


@pytest.mark.parametrize("section", [{"duration": "1500ms"}, {"test": "udp_lat", "size": "64KiB"}])
def test_parameters_that_qperf_cannot_have(section: dict[str, str]) -> None:
    with pytest.raises(pydantic.ValidationError):
        REGISTRY["qperf"].Params.model_validate(section)
