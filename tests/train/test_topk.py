# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hooks of DDP: what topk selects, keeps and counts; all of the workload's run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def alone() -> Iterator[None]:
    """A default group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def bucket(values: list[float]) -> Any:
    import torch

    buffer = torch.tensor(values)
    return SimpleNamespace(
        index=lambda: 0, parameters=lambda: [buffer], buffer=lambda: buffer, is_last=lambda: True
    )


def test_what_is_not_sent_is_kept_and_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    from datapath.train import topk as module

    sent = []

    def select(state: Any, kept: Any, gradient: Any, group: Any, ranks: int, count: int) -> None:
        sent.append(count)

    monkeypatch.setattr(module, "_selected", select)
    monkeypatch.setattr(module, "_all", lambda *_: sent.append(0))
    state = module.TopK(density=0.01, group=SimpleNamespace(size=lambda: 2))  # type: ignore[arg-type]
    for _ in range(3):
        module.topk(state, bucket([0.0] * 1000))
    assert sent == [0, 0, 10]  # dense until DDP has settled its buckets
    assert state.dense_bytes == 3 * 4000
    assert state.sent_bytes == 2 * 4000 + 80
    state.density = 0.6  # an index beside each value: more bytes than all values
    module.topk(state, bucket([0.0] * 1000))
    assert sent[-1] == 0


def test_error_feedback_and_momentum(alone: None) -> None:
    """The hand-made example: two of four values are sent."""
    import torch

    from datapath.train.topk import TopK, _Bucket, _selected

    group = torch.distributed.group.WORLD
    kept = _Bucket(torch.tensor([1.0, 0, 0, 0]), torch.tensor([0.0, 0.5, 0, 0]))
    state = TopK(momentum=0.5)
    gradient = torch.tensor([1.0, 1.0, -4.0, 0.25])
    mean = _selected(state, kept, gradient, group, 1, 2).wait()
    # u = 0.5 u + g = 1.5 1 -4 0.25; v = v + u = 1.5 1.5 -4 0.25
    assert mean[2] == -4
    assert sorted(mean.tolist()) == [-4, 0, 0, 1.5]
    assert kept.v.sum() == 1.5 + 0.25
    assert kept.v[2] == kept.u[2] == 0
    lossy = _Bucket(torch.zeros(4), torch.zeros(4))
    _selected(TopK(error_feedback=False), lossy, torch.ones(4), group, 1, 1).wait()
    assert not lossy.v.any()


def test_what_is_sent_is_made_where_the_gradient_is(alone: None) -> None:
    """Wherever torch makes tensors that say nothing of their place."""
    import torch

    from datapath.train.topk import TopK, _Bucket, _selected

    kept, gradient = _Bucket(torch.zeros(4), torch.zeros(4)), torch.tensor([0.0, 3.0, 0.0, 0.0])
    group = torch.distributed.group.WORLD
    with torch.device("meta"):
        mean = _selected(TopK(), kept, gradient, group, 1, 1).wait()
    assert mean.tolist() == [0, 3, 0, 0]


@pytest.mark.parametrize("bucket_mib", [25, 0.2])
def test_all_gradients_with_momentum_are_plain_sgd(alone: None, bucket_mib: float) -> None:
    """Also in the first steps, after which DDP lays its buckets out anew: one of them, or several.

    What was kept moves with its parameter.
    """
    import copy

    import torch
    from torch.nn.parallel import DistributedDataParallel

    from datapath.train import models
    from datapath.train.topk import TopK, topk

    task = models.make("convnet", 1)
    plain = copy.deepcopy(task.model)
    ours = DistributedDataParallel(task.model, bucket_cap_mb=bucket_mib)
    ours.register_comm_hook(TopK(density=1, momentum=0.9), topk)
    optimizers = [
        torch.optim.SGD(ours.parameters(), lr=0.05),
        torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9),
    ]
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        inputs, wanted = task.batch(generator, 8)
        for model, optimizer in zip((ours, plain), optimizers, strict=True):
            optimizer.zero_grad()
            task.loss(model(inputs), wanted).backward()
            optimizer.step()
    for mine, theirs in zip(task.model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)


def test_the_density_falls_to_its_end() -> None:
    from datapath.train.topk import TopK

    state = TopK(density=0.01, dense_steps=2, warm_up_steps=4)
    densities = [state.density_at(step) for step in range(8)]
    assert densities[:3] == [1.0, 1.0, 0.25]
    assert densities == sorted(densities, reverse=True)
    assert densities[-2:] == [0.01, 0.01]


@pytest.mark.parametrize("wrong", [{"density": 0}, {"momentum": 1}, {"dense_steps": 1}])
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    from datapath.train.topk import TopK

    with pytest.raises(ValueError, match="topk:"):
        TopK(**wrong)


def test_ranks_have_seeds_of_their_own_whatever_that_of_the_run() -> None:
    """Two ranks: those of the recorded losses."""
    import torch

    from datapath.train.worker import batch_seed

    largest = 2**63 - 1
    assert [batch_seed(largest, rank, 2) for rank in range(2)] == [2 * largest, 2 * largest + 1]
    seeds = [batch_seed(largest, rank, 1024) for rank in range(1024)]
    assert len(set(seeds)) == 1024
    for seed in seeds:
        torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("hook", ["none", "fp16", "bf16", "topk"])
def test_hooks_of_the_workload_run(alone: None, hook: str) -> None:
    from datapath.train import worker

    settings = worker.Settings(
        backend="gloo",
        model="convnet",
        steps=2,
        warm_up=1,
        batch=4,
        learning_rate=0.01,
        momentum=0.9,
        seed=1,
        bucket_mib=25,
        hook=hook,
        density=0.01,
        error_feedback=True,
        density_warm_up=0,
        netdev="lo",
        timeout_s=60,
        report="",
    )
    report = worker.train(settings)
    assert len(report.losses) == 2
    assert report.losses == pytest.approx([math.log(10)] * 2, abs=0.3)  # of ten patterns
