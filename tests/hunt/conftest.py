# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Algorithms that are bad on purpose, and a hunt for what breaks them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datapath.hunt.case import Setup
from datapath.hunt.findings import Finding, Findings
from datapath.hunt.hunting import Budget, hunt
from datapath.hunt.space import by_name
from tests.cli.conftest import quick_dpctl

__all__ = ["quick_dpctl"]

BAD = '''from datapath.cc import algorithm, param


@algorithm("halver", source="a test")
class Halver:
    """Halves its window at each loss, and never lets it grow again."""

    packets: float = param(12, min=1, doc="Window at first.")

    def on_init(flow):
        flow.cwnd_bytes = min(flow.packets * flow.mss_bytes, flow.max_cwnd_bytes)

    def on_ack(flow, ack):
        pass

    def on_loss(flow, loss):
        flow.cwnd_bytes = max(flow.cwnd_bytes / 2, flow.mss_bytes / 64)


@algorithm("filler", source="a test")
class Filler:
    """Sends as much as it can."""

    def on_init(flow):
        flow.cwnd_bytes = flow.max_cwnd_bytes

    def on_ack(flow, ack):
        pass
'''


class Quiet:
    """Shows nothing, and remembers what it was told."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def tried(self, cases: int, findings: int) -> None: ...

    def found(self, finding: Finding) -> None:
        self.names.append(finding.name)


Hunt = Callable[..., Findings]


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """The file with these algorithms."""
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    return path


@pytest.fixture
def run_hunt(tmp_path: Path) -> Hunt:
    """run_hunt(algorithm, only, cases=, out=, jobs=, **setup): the findings."""

    def run(
        algorithm: str,
        only: str,
        *,
        cases: int = 120,
        out: str = "hunt",
        jobs: int = 1,
        **setup: Any,
    ) -> Findings:
        findings = Findings(tmp_path / out, Setup(algorithm, **setup))
        space = [by_name(name) for name in only.split()]
        tried = hunt(space, findings, Budget(cases), Quiet(), jobs=jobs)
        assert 0 < tried <= cases
        return findings

    return run
