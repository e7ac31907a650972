# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl doctor`: each lack is found, and has what mends it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from datapath.cli import main
from datapath.experiment import machine, preflight
from datapath.experiment.machine import Finding, examine
from datapath.lanes import accel, kernels
from datapath.lanes.kernels import Kernel
from tests.cli.told import told


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.about: finding for finding in findings}


def test_every_question_has_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--format", "json"])
    rows = told("doctor", capsys.readouterr().out)
    found = {row["about"]: row for row in rows}
    asked = {"root", "kernel", "BTF", "KVM", "CPUs", "CPU stolen", "real-time priority", "packages"}
    asked |= {"huge pages", "disk for results", "lane netns", "lane vm", "lane sim"}
    assert asked <= set(found)
    assert code == (3 if any(row["state"] == "lacks" for row in rows) else 0)
    assert [
        row["about"] for row in rows if row["state"] in ("slow", "lacks") and not row["mend"]
    ] in ([], ["CPUs"])
    assert found["lane sim"]["state"] == "good"


def test_missing_programs_and_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ip" else which(name))
    finding = by_name(list(machine._lanes()))["lane netns"]
    assert finding.state == "lacks"
    assert "program ip is not installed" in finding.found
    assert "apt-get install iproute2" in finding.mend
    none = subprocess.CompletedProcess([], 0, stdout="ethtool installed\n", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: none)
    (packages,) = machine._packages()
    assert packages.mend.startswith("apt-get install ")
    assert "iproute2" in packages.mend.split()
    assert "ethtool" not in packages.mend.split()


def test_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = by_name(list(examine()))
    assert found["root"].mend == "sudo dpctl ..."
    assert found["lane netns"].state == "lacks"
    assert found["lane sim"].state == "good"


def test_what_guests_found_of_kvm_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """/dev/kvm may open and still run no kernel."""
    kernel = Kernel("6.12.1-amd64", Path("/none"), Path("/none"), None, "")
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(kernels.cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(kernels, "installed", lambda: [kernel])
    monkeypatch.setattr(kernels, "find", lambda _: kernel)
    monkeypatch.setattr(preflight, "check", lambda _: None)
    lane = by_name(list(machine._lanes()))["lane vm"]
    assert [f.state for f in (*machine._virtual(), lane)] == ["told", "good"]
    for works, state in ((True, "good"), (False, "slow")):
        monkeypatch.setattr(
            accel, "_try", lambda _, works=works: (works, "the words of QEMU", True)
        )
        accel._kvm_works.cache_clear()
        accel._kvm_works(kernel)
        lane = by_name(list(machine._lanes()))["lane vm"]
        (found,) = machine._virtual()
        assert "6.12.1-amd64: the words of QEMU" in found.found
        assert [found.state, lane.state] == [state, state]
        accel._note(kernel).unlink()
    accel._kvm_works.cache_clear()


def test_every_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_indices", lambda: [(1, "lo"), (2, "a"), (3, "b"), (4, "c")])
    monkeypatch.setattr(machine, "_xdp_features", lambda: {2: 1 | 2 | 8, 3: 0})
    found = {finding.about: finding.found for finding in machine._devices()}
    assert found == {
        "AF_XDP on a": "native XDP, redirect, zero-copy",
        "AF_XDP on b": "generic XDP only: copy mode",
        "AF_XDP on c": "copy mode; more is not told by this kernel",
    }


def test_the_kernel_tells_of_its_devices() -> None:
    features = machine._xdp_features()
    names = {index for index, _ in machine._indices()}
    if not features:
        pytest.skip("this kernel has no netlink family netdev (Linux 6.3)")
    assert names <= set(features)


def test_text_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Finding("packages", "lacks", "word " * 60, "apt-get install " + "package " * 20)
    monkeypatch.setattr(machine, "examine", lambda: iter([long]))
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["doctor"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("LACKS  packages  word")
    assert any("mend: apt-get install" in line for line in lines)


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "_DISK_BYTES", 2**60)
    assert {finding.state for finding in machine._disk()} == {"slow"}
