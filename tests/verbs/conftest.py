# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Running verbs programs: cases on any device, and programs in pairs on ours."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from datapath.lanes.local import NetnsHost
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from tests.listening import await_listener
from tests.verbs.devices import (
    VARIANTS,
    CaseServer,
    applicable,
    describe_missing,
    environment,
    not_applicable,
)

RecordProperty: TypeAlias = Callable[[str, object], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--verbs-device",
        choices=sorted(VARIANTS),
        help="device of the verbs cases: dp (the default), or rxe0 or siw0 of this machine; "
        "then only the cases run",
    )


def kind_of_device(config: pytest.Config) -> str:
    return str(config.getoption("--verbs-device", default=None) or "dp")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All cases of the device in each of its variants; those it cannot do are not made."""
    if "case" in metafunc.fixturenames:
        kind = kind_of_device(metafunc.config)
        metafunc.parametrize("variant", VARIANTS[kind], scope="session")
        metafunc.parametrize("case", applicable(kind))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is about our front has nothing to do with the kernel's devices."""
    if kind_of_device(config) == "dp":
        return
    ours = [item for item in items if "variant" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = describe_missing(kind_of_device(config))
    if lines:
        terminalreporter.section("cases that the device cannot do")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def case_server(
    request: pytest.FixtureRequest, variant: str, record_testsuite_property: RecordProperty
) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Runs a case by name on the device under test: exit status and output."""
    kind = kind_of_device(request.config)
    for need, names in not_applicable(kind).items():
        record_testsuite_property("not applicable", f"{need}: {', '.join(names)}")
    server = CaseServer(kind, variant)

    def run(name: str) -> tuple[int, str]:
        nonlocal server
        if not server.alive:  # the last case hung
            server = CaseServer(kind, variant)
        return server.run(name)

    yield run
    server.close()


@dataclass
class Pair:
    """Two hosts on which programs talk to each other."""

    hosts: list[NetnsHost]
    logs: Path

    def spec(self, host: int, port: str) -> str:
        endpoint = self.hosts[host].endpoint
        return f"afxdp:{endpoint.netdev}" if port == "afxdp" else f"udp:{endpoint.ipv4}"

    def environment(self, host: int, port: str, **options: object) -> dict[str, str]:
        return environment(self.spec(host, port), **options)

    def run(
        self,
        argv: Sequence[str],
        port: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60,
        **options: object,
    ) -> tuple[str, str]:
        """`argv` on host 0 as server, and again with its address as client.

        Returns what both wrote; both must end with 0.
        """
        server_log = self.logs / "server"
        server_log.unlink(missing_ok=True)
        left, right = self.hosts
        server = left.popen(
            argv,
            env={**self.environment(0, port, **options), **(env or {})},
            stdout=server_log,
            stderr=server_log,
        )
        try:
            await_listener(left, server, timeout_s)
            client = right.run(
                [*argv, left.endpoint.ipv4],
                env={**self.environment(1, port, **options), **(env or {})},
                timeout_s=timeout_s,
            )
            status = server.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            # A client that waits for events does not hear that its server has given up.
            assert server.poll() in (None, 0), server_log.read_text()
            raise
        finally:
            server.kill()
            server.wait()
        assert client.returncode == 0, client.stdout + client.stderr + server_log.read_text()
        assert status == 0, server_log.read_text()
        return server_log.read_text(), client.stdout + client.stderr


@pytest.fixture(scope="session")
def hosts() -> Iterator[list[NetnsHost]]:
    with NetnsNetwork(Topology(), "none") as network:
        yield network.hosts


@pytest.fixture
def pair(root: None, request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    return Pair(request.getfixturevalue("hosts"), tmp_path)
