# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A collective of torch.distributed by gloo over TCP, a rank on each host: a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from datapath.lanes.base import Host
from datapath.workloads.base import RunContext
from datapath.workloads.torch_collective import TorchCollective


class Gloo(TorchCollective):
    """Metrics: algbw, busbw, and latency_* of one collective by the slowest rank."""

    name: ClassVar[str] = "gloo"
    backend: ClassVar[str] = "gloo"
    devices: ClassVar[tuple[str, ...]] = ("kernel",)

    def environment(self, ctx: RunContext, host: Host) -> Mapping[str, str]:
        return {"GLOO_SOCKET_IFNAME": host.endpoint.netdev}
