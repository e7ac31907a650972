# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Open MPI over UCX, on our device and over TCP."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.errors import LocalError, RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.verbs.launch import device_environment
from datapath.workloads import REGISTRY
from datapath.workloads.kinds.mpi import Mpi, MpiParams
from tests.workloads.conftest import RunWorkload


@pytest.mark.parametrize("device", ["dp", "kernel"])
@pytest.mark.parametrize("test", ["latency", "bandwidth", "allreduce"])
def test_four_ranks(
    run: RunWorkload, network: NetnsNetwork, tmp_path: Path, device: str, test: str
) -> None:
    """The program looks whether its data has arrived as it was sent."""
    devices = [device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts]
    outcome = run(
        "mpi",
        device=device,
        device_env=devices if device == "dp" else None,
        transport={"port": "udp"},
        timeout_s=100,
        test=test,
        size="64KiB",
        iterations=5,
    )
    found = {metric.name: metric.value for metric in outcome.metrics}
    first = "goodput" if test == "bandwidth" else "latency_mean"
    assert list(found) == [first, *(["algbw", "busbw"] if test == "allreduce" else [])]
    assert min(found.values()) > 0
    if test == "allreduce":
        assert found["busbw"] == pytest.approx(1.5 * 8e9 * 65536 / found["latency_mean"])
    yields = "mpi_yield_when_idle=1" in (tmp_path / "mpirun.cmd").read_text()
    assert yields == (len(network.hosts[0].cpus) < 4)
    assert network.path_counters().passed["forward"] * 9000 > 5 * 65536


def test_ranks_share_no_afxdp_port(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="belongs to one process"):
        run("mpi", device="dp", transport={"port": "afxdp"})


def test_wrong_parameters_and_results() -> None:
    params = REGISTRY["mpi"].Params
    with pytest.raises(ValueError, match="size is 100 bytes: allreduce sums doubles"):
        MpiParams(test="allreduce", size=100)
    assert MpiParams(test="latency", size=100).size == 100
    with pytest.raises(ValueError, match="cannot share evenly"):
        MpiParams(ranks=3).check_hosts(["host0", "host1"])
    with pytest.raises(RunFailed, match="no result"):
        Mpi(params.model_validate({})).outcome("mpirun: killed\n")
    [metric] = Mpi(params.model_validate({"test": "bandwidth"})).outcome("bandwidth 5.0\n").metrics
    assert (metric.value, metric.unit) == (40, "bit/s")
