# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The flows of a file: a trace, or a table that another program has made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pydantic
from pydantic import Field

from datapath.workloads.base import RunContext
from datapath.workloads.traffic.base import Traffic, TrafficParams

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows


class TableParams(TrafficParams):
    """The flows of a file."""

    file: str = Field(
        min_length=1,
        description="CSV, or Parquet (*.parquet), relative to the experiment file: a row for each "
        "flow, with src and dst (numbers or names of hosts), bytes (or stop_ns), and if wanted "
        "start_ns, message_bytes, depth, qp, tag, dscp and after.",
    )

    def data(self) -> Mapping[tuple[str | int, ...], str]:
        return {("file",): self.file}

    def mistakes(
        self, folder: Path, hosts: Sequence[str]
    ) -> Mapping[tuple[str | int, ...], Sequence[str]]:
        from datapath.workloads.traffic import rows_file

        return {("file",): rows_file.mistakes(folder / self.file, hosts)}


class Table(Traffic):
    """Metrics: goodput, latency_*, fairness, utilisation, fct_* and slowdown_*."""

    name: ClassVar[str] = "table"
    Params: ClassVar[type[pydantic.BaseModel]] = TableParams
    samples: ClassVar[tuple[str, ...]] = ("latency", "fct")

    def measured(self) -> dict[str, bool]:
        return {"fair": True, "completion": True}

    def table(self, ctx: RunContext) -> Flows:
        from datapath.workloads.traffic import rows_file

        assert isinstance(self.common, TableParams)
        names = [host.name for host in ctx.network.hosts]
        return rows_file.read(ctx.folder / self.common.file, names)
