# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What torch.distributed reads of a rank, where each host has one."""

from __future__ import annotations

from datapath.workloads.base import RunContext

_PORT = 29500


def rank_environment(ctx: RunContext, rank: int) -> dict[str, str]:
    """Variables of the rank on host `rank`: they meet at the first host's management address."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(ctx.network.hosts)),
        "MASTER_ADDR": ctx.network.hosts[0].endpoint.mgmt_ipv4,
        "MASTER_PORT": str(_PORT),
        "OMP_NUM_THREADS": "1",
    }
