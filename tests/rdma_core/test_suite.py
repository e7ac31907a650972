# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The test suite of rdma-core over our device: nothing fails, hangs or skips unexplained."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.native.paths import ROOT
from tests.rdma_core.outcome import (
    DRIVER,
    PROGRAMS,
    Outcome,
    built,
    built_environment,
    read,
)
from tests.rdma_core.rxe import passed_on_rxe
from tests.rdma_core.skips import explain
from tests.verbs.devices import PYTHON, environment

PAGE = ROOT / "docs" / "verbs.md"
LIMIT_S = 900
"""For all tests of the suite together; on an idle machine they take some seconds."""

PASSED_AT_LEAST = {
    ("44.0", "afxdp"): 105,
    ("44.0", "udp"): 115,
    ("64.0", "afxdp"): 134,
    ("64.0", "udp"): 145,
}
"""By version of rdma-core and port: what our device has been shown to pass."""


@pytest.fixture(scope="module")
def host() -> Iterator[NetnsHost]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(Topology(), "none") as network:
        yield network.hosts[0]


def suite_environment(spec: str) -> dict[str, str]:
    """The device, and the tools that the suite calls; pyverbs and front as run.sh built them."""
    env = {**environment(spec), "PYTHONDONTWRITEBYTECODE": "1"}
    env["PATH"] = f"{PROGRAMS / 'bin'}:{os.environ['PATH']}"
    folder = built()
    if folder is not None:
        env |= built_environment()
        front = folder / "front" / "datapath" / "verbs"
        env["LD_PRELOAD"] = str(front / "libdpverbs.so")
        env["LD_LIBRARY_PATH"] = f"{front / 'compat'}:{env['LD_LIBRARY_PATH']}"
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
    """An AF_XDP queue belongs to one process, and the tests of RDMA-CM are two."""
    results = log / "results"
    suite = Path(os.environ["RDMA_CORE"]) / "tests"
    in_sysfs = [sys.executable, "-m", "datapath.verbs.sysfs"]
    process = host.popen(
        [*in_sysfs, PYTHON, str(DRIVER), str(suite), "--dev", "dp0"],
        env={**suite_environment(spec), **({"ONE_PROCESS": "1"} if port == "afxdp" else {})},
        stdout=results,
        stderr=log / "errors",
    )
    try:
        process.wait(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    return read(results.read_text())


def row(test: str, outcome: Outcome) -> str:
    """Of the table in PAGE: a test that soft-RoCE passes, and why it does not run here."""
    return f"| `{test.removeprefix('tests.')}` | {explain(outcome.skipped[test])} |"


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
    version = os.environ.get("RDMA_CORE_VERSION", "")
    lacking = [row(test, outcome) for test in passed_on_rxe(version) if test in outcome.skipped]
    print(outcome.summary(), "Soft-RoCE passes, and this device skips:", *lacking, sep="\n")
    record_testsuite_property(f"rdma-core over {port}", outcome.summary())
    print(*(f"{test}: {why}" for test, why in outcome.failed.items()), sep="\n")
    assert list(outcome.failed) == []
    assert [line for line in lacking if line not in PAGE.read_text()] == []
    assert {test: why for test, why in outcome.skipped.items() if explain(why) is None} == {}
    assert len(outcome.passed) >= PASSED_AT_LEAST.get((version, port), 1)
