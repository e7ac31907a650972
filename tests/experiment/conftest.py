# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A correct experiment, which tests change in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from datapath.experiment.load import LoadedExperiment, load_text

GOOD = """\
version: 1
name: good
topology: {mtu: 9000}
path: {loss: 0}
workload: {kind: perftest, test: write_bw, size: 1MiB}
sweep:
  matrix:
    test:
      - {label: latency, set: {workload: {kind: perftest, test: send_lat, size: 64}}}
      - {label: bandwidth, set: {workload: {kind: perftest, test: write_bw, size: 1MiB}}}
    stack:
      - {label: dp-afxdp, set: {transport.port: afxdp}}
      - {label: tcp, set: {transport.device: kernel}}
    path.loss: [0, 1%]
  adjust:
    - {where: {stack: tcp, test: bandwidth}, set: {workload: {kind: iperf3}}}
    - {where: {stack: tcp, test: latency}, set: {workload: {kind: sockperf, protocol: tcp}}}
  baseline: {stack: tcp}
  repetitions: 3
report:
  plots:
    - {kind: bar, metric: goodput, x: path.loss, series: stack}
  expect:
    - {metric: goodput, where: {stack: dp-afxdp, path.loss: 1%}, ratio_to: {path.loss: 0}, min: 0.9}
    - {metric: latency_p50, where: {stack: dp-afxdp}, max: 10us}
"""

Load = Callable[..., LoadedExperiment]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """load(old, new): the correct experiment with `old` replaced by `new`."""

    def loaded(old: str = "", new: str = "", overrides: Sequence[str] = ()) -> LoadedExperiment:
        assert old in GOOD
        return load_text(GOOD.replace(old, new, 1), tmp_path / "good.yaml", overrides)

    return loaded
