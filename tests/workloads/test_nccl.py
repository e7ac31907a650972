# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Workload nccl: ranks that share a GPU, and what is told where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath import extras
from datapath.errors import CapabilityError
from datapath.experiment import preflight
from datapath.experiment.load import load
from datapath.lanes.netns import NetnsNetwork
from datapath.native import paths
from datapath.verbs.launch import device_environment
from tests.workloads.conftest import RunWorkload

pytestmark = pytest.mark.timeout(600)

EXPERIMENT = paths.ROOT / "experiments" / "nccl.yaml"


def lack() -> str:
    """What is missing here; "": nothing."""
    try:
        extras.require_gpu()
    except CapabilityError as error:
        return str(error)
    return ""


@pytest.mark.skipif(lack() != "", reason=lack())
@pytest.mark.parametrize("net", ["plugin", "ib", "sockets"])
@pytest.mark.parametrize(
    "collective", ["allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall"]
)
def test_ranks_compare_what_they_get(
    run: RunWorkload, network: NetnsNetwork, net: str, collective: str
) -> None:
    more = {}
    if net != "sockets":
        ports = [f"udp:{host.endpoint.ipv4}" for host in network.hosts]
        more = {
            "device": "dp",
            "device_env": [device_environment("dp0", port, base={}) for port in ports],
            "net": net,
        }
    outcome = run("nccl", size="1MiB", iterations=3, timeout_s=120, collective=collective, **more)
    assert len(outcome.samples["latency_ns"]) == 3
    for direction in ("forward", "backward"):
        assert network.path_counters().passed[direction] > 0


def test_a_missing_gpu_is_told_before_the_run(root: None, tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()  # the driver is there
    with pytest.raises(CapabilityError, match="no GPU of NVIDIA is here"):
        extras.require_gpu(tmp_path)
    if lack():
        with pytest.raises(preflight.Lacking, match=lack()):
            preflight.check(load(EXPERIMENT))


@pytest.mark.parametrize("torch", [True, False])
def test_pytorch_has_to_be_there_too(
    tmp_path: Path, torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other case, with PyTorch and a GPU or with neither, cannot be had at will.
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(extras, "has_torch", lambda: torch)
    if torch:
        extras.require_gpu(tmp_path)
    else:
        with pytest.raises(CapabilityError, match="PyTorch is not installed") as caught:
            extras.require_gpu(tmp_path)
        assert "CUDA" in (caught.value.hint or "")
