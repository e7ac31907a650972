# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What soft-RoCE passes of rdma-core's suite: recorded in a guest, read by the suite's run.

tests/rdma_core/run.sh record        writes rxe-VERSION.txt beside this file
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from datapath.lanes import kernels
from datapath.lanes.base import Host
from datapath.lanes.spec import Topology
from datapath.lanes.vm import VmNetwork
from tests.rdma_core.outcome import DRIVER, Outcome, built_environment, read
from tests.verbs.devices import PYTHON

KERNEL = "6.12"
GUEST = Topology(lane="vm", kernel=KERNEL, namespaces=1)
GID_INDEX = "1"
"""The IPv4 one.  At index 0 is a link-local one that rxe makes itself, to which guests have no
route; the suite takes it unless it is told otherwise."""
LIMIT_S = 3000
"""For the suite on an emulated processor."""

HERE = Path(__file__).parent


def record_of(version: str) -> Path:
    return HERE / f"rxe-{version}.txt"


def passed_on_rxe(version: str) -> list[str]:
    """Names of tests; none when nobody has recorded this version."""
    path = record_of(version)
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line and not line.startswith("#")]


def run_on_rxe(host: Host, suite: Path, folder: Path) -> Outcome:
    results = folder / "results"
    process = host.popen(
        [PYTHON, str(DRIVER), str(suite), "--dev", "rxe0", "--gid", GID_INDEX],
        env={"PYTHONDONTWRITEBYTECODE": "1", **built_environment()},
        stdout=results,
        stderr=folder / "errors",
    )
    try:
        process.wait(LIMIT_S)
    finally:
        process.kill()
    return read(results.read_text())


def record(version: str, suite: Path) -> None:
    kernels.ensure(KERNEL, lambda text: print(text, file=sys.stderr))
    with (
        tempfile.TemporaryDirectory(prefix="rdma-core-rxe-") as name,
        VmNetwork(GUEST, "none", Path(name)) as network,
    ):
        network.prepare("rxe")
        host = network.hosts[1]
        outcome = run_on_rxe(host, suite, Path(name))
        release = host.run(["uname", "-r"]).stdout.strip()
    print(outcome.summary())
    print(*(f"{test}: {why.splitlines()[-1]}" for test, why in outcome.failed.items()), sep="\n")
    lines = [
        f"# What soft-RoCE of Linux {release} passes of rdma-core {version}: {outcome.counts}.",
        "# Made by tests/rdma_core/run.sh record; do not edit.",
        *(f"# failed: {test}" for test in sorted(outcome.failed)),
        *sorted(outcome.passed),
    ]
    record_of(version).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    record(os.environ["RDMA_CORE_VERSION"], Path(os.environ["RDMA_CORE"]) / "tests")
