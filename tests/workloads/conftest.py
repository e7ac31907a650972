# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One run of a workload in a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.cc.spec import HostCc
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext

RunWorkload = Callable[..., Outcome]


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology()) as built:
        yield built


@pytest.fixture
def run(root: None, network: NetnsNetwork, tmp_path: FilePath) -> RunWorkload:
    """run(kind, device=, path=, timeout_s=, transport=, cc=, **parameters) on a fresh path."""

    def run(
        kind: str,
        *,
        device: str = "kernel",
        path: Path | None = None,
        timeout_s: float = 30,
        device_env: list[Mapping[str, str]] | None = None,
        transport: Mapping[str, Any] | None = None,
        cc: HostCc | None = None,
        network: NetnsNetwork = network,
        **parameters: Any,
    ) -> Outcome:
        workload = REGISTRY[kind]
        path = path or Path()
        network.set_path(path, seed=1)
        context = RunContext(
            network=network,
            transport=Transport.model_validate({"device": device, **(transport or {})}),
            cc=cc or HostCc(),
            device_env=device_env or [{} for _ in network.hosts],
            logs=tmp_path,
            seed=1,
            timeout_s=timeout_s,
            path=path,
            folder=tmp_path,
        )
        return workload(workload.Params.model_validate(parameters)).run(context)

    return run
