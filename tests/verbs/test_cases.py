# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Verbs by pyverbs programs: two QPs of one device, on dp, rxe or siw."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verbs import devices
from tests.verbs.programs.capability import KINDS, MEANING


def test_case(case_server: Callable[[str], tuple[int, str]], variant: str, case: str) -> None:
    status, output = case_server(case)
    assert status == 0, output


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_case_is_run_or_named_as_left_out(kind: str) -> None:
    done = devices.applicable(kind)
    left_out = [name for names in devices.not_applicable(kind).values() for name in names]
    assert sorted(done + left_out) == sorted(case.name for case in devices.cases(kind))
    assert len(set(done)) == len(done)
    assert "capabilities" in done
    lines = "\n".join(devices.describe_missing(kind))
    assert all(name in lines for name in left_out)


def test_every_capability_matters() -> None:
    """A device lacks it, and a case asks for it: the rest is what every device has."""
    programs = "".join(path.read_text() for path in devices.PROGRAMS.glob("*.py"))
    asked = set(re.findall(r'has\("([\w ]+)"\)', programs))
    asked |= {need for case in devices.cases("dp") for need in case.needs}
    assert asked == MEANING.keys()
    assert {name for have in KINDS.values() for name in MEANING.keys() - have} == MEANING.keys()
    assert all(have <= MEANING.keys() for have in KINDS.values())


def test_a_case_that_dies_is_told() -> None:
    """A signal, an exception and a wrong name are failures of that case alone."""
    server = devices.CaseServer("dp", "auto")
    try:
        status, output = server.run("no_such_case")
        assert status == 1
        assert "no case no_such_case" in output
        assert server.run("send") == (0, "")
    finally:
        server.close()


def run_alone(name: str, stats: Path) -> None:
    """The case as a program of its own, which leaves its counters behind."""
    env = devices.environment("udp:127.0.0.1", mode="auto")
    done = subprocess.run(
        [*devices.case_command("dp", "auto"), name],
        env={**os.environ, **env, "DATAPATH_STATS": str(stats)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["send", "exit_without_closing"])
def test_counters_are_left_behind(name: str, tmp_path: Path) -> None:
    run_alone(name, tmp_path / "stats")
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


def test_counters_of_a_device_that_was_opened_twice(tmp_path: Path) -> None:
    """Of both openings in one file; a child of the program has its own."""
    program = str(devices.PROGRAMS / "reopens.py")
    env = {**devices.environment("udp:127.0.0.1"), "DATAPATH_STATS": str(tmp_path / "stats")}
    subprocess.run([devices.PYTHON, program], env={**os.environ, **env}, timeout=60, check=True)
    files = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    child, parent = sorted(files, key=lambda file: len(file["qps"]))
    for stats, times in ((child, 1), (parent, 2)):
        assert [sum(qp["rx_bytes"] for qp in stats["qps"])] == [10 * times]
        assert len(stats["qps"]) == 2 * times
        packets = sum(qp["tx_packets"] for qp in stats["qps"])
        assert stats["engine"]["tx_packets"] > packets >= times
        assert stats["port_stats"]["tx_packets"] == stats["engine"]["tx_packets"]


def test_counters_belong_to_their_process(tmp_path: Path) -> None:
    run_alone("fork", tmp_path / "stats")
    assert len(list(tmp_path.iterdir())) == 1
