# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The measuring of a point on a network, live (live.py) or simulated (parallel.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.experiment import collecting
from datapath.workloads import REGISTRY
from datapath.workloads.base import Metric, Outcome, RunContext

if TYPE_CHECKING:
    from datapath.experiment.spec import Collect, PointSpec
    from datapath.lanes.base import Network


@dataclass(frozen=True)
class Conditions:
    """The conditions of a run, beside its point.

    folder: where relative file names of the experiment begin.  logs: folder of this run's logs.
    timeout_s: after which the run has failed.
    """

    collect: Collect
    folder: Path
    logs: Path
    seed: int
    traffic_seed: int
    timeout_s: float


def set_up(network: Network, spec: PointSpec, seed: int) -> None:
    """Prepare the hosts' device, and set the path of a point."""
    network.prepare(spec.transport.device)
    network.set_path(spec.path, seed, held=spec.transport.reads_dates)


def run_workload(
    network: Network,
    spec: PointSpec,
    conditions: Conditions,
    device_env: list[Mapping[str, str]],
) -> Outcome:
    """Run the point's workload.  device_env: as RunContext has it."""
    context = RunContext(
        network=network,
        transport=spec.transport,
        cc=spec.cc,
        device_env=device_env,
        logs=conditions.logs,
        seed=conditions.seed,
        timeout_s=conditions.timeout_s,
        series=conditions.collect.request,
        path=spec.path,
        folder=conditions.folder,
        traffic_seed=conditions.traffic_seed,
        events=spec.events,
    )
    outcome: Outcome = REGISTRY[spec.kind](spec.workload).run(context)
    return outcome


def gather_series(
    outcome: Outcome, spec: PointSpec, conditions: Conditions
) -> tuple[dict[str, Any], list[Metric]]:
    """Give the outcome its table of series, if one was asked for.

    Returns what the record says of it, and the metrics that follow from it.
    """
    request = conditions.collect.request
    if request is None:
        return {}, []
    outcome.series, about, derived = collecting.gather(
        request,
        outcome.series,
        spec.transport.device,
        conditions.logs,
        events=outcome.events,
        zero_ns=outcome.zero_ns,
    )
    if few := collecting.few_samples(outcome.series):
        outcome.notes["samples"] = few
    return about, derived
