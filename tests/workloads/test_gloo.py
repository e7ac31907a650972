# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Workload gloo: two ranks in namespaces, over TCP."""

from __future__ import annotations

import pytest

from datapath.errors import CapabilityError, LocalError
from datapath.extras import ensure_torch
from datapath.lanes.netns import NetnsNetwork
from tests.workloads.conftest import RunWorkload

pytestmark = pytest.mark.timeout(900)


# The share of the data that has to pass from each of two ranks to the other one.
SENT = {
    "allreduce": (1, 1),
    "broadcast": (1, 0),
    "allgather": (0.5, 0.5),
    "reduce_scatter": (0.5, 0.5),
    "alltoall": (0.5, 0.5),
}


@pytest.mark.parametrize("collective", SENT)
def test_ranks_compare_what_they_get(
    run: RunWorkload, network: NetnsNetwork, collective: str
) -> None:
    """On the network under test: its bytes are counted there."""
    try:
        ensure_torch(print)
    except CapabilityError as error:
        pytest.skip(f"PyTorch cannot be had here: {error}")
    outcome = run("gloo", collective=collective, size="256KiB", iterations=3, timeout_s=400)
    found = {metric.name: metric.value for metric in outcome.metrics}
    sent = SENT[collective]
    assert len(outcome.samples["latency_ns"]) == 3
    assert found["busbw"] == found["algbw"] * sent[0] > 0
    for direction, share in zip(("forward", "backward"), sent, strict=True):
        assert network.path_counters().passed[direction] * 9000 > 5 * 2**18 * share


def test_only_over_tcp(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="does not run on transport device dp"):
        run("gloo", device="dp")
