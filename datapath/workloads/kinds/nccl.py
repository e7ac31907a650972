# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A collective of torch.distributed by NCCL on a GPU, a rank on each host.

Ranks share the GPUs of this machine.  NCCL refuses two ranks on one GPU of a host, and sends
between hosts through the network; the hosts are namespaces with names of their own, which NCCL
takes from NCCL_HOSTID.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.lanes.base import Host
from datapath.native import paths
from datapath.workloads.base import RunContext
from datapath.workloads.torch_collective import TorchCollective, TorchCollectiveParams

_NO_GIN = "0"
"""NCCL 2.28 and 2.29 crash on verbs devices that are not of Mellanox, unless NCCL_GIN_TYPE
names a kind of GPU-initiated networking, or none."""


class NcclParams(TorchCollectiveParams):
    """One collective on float32 in the memory of a GPU after the other."""

    net: Literal["plugin", "ib"] = Field(
        "plugin",
        description="On a verbs device: our plug-in (dpctl nccl path), or NCCL's own InfiniBand "
        "transport. On transport device kernel NCCL has its sockets.",
    )
    pin: bool = Field(
        False, description="Bind the threads of a rank, of which NCCL has several, to one CPU."
    )
    channels: int = Field(2, ge=1, le=64, description="At most so many of NCCL's channels.")


class Nccl(TorchCollective):
    """Metrics: algbw, busbw, and latency_* of one collective by the slowest rank."""

    name: ClassVar[str] = "nccl"
    backend: ClassVar[str] = "nccl"
    Params: ClassVar[type[pydantic.BaseModel]] = NcclParams
    needs_gpu: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("dp", "kernel")

    def environment(self, ctx: RunContext, host: Host) -> Mapping[str, str]:
        assert isinstance(self.params, NcclParams)
        net = "socket" if ctx.transport.device == "kernel" else self.params.net
        return {
            "NCCL_HOSTID": host.name,
            "NCCL_SOCKET_IFNAME": host.endpoint.netdev,
            "NCCL_MAX_NCHANNELS": str(self.params.channels),
            "NCCL_DEBUG": "WARN",
            **_network(net),
        }


def _network(name: str) -> Mapping[str, str]:
    if name == "plugin":
        return {"NCCL_NET": "dp", "NCCL_NET_PLUGIN": str(paths.nccl_plugin())}
    if name == "ib":
        return {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none", "NCCL_GIN_TYPE": _NO_GIN}
    return {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}
