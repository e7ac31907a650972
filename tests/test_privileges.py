# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who may make network namespaces is told before anything is made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from datapath import privileges
from datapath.native.paths import ROOT

LIVE = """\
version: 1
name: live
topology: {lane: netns}
path: {backend: none}
transport: {device: dp, port: udp}
workload: {kind: stream, duration: 1ms}
"""
WITHOUT = ("setpriv", "--bounding-set", "-{0}", "--inh-caps", "-{0}")


def dpctl(prefix: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*prefix, sys.executable, "-m", "datapath.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        (tuple(word.format("sys_admin") for word in WITHOUT), "needs CAP_SYS_ADMIN, to make"),
        (tuple(word.format("net_admin") for word in WITHOUT), "needs CAP_NET_ADMIN, to make"),
        (("unshare", "--user", "--map-root-user"), "root is that of a user namespace here"),
    ],
)
def test_root_that_cannot_make_networks(tmp_path: Path, prefix: tuple[str, ...], said: str) -> None:
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{prefix[0]} may not do that here")
    file, out = tmp_path / "live.yaml", tmp_path / "out"
    file.write_text(LIVE)
    done = dpctl(prefix, "run", str(file), "--out", str(out))
    assert done.returncode == 3, done.stderr
    assert said in done.stderr
    assert "--privileged" in done.stderr
    assert not out.exists()
    done = dpctl(prefix, "doctor", "--format", "json")
    assert done.returncode == 3, done.stderr
    found = {row["about"]: row for row in json.loads(done.stdout)["rows"]}
    for about in ("root", "lane netns", "lane vm"):
        assert found[about]["state"] == "lacks"
        assert "--privileged" in found[about]["mend"]
    assert found["lane sim"]["state"] == "good"
    done = dpctl(prefix, "exec", "--device", "dp0=afxdp:lo", "--", "true")
    if "-sys_admin" in prefix:  # which AF_XDP does not take
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 3, done.stderr
    assert "error: device dp0 needs " in done.stderr
    assert "--privileged" in done.stderr
    assert "dp0=udp:lo" in done.stderr


def test_capabilities_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    status, uids = tmp_path / "status", tmp_path / "uid_map"
    monkeypatch.setattr(privileges, "_STATUS", status)
    monkeypatch.setattr(privileges, "_UID_MAP", uids)
    assert privileges.lack("it") is None, "without /proc nothing is known"
    uids.write_text("         0          0 4294967295\n")
    status.write_text("Name:\tx\nCapEff:\t000001ffffffffff\n")
    assert privileges.lack("it") is None
    status.write_text("CapEff:\t00000000a80425fb\n")  # of a plain Docker container
    assert "needs CAP_SYS_ADMIN and CAP_NET_ADMIN, to" in str(privileges.lack("it"))
    af_xdp = privileges.AF_XDP
    assert "it needs CAP_BPF and CAP_NET_ADMIN, for AF_XDP" in str(privileges.lack("it", af_xdp))
    status.write_text("CapEff:\t0000008000003000\n")  # these three alone
    assert privileges.lack("it", af_xdp) is None
    status.write_text("CapEff:\t0000000000203000\n")  # CAP_SYS_ADMIN in place of CAP_BPF
    assert privileges.lack("it", af_xdp) is None
