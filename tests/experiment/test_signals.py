# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Telemetry and marks that an algorithm reads, and of which a file sets one key alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.experiment import signals
from datapath.experiment.load import load, load_text
from datapath.native import paths
from tests.cli.server import dpctl

FILE = """
version: 1
name: signals
topology: {{lane: {lane}, preset: dumbbell, hosts: 4, mtu: 9000}}
path: {{rate: 1gbit, delay: 100us{path}}}
transport: {{device: {device}{transport}}}
cc: {{algo: {algo}}}
workload: {{kind: stream}}
"""

ROOM = ", options: {telemetry: true}"


def remarks(
    algo: str, path: str = "", transport: str = "", lane: str = "sim", device: str = "dp"
) -> list[str]:
    text = FILE.format(algo=algo, path=path, transport=transport, lane=lane, device=device)
    return signals.remarks(load_text(text, Path("signals.yaml")))


@pytest.mark.parametrize("algo", ["hpcc", "powertcp"])
def test_telemetry_needs_two_keys(algo: str) -> None:
    (told,) = remarks(algo, ", telemetry: true", lane="netns")
    assert told.startswith(f"{algo} reads telemetry, and transport.options.telemetry is not set")
    (told,) = remarks(algo, "", ROOM)
    assert told.startswith(f"{algo} reads telemetry, and path.telemetry is not set")
    assert told.endswith("set path.telemetry and transport.options.telemetry")
    assert remarks(algo, ", telemetry: true", ROOM) == []


def test_no_telemetry_is_told_where_nothing_else_is_read() -> None:
    (told,) = remarks("hpcc")
    assert told.startswith("hpcc knows of a queue from telemetry alone, and this file has none")
    assert remarks("powertcp") == remarks("vpc") == []  # they read RTTs, too


@pytest.mark.parametrize("algo", ["dctcp", "dcqcn", "cubic"])
@pytest.mark.parametrize("path", [", ecn: 64KiB", ", forward: {ecn: 64KiB}"])
def test_marks_need_two_keys(algo: str, path: str) -> None:
    (told,) = remarks(algo, path)
    assert told.startswith(f"{algo} reads marks, and transport.ecn is not set")
    assert told.endswith("set path.ecn and transport.ecn: true")
    assert remarks(algo, path, ", ecn: true") == []


@pytest.mark.parametrize(
    ("algo", "path", "transport", "lane", "device"),
    [
        ("swift", ", ecn: 64KiB, telemetry: true", "", "sim", "dp"),  # it reads neither
        ("dctcp", ", ecn: 64KiB", ", ecn: false", "sim", "dp"),  # meant so
        ("hpcc", ", telemetry: false", "", "sim", "dp"),
        ("hpcc", ", telemetry: true", ", options: {telemetry: false}", "sim", "dp"),
        ("dctcp", "", "", "sim", "dp"),
        ("fixed", ", ecn: 64KiB", "", "netns", "kernel"),
    ],
)
def test_what_may_be_meant_is_not_told(
    algo: str, path: str, transport: str, lane: str, device: str
) -> None:
    assert remarks(algo, path, transport, lane, device) == []


def test_files_of_the_toolkit_set_both() -> None:
    for file in sorted((paths.ROOT / "experiments").rglob("*.yaml")):
        assert signals.remarks(load(file)) == [], file


def test_validate_and_run_tell_it(tmp_path: Path) -> None:
    file = tmp_path / "signals.yaml"
    text = FILE.format(algo="dctcp", path=", ecn: 64KiB", transport="", lane="sim", device="dp")
    file.write_text(text.replace("kind: stream", "kind: stream, duration: 1ms"))
    done = dpctl("validate", file)
    assert "note: dctcp reads marks, and transport.ecn is not set" in done.stderr
    done = dpctl("run", file, "--no-report", "--out", tmp_path / "out")
    assert "note: dctcp reads marks, and transport.ecn is not set" in done.stderr
