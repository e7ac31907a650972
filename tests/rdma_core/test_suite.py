# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The test suite of rdma-core over our device: nothing fails, hangs or skips unexplained."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from tests.rdma_core.skips import explain
from tests.verbs.devices import PYTHON, environment

DRIVER = Path(__file__).parent / "programs" / "driver.py"
LIMIT_S = 900
"""For all tests of the suite together; on an idle machine they take some seconds."""

PASSED_AT_LEAST = {"44.0": 91}
"""By version of rdma-core: what our device has been shown to pass."""


@pytest.fixture(scope="module")
def host() -> Iterator[NetnsHost]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(Topology(), "none") as network:
        yield network.hosts[0]


@dataclass
class Outcome:
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        reasons = Counter(explain(why) or why for why in self.skipped.values())
        lines = [
            f"{len(self.passed)} passed, {len(self.skipped)} skipped, {len(self.failed)} failed"
        ]
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


def run(host: NetnsHost, spec: str, log: Path) -> Outcome:
    results = log / "results"
    suite = Path(os.environ["RDMA_CORE"]) / "tests"
    process = host.popen(
        [PYTHON, str(DRIVER), str(suite), "--dev", "dp0"],
        env={**environment(spec), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=results,
        stderr=log / "errors",
    )
    try:
        process.wait(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    return read(results.read_text())


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("port", ["afxdp", "udp"])
def test_the_suite_of_rdma_core(
    host: NetnsHost,
    port: str,
    tmp_path: Path,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    endpoint = host.endpoint
    spec = f"afxdp:{endpoint.netdev}" if port == "afxdp" else f"udp:{endpoint.ipv4}"
    outcome = run(host, spec, tmp_path)
    print(outcome.summary())
    record_testsuite_property(f"rdma-core over {port}", outcome.summary())
    assert outcome.failed == {}
    assert {test: why for test, why in outcome.skipped.items() if explain(why) is None} == {}
    known = PASSED_AT_LEAST.get(os.environ.get("RDMA_CORE_VERSION", ""), 1)
    assert len(outcome.passed) >= known
