# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Results of rdma-core's suite, as the driver tells them."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.rdma_core.skips import explain

PROGRAMS = Path(__file__).parent / "programs"
DRIVER = PROGRAMS / "driver.py"


@dataclass
class Outcome:
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> str:
        return f"{len(self.passed)} passed, {len(self.skipped)} skipped, {len(self.failed)} failed"

    def summary(self) -> str:
        reasons = Counter(explain(why) or why for why in self.skipped.values())
        lines = [self.counts]
        lines += [f"  {count:3} skipped: {reason}" for reason, count in reasons.most_common()]
        return "\n".join(lines)


def read(text: str) -> Outcome:
    """The driver's lines; a test that began and did not end has failed."""
    outcome = Outcome()
    begun = ""
    for line in text.splitlines():
        told = json.loads(line)
        test, begun = told["test"], told["test"] if "result" not in told else ""
        if told.get("result") == "failed":
            outcome.failed[test] = told["why"]
        elif told.get("result") == "skipped":
            outcome.skipped[test] = told["why"]
        elif told.get("result") == "passed":
            outcome.passed.append(test)
    if begun:
        outcome.failed[begun] = "the process ended, or hung, in this test"
    return outcome


def built() -> Path | None:
    """Where run.sh has built libibverbs and pyverbs of another version than the installed one."""
    return Path(os.environ["RDMA_CORE"]) if os.environ.get("RDMA_CORE_BUILT") else None


def built_environment() -> dict[str, str]:
    """With which programs find what run.sh has built."""
    folder = built()
    if folder is None:
        return {}
    return {
        "LD_LIBRARY_PATH": str(folder / "build" / "lib"),
        "PYTHONPATH": str(folder / "build" / "python"),
    }
