# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""iperf3, sockperf and ucx_perftest over kernel sockets, run for real and briefly."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest

from datapath.errors import CapabilityError, LocalError, RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.launch import device_environment
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome
from tests.workloads.conftest import RunWorkload


def values(outcome: Outcome) -> dict[str, float]:
    return {metric.name: metric.value for metric in outcome.metrics}


def test_iperf3_tcp(run: RunWorkload, network: NetnsNetwork, tmp_path: FilePath) -> None:
    outcome = run("iperf3", duration="1s")
    assert {m.name: m.unit for m in outcome.metrics} == {"goodput": "bit/s", "retransmits": "1"}
    # The bytes it reports are those that crossed the path.
    passed = network.path_counters().passed["forward"]
    assert values(outcome)["goodput"] / 8 < passed * 9000
    assert values(outcome)["goodput"] > 1e8
    assert outcome.notes["congestion"]
    assert "host0: iperf3 --client 198.18.0.2" in (tmp_path / "iperf3-client-0.cmd").read_text()


def test_iperf3_counts_retransmissions_of_a_lossy_path(run: RunWorkload) -> None:
    outcome = run("iperf3", duration="1s", path=Path(loss="1%"))
    assert values(outcome)["retransmits"] > 0


def test_iperf3_udp_at_a_rate_with_loss(run: RunWorkload) -> None:
    path = Path.model_validate({"forward": {"loss": "10%"}})
    outcome = run(
        "iperf3", protocol="udp", rate="100mbit", length="1000B", duration="1s", path=path
    )
    assert 0.05 < values(outcome)["lost_share"] < 0.5
    assert 1e7 < values(outcome)["goodput"] < 1e8


def test_losses_of_the_omitted_time_do_not_count(run: RunWorkload) -> None:
    path = Path.model_validate({"forward": {"loss": "20%"}})
    few = {"protocol": "udp", "rate": "10mbit", "length": "500B", "path": path}
    outcome = run("iperf3", duration="1s", omit="2s", **few)
    assert 0.1 < values(outcome)["lost_share"] < 0.3, "with those of two more seconds it is 0.6"


def test_iperf3_with_streams_in_reverse(run: RunWorkload, network: NetnsNetwork) -> None:
    outcome = run("iperf3", duration="1s", streams=3, reverse=True)
    assert values(outcome)["goodput"] > 1e8
    assert "rtt_us" not in outcome.notes
    counters = network.path_counters()
    assert counters.passed["backward"] > 0


def test_iperf3_drives_every_pair_of_a_dumbbell(run: RunWorkload) -> None:
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4)) as dumbbell:
        outcome = run("iperf3", duration="1s", network=dumbbell)
    assert 0.5 <= values(outcome)["fairness"] <= 1
    assert outcome.notes["goodput_each"].count("Gbit/s") == 2


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("polling", [True, False])
def test_sockperf_gives_every_sample(run: RunWorkload, protocol: str, polling: bool) -> None:
    outcome = run("sockperf", protocol=protocol, polling=polling, duration="1s")
    samples = outcome.samples["latency_ns"]
    assert len(samples) > 10
    found = values(outcome)
    assert found["latency_min"] == min(samples) > 0
    assert found["latency_min"] <= found["latency_p50"] <= found["latency_p99"]
    assert found["latency_p99"] <= found["latency_p999"] <= max(samples)
    assert all(metric.unit == "ns" for metric in outcome.metrics)


def test_sockperf_without_an_answer_fails_with_advice(run: RunWorkload) -> None:
    with pytest.raises(RunFailed, match="no valid observation") as caught:
        run("sockperf", path=Path(loss="100%"))
    assert "tcp" in caught.value.hint


def test_more_arguments_of_iperf3_are_for_the_client(run: RunWorkload, tmp_path: FilePath) -> None:
    """Its server refuses those that only clients have."""
    outcome = run("iperf3", duration="1s", extra=["--no-delay"])
    assert values(outcome)["goodput"] > 0
    assert "--no-delay" in (tmp_path / "iperf3-client-0.cmd").read_text()
    assert "--no-delay" not in (tmp_path / "iperf3-server-0.cmd").read_text()


