# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What workloads of torch.distributed share, where each host has one rank."""

from __future__ import annotations

from pydantic import Field, field_validator

from datapath.workloads.base import RunContext
from datapath.workloads.programs import WorkloadParams

_PORT = 29500


class RankParams(WorkloadParams):
    """The parameters of them all."""

    extra: list[str] = Field(
        default_factory=list, description="Stays empty: the ranks take no further arguments."
    )

    @field_validator("extra")
    @classmethod
    def _empty(cls, value: list[str]) -> list[str]:
        if value:
            raise ValueError("the ranks take no further arguments: take extra away")
        return value


def rank_environment(ctx: RunContext, rank: int) -> dict[str, str]:
    """Variables of the rank on host `rank`: they meet at the first host's management address."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(ctx.network.hosts)),
        "MASTER_ADDR": ctx.network.hosts[0].endpoint.mgmt_ipv4,
        "MASTER_PORT": str(_PORT),
        "OMP_NUM_THREADS": "1",
    }
