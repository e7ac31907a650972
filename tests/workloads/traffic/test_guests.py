# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generator on the kernel's RDMA devices: rxe, and siw with its connections by RDMA-CM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.errors import RunFailed
from datapath.experiment.spec import Cc
from datapath.lanes import kernels
from datapath.lanes.spec import Path, Topology
from datapath.lanes.vm import VmNetwork
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext
from tests.workloads.test_perftest import values

pytestmark = [
    pytest.mark.usefixtures("root"),
    pytest.mark.guests,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VmNetwork]:
    kernels.ensure("6.12", lambda _: None)
    topology = Topology(lane="vm", kernel="6.12", mtu=1500)
    with VmNetwork(topology, "bpf", tmp_path_factory.mktemp("consoles")) as network:
        yield network


OPERATIONS = {"rxe": "send", "siw": "read", "kernel": "write"}
"""Those whose data can be compared on each device."""


@pytest.mark.parametrize("device", OPERATIONS)
@pytest.mark.parametrize(
    ("kind", "section"),
    [
        ("stream", {"duration": "1s", "size": "16KiB", "depth": 4}),
        ("incast", {"rounds": 5, "interval": "50ms", "size": "20kB"}),
    ],
)
def test_traffic_between_guests(
    guests: VmNetwork, tmp_path: FilePath, device: str, kind: str, section: dict[str, Any]
) -> None:
    section = {**section, "operation": OPERATIONS[device], "verify": True}
    found = values(run(guests, tmp_path, device, kind, section))
    assert found["goodput"] > 0
    assert found["unfinished_share"] == 0
    assert found["latency_min"] > 0


def test_writes_over_iwarp(guests: VmNetwork, tmp_path: FilePath) -> None:
    section = {"duration": "1s", "size": "16KiB", "depth": 4}
    assert values(run(guests, tmp_path, "siw", "stream", section))["goodput"] > 0


@pytest.mark.parametrize(
    ("section", "what"),
    [({"operation": "send"}, "overrun the receiver"), ({"verify": True}, "--verify is for READ")],
)
def test_what_iwarp_cannot_do_is_refused(
    guests: VmNetwork, tmp_path: FilePath, section: dict[str, Any], what: str
) -> None:
    with pytest.raises(RunFailed, match=what):
        run(guests, tmp_path, "siw", "stream", section)


def run(
    guests: VmNetwork, logs: FilePath, device: str, kind: str, section: dict[str, Any]
) -> Outcome:
    """One run of a workload on a device of both guests."""
    guests.prepare(device)
    guests.set_path(Path(), seed=1)
    context = RunContext(
        network=guests,
        transport=Transport.model_validate({"device": device}),
        cc=Cc(),
        device_env=[{} for _ in guests.hosts],
        logs=logs,
        seed=1,
        timeout_s=60,
        path=Path(),
    )
    workload = REGISTRY[kind]
    outcome: Outcome = workload(workload.Params.model_validate(section)).run(context)
    return outcome
