# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tools/pingpong.py and tools/bandwidth.py: pyverbs programs that check their data."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.verbs.conftest import Pair
from tests.verbs.devices import PYTHON

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def run(pair: Pair, tool: str, port: str, *arguments: str) -> dict[str, object]:
    argv = [PYTHON, str(TOOLS / tool), "-d", "dp0", "--json", *arguments]
    _, output = pair.run(argv, port)
    result = json.loads(output)
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize("op", ["send", "write", "read"])
@pytest.mark.parametrize("arguments", [["-s", "64"], ["-s", "20001", "-e"], ["-s", "1", "-g", "1"]])
def test_pingpong(pair: Pair, port: str, op: str, arguments: list[str]) -> None:
    result = run(pair, "pingpong.py", port, "--op", op, "-n", "200", *arguments)
    assert result["verified"] is True
    assert result["iterations"] == 200
    low, middle, high = (result[f"latency_{k}"] for k in ("min", "p50", "p99"))
    assert isinstance(low, float)
    assert isinstance(middle, float)
    assert isinstance(high, float)
    assert 0 < low <= middle <= high


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize("op", ["send", "write", "read"])
@pytest.mark.parametrize("arguments", [["-s", "1048576", "-n", "20"], ["-s", "7", "-n", "500"]])
def test_bandwidth(pair: Pair, port: str, op: str, arguments: list[str]) -> None:
    result = run(pair, "bandwidth.py", port, "--op", op, *arguments)
    assert result["verified"] is True
    assert isinstance(result["goodput"], float)
    assert result["goodput"] > 0


@pytest.mark.parametrize("tool", ["pingpong.py", "bandwidth.py"])
def test_help_shows_how_to_start(tool: str) -> None:
    done = subprocess.run(
        [PYTHON, TOOLS / tool, "--help"], capture_output=True, text=True, check=True
    )
    assert f"tools/{tool} -d dp0" in done.stdout


@pytest.mark.parametrize("tool", ["pingpong.py", "bandwidth.py"])
def test_without_a_device_the_next_step_is_told(tool: str) -> None:
    done = subprocess.run(
        [PYTHON, TOOLS / tool, "-d", "nosuch0", "127.0.0.1"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin"},
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "no verbs device" in done.stderr
