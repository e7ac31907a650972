# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dpctl nccl: what it prints, and how it ends."""

from __future__ import annotations

import pytest

from datapath.native import paths
from tests.cli.server import Dpctl
from tests.cli.told import told


def test_the_path_is_that_of_the_plugin(quick_dpctl: Dpctl) -> None:
    assert quick_dpctl("nccl", "path").out.strip() == str(paths.nccl_plugin())


def test_a_sound_plugin_is_right(quick_dpctl: Dpctl) -> None:
    done = quick_dpctl(
        "nccl", "check", "--version", "12", "--case", "properties", "--format", "json"
    )
    assert done.code == 0, done.err
    verdict = {"case": "properties", "interface": 12, "result": "right", "wrong": ""}
    assert told("nccl check", done.out) == [verdict]


def test_a_plugin_that_crashes_is_wrong(quick_dpctl: Dpctl) -> None:
    """One that wraps another, and is not told which."""
    plugin = paths.ROOT / paths.build_name() / "tests" / "faulty_nccl.so"
    done = quick_dpctl("nccl", "check", plugin, "--case", "properties", "--port", "none")
    assert done.code == 1
    assert "the process was killed by signal 11 (SIGSEGV)" in done.out
    assert "1 of 1 verdicts are wrong" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "none", "--loss", "1%"], "--loss is that of a path between devices"),
        (["--case", "size"], "there is no case 'size'"),
        (["/nonexistent/libnccl-net-none.so"], "No such file"),
        (["--version", "7"], "exports no ncclNetPlugin_v7"),
        (["--loss", "200%"], "Invalid value for '--loss': 200% is not between 0% and 100%"),
        (["--loss=-1%"], "Invalid value for '--loss'"),
        (["--loss", "abc"], "Invalid value for '--loss': 'abc' is not a share"),
        (["--loss", "1.5"], "Invalid value for '--loss'"),
        (["--patience", "inf"], "Invalid value for '--patience': it should be at most 86400"),
    ],
)
def test_wishes_that_cannot_be_met(quick_dpctl: Dpctl, arguments: list[str], message: str) -> None:
    done = quick_dpctl("nccl", "check", *arguments)
    assert done.code == 2
    assert message in done.err
