# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is driven over the network: REGISTRY has every workload by its name."""

from __future__ import annotations

from collections.abc import Mapping

from datapath.workloads.base import Workload
from datapath.workloads.iperf3 import Iperf3
from datapath.workloads.perftest import Perftest
from datapath.workloads.sockperf import Sockperf
from datapath.workloads.traffic.workloads import Incast, Permutation, PoissonFlows, Stream
from datapath.workloads.ucx import Ucx

REGISTRY: Mapping[str, type[Workload]] = {
    workload.name: workload
    for workload in (Perftest, Iperf3, Sockperf, Ucx, Stream, PoissonFlows, Incast, Permutation)
}

__all__ = ["REGISTRY"]
