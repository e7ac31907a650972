# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Workload gloo: two ranks in namespaces, over TCP."""

from __future__ import annotations

import pytest

from datapath.errors import CapabilityError, LocalError
from datapath.extras import ensure_torch
from datapath.lanes.netns import NetnsNetwork
from tests.workloads.conftest import RunWorkload

pytestmark = pytest.mark.timeout(900)


def test_ranks_compare_what_they_get(run: RunWorkload, network: NetnsNetwork) -> None:
    """On the network under test: its bytes are counted there."""
    try:
        ensure_torch(print)
    except CapabilityError as error:
        pytest.skip(f"PyTorch cannot be had here: {error}")
    outcome = run("gloo", size="256KiB", iterations=3, timeout_s=400)
    found = {metric.name: metric.value for metric in outcome.metrics}
    assert len(outcome.samples["latency_ns"]) == 3
    assert found["busbw"] == found["algbw"] > 0  # two ranks
    for direction in ("forward", "backward"):
        assert network.path_counters().passed[direction] * 9000 > 5 * 2**18


def test_only_over_tcp(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="does not run on transport device dp"):
        run("gloo", device="dp")
