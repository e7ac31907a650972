# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Odd calls get the answers of the manual pages, or else those of rxe."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS

STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
LIBRARIES = ["-libverbs", "-lrdmacm", "-pthread"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    for name in ("odd", "odd_posting", "odd_cm", "descriptors"):
        source = PROGRAMS / f"{name}.c"
        subprocess.run(["gcc", *STRICT, "-o", folder / name, source, *LIBRARIES], check=True)
    return folder


def check(pair: Pair, port: str, *argv: str) -> None:
    done = pair.hosts[0].run(argv, env=pair.environment(0, port), timeout_s=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("port", ["afxdp", "udp"])
def test_verbs(pair: Pair, port: str, programs: Path) -> None:
    check(pair, port, str(programs / "odd"), "dp0")


@pytest.mark.parametrize("port", ["afxdp", "udp"])
def test_posting(pair: Pair, port: str, programs: Path) -> None:
    check(pair, port, str(programs / "odd_posting"), "dp0")


@pytest.mark.parametrize("port", ["afxdp", "udp"])
def test_rdma_cm(pair: Pair, port: str, programs: Path) -> None:
    """A receive that is posted late, too: a single retry of its sender is enough."""
    check(pair, port, str(programs / "odd_cm"), pair.hosts[0].endpoint.ipv4)


@pytest.mark.parametrize("port", ["afxdp", "udp"])
def test_too_few_descriptors(pair: Pair, port: str, programs: Path) -> None:
    """An open that fails for want of descriptors says so, whichever of them is missing."""
    done = pair.hosts[0].run(
        [str(programs / "descriptors")], env=pair.environment(0, port), timeout_s=120
    )
    wanted = ["Too many open files", "second: Too many open files"]
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted)
    told = done.stderr.splitlines()
    assert told
    reason = ": Too many open files"
    assert [line for line in told if reason not in line] == []
