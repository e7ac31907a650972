# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A sweep that goes on with another toolkit or on another machine says so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from datapath.experiment.resumed import added, differences
from tests.cli.server import dpctl

SIM = """\
version: 1
name: resumed
topology: {lane: sim}
path: {delay: 10us, rate: 1gbit, queue: 64KiB}
transport: {port: udp}
workload: {kind: stream, size: 4KiB, depth: 4, duration: 1ms}
sweep: {matrix: {path.loss: [0, 1%]}, repetitions: 1}
"""
QUIET = ("--jobs", 1, "--no-report")


def manifest(out: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return data


def test_a_folder_of_another_kernel_and_revision(tmp_path: Path) -> None:
    path, out = tmp_path / "x.yaml", tmp_path / "out"
    path.write_text(SIM)
    assert dpctl("run", path, "--out", out, *QUIET).returncode == 0
    assert dpctl("run", "--resume", out, *QUIET).returncode == 0
    before = manifest(out)
    assert "resumed" not in before, "no run was left to make"
    before["git"] = {"commit": "0123456789abcdef", "dirty": True}
    before["machine"]["kernel"] = "5.0-other"
    (out / "manifest.json").write_text(json.dumps(before))
    min((out / "runs").iterdir()).unlink()
    done = dpctl("run", "--resume", out, *QUIET)
    assert done.returncode == 0
    here = os.uname().release
    kernels = f"The sweep was resumed, and its runs differ in the kernel: 5.0-other, then {here}."
    revisions = "its runs differ in the revision of the toolkit: 0123456789ab with changes, then "
    for told in (done.stderr, dpctl("show", out).stdout):
        assert kernels in " ".join(told.split())
        assert revisions in " ".join(told.split())
        assert "differ in the CPU" not in told
    (entry,) = manifest(out)["resumed"]
    assert entry["machine"]["kernel"] == here
    assert entry["packages"] == before["packages"]
    assert {key: manifest(out)[key] for key in ("git", "machine")} == {
        key: before[key] for key in ("git", "machine")
    }


def test_each_change_of_a_fact_is_told() -> None:
    about: dict[str, Any] = {}
    for kernel in ("6.1", "6.2", "6.2", "6.1"):
        entry = {"machine": {"kernel": kernel}}
        about = added(about, entry) if about else entry
    (told,) = differences(about)
    assert "in the kernel: 6.1, then 6.2, then 6.1." in told


@pytest.mark.parametrize("about", [{}, {"resumed": 3}, {"resumed": [1, {"git": 2}], "machine": []}])
def test_a_manifest_that_tells_nothing_tells_no_difference(about: dict[str, Any]) -> None:
    assert differences(added(about, {"machine": {"kernel": "6.1"}})) == []