@pytest.mark.parametrize("kind", ["training", "gloo", "nccl"])
def test_arguments_that_no_program_would_get_are_refused(kind: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="take extra away"):
        REGISTRY[kind].Params.model_validate({"extra": ["--verbose"]})


@pytest.mark.parametrize("test", ["tag_lat", "put_lat"])
def test_ucx_latency(run: RunWorkload, test: str) -> None:
    found = values(run("ucx", test=test, iterations=200, warmup=10))
    assert set(found) == {"latency_p50", "latency_mean"}
    assert found["latency_p50"] > 100


@pytest.mark.parametrize("test", ["tag_bw", "put_bw"])
def test_ucx_bandwidth_crosses_the_path(run: RunWorkload, network: NetnsNetwork, test: str) -> None:
    found = values(run("ucx", test=test, size="64KiB", iterations=200, warmup=10))
    assert found["goodput"] == pytest.approx(found["message_rate"] * 65536 * 8, rel=0.05)
    assert network.path_counters().passed["forward"] * 9000 > 200 * 65536


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize("qp_type", ["rc", "ud"])
@pytest.mark.parametrize("loss", ["0", "1%"])
def test_ucx_over_our_device(
    run: RunWorkload, network: NetnsNetwork, port: str, qp_type: str, loss: str
) -> None:
    """UCX repairs what datagrams lose, with time-outs of its own."""
    ends = [h.endpoint.netdev if port == "afxdp" else h.endpoint.ipv4 for h in network.hosts]
    devices = [device_environment("dp0", f"{port}:{end}") for end in ends]
    outcome = run(
        "ucx",
        device="dp",
        device_env=devices,
        path=Path.model_validate({"loss": loss}),
        test="tag_bw",
        qp_type=qp_type,
        size="64KiB",
        iterations=50,
        warmup=10,
    )
    assert outcome.notes["transport"] == f"UCX over {qp_type}_verbs"
    assert network.path_counters().passed["forward"] * 9000 > 50 * 65536


def test_a_time_out_ends_every_program_and_says_so(run: RunWorkload, tmp_path: FilePath) -> None:
    with pytest.raises(RunFailed, match=r"not done after 0\.5 s") as caught:
        run("iperf3", duration="60s", timeout_s=0.5)
    assert str(tmp_path) in caught.value.hint


def test_the_last_error_line_is_told(run: RunWorkload) -> None:
    with pytest.raises(RunFailed, match="congestion control"):
        run("iperf3", duration="1s", congestion="nonsense")


def test_a_refused_option_is_named(run: RunWorkload) -> None:
    with pytest.raises(RunFailed, match="unrecognized option '--nonsense'"):
        run("iperf3", duration="1s", extra=["--nonsense"])


def test_a_program_that_fails_at_once_is_told(run: RunWorkload) -> None:
    with pytest.raises(RunFailed, match="sockperf-server ended with status"):
        run("sockperf", extra=["--no-such-option"])


def test_a_missing_program_names_its_package(
    run: RunWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CapabilityError, match="iperf3 is not installed") as caught:
        run("iperf3")
    assert caught.value.hint == "apt-get install iperf3"


def test_workloads_of_kernel_sockets_refuse_a_verbs_device(run: RunWorkload) -> None:
    for kind in ("iperf3", "sockperf"):
        with pytest.raises(LocalError, match=f"{kind} does not run on transport device dp"):
            run(kind, device="dp")
    with pytest.raises(LocalError, match="perftest does not run on transport device kernel"):
        run("perftest", test="write_bw")


@pytest.mark.parametrize(
    ("kind", "section", "words"),
    [
        ("iperf3", {"duration": "1500ms"}, "whole seconds"),
        ("iperf3", {"protocol": "udp", "congestion": "bbr"}, "congestion is for protocol tcp"),
        ("iperf3", {"rate": "1GB"}, "bit rate"),
        ("sockperf", {"size": 8}, "14"),
        ("ucx", {"test": "get"}, "tag_lat"),
        ("ucx", {"sise": 64}, "sise"),
    ],
)
def test_wrong_parameters_are_refused(kind: str, section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        REGISTRY[kind].Params.model_validate(section)
