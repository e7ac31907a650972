# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Workload training: two ranks in namespaces, over our device and by gloo."""

from __future__ import annotations

import math
from typing import Any

import pytest

from datapath.errors import CapabilityError, LocalError, RunFailed
from datapath.extras import ensure_torch
from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.verbs.launch import device_environment
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome
from datapath.workloads.kinds.training import Training, TrainingParams
from tests.workloads.conftest import RunWorkload

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def _torch() -> None:
    try:
        ensure_torch(print)
    except CapabilityError as error:
        pytest.skip(f"PyTorch cannot be had here: {error}")


def value(outcome: Outcome, name: str) -> float:
    return next(metric.value for metric in outcome.metrics if metric.name == name)


@pytest.mark.usefixtures("_torch")
def test_both_backends_train_alike(run: RunWorkload, network: NetnsNetwork) -> None:
    """Two ranks sum two numbers, so that not even the order of summands differs."""
    devices = [device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts]
    common = {"model": "convnet", "steps": 4, "warm_up": 3, "timeout_s": 400}
    ours = run("training", device="dp", device_env=devices, transport={"port": "udp"}, **common)
    theirs = run("training", **common)
    assert ours.notes == theirs.notes  # with the digest of all parameters
    assert ours.samples["step_loss"] == theirs.samples["step_loss"]
    gradients = 4 * int(ours.notes["parameters"])
    for outcome in (ours, theirs):
        assert gradients < value(outcome, "step_sent") < 1.5 * gradients
        assert value(outcome, "gradient_share") == 1
    halves = run("training", **common, hook="fp16")
    assert value(halves, "gradient_share") == 0.5
    assert gradients / 2 < value(halves, "step_sent") < gradients


def report(**changes: Any) -> dict[str, Any]:
    return {
        "parameters": 10,
        "step_ns": [1, 2, 3],
        "losses": [3.0, 2.0, 1.0],
        "accuracy": 0.5,
        "digest": "ab",
        "sent_bytes": 300,
        "gradient_bytes": 120,
        "hook_bytes": 60,
        "cpu_s": 1.5,
        **changes,
    }


@pytest.mark.parametrize(
    ("losses", "told"),
    [([4.0, 1.0], False), ([4.0, 5.0], False), ([4.0, 90.0], True), ([4.0, math.nan], True)],
)
def test_a_training_that_diverged_is_told_of(losses: list[float], told: bool) -> None:
    done = Training(TrainingParams()).outcome([report(losses=losses), report(losses=losses)])
    assert ("lower workload.learning_rate" in done.notes.get("diverged", "")) == told


def test_the_slowest_rank_counts() -> None:
    workload = Training(REGISTRY["training"].Params.model_validate({}))
    outcome = workload.outcome([report(), report(step_ns=[4, 1, 9], losses=[1.0, 0.0, 0.0])])
    assert outcome.samples == {"step_ns": [4, 2, 9], "step_loss": [2.0, 1.0, 0.5]}
    assert value(outcome, "step_time") == 4
    assert value(outcome, "step_sent") == 100
    assert value(outcome, "gradient_share") == 0.5
    assert value(outcome, "step_cpu") == 1
    with pytest.raises(RunFailed, match="same parameters"):
        workload.outcome([report(), report(digest="ac")])


def test_hosts_without_pytorch_are_refused(
    run: RunWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NetnsHost, "shared_files", False)
    with pytest.raises(LocalError, match="hosts that see this machine's files"):
        run("training", device="siw")
