# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""libdpcoll on the kernel's soft-RoCE and soft-iWARP, between two guests, and training over it."""

from __future__ import annotations

from pathlib import Path as FilePath

import pytest

from datapath.errors import CapabilityError, LocalError
from datapath.extras import ensure_torch
from datapath.lanes.vm import VmNetwork
from tests.guests.test_traffic import run
from tests.workloads.test_perftest import values

SMALL = {"size": "64KiB", "transfer": "16KiB", "iterations": 3, "silence": "60s"}


@pytest.mark.parametrize("device", ["rxe"])
def test_an_allreduce_of_four_ranks(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    """Two on each guest, which share its memory; each rank compares the first result."""
    section = {**SMALL, "algorithm": "two_level", "params": {"per_node": 2}, "ranks_per_host": 2}
    found = values(run(network, tmp_path, device, "collective", section))
    assert found["busbw"] == pytest.approx(1.5 * found["algbw"])


@pytest.mark.parametrize("device", ["rxe"])
def test_guests_share_no_memory(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    with pytest.raises(LocalError, match="only namespaces of one machine"):
        run(network, tmp_path, device, "collective", {**SMALL, "node": 2})


@pytest.mark.parametrize("device", ["rxe", "siw"])
def test_rdma_cm_connects(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    """As iWARP always has it, where a SEND follows each WRITE."""
    section = {**SMALL, "algorithm": "ring", "ranks_per_host": 2, "rdma_cm": device == "rxe"}
    run(network, tmp_path, device, "collective", {**section, "node": 1})


@pytest.mark.minutes  # PyTorch without KVM takes five
@pytest.mark.parametrize("device", ["siw"])
def test_training_between_guests(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    """The ranks have the same parameters at the end, or the run fails."""
    try:
        ensure_torch(print)
    except CapabilityError as error:
        pytest.skip(f"PyTorch cannot be had here: {error}")
    section = {"model": "convnet", "steps": 1, "warm_up": 3, "batch": 4, "silence": "60s"}
    found = values(run(network, tmp_path, device, "training", section, timeout_s=500))
    assert found["step_sent"] > 4 * 0.2e6
