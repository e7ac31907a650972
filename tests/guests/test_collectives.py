# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""libdpcoll on the kernel's soft-RoCE, between two guests."""

from __future__ import annotations

from pathlib import Path as FilePath

import pytest

from datapath.errors import LocalError, RunFailed
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


@pytest.mark.parametrize("device", ["siw"])
def test_iwarp_is_refused(network: VmNetwork, tmp_path: FilePath, device: str) -> None:
    with pytest.raises((LocalError, RunFailed), match="siw"):
        run(network, tmp_path, device, "collective", SMALL)
