# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generator on the kernel's RDMA devices (siw connects by RDMA-CM), and sockperf."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.cc.spec import HostCc
from datapath.errors import RunFailed
from datapath.lanes.spec import Path
from datapath.lanes.vm import VmNetwork
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext
from tests.workloads.test_perftest import values

PATH = Path(backend="none")

OPERATIONS = {"rxe": "send", "siw": "read", "kernel": "write"}
"""Those whose data can be compared on each device."""


@pytest.mark.parametrize("device", OPERATIONS)
@pytest.mark.parametrize(
    ("kind", "section"),
    [
        ("stream", {"duration": "1s", "size": "16KiB", "depth": 4}),
        ("incast", {"rounds": 5, "interval": "50ms", "size": "20kB"}),
    ],
)
def test_traffic_between_guests(
    network: VmNetwork, tmp_path: FilePath, device: str, kind: str, section: dict[str, Any]
) -> None:
    section = {**section, "operation": OPERATIONS[device], "verify": True}
    found = values(run(network, tmp_path, device, kind, section))
    assert found["goodput"] > 0
    assert found["unfinished_share"] == 0
    assert found["latency_min"] > 0


@pytest.mark.parametrize("device", ["kernel"])
def test_samples_of_sockperf_are_fetched(
    network: VmNetwork, tmp_path: FilePath, device: str
) -> None:
    outcome = run(network, tmp_path, device, "sockperf", {"duration": "1s"})
    samples = outcome.samples["latency_ns"]
    assert values(outcome)["latency_min"] == min(samples) > 0
    assert not (tmp_path / "sockperf.csv").exists(), "the samples go to the results"


@pytest.mark.parametrize("device", ["siw"])
def test_writes_over_iwarp(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    section = {"duration": "1s", "size": "16KiB", "depth": 4}
    assert values(run(network, tmp_path, device, "stream", section))["goodput"] > 0


@pytest.mark.parametrize("device", ["siw"])
@pytest.mark.parametrize(
    ("section", "what"),
    [({"operation": "send"}, "overrun the receiver"), ({"verify": True}, "--verify is for READ")],
)
def test_what_iwarp_cannot_do_is_refused(
    network: VmNetwork, tmp_path: FilePath, device: str, section: dict[str, Any], what: str
) -> None:
    with pytest.raises(RunFailed, match=what):
        run(network, tmp_path, device, "stream", section)


def run(
    network: VmNetwork,
    logs: FilePath,
    device: str,
    kind: str,
    section: dict[str, Any],
    path: Path = PATH,
    timeout_s: float = 60,
) -> Outcome:
    """One run of a workload on a device of both guests."""
    network.prepare(device)
    network.set_path(path, seed=1)
    context = RunContext(
        network=network,
        transport=Transport.model_validate({"device": device}),
        cc=HostCc(),
        device_env=[{} for _ in network.hosts],
        logs=logs,
        seed=1,
        timeout_s=timeout_s,
        path=path,
    )
    workload = REGISTRY[kind]
    outcome: Outcome = workload(workload.Params.model_validate(section)).run(context)
    return outcome
