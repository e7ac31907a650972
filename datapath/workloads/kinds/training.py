# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Training by PyTorch's DDP, a rank on each host: over a verbs device, or by gloo over TCP."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pydantic
from pydantic import Field

from datapath.errors import LocalError, RunFailed
from datapath.lanes.base import Host, Tool
from datapath.metric_kind import MetricKind
from datapath.quantiles import nearest_rank
from datapath.units import DurationNs
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import TOLD, Program, Programs, require_device
from datapath.workloads.torch_ranks import RankParams, rank_environment
from datapath.workloads.traffic.live import DEVICE_NAMES

_LAST = 10  # steps whose mean loss is the loss at the end
_LEARNING_RATES = {"transformer": 0.02, "convnet": 0.05}  # both learn with each of many seeds


class TrainingParams(RankParams):
    """Steps of stochastic gradient descent with momentum."""

    model: Literal["transformer", "convnet"] = Field(
        "transformer", description="Some 5 million parameters, or some 0.3 million."
    )
    steps: int = Field(50, ge=1, le=10**6, description="Steps that are measured.")
    warm_up: int = Field(5, ge=3, le=10**6, description="Steps before them, also trained.")
    batch: int = Field(8, ge=1, le=4096, description="Sequences or pictures of a rank in a step.")
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="Of SGD; unless set, "
        + ", ".join(f"{rate} for {model}" for model, rate in _LEARNING_RATES.items())
        + ".",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Of SGD.")
    bucket_mib: float = Field(
        25.0, gt=0, le=1024, description="Gradients that DDP sends at once, MiB."
    )
    hook: Literal["none", "fp16", "bf16", "topk"] = Field(
        "none", description="What is done to gradients before they are sent."
    )
    density: float = Field(
        0.01, gt=0, le=1, description="Hook topk: the share of gradients that is sent."
    )
    density_warm_up: int = Field(
        0, ge=0, description="Hook topk: steps in which the density falls from 1/4 to its end."
    )
    error_feedback: bool = Field(
        True, description="Hook topk: keep what was not sent; false shows what it is good for."
    )
    silence: DurationNs = Field(
        2_500_000_000,
        ge=100_000_000,
        description="Backend dp: a peer without a sign of life for so long is gone.",
    )


class Training:
    """Metrics: step_time, loss, accuracy, and what the network and the CPUs had to do."""

    name: ClassVar[str] = "training"
    Params: ClassVar[type[pydantic.BaseModel]] = TrainingParams
    tools: ClassVar[tuple[Tool, ...]] = ()  # PyTorch is no program: needs_torch
    needs_torch: ClassVar[bool] = True
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("dp", "rxe", "siw", "kernel")
    samples: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[MetricKind, ...]] = (
        MetricKind("step_time", "ns", "Step, median", "lower", "bar"),
        MetricKind("step_time_p99", "ns", "Step, p99", "lower", "bar"),
        MetricKind("loss", "1", "Loss at the end", "lower", "bar"),
        MetricKind("accuracy", "1", "Accuracy", "higher", "bar", share=True),
        MetricKind("step_sent", "B", "Sent by a rank in a step", "lower", "bar"),
        MetricKind("gradient_share", "1", "Gradients sent, of dense ones", "lower", "bar"),
        MetricKind("step_cpu", "s", "CPU of all ranks in a step", "lower", "bar"),
    )
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, TrainingParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        hosts = ctx.network.hosts
        if not all(host.shared_files for host in hosts):
            raise LocalError(
                "workload training needs hosts that see this machine's files, PyTorch among them",
                hint="use lane: netns or vm",
            )
        with Programs(ctx, self.tools, self.params.pin, busy=True) as programs:
            started = [self.start(ctx, programs, rank, host) for rank, host in enumerate(hosts)]
            programs.finish_all(started, hearsay=TOLD)
        return self.outcome([_read(ctx.logs, host, rank) for rank, host in enumerate(hosts)])

    def start(self, ctx: RunContext, programs: Programs, rank: int, host: Host) -> Program:
        p = self.params.model_dump(include=set(TrainingParams.__annotations__) - {"silence"})
        device = ctx.transport.device
        p |= {
            "backend": "gloo" if device == "kernel" else "dp",
            "learning_rate": self.params.learning_rate or _LEARNING_RATES[self.params.model],
            "seed": ctx.table_seed,
            "netdev": host.endpoint.netdev,
            "timeout_s": ctx.timeout_s,
            "report": f"{host.outputs(ctx.logs)}/{_report_name(rank)}",
        }
        file = (ctx.logs / f"training-{rank}.json").resolve()
        file.write_text(json.dumps(p))
        environment = {
            **ctx.device_env[rank],
            **rank_environment(ctx, rank),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GLOO_SOCKET_IFNAME": host.endpoint.netdev,
        }
        if device in DEVICE_NAMES:
            environment["DATAPATH_TRAIN_DEVICE"] = DEVICE_NAMES[device]
            environment["DATAPATH_TRAIN_SILENCE_MS"] = str(self.params.silence // 1_000_000)
        words = [sys.executable, "-P", "-m", "datapath.train.worker", host.provide(file)]
        return programs.start(host, f"training-{rank}", words, environment)

    def outcome(self, reports: Sequence[dict[str, Any]]) -> Outcome:
        """Of the ranks' reports; RunFailed when their parameters differ."""
        if len({report["digest"] for report in reports}) != 1:
            raise RunFailed(
                "the ranks do not have the same parameters after training",
                hint="see training-*.report",
            )
        steps = len(reports[0]["step_ns"])
        slowest = [float(max(each)) for each in zip(*(r["step_ns"] for r in reports), strict=True)]
        losses = [
            statistics.fmean(each) for each in zip(*(r["losses"] for r in reports), strict=True)
        ]
        dense = sum(r["gradient_bytes"] for r in reports)
        notes = {"parameters": str(reports[0]["parameters"]), "digest": reports[0]["digest"][:16]}
        end = statistics.fmean(losses[-_LAST:])
        if not end < 2 * losses[0]:
            notes["diverged"] = (
                f"the loss went from {losses[0]:.3g} to {end:.3g}: lower workload.learning_rate"
            )
        return Outcome(
            [
                Metric("step_time", statistics.median(slowest), "ns"),
                Metric("step_time_p99", nearest_rank(sorted(slowest), 0.99), "ns"),
                Metric("loss", end, "1"),
                Metric("accuracy", reports[0]["accuracy"], "1"),
                Metric("step_sent", max(r["sent_bytes"] for r in reports) / steps, "B"),
                Metric("gradient_share", sum(r["hook_bytes"] for r in reports) / dense, "1"),
                Metric("step_cpu", sum(r["cpu_s"] for r in reports) / steps, "s"),
            ],
            {"step_ns": slowest, "step_loss": losses},
            notes,
        )


def _report_name(rank: int) -> str:
    return f"training-{rank}.report"


def _read(logs: Path, host: Host, rank: int) -> dict[str, Any]:
    host.fetch(logs)
    try:
        report: dict[str, Any] = json.loads((logs / _report_name(rank)).read_text())
    except (OSError, ValueError) as error:
        raise RunFailed(
            f"no report of rank {rank}: {error}", hint=f"see training-{rank}.err"
        ) from None
    return report
