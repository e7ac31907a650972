# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The test suite of rdma-core over our device: nothing fails, hangs or skips unexplained."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
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

PROGRAMS = Path(__file__).parent / "programs"
DRIVER = PROGRAMS / "driver.py"
LIMIT_S = 900
"""For all tests of the suite together; on an idle machine they take some seconds."""

PASSED_AT_LEAST = {("44.0", "afxdp"): 104, ("44.0", "udp"): 114, ("64.0", "afxdp"): 130}
"""By version of rdma-core and port: what our device has been shown to pass."""


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


def suite_environment(spec: str) -> dict[str, str]:
    """The device, and the tools that the suite calls; pyverbs and front as run.sh built them."""
    env = {**environment(spec), "PYTHONDONTWRITEBYTECODE": "1"}
    env["PATH"] = f"{PROGRAMS / 'bin'}:{os.environ['PATH']}"
    if os.environ.get("RDMA_CORE_BUILT"):
        built = Path(os.environ["RDMA_CORE"])
        front = built / "front" / "datapath" / "verbs"
        env["LD_PRELOAD"] = str(front / "libdpverbs.so")
        env["LD_LIBRARY_PATH"] = f"{front / 'compat'}:{built / 'build' / 'lib'}"
        env["PYTHONPATH"] = str(built / "build" / "python")
    return env


@contextlib.contextmanager
def losing(host: NetnsHost, percent: float) -> Iterator[None]:
    """Packets of connections that the host sends to itself are lost, each with this chance."""
    if not percent:
        yield
        return
    device = ["dev", "lo"]
    loss = ["direct-action", "bytecode", loss_program(percent)]
    for command in (
        ["tc", "qdisc", "add", *device, "clsact"],
        ["tc", "filter", "add", *device, "egress", "bpf", *loss],
    ):
        done = host.run(command)
        assert done.returncode == 0, done.stderr
    yield
    shown = host.run(["tc", "-s", "qdisc", "show", *device]).stdout
    lost = re.search(r"qdisc clsact.*?dropped (\d+)", shown, re.DOTALL)
    assert lost
    assert int(lost[1])
    print(f"{lost[1]} packets lost")
    host.run(["tc", "qdisc", "del", *device, "clsact"])


def loss_program(percent: float) -> str:
    """Classic BPF that drops IPv4 frames of RoCEv2, less datagrams, at random; as tc reads it."""
    random, ipv4_opcode = 0xFFFFF000 + 56, 14 + 20 + 8
    drop, go_on = 2, 0xFFFFFFFF  # TC_ACT_SHOT, TC_ACT_UNSPEC
    instructions = [
        (0x30, 0, 0, 14 + 9),  # protocol
        (0x15, 0, 8, 17),
        (0x28, 0, 0, 14 + 20 + 2),  # UDP port
        (0x15, 0, 6, 4791),
        (0x30, 0, 0, ipv4_opcode),
        (0x15, 4, 0, 0x64),  # UD: nobody would send it again
        (0x15, 3, 0, 0x65),
        (0x20, 0, 0, random),
        (0x35, 1, 0, int(percent / 100 * (1 << 32))),
        (0x06, 0, 0, drop),
        (0x06, 0, 0, go_on),
    ]
    return ",".join([str(len(instructions)), *(" ".join(map(str, i)) for i in instructions)])


def run(host: NetnsHost, port: str, spec: str, log: Path) -> Outcome:
    """The tests of RDMA-CM look for the device in sysfs, and are two processes on one address."""
    results = log / "results"
    suite = Path(os.environ["RDMA_CORE"]) / "tests"
    in_sysfs = [sys.executable, "-m", "datapath.verbs.sysfs"] if port == "udp" else []
    process = host.popen(
        [*in_sysfs, PYTHON, str(DRIVER), str(suite), "--dev", "dp0"],
        env=suite_environment(spec),
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
    request: pytest.FixtureRequest,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    endpoint = host.endpoint
    loss = request.config.getoption("--loss")
    if loss and port == "afxdp":
        pytest.skip("what a device sends to itself crosses no network over AF_XDP")
    spec = f"afxdp:{endpoint.netdev}" if port == "afxdp" else f"udp:{endpoint.ipv4}"
    with losing(host, loss):
        outcome = run(host, port, spec, tmp_path)
    print(outcome.summary())
    record_testsuite_property(f"rdma-core over {port}", outcome.summary())
    assert outcome.failed == {}
    assert {test: why for test, why in outcome.skipped.items() if explain(why) is None} == {}
    known = PASSED_AT_LEAST.get((os.environ.get("RDMA_CORE_VERSION", ""), port), 1)
    assert len(outcome.passed) >= known
