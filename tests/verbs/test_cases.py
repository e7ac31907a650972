# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Verbs by pyverbs programs: two QPs of one device on a UDP port, no privilege needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.verbs.conftest import PYTHON, environment

PROGRAM = Path(__file__).parent / "programs" / "cases.py"
CASES = re.findall(r"^def case_(\w+)", PROGRAM.read_text(), re.MULTILINE)


def run_case(name: str, mode: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [PYTHON, PROGRAM, name],
        env={**os.environ, **environment("udp:127.0.0.1", mode=mode), **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", ["auto", "standard"])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, mode: str) -> None:
    run_case(name, mode)


@pytest.mark.parametrize("name", ["send", "exit_without_closing"])
def test_counters_are_left_behind(name: str, tmp_path: Path) -> None:
    run_case(name, "auto", {"DATAPATH_STATS": str(tmp_path / "stats")})
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"stats\.\d+\.dp0\.json", path.name)
    stats = json.loads(path.read_text())
    assert stats["device"] == "dp0"
    assert stats["port"]["kind"] == "udp"
    assert stats["port"]["addr"] == "127.0.0.1"
    assert len(stats["qps"]) == 2
    assert {qp["qpn"] for qp in stats["qps"]} == {qp["dest_qpn"] for qp in stats["qps"]}
    if name == "send":
        assert sum(qp["rx_bytes"] for qp in stats["qps"]) == 250
        assert stats["engine"]["drop_icrc"] == 0


def test_counters_belong_to_their_process(tmp_path: Path) -> None:
    run_case("fork", "auto", {"DATAPATH_STATS": str(tmp_path / "stats")})
    assert len(list(tmp_path.iterdir())) == 1
